// The 8-bit operators of com.microsoft, which ONNX Runtime's quantizer writes: each its real counterpart between a
// DequantizeLinear and a QuantizeLinear, products summed in integers.
#include <vector>

#include "ops/infer_as.h"
#include "ops/ir/builder.h"
#include "ops/quantize.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

/// An 8-bit tensor with its scale and its zero point, which may be left out where `optional`.
void check_quantized(const OpView& op, int x, int scale, int zero, bool optional = true) {
  op.require(is_8bit(op.in(x).dtype), "input {} must be i8 or u8, got {}", x, op.in(x).dtype);
  op.require(op.in(scale).dtype == DType::f32 && op.in(scale).shape.elements() == 1,
             "input {} is a scale and must be one f32, got {}", scale, op.in(scale).to_string());
  op.require(optional || op.has(zero), "input {}, a zero point, is missing", zero);
  if (!op.has(zero)) return;
  op.require_same_dtype(x, zero);
  op.require(op.in(zero).shape.elements() == 1, "input {} is a zero point and must be one value, got {}", zero,
             op.in(zero).to_string());
}

void check_output(const OpView& op, int scale, int zero) {
  op.require(op.in(scale).dtype == DType::f32 && op.in(scale).shape.elements() == 1,
             "input {} is a scale and must be one f32, got {}", scale, op.in(scale).to_string());
  if (!op.has(zero)) return;
  op.require(is_8bit(op.in(zero).dtype) && op.in(zero).shape.elements() == 1,
             "input {} is a zero point and must be one i8 or u8, got {}", zero, op.in(zero).to_string());
}

ValueId dequantize(const OpView& op, Builder& b, int x, int scale, int zero) {
  return b.op("DequantizeLinear", {op.id(x), op.id(scale), op.id(zero)});
}

ValueId quantize(const OpView& op, Builder& b, ValueId y, int scale, int zero) {
  return b.op("QuantizeLinear", {y, op.id(scale), op.id(zero)},
              {{"output_dtype", static_cast<std::int64_t>(op.out(0).dtype)}});
}

// ---- QLinearAdd, QLinearMul: A, its scale and zero point, B, its scale and zero point, C's scale and zero point ----

Facts infer_binary(const OpView& op) {
  check_quantized(op, 0, 1, 2);
  check_quantized(op, 3, 4, 5);
  op.require_same_dtype(0, 3);
  check_output(op, 6, 7);
  if (op.has(7)) op.require_same_dtype(0, 7);
  return {Fact(op.in(0).dtype, op.broadcast(op.in(0).shape, op.in(3).shape))};
}

template <bool kProduct>
std::vector<ValueId> lower_binary(const OpView& op, Builder& b) {
  const ValueId x = dequantize(op, b, 0, 1, 2), y = dequantize(op, b, 3, 4, 5);
  return {quantize(op, b, kProduct ? b.mul(x, y) : b.add(x, y), 6, 7)};
}

// ---- of one tensor: X, its scale and zero point, Y's scale and zero point ----

Facts infer_unary(const OpView& op) {
  check_quantized(op, 0, 1, 2);
  check_output(op, 3, 4);
  if (op.has(4)) op.require_same_dtype(0, 4);
  return {op.in(0)};
}

std::vector<ValueId> lower_sigmoid(const OpView& op, Builder& b) {
  return {quantize(op, b, b.op("Sigmoid", {dequantize(op, b, 0, 1, 2)}), 3, 4)};
}

constexpr Attribute kLeakyReluAttributes[] = {{"alpha", 0.01}};

std::vector<ValueId> lower_leaky_relu(const OpView& op, Builder& b) {
  return {quantize(op, b, b.op("LeakyRelu", {dequantize(op, b, 0, 1, 2)}, {{"alpha", op.f("alpha")}}), 3, 4)};
}

constexpr Attribute kSoftmaxAttributes[] = {{"axis", -1}, {"opset", AttrKind::integer, Attribute::kRequired}};

Facts infer_softmax(const OpView& op) {
  static_cast<void>(op.axis("axis", op.in(0).rank()));
  return infer_unary(op);
}

