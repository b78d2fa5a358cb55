// One step of an optimizer, from ai.onnx.preview.training: Adagrad, Adam, Momentum. Inputs are a rate R and a count T,
// then for each of n tensors its value X, its gradient G and what the optimizer carries, grouped by kind: X1 … Xn,
// G1 … Gn, …. Outputs are the new X and what is carried, grouped likewise.
#include "ops/ir/builder.h"

namespace lathe::ops {
namespace {

constexpr int kFixed = 2;  // R and T
constexpr std::string_view kDomain = "ai.onnx.preview.training";

/// The tensors optimized, of `kinds` inputs each.
int tensors(const OpView& op, int kinds) {
  const int given = op.inputs() - kFixed;
  op.require(given > 0 && given % kinds == 0, "takes R, T and {} inputs per tensor, got {} inputs", kinds, op.inputs());
  return given / kinds;
}

Facts infer_step(const OpView& op, int kinds) {
  const int n = tensors(op, kinds);
  const auto is_real = [](DType t) { return t == DType::f32 || t == DType::f64; };
  op.require(is_real(op.in(0).dtype) && op.in(0).shape.elements() == 1, "R must be one f32 or f64, got {}",
             op.in(0).to_string());
  op.require(op.in(1).dtype == DType::i64 && op.in(1).shape.elements() == 1, "T must be one i64, got {}",
             op.in(1).to_string());
  Facts facts;
  for (int kind = 0; kind < kinds; ++kind) {
    for (int i = 0; i < n; ++i) {
      const Fact &x = op.in(kFixed + i), &other = op.in(kFixed + kind * n + i);
      op.require(is_real(x.dtype), "tensors must be f32 or f64, got {}", x.dtype);
      op.require(x.same_type(other), "tensor {} is {}, but its input of kind {} is {}", i, x.to_string(), kind,
                 other.to_string());
      if (kind != 1) facts.push_back(x);  // a gradient has no successor
    }
  }
  op.require(op.outputs() <= static_cast<int>(facts.size()), "has {} outputs, expected {}", op.outputs(), facts.size());
  return facts;
}

/// The formulas of one step, in the dtype of one of its tensors.
class Step {
 public:
  Step(const OpView& op, Builder& b, DType dtype) : op_(op), b_(b), dtype_(dtype) {
    rate = b.cast(b.reshape(op.id(0), std::vector<std::int64_t>{}), DType::f64);
    count = b.cast(b.reshape(op.id(1), std::vector<std::int64_t>{}), DType::f64);
  }
  [[nodiscard]] ValueId number(double value) const { return b_.scalar(dtype_, value); }
  [[nodiscard]] ValueId wide(double value) const { return b_.scalar(DType::f64, value); }
  [[nodiscard]] ValueId narrowed(ValueId scalar) const { return b_.cast(scalar, dtype_); }
  /// `yes` where this is not the first step.
  [[nodiscard]] ValueId if_counted(ValueId yes, ValueId no) const {
    return b_.op("Where", {b_.op("Greater", {count, wide(0)}), yes, no});
  }
  /// The gradient of the loss with norm_coefficient / 2 · |X|² added to it.
  [[nodiscard]] ValueId regularized(ValueId x, ValueId g) const {
    return b_.add(b_.mul(number(op_.f("norm_coefficient")), x), g);
  }

  ValueId rate, count;  // f64 scalars

