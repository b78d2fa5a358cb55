// Matrix products: MatMul and its integer forms as contractions, Gemm and QLinearMatMul said through them.
#include <algorithm>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/quantize.h"

namespace lathe::ops {
namespace {

struct MatMulShape {
  Shape out;
  std::int64_t k = 0;
};

/// Numpy's matmul: the last two dims are matrices, the others batches that broadcast; rank 1 is a row or a column.
MatMulShape matmul_shape(const OpView& op, const Shape& a, const Shape& b) {
  op.require(a.rank() >= 1 && b.rank() >= 1, "both inputs need at least one dim, got {} and {}", a, b);
  Shape batch_a, batch_b;
  for (int d = 0; d + 2 < a.rank(); ++d) batch_a.push_back(a[d]);
  for (int d = 0; d + 2 < b.rank(); ++d) batch_b.push_back(b[d]);
  const std::int64_t k_b = b.rank() == 1 ? b[0] : b[b.rank() - 2];
  op.require(a.back() == k_b, "the inner extents differ: {} times {}", a, b);
  MatMulShape m{op.broadcast(batch_a, batch_b), k_b};
  if (a.rank() > 1) m.out.push_back(a[a.rank() - 2]);
  if (b.rank() > 1) m.out.push_back(b.back());
  return m;
}

Coords batch_coords(const Shape& shape, int batch_out, const Coords& at) {
  Coords c;
  const int batch = std::max(0, shape.rank() - 2);
  for (int d = 0; d < batch; ++d) c.push_back(shape[d] == 1 ? Coord{} : at[batch_out - batch + d]);
  return c;
}

struct Operands {
  Coords a, b;
};

Operands operand_coords(const Shape& a, const Shape& b, const Coords& at, const Coord& k) {
  const int batch = at.rank - (a.rank() > 1 ? 1 : 0) - (b.rank() > 1 ? 1 : 0);
  Operands o{batch_coords(a, batch, at), batch_coords(b, batch, at)};
  if (a.rank() > 1) o.a.push_back(at[batch]);
  o.a.push_back(k);
  o.b.push_back(k);
  if (b.rank() > 1) o.b.push_back(at[at.rank - 1]);
  return o;
}

// ---- MatMul ----

Facts infer_matmul(const OpView& op) {
  return {Fact(op.in(0).dtype, matmul_shape(op, op.in(0).shape, op.in(1).shape).out)};
}

Scalar expr_matmul(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::int64_t extents[] = {op.in(0).shape.back()};
  const Operands o = operand_coords(op.in(0).shape, op.in(1).shape, at, b.inner(extents)[0]);
  return b.reduce(loops::Reduction::sum, b.binary(loops::Op::mul, b.in(0, o.a), b.in(1, o.b)));
}

// ---- MatMulInteger: int32 products of 8-bit values less their zero points ----

Facts infer_matmul_integer(const OpView& op) {
  const Fact& a = op.in(0);
  const Fact& b = op.in(1);
  const Shape out = matmul_shape(op, a.shape, b.shape).out;
  for (int i = 2; i < op.inputs(); ++i) {
    if (!op.has(i)) continue;
    const Shape& zero = op.in(i).shape;
    const std::int64_t per = i == 2 ? (a.rank() > 1 ? a.shape[a.rank() - 2] : 1) : (b.rank() > 1 ? b.shape.back() : 1);
    const bool per_row = zero.rank() == 1 && zero[0] == per;
    const bool broadcast = zero.rank() > 1 && zero.rank() <= out.rank() && op.broadcast(zero, out) == out;
    op.require(zero.elements() == 1 || per_row || broadcast,
               "zero point {} of shape {} fits neither one value nor one per {}", i - 2, zero,
               i == 2 ? "row" : "column");
  }
  return {Fact(DType::i32, out)};
}

Scalar zero_point(const OpView& op, LoopBuilder& b, int i, const Coords& at) {
  const Shape& shape = op.in(i).shape;
  Coords c;
  if (shape.elements() == 1) {
    for (int d = 0; d < shape.rank(); ++d) c.push_back(Coord{});
  } else if (shape.rank() == 1 && i == 2) {
    c.push_back(at[at.rank - (op.in(1).rank() > 1 ? 2 : 1)]);
  } else {
    return b.cast(b.in_broadcast(i, at), DType::i32);
  }
  return b.cast(b.in(i, c), DType::i32);
}

Scalar expr_matmul_integer(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::int64_t extents[] = {op.in(0).shape.back()};
  const Operands o = operand_coords(op.in(0).shape, op.in(1).shape, at, b.inner(extents)[0]);
  Scalar x = b.cast(b.in(0, o.a), DType::i32);
  Scalar y = b.cast(b.in(1, o.b), DType::i32);
  if (op.has(2)) x = b.binary(loops::Op::sub, x, zero_point(op, b, 2, at));
  if (op.has(3)) y = b.binary(loops::Op::sub, y, zero_point(op, b, 3, at));
  return b.reduce(loops::Reduction::sum, b.binary(loops::Op::mul, x, y));
}

// ---- Gemm: alpha · A' · B' + beta · C ----

constexpr DTypes kProducts = kFloats | kIndices | DType::u32 | DType::u64;

/// Rows for columns.
Tensor transposed(const Tensor& t) {
  const std::int64_t rows = t.shape()[0];
  const std::int64_t columns = t.shape()[1];
  const auto size = static_cast<std::size_t>(t.dtype().bits() / 8);
  Tensor result(t.dtype(), {columns, rows});
  const auto* from = static_cast<const std::byte*>(t.data());
  auto* to = static_cast<std::byte*>(result.mutable_data());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      std::copy_n(from + static_cast<std::size_t>(r * columns + c) * size, size,
                  to + static_cast<std::size_t>(c * rows + r) * size);
    }
  }
  return result;
}

