// GroupQueryAttention of com.microsoft: attention over a cache of keys and values to which each run appends.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/ir/loop_builder.h"
#include "ops/quantize.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kDomain = "com.microsoft";
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

// ---- lathe::AppendRows: rows [batch, heads, more, width], where they start (i64 [batch]), the length of the result,
// behind whose rows are zeros; a cache [batch, heads, kept, width] that they are appended to, how many of the rows
// count, how many of the whole are dropped in front (both i64 [batch]) ----

enum AppendInput { kRows, kStarts, kLength, kCache, kCounts, kDropped };

Facts infer_append(const OpView& op) {
  Shape y = op.in(kRows).shape;
  y[2] = op.ints(kLength).at(0);
  return {Fact(op.in(kRows).dtype, y)};
}

Scalar expr_append(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType dtype = LoopBuilder::compute_type(op.in(kRows).dtype);
  Coords batch;
  batch.push_back(at[0]);
  const auto per_batch = [&](int i) { return Ex(b, b.in(i, batch)); };
  Ex row(b, b.coordinate(at[2]));
  if (op.has(kDropped)) row = row + per_batch(kDropped);
  const Ex start = per_batch(kStarts), behind = row - start;
  const Ex zero(b, b.constant_int(DType::i64, 0));
  const auto taken = [&](int i, const Ex& index, const Ex& condition, const Ex& otherwise) {
    const std::int64_t extent = op.in(i).shape[2];
    if (extent == 0) return otherwise;
    Coords c = at;
    c[2] = b.indirect(select(condition, index, zero), extent);
    return select(condition, Ex(b, b.in(i, c)), otherwise);
  };
  const Ex count = op.has(kCounts) ? per_batch(kCounts) : Ex(b, b.number_int(DType::i64, op.in(kRows).shape[2]));
  const Ex appended = behind >= zero && behind < count;
  const Ex y = taken(kRows, behind, appended, Ex(b, b.constant(dtype, 0)));
  return op.has(kCache) ? taken(kCache, row, row < start, y) : y;
}

// ---- GroupQueryAttention ----

constexpr Attribute kAttributes[] = {{"causal", 1},
                                     {"do_rotary", 0},
                                     {"k_norm_epsilon", AttrKind::number},
                                     {"k_quant_type", "NONE"},
                                     {"kv_cache_bit_width", 0},
                                     {"kv_num_heads", AttrKind::integer, Attribute::kRequired},
                                     {"local_window_size", -1},
                                     {"num_heads", AttrKind::integer, Attribute::kRequired},
                                     {"q_norm_epsilon", AttrKind::number},
                                     {"qk_norm_epsilon", 1e-6},
                                     {"qk_output", 0},
                                     {"rotary_interleaved", 0},
                                     {"scale", AttrKind::number},
                                     {"sliding_window_cache", 0},
                                     {"smooth_softmax", -1},
                                     {"softcap", 0.0},
                                     {"v_quant_type", "NONE"}};
enum Input {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLastKeys,  ///< the position of each batch's last key
  kTotal,
  kCos,
  kSin,
  kPositionIds,
  kScoreBias,
  kSinks,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm,
  kQueryLengths
};

bool is_quantized(const OpView& op) { return op.s("k_quant_type") != "NONE"; }

struct Sizes {
  std::int64_t batch = 0, queries = 0, keys = 0, past = 0, width = 0, total = 0;
};

void check_quantization(const OpView& op, const Sizes& s) {
  const auto kind = op.s("k_quant_type");
  const std::int64_t bits = op.i("kv_cache_bit_width");
  op.require(kind == "NONE" || kind == "PER_TENSOR" || kind == "PER_CHANNEL",
             "k_quant_type must be NONE, PER_TENSOR or PER_CHANNEL, got {}", kind);
  op.require(kind == op.s("v_quant_type"), "k_quant_type {} and v_quant_type {} must be the same", kind,
             op.s("v_quant_type"));
  if (kind == "NONE") {
    op.require(bits == 0, "kv_cache_bit_width is {}, but k_quant_type NONE", bits);
    return;
  }
  op.require(bits == 8 || (bits == 4 && s.width % 2 == 0),
             "kv_cache_bit_width must be 8, or 4 for heads of even width, got {} for width {}", bits, s.width);
  const std::int64_t count = kind == "PER_TENSOR" ? 1 : op.i("kv_num_heads") * s.width;
  for (int i : {kKeyScale, kValueScale}) {
    op.require(op.has(i) && op.in(i).dtype == DType::f32 && op.in(i).shape.elements() == count,
               "input {}, the scale of a {} cache, must be {} f32, got {}", i, kind, count,
               op.has(i) ? op.in(i).to_string() : "none");
  }
}

