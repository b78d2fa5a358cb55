// The multi-head attentions of com.microsoft: MultiHeadAttention; Attention and QAttention, which project first; and
// RotaryEmbedding in the form that goes with them.
#include <limits>
#include <vector>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/infer_as.h"
#include "ops/ir/loop_builder.h"
#include "ops/quantize.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kDomain = "com.microsoft";
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// Extents of queries and keys.
struct Sizes {
  std::int64_t batch = 0, heads = 0, queries = 0, past = 0, keys = 0;
  [[nodiscard]] std::int64_t total() const { return past + keys; }
};

// ---- masks ----

/// Masks are [batch, total] or [batch, queries, total]: positive where a key is seen; [batch]: how many keys are seen;
/// [3 batch + 2]: these, then what is not needed here. With `padded`, of com.microsoft::Attention, also [2 batch]:
/// where the keys end, then where they begin; one column, which says nothing; and [batch, 1, most, most], whose rows
/// and columns are positions.
void check_mask(const OpView& op, int i, const Sizes& s, bool padded) {
  if (!op.has(i)) return;
  const Fact& mask = op.in(i);
  op.require(mask.dtype == DType::i32, "the mask, input {}, must be i32, got {}", i, mask.dtype);
  const Shape& m = mask.shape;
  bool fits = false;
  if (m.rank() == 1) fits = m[0] == s.batch || m[0] == 3 * s.batch + 2 || (padded && m[0] == 2 * s.batch);
  if (m.rank() == 2) fits = m == Shape{s.batch, s.total()} || (padded && m[1] == 1 && (m[0] == 1 || m[0] == s.batch));
  if (m.rank() == 3) fits = m == Shape{s.batch, s.queries, s.total()};
  if (m.rank() == 4) fits = padded && m[0] == s.batch && m[1] == 1 && m[2] == m[3] && m[2] >= s.total();
  op.require(fits, "the mask, input {}, of shape {} does not fit {} batches of {} queries and {} keys", i, m, s.batch,
             s.queries, s.total());
}

/// Where keys are seen, as booleans that broadcast to [batch, heads, queries, total]; kNone where the mask says
/// nothing.
ValueId seen_keys(const OpView& op, Builder& b, int i, const Sizes& s, ValueId batch, ValueId past, ValueId total) {
  if (!op.has(i)) return kNone;
  const ValueId mask = op.id(i);
  const Shape& shape = op.in(i).shape;
  const auto positive = [&](ValueId x) { return b.op("Greater", {x, b.scalar(DType::i32, 0)}); };
  if (shape.rank() == 3) return b.unsqueeze(positive(mask), {1});
  if (shape.rank() == 2) {
    if (shape[1] == 1 && s.total() != 1) return kNone;
    return b.unsqueeze(positive(mask), {1, 2});
  }
  if (shape.rank() == 4) {
    const ValueId queries = b.op("Sub", {total, past});
    const ValueId from = b.concat({past, b.ints({0})}, 0), to = b.concat({b.add(past, queries), total}, 0);
    return positive(b.op("Slice", {mask, from, to, b.ints({2, 3})}));
  }
  const ValueId key = b.cast(b.counted(total), DType::i32);
  const ValueId end = b.op("Gather", {mask, b.counted(batch)});
  const ValueId before_end = b.op("Less", {b.unsqueeze(key, {0}), b.unsqueeze(end, {1})});
  const ValueId has_start = b.op("Equal", {b.shape_of(mask), b.mul(batch, b.ints({2}))});
  const ValueId from = b.mul(b.cast(has_start, DType::i64), batch);
  const ValueId start = b.mul(b.op("Gather", {mask, b.add(b.counted(batch), from)}), b.cast(has_start, DType::i32));
  const ValueId behind_start = b.op("GreaterOrEqual", {b.unsqueeze(key, {0}), b.unsqueeze(start, {1})});
  return b.unsqueeze(b.op("And", {before_end, behind_start}), {1, 2});
}

// ---- the attention that all share ----

constexpr double kFiltered = -10000.0;  ///< what is added for masked keys unless mask_filter_value says otherwise

/// Operands [batch, heads, length, width], and which inputs say what to see.
struct MultiHead {
  ValueId q = kNone, k = kNone, v = kNone;
  ValueId past_k = kNone, past_v = kNone;
  int mask = -1, bias = -1;  ///< inputs; -1 where the operator has none
  Sizes sizes;
};

