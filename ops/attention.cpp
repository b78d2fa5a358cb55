// Attention and FlexAttention said through matrix products and a softmax, and RotaryEmbedding.
#include "ops/attention.h"

#include <limits>

#include "ops/ir/loop_builder.h"

namespace lathe::ops {
namespace {

bool is_float_type(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::f16 || t == DType::bf16; }

// ---- lathe::MaskScores(scores, mask, lengths, past, positions): -inf where a query must not see a key ----

constexpr Attribute kMaskAttributes[] = {{"is_causal", 0}, {"left_window_size", -1}, {"right_window_size", -1}};
enum MaskInput { kScores, kMask, kLengths, kPast, kPositions };

Facts infer_mask(const OpView& op) { return {Fact(op.in(kScores).dtype, op.in(kScores).shape)}; }

/// The position of query `i` among the keys: behind those of the cache.
Scalar query_position(const OpView& op, LoopBuilder& b, const Coords& at) {
  const Scalar i = b.coordinate(at[2]);
  Coords batch;
  batch.push_back(at[0]);
  if (op.has(kPositions)) return b.binary(loops::Op::add, i, b.in(kPositions, batch));
  if (op.has(kPast)) return b.binary(loops::Op::add, i, b.number_int(DType::i64, op.in(kPast).shape[2]));
  if (!op.has(kLengths)) return i;
  const Scalar offset =
      b.binary(loops::Op::sub, b.in(kLengths, batch), b.number_int(DType::i64, op.in(kScores).shape[2]));
  return b.binary(loops::Op::add, i, offset);
}

/// Whether the windows let the query at `at` see the key.
Scalar visible(const OpView& op, LoopBuilder& b, const Coords& at) {
  using loops::Op;
  const std::int64_t left = op.i("left_window_size"), right = op.i("right_window_size");
  const bool causal = op.i("is_causal") != 0;
  const Scalar j = b.coordinate(at[3]);
  Scalar all = b.constant_int(DType::boolean, 1);
  const auto also = [&](Scalar condition) { all = b.binary(Op::logical_and, all, condition); };
  if (causal || left >= 0 || right >= 0) {
    const Scalar p = query_position(op, b, at);
    const auto shifted = [&](std::int64_t by) { return b.binary(Op::add, p, b.constant_int(DType::i64, by)); };
    if (causal) also(b.binary(Op::less_equal, j, p));
    if (left >= 0) also(b.binary(Op::greater_equal, j, shifted(-left)));
    if (right >= 0) also(b.binary(Op::less_equal, j, shifted(right)));
  }
  if (op.has(kLengths)) {
    Coords batch;
    batch.push_back(at[0]);
    also(b.binary(Op::less, j, b.in(kLengths, batch)));
  }
  return all;
}

/// The mask at the place of a score; keys behind its end are masked.
Scalar mask_at(const OpView& op, LoopBuilder& b, const Coords& at) {
  const Fact& mask = op.in(kMask);
  Coords c = b.broadcast_coords(kMask, at);
  const int last = mask.rank() - 1;
  if (mask.rank() == 0 || mask.shape[last] >= op.in(kScores).shape[3]) return b.in(kMask, c);
  c[last] = at[3];
  const int checked[] = {last};
  const Scalar outside = mask.dtype == DType::boolean
                             ? b.constant_int(DType::boolean, 0)
                             : b.constant(mask.dtype, -std::numeric_limits<double>::infinity());
  return b.in_or(kMask, c, checked, outside);
}

Scalar expr_mask(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType dtype = op.in(kScores).dtype;
  Scalar x = b.in(kScores, at);
  Scalar seen = visible(op, b, at);
  if (op.has(kMask)) {
    const Scalar mask = mask_at(op, b, at);
    if (op.in(kMask).dtype == DType::boolean) {
      seen = b.binary(loops::Op::logical_and, seen, mask);
    } else {
      x = b.binary(loops::Op::add, x, b.cast(mask, dtype));
    }
  }
  return b.select(seen, x, b.constant(dtype, -std::numeric_limits<double>::infinity()));
}

// ---- Attention ----

constexpr Attribute kAttentionAttributes[] = {{"is_causal", 0},
                                              {"kv_num_heads", AttrKind::integer},
                                              {"left_window_size", -1},
                                              {"q_num_heads", AttrKind::integer},
                                              {"qk_matmul_output_mode", 0},
                                              {"right_window_size", -1},
                                              {"scale", AttrKind::number},
                                              {"softcap", 0.0},
                                              {"softmax_precision", AttrKind::integer}};
enum AttentionInput { kQ, kK, kV, kAttnMask, kPastKey, kPastValue, kNonpadLengths };

/// Extents as if the inputs had four dims.
struct AttentionSizes {
  std::int64_t batch, q_heads, kv_heads, queries, keys, head, value_head, past;
};

AttentionSizes attention_sizes(const OpView& op) {
  const Shape &q = op.in(kQ).shape, &k = op.in(kK).shape, &v = op.in(kV).shape;
  op.require((q.rank() == 3 || q.rank() == 4) && k.rank() == q.rank() && v.rank() == q.rank(),
             "Q, K and V must have 3 or 4 dims, all the same, got {}, {} and {}", q, k, v);
  AttentionSizes s{q[0], 0, 0, 0, 0, 0, 0, op.has(kPastKey) ? op.in(kPastKey).shape[2] : 0};
  if (q.rank() == 4) {
    op.require(v[1] == k[1], "K has {} heads, V {}", k[1], v[1]);
    s.q_heads = q[1], s.kv_heads = k[1], s.queries = q[2], s.keys = k[2], s.head = q[3], s.value_head = v[3];
    op.require(k[3] == q[3] && v[2] == k[2],
               "the heads of Q and K and the lengths of K and V must agree, got {}, {} and {}", q, k, v);
  } else {
    op.require(op.has_attr("q_num_heads") && op.has_attr("kv_num_heads"),
               "q_num_heads and kv_num_heads must be given for inputs of 3 dims");
    s.q_heads = op.i("q_num_heads"), s.kv_heads = op.i("kv_num_heads"), s.queries = q[1], s.keys = k[1];
    op.require(
        s.q_heads > 0 && s.kv_heads > 0 && q[2] % s.q_heads == 0 && k[2] % s.kv_heads == 0 && v[2] % s.kv_heads == 0,
        "{} heads of Q and {} of K and V do not divide {}, {} and {}", s.q_heads, s.kv_heads, q, k, v);
    s.head = q[2] / s.q_heads, s.value_head = v[2] / s.kv_heads;
    op.require(k[2] / s.kv_heads == s.head && v[1] == k[1],
               "the heads of Q and K and the lengths of K and V must agree, got {}, {} and {}", q, k, v);
  }
  op.require(k[0] == q[0] && v[0] == q[0], "Q, K and V must have one batch extent, got {}, {} and {}", q, k, v);
  op.require(s.q_heads == 0 || (s.kv_heads > 0 && s.q_heads % s.kv_heads == 0),
             "{} heads of Q are no multiple of {} heads of K", s.q_heads, s.kv_heads);
  return s;
}

void check_past(const OpView& op, const AttentionSizes& s) {
  op.require(op.has(kPastKey) == op.has(kPastValue), "past_key and past_value must be given together");
  if (!op.has(kPastKey)) return;
  op.require(!op.has(kNonpadLengths), "nonpad_kv_seqlen must not be given with past_key");
  const Shape expected_k{s.batch, s.kv_heads, s.past, s.head}, expected_v{s.batch, s.kv_heads, s.past, s.value_head};
  op.require(op.in(kPastKey).shape == expected_k && op.in(kPastValue).shape == expected_v,
             "past_key and past_value must have shapes {} and {}, got {} and {}", expected_k, expected_v,
             op.in(kPastKey).shape, op.in(kPastValue).shape);
}

Facts infer_attention(const OpView& op) {
  const DType dtype = op.in(kQ).dtype;
  op.require(op.inputs() <= kPastKey || !op.has(kPastKey) || op.in(kPastKey).rank() == 4, "past_key must have 4 dims");
  const AttentionSizes s = attention_sizes(op);
  check_past(op, s);
  for (std::string_view name : {"left_window_size", "right_window_size"}) {
    op.require(op.i(name) >= -1, "{} must not be below -1, got {}", name, op.i(name));
  }
  const std::int64_t total = s.past + s.keys;
  const Shape scores{s.batch, s.q_heads, s.queries, total};
  if (op.has(kAttnMask)) {
    Shape mask = op.in(kAttnMask).shape;
    op.require(mask.rank() <= 4 && (mask.rank() == 0 || mask.back() <= total),
               "attn_mask of shape {} does not fit scores of shape {}", mask, scores);
    if (mask.rank() > 0) mask[mask.rank() - 1] = total;
    op.require(op.broadcast(mask, scores) == scores, "attn_mask of shape {} does not broadcast to {}",
               op.in(kAttnMask).shape, scores);
  }
  if (op.has(kNonpadLengths)) {
    op.require(op.in(kNonpadLengths).dtype == DType::i64 && op.in(kNonpadLengths).shape == Shape{s.batch},
               "nonpad_kv_seqlen must be i64 of shape {}, got {}", Shape{s.batch}, op.in(kNonpadLengths).to_string());
  }
  const Shape y = op.in(kQ).rank() == 4 ? Shape{s.batch, s.q_heads, s.queries, s.value_head}
                                        : Shape{s.batch, s.queries, s.q_heads * s.value_head};
  return {Fact(dtype, y), Fact(dtype, {s.batch, s.kv_heads, total, s.head}),
          Fact(op.in(kV).dtype, {s.batch, s.kv_heads, total, s.value_head}), Fact(dtype, scores)};
}

/// a · b over heads [batch, heads, …]: each head of b serves as many neighbours of a.
class GroupedProduct {
 public:
  /// `same_heads`: the model says that q and k have equally many.
  GroupedProduct(Builder& b, ValueId q, ValueId k, bool same_heads)
      : b_(b), direct_(same_heads || b.fact(k).shape[1] == 1) {
    if (direct_) return;
    kv_heads_ = b.shape_of(k, 1, 2);
    repeats_ = b.op("Div", {b.shape_of(q, 1, 2), kv_heads_});
  }

