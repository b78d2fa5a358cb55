// Weights in blocks of few bits, each block with its scale and zero point (com.microsoft): MatMulNBits and
// GatherBlockQuantized.
#include <vector>

#include "ops/elementwise.h"
#include "ops/ir/loop_builder.h"
#include "ops/quantize.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

bool is_block_size(std::int64_t n) { return n >= 16 && n <= std::int64_t{1} << 30 && (n & (n - 1)) == 0; }

// ---- MatMulNBits: A [..., K] times B' of N rows of K values in blocks ----

constexpr Attribute kMatMulAttributes[] = {{"K", AttrKind::integer, Attribute::kRequired},
                                           {"N", AttrKind::integer, Attribute::kRequired},
                                           {"accuracy_level", 0},
                                           {"bits", 4},
                                           {"block_size", AttrKind::integer, Attribute::kRequired},
                                           {"weight_prepacked", 0}};
enum MatMulInput { kA, kB, kScales, kZeros, kGroups, kBias };

std::int64_t blocks_of(const OpView& op) { return (op.i("K") - 1) / op.i("block_size") + 1; }

Facts infer_matmul(const OpView& op) {
  const std::int64_t k = op.i("K"), n = op.i("N"), bits = op.i("bits"), size = op.i("block_size");
  op.require(k > 0 && n > 0, "K and N must be positive, got {} and {}", k, n);
  op.require(bits == 2 || bits == 4 || bits == 8, "bits must be 2, 4 or 8, got {}", bits);
  op.require(is_block_size(size), "block_size must be a power of 2 from 16 to 2^30, got {}", size);
  op.require(op.i("weight_prepacked") == 0,
             "weight_prepacked {} is not supported: it says that B lies in the order of a CUDA kernel",
             op.i("weight_prepacked"));
  const Shape& a = op.in(kA).shape;
  op.require(a.rank() > 0 && a.back() == k, "A must have {} columns, got shape {}", k, a);
  Shape y = a;
  y[y.rank() - 1] = n;
  if (op.has(kBias)) {
    op.require_same_dtype(kA, kBias);
    op.require(op.in(kBias).shape == Shape{n}, "the bias must have shape {}, got {}", Shape{n}, op.in(kBias).shape);
  }
  const std::int64_t blocks = blocks_of(op);
  const Shape b{n, blocks, size * bits / 8};
  const Fact& stated = op.in(kB);
  bool fits = stated.dtype == DType::u8 && stated.rank() == 3;
  for (int d = 0; fits && d < 3; ++d) fits = stated.shape[d] == b[d] || stated.shape[d] == 0;
  op.require(fits, "B must be u8 of shape {}, got {}", b, stated.to_string());
  const Fact result(op.in(kA).dtype, y);
  if (stated.shape.elements() == 0) return {result};  // left out: the rest means nothing
  op.require_same_dtype(kA, kScales);
  const auto one_per_block = [&](int i, std::int64_t columns) {
    const Shape& shape = op.in(i).shape;
    op.require(shape == Shape({n, columns}) || shape == Shape{n * columns}, "input {} must have shape {}, got {}", i,
               Shape{n, columns}, shape);
  };
  one_per_block(kScales, blocks);
  if (op.has(kZeros)) {
    const DType zeros = op.in(kZeros).dtype;
    one_per_block(kZeros, zeros == DType::u8 ? (blocks * bits + 7) / 8 : blocks);
  }
  if (op.has(kGroups)) {
    const Fact& groups = op.in(kGroups);
    op.require(groups.dtype == DType::i32 && (groups.shape == Shape{k} || groups.shape == Shape{blocks * size}),
               "g_idx must be i32 of shape {}, got {}", Shape{k}, groups.to_string());
  }
  return {result};
}

