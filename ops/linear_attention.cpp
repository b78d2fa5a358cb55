// Attention whose memory is a matrix updated step by step (LinearAttention), and the causal convolution that stands in
// front of it in such networks (CausalConvWithState).
#include <cmath>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

// ---- LinearAttention ----

constexpr Attribute kAttributes[] = {{"chunk_size", 64},
                                     {"kv_num_heads", AttrKind::integer, Attribute::kRequired},
                                     {"q_num_heads", AttrKind::integer, Attribute::kRequired},
                                     {"scale", 0.0},
                                     {"update_rule", "gated_delta"}};
enum Input { kQuery, kKey, kValue, kPast, kDecay, kBeta };

struct Sizes {
  std::int64_t batch, steps, q_heads, kv_heads, key, value;
};

Sizes sizes_of(const OpView& op) {
  const Shape &q = op.in(kQuery).shape, &k = op.in(kKey).shape, &v = op.in(kValue).shape;
  op.require(q.rank() == 3 && k.rank() == 3 && v.rank() == 3,
             "query, key and value must have 3 dims, got shapes {}, {} and {}", q, k, v);
  op.require(q[0] == k[0] && q[0] == v[0] && q[1] == k[1] && q[1] == v[1],
             "query, key and value must agree in batch and length, got {}, {} and {}", q, k, v);
  const std::int64_t q_heads = op.i("q_num_heads"), kv_heads = op.i("kv_num_heads");
  op.require(q_heads > 0 && kv_heads > 0 && q_heads % kv_heads == 0,
             "q_num_heads must be a positive multiple of kv_num_heads, got {} and {}", q_heads, kv_heads);
  op.require(q[2] % q_heads == 0 && k[2] % kv_heads == 0 && v[2] % kv_heads == 0 && q[2] / q_heads == k[2] / kv_heads,
             "{} and {} heads do not divide query, key and value of {}, {} and {}", q_heads, kv_heads, q, k, v);
  return {q[0], q[1], q_heads, kv_heads, q[2] / q_heads, v[2] / kv_heads};
}

struct Rule {
  bool gated, delta;
};

Rule rule_of(const OpView& op) {
  const std::string_view rule = op.s("update_rule");
  op.require(rule == "linear" || rule == "gated" || rule == "delta" || rule == "gated_delta",
             "update_rule must be linear, gated, delta or gated_delta, got '{}'", rule);
  return {rule == "gated" || rule == "gated_delta", rule == "delta" || rule == "gated_delta"};
}

Facts infer(const OpView& op) {
  const Sizes s = sizes_of(op);
  const Rule rule = rule_of(op);
  const DType dtype = op.in(kQuery).dtype;
  op.require(op.has(kDecay) == rule.gated, "decay must {}be given with update_rule {}", rule.gated ? "" : "not ",
             op.s("update_rule"));
  op.require(op.has(kBeta) == rule.delta, "beta must {}be given with update_rule {}", rule.delta ? "" : "not ",
             op.s("update_rule"));
  const auto require_rate = [&](int i, std::string_view what, std::int64_t one, std::int64_t other) {
    if (!op.has(i)) return;
    const Shape& shape = op.in(i).shape;
    op.require(
        shape.rank() == 3 && shape[0] == s.batch && shape[1] == s.steps && (shape[2] == one || shape[2] == other),
        "{} must have shape {}x{}x{} or {}x{}x{}, got {}", what, s.batch, s.steps, one, s.batch, s.steps, other, shape);
  };
  require_rate(kDecay, "decay", s.kv_heads, s.kv_heads * s.key);
  require_rate(kBeta, "beta", s.kv_heads, 1);
  const Shape state{s.batch, s.kv_heads, s.key, s.value};
  if (op.has(kPast)) {
    op.require(op.in(kPast).shape == state, "past_state must have shape {}, got {}", state, op.in(kPast).shape);
  }
  return {Fact(dtype, {s.batch, s.steps, s.q_heads * s.value}),
          Fact(op.has(kPast) ? op.in(kPast).dtype : dtype, state)};
}

/// One head of one sequence: row-major views with the distance between steps.
struct Head {
  const float *key, *value, *decay, *beta;
  std::int64_t key_step, value_step, decay_step, beta_step;
  std::int64_t decays;  ///< per key feature, or 1
};

