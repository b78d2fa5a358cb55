// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: real numbers as scale · (integer − zero point).
#include "ops/quantize.h"

#include <numeric>

#include "ops/ir/loop_builder.h"

namespace lathe::ops {
namespace {

bool is_storage(DType t) {
  return t.is_float8() || t == DType::f4e2m1 || t.is_packed() || t.bits() == 8 || t.bits() == 16;
}

enum class Granularity { tensor, axis, block };

/// How scale (input 1) lies over x; Failure where it fits no granularity.
Granularity granularity(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const Shape& scale = op.in(1).shape;
  const std::int64_t block = op.i("block_size");
  op.require(block >= 0, "block_size must not be negative, got {}", block);
  if (block == 0) {
    if (scale.rank() == 0 || (scale.rank() == 1 && scale[0] == 1)) return Granularity::tensor;
    const int axis = op.axis("axis", x.rank());
    op.require(scale.rank() == 1 && scale[0] == x[axis],
               "the scale must be one value or {} along axis {}, got shape {}", x[axis], axis, scale);
    return Granularity::axis;
  }
  const int axis = op.axis("axis", x.rank());
  op.require(scale.rank() == x.rank(), "the scale of a blocked quantization must have rank {}, got {}", x.rank(),
             scale.rank());
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t expected = d == axis ? x[d] / block + (x[d] % block != 0 ? 1 : 0) : x[d];
    op.require(scale[d] == expected, "the scale must have extent {} along axis {}, got shape {}", expected, d, scale);
  }
  return Granularity::block;
}

void check_zero_point(const OpView& op, DType dtype) {
  if (!op.has(2)) return;
  const Fact& zero = op.in(2);
  op.require(zero.dtype == dtype, "the zero point must be {}, got {}", dtype, zero.dtype);
  op.require(zero.shape == op.in(1).shape || (zero.shape.elements() == 1 && op.in(1).shape.elements() == 1),
             "zero point and scale must have one shape, got {} and {}", zero.shape, op.in(1).shape);
}

/// Where scale or zero point (input i) of the element at `at` lies.
Coords parameter_coords(const OpView& op, LoopBuilder& b, int i, const Coords& at) {
  const Shape& shape = op.in(i).shape;
  Coords c;
  switch (granularity(op)) {
    case Granularity::tensor:
      for (int d = 0; d < shape.rank(); ++d) c.push_back(Coord{});
      return c;
    case Granularity::axis:
      c.push_back(at[op.axis("axis", op.in(0).rank())]);
      return c;
    case Granularity::block:
      break;
  }
  const int axis = op.axis("axis", op.in(0).rank());
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != axis) {
      c.push_back(at[d]);
    } else if (shape[d] <= 1) {
      c.push_back(Coord{});
    } else {
      const Scalar block =
          b.binary(loops::Op::div, b.coordinate(at[d]), b.constant_int(DType::i64, op.i("block_size")));
      c.push_back(b.indirect(block, shape[d]));
    }
  }
  return c;
}

DType stated_dtype(const OpView& op, std::string_view name) {
  const std::int64_t code = op.i(name);
  op.require(code >= 0 && code < DType::kCount, "{} {} is no known dtype", name, code);
  return static_cast<DType::Code>(code);
}

// ---- QuantizeLinear ----

constexpr Attribute kQuantizeAttributes[] = {
    {"axis", 1}, {"block_size", 0}, {"output_dtype", 0}, {"precision", 0}, {"saturate", 1}};

DType quantized_dtype(const OpView& op) {
  const DType stated = stated_dtype(op, "output_dtype");
  if (!op.has(2)) return stated == DType::undefined ? DType(DType::u8) : stated;
  const DType zero = op.in(2).dtype;
  op.require(stated == DType::undefined || stated == zero, "output_dtype is {}, but the zero point is {}", stated,
             zero);
  return zero;
}

Facts infer_quantize(const OpView& op) {
  const DType y = quantized_dtype(op);
  op.require(is_storage(y) && y != DType::f16 && y != DType::bf16 && y != DType::boolean, "y cannot be {}", y);
  granularity(op);
  check_zero_point(op, y);
  return {Fact(y, op.in(0).shape)};
}

