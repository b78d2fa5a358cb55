// Comparisons, boolean and bitwise operators, predicates, Where and Clip.
#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

using loops::Op;

constexpr Attribute kIsInfAttributes[] = {{"detect_negative", 1}, {"detect_positive", 1}};
constexpr Attribute kBitShiftAttributes[] = {{"direction", AttrKind::string, Attribute::kRequired}};

template <Op kOp>
constexpr OpDef comparison(std::string_view name, Forms forms, DTypes takes) {
  return {.name = name,
          .inputs = 2,
          .forms = forms,
          .takes = takes,
          .infer = infer_comparison,
          .expr = broadcast_expr<kOp>};
}

template <Op kOp>
constexpr OpDef bitwise(std::string_view name) {
  return {.name = name,
          .inputs = 2,
          .forms = {18, 18},
          .takes = kIntegers,
          .infer = infer_broadcast,
          .expr = broadcast_expr<kOp>};
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
  return infer_broadcast(op);
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
  op.require_same_dtype(1, 2);
  return {{op.in(1).dtype, op.broadcast_all()}};
}

Scalar where_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  return b.select(b.in_broadcast(0, at), b.in_broadcast(1, at), b.in_broadcast(2, at));
}

Facts infer_clip(const OpView& op) {
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

constinit const OpDef op_equal = comparison<Op::equal>("Equal", 19, kNumbers | DType::boolean | DType::string);
constinit const OpDef op_less = comparison<Op::less>("Less", 13, kNumbers);
constinit const OpDef op_less_or_equal = comparison<Op::less_equal>("LessOrEqual", {12, 16}, kNumbers);
constinit const OpDef op_greater = comparison<Op::greater>("Greater", 13, kNumbers);
constinit const OpDef op_greater_or_equal = comparison<Op::greater_equal>("GreaterOrEqual", {12, 16}, kNumbers);
constinit const OpDef op_and = comparison<Op::logical_and>("And", 7, DType::boolean);
constinit const OpDef op_or = comparison<Op::logical_or>("Or", 7, DType::boolean);
constinit const OpDef op_xor = comparison<Op::logical_xor>("Xor", 7, DType::boolean);
constinit const OpDef op_bitwise_and = bitwise<Op::bit_and>("BitwiseAnd");
constinit const OpDef op_bitwise_or = bitwise<Op::bit_or>("BitwiseOr");
constinit const OpDef op_bitwise_xor = bitwise<Op::bit_xor>("BitwiseXor");

constinit const OpDef op_not = {
    .name = "Not", .takes = DType::boolean, .infer = infer_unary, .expr = unary_expr<Op::logical_not>};
constinit const OpDef op_bitwise_not = {
    .name = "BitwiseNot", .forms = {18, 18}, .takes = kIntegers, .infer = infer_unary, .expr = unary_expr<Op::bit_not>};
constinit const OpDef op_is_nan = {.name = "IsNaN",
                                   .forms = {9, 20},
                                   .takes = kFloats | kFloat8,
                                   .infer = infer_predicate,
                                   .expr = unary_expr<Op::is_nan>};
constinit const OpDef op_is_inf = {.name = "IsInf",
                                   .attributes = kIsInfAttributes,
                                   .forms = {10, 20},
                                   .takes = kFloats | kFloat8,
                                   .infer = infer_predicate,
                                   .expr = is_inf_expr};
constinit const OpDef op_bit_shift = {.name = "BitShift",
                                      .inputs = 2,
                                      .attributes = kBitShiftAttributes,
                                      .forms = {11, 28},
                                      .takes = kIntegers,
                                      .infer = infer_bit_shift,
                                      .expr = bit_shift_expr};
constinit const OpDef op_where = {.name = "Where",
                                  .inputs = 3,
                                  .forms = {9, 16},
                                  .takes = {{DType::boolean, inputs(0)}, {kAny, inputs(1, 2)}},
                                  .infer = infer_where,
                                  .expr = where_expr};
constinit const OpDef op_clip = {
    .name = "Clip", .inputs = {1, 3}, .forms = 13, .takes = kNumbers, .infer = infer_clip, .expr = clip_expr};

}  // namespace lathe::ops