/// S <- exp(g) S, then S <- S + k ⊗ (β (v − Sᵀ k)), or k ⊗ v where there is no β.
void update(const Sizes& s, const Head& h, std::int64_t t, float* state, std::pmr::vector<float>& written) {
  const float *k = h.key + t * h.key_step, *v = h.value + t * h.value_step;
  if (h.decay != nullptr) {
    for (std::int64_t i = 0; i < s.key; ++i) {
      const float kept = std::exp(h.decay[t * h.decay_step + (h.decays == 1 ? 0 : i)]);
      for (std::int64_t j = 0; j < s.value; ++j) state[i * s.value + j] *= kept;
    }
  }
  std::copy_n(v, s.value, written.begin());
  if (h.beta != nullptr) {
    for (std::int64_t i = 0; i < s.key; ++i) {
      for (std::int64_t j = 0; j < s.value; ++j) written[static_cast<std::size_t>(j)] -= k[i] * state[i * s.value + j];
    }
    for (float& w : written) w *= h.beta[t * h.beta_step];
  }
  for (std::int64_t i = 0; i < s.key; ++i) {
    for (std::int64_t j = 0; j < s.value; ++j) state[i * s.value + j] += k[i] * written[static_cast<std::size_t>(j)];
  }
}

void kernel(KernelContext& ctx) {
  const OpView& op = ctx.op();
  const Sizes s = sizes_of(op);
  const auto as_f32 = [&](int i) { return ctx.has(i) ? widened(ctx, ctx.in(i)) : Tensor(); };
  const Tensor query = as_f32(kQuery), key = as_f32(kKey), value = as_f32(kValue), decay = as_f32(kDecay),
               beta = as_f32(kBeta);
  const std::int64_t group = s.q_heads / s.kv_heads, cells = s.key * s.value;
  Tensor state = ctx.temporary(DType::f32, {s.batch, s.kv_heads, s.key, s.value});
  if (ctx.has(kPast)) assign(state, ctx.in(kPast));
  Tensor y = ctx.temporary(DType::f32, {s.batch, s.steps, s.q_heads * s.value});
  const float scale =
      static_cast<float>(op.f("scale") != 0 ? op.f("scale") : 1 / std::sqrt(static_cast<double>(s.key)));
  const auto states = state.mutable_view<float>();
  const auto out = y.mutable_view<float>();
  const auto data = [](const Tensor& t) { return t.defined() ? t.view<float>().data() : nullptr; };
  const auto width = [](const Tensor& t) { return t.defined() ? t.shape()[2] : 0; };

  ctx.parallel(s.batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, auto* scratch) {
    std::pmr::vector<float> written(static_cast<std::size_t>(s.value), scratch);
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t n = at / s.kv_heads, head = at % s.kv_heads, first = n * s.steps;
      Head h{};
      h.key_step = s.kv_heads * s.key, h.value_step = s.kv_heads * s.value;
      h.decay_step = width(decay), h.beta_step = width(beta);
      h.decays = h.decay_step == s.kv_heads ? 1 : s.key;
      h.key = data(key) + first * h.key_step + head * s.key;
      h.value = data(value) + first * h.value_step + head * s.value;
      if (decay.defined()) h.decay = data(decay) + first * h.decay_step + head * h.decays;
      if (beta.defined()) h.beta = data(beta) + first * h.beta_step + (h.beta_step == 1 ? 0 : head);
      float* memory = states.data() + at * cells;
      for (std::int64_t t = 0; t < s.steps; ++t) {
        update(s, h, t, memory, written);
        for (std::int64_t g = 0; g < group; ++g) {
          const std::int64_t reader = head * group + g;
          const float* q = data(query) + (first + t) * s.q_heads * s.key + reader * s.key;
          float* o = out.data() + (first + t) * s.q_heads * s.value + reader * s.value;
          std::fill_n(o, s.value, 0.0F);
          for (std::int64_t i = 0; i < s.key; ++i) {
            for (std::int64_t j = 0; j < s.value; ++j) o[j] += q[i] * memory[i * s.value + j];
          }
          for (std::int64_t j = 0; j < s.value; ++j) o[j] *= scale;
        }
      }
    }
  });
  assign(ctx.out(0), y);
  if (ctx.wants(1)) assign(ctx.out(1), state);
}