Scalar quotient(const OpView& op, LoopBuilder& b, const Coords& at) {
  const DType x = op.in(0).dtype;
  const DType scale = op.in(1).dtype;
  const DType stated = stated_dtype(op, "precision");
  const DType precision = stated != DType::undefined ? stated : scale;
  const DType compute = precision == DType::i32 && x == DType::i32 ? DType(DType::f64) : DType(DType::f32);
  const Scalar q =
      b.binary(loops::Op::div, b.cast(b.in(0, at), compute), b.cast(b.in(1, parameter_coords(op, b, 1, at)), compute));
  // The division rounds as it would in the stated precision.
  if (precision == DType::f16 || precision == DType::bf16) return b.cast(b.cast(q, precision), DType::f32);
  return q;
}

// Loops saturate. The other way of float8 is a cast of its own behind the quotient.
std::vector<ValueId> lower_quantize(const OpView& op, Builder& b) {
  const DType y = op.out(0).dtype;
  const bool saturate = op.i("saturate") != 0 || !y.is_float8();
  std::vector<ValueId> inputs = {op.id(0), op.id(1)};
  if (op.has(2)) inputs.push_back(op.id(2));
  const ValueId q = b.op("lathe::Quantize", std::move(inputs),
                         {{"axis", op.i("axis")},
                          {"block_size", op.i("block_size")},
                          {"precision", op.i("precision")},
                          {"to", static_cast<std::int64_t>(saturate ? y : DType(DType::f32))}});
  if (saturate) return {q};
  return {b.op("lathe::CastFloat8", {q}, {{"to", static_cast<std::int64_t>(y)}, {"saturate", std::int64_t{0}}})};
}

constexpr Attribute kLoopAttributes[] = {
    {"axis", 1}, {"block_size", 0}, {"precision", 0}, {"to", AttrKind::integer, Attribute::kRequired}};

Facts infer_quantize_loop(const OpView& op) { return {Fact(stated_dtype(op, "to"), op.in(0).shape)}; }

Scalar expr_quantize(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType y = op.out(0).dtype;
  Scalar q = quotient(op, b, at);
  const DType compute = b.dtype(q);
  if (y.is_float()) {
    if (op.has(2)) q = b.binary(loops::Op::add, q, b.cast(b.in(2, parameter_coords(op, b, 2, at)), compute));
    return b.cast(q, y);
  }
  q = b.unary(loops::Op::round, q);
  if (op.has(2)) q = b.binary(loops::Op::add, q, b.cast(b.in(2, parameter_coords(op, b, 2, at)), compute));
  const IntegerRange range = integer_range(y);
  q = b.binary(loops::Op::min, b.binary(loops::Op::max, q, b.constant(compute, range.least)),
               b.constant(compute, range.most));
  return b.cast(q, y);
}

// ---- DequantizeLinear ----

constexpr Attribute kDequantizeAttributes[] = {{"axis", 1}, {"block_size", 0}, {"output_dtype", 0}};

Facts infer_dequantize(const OpView& op) {
  const DType x = op.in(0).dtype;
  const DType scale = op.in(1).dtype;
  granularity(op);
  check_zero_point(op, x);
  const DType stated = stated_dtype(op, "output_dtype");
  const DType y = stated != DType::undefined ? stated : scale == DType::f8e8m0 ? DType(DType::f32) : scale;
  op.require(y == DType::f32 || y == DType::f16 || y == DType::bf16, "output_dtype must be f32, f16 or bf16, got {}",
             y);
  return {Fact(y, op.in(0).shape)};
}

Scalar expr_dequantize(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType type = op.in(0).dtype;
  const DType difference = type.is_float() ? DType::f32 : type == DType::i32 && op.has(2) ? DType::i64 : DType::i32;
  Scalar x = b.cast(b.in(0, at), difference);
  if (op.has(2)) x = b.binary(loops::Op::sub, x, b.cast(b.in(2, parameter_coords(op, b, 2, at)), difference));
  const Scalar scale = b.cast(b.in(1, parameter_coords(op, b, 1, at)), DType::f32);
  return b.binary(loops::Op::mul, b.cast(x, DType::f32), scale);
}

// ---- DynamicQuantizeLinear ----

Facts infer_dynamic_quantize(const OpView& op) {
  return {Fact(DType::u8, op.in(0).shape), Fact(DType::f32, {}), Fact(DType::u8, {})};
}

