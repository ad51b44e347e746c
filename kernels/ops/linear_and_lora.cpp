// Contracts of the frozen linear layer and its adapter.
#include <bit>

#include "kernels/ops/contract.h"
#include "reprise/kernels/ops/linear_nf4.h"
#include "reprise/kernels/ops/lora.h"

namespace reprise {
namespace {

Support check_weight(const Nf4View& weight) {
  const bool power = std::has_single_bit(static_cast<std::uint64_t>(weight.block_size));
  return Contract()
      .holds(weight.n > 0 && weight.k > 0, "weight must have at least one row and column")
      .holds(power && weight.block_size >= 64 && weight.block_size <= 4096,
             "block_size must be a power of two from 64 to 4096")
      .result();
}

void check_dropout(Contract& contract, const Dropout& dropout) {
  contract.holds(dropout.probability >= 0 && dropout.probability < 1,
                 "dropout probability must be in [0, 1)");
}

DType cached_dtype(ComputeType compute) { return activation_dtype(compute); }

}  // namespace

Support check(const LinearNf4ForwardArgs& args) {
  if (Support weight = check_weight(args.weight); !weight.ok()) return weight;
  Contract contract;
  contract.holds(args.x.dims.rank() == 2 && args.x.dims[0] > 0, "x must be a matrix [M, K]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.x.dims[0], n = args.weight.n, k = args.weight.k;
  contract.is_float("x", args.x, {m, k}).is_float("y", args.y, {m, n});
  if (args.bias.present()) contract.is("bias", args.bias, DType::kF32, {n});
  if (args.cached_weight.present()) {
    contract.is("cached_weight", args.cached_weight, cached_dtype(args.compute), {n, k});
  }
  if (args.lora.a.present()) {
    const std::int64_t r = args.lora.a.dims[0];
    check_dropout(contract, args.lora.dropout);
    contract.holds(r > 0, "lora.a must have at least one row, the rank")
        .is("lora.a", args.lora.a, DType::kF32, {r, k})
        .is("lora.b", args.lora.b, DType::kF32, {n, r})
        .is("lora.u", args.lora.u, DType::kF32, {m, r});
  }
  return contract
      .separate({{"y", args.y}, {"lora.u", args.lora.u}, bytes_of(args.scratch)},
                {{"x", args.x},
                 packed_of(args.weight),
                 absmax_of(args.weight),
                 {"cached_weight", args.cached_weight},
                 {"bias", args.bias},
                 {"lora.a", args.lora.a},
                 {"lora.b", args.lora.b}})
      .result();
}

Support check(const LinearNf4BackwardArgs& args) {
  if (Support weight = check_weight(args.weight); !weight.ok()) return weight;
  Contract contract;
  contract.holds(args.grad_y.dims.rank() == 2 && args.grad_y.dims[0] > 0,
                 "grad_y must be a matrix [M, N]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.grad_y.dims[0], n = args.weight.n, k = args.weight.k;
  contract.is_float("grad_y", args.grad_y, {m, n}).is_float("grad_x", args.grad_x, {m, k});
  if (args.cached_weight.present()) {
    contract.is("cached_weight", args.cached_weight, cached_dtype(args.compute), {n, k});
  }
  if (args.lora.a.present()) {
    const std::int64_t r = args.lora.a.dims[0];
    check_dropout(contract, args.lora.dropout);
    contract.holds(r > 0, "lora.a must have at least one row, the rank")
        .is("lora.a", args.lora.a, DType::kF32, {r, k})
        .is("lora.grad_u", args.lora.grad_u, DType::kF32, {m, r});
  }
  return contract
      .separate({{"grad_x", args.grad_x}, bytes_of(args.scratch)},
                {{"grad_y", args.grad_y},
                 packed_of(args.weight),
                 absmax_of(args.weight),
                 {"cached_weight", args.cached_weight},
                 {"lora.a", args.lora.a},
                 {"lora.grad_u", args.lora.grad_u}})
      .result();
}

Support check(const LoraBackwardArgs& args) {
  Contract contract;
  contract
      .holds(args.grad_y.dims.rank() == 2 && args.grad_y.dims[0] > 0,
             "grad_y must be a matrix [M, N]")
      .holds(args.a.dims.rank() == 2 && args.a.dims[0] > 0, "a must be a matrix [R, K]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.grad_y.dims[0], n = args.grad_y.dims[1];
  const std::int64_t r = args.a.dims[0], k = args.a.dims[1];
  check_dropout(contract, args.dropout);
  return contract.is_float("grad_y", args.grad_y, {m, n})
      .is_float("x", args.x, {m, k})
      .is("u", args.u, DType::kF32, {m, r})
      .is("a", args.a, DType::kF32, {r, k})
      .is("b", args.b, DType::kF32, {n, r})
      .is("grad_u", args.grad_u, DType::kF32, {m, r})
      .is("grad_a", args.grad_a, DType::kF32, {r, k})
      .is("grad_b", args.grad_b, DType::kF32, {n, r})
      .separate(
          {{"grad_u", args.grad_u},
           {"grad_a", args.grad_a},
           {"grad_b", args.grad_b},
           bytes_of(args.scratch)},
          {{"grad_y", args.grad_y}, {"x", args.x}, {"u", args.u}, {"a", args.a}, {"b", args.b}})
      .result();
}

}  // namespace reprise
