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

/// y[b·y_stride + r] += Σ_c matrix[r·columns + c] · x[b·x_stride + c] for `count` vectors b. The order of each sum
/// depends on `columns` alone.
void add_matvec(const float* matrix, std::int64_t rows, std::int64_t columns, const float* x, std::int64_t x_stride,
                std::int64_t count, float* y, std::int64_t y_stride);
void add_matvec(const double* matrix, std::int64_t rows, std::int64_t columns, const double* x, std::int64_t x_stride,
                std::int64_t count, double* y, std::int64_t y_stride);

/// y[c] = Σ_r x[r] · matrix[r·columns + c], exact in 32 bits.
void integer_vecmat(const std::uint8_t* x, const std::int8_t* matrix, std::int64_t rows, std::int64_t columns,
                    std::int32_t* y);

/// In place, within 2 ULP.
void sigmoid(float* x, std::int64_t count);
void tanh(float* x, std::int64_t count);

/// The least and the largest of the elements and 0.
void range_with_zero(const float* x, std::int64_t count, float* least, float* most);

}  // namespace lathe::ops
