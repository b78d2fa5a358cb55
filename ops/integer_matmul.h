// 8-bit matrix products, exact in 32 bits, with a packed right-hand matrix.
#pragma once

#include <cstdint>

namespace lathe::ops {

/// What the processor's vectors can do for 8-bit products; each level gives the same bits.
enum class IntegerLevel : std::uint8_t {
  plain,
  avx2,        ///< 16-bit products
  avx512_vnni  ///< sums of four u8 · i8 products
};

/// The highest level of this processor.
IntegerLevel integer_level();

/// A packed matrix [k, n] lies in blocks of so many columns, the last filled up with zeros: for each block its groups
/// of four rows, the last filled up with zeros, for each group its columns, for each column the four.
inline constexpr std::int64_t kPackedColumns = 16;
inline constexpr std::int64_t kPackedRows = 16;  ///< as many rows at most are multiplied at a time

constexpr std::int64_t packed_bytes(std::int64_t k, std::int64_t n) {
  return (n + kPackedColumns - 1) / kPackedColumns * kPackedColumns * ((k + 3) / 4 * 4);
}

/// Packs a row-major matrix, `flip` being xored to every byte; `sums` [n] receives the sum of each column as packed.
void pack_matrix(const std::uint8_t* matrix, std::uint8_t flip, std::int64_t k, std::int64_t n, std::int8_t* packed,
                 std::int32_t* sums);

struct PackedMatrix {
  const std::int8_t* data;
  const std::int32_t* sums;   ///< of each column
  const std::int32_t* zeros;  ///< the zero point of each column, or null where all are 0
  std::int64_t n;
};

/// Rows of k bytes, signed or not, and the zero point that is taken from each.
struct IntegerRows {
  const std::uint8_t* data;
  bool is_signed;
  std::int32_t zero;
  std::int64_t rows, k;
};

/// y[r][c] = Σ_k (x[r][k] - zero) · (matrix[k][c] - zeros[c]) modulo 2^32, for `count` rows from `row`, at most
/// kPackedRows, and the columns of blocks [first, last); y is row-major with n columns.
void integer_matmul(const IntegerRows& x, std::int64_t row, std::int64_t count, const PackedMatrix& matrix,
                    std::int64_t first, std::int64_t last, std::int32_t* y, IntegerLevel level = integer_level());

}  // namespace lathe::ops