/// A cache of `length` keys or values; of 4 bits two lie in a byte.
Fact cache_fact(const OpView& op, const Sizes& s, std::int64_t length) {
  const bool narrow = op.i("kv_cache_bit_width") == 4;
  const DType dtype = !is_quantized(op) ? op.in(kQuery).dtype : DType(narrow ? DType::u8 : DType::i8);
  return {dtype, {s.batch, op.i("kv_num_heads"), length, narrow ? s.width / 2 : s.width}};
}

void check_cache(const OpView& op, Sizes& s) {
  op.require(op.has(kPastKey) == op.has(kPastValue), "past_key and past_value must be given together");
  const std::int64_t window = op.i("local_window_size");
  op.require(window == -1 || (window > 0 && op.i("causal") != 0),
             "local_window_size must be -1, or positive with causal, got {}", window);
  if (op.has(kPastKey)) {
    const Fact &k = op.in(kPastKey), &v = op.in(kPastValue);
    s.past = k.rank() == 4 ? k.shape[2] : 0;
    const Fact expected = cache_fact(op, s, s.past);
    op.require(k.same_type(expected) && v.same_type(expected), "past_key and past_value must be {}, got {} and {}",
               expected.to_string(), k.to_string(), v.to_string());
  }
  op.require(s.keys == s.queries || (s.keys == 0 && op.has(kPastKey)),
             "there must be as many keys as queries, or none beside a past, got {} and {}", s.keys, s.queries);
  if (op.i("sliding_window_cache") == 0) return;
  op.require(op.has(kPastKey) && window > 0 && window <= s.past && s.keys == s.queries,
             "sliding_window_cache needs keys and a past that holds local_window_size of them, got {} of {}", s.past,
             window);
  op.require(!op.wants(3),
             "output_qk is not supported with sliding_window_cache: the cache holds no key for some of it");
}

void check_rotary(const OpView& op, const Sizes& s) {
  op.require(op.has(kCos) == op.has(kSin) && (op.i("do_rotary") == 0 || op.has(kCos)),
             "do_rotary needs cos_cache and sin_cache");
  if (op.has(kCos)) {
    for (int i : {kCos, kSin}) op.require_same_dtype(kQuery, i);
    const Shape &cos = op.in(kCos).shape, &sin = op.in(kSin).shape;
    op.require(cos.rank() == 2 && cos == sin && cos[1] * 2 <= s.width,
               "cos_cache and sin_cache must have 2 dims, up to {} columns, got {} and {}", s.width / 2, cos, sin);
  }
  if (op.has(kPositionIds)) {
    const Shape each{s.batch, s.queries};
    op.require(op.in(kPositionIds).dtype == DType::i64 && op.in(kPositionIds).shape == each,
               "position_ids must be i64 of shape {}, got {}", each, op.in(kPositionIds).to_string());
  }
}