/// Before opset 13 a softmax goes over all axes from `axis` on.
std::vector<ValueId> lower_softmax(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank(), axis = op.axis("axis", rank);
  const ValueId x = dequantize(op, b, 0, 1, 2);
  if (op.i("opset") >= 13 || axis == rank - 1)
    return {quantize(op, b, b.op("Softmax", {x}, {{"axis", std::int64_t{axis}}}), 3, 4)};
  const ValueId rows = b.op("Flatten", {x}, {{"axis", std::int64_t{axis}}});
  const ValueId y = b.op("Softmax", {rows}, {{"axis", std::int64_t{1}}});
  return {quantize(op, b, b.reshape(y, b.shape_of(op.id(0))), 3, 4)};
}

// ---- pooling, with `channels_last` in the order [batch, spatial…, channels] ----

constexpr Attribute kAveragePoolAttributes[] = {{"auto_pad", "NOTSET"},
                                                {"ceil_mode", 0},
                                                {"channels_last", 0},
                                                {"count_include_pad", 0},
                                                {"kernel_shape", AttrKind::integers, Attribute::kRequired},
                                                {"pads", AttrKind::integers},
                                                {"strides", AttrKind::integers}};
constexpr Attribute kGlobalAttributes[] = {{"channels_last", 0}};

/// Of the pooling operator `name` on a tensor in the usual order.
Fact pooled(const OpView& op, std::string_view name, Attributes attributes) {
  Fact x(DType::f32, op.in(0).shape);
  const bool last = op.i("channels_last") != 0;
  op.require(x.rank() >= 3, "x must have a batch, a channel and a spatial axis, got shape {}", x.shape);
  if (last) x.shape = channels_first(x.shape);
  Fact y = infer_as(op, name, {x}, std::move(attributes));
  if (last) y.shape = channels_last(y.shape);
  return {op.in(0).dtype, y.shape};
}

Attributes pool_attributes(const OpView& op) {
  Attributes attributes = op.node().attributes;
  attributes.erase("channels_last");
  return attributes;
}

template <bool kGlobal>
Facts infer_pool(const OpView& op) {
  infer_unary(op);
  return {pooled(op, kGlobal ? "GlobalAveragePool" : "AveragePool", pool_attributes(op))};
}

template <bool kGlobal>
std::vector<ValueId> lower_pool(const OpView& op, Builder& b) {
  const bool last = op.i("channels_last") != 0;
  const int rank = op.in(0).rank();
  ValueId x = dequantize(op, b, 0, 1, 2);
  if (last) x = b.transpose(x, channels_first_order(rank));
  ValueId y = b.op(kGlobal ? "GlobalAveragePool" : "AveragePool", {x}, pool_attributes(op));
  if (last) y = b.transpose(y, channels_last_order(rank));
  return {quantize(op, b, y, 3, 4)};
}

// ---- QLinearConcat: Y's scale and zero point, then a tensor, its scale and its zero point for each part ----

constexpr Attribute kConcatAttributes[] = {{"axis", AttrKind::integer, Attribute::kRequired}};

Facts infer_concat(const OpView& op) {
  op.require(op.inputs() >= 5 && (op.inputs() - 2) % 3 == 0,
             "it takes a scale, a zero point and three inputs per part, got {} inputs", op.inputs());
  check_output(op, 0, 1);
  op.require(op.has(1), "input 1, a zero point, is missing");
  Shape shape = op.in(2).shape;
  const int axis = op.axis("axis", shape.rank());
  for (int i = 2; i < op.inputs(); i += 3) {
    check_quantized(op, i, i + 1, i + 2);
    const Shape& part = op.in(i).shape;
    bool fits = part.rank() == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == axis || part[d] == shape[d];
    op.require(fits, "parts must agree in all axes but {}, got shapes {} and {}", axis, op.in(2).shape, part);
    if (i > 2) shape[axis] += part[axis];
  }
  return {Fact(op.in(1).dtype, shape)};
}

std::vector<ValueId> lower_concat(const OpView& op, Builder& b) {
  std::vector<ValueId> parts;
  for (int i = 2; i < op.inputs(); i += 3) parts.push_back(quantize(op, b, dequantize(op, b, i, i + 1, i + 2), 0, 1));
  return {b.concat(std::move(parts), op.axis("axis", op.in(2).rank()))};
}

// ---- QLinearWhere: condition, X, its scale and zero point, Y, its scale and zero point, Z's scale and zero point ----