  ValueId operator()(ValueId left, ValueId right) const {
    if (direct_) return b_.matmul(left, right);
    const ValueId grouped =
        b_.reshape(left, b_.concat({b_.shape_of(left, 0, 1), kv_heads_, repeats_, b_.shape_of(left, 2, 4)}, 0));
    const ValueId y = b_.matmul(grouped, b_.unsqueeze(right, {2}));
    return b_.reshape(y, b_.concat({b_.shape_of(left, 0, 3), b_.shape_of(right, 3, 4)}, 0));
  }

 private:
  Builder& b_;
  bool direct_;
  ValueId kv_heads_ = kNone, repeats_ = kNone;
};

ValueId scaled(Builder& b, ValueId scores, ValueId q, std::optional<double> scale) {
  const DType dtype = b.fact(scores).dtype;
  if (scale) return b.mul(scores, b.scalar(dtype, *scale));
  return b.div(scores, b.sqrt(b.cast(b.shape_of(q, 3, 4), dtype)));
}

std::optional<double> stated_scale(const OpView& op) {
  return op.has_attr("scale") ? std::optional(op.f("scale")) : std::nullopt;
}

/// Softmax over the keys where a row may be masked whole: such a row becomes zeros.
ValueId masked_softmax(Builder& b, ValueId x, ValueId sinks) {
  const DType dtype = b.fact(x).dtype;
  ValueId most = b.reduce("ReduceMax", x, {-1});
  if (sinks != kNone) {
    sinks = b.unsqueeze(b.cast(sinks, dtype), {1, 2});
    most = b.op("Max", {most, sinks});
  } else {
    const double least =
        dtype == DType::f64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
    most = b.op("Max", {most, b.scalar(dtype, least)});
  }
  const ValueId e = b.exp(b.sub(x, most));
  const ValueId sum = b.reduce("ReduceSum", e, {-1});
  if (sinks != kNone) return b.div(e, b.add(sum, b.exp(b.sub(sinks, most))));
  return b.div(e, b.op("Where", {b.op("Equal", {sum, b.scalar(dtype, 0)}), b.scalar(dtype, 1), sum}));
}

std::vector<ValueId> lower_attention(const OpView& op, Builder& b) {
  const DType dtype = op.in(kQ).dtype;
  const DType compute = dtype == DType::f64 || op.in(kV).dtype == DType::f64 ? DType(DType::f64) : DType(DType::f32);
  const bool merged = op.in(kQ).rank() == 3;
  const auto heads = [&](int i, std::string_view count) {
    return merged ? split_heads(b, op.id(i), b.ints({op.i(count)})) : op.id(i);
  };
  AttentionTerms terms;
  terms.q = b.cast(heads(kQ, "q_num_heads"), compute);
  ValueId k = heads(kK, "kv_num_heads"), v = heads(kV, "kv_num_heads");
  if (op.has(kPastKey)) {
    k = b.concat({op.id(kPastKey), k}, 2);
    v = b.concat({op.id(kPastValue), v}, 2);
  }
  terms.k = b.cast(k, compute), terms.v = b.cast(v, compute);
  const bool stated = op.has_attr("q_num_heads") && op.has_attr("kv_num_heads");
  terms.same_heads = stated && op.i("q_num_heads") == op.i("kv_num_heads");
  terms.scale = stated_scale(op), terms.softcap = op.f("softcap"), terms.causal = op.i("is_causal") != 0;
  terms.left = op.i("left_window_size"), terms.right = op.i("right_window_size");
  terms.mask = op.id(kAttnMask), terms.lengths = op.id(kNonpadLengths), terms.past = op.id(kPastKey);
  if (op.has_attr("softmax_precision") && op.i("softmax_precision") == DType::f64) terms.softmax = DType::f64;
  const AttentionStages made = attend(b, terms);
  std::vector<ValueId> outputs = {b.cast(merged ? merge_heads(b, made.y) : made.y, dtype), k, v};
  if (op.wants(1) && k == op.id(kK)) outputs[1] = b.op("Identity", {k});
  if (op.wants(2) && v == op.id(kV)) outputs[2] = b.op("Identity", {v});
  const ValueId stages[] = {made.scaled, made.capped, made.masked, made.weights};
  const std::int64_t mode = op.i("qk_matmul_output_mode");
  op.require(mode >= 0 && mode <= 3, "qk_matmul_output_mode must be between 0 and 3, got {}", mode);
  outputs.push_back(b.cast(stages[mode], dtype));
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

// ---- FlexAttention: FlexScores, a softmax and FlexValues; import puts modifiers between these ----

constexpr Attribute kFlexAttributes[] = {{"scale", AttrKind::number}, {"softmax_precision", AttrKind::integer}};

/// The dtype of scores and weights.
DType flex_precision(const OpView& op) {
  const DType dtype = op.in(kQ).dtype;
  if (!op.has_attr("softmax_precision")) return dtype == DType::f64 ? DType(DType::f64) : DType(DType::f32);
  const std::int64_t code = op.i("softmax_precision");
  op.require(code > 0 && code < DType::kCount && is_float_type(static_cast<DType::Code>(code)),
             "softmax_precision must be f16, bf16, f32 or f64, got {}", code);
  return static_cast<DType::Code>(code);
}

Facts infer_flex_scores(const OpView& op) {
  const Fact &q = op.in(kQ), &k = op.in(kK);
  op.require(is_float_type(q.dtype), "Q must be f16, bf16, f32 or f64, got {}", q.dtype);
  op.require_same_dtype(kQ, kK);
  op.require(q.rank() == 4 && k.rank() == 4, "Q and K must have 4 dims, got {} and {}", q.shape, k.shape);
  op.require(q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3],
             "batch and head size of Q and K must agree, got {} and {}", q.shape, k.shape);
  op.require(q.shape[1] == 0 || (k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0),
             "{} heads of Q are no multiple of {} heads of K", q.shape[1], k.shape[1]);
  return {Fact(flex_precision(op), {q.shape[0], q.shape[1], q.shape[2], k.shape[2]})};
}

std::vector<ValueId> lower_flex_scores(const OpView& op, Builder& b) {
  const DType compute = LoopBuilder::compute_type(op.in(kQ).dtype);
  const ValueId q = b.cast(op.id(kQ), compute), k = b.cast(op.id(kK), compute);
  const GroupedProduct product(b, q, k, false);
  return {b.cast(scaled(b, product(q, b.transpose(k, {0, 1, 3, 2})), q, stated_scale(op)), flex_precision(op))};
}

Facts infer_flex_values(const OpView& op) {
  const Fact &weights = op.in(0), &v = op.in(1);
  op.require(is_float_type(weights.dtype) && is_float_type(v.dtype),
             "the weights and V must be f16, bf16, f32 or f64, got {} and {}", weights.dtype, v.dtype);
  op.require(weights.rank() == 4 && v.rank() == 4, "the weights and V must have 4 dims, got {} and {}", weights.shape,
             v.shape);
  op.require(weights.shape[0] == v.shape[0] && weights.shape[3] == v.shape[2],
             "batch and keys of the weights and V must agree, got {} and {}", weights.shape, v.shape);
  op.require(weights.shape[1] == 0 || (v.shape[1] > 0 && weights.shape[1] % v.shape[1] == 0),
             "{} heads of Q are no multiple of {} heads of V", weights.shape[1], v.shape[1]);
  return {Fact(v.dtype, {weights.shape[0], weights.shape[1], weights.shape[2], v.shape[3]})};
}

std::vector<ValueId> lower_flex_values(const OpView& op, Builder& b) {
  const bool wide = op.in(0).dtype == DType::f64 || op.in(1).dtype == DType::f64;
  const DType compute = wide ? DType(DType::f64) : DType(DType::f32);
  const ValueId weights = b.cast(op.id(0), compute), v = b.cast(op.id(1), compute);
  return {b.cast(GroupedProduct(b, weights, v, false)(weights, v), op.in(1).dtype)};
}

Facts infer_flex(const OpView& op) {
  const Fact &q = op.in(kQ), &k = op.in(kK), &v = op.in(kV);
  static_cast<void>(infer_flex_scores(op));
  op.require(v.rank() == 4 && v.shape[0] == k.shape[0] && v.shape[1] == k.shape[1] && v.shape[2] == k.shape[2],
             "K and V must agree in batch, heads and length, got {} and {}", k.shape, v.shape);
  return {Fact(q.dtype, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]})};
}