struct MultiHeadResult {
  ValueId y;     ///< [batch, queries, hidden]
  ValueId k, v;  ///< with the past in front
  ValueId scores;
};

void check_bias(const OpView& op, int i, const Sizes& s) {
  if (i < 0 || !op.has(i)) return;
  const Shape &m = op.in(i).shape, scores{s.batch, s.heads, s.queries, s.total()};
  bool fits = m.rank() == 4 && m[2] == s.queries && m[3] == s.total();
  for (int d : {0, 1}) fits = fits && (m[d] == 1 || m[d] == scores[d]);
  op.require(fits, "the attention bias, input {}, of shape {} does not fit scores of shape {}", i, m, scores);
}

/// `dtype`: of the results.
MultiHeadResult multi_head(const OpView& op, Builder& b, const MultiHead& in, DType dtype) {
  const DType compute = LoopBuilder::compute_type(dtype);
  AttentionTerms terms;
  terms.q = b.cast(in.q, compute), terms.k = b.cast(in.k, compute), terms.v = b.cast(in.v, compute);
  if (in.past_k != kNone) {
    terms.k = b.concat({b.cast(in.past_k, compute), terms.k}, 2);
    terms.v = b.concat({b.cast(in.past_v, compute), terms.v}, 2);
  }
  terms.same_heads = true;
  if (op.has_attr("scale") && op.f("scale") != 0) terms.scale = op.f("scale");
  terms.causal = op.i("unidirectional") != 0 && in.sizes.queries != 1;
  terms.past = in.past_k;
  const ValueId past = in.past_k == kNone ? b.ints({0}) : b.shape_of(in.past_k, 2, 3);
  const ValueId seen = seen_keys(op, b, in.mask, in.sizes, b.shape_of(in.q, 0, 1), past, b.shape_of(terms.k, 2, 3));
  if (seen != kNone) {
    terms.mask = b.op("Where", {seen, b.scalar(compute, 0), b.scalar(compute, op.f("mask_filter_value"))});
  }
  if (in.bias >= 0 && op.has(in.bias)) {
    const ValueId bias = b.cast(op.id(in.bias), compute);
    terms.mask = terms.mask == kNone ? bias : b.add(bias, terms.mask);
  }
  const AttentionStages stages = attend(b, terms);
  MultiHeadResult made{};
  made.k = b.cast(terms.k, dtype), made.v = b.cast(terms.v, dtype);
  made.y = b.cast(merge_heads(b, stages.y), dtype);
  const ValueId least = b.scalar(compute, std::numeric_limits<float>::lowest());
  made.scores = b.cast(terms.causal ? b.op("Max", {stages.masked, least}) : stages.masked, dtype);
  return made;
}

// ---- MultiHeadAttention ----

constexpr Attribute kMultiHeadAttributes[] = {{"mask_filter_value", kFiltered},
                                              {"num_heads", AttrKind::integer, Attribute::kRequired},
                                              {"scale", AttrKind::number},
                                              {"unidirectional", 0}};
enum Input { kQuery, kKey, kValue, kBias, kMask, kScoreBias, kPastKey, kPastValue, kPastLength, kBeams };

std::int64_t heads_of(const OpView& op) {
  op.require(op.i("num_heads") > 0, "num_heads must be positive, got {}", op.i("num_heads"));
  return op.i("num_heads");
}