void check_options(const OpView& op, const Sizes& s) {
  const std::int64_t heads = op.i("num_heads");
  if (op.has(kScoreBias)) {
    op.require_same_dtype(kQuery, kScoreBias);
    const Shape& m = op.in(kScoreBias).shape;
    const bool fits = m.rank() == 4 && (m[0] == 1 || m[0] == s.batch) && (m[1] == 1 || m[1] == heads) &&
                      m[2] == s.queries && m[3] == s.total;
    op.require(fits, "attention_bias of shape {} does not fit scores of shape {}", m,
               Shape{s.batch, heads, s.queries, s.total});
  }
  if (op.has(kSinks)) {
    op.require_same_dtype(kQuery, kSinks);
    op.require(op.in(kSinks).shape == Shape{heads}, "head_sink must have shape {}, got {}", Shape{heads},
               op.in(kSinks).shape);
  }
  op.require(op.has(kQueryNorm) == op.has(kKeyNorm), "q_norm_weight and k_norm_weight must be given together");
  for (int i : {kQueryNorm, kKeyNorm}) {
    if (!op.has(i)) continue;
    op.require_same_dtype(kQuery, i);
    op.require(op.in(i).shape == Shape{s.width}, "input {} must have shape {}, got {}", i, Shape{s.width},
               op.in(i).shape);
  }
  for (int i : {kLastKeys, kQueryLengths}) {
    if (!op.has(i)) continue;
    op.require(op.in(i).dtype == DType::i32 && op.in(i).shape.elements() == s.batch, "input {} must be {} i32, got {}",
               i, s.batch, op.in(i).to_string());
  }
  op.require(!op.has(kQueryLengths) || (op.has(kPastKey) && op.i("causal") != 0 && s.keys == s.queries),
             "query_seqlens needs causal, keys and a past");
  const std::int64_t scores = op.i("qk_output");
  op.require(scores >= 0 && scores <= 2, "qk_output must be 0, 1 or 2, got {}", scores);
  op.require((scores != 0) == op.wants(3), "qk_output {} and output_qk do not go together", scores);
}

Facts infer(const OpView& op) {
  const std::int64_t heads = op.i("num_heads"), groups = op.i("kv_num_heads");
  op.require(heads > 0 && groups > 0 && heads % groups == 0,
             "num_heads must be a multiple of kv_num_heads, got {} and {}", heads, groups);
  for (int i : {kLastKeys, kTotal}) op.require(op.has(i), "input {} is required", i);
  op.require(op.in(kTotal).shape.elements() == 1, "total_sequence_length must be one value, got shape {}",
             op.in(kTotal).shape);
  op.require(op.has(kKey) == op.has(kValue), "key and value must be given together");
  const Shape& q = op.in(kQuery).shape;
  const std::int64_t parts = op.has(kKey) ? heads : heads + 2 * groups;
  op.require(q.rank() == 3 && q[2] % parts == 0, "query must have 3 dims, the last a multiple of {} heads, got {}",
             parts, q);
  Sizes s{q[0], q[1], q[1], 0, q[2] / parts, op.ints(kTotal).at(0)};
  op.require(s.total >= 0, "total_sequence_length must not be negative, got {}", s.total);
  if (op.has(kKey)) {
    const Shape& k = op.in(kKey).shape;
    s.keys = k.rank() == 3 ? k[1] : 0;
    const Shape expected{s.batch, s.keys, groups * s.width};
    op.require_same_dtype(kQuery, kKey);
    op.require_same_dtype(kQuery, kValue);
    op.require(k == expected && op.in(kValue).shape == expected, "key and value must have shape {}, got {} and {}",
               expected, k, op.in(kValue).shape);
  }
  check_quantization(op, s);
  check_cache(op, s);
  check_rotary(op, s);
  check_options(op, s);
  const std::int64_t present = op.i("sliding_window_cache") != 0 ? s.past : std::max(s.total, s.past);
  const Fact cache = cache_fact(op, s, present);
  const DType dtype = op.in(kQuery).dtype;
  return {Fact(dtype, {s.batch, s.queries, heads * s.width}), cache, cache,
          Fact(dtype, {s.batch, heads, s.queries, s.total})};
}

/// Where the rows of each batch stand, i64 [batch].
struct Rows {
  ValueId total;      ///< how many keys there are after this run
  ValueId queries;    ///< how many queries count
  ValueId positions;  ///< of the first query
  // In the cache that the queries see, which is `length` long:
  ValueId start, first_query, end;  ///< where new keys go, where the first query stands, where the keys end
  ValueId length;                   ///< i64 [1]
  // What a windowed cache keeps of it.
  ValueId dropped = kNone;
};