// ---- CausalConvWithState: a depthwise convolution that sees what came before; carries its last inputs ----

constexpr Attribute kConvAttributes[] = {{"activation", "none"}};
enum ConvInput { kX, kWeight, kBias, kConvPast };

Facts infer_conv(const OpView& op) {
  const Fact &x = op.in(kX), &w = op.in(kWeight);
  op.require(x.rank() == 3 && w.rank() == 3, "input and weight must have 3 dims, got shapes {} and {}", x.shape,
             w.shape);
  op.require(w.shape[0] == x.shape[1] && w.shape[1] == 1 && w.shape[2] >= 1, "weight must have shape {}x1xk, got {}",
             x.shape[1], w.shape);
  op.require(!op.has(kBias) || op.in(kBias).shape == Shape{x.shape[1]}, "bias must have shape {}, got {}",
             Shape{x.shape[1]}, op.has(kBias) ? op.in(kBias).shape : Shape());
  const Shape state{x.shape[0], x.shape[1], w.shape[2] - 1};
  op.require(!op.has(kConvPast) || op.in(kConvPast).shape == state, "past_state must have shape {}, got {}", state,
             op.has(kConvPast) ? op.in(kConvPast).shape : Shape());
  const std::string_view activation = op.s("activation");
  op.require(activation == "none" || activation == "silu" || activation == "swish",
             "activation must be none, silu or swish, got '{}'", activation);
  return {x, Fact(x.dtype, state)};
}

std::vector<ValueId> lower_conv(const OpView& op, Builder& b) {
  const DType dtype = op.in(kX).dtype;
  const ValueId x = op.id(kX), w = op.id(kWeight);
  const std::int64_t taps = op.in(kWeight).shape[2], channels = op.in(kX).shape[1];
  const ValueId kept = b.op("Sub", {b.shape_of(w, 2, 3), b.ints({1})});
  ValueId past = op.id(kConvPast);
  if (past == kNone) {
    const Tensor zero = Tensor::from<double>({0.0}, {1}).cast(dtype);
    past = b.op("ConstantOfShape", {b.concat({b.shape_of(x, 0, 2), kept}, 0)}, {{"value", zero}});
  }
  const ValueId seen = taps == 1 ? x : b.concat({past, x}, 2);
  ValueId y =
      b.op("Conv",
           {b.cast(seen, DType::f32), b.cast(w, DType::f32), op.has(kBias) ? b.cast(op.id(kBias), DType::f32) : kNone},
           {{"group", channels}});
  if (op.s("activation") != "none") y = b.mul(y, b.op("Sigmoid", {y}));
  std::vector<ValueId> outputs = {b.cast(y, dtype)};
  if (op.outputs() > 1) {
    const ValueId from = b.shape_of(x, 2, 3);  // the length of `seen` less what is kept
    const ValueId end = b.op("Add", {from, kept});
    outputs.push_back(taps == 1 ? past : b.op("Slice", {seen, from, end, b.ints({2})}));
  }
  return outputs;
}

}  // namespace

extern const OpDef op_linear_attention, op_causal_conv_with_state;

constinit const OpDef op_linear_attention = {
    .name = "LinearAttention",
    .inputs = {3, 6},
    .outputs = {1, 2},
    .attributes = kAttributes,
    .forms = {27, 27},
    .takes = {{DTypes(DType::f32) | DType::f16 | DType::bf16, inputs(0, 1, 2, 4, 5)},
              {DTypes(DType::f32) | DType::f16 | DType::bf16, inputs(3)}},
    .infer = infer,
    .kernel = kernel,
    .real_time = true};
constinit const OpDef op_causal_conv_with_state = {.name = "CausalConvWithState",
                                                   .inputs = {2, 4},
                                                   .outputs = {1, 2},
                                                   .attributes = kConvAttributes,
                                                   .forms = {27, 27},
                                                   .takes = DTypes(DType::f32) | DType::f16 | DType::bf16,
                                                   .infer = infer_conv,
                                                   .lower = lower_conv};

}  // namespace lathe::ops