/// query, key and value are [batch, length, hidden]; or key and value [batch, heads, length, width]; or all three lie
/// in query, [batch, length, heads, 3, width]; or the last two in key, [batch, length, heads, 2, width].
Facts infer_multi_head(const OpView& op) {
  for (int i : {kKey, kValue, kBias, kPastKey, kPastValue}) {
    if (op.has(i)) op.require_same_dtype(kQuery, i);
  }
  op.require(!op.has(kPastLength) && !op.has(kBeams),
             "past_sequence_length and cache_indirection, which say how a cache is shared by beams, are not supported");
  const Shape& q = op.in(kQuery).shape;
  Sizes s;
  s.heads = heads_of(op);
  s.batch = q[0], s.queries = q.rank() > 1 ? q[1] : 0;
  std::int64_t width = 0, value_width = 0;
  if (q.rank() == 5) {
    op.require(!op.has(kKey) && !op.has(kValue) && q[2] == s.heads && q[3] == 3,
               "a query of 5 dims must be batch x length x {} x 3 x width without key and value, got {}", s.heads, q);
    s.keys = q[1], width = value_width = q[4];
  } else {
    op.require(q.rank() == 3 && q[2] % s.heads == 0, "query must have 3 dims, the last a multiple of {} heads, got {}",
               s.heads, q);
    op.require(op.has(kKey), "a query of 3 dims needs a key");
    width = q[2] / s.heads;
    const Shape& k = op.in(kKey).shape;
    op.require(k.rank() > 0 && k[0] == s.batch, "query and key must have one batch extent, got {} and {}", q, k);
    if (k.rank() == 5) {
      op.require(!op.has(kValue) && k[2] == s.heads && k[3] == 2 && k[4] == width,
                 "a key of 5 dims must be batch x length x {} x 2 x {} without a value, got {}", s.heads, width, k);
      s.keys = k[1], value_width = width;
    } else {
      op.require(op.has(kValue), "a key of {} dims needs a value", k.rank());
      const Shape& v = op.in(kValue).shape;
      op.require(k.rank() == 3 || k.rank() == 4, "key must have 3, 4 or 5 dims, got {}", k);
      op.require(v.rank() == k.rank() && v[0] == s.batch, "key and value must agree in rank and batch, got {} and {}",
                 k, v);
      const bool merged = k.rank() == 3;
      s.keys = merged ? k[1] : k[2];
      const bool fits = merged ? k[2] == q[2] && v[1] == k[1] && v[2] % s.heads == 0
                               : k[1] == s.heads && k[3] == width && v[1] == s.heads && v[2] == k[2];
      op.require(fits, "key and value of shapes {} and {} do not fit a query of shape {} and {} heads", k, v, q,
                 s.heads);
      value_width = merged ? v[2] / s.heads : v[3];
      op.require(merged || (!op.has(kBias) && !op.has(kPastKey)),
                 "key and value of 4 dims take neither a bias nor a past");
    }
  }
  op.require(op.has(kPastKey) == op.has(kPastValue), "past_key and past_value must be given together");
  if (op.has(kPastKey)) {
    const Shape &k = op.in(kPastKey).shape, &v = op.in(kPastValue).shape;
    s.past = k.rank() == 4 ? k[2] : 0;
    op.require(k == Shape({s.batch, s.heads, s.past, width}) && v == Shape({s.batch, s.heads, s.past, value_width}),
               "past_key and past_value must be {}x{}x(length)x{} and {}, got {} and {}", s.batch, s.heads, width,
               value_width, k, v);
  }
  const std::int64_t hidden = s.heads * width, value_hidden = s.heads * value_width;
  if (op.has(kBias)) {
    const Shape expected{2 * hidden + value_hidden};
    op.require(op.in(kBias).shape == expected, "the bias must have shape {}, got {}", expected, op.in(kBias).shape);
  }
  op.require(op.i("unidirectional") == 0 || s.queries == 1 || s.queries == s.keys,
             "unidirectional attention needs as many keys as queries, got {} and {}", s.keys, s.queries);
  check_mask(op, kMask, s, false);
  check_bias(op, kScoreBias, s);
  const DType dtype = op.in(kQuery).dtype;
  return {Fact(dtype, {s.batch, s.queries, value_hidden}), Fact(dtype, {s.batch, s.heads, s.total(), width}),
          Fact(dtype, {s.batch, s.heads, s.total(), value_width}),
          Fact(dtype, {s.batch, s.heads, s.queries, s.total()})};
}

/// Part `i` of packed operands [batch, length, heads, parts, width] as [batch, length, hidden].
ValueId unpacked(Builder& b, ValueId x, std::int64_t i) {
  const ValueId part = b.squeeze(b.slice(x, {i}, {i + 1}, {3}), {3});
  const ValueId hidden = b.op("Mul", {b.shape_of(part, 2, 3), b.shape_of(part, 3, 4)});
  return b.reshape(part, b.concat({b.shape_of(part, 0, 2), hidden}, 0));
}

/// The facts of the results, for extents that are 0 or 1.
Sizes sizes_of(const Fact& query, const Fact& key, const Fact* past) {
  Sizes s;
  s.batch = key.shape[0], s.heads = key.shape[1], s.queries = query.shape[2], s.keys = key.shape[2];
  if (past) s.past = past->shape[2];
  return s;
}