/// How many of `total` keys a cache of `capacity` keeps, which makes room for `capacity - window + 1` at a time.
ValueId resident(Builder& b, ValueId total, ValueId capacity, ValueId window) {
  const ValueId one = b.ints({1}), step = b.add(b.sub(capacity, window), one);
  const ValueId excess = b.op("Max", {b.sub(total, capacity), b.ints({0})});
  return b.sub(total, b.mul(step, b.div(b.sub(b.add(excess, step), one), step)));
}

/// Input i as a 1-D i64 value.
ValueId longs(const OpView& op, Builder& b, int i) {
  return b.cast(b.reshape(op.id(i), std::vector<std::int64_t>{-1}), DType::i64);
}

Rows rows_of(const OpView& op, Builder& b, ValueId q, ValueId k) {
  Rows r{};
  r.total = b.add(longs(op, b, kLastKeys), b.ints({1}));
  r.queries = op.has(kQueryLengths) ? longs(op, b, kQueryLengths) : b.op("Min", {r.total, b.shape_of(q, 2, 3)});
  r.positions = b.sub(r.total, r.queries);
  const ValueId total = longs(op, b, kTotal), past = op.has(kPastKey) ? b.shape_of(op.id(kPastKey), 2, 3) : b.ints({0});
  if (op.i("sliding_window_cache") == 0) {
    r.start = b.fact(k).shape[2] == 0 ? r.total : r.positions;
    r.first_query = r.positions, r.end = r.total;
    r.length = b.op("Max", {total, past});
    return r;
  }
  const ValueId window = b.ints({op.i("local_window_size")});
  r.start = r.first_query = resident(b, r.positions, past, window);
  r.end = b.add(r.start, r.queries);
  r.length = b.add(past, b.shape_of(k, 2, 3));
  r.dropped = b.sub(r.end, resident(b, r.total, past, window));
  return r;
}

// ---- what is done to heads [batch, heads, length, width] ----

ValueId normalized(const OpView& op, Builder& b, ValueId x, int weight, std::string_view epsilon) {
  if (!op.has(weight)) return x;
  return b.op("RMSNormalization", {x, op.id(weight)},
              {{"axis", std::int64_t{-1}}, {"epsilon", op.f(op.has_attr(epsilon) ? epsilon : "qk_norm_epsilon")}});
}

/// The position of each query, i64 [batch, queries]. Of a first prompt the first one stated says all.
ValueId rotary_positions(const OpView& op, Builder& b, ValueId q, const Rows& rows) {
  const ValueId queries = b.shape_of(q, 2, 3), steps = b.unsqueeze(b.counted(queries), {0});
  if (!op.has(kPositionIds)) {
    const ValueId last = b.op("Max", {b.sub(rows.total, b.ints({1})), b.ints({0})});
    const ValueId each = b.add(b.unsqueeze(rows.positions, {1}), steps);
    return op.has(kQueryLengths) ? b.op("Min", {each, b.unsqueeze(last, {1})}) : each;
  }
  const ValueId stated = op.id(kPositionIds);
  if (op.has(kQueryLengths)) return stated;
  const ValueId total = longs(op, b, kTotal);
  const ValueId from_first = b.add(b.slice(stated, {0, 0}, {1, 1}, {0, 1}), steps);
  return b.op("Where", {b.op("Equal", {total, queries}), from_first, stated});
}

/// The first features turned, as many as there are angles for.
ValueId turned(const OpView& op, Builder& b, ValueId x, ValueId positions) {
  const ValueId zero = b.ints({0}), axis = b.ints({3});
  const ValueId count = b.mul(b.shape_of(op.id(kCos), 1, 2), b.ints({2}));
  const ValueId y =
      b.op("RotaryEmbedding", {b.op("Slice", {x, zero, count, axis}), op.id(kCos), op.id(kSin), positions},
           {{"interleaved", op.i("rotary_interleaved")}});
  return b.concat({y, b.op("Slice", {x, count, b.ints({kEnd}), axis})}, 3);
}

