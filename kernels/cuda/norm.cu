// Launches of RMS normalisation.
#include "kernels/cuda/norm.cuh"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tables.h"

namespace reprise::cuda {
namespace {

LaunchShape rows_shape(std::int64_t rows, const Execution& execution) {
  return row_of_blocks(ceil_div(rows, kNormWarps), kNormWarps * kWarp, execution);
}

void rms_norm_forward(const RmsNormForwardArgs& args, const Execution& execution) {
  const NormForward params = {.rows = args.x.dims[0],
                              .width = args.x.dims[1],
                              .x = args.x.as<float>(),
                              .weight = args.weight.as<float>(),
                              .eps = args.eps,
                              .y = args.y,
                              .inv_rms = args.inv_rms.as<float>()};
  launch("rms_norm_forward_plain", rms_norm_forward_plain, rows_shape(params.rows, execution),
         params);
}

void rms_norm_backward(const RmsNormBackwardArgs& args, const Execution& execution) {
  const NormBackward params = {.rows = args.x.dims[0],
                               .width = args.x.dims[1],
                               .grad_y = args.grad_y.as<float>(),
                               .x = args.x.as<float>(),
                               .weight = args.weight.as<float>(),
                               .inv_rms = args.inv_rms.as<float>(),
                               .grad_x = {args.grad_x, args.mode}};
  launch("rms_norm_backward_plain", rms_norm_backward_plain, rows_shape(params.rows, execution),
         params);
}

}  // namespace

void add_norm(OpTable& table) {
  table.rms_norm_forward.push_back({kPlain, check, nullptr, rms_norm_forward});
  table.rms_norm_backward.push_back({kPlain, check, nullptr, rms_norm_backward});
}

}  // namespace reprise::cuda
