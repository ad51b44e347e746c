// NOTE: nothing here is kept between calls. oneDNN has a cache of primitives of its own,
// thread-safe and keyed by the whole description: after the first call with a shape, making the
// primitive costs 30 to 60 microseconds (measured, 2.6 and 3.2), below 1 % of any product worth
// comparing. It allocates a few hundred bytes each time; the large scratch is ours.
#include "kernels/cpu/onednn_gemm.h"

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "reprise/kernels/error.h"

namespace reprise::cpu {
namespace {

using dnnl::memory;

// Distributions build oneDNN on libgomp, whose thread count belongs to the calling thread: set for
// one call, then given back. libgomp keeps threads of its own beside the pool's; they are idle
// while the pool works, after spinning for a short while.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int threads) : previous_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~OpenMpThreads() { omp_set_num_threads(previous_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int previous_;
};

memory::data_type library_type(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc describe(DType dtype, std::int64_t rows, std::int64_t columns,
                      Transpose transpose = Transpose::kNo) {
  return {{rows, columns},
          library_type(dtype),
          transpose == Transpose::kYes ? memory::format_tag::ba : memory::format_tag::ab};
}

// Position of the addend among the operations after the product.
struct PostOps {
  dnnl::post_ops list;
  int addend = 0;
};

PostOps post_ops(const LibraryGemm& gemm, const memory::desc& addend) {
  PostOps ops;
  if (gemm.scale != 1.0f) {
#if DNNL_VERSION_MAJOR >= 3
    ops.list.append_eltwise(dnnl::algorithm::eltwise_linear, gemm.scale, 0.0f);
#else
    ops.list.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, gemm.scale, 0.0f);
#endif
  }
  if (gemm.mode == OutputMode::kAccumulate) ops.list.append_sum(1.0f);
  ops.addend = ops.list.len();
  if (gemm.addend.present()) ops.list.append_binary(dnnl::algorithm::binary_add, addend);
  return ops;
}

struct Plan {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  memory::desc a, b, bias, addend, c;
  int addend_position = 0;
  dnnl::matmul::primitive_desc primitive;

  explicit Plan(const LibraryGemm& gemm) {
    const std::int64_t m = gemm.c.dims[0];
    const std::int64_t n = gemm.c.dims[1];
    const std::int64_t k = gemm.a.dims[1];
    a = describe(gemm.a.dtype, m, k);
    b = describe(gemm.b.dtype, k, n, gemm.transpose_b);
    bias = gemm.bias.present() ? describe(DType::kF32, 1, n) : memory::desc();
    addend = describe(DType::kF32, m, n);
    c = describe(gemm.c.dtype, m, n);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const PostOps after = post_ops(gemm, addend);
    attributes.set_post_ops(after.list);
    addend_position = after.addend;
#if DNNL_VERSION_MAJOR >= 3
    primitive = dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes);
#else
    primitive = dnnl::matmul::primitive_desc({a, b, bias, c}, attributes, engine);
#endif
  }
};

// The library takes every buffer through one type and writes to none but c and its scratch.
memory wrap(const memory::desc& desc, const dnnl::engine& engine, const void* data) {
  return {desc, engine, const_cast<void*>(data)};
}

std::string library_name() {
  return "oneDNN " + std::to_string(DNNL_VERSION_MAJOR) + "." + std::to_string(DNNL_VERSION_MINOR);
}

}  // namespace

Support library_supports(const LibraryGemm& gemm) {
  try {
    const Plan plan(gemm);
    return Support::yes();
  } catch (const dnnl::error& error) {
    return Support::no(library_name() + " has no matmul of " + name_of(gemm.a.dtype) + " into " +
                       name_of(gemm.c.dtype) + " on this CPU (" + error.what() + ")");
  }
}

std::int64_t library_scratch_bytes(const LibraryGemm& gemm, int threads) {
  const OpenMpThreads scope(threads);
  try {
    return static_cast<std::int64_t>(Plan(gemm).primitive.scratchpad_desc().get_size());
  } catch (const dnnl::error& error) {
    throw Error(library_name() + ": " + error.what());
  }
}

void run_library_gemm(const LibraryGemm& gemm, Scratch scratch, int threads) {
  const OpenMpThreads scope(threads);
  try {
    const Plan plan(gemm);
    std::unordered_map<int, memory> operands = {
        {DNNL_ARG_SRC, wrap(plan.a, plan.engine, gemm.a.data)},
        {DNNL_ARG_WEIGHTS, wrap(plan.b, plan.engine, gemm.b.data)},
        {DNNL_ARG_DST, wrap(plan.c, plan.engine, gemm.c.data)},
        {DNNL_ARG_SCRATCHPAD, wrap(plan.primitive.scratchpad_desc(), plan.engine, scratch.data)}};
    if (gemm.bias.present()) {
      operands.insert({DNNL_ARG_BIAS, wrap(plan.bias, plan.engine, gemm.bias.data)});
    }
    if (gemm.addend.present()) {
      operands.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(plan.addend_position) | DNNL_ARG_SRC_1,
                       wrap(plan.addend, plan.engine, gemm.addend.data)});
    }
    dnnl::stream stream(plan.engine);
    dnnl::matmul(plan.primitive).execute(stream, operands);
    stream.wait();
  } catch (const dnnl::error& error) {
    throw Error(library_name() + ": " + error.what());
  }
}

}  // namespace reprise::cpu