/// A cache's scale, broadcasting to [batch, heads, length, width].
ValueId scale_of(const OpView& op, Builder& b, int i, ValueId x) {
  if (op.s("k_quant_type") == "PER_TENSOR") return b.reshape(op.id(i), std::vector<std::int64_t>{});
  const ValueId one = b.ints({1});
  return b.reshape(op.id(i), b.concat({one, b.ints({op.i("kv_num_heads")}), one, b.shape_of(x, 3, 4)}, 0));
}

/// Two values of 4 bits in a byte, the first in the low bits.
ValueId paired(Builder& b, ValueId x) {
  const ValueId low = b.slice(x, {0}, {kEnd}, {3}, {2}), high = b.slice(x, {1}, {kEnd}, {3}, {2});
  return b.op("BitwiseOr", {low, b.op("BitShift", {high, b.scalar(DType::u8, 4)}, {{"direction", "LEFT"}})});
}

/// New rows as the cache stores them: round(x / scale), of 4 bits with 8 added.
ValueId stored(const OpView& op, Builder& b, ValueId x, int scale) {
  if (!is_quantized(op)) return x;
  const bool narrow = op.i("kv_cache_bit_width") == 4;
  const auto number = [&](double v) { return b.scalar(DType::f32, v); };
  ValueId y = b.op("Round", {b.div(b.cast(x, DType::f32), scale_of(op, b, scale, x))});
  if (narrow) y = b.add(y, number(8));
  y = b.op("Clip", {y, number(narrow ? 0 : -128), number(narrow ? 15 : 127)});
  return narrow ? paired(b, b.cast(y, DType::u8)) : b.cast(y, DType::i8);
}

ValueId read(const OpView& op, Builder& b, ValueId cache, int scale, DType compute) {
  if (!is_quantized(op)) return b.cast(cache, compute);
  const bool narrow = op.i("kv_cache_bit_width") == 4;
  ValueId x = b.cast(narrow ? unpack_bits(b, cache, 4) : cache, DType::f32);
  if (narrow) x = b.sub(x, b.scalar(DType::f32, 8));
  return b.cast(b.mul(x, scale_of(op, b, scale, x)), compute);
}

/// The bias of the keys in a windowed cache, whose first is that many positions from the sequence's first.
ValueId windowed_bias(const OpView& op, Builder& b, const Rows& rows) {
  const ValueId bias = op.id(kScoreBias), zero = b.scalar(DType::i64, 0);
  const ValueId last = b.squeeze(b.sub(b.shape_of(bias, 3, 4), b.ints({1})), {0});
  const ValueId column = b.add(b.unsqueeze(b.sub(rows.positions, rows.first_query), {1, 2, 3}), b.counted(rows.length));
  const ValueId within = b.op("Max", {b.op("Min", {column, last}), zero});
  const ValueId batch = b.shape_of(rows.total);
  const ValueId each = b.op("Expand", {bias, b.concat({batch, b.shape_of(bias, 1, 4)}, 0)});
  const ValueId columns = b.op("Expand", {within, b.concat({batch, b.shape_of(bias, 1, 3), rows.length}, 0)});
  return b.op("GatherElements", {each, columns}, {{"axis", std::int64_t{3}}});
}