std::vector<ValueId> lower_flex(const OpView& op, Builder& b) {
  const ValueId scores = b.op("lathe::FlexScores", {op.id(kQ), op.id(kK)}, op.node().attributes);
  const ValueId weights = b.op("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  return {b.op("lathe::FlexValues", {weights, op.id(kV)})};
}

// ---- RotaryEmbedding: pairs of features turned by an angle per position ----

constexpr Attribute kRotaryAttributes[] = {
    {"interleaved", 0}, {"num_heads", AttrKind::integer}, {"rotary_embedding_dim", 0}};

Facts infer_rotary(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.rank() == 3 || x.rank() == 4, "x must have 3 or 4 dims, got shape {}", x.shape);
  std::int64_t head = x.shape.back();
  if (x.rank() == 3) {
    const std::int64_t heads = op.has_attr("num_heads") ? op.i("num_heads") : 0;
    op.require(heads > 0 && head % heads == 0, "num_heads must divide the {} features of x, got {}", head, heads);
    head /= heads;
  }
  const std::int64_t stated = op.i("rotary_embedding_dim");
  const std::int64_t turned = stated == 0 ? head : stated;
  op.require(turned >= 0 && turned <= head && turned % 2 == 0,
             "the turned features must be an even number up to {}, got {}", head, turned);
  const int rank = op.has(3) ? 2 : 3;
  for (int i : {1, 2}) {
    op.require(op.in(i).rank() == rank && op.in(i).shape.back() == turned / 2,
               "input {} must have {} dims, the last of {}, got shape {}", i, rank, turned / 2, op.in(i).shape);
  }
  const std::int64_t steps = x.rank() == 3 ? x.shape[1] : x.shape[2];
  const Shape positions{x.shape[0], steps};
  if (op.has(3)) {
    op.require(op.in(3).dtype == DType::i64 && op.in(3).shape == positions,
               "position_ids must be i64 of shape {}, got {}", positions, op.in(3).to_string());
  } else {
    op.require(op.in(1).shape[0] == x.shape[0] && op.in(1).shape[1] == steps && op.in(2).shape == op.in(1).shape,
               "the caches must have shape {}x{}, got {} and {}", positions, turned / 2, op.in(1).shape,
               op.in(2).shape);
  }
  return {x};
}

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