std::vector<ValueId> lower_multi_head(const OpView& op, Builder& b) {
  const DType dtype = op.in(kQuery).dtype, compute = LoopBuilder::compute_type(dtype);
  ValueId parts[] = {op.id(kQuery), op.id(kKey), op.id(kValue)};
  if (op.in(kQuery).rank() == 5) {
    for (int i : {2, 1, 0}) parts[i] = unpacked(b, parts[0], i);
  } else if (op.in(kKey).rank() == 5) {
    for (int i : {2, 1}) parts[i] = unpacked(b, parts[1], i - 1);
  }
  if (op.has(kBias)) {
    const ValueId bias = b.cast(op.id(kBias), compute), hidden = b.shape_of(parts[0], 2, 3);
    ValueId from = b.ints({0});
    for (int i : {0, 1, 2}) {
      const ValueId to = i == 2 ? b.ints({kEnd}) : b.add(from, hidden);
      parts[i] = b.add(b.cast(parts[i], compute), b.op("Slice", {bias, from, to}));
      from = to;
    }
  }
  const ValueId heads = b.ints({op.i("num_heads")});
  const auto apart = [&](ValueId x) { return b.fact(x).rank() == 4 ? x : split_heads(b, x, heads); };
  MultiHead in;
  in.q = apart(parts[0]), in.k = apart(parts[1]), in.v = apart(parts[2]);
  in.past_k = op.id(kPastKey), in.past_v = op.id(kPastValue);
  in.mask = kMask, in.bias = kScoreBias;
  in.sizes = sizes_of(b.fact(in.q), b.fact(in.k), op.has(kPastKey) ? &op.in(kPastKey) : nullptr);
  const MultiHeadResult made = multi_head(op, b, in, dtype);
  std::vector<ValueId> outputs = {made.y, made.k, made.v, made.scores};
  if (op.wants(1) && made.k == op.id(kKey)) outputs[1] = b.op("Identity", {made.k});
  if (op.wants(2) && made.v == op.id(kValue)) outputs[2] = b.op("Identity", {made.v});
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

// ---- Attention and QAttention: q, k and v are columns of a product with the weights ----

constexpr Attribute kProjectedAttributes[] = {{"do_rotary", 0},
                                              {"mask_filter_value", kFiltered},
                                              {"num_heads", AttrKind::integer, Attribute::kRequired},
                                              {"past_present_share_buffer", 0},
                                              {"qkv_hidden_sizes", AttrKind::integers},
                                              {"rotary_embedding_dim", 0},
                                              {"scale", AttrKind::number},
                                              {"unidirectional", 0}};
constexpr Attribute kQuantizedAttributes[] = {{"do_rotary", 0},
                                              {"mask_filter_value", kFiltered},
                                              {"num_heads", AttrKind::integer, Attribute::kRequired},
                                              {"past_present_share_buffer", 0},
                                              {"scale", AttrKind::number},
                                              {"unidirectional", 0}};
enum ProjectedInput { kX, kWeights, kProjectionBias, kMaskIndex, kPast, kExtraBias, kSharedLength };
enum QuantizedInput { kQX, kQWeights, kQBias, kXScale, kWeightScale, kQMask, kXZero, kWeightZero, kQPast };

/// What both infer: `dtype` is that of the results, `hidden` the columns of q, k and v.
Facts infer_projected(const OpView& op, DType dtype, std::span<const std::int64_t> hidden, int mask, int past,
                      int bias) {
  const Shape &x = op.in(kX).shape, &w = op.in(kWeights).shape;
  op.require(x.rank() == 3 && w.rank() == 2 && x[2] == w[0],
             "the input must be batch x length x features and the weights features x columns, got {} and {}", x, w);
  op.require(op.i("do_rotary") == 0,
             "do_rotary is not supported: a RotaryEmbedding before a MultiHeadAttention says "
             "the same with its angles given");
  Sizes s;
  s.heads = heads_of(op);
  s.batch = x[0], s.queries = s.keys = x[1];
  op.require(hidden[0] == hidden[1], "q and k must have equally many features, got {} and {}", hidden[0], hidden[1]);
  for (std::int64_t n : hidden) {
    op.require(n > 0 && n % s.heads == 0, "the features of q, k and v must be multiples of {} heads, got {}", s.heads,
               n);
  }
  op.require(hidden[0] + hidden[1] + hidden[2] == w[1], "{} columns of the weights are not {} + {} + {}", w[1],
             hidden[0], hidden[1], hidden[2]);
  const std::int64_t width = hidden[0] / s.heads, value_width = hidden[2] / s.heads;
  if (op.has(past)) {
    op.require(op.i("past_present_share_buffer") == 0,
               "past_present_share_buffer is not supported: a past has no more entries than it holds");
    const Shape& p = op.in(past).shape;
    s.past = p.rank() == 5 ? p[3] : 0;
    op.require(op.in(past).dtype == dtype && p == Shape({2, s.batch, s.heads, s.past, width}) && width == value_width,
               "the past must be {} of shape 2x{}x{}x(length)x{}, got {}", dtype, s.batch, s.heads, width,
               op.in(past).to_string());
  }
  check_mask(op, mask, s, true);
  check_bias(op, bias, s);
  op.require(!op.has(mask) || op.in(mask).rank() < 4 || op.i("unidirectional") == 0,
             "a mask of 4 dims and unidirectional exclude each other");
  Facts facts = {Fact(dtype, {s.batch, s.queries, hidden[2]})};
  if (op.outputs() < 2) return facts;
  op.require(!op.wants(1) || width == value_width, "keys of {} and values of {} features do not fit one present", width,
             value_width);
  facts.emplace_back(dtype, Shape{2, s.batch, s.heads, s.total(), width});
  return facts;
}

/// `projected`: [batch, length, columns].
std::vector<ValueId> lower_projected(const OpView& op, Builder& b, ValueId projected, DType dtype,
                                     std::span<const std::int64_t> hidden, int mask, int past, int bias) {
  std::vector<ValueId> parts;
  if (hidden.empty()) {
    parts = b.ops("Split", {projected}, 3, {{"axis", std::int64_t{2}}, {"num_outputs", std::int64_t{3}}});
  } else {
    parts = b.ops("Split", {projected, b.ints({hidden.begin(), hidden.end()})}, 3, {{"axis", std::int64_t{2}}});
  }
  const ValueId heads = b.ints({op.i("num_heads")});
  MultiHead in;
  in.q = split_heads(b, parts[0], heads), in.k = split_heads(b, parts[1], heads);
  in.v = split_heads(b, parts[2], heads);
  if (op.has(past)) {
    in.past_k = b.squeeze(b.slice(op.id(past), {0}, {1}, {0}), {0});
    in.past_v = b.squeeze(b.slice(op.id(past), {1}, {2}, {0}), {0});
  }
  in.mask = mask, in.bias = bias;
  in.sizes = sizes_of(b.fact(in.q), b.fact(in.k), op.has(past) ? &b.fact(in.past_k) : nullptr);
  const MultiHeadResult made = multi_head(op, b, in, dtype);
  std::vector<ValueId> outputs = {made.y};
  if (op.wants(1)) outputs.push_back(b.concat({b.unsqueeze(made.k, {0}), b.unsqueeze(made.v, {0})}, 0));
  outputs.resize(static_cast<std::size_t>(op.outputs()), kNone);
  return outputs;
}

/// The columns of q, k and v where the node does not state them.
std::vector<std::int64_t> thirds(const OpView& op) {
  const Shape& w = op.in(kWeights).shape;
  op.require(w.rank() == 2 && w[1] % 3 == 0, "the columns of the weights must be q's, k's and v's, got shape {}", w);
  return std::vector<std::int64_t>(3, w[1] / 3);
}

Facts infer_microsoft_attention(const OpView& op) {
  if (op.has(kProjectionBias)) {
    op.require(op.in(kWeights).rank() == 2 && op.in(kProjectionBias).shape == Shape{op.in(kWeights).shape[1]},
               "the bias must have one value per column of the weights, got {} for {}", op.in(kProjectionBias).shape,
               op.in(kWeights).shape);
  }
  op.require(!op.has(kSharedLength), "past_sequence_length is not supported: a past has no more entries than it holds");
  const auto stated = op.attr_ints("qkv_hidden_sizes");
  op.require(stated.empty() || stated.size() == 3, "qkv_hidden_sizes must have 3 values, got {}", stated.size());
  const std::vector<std::int64_t> hidden = stated.empty() ? thirds(op) : std::vector(stated.begin(), stated.end());
  return infer_projected(op, op.in(kX).dtype, hidden, kMaskIndex, kPast, kExtraBias);
}

std::vector<ValueId> lower_microsoft_attention(const OpView& op, Builder& b) {
  const DType dtype = op.in(kX).dtype, compute = LoopBuilder::compute_type(dtype);
  ValueId y = b.matmul(b.cast(op.id(kX), compute), b.cast(op.id(kWeights), compute));
  if (op.has(kProjectionBias)) y = b.add(y, b.cast(op.id(kProjectionBias), compute));
  return lower_projected(op, b, y, dtype, op.attr_ints("qkv_hidden_sizes"), kMaskIndex, kPast, kExtraBias);
}

Facts infer_quantized_attention(const OpView& op) {
  const std::vector<std::int64_t> hidden = thirds(op);
  const Shape columns{op.in(kQWeights).shape[1]};
  op.require(op.in(kQBias).dtype == DType::f32 && op.in(kQBias).shape == columns,
             "the bias must be f32 of shape {}, got {}", columns, op.in(kQBias).to_string());
  op.require(op.in(kXScale).dtype == DType::f32 && op.in(kXScale).shape.elements() == 1,
             "the input's scale must be one f32, got {}", op.in(kXScale).to_string());
  op.require(op.in(kWeightScale).dtype == DType::f32 &&
                 (op.in(kWeightScale).shape.elements() == 1 || op.in(kWeightScale).shape == columns),
             "the weights' scale must be one f32 or one per column, got {}", op.in(kWeightScale).to_string());
  if (op.has(kXZero)) {
    op.require(op.in(kXZero).shape.elements() == 1, "the input's zero point must be one value, got {}",
               op.in(kXZero).to_string());
  }
  if (op.has(kWeightZero)) {
    op.require(op.in(kWeightZero).shape.elements() == 1 || op.in(kWeightZero).shape == columns,
               "the weights' zero point must be one value or one per column, got {}", op.in(kWeightZero).to_string());
  }
  return infer_projected(op, DType::f32, hidden, kQMask, kQPast, -1);
}

std::vector<ValueId> lower_quantized_attention(const OpView& op, Builder& b) {
  const ValueId y =
      b.op("com.microsoft::MatMulIntegerToFloat", {op.id(kQX), op.id(kQWeights), op.id(kXScale), op.id(kWeightScale),
                                                   op.id(kXZero), op.id(kWeightZero), op.id(kQBias)});
  return lower_projected(op, b, y, DType::f32, {}, kQMask, kQPast, -1);
}

// ---- RotaryEmbedding: x, position_ids, cosines, sines ----

constexpr Attribute kRotaryAttributes[] = {
    {"interleaved", 0}, {"is_packed_batching", 0}, {"num_heads", 0}, {"rotary_embedding_dim", 0}, {"scale", 1.0}};
enum RotaryInput { kTurned, kPositions, kCos, kSin };

Facts infer_rotary(const OpView& op) {
  const Fact& x = op.in(kTurned);
  for (int i : {kCos, kSin}) {
    op.require(op.in(i).rank() == 2 && op.in(i).shape == op.in(kCos).shape,
               "the cosines and sines must be matrices of one shape, got {} and {}", op.in(kCos).shape,
               op.in(kSin).shape);
  }
  op.require(x.rank() == 3 || x.rank() == 4, "x must have 3 or 4 dims, got shape {}", x.shape);
  const std::int64_t stated = op.i("rotary_embedding_dim"), heads = op.i("num_heads"), half = op.in(kCos).shape[1];
  op.require(stated >= 0 && heads >= 0, "rotary_embedding_dim and num_heads must not be negative, got {} and {}",
             stated, heads);
  op.require(stated == 0 || heads > 0, "num_heads must be stated with a rotary_embedding_dim");
  op.require(stated == 0 || half * 2 == stated, "the cosines must have {} columns, got shape {}", stated / 2,
             op.in(kCos).shape);
  const std::int64_t hidden = x.shape.back();
  if (x.rank() == 3) {
    const bool divides = stated != 0
                             ? hidden % heads == 0 && hidden / heads >= stated
                             : half > 0 && hidden % (2 * half) == 0 && (heads == 0 || hidden == heads * 2 * half);
    op.require(divides, "{} features of x do not fit {} heads of which {} are turned", hidden, heads, 2 * half);
  } else {
    op.require(stated != 0 ? hidden >= stated : hidden == 2 * half, "{} features of a head do not fit {} turned ones",
               hidden, 2 * half);
    op.require(heads == 0 || x.shape[1] == heads, "x must have {} heads, got shape {}", heads, x.shape);
  }
  const Fact& positions = op.in(kPositions);
  const Shape each{x.shape[0], x.rank() == 3 ? x.shape[1] : x.shape[2]};
  op.require(positions.dtype == DType::i64 &&
                 (positions.shape == each || (positions.rank() < 2 && positions.shape.elements() == 1)),
             "position_ids must be i64, one value or of shape {}, got {}", each, positions.to_string());
  return {x};
}

std::vector<ValueId> lower_rotary(const OpView& op, Builder& b) {
  const bool merged = op.in(kTurned).rank() == 3;
  ValueId x = op.id(kTurned);
  if (merged) {
    const ValueId heads = op.i("num_heads") > 0
                              ? b.ints({op.i("num_heads")})
                              : b.op("Div", {b.shape_of(x, 2, 3), b.mul(b.shape_of(op.id(kCos), 1, 2), b.ints({2}))});
    x = split_heads(b, x, heads);
  }
  ValueId positions = op.id(kPositions);
  if (op.in(kPositions).rank() < 2) {
    const ValueId steps = b.shape_of(x, 2, 3);
    positions = b.op("Expand", {b.add(b.counted(steps), positions), b.concat({b.shape_of(x, 0, 1), steps}, 0)});
  }
  const ValueId y =
      b.op("RotaryEmbedding", {x, op.id(kCos), op.id(kSin), positions},
           {{"interleaved", op.i("interleaved")}, {"rotary_embedding_dim", op.i("rotary_embedding_dim")}});
  return {merged ? merge_heads(b, y) : y};
}

}  // namespace

