// Loops of plain C++ kernels that are worth vector code: compiled once per x86-64 level, chosen when the library is
// loaded.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LATHE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LATHE_CLONES
#endif

namespace lathe::ops {

/// Matrices that vectors are multiplied with lie in blocks of columns, so that they are read from first to last: for
/// each block its rows, for each row its columns. The last block is as wide as what remains.
inline constexpr std::int64_t kDenseBlock = 64;
inline constexpr std::int64_t kIntegerBlock = 32;

/// y[b·y_stride + c] += Σ_r x[b·x_stride + r] · matrix[r][c] of `count` vectors b, for a matrix in dense blocks. Each
/// sum runs in the order of r.
void add_vecmat(const float* x, std::int64_t x_stride, std::int64_t count, const float* matrix, std::int64_t rows,
                std::int64_t columns, float* y, std::int64_t y_stride);
void add_vecmat(const double* x, std::int64_t x_stride, std::int64_t count, const double* matrix, std::int64_t rows,
                std::int64_t columns, double* y, std::int64_t y_stride);

/// A row of values quantized to u8, less 128, in groups of four (the last filled up with zeros), and their magnitudes.
struct QuantizedRow {
  std::int8_t* values;
  std::uint8_t* magnitudes;
};

/// values = round(x / scale) + zero, clamped to [0, 255], NaN being 0, less 128; returns their sum.
std::int32_t quantize_row(const float* x, std::int64_t count, float scale, float zero, QuantizedRow row);

/// y[c] = Σ_g Σ_k x[4g + k] · matrix[g][c][k] for a matrix of groups of four rows in integer blocks, exact in 32 bits.
/// `has_lowest` says that -128 occurs in it, which takes longer.
void integer_vecmat(QuantizedRow x, const std::int8_t* matrix, std::int64_t groups, std::int64_t columns,
                    bool has_lowest, std::int32_t* y);

/// y[c] += (products[c] - zero · sums[c] - zeros[c] · total) · (scale · scales[c])
void add_dequantized(const std::int32_t* products, std::int32_t zero, const std::int32_t* sums,
                     const std::int32_t* zeros, std::int32_t total, float scale, const float* scales,
                     std::int64_t columns, float* y);

// ---- 8-bit matrix products, exact ----

/// A packed matrix [k, n] lies in blocks of so many columns, the last filled up with zeros: for each block its groups
/// of four rows, for each group its columns, for each column the four.
inline constexpr std::int64_t kPackedColumns = 8;
inline constexpr std::int64_t kPackedRows = 16;  ///< as many rows at most are multiplied at a time

constexpr std::int64_t packed_bytes(std::int64_t k, std::int64_t n) {
  return (n + kPackedColumns - 1) / kPackedColumns * kPackedColumns * ((k + 3) / 4 * 4);
}

/// Packs a row-major matrix; `flip` is xored to every byte.
void pack_matrix(const std::uint8_t* matrix, std::uint8_t flip, std::int64_t k, std::int64_t n, std::int8_t* packed);

/// Rows of k bytes, signed or not, and the zero point that is taken from each.
struct IntegerRows {
  const std::uint8_t* data;
  bool is_signed;
  std::int32_t zero;
  std::int64_t rows, k;
};

/// y[r][c] = Σ_k (x[r][k] - zero) · (packed[k][c] - zeros[c]) modulo 2^32, for `count` rows from `row` and the columns
/// of blocks [first, last). Null `zeros` are 0; y is row-major with n columns.
void integer_matmul(const IntegerRows& x, std::int64_t row, std::int64_t count, const std::int8_t* packed,
                    const std::int32_t* zeros, std::int64_t n, std::int64_t first, std::int64_t last, std::int32_t* y);

/// In place, within 2 ULP.
void sigmoid(float* x, std::int64_t count);
void tanh(float* x, std::int64_t count);

/// The least and the largest of the elements and 0.
void range_with_zero(const float* x, std::int64_t count, float* least, float* most);

}  // namespace lathe::ops