Facts infer_where(const OpView& op) {
  op.require(op.in(0).dtype == DType::boolean, "the condition must be bool, got {}", op.in(0).dtype);
  check_quantized(op, 1, 2, 3, false);
  check_quantized(op, 4, 5, 6, false);
  op.require_same_dtype(1, 4);
  check_output(op, 7, 8);
  return {Fact(op.in(1).dtype, op.broadcast(op.in(0).shape, op.broadcast(op.in(1).shape, op.in(4).shape)))};
}

std::vector<ValueId> lower_where(const OpView& op, Builder& b) {
  const ValueId z = b.op("Where", {op.id(0), dequantize(op, b, 1, 2, 3), dequantize(op, b, 4, 5, 6)});
  return {quantize(op, b, z, 7, 8)};
}

// ---- products summed in integers ----

void check_product(const OpView& op, int a, int w) {
  for (int i : {a, w}) op.require(is_8bit(op.in(i).dtype), "input {} must be i8 or u8, got {}", i, op.in(i).dtype);
}

Shape product_shape(const OpView& op, int a, int w) {
  return infer_as(op, "MatMul", {Fact(DType::f32, op.in(a).shape), Fact(DType::f32, op.in(w).shape)}).shape;
}

/// A scale or bias of the columns of a product.
void check_columns(const OpView& op, int i, DType dtype, const Shape& out) {
  if (!op.has(i)) return;
  const Shape& shape = op.in(i).shape;
  op.require(op.in(i).dtype == dtype, "input {} must be {}, got {}", i, dtype, op.in(i).dtype);
  op.require(shape.elements() == 1 || op.broadcast(shape, out) == out, "input {} of shape {} does not fit {}", i, shape,
             out);
}

/// One value as a scalar, so that it broadcasts to any rank.
ValueId flat(Builder& b, ValueId v) {
  return b.fact(v).shape.elements() == 1 && b.fact(v).rank() > 0 ? b.reshape(v, std::vector<std::int64_t>{}) : v;
}

// QGemm: A, its scale and zero point, B, its scale and zero point, C in i32, Y's scale and zero point. Without the last
// two Y is f32.
constexpr Attribute kGemmAttributes[] = {{"alpha", 1.0}, {"transA", 0}, {"transB", 0}};
enum GemmInput { kA, kAScale, kAZero, kB, kBScale, kBZero, kC, kYScale, kYZero };

Facts infer_gemm(const OpView& op) {
  check_product(op, kA, kB);
  op.require(op.in(kA).rank() == 2 && op.in(kB).rank() == 2, "A and B must be matrices, got {} and {}", op.in(kA).shape,
             op.in(kB).shape);
  const int m = op.i("transA") != 0 ? 1 : 0, n = op.i("transB") != 0 ? 0 : 1;
  const Shape &a = op.in(kA).shape, &w = op.in(kB).shape;
  op.require(a[1 - m] == w[1 - n], "the inner extents differ: {}{} times {}{}", a, m == 1 ? " transposed" : "", w,
             n == 0 ? " transposed" : "");
  const Shape out{a[m], w[n]};
  op.require_same_dtype(kA, kAZero);
  op.require(
      op.in(kAScale).dtype == DType::f32 && op.in(kAScale).shape.elements() == 1 && op.in(kAZero).shape.elements() == 1,
      "scale and zero point of A must be one value each, got {} and {}", op.in(kAScale).to_string(),
      op.in(kAZero).to_string());
  if (op.has(kBZero)) op.require_same_dtype(kB, kBZero);
  for (int i : {static_cast<int>(kBScale), static_cast<int>(kBZero)}) {
    if (!op.has(i)) continue;
    const Shape& shape = op.in(i).shape;
    op.require(shape.elements() == 1 || shape == Shape{out[1]}, "input {} must be one value or one per column, got {}",
               i, op.in(i).to_string());
  }
  check_columns(op, kC, DType::i32, out);
  op.require(op.has(kYScale) == op.has(kYZero), "scale and zero point of Y must be given together");
  if (!op.has(kYScale)) return {Fact(DType::f32, out)};
  check_output(op, kYScale, kYZero);
  return {Fact(op.in(kYZero).dtype, out)};
}