extern const OpDef op_microsoft_multi_head_attention, op_microsoft_attention, op_microsoft_qattention,
    op_microsoft_rotary_embedding;

constinit const OpDef op_microsoft_multi_head_attention = {
    .name = "MultiHeadAttention",
    .domain = kDomain,
    .inputs = {1, 10},
    .outputs = {1, 4},
    .attributes = kMultiHeadAttributes,
    .takes = {{kFloats, inputs(kQuery, kKey, kValue, kBias, kScoreBias, kPastKey, kPastValue)},
              {DType::i32, inputs(kMask)}},
    .infer = infer_multi_head,
    .lower = lower_multi_head};
constinit const OpDef op_microsoft_attention = {
    .name = "Attention",
    .domain = kDomain,
    .inputs = {2, 7},
    .outputs = {1, 2},
    .attributes = kProjectedAttributes,
    .takes = {{kFloats, inputs(kX, kWeights, kProjectionBias, kPast, kExtraBias)},
              {DType::i32, inputs(kMaskIndex, kSharedLength)}},
    .infer = infer_microsoft_attention,
    .lower = lower_microsoft_attention};
constinit const OpDef op_microsoft_qattention = {.name = "QAttention",
                                                 .domain = kDomain,
                                                 .inputs = {5, 9},
                                                 .outputs = {1, 2},
                                                 .attributes = kQuantizedAttributes,
                                                 .takes = {{kBytes, inputs(kQX, kXZero)},
                                                           {kBytes, inputs(kQWeights, kWeightZero)},
                                                           {DType::f32, inputs(kQBias, kXScale, kWeightScale, kQPast)},
                                                           {DType::i32, inputs(kQMask)}},
                                                 .infer = infer_quantized_attention,
                                                 .lower = lower_quantized_attention};
constinit const OpDef op_microsoft_rotary_embedding = {
    .name = "RotaryEmbedding",
    .domain = kDomain,
    .inputs = 4,
    .attributes = kRotaryAttributes,
    .takes = {{kFloats, inputs(kTurned, kCos, kSin)}, {DType::i64, inputs(kPositions)}},
    .infer = infer_rotary,
    .lower = lower_rotary};

}  // namespace lathe::ops