/// Gemm(A, W, transB = 1) = Gemm(A, W') for constant W: kernels read the columns of a product side by side.
bool simplify_gemm(const OpView& op, Patch& patch) {
  const Tensor* w = op.value(1);
  if (op.i("transB") == 0 || !w || w->shape().rank() != 2 || !kProducts.contains(w->dtype())) return false;
  Attributes attributes = op.node().attributes;
  attributes.erase("transB");
  std::vector<ValueId> inputs(op.node().inputs);
  inputs[1] = patch.build().constant(transposed(*w));
  patch.replace(op.node().outputs[0], patch.build().op("Gemm", std::move(inputs), std::move(attributes)));
  return true;
}

constexpr Attribute kGemmAttributes[] = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", 0}, {"transB", 0}};

Facts infer_gemm(const OpView& op) {
  const Fact& a = op.in(0);
  const Fact& b = op.in(1);
  op.require(a.rank() == 2 && b.rank() == 2, "A and B must be matrices, got {} and {}", a.shape, b.shape);
  const int m = op.i("transA") != 0 ? 1 : 0;
  const int n = op.i("transB") != 0 ? 0 : 1;
  op.require(a.shape[1 - m] == b.shape[1 - n], "the inner extents differ: {}{} times {}{}", a.shape,
             m == 1 ? " transposed" : "", b.shape, n == 0 ? " transposed" : "");
  const Shape out{a.shape[m], b.shape[n]};
  if (op.has(2)) {
    op.require(op.in(2).rank() <= 2 && op.broadcast(op.in(2).shape, out) == out,
               "C of shape {} does not broadcast to {}", op.in(2).shape, out);
  }
  return {Fact(a.dtype, out)};
}

