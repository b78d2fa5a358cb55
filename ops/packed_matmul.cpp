// 8-bit matrix products with weights packed beforehand: what MatMulInteger with constant weights becomes.
#include <algorithm>

#include "ops/integer_matmul.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

bool is_8bit(DType t) { return t == DType::i8 || t == DType::u8; }

// ---- PackMatrix: B [k, n] of 8 bits and its zero points (none, one, or one per column) ----

/// B as i8 for `integer_matmul`, the sum and the zero point of each column; u8 becomes i8 by taking 128 from both.
Facts infer_pack_matrix(const OpView& op) {
  op.require(is_8bit(op.in(0).dtype), "the matrix must be i8 or u8, got {}", op.in(0).dtype);
  const Shape& b = op.in(0).shape;
  op.require(b.rank() == 2, "the matrix must have 2 dims, got shape {}", b);
  if (op.has(1)) {
    op.require_same_dtype(0, 1);
    op.require(op.in(1).shape.elements() == 1 || op.in(1).shape == Shape{b[1]},
               "there must be one zero point, or {}, got shape {}", b[1], op.in(1).shape);
  }
  return {Fact(DType::i8, {packed_bytes(b[0], b[1])}), Fact(DType::i32, {b[1]}), Fact(DType::i32, {b[1]})};
}

void kernel_pack_matrix(KernelContext& ctx) {
  const Tensor& b = ctx.in(0);
  const std::uint8_t flip = b.dtype() == DType::u8 ? 0x80 : 0;
  pack_matrix(static_cast<const std::uint8_t*>(b.data()), flip, b.shape()[0], b.shape()[1],
              ctx.out<std::int8_t>(0).data(), ctx.out<std::int32_t>(1).data());
  auto zeros = ctx.out<std::int32_t>(2);
  for (std::size_t c = 0; c < zeros.size(); ++c) {
    const std::int64_t zero =
        ctx.has(1) ? ctx.in(1).integer(ctx.in(1).size() == 1 ? 0 : static_cast<std::int64_t>(c)) : 0;
    zeros[c] = static_cast<std::int32_t>(zero - flip);
  }
}

// ---- PackedMatMul: A [..., k] of 8 bits, the packed matrix, the columns' sums, A's zero point, the columns' zero
// points ----

enum Input { kA, kPacked, kSums, kZeroA, kZeros };

constexpr Attribute kAttributes[] = {{"columns", AttrKind::integer, Attribute::kRequired}};

Facts infer_packed_matmul(const OpView& op) {
  Shape y = op.in(kA).shape;
  op.require(y.rank() >= 1, "a needs at least one dim");
  op.require(op.in(kPacked).shape == Shape{packed_bytes(y.back(), op.i("columns"))},
             "the packed matrix has {} elements, which {} rows of {} columns do not make", op.in(kPacked).shape,
             y.back(), op.i("columns"));
  for (const int i : {kSums, kZeros}) {
    if (!op.has(i)) continue;
    op.require(op.in(i).dtype == DType::i32 && op.in(i).shape == Shape{op.i("columns")},
               "the columns' sums and zero points must be {} of i32, got {} of shape {}", op.i("columns"),
               op.in(i).dtype, op.in(i).shape);
  }
  y[y.rank() - 1] = op.i("columns");
  return {Fact(DType::i32, y)};
}

void kernel_packed_matmul(KernelContext& ctx) {
  const Tensor& a = ctx.in(kA);
  const std::int64_t k = a.shape().back(), columns = ctx.op().i("columns");
  const std::int64_t rows = extent_of(a.shape(), 0, a.shape().rank() - 1);
  IntegerRows x{static_cast<const std::uint8_t*>(a.data()), a.dtype() == DType::i8, 0, rows, k};
  if (ctx.has(kZeroA)) x.zero = static_cast<std::int32_t>(ctx.in(kZeroA).integer(0));
  const PackedMatrix matrix{ctx.in<std::int8_t>(kPacked).data(), ctx.in<std::int32_t>(kSums).data(),
                            ctx.has(kZeros) ? ctx.in<std::int32_t>(kZeros).data() : nullptr, columns};
  std::int32_t* y = ctx.out<std::int32_t>(0).data();
  // Pieces of the output are blocks of columns of some rows.
  const std::int64_t blocks = (columns + kPackedColumns - 1) / kPackedColumns;
  const std::int64_t pieces = blocks * ((rows + kPackedRows - 1) / kPackedRows);
  constexpr std::int64_t kWorthAThread = 100'000;  // multiply-adds
  const std::int64_t each = kPackedColumns * std::min(rows, kPackedRows) * k + 1;
  ctx.parallel(pieces, std::max<std::int64_t>(1, kWorthAThread / each), [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / blocks * kPackedRows, first = begin % blocks;
      const std::int64_t count = std::min(end - begin, blocks - first);
      integer_matmul(x, row, std::min(kPackedRows, rows - row), matrix, first, first + count, y);
      begin += count;
    }
  });
}

}  // namespace

extern const OpDef op_lathe_pack_matrix;
constinit const OpDef op_lathe_pack_matrix = {.name = "PackMatrix",
                                              .domain = "lathe",
                                              .inputs = {1, 2},
                                              .outputs = 3,
                                              .infer = infer_pack_matrix,
                                              .kernel = kernel_pack_matrix};

extern const OpDef op_lathe_packed_matmul;
constinit const OpDef op_lathe_packed_matmul = {.name = "PackedMatMul",
                                                .domain = "lathe",
                                                .inputs = {3, 5},
                                                .attributes = kAttributes,
                                                .infer = infer_packed_matmul,
                                                .kernel = kernel_packed_matmul,
                                                .real_time = true};

}  // namespace lathe::ops