 private:
  const OpView& op_;
  Builder& b_;
  DType dtype_;
};

/// `update(step, values of one tensor)` gives its outputs, kind by kind.
template <class Update>
std::vector<ValueId> lower_step(const OpView& op, Builder& b, int kinds, Update update) {
  const int n = tensors(op, kinds);
  std::vector<ValueId> outputs(static_cast<std::size_t>(n * (kinds - 1)), kNone);
  for (int i = 0; i < n; ++i) {
    const Step step(op, b, op.in(kFixed + i).dtype);
    std::vector<ValueId> values;
    for (int kind = 0; kind < kinds; ++kind) values.push_back(op.id(kFixed + kind * n + i));
    const std::vector<ValueId> made = update(step, values);
    for (std::size_t kind = 0; kind < made.size(); ++kind) {
      outputs[kind * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)] = made[kind];
    }
  }
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

// ---- Adagrad (Duchi, Hazan, Singer, "Adaptive Subgradient Methods", 2011): carries H ----

constexpr Attribute kAdagradAttributes[] = {{"decay_factor", 0.0}, {"epsilon", 1e-6}, {"norm_coefficient", 0.0}};
constexpr int kAdagradKinds = 3;

Facts infer_adagrad(const OpView& op) { return infer_step(op, kAdagradKinds); }

std::vector<ValueId> lower_adagrad(const OpView& op, Builder& b) {
  return lower_step(op, b, kAdagradKinds, [&](const Step& s, const std::vector<ValueId>& t) {
    const ValueId decay = b.add(s.wide(1), b.mul(s.count, s.wide(op.f("decay_factor"))));
    const ValueId rate = s.narrowed(b.div(s.rate, decay));
    const ValueId g = s.regularized(t[0], t[1]);
    const ValueId h = b.add(t[2], b.mul(g, g));
    const ValueId adaptive = b.add(b.sqrt(h), s.number(op.f("epsilon")));
    return std::vector<ValueId>{b.sub(t[0], b.div(b.mul(rate, g), adaptive)), h};
  });
}

// ---- Adam (Kingma and Ba, 2014): carries V and H ----

constexpr Attribute kAdamAttributes[] = {
    {"alpha", 0.9}, {"beta", 0.999}, {"epsilon", 1e-6}, {"norm_coefficient", 0.0}, {"norm_coefficient_post", 0.0}};
constexpr int kAdamKinds = 4;

Facts infer_adam(const OpView& op) { return infer_step(op, kAdamKinds); }

std::vector<ValueId> lower_adam(const OpView& op, Builder& b) {
  const double alpha = op.f("alpha"), beta = op.f("beta");
  return lower_step(op, b, kAdamKinds, [&](const Step& s, const std::vector<ValueId>& t) {
    const ValueId g = s.regularized(t[0], t[1]);
    const ValueId v = b.add(b.mul(s.number(alpha), t[2]), b.mul(s.number(1 - alpha), g));
    const ValueId h = b.add(b.mul(s.number(beta), t[3]), b.mul(s.number(1 - beta), b.mul(g, g)));
    const auto rest = [&](double base) { return b.sub(s.wide(1), b.op("Pow", {s.wide(base), s.count})); };
    const ValueId corrected = b.div(b.mul(s.rate, b.sqrt(rest(beta))), rest(alpha));
    const ValueId rate = s.narrowed(s.if_counted(corrected, s.rate));
    const ValueId direction = b.div(v, b.add(b.sqrt(h), s.number(op.f("epsilon"))));
    const ValueId x = b.sub(t[0], b.mul(rate, direction));
    return std::vector<ValueId>{b.mul(s.number(1 - op.f("norm_coefficient_post")), x), v, h};
  });
}

// ---- Momentum, standard or Nesterov's: carries V ----

constexpr Attribute kMomentumAttributes[] = {{"alpha", AttrKind::number, Attribute::kRequired},
                                             {"beta", AttrKind::number, Attribute::kRequired},
                                             {"mode", AttrKind::string, Attribute::kRequired},
                                             {"norm_coefficient", AttrKind::number, Attribute::kRequired}};
constexpr int kMomentumKinds = 3;

Facts infer_momentum(const OpView& op) {
  op.require(op.s("mode") == "standard" || op.s("mode") == "nesterov", "mode must be standard or nesterov, got '{}'",
             op.s("mode"));
  return infer_step(op, kMomentumKinds);
}

std::vector<ValueId> lower_momentum(const OpView& op, Builder& b) {
  return lower_step(op, b, kMomentumKinds, [&](const Step& s, const std::vector<ValueId>& t) {
    const ValueId rate = s.narrowed(s.rate);
    const ValueId beta = s.narrowed(s.if_counted(s.wide(op.f("beta")), s.wide(1)));
    const ValueId alpha = s.number(op.f("alpha"));
    const ValueId g = s.regularized(t[0], t[1]);
    const ValueId v = b.add(b.mul(alpha, t[2]), b.mul(beta, g));
    const ValueId direction = op.s("mode") == "nesterov" ? b.add(g, b.mul(alpha, v)) : v;
    return std::vector<ValueId>{b.sub(t[0], b.mul(rate, direction)), v};
  });
}

}  // namespace

extern const OpDef op_adagrad, op_adam, op_momentum;

constinit const OpDef op_adagrad = {.name = "Adagrad",
                                    .domain = kDomain,
                                    .inputs = {kFixed + kAdagradKinds, Arity::kMany},
                                    .outputs = {1, Arity::kMany},
                                    .attributes = kAdagradAttributes,
                                    .takes = {{DTypes(DType::f32) | DType::f64, inputs(0)},
                                              {DType::i64, inputs(1)},
                                              {DTypes(DType::f32) | DType::f64, inputs_from(2), false}},
                                    .infer = infer_adagrad,
                                    .lower = lower_adagrad};
constinit const OpDef op_adam = {.name = "Adam",
                                 .domain = kDomain,
                                 .inputs = {kFixed + kAdamKinds, Arity::kMany},
                                 .outputs = {1, Arity::kMany},
                                 .attributes = kAdamAttributes,
                                 .takes = {{DTypes(DType::f32) | DType::f64, inputs(0)},
                                           {DType::i64, inputs(1)},
                                           {DTypes(DType::f32) | DType::f64, inputs_from(2), false}},
                                 .infer = infer_adam,
                                 .lower = lower_adam};
constinit const OpDef op_momentum = {.name = "Momentum",
                                     .domain = kDomain,
                                     .inputs = {kFixed + kMomentumKinds, Arity::kMany},
                                     .outputs = {1, Arity::kMany},
                                     .attributes = kMomentumAttributes,
                                     .takes = {{DTypes(DType::f32) | DType::f64, inputs(0)},
                                               {DType::i64, inputs(1)},
                                               {DTypes(DType::f32) | DType::f64, inputs_from(2), false}},
                                     .infer = infer_momentum,
                                     .lower = lower_momentum};

}  // namespace lathe::ops