std::vector<ValueId> lower_dynamic_quantize(const OpView& op, Builder& b) {
  const ValueId x = op.id(0);
  const ValueId zero = b.scalar(DType::f32, 0);
  std::vector<std::int64_t> axes(static_cast<std::size_t>(op.in(0).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const bool scalar = axes.empty();
  const ValueId least = b.op("Min", {scalar ? x : b.reduce("ReduceMin", x, axes, false), zero});
  const ValueId most = b.op("Max", {scalar ? x : b.reduce("ReduceMax", x, axes, false), zero});
  const ValueId range = b.sub(most, least);
  // A tensor of zeros: any scale will do, 0 would divide 0 by 0.
  const ValueId scale =
      b.op("Where", {b.op("Equal", {range, zero}), b.scalar(DType::f32, 1), b.div(range, b.scalar(DType::f32, 255))});
  const ValueId shift = b.op("Round", {b.sub(zero, b.div(least, scale))});
  const ValueId zero_point = b.cast(b.op("Min", {b.op("Max", {shift, zero}), b.scalar(DType::f32, 255)}), DType::u8);
  return {b.op("QuantizeLinear", {x, scale, zero_point}), scale, zero_point};
}

}  // namespace

IntegerRange integer_range(DType dtype) {
  const int bits = dtype.bits();
  if (dtype.is_unsigned_integer()) return {0, static_cast<double>((std::int64_t{1} << bits) - 1)};
  const auto half = static_cast<double>(std::int64_t{1} << (bits - 1));
  return {-half, half - 1};
}

ValueId unpack_bits(Builder& b, ValueId x, std::int64_t bits) {
  if (bits == 8) return x;
  const int last = b.fact(x).rank() - 1;
  const std::int64_t count = 8 / bits;
  std::vector<std::uint8_t> shifts;
  for (std::int64_t i = 0; i < count; ++i) shifts.push_back(static_cast<std::uint8_t>(i * bits));
  const ValueId shifted = b.op("BitShift", {b.unsqueeze(x, {last + 1}), b.constant(Tensor::from(shifts, {count}))},
                               {{"direction", "RIGHT"}});
  const ValueId values = b.op("BitwiseAnd", {shifted, b.scalar(DType::u8, static_cast<double>((1 << bits) - 1))});
  const ValueId extent = b.mul(b.shape_of(x, last, last + 1), b.ints({count}));
  return b.reshape(values, last == 0 ? extent : b.concat({b.shape_of(x, 0, last), extent}, 0));
}

ValueId requantize(Builder& b, ValueId product, ValueId scale_a, ValueId scale_b, ValueId scale_y, ValueId zero_y) {
  const ValueId inputs = b.mul(b.cast(scale_a, DType::f32), b.cast(scale_b, DType::f32));
  const ValueId scaled = b.mul(product, b.div(inputs, b.cast(scale_y, DType::f32)));
  return b.op("QuantizeLinear", {scaled, b.scalar(DType::f32, 1), zero_y});
}

extern const OpDef op_quantize_linear;
constinit const OpDef op_quantize_linear = {
    .name = "QuantizeLinear",
    .inputs = {2, 3},
    .attributes = kQuantizeAttributes,
    .forms = {10, 28},
    .takes = {{DTypes(DType::f32) | DType::f16 | DType::bf16 | DType::i32, inputs(0)},
              {DTypes(DType::f32) | DType::f16 | DType::bf16 | DType::i32 | DType::f8e8m0, inputs(1)},
              {kFloat8 | kPacked | DType::i8 | DType::i16 | DType::u8 | DType::u16, inputs(2)}},
    .infer = infer_quantize,
    .lower = lower_quantize};

extern const OpDef op_quantize_loop;
constinit const OpDef op_quantize_loop = {.name = "Quantize",
                                          .domain = "lathe",
                                          .inputs = {2, 3},
                                          .attributes = kLoopAttributes,
                                          .infer = infer_quantize_loop,
                                          .expr = expr_quantize};

extern const OpDef op_dequantize_linear;
constinit const OpDef op_dequantize_linear = {
    .name = "DequantizeLinear",
    .inputs = {2, 3},
    .attributes = kDequantizeAttributes,
    .forms = {10, 28},
    .takes = {{kFloat8 | kPacked | DType::i8 | DType::i16 | DType::i32 | DType::u8 | DType::u16, inputs(0, 2)},
              {DTypes(DType::f32) | DType::f16 | DType::bf16 | DType::f8e8m0, inputs(1)}},
    .infer = infer_dequantize,
    .expr = expr_dequantize};

extern const OpDef op_dynamic_quantize_linear;
constinit const OpDef op_dynamic_quantize_linear = {.name = "DynamicQuantizeLinear",
                                                    .inputs = 1,
                                                    .outputs = {1, 3},
                                                    .forms = {11, 11},
                                                    .takes = DType::f32,
                                                    .infer = infer_dynamic_quantize,
                                                    .lower = lower_dynamic_quantize};

}  // namespace lathe::ops