std::vector<ValueId> lower(const OpView& op, Builder& b) {
  const DType dtype = op.in(kQuery).dtype, compute = LoopBuilder::compute_type(dtype);
  const std::int64_t heads = op.i("num_heads"), groups = op.i("kv_num_heads");
  ValueId q, k, v;
  if (op.has(kKey)) {
    q = split_heads(b, op.id(kQuery), b.ints({heads}));
    k = split_heads(b, op.id(kKey), b.ints({groups})), v = split_heads(b, op.id(kValue), b.ints({groups}));
  } else {
    const ValueId all = split_heads(b, op.id(kQuery), b.ints({heads + 2 * groups}));
    const auto parts = b.ops("Split", {all, b.ints({heads, groups, groups})}, 3, {{"axis", std::int64_t{1}}});
    q = parts[0], k = parts[1], v = parts[2];
  }
  const Rows rows = rows_of(op, b, q, k);
  q = normalized(op, b, q, kQueryNorm, "q_norm_epsilon"), k = normalized(op, b, k, kKeyNorm, "k_norm_epsilon");
  if (op.i("do_rotary") != 0) {
    const ValueId positions = rotary_positions(op, b, q, rows);
    q = turned(op, b, q, positions);
    if (b.fact(k).shape[2] != 0) k = turned(op, b, k, positions);
  }
  k = stored(op, b, k, kKeyScale), v = stored(op, b, v, kValueScale);
  const ValueId counts = op.has(kQueryLengths) ? rows.queries : kNone;
  const auto append = [&](int past, ValueId x, ValueId dropped, ValueId length) {
    return b.op("lathe::AppendRows", {x, rows.start, length, op.id(past), counts, dropped});
  };
  const ValueId keys = append(kPastKey, k, kNone, rows.length), values = append(kPastValue, v, kNone, rows.length);
  std::vector<ValueId> outputs = {kNone, keys, values, kNone};
  ValueId seen_keys = keys, seen_values = values;
  if (rows.dropped == kNone) {
    const ValueId total = longs(op, b, kTotal);
    const auto seen = [&](ValueId x) { return b.op("Slice", {x, b.ints({0}), total, b.ints({2})}); };
    seen_keys = seen(keys), seen_values = seen(values);
  } else {
    const ValueId capacity = b.shape_of(op.id(kPastKey), 2, 3);
    outputs[1] = append(kPastKey, k, rows.dropped, capacity),
    outputs[2] = append(kPastValue, v, rows.dropped, capacity);
  }
  AttentionTerms terms;
  terms.q = b.cast(q, compute);
  terms.k = read(op, b, seen_keys, kKeyScale, compute), terms.v = read(op, b, seen_values, kValueScale, compute);
  terms.same_heads = heads == groups;
  if (op.has_attr("scale") && op.f("scale") != 0) terms.scale = op.f("scale");
  terms.softcap = op.f("softcap"), terms.causal = op.i("causal") != 0;
  if (op.i("local_window_size") > 0) terms.left = op.i("local_window_size") - 1;
  if (op.has(kScoreBias))
    terms.mask = b.cast(rows.dropped == kNone ? op.id(kScoreBias) : windowed_bias(op, b, rows), compute);
  terms.lengths = rows.end, terms.positions = rows.first_query;
  if (op.has(kSinks)) {
    terms.sinks = op.id(kSinks);
  } else if (op.i("smooth_softmax") == 1) {
    terms.sinks = b.constant(Tensor(compute, {heads}));
  }
  const AttentionStages made = attend(b, terms);
  outputs[0] = b.cast(merge_heads(b, made.y), dtype);
  if (op.i("qk_output") == 1) {
    outputs[3] = b.cast(b.op("Where", {b.op("IsInf", {made.masked}), b.scalar(compute, 0), made.masked}), dtype);
  } else if (op.i("qk_output") == 2) {
    outputs[3] = b.cast(made.weights, dtype);
  }
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

}  // namespace

extern const OpDef op_group_query_attention, op_lathe_append_rows;

constinit const OpDef op_group_query_attention = {
    .name = "GroupQueryAttention",
    .domain = kDomain,
    .inputs = {1, 17},
    .outputs = {1, 4},
    .attributes = kAttributes,
    .takes = {{kFloats, inputs(kQuery, kKey, kValue, kCos, kSin, kScoreBias, kSinks, kQueryNorm, kKeyNorm)},
              {kFloats | kBytes, inputs(kPastKey, kPastValue)},
              {DType::i32, inputs(kLastKeys, kTotal, kQueryLengths)},
              {DType::i64, inputs(kPositionIds)},
              {DType::f32, inputs(kKeyScale, kValueScale)}},
    .shape_inputs = 1U << kTotal,
    .infer = infer,
    .lower = lower};
constinit const OpDef op_lathe_append_rows = {.name = "AppendRows",
                                              .domain = "lathe",
                                              .inputs = {3, 6},
                                              .shape_inputs = 1U << kLength,
                                              .infer = infer_append,
                                              .expr = expr_append};

}  // namespace lathe::ops
