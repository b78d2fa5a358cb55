// Loops of plain C++ kernels that are worth vector code: compiled once per x86-64 level, chosen when the library is
// loaded.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/integer_matmul.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LATHE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LATHE_CLONES
#endif

namespace lathe::ops {

/// A value that lies in memory without alignment.
template <class T>
inline __attribute__((always_inline)) T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

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
/// `sums` are those of its columns; `has_lowest` says that -128 occurs in it, which takes longer on some processors.
void integer_vecmat(QuantizedRow x, const std::int8_t* matrix, std::int64_t groups, std::int64_t columns,
                    const std::int32_t* sums, bool has_lowest, std::int32_t* y, IntegerLevel level = integer_level());

/// y[c] += (products[c] - zero · sums[c] - zeros[c] · total) · (scale · scales[c])
void add_dequantized(const std::int32_t* products, std::int32_t zero, const std::int32_t* sums,
                     const std::int32_t* zeros, std::int32_t total, float scale, const float* scales,
                     std::int64_t columns, float* y);

/// In place, within 2 ULP.
void sigmoid(float* x, std::int64_t count);
void tanh(float* x, std::int64_t count);

/// The least and the largest of the elements and 0.
void range_with_zero(const float* x, std::int64_t count, float* least, float* most);

}  // namespace lathe::ops