std::vector<ValueId> lower_rotary(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype;
  const DType compute = LoopBuilder::compute_type(dtype);
  const bool merged = op.in(0).rank() == 3, interleaved = op.i("interleaved") != 0;
  const std::int64_t stated = op.i("rotary_embedding_dim");
  ValueId x = b.cast(op.id(0), compute);
  if (merged) {
    const ValueId heads = b.ints({op.i("num_heads")});
    x = b.reshape(x, b.concat({b.shape_of(x, 0, 2), heads, b.op("Div", {b.shape_of(x, 2, 3), heads})}, 0));
  }
  const auto angles = [&](int i) {
    const ValueId cache = b.cast(op.id(i), compute);
    return b.unsqueeze(op.has(3) ? b.op("Gather", {cache, op.id(3)}) : cache, {merged ? 2 : 1});
  };
  const ValueId cos = angles(1), sin = angles(2);
  const ValueId turned = stated == 0 ? x : b.slice(x, {0}, {stated}, {3});
  ValueId first, second;
  if (interleaved) {
    first = b.slice(turned, {0}, {kEnd}, {3}, {2});
    second = b.slice(turned, {1}, {kEnd}, {3}, {2});
  } else {
    const auto halves = b.ops("Split", {turned}, 2, {{"axis", std::int64_t{3}}, {"num_outputs", std::int64_t{2}}});
    first = halves[0], second = halves[1];
  }
  const ValueId real = b.sub(b.mul(cos, first), b.mul(sin, second));
  const ValueId imaginary = b.add(b.mul(sin, first), b.mul(cos, second));
  ValueId y;
  if (interleaved) {
    const ValueId pairs = b.concat({b.unsqueeze(real, {4}), b.unsqueeze(imaginary, {4})}, 4);
    y = b.reshape(pairs, b.shape_of(turned));
  } else {
    y = b.concat({real, imaginary}, 3);
  }
  if (stated != 0) y = b.concat({y, b.slice(x, {stated}, {kEnd}, {3})}, 3);
  if (merged) y = b.reshape(y, b.shape_of(op.id(0)));
  return {b.cast(y, dtype)};
}

}  // namespace

