// What pointwise operators share: inference, and makers of their definitions.
#pragma once

#include "ops/expression.h"
#include "ops/ir/op.h"

namespace lathe::ops {

/// One input; the output has its type.
inline Facts infer_unary(const OpView& op) { return {{op.in(0).dtype, op.in(0).shape}}; }
/// One input; the output has its shape and is boolean.
inline Facts infer_predicate(const OpView& op) { return {{DType::boolean, op.in(0).shape}}; }
/// Inputs of one dtype, broadcast.
inline Facts infer_broadcast(const OpView& op) { return {{op.in(0).dtype, op.broadcast_all()}}; }
/// Inputs of one dtype, broadcast; the output is boolean.
inline Facts infer_comparison(const OpView& op) { return {{DType::boolean, op.broadcast_all()}}; }

template <loops::Op kOp>
Scalar unary_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  return b.unary(kOp, b.in(0, at));
}
/// One input or more, combined from the left.
template <loops::Op kOp>
Scalar broadcast_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Scalar all = b.in_broadcast(0, at);
  for (int i = 1; i < op.inputs(); ++i) all = b.binary(kOp, all, b.in_broadcast(i, at));
  return all;
}

/// Whether a fact is a rank-0 tensor, or one of a single element that older exporters write in its place.
inline bool is_scalar(const Fact& fact) { return fact.is_tensor() && fact.shape.elements() == 1; }

/// The only element of input i, a scalar.
inline Ex scalar_in(const OpView& op, LoopBuilder& b, int i) {
  Coords origin;
  for (int d = 0; d < op.in(i).rank(); ++d) origin.push_back({});
  return {b, b.in(i, origin)};
}

}  // namespace lathe::ops
