// Arithmetic on broadcast operands: Add to Pow, and the variadic Max, Min, Sum and Mean.
#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

using loops::Op;

constexpr Attribute kModAttributes[] = {{"fmod", 0}};

template <Op kOp>
constexpr OpDef arithmetic(std::string_view name, Forms forms) {
  return {.name = name,
          .inputs = 2,
          .forms = forms,
          .takes = kNumbers,
          .infer = infer_broadcast,
          .expr = broadcast_expr<kOp>};
}

template <Op kOp>
constexpr OpDef variadic(std::string_view name, Forms forms, DTypes takes) {
  return {.name = name,
          .inputs = {1, Arity::kMany},
          .forms = forms,
          .takes = takes,
          .infer = infer_broadcast,
          .expr = broadcast_expr<kOp>};
}

Scalar mean_expr(const OpView& op, LoopBuilder& b, int output, const Coords& at) {
  return Ex(b, broadcast_expr<Op::add>(op, b, output, at)) / op.inputs();
}

Facts infer_mod(const OpView& op) {
  op.require(op.i("fmod") == 0 || op.i("fmod") == 1, "fmod must be 0 or 1, got {}", op.i("fmod"));
  return infer_broadcast(op);
}

// The floored remainder of floats from the truncated one, r: y is added where r is not zero and its sign is not y's. An
// infinite y needs no care: r is x, and x + y is y.
Ex floored_mod(Ex x, Ex y) {
  const Ex r = x.apply(Op::fmod, y);
  const Ex crosses = r != 0 && ((r < 0) != (y < 0));
  const Ex zero = select(y < 0, x.like(-0.0), x.like(0.0));
  return select(crosses, r + y, select(r == 0, zero, r));
}

Scalar mod_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in_broadcast(0, at));
  const Ex y(b, b.in_broadcast(1, at));
  if (op.i("fmod") == 1) return x.apply(Op::fmod, y);
  return x.dtype().is_float() ? floored_mod(x, y) : x.apply(Op::mod, y);
}

Facts infer_pow(const OpView& op) { return {{op.in(0).dtype, op.broadcast_all()}}; }

Scalar pow_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in_broadcast(0, at));
  const Ex y(b, b.in_broadcast(1, at));
  if (x.dtype().is_float()) {
    const Ex p = pow(x, y.cast(x.dtype()));
    if (y.dtype().is_float() || y.dtype().bits() < 32 || x.dtype() == DType::f64) return p;
    // As float32 every whole number beyond 2^24 is even, as float64 beyond 2^53.
    const Ex wide = y.cast(DType::f64).apply(Op::abs);
    const Ex rounded = wide >= 0x1p24 && wide < 0x1p53;
    const Ex odd = y.cast(DType::i64).apply(Op::bit_and, y.cast(DType::i64).like(1)) != 0;
    return select(rounded && odd && (x < 0 || x.like(1) / x < 0), -p, p);
  }
  if (!y.dtype().is_float()) return pow(x.cast(DType::i64), y.cast(DType::i64)).cast(x.dtype());
  return pow(x.cast(DType::f64), y.cast(DType::f64)).cast(x.dtype());
}

}  // namespace

extern const OpDef op_add, op_sub, op_mul, op_div, op_mod, op_pow, op_max, op_min, op_sum, op_mean;

constinit const OpDef op_add = arithmetic<Op::add>("Add", 14);
constinit const OpDef op_sub = arithmetic<Op::sub>("Sub", 14);
constinit const OpDef op_mul = arithmetic<Op::mul>("Mul", 14);
constinit const OpDef op_div = arithmetic<Op::div>("Div", 14);
constinit const OpDef op_max = variadic<Op::max>("Max", 13, kNumbers);
constinit const OpDef op_min = variadic<Op::min>("Min", 13, kNumbers);
constinit const OpDef op_sum = variadic<Op::add>("Sum", 13, kFloats);

constinit const OpDef op_mean = {.name = "Mean",
                                 .inputs = {1, Arity::kMany},
                                 .forms = 13,
                                 .takes = kFloats,
                                 .infer = infer_broadcast,
                                 .expr = mean_expr};
constinit const OpDef op_mod = {.name = "Mod",
                                .inputs = 2,
                                .attributes = kModAttributes,
                                .forms = {10, 28},
                                .takes = kNumbers,
                                .infer = infer_mod,
                                .expr = mod_expr};
constinit const OpDef op_pow = {.name = "Pow",
                                .inputs = 2,
                                .forms = 15,
                                .takes = {{kNumbers, inputs(0)}, {kNumbers, inputs(1)}},
                                .infer = infer_pow,
                                .expr = pow_expr};

}  // namespace lathe::ops