std::vector<ValueId> lower_matmul(const OpView& op, Builder& b) {
  const DType dtype = op.in(kA).dtype, compute = LoopBuilder::compute_type(dtype);
  const std::int64_t k = op.i("K"), n = op.i("N"), bits = op.i("bits"), blocks = blocks_of(op);
  if (op.in(kB).shape.elements() == 0) {
    const ValueId each = op.has(kBias) ? op.id(kBias) : b.scalar(dtype, 0);
    const int rows = op.in(kA).rank() - 1;
    return {
        b.op("Expand", {each, rows == 0 ? b.ints({n}) : b.concat({b.shape_of(op.id(kA), 0, rows), b.ints({n})}, 0)})};
  }
  const auto per_block = [&](ValueId x) { return b.cast(b.reshape(x, {n, blocks}), compute); };
  // What is one per block, for each value: by the group that the value is said to be of, or that it lies in.
  const auto each = [&](ValueId x) {
    if (!op.has(kGroups)) return b.unsqueeze(x, {2});
    return b.op("Gather", {x, b.slice(op.id(kGroups), {0}, {k}, {0})}, {{"axis", std::int64_t{1}}});
  };
  ValueId w = b.cast(unpack_bits(b, op.id(kB), bits), compute);
  if (op.has(kGroups)) w = b.slice(b.reshape(w, {n, -1}), {0}, {k}, {1});
  if (!op.has(kZeros)) {
    w = b.sub(w, b.scalar(compute, static_cast<double>(1 << (bits - 1))));
  } else if (op.in(kZeros).dtype == DType::u8) {
    const ValueId zeros = unpack_bits(b, b.reshape(op.id(kZeros), {n, -1}), bits);
    w = b.sub(w, each(per_block(b.slice(zeros, {0}, {blocks}, {1}))));
  } else {
    w = b.sub(w, each(per_block(op.id(kZeros))));
  }
  w = b.mul(w, each(per_block(op.id(kScales))));
  if (!op.has(kGroups)) w = b.slice(b.reshape(w, {n, -1}), {0}, {k}, {1});
  ValueId y = b.matmul(b.cast(op.id(kA), compute), b.transpose(w, {1, 0}));
  if (op.has(kBias)) y = b.add(y, b.cast(op.id(kBias), compute));
  return {b.cast(y, dtype)};
}

// ---- GatherBlockQuantized: data, indices, scales, zero points; indices out of range give zeros ----

constexpr Attribute kGatherAttributes[] = {{"bits", 4}, {"block_size", 128}, {"gather_axis", 0}, {"quantize_axis", 1}};
enum GatherInput { kData, kWhich, kGatherScales, kGatherZeros };

struct GatherForm {
  int gathered = 0, quantized = 0;  ///< axes of the data
  std::int64_t bits = 8;            ///< of a value that lies in bytes of u8
  std::int64_t block = 0;           ///< 0: one block
};

bool is_float_data(DType t) { return t.is_float8() || t == DType::f4e2m1; }

GatherForm gather_form(const OpView& op) {
  const Fact& data = op.in(kData);
  GatherForm form;
  form.gathered = op.axis("gather_axis", data.rank()), form.quantized = op.axis("quantize_axis", data.rank());
  form.block = op.i("block_size");
  if (data.dtype == DType::u8) form.bits = op.i("bits");
  return form;
}

Facts infer_gather(const OpView& op) {
  const Fact &data = op.in(kData), &indices = op.in(kWhich), &scales = op.in(kGatherScales);
  const bool bytes = data.dtype == DType::u8, floats = is_float_data(data.dtype);
  const GatherForm form = gather_form(op);
  const std::int64_t bits = op.i("bits");
  op.require(floats || bits == 4 || (bytes && (bits == 2 || bits == 8)), "bits must be {}, got {}",
             bytes ? "2, 4 or 8" : "4", bits);
  op.require(is_block_size(form.block) || (floats && form.block == 0),
             "block_size must be a power of 2 from 16 to 2^30, got {}", form.block);
  op.require(!bytes || (form.gathered == 0 && form.quantized == data.rank() - 1 && data.rank() > 1),
             "data of u8 is gathered along its first axis and quantized along another, its last, got axes {} and {}",
             form.gathered, form.quantized);
  op.require(data.rank() + indices.rank() - 1 <= Shape::kMaxRank,
             "the output would have rank {}, at most {} is supported", data.rank() + indices.rank() - 1,
             Shape::kMaxRank);
  Shape values = data.shape;
  if (bytes) {
    op.require(values.back() < std::int64_t{1} << 60, "the data's shape {} overflows", values);
    values[values.rank() - 1] *= 8 / form.bits;
  }
  const auto check_blocks = [&](int i, std::int64_t per_byte) {
    const Shape& shape = op.in(i).shape;
    bool fits = shape.rank() == values.rank();
    for (int d = 0; fits && d < values.rank(); ++d) {
      std::int64_t wanted = values[d];
      if (d == form.quantized) {
        wanted = form.block == 0 ? 1 : (values[d] + form.block - 1) / form.block;
        wanted = (wanted + per_byte - 1) / per_byte;
      }
      fits = shape[d] == wanted || (floats && d != form.quantized && shape[d] == 1);
    }
    op.require(fits, "input {} of shape {} does not fit blocks of {} along axis {} of {}", i, shape, form.block,
               form.quantized, values);
  };
  check_blocks(kGatherScales, 1);
  if (op.has(kGatherZeros)) {
    op.require(!floats, "data of {} takes no zero points", data.dtype);
    op.require_same_dtype(kData, kGatherZeros);
    check_blocks(kGatherZeros, 8 / form.bits);
  }
  Shape y;
  for (int d = 0; d < form.gathered; ++d) y.push_back(values[d]);
  for (std::int64_t extent : indices.shape) y.push_back(extent);
  for (int d = form.gathered + 1; d < values.rank(); ++d) y.push_back(values[d]);
  return {Fact(scales.dtype, y)};
}