std::vector<ValueId> lower_gemm(const OpView& op, Builder& b) {
  ValueId x = op.id(kA), w = op.id(kB);
  if (op.i("transA") != 0) x = b.transpose(x, {1, 0});
  if (op.i("transB") != 0) w = b.transpose(w, {1, 0});
  ValueId sum = b.op("MatMulInteger", {x, w, flat(b, op.id(kAZero)), op.has(kBZero) ? flat(b, op.id(kBZero)) : kNone});
  if (op.has(kC)) sum = b.add(sum, op.id(kC));
  ValueId scale = b.mul(flat(b, op.id(kAScale)), flat(b, op.id(kBScale)));
  if (op.f("alpha") != 1.0) scale = b.mul(scale, b.scalar(DType::f32, op.f("alpha")));
  const ValueId y = b.mul(b.cast(sum, DType::f32), scale);
  return {op.has(kYScale) ? quantize(op, b, y, kYScale, kYZero) : y};
}

// MatMulIntegerToFloat: A, B, their scales, their zero points, a bias.
enum ToFloatInput { kFloatA, kFloatB, kFloatAScale, kFloatBScale, kFloatAZero, kFloatBZero, kFloatBias };

Facts infer_to_float(const OpView& op) {
  check_product(op, kFloatA, kFloatB);
  const Shape out = product_shape(op, kFloatA, kFloatB);
  for (int i : {kFloatAScale, kFloatBScale, kFloatBias}) check_columns(op, i, DType::f32, out);
  if (op.has(kFloatAZero)) op.require_same_dtype(kFloatA, kFloatAZero);
  if (op.has(kFloatBZero)) op.require_same_dtype(kFloatB, kFloatBZero);
  return {Fact(DType::f32, out)};
}

std::vector<ValueId> lower_to_float(const OpView& op, Builder& b) {
  const auto zero = [&](int i) { return op.has(i) ? flat(b, op.id(i)) : kNone; };
  const ValueId sum = b.op("MatMulInteger", {op.id(kFloatA), op.id(kFloatB), zero(kFloatAZero), zero(kFloatBZero)});
  const ValueId scale = b.mul(flat(b, op.id(kFloatAScale)), flat(b, op.id(kFloatBScale)));
  const ValueId y = b.mul(b.cast(sum, DType::f32), scale);
  return {op.has(kFloatBias) ? b.add(y, op.id(kFloatBias)) : y};
}

// DynamicQuantizeMatMul: A in f32, B, its scale and zero point, a bias.
enum DynamicInput { kDynamicA, kDynamicB, kDynamicScale, kDynamicZero, kDynamicBias };

Facts infer_dynamic(const OpView& op) {
  op.require(op.in(kDynamicA).dtype == DType::f32, "A must be f32, got {}", op.in(kDynamicA).dtype);
  op.require(is_8bit(op.in(kDynamicB).dtype), "B must be i8 or u8, got {}", op.in(kDynamicB).dtype);
  const Shape out = product_shape(op, kDynamicA, kDynamicB);
  for (int i : {kDynamicScale, kDynamicBias}) check_columns(op, i, DType::f32, out);
  if (op.has(kDynamicZero)) op.require_same_dtype(kDynamicB, kDynamicZero);
  return {Fact(DType::f32, out)};
}

std::vector<ValueId> lower_dynamic(const OpView& op, Builder& b) {
  const auto a = b.ops("DynamicQuantizeLinear", {op.id(kDynamicA)}, 3);
  std::vector<ValueId> inputs = {
      a[0], op.id(kDynamicB), a[1], op.id(kDynamicScale), a[2], op.id(kDynamicZero), op.id(kDynamicBias)};
  while (inputs.back() == kNone) inputs.pop_back();
  return {b.op("com.microsoft::MatMulIntegerToFloat", std::move(inputs))};
}

constexpr OpDef unary(std::string_view name, std::vector<ValueId> (*lower)(const OpView&, Builder&),
                      std::span<const Attribute> attributes = {}, Facts (*infer)(const OpView&) = infer_unary) {
  return {.name = name,
          .domain = kDomain,
          .inputs = {4, 5},
          .attributes = attributes,
          .takes = {{kBytes, inputs(0, 2, 4)}, {DType::f32, inputs(1, 3)}},
          .infer = infer,
          .lower = lower};
}

}  // namespace

