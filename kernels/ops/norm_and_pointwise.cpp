// Contracts of the ops that work row by row or element by element.
#include "kernels/ops/contract.h"
#include "reprise/kernels/ops/embedding.h"
#include "reprise/kernels/ops/residual.h"
#include "reprise/kernels/ops/rms_norm.h"
#include "reprise/kernels/ops/rope.h"
#include "reprise/kernels/ops/swiglu.h"

namespace reprise {
namespace {

bool is_matrix(const ConstView& view) {
  return view.dims.rank() == 2 && view.dims[0] > 0 && view.dims[1] > 0;
}

}  // namespace

Support check(const EmbeddingForwardArgs& args) {
  Contract contract;
  contract.holds(is_matrix(args.table), "table must be a matrix [V, C]")
      .holds(is_matrix(args.y), "y must be a matrix [M, C]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.y.dims[0], c = args.y.dims[1];
  return contract.is("ids", args.ids, DType::kI32, {m})
      .is_float("table", args.table, {args.table.dims[0], c})
      .is("y", args.y, DType::kF32, {m, c})
      .separate({{"y", args.y}}, {{"ids", args.ids}, {"table", args.table}})
      .result();
}

Support check(const RmsNormForwardArgs& args) {
  Contract contract;
  contract.holds(is_matrix(args.x), "x must be a matrix [M, C]")
      .holds(args.eps >= 0, "eps must not be negative");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.x.dims[0], c = args.x.dims[1];
  return contract.is("x", args.x, DType::kF32, {m, c})
      .is("weight", args.weight, DType::kF32, {c})
      .is_float("y", args.y, {m, c})
      .is("inv_rms", args.inv_rms, DType::kF32, {m})
      .separate({{"y", args.y}, {"inv_rms", args.inv_rms}},
                {{"x", args.x}, {"weight", args.weight}})
      .result();
}

Support check(const RmsNormBackwardArgs& args) {
  Contract contract;
  contract.holds(is_matrix(args.x), "x must be a matrix [M, C]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t m = args.x.dims[0], c = args.x.dims[1];
  return contract.is("grad_y", args.grad_y, DType::kF32, {m, c})
      .is("x", args.x, DType::kF32, {m, c})
      .is("weight", args.weight, DType::kF32, {c})
      .is("inv_rms", args.inv_rms, DType::kF32, {m})
      .is("grad_x", args.grad_x, DType::kF32, {m, c})
      .separate({{"grad_x", args.grad_x}}, {{"grad_y", args.grad_y},
                                            {"x", args.x},
                                            {"weight", args.weight},
                                            {"inv_rms", args.inv_rms}})
      .result();
}

Support check(const RopeArgs& args) {
  Contract contract;
  contract.holds(is_matrix(args.x), "x must be a matrix [M, H * D]")
      .holds(args.heads > 0, "heads must be at least 1")
      .holds(args.table.dims.rank() == 3, "table must be [seq, D / 2, 2]");
  if (!contract.result().ok()) return contract.result();
  const std::int64_t seq = args.table.dims[0], half = args.table.dims[1];
  const std::int64_t m = args.x.dims[0];
  return contract.holds(seq > 0 && half > 0, "table must not be empty")
      .is("table", args.table, DType::kF32, {seq, half, 2})
      .is_float("x", args.x, {m, args.heads * half * 2})
      .is("y", args.y, args.x.dtype, args.x.dims)
      .holds(seq > 0 && m % seq == 0, "rows of x must be a multiple of the table's positions")
      .apart_or_same("x", args.x, "y", args.y)
      .separate({{"y", args.y}}, {{"table", args.table}})
      .result();
}

Support check(const SwigluForwardArgs& args) {
  return Contract()
      .holds(is_matrix(args.gate), "gate must be a matrix [M, F]")
      .is_float("gate", args.gate, args.gate.dims)
      .is("up", args.up, args.gate.dtype, args.gate.dims)
      .is("y", args.y, args.gate.dtype, args.gate.dims)
      .separate({{"y", args.y}}, {{"gate", args.gate}, {"up", args.up}})
      .result();
}

Support check(const SwigluBackwardArgs& args) {
  return Contract()
      .holds(is_matrix(args.gate), "gate must be a matrix [M, F]")
      .is_float("gate", args.gate, args.gate.dims)
      .is("up", args.up, args.gate.dtype, args.gate.dims)
      .is("grad_y", args.grad_y, args.gate.dtype, args.gate.dims)
      .is("grad_gate", args.grad_gate, args.gate.dtype, args.gate.dims)
      .is("grad_up", args.grad_up, args.gate.dtype, args.gate.dims)
      .apart_or_same("gate", args.gate, "grad_gate", args.grad_gate)
      .apart_or_same("up", args.up, "grad_up", args.grad_up)
      .apart("up", args.up, "grad_gate", args.grad_gate)
      .apart("gate", args.gate, "grad_up", args.grad_up)
      .separate({{"grad_gate", args.grad_gate}, {"grad_up", args.grad_up}},
                {{"grad_y", args.grad_y}})
      .result();
}

Support check(const ResidualArgs& args) {
  return Contract()
      .holds(args.a.present() && args.a.count() > 0, "a must have elements")
      .is("a", args.a, DType::kF32, args.a.dims)
      .is_float("b", args.b, args.a.dims)
      .is("y", args.y, DType::kF32, args.a.dims)
      .apart_or_same("a", args.a, "y", args.y)
      .separate({{"y", args.y}}, {{"b", args.b}})
      .result();
}

Support check(const FillArgs& args) {
  return Contract()
      .holds(args.x.present() && args.x.count() > 0, "x must have elements")
      .is("x", args.x, DType::kF32, args.x.dims)
      .result();
}

}  // namespace reprise
