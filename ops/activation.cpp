// Activation functions, pointwise: Relu and its kin, the gates, and the smooth ones.
#include <numbers>

#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

using loops::Op;

// Makes an `expr` of a formula over the first input, in the type that it is computed in.
template <Ex (*kFormula)(const OpView&, Ex)>
Scalar of_input(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  return kFormula(op, Ex(b, b.in(0, at)));
}

Ex relu(const OpView&, Ex x) { return max(x, 0); }
Ex leaky_relu(const OpView& op, Ex x) { return select(x < 0, op.f("alpha") * x, x); }
Ex elu(const OpView& op, Ex x) { return select(x < 0, op.f("alpha") * (exp(x) - 1), x); }
Ex celu(const OpView& op, Ex x) { return select(x < 0, op.f("alpha") * (exp(x / op.f("alpha")) - 1), x); }
Ex selu(const OpView& op, Ex x) {
  const double alpha = op.f("alpha");
  return op.f("gamma") * select(x > 0, x, alpha * exp(x) - alpha);
}
Ex thresholded_relu(const OpView& op, Ex x) { return select(x > op.f("alpha"), x, 0); }
Ex hard_sigmoid(const OpView& op, Ex x) { return min(max(op.f("alpha") * x + op.f("beta"), 0), 1); }
Ex hard_swish(const OpView&, Ex x) { return x * min(max(x * (1.0 / 6) + 0.5, 0), 1); }
Ex swish(const OpView& op, Ex x) { return x * sigmoid(op.f("alpha") * x); }
Ex softsign(const OpView&, Ex x) { return x / (abs(x) + 1); }
// log(1 + exp x) without overflow: max(x, 0) + log(1 + exp(-|x|)).
Ex softplus(const OpView&, Ex x) { return max(x, 0) + log1p(exp(-abs(x))); }
Ex mish(const OpView& op, Ex x) { return x * tanh(softplus(op, x)); }

Ex gelu(const OpView& op, Ex x) {
  if (op.s("approximate") == "none") return 0.5 * x * (erf(x * std::numbers::sqrt2 / 2) + 1);
  constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  return 0.5 * x * (tanh(kScale * (x + 0.044715 * x * x * x)) + 1);
}

// Integers are shrunk as f64, since lambd and bias need not be whole.
Ex shrink(const OpView& op, Ex x) {
  const Ex v = x.dtype().is_float() ? x : x.cast(DType::f64);
  const double lambd = op.f("lambd");
  const double bias = op.f("bias");
  return select(v < -lambd, v + bias, select(v > lambd, v - bias, 0)).cast(x.dtype());
}

Facts infer_gelu(const OpView& op) {
  const auto form = op.s("approximate");
  op.require(form == "none" || form == "tanh", "approximate must be none or tanh, got \"{}\"", form);
  return infer_unary(op);
}

Facts infer_swiglu(const OpView& op) {
  op.require(op.in(0).shape == op.in(1).shape, "inputs must have one shape, got {} and {}", op.in(0).shape,
             op.in(1).shape);
  return {{op.in(0).dtype, op.in(0).shape}};
}

Scalar swiglu_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  return swish(op, Ex(b, b.in(0, at))) * Ex(b, b.in(1, at));
}

Facts infer_prelu(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(op.broadcast_all() == x, "slope {} must broadcast to the input's shape {}", op.in(1).shape, x);
  return {{op.in(0).dtype, x}};
}

Scalar prelu_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in(0, at));
  if (x.dtype().is_unsigned_integer()) return x;
  return select(x < 0, x * Ex(b, b.in_broadcast(1, at)), x);
}

constexpr Attribute kLeakyReluAttributes[] = {{"alpha", 0.01}};
constexpr Attribute kAlpha[] = {{"alpha", 1.0}};
constexpr Attribute kSeluAttributes[] = {{"alpha", 1.6732632423543772}, {"gamma", 1.0507009873554805}};
constexpr Attribute kHardSigmoidAttributes[] = {{"alpha", 0.2}, {"beta", 0.5}};
constexpr Attribute kGeluAttributes[] = {{"approximate", "none"}};
constexpr Attribute kShrinkAttributes[] = {{"bias", 0.0}, {"lambd", 0.5}};

template <Ex (*kFormula)(const OpView&, Ex)>
constexpr OpDef activation(std::string_view name, Forms forms, std::span<const Attribute> attributes = {},
                           DTypes takes = kFloats) {
  return {.name = name,
          .attributes = attributes,
          .forms = forms,
          .takes = takes,
          .infer = infer_unary,
          .expr = of_input<kFormula>};
}

}  // namespace

extern const OpDef op_relu, op_leaky_relu, op_elu, op_celu, op_selu, op_thresholded_relu, op_sigmoid, op_hard_sigmoid,
    op_hard_swish, op_swish, op_swiglu, op_softsign, op_softplus, op_mish, op_gelu, op_shrink, op_prelu;

constinit const OpDef op_relu = activation<relu>("Relu", 14, {}, kFloats | kSigned);
constinit const OpDef op_leaky_relu = activation<leaky_relu>("LeakyRelu", 16, kLeakyReluAttributes);
constinit const OpDef op_elu = activation<elu>("Elu", 22, kAlpha);
constinit const OpDef op_celu = activation<celu>("Celu", {12, 28}, kAlpha);
constinit const OpDef op_selu = activation<selu>("Selu", 22, kSeluAttributes);
constinit const OpDef op_thresholded_relu = activation<thresholded_relu>("ThresholdedRelu", {10, 22}, kAlpha);
constinit const OpDef op_hard_sigmoid = activation<hard_sigmoid>("HardSigmoid", 22, kHardSigmoidAttributes);
constinit const OpDef op_hard_swish = activation<hard_swish>("HardSwish", {14, 22});
constinit const OpDef op_swish = activation<swish>("Swish", {24, 24}, kAlpha);
constinit const OpDef op_softsign = activation<softsign>("Softsign", 22);
constinit const OpDef op_softplus = activation<softplus>("Softplus", 22);
constinit const OpDef op_mish = activation<mish>("Mish", {18, 22});
constinit const OpDef op_shrink = activation<shrink>("Shrink", {9, 9}, kShrinkAttributes, kNumbers);

constinit const OpDef op_sigmoid = {
    .name = "Sigmoid", .forms = 13, .takes = kFloats, .infer = infer_unary, .expr = unary_expr<Op::sigmoid>};
constinit const OpDef op_gelu = {.name = "Gelu",
                                 .attributes = kGeluAttributes,
                                 .forms = {20, 20},
                                 .takes = kFloats,
                                 .infer = infer_gelu,
                                 .expr = of_input<gelu>};
constinit const OpDef op_swiglu = {.name = "SwiGLU",
                                   .inputs = 2,
                                   .attributes = kAlpha,
                                   .forms = {28, 28},
                                   .takes = kFloats,
                                   .infer = infer_swiglu,
                                   .expr = swiglu_expr};
constinit const OpDef op_prelu = {
    .name = "PRelu", .inputs = 2, .forms = 16, .takes = kNumbers, .infer = infer_prelu, .expr = prelu_expr};

}  // namespace lathe::ops