ValueId split_heads(Builder& b, ValueId x, ValueId heads) {
  const ValueId width = b.op("Div", {b.shape_of(x, 2, 3), heads});
  return b.transpose(b.reshape(x, b.concat({b.shape_of(x, 0, 2), heads, width}, 0)), {0, 2, 1, 3});
}

ValueId merge_heads(Builder& b, ValueId x) {
  const ValueId hidden = b.op("Mul", {b.shape_of(x, 1, 2), b.shape_of(x, 3, 4)});
  const ValueId shape = b.concat({b.shape_of(x, 0, 1), b.shape_of(x, 2, 3), hidden}, 0);
  return b.reshape(b.transpose(x, {0, 2, 1, 3}), shape);
}

AttentionStages attend(Builder& b, const AttentionTerms& terms) {
  const DType compute = b.fact(terms.q).dtype;
  const GroupedProduct product(b, terms.q, terms.k, terms.same_heads);
  AttentionStages made{};
  made.scaled = scaled(b, product(terms.q, b.transpose(terms.k, {0, 1, 3, 2})), terms.q, terms.scale);
  made.capped = made.scaled;
  if (terms.softcap > 0) {
    const ValueId cap = b.scalar(compute, terms.softcap);
    made.capped = b.mul(b.op("Tanh", {b.div(made.scaled, cap)}), cap);
  }
  made.masked = made.capped;
  if (terms.causal || terms.left >= 0 || terms.right >= 0 || terms.mask != kNone || terms.lengths != kNone) {
    made.masked = b.op("lathe::MaskScores", {made.capped, terms.mask, terms.lengths, terms.past, terms.positions},
                       {{"is_causal", std::int64_t{terms.causal}},
                        {"left_window_size", terms.left},
                        {"right_window_size", terms.right}});
  }
  const ValueId x = b.cast(made.masked, terms.softmax.value_or(compute));
  const bool plain = made.masked == made.capped && terms.sinks == kNone;
  made.weights =
      b.cast(plain ? b.op("Softmax", {x}, {{"axis", std::int64_t{-1}}}) : masked_softmax(b, x, terms.sinks), compute);
  made.y = product(made.weights, terms.v);
  return made;
}