extern const OpDef op_qlinear_add, op_qlinear_mul, op_qlinear_sigmoid, op_qlinear_leaky_relu, op_qlinear_softmax,
    op_qlinear_average_pool, op_qlinear_global_average_pool, op_qlinear_concat, op_qlinear_where, op_qgemm,
    op_mat_mul_integer_to_float, op_dynamic_quantize_mat_mul;

constinit const OpDef op_qlinear_add = {.name = "QLinearAdd",
                                        .domain = kDomain,
                                        .inputs = {7, 8},
                                        .takes = {{kBytes, inputs(0, 2, 3, 5, 7)}, {DType::f32, inputs(1, 4, 6)}},
                                        .infer = infer_binary,
                                        .lower = lower_binary<false>};
constinit const OpDef op_qlinear_mul = {.name = "QLinearMul",
                                        .domain = kDomain,
                                        .inputs = {7, 8},
                                        .takes = {{kBytes, inputs(0, 2, 3, 5, 7)}, {DType::f32, inputs(1, 4, 6)}},
                                        .infer = infer_binary,
                                        .lower = lower_binary<true>};
constinit const OpDef op_qlinear_sigmoid = unary("QLinearSigmoid", lower_sigmoid);
constinit const OpDef op_qlinear_leaky_relu = unary("QLinearLeakyRelu", lower_leaky_relu, kLeakyReluAttributes);
constinit const OpDef op_qlinear_softmax = unary("QLinearSoftmax", lower_softmax, kSoftmaxAttributes, infer_softmax);
constinit const OpDef op_qlinear_average_pool =
    unary("QLinearAveragePool", lower_pool<false>, kAveragePoolAttributes, infer_pool<false>);
constinit const OpDef op_qlinear_global_average_pool =
    unary("QLinearGlobalAveragePool", lower_pool<true>, kGlobalAttributes, infer_pool<true>);
constinit const OpDef op_qlinear_concat = {
    .name = "QLinearConcat",
    .domain = kDomain,
    .inputs = {5, Arity::kMany},
    .attributes = kConcatAttributes,
    .takes = {{DType::f32, inputs(0) | inputs_every(3, 3), false},
              {kBytes, inputs(1) | inputs_every(2, 3) | inputs_every(4, 3), false}},
    .infer = infer_concat,
    .lower = lower_concat};
constinit const OpDef op_qlinear_where = {
    .name = "QLinearWhere",
    .domain = kDomain,
    .inputs = 9,
    .takes = {{DType::boolean, inputs(0)}, {kBytes, inputs(1, 3, 4, 6, 8)}, {DType::f32, inputs(2, 5, 7)}},
    .infer = infer_where,
    .lower = lower_where};
constinit const OpDef op_qgemm = {.name = "QGemm",
                                  .domain = kDomain,
                                  .inputs = {6, 9},
                                  .attributes = kGemmAttributes,
                                  .takes = {{kBytes, inputs(kA, kAZero)},
                                            {kBytes, inputs(kB, kBZero)},
                                            {DType::f32, inputs(kAScale, kBScale, kYScale)},
                                            {DType::i32, inputs(kC)},
                                            {kBytes, inputs(kYZero)}},
                                  .infer = infer_gemm,
                                  .lower = lower_gemm};
constinit const OpDef op_mat_mul_integer_to_float = {
    .name = "MatMulIntegerToFloat",
    .domain = kDomain,
    .inputs = {4, 7},
    .takes = {{kBytes, inputs(kFloatA, kFloatAZero)},
              {kBytes, inputs(kFloatB, kFloatBZero)},
              {DType::f32, inputs(kFloatAScale, kFloatBScale, kFloatBias)}},
    .infer = infer_to_float,
    .lower = lower_to_float};
constinit const OpDef op_dynamic_quantize_mat_mul = {
    .name = "DynamicQuantizeMatMul",
    .domain = kDomain,
    .inputs = {3, 5},
    .takes = {{DType::f32, inputs(kDynamicA, kDynamicScale, kDynamicBias)}, {kBytes, inputs(kDynamicB, kDynamicZero)}},
    .infer = infer_dynamic,
    .lower = lower_dynamic};

}  // namespace lathe::ops
