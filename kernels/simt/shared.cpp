// Shared memory of a block, poisoned at its start: 0xff is NaN in every float format, so nothing
// seems to survive from the block before.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/simt/block_runner.h"

namespace reprise::simt {

void SharedBlock::Free::operator()(void* memory) const { std::free(memory); }

SharedBlock::SharedBlock(std::size_t bytes, std::size_t alignment) : bytes_(bytes) {
  // One alignment behind a multiple of twice the alignment: never aligned better than asked for.
  const std::size_t coarse = 2 * std::max(alignment, alignof(std::max_align_t));
  void* memory = nullptr;
  if (posix_memalign(&memory, coarse, alignment + bytes) != 0) throw std::bad_alloc();
  memory_.reset(memory);
  data_ = static_cast<unsigned char*>(memory) + alignment;
  poison();
}

void SharedBlock::poison() { std::memset(data_, 0xff, bytes_); }

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment, Place where) {
  return current_block("a shared variable").shared_variable(key, bytes, alignment, where);
}

void* dynamic_shared(Place where) {
  return current_block("dynamic shared memory").dynamic_shared(where);
}

void* BlockRunner::shared_variable(const void* key, std::size_t bytes, std::size_t alignment,
                                   Place where) {
  auto& variable = variables_[key];
  if (!variable) {
    variable_bytes_ += bytes;
    if (variable_bytes_ > kMaxStaticSharedBytes ||
        variable_bytes_ + launch_.dynamic_bytes > kMaxSharedBytes) {
      fail(where, "this block's shared memory, " + std::to_string(variable_bytes_) +
                      " bytes of variables and " + std::to_string(launch_.dynamic_bytes) +
                      " dynamic ones, is more than a block may have");
    }
    variable = std::make_unique<SharedBlock>(bytes, alignment);
  }
  return variable->data();
}

void* BlockRunner::dynamic_shared(Place where) {
  if (!dynamic_) fail(where, "dynamic shared memory, but the launch asked for none");
  return dynamic_->data();
}

}  // namespace reprise::simt