std::vector<ValueId> lower_gather(const OpView& op, Builder& b) {
  const GatherForm form = gather_form(op);
  const DType dtype = op.in(kGatherScales).dtype, compute = LoopBuilder::compute_type(dtype);
  const int more = op.in(kWhich).rank() - 1;
  const ValueId indices = b.cast(op.id(kWhich), DType::i64), zero = b.scalar(DType::i64, 0);
  const ValueId extent = b.squeeze(b.shape_of(op.id(kData), form.gathered, form.gathered + 1), {0});
  const ValueId valid =
      b.op("And", {b.op("GreaterOrEqual", {indices, b.op("Neg", {extent})}), b.op("Less", {indices, extent})});
  const ValueId wrapped = b.op("Where", {b.op("Less", {indices, zero}), b.add(indices, extent), indices});
  const ValueId rows = b.op("Where", {valid, wrapped, zero});
  const auto gather = [&](ValueId x, ValueId i, int axis) {
    return b.op("Gather", {x, i}, {{"axis", std::int64_t{axis}}});
  };
  const ValueId x = unpack_bits(b, gather(op.id(kData), rows, form.gathered), form.bits);
  // What is one per block, for each value of x.
  const int axis = form.quantized > form.gathered ? form.quantized + more : form.quantized;
  const auto each = [&](ValueId v) {
    const bool one_row = b.fact(v).shape[form.gathered] == 1;
    if (form.quantized == form.gathered) {
      return gather(
          v, form.block == 0 ? b.mul(rows, zero) : b.div(rows, b.scalar(DType::i64, static_cast<double>(form.block))),
          form.gathered);
    }
    v = gather(v, one_row ? b.mul(rows, zero) : rows, form.gathered);
    if (form.block == 0) return v;
    const ValueId value = b.counted(b.shape_of(x, axis, axis + 1));
    return gather(v, b.div(value, b.scalar(DType::i64, static_cast<double>(form.block))), axis);
  };
  ValueId y = b.cast(x, compute);
  if (op.has(kGatherZeros)) {
    y = b.sub(y, b.cast(each(unpack_bits(b, op.id(kGatherZeros), form.bits)), compute));
  } else if (op.in(kData).dtype == DType::u8) {
    y = b.sub(y, b.scalar(compute, static_cast<double>(1 << (form.bits - 1))));
  }
  y = b.mul(y, b.cast(each(op.id(kGatherScales)), compute));
  std::vector<std::int64_t> behind;
  for (int d = form.gathered + 1; d < op.in(kData).rank(); ++d) behind.push_back(d - form.gathered + more);
  y = b.op("Where", {b.unsqueeze(valid, behind), y, b.scalar(compute, 0)});
  return {b.cast(y, dtype)};
}

}  // namespace

extern const OpDef op_mat_mul_nbits, op_gather_block_quantized;

constinit const OpDef op_mat_mul_nbits = {.name = "MatMulNBits",
                                          .domain = kDomain,
                                          .inputs = {3, 6},
                                          .attributes = kMatMulAttributes,
                                          .takes = {{kFloats, inputs(kA, kScales, kBias)},
                                                    {DType::u8, inputs(1)},
                                                    {kFloats | DType::u8, inputs(kZeros)},
                                                    {DType::i32, inputs(kGroups)}},
                                          .infer = infer_matmul,
                                          .lower = lower_matmul};
constinit const OpDef op_gather_block_quantized = {
    .name = "GatherBlockQuantized",
    .domain = kDomain,
    .inputs = {3, 4},
    .attributes = kGatherAttributes,
    .takes = {{kFloat8 | DType::f8e8m0 | DType::f4e2m1 | DType::i4 | DType::u4 | DType::u8,
               inputs(kData, kGatherZeros)},
              {kIndices, inputs(kWhich)},
              {kFloats, inputs(kGatherScales)}},
    .infer = infer_gather,
    .lower = lower_gather};

}  // namespace lathe::ops