std::vector<ValueId> lower_gemm(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype;
  const DType compute = LoopBuilder::compute_type(dtype);
  ValueId x = b.cast(op.id(0), compute);
  ValueId w = b.cast(op.id(1), compute);
  if (op.i("transA") != 0) x = b.transpose(x, {1, 0});
  if (op.i("transB") != 0) w = b.transpose(w, {1, 0});
  ValueId y = b.matmul(x, w);
  if (op.f("alpha") != 1.0) y = b.mul(y, b.scalar(compute, op.f("alpha")));
  if (op.has(2) && op.f("beta") != 0.0) {
    ValueId c = b.cast(op.id(2), compute);
    if (op.f("beta") != 1.0) c = b.mul(c, b.scalar(compute, op.f("beta")));
    y = b.add(y, c);
  }
  return {b.cast(y, dtype)};
}

// ---- QLinearMatMul ----

Facts infer_qlinear_matmul(const OpView& op) {
  for (int i : {1, 4, 6})
    op.require(op.in(i).dtype.is_float(), "scales must be floating point, got {}", op.in(i).dtype);
  const Shape out = matmul_shape(op, op.in(0).shape, op.in(3).shape).out;
  const auto require_fits = [&](int i, const Shape& whole) {
    op.require(op.broadcast(whole, op.in(i).shape) == whole, "input {} of shape {} does not fit {}", i, op.in(i).shape,
               whole);
  };
  for (int i : {1, 4, 6, 7}) require_fits(i, out);
  if (!is_8bit(op.in(0).dtype) || !is_8bit(op.in(3).dtype))
    require_fits(2, op.in(0).shape), require_fits(5, op.in(3).shape);
  return {Fact(op.in(7).dtype, out)};
}

std::vector<ValueId> lower_qlinear_matmul(const OpView& op, Builder& b) {
  ValueId product;
  if (is_8bit(op.in(0).dtype) && is_8bit(op.in(3).dtype)) {
    product = b.cast(b.op("MatMulInteger", {op.id(0), op.id(3), op.id(2), op.id(5)}), DType::f32);
  } else {
    const ValueId x = b.sub(b.cast(op.id(0), DType::f32), b.cast(op.id(2), DType::f32));
    const ValueId w = b.sub(b.cast(op.id(3), DType::f32), b.cast(op.id(5), DType::f32));
    product = b.matmul(x, w);
  }
  return {requantize(b, product, op.id(1), op.id(4), op.id(6), op.id(7))};
}

}  // namespace

extern const OpDef op_mat_mul;
constinit const OpDef op_mat_mul = {.name = "MatMul",
                                    .inputs = 2,
                                    .forms = 13,
                                    .takes = kProducts,
                                    .infer = infer_matmul,
                                    .expr = expr_matmul,
                                    .contraction = true};

extern const OpDef op_mat_mul_integer;
constinit const OpDef op_mat_mul_integer = {.name = "MatMulInteger",
                                            .inputs = {2, 4},
                                            .forms = {10, 10},
                                            .takes = {{kBytes, inputs(0, 2)}, {kBytes, inputs(1, 3)}},
                                            .infer = infer_matmul_integer,
                                            .expr = expr_matmul_integer,
                                            .contraction = true};

extern const OpDef op_gemm;
constinit const OpDef op_gemm = {.name = "Gemm",
                                 .inputs = {2, 3},
                                 .attributes = kGemmAttributes,
                                 .forms = 13,
                                 .takes = kProducts,
                                 .infer = infer_gemm,
                                 .lower = lower_gemm,
                                 .simplify = simplify_gemm};

extern const OpDef op_qlinear_mat_mul;
constinit const OpDef op_qlinear_mat_mul = {.name = "QLinearMatMul",
                                            .inputs = 8,
                                            .forms = {10, 21},
                                            .takes = {{kFloat8 | kBytes, inputs(0, 2)},
                                                      {DTypes(DType::f32) | DType::f16 | DType::bf16, inputs(1, 4, 6)},
                                                      {kFloat8 | kBytes, inputs(3, 5)},
                                                      {kFloat8 | kBytes, inputs(7)}},
                                            .infer = infer_qlinear_matmul,
                                            .lower = lower_qlinear_matmul};

}  // namespace lathe::ops
