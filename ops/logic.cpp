// Comparisons, boolean and bitwise operators, predicates, Where and Clip.
#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

using loops::Op;

constexpr Attribute kIsInfAttributes[] = {{"detect_negative", 1}, {"detect_positive", 1}};
constexpr Attribute kBitShiftAttributes[] = {{"direction", AttrKind::string, Attribute::kRequired}};

template <Op kOp, Accepts kSet>
constexpr OpDef comparison(std::string_view name, int since) {
  return {.name = name, .inputs = 2, .since = since, .infer = infer_comparison<kSet>, .expr = broadcast_expr<kOp>};
}

template <Op kOp>
constexpr OpDef bitwise(std::string_view name) {
  return {
      .name = name, .inputs = 2, .since = 18, .infer = infer_broadcast<Accepts::integers>, .expr = broadcast_expr<kOp>};
}

Scalar is_inf_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in(0, at));
  const bool negative = op.i("detect_negative") != 0;
  const bool positive = op.i("detect_positive") != 0;
  if (!negative && !positive) return b.constant_int(DType::boolean, 0);
  const Ex infinite = x.apply(Op::is_inf);
  if (negative && positive) return infinite;
  return infinite && (negative ? x < 0 : x > 0);
}

Facts infer_bit_shift(const OpView& op) {
  const auto direction = op.s("direction");
  op.require(direction == "LEFT" || direction == "RIGHT", "direction must be LEFT or RIGHT, got \"{}\"", direction);
  return infer_broadcast<Accepts::integers>(op);
}

// Amounts outside [0, bits) leave what the fill alone gives: the sign where x is shifted right, else 0.
Scalar bit_shift_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in_broadcast(0, at));
  const Ex y(b, b.in_broadcast(1, at));
  const int bits = x.dtype().bits();
  const bool is_signed = x.dtype().is_signed_integer();
  const Ex inside = is_signed ? y >= 0 && y < bits : y < bits;
  const Ex amount = select(inside, y, 0);
  if (op.s("direction") == "LEFT") return select(inside, x.apply(Op::shift_left, amount), 0);
  const Ex fill = is_signed ? select(x < 0, x.like(-1), 0) : x.like(0);
  return select(inside, x.apply(Op::shift_right, amount), fill);
}

Facts infer_where(const OpView& op) {
  require_dtype(op, 0, Accepts::boolean);
  require_dtype(op, 1, Accepts::anything);
  op.require_same_dtype(1, 2);
  return {{op.in(1).dtype, op.broadcast_all()}};
}

Scalar where_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  return b.select(b.in_broadcast(0, at), b.in_broadcast(1, at), b.in_broadcast(2, at));
}

Facts infer_clip(const OpView& op) {
  require_dtype(op, 0, Accepts::numeric);
  for (int i : {1, 2}) {
    if (!op.has(i)) continue;
    op.require_same_dtype(0, i);
    op.require(is_scalar(op.in(i)), "{} must be a scalar, got {}", i == 1 ? "min" : "max", op.in(i).to_string());
  }
  return {{op.in(0).dtype, op.in(0).shape}};
}

// Where min > max, the result is max.
Scalar clip_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Ex x(b, b.in(0, at));
  if (op.has(1)) x = max(x, scalar_in(op, b, 1));
  if (op.has(2)) x = min(x, scalar_in(op, b, 2));
  return x;
}

}  // namespace

extern const OpDef op_equal, op_less, op_less_or_equal, op_greater, op_greater_or_equal, op_and, op_or, op_xor, op_not,
    op_bitwise_and, op_bitwise_or, op_bitwise_xor, op_bitwise_not, op_bit_shift, op_is_nan, op_is_inf, op_where,
    op_clip;

constinit const OpDef op_equal = comparison<Op::equal, Accepts::comparable>("Equal", 19);
constinit const OpDef op_less = comparison<Op::less, Accepts::numeric>("Less", 13);
constinit const OpDef op_less_or_equal = comparison<Op::less_equal, Accepts::numeric>("LessOrEqual", 16);
constinit const OpDef op_greater = comparison<Op::greater, Accepts::numeric>("Greater", 13);
constinit const OpDef op_greater_or_equal = comparison<Op::greater_equal, Accepts::numeric>("GreaterOrEqual", 16);
constinit const OpDef op_and = comparison<Op::logical_and, Accepts::boolean>("And", 7);
constinit const OpDef op_or = comparison<Op::logical_or, Accepts::boolean>("Or", 7);
constinit const OpDef op_xor = comparison<Op::logical_xor, Accepts::boolean>("Xor", 7);
constinit const OpDef op_bitwise_and = bitwise<Op::bit_and>("BitwiseAnd");
constinit const OpDef op_bitwise_or = bitwise<Op::bit_or>("BitwiseOr");
constinit const OpDef op_bitwise_xor = bitwise<Op::bit_xor>("BitwiseXor");

constinit const OpDef op_not = {
    .name = "Not", .infer = infer_unary<Accepts::boolean>, .expr = unary_expr<Op::logical_not>};
constinit const OpDef op_bitwise_not = {
    .name = "BitwiseNot", .since = 18, .infer = infer_unary<Accepts::integers>, .expr = unary_expr<Op::bit_not>};
constinit const OpDef op_is_nan = {
    .name = "IsNaN", .since = 20, .infer = infer_predicate<Accepts::floats_and_f8>, .expr = unary_expr<Op::is_nan>};
constinit const OpDef op_is_inf = {.name = "IsInf",
                                   .attributes = kIsInfAttributes,
                                   .since = 20,
                                   .infer = infer_predicate<Accepts::floats_and_f8>,
                                   .expr = is_inf_expr};
constinit const OpDef op_bit_shift = {.name = "BitShift",
                                      .inputs = 2,
                                      .attributes = kBitShiftAttributes,
                                      .since = 28,
                                      .infer = infer_bit_shift,
                                      .expr = bit_shift_expr};
constinit const OpDef op_where = {.name = "Where", .inputs = 3, .since = 16, .infer = infer_where, .expr = where_expr};
constinit const OpDef op_clip = {.name = "Clip", .inputs = {1, 3}, .since = 13, .infer = infer_clip, .expr = clip_expr};

}  // namespace lathe::ops