extern const OpDef op_attention;
constinit const OpDef op_attention = {.name = "Attention",
                                      .inputs = {3, 7},
                                      .outputs = {1, 4},
                                      .attributes = kAttentionAttributes,
                                      .forms = {23, 25},
                                      .takes = {{kFloats, inputs(0, 1, 4)},
                                                {kFloats, inputs(2, 5)},
                                                {kNumbers | DType::boolean, inputs(3)},
                                                {DType::i64, inputs(6)}},
                                      .infer = infer_attention,
                                      .lower = lower_attention};

extern const OpDef op_lathe_mask_scores;
constinit const OpDef op_lathe_mask_scores = {.name = "MaskScores",
                                              .domain = "lathe",
                                              .inputs = {1, 5},
                                              .attributes = kMaskAttributes,
                                              .infer = infer_mask,
                                              .expr = expr_mask};

extern const OpDef op_flex_attention, op_lathe_flex_scores, op_lathe_flex_values;
constinit const OpDef op_flex_attention = {.name = "FlexAttention",
                                           .domain = "ai.onnx.preview",
                                           .inputs = 3,
                                           .attributes = kFlexAttributes,
                                           .takes = kFloats,
                                           .infer = infer_flex,
                                           .lower = lower_flex};
constinit const OpDef op_lathe_flex_scores = {.name = "FlexScores",
                                              .domain = "lathe",
                                              .inputs = 2,
                                              .attributes = kFlexAttributes,
                                              .infer = infer_flex_scores,
                                              .lower = lower_flex_scores};
constinit const OpDef op_lathe_flex_values = {
    .name = "FlexValues", .domain = "lathe", .inputs = 2, .infer = infer_flex_values, .lower = lower_flex_values};

extern const OpDef op_rotary_embedding;
constinit const OpDef op_rotary_embedding = {
    .name = "RotaryEmbedding",
    .inputs = {3, 4},
    .attributes = kRotaryAttributes,
    .forms = {23, 23},
    .takes = {{DTypes(DType::f32) | DType::f16 | DType::bf16, inputs(0, 1, 2)}, {DType::i64, inputs(3)}},
    .infer = infer_rotary,
    .lower = lower_rotary};

}  // namespace lathe::ops
