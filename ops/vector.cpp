// Vector loops for plain C++ kernels.
#include "ops/vector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lathe::ops {
namespace {

#define LATHE_INLINE inline __attribute__((always_inline))

constexpr float kRounder = 12582912.0F;  // 1.5 · 2^23: adding it rounds to an integer, kept in the low mantissa bits

/// q with e^x = scale · (1 + q), for x clamped to what a float can hold.
struct Exponential {
  float q, scale;
};

LATHE_INLINE Exponential exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRounder) + 127U)
                                 << 23;
  return {r + r * r * p, std::bit_cast<float>(exponent)};
}

}  // namespace

namespace {

/// Columns [first, columns) of blocks that are not worth registers of their own.
template <class T>
LATHE_INLINE void add_last_columns(const T* x, const T* block, std::int64_t rows, std::int64_t width, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) y[i] += block[r * width + i] * x[r];
  }
}

}  // namespace

LATHE_CLONES void add_vecmat(const float* x, std::int64_t x_stride, std::int64_t count, const float* matrix,
                             std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_stride) {
  using Lanes = float __attribute__((vector_size(32)));
  constexpr std::int64_t kVectors = kDenseBlock / 8;
  std::int64_t c = 0;
  for (; c + kDenseBlock <= columns; c += kDenseBlock) {
    for (std::int64_t b = 0; b < count; ++b) {
      float* out = y + b * y_stride + c;
      const float* factors = x + b * x_stride;
      const float* row = matrix + c * rows;
      Lanes sums[kVectors];  // all in registers
      std::memcpy(sums, out, sizeof(sums));
      for (std::int64_t r = 0; r < rows; ++r, row += kDenseBlock) {
        for (std::int64_t v = 0; v < kVectors; ++v) {
          Lanes m;
          std::memcpy(&m, row + v * 8, sizeof(m));
          sums[v] += m * factors[r];
        }
      }
      std::memcpy(out, sums, sizeof(sums));
    }
  }
  for (std::int64_t b = 0; b < count && c < columns; ++b) {
    add_last_columns(x + b * x_stride, matrix + c * rows, rows, columns - c, y + b * y_stride + c);
  }
}

void add_vecmat(const double* x, std::int64_t x_stride, std::int64_t count, const double* matrix, std::int64_t rows,
                std::int64_t columns, double* y, std::int64_t y_stride) {
  for (std::int64_t c = 0; c < columns; c += kDenseBlock) {
    for (std::int64_t b = 0; b < count; ++b) {
      add_last_columns(x + b * x_stride, matrix + c * rows, rows, std::min(kDenseBlock, columns - c),
                       y + b * y_stride + c);
    }
  }
}

namespace {

void integer_block(const std::int8_t* x, const std::int8_t* block, std::int64_t groups, std::int64_t width,
                   std::int32_t* y) {
  std::fill_n(y, width, 0);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t c = 0; c < width; ++c) {
      for (int k = 0; k < 4; ++k) y[c] += x[4 * g + k] * block[(g * width + c) * 4 + k];
    }
  }
}

#if defined(__x86_64__)
template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// A whole block without -128: |x| times ±w in 16 bits never exceeds 2 · 128 · 127.
__attribute__((target("avx2"))) void integer_block_avx2(QuantizedRow x, const std::int8_t* block, std::int64_t groups,
                                                        std::int32_t* y) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[4] = {};
  for (std::int64_t g = 0; g < groups; ++g, block += kIntegerBlock * 4) {
    const __m256i signs = _mm256_set1_epi32(read<std::int32_t>(x.values + 4 * g));
    const __m256i magnitudes = _mm256_set1_epi32(read<std::int32_t>(x.magnitudes + 4 * g));
    for (int v = 0; v < 4; ++v) {
      const __m256i weights =
          _mm256_sign_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + v * 32)), signs);
      sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, weights), ones));
    }
  }
  std::memcpy(y, sums, sizeof(sums));
}

/// A whole block of any values, widened to 16 bits: two partial sums per column.
__attribute__((target("avx2"))) void integer_block_wide_avx2(const std::int8_t* x, const std::int8_t* block,
                                                             std::int64_t groups, std::int32_t* y) {
  __m256i sums[8] = {};
  for (std::int64_t g = 0; g < groups; ++g, block += kIntegerBlock * 4) {
    const __m256i factors = _mm256_cvtepi8_epi16(_mm_set1_epi32(read<std::int32_t>(x + 4 * g)));
    for (int v = 0; v < 8; ++v) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + v * 16));
      sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), factors));
    }
  }
  std::int32_t partial[kIntegerBlock * 2];
  std::memcpy(partial, sums, sizeof(sums));
  for (std::int64_t c = 0; c < kIntegerBlock; ++c) y[c] = partial[2 * c] + partial[2 * c + 1];
}
#endif

}  // namespace

void integer_vecmat(QuantizedRow x, const std::int8_t* matrix, std::int64_t groups, std::int64_t columns,
                    bool has_lowest, std::int32_t* y) {
  std::int64_t c = 0;
#if defined(__x86_64__)
  static const bool kAvx2 = __builtin_cpu_supports("avx2") != 0;
  for (; kAvx2 && c + kIntegerBlock <= columns; c += kIntegerBlock) {
    const std::int8_t* block = matrix + c * groups * 4;
    if (has_lowest) {
      integer_block_wide_avx2(x.values, block, groups, y + c);
    } else {
      integer_block_avx2(x, block, groups, y + c);
    }
  }
#endif
  for (; c < columns; c += kIntegerBlock) {
    integer_block(x.values, matrix + c * groups * 4, groups, std::min(kIntegerBlock, columns - c), y + c);
  }
}

void pack_matrix(const std::uint8_t* matrix, std::uint8_t flip, std::int64_t k, std::int64_t n, std::int8_t* packed) {
  std::fill_n(packed, packed_bytes(k, n), std::int8_t{0});
  const std::int64_t groups = (k + 3) / 4;
  for (std::int64_t r = 0; r < k; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const std::int64_t place =
          ((c / kPackedColumns * groups + r / 4) * kPackedColumns + c % kPackedColumns) * 4 + r % 4;
      packed[place] = static_cast<std::int8_t>(matrix[r * n + c] ^ flip);
    }
  }
}

namespace {

constexpr std::int64_t kPackedDepth = 1024;  // elements of a row in 16 bits at a time
constexpr int kTileRows = 4;

LATHE_INLINE std::int32_t wrapped_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

/// x[i] - zero in 16 bits, filled up with zeros to a whole group; returns their sum.
LATHE_CLONES std::int32_t widen_row(const std::uint8_t* x, bool is_signed, std::int32_t zero, std::int64_t count,
                                    std::int16_t* wide) {
  std::int32_t total = 0;
  const std::int32_t flip = is_signed ? 0x80 : 0;
  const std::int32_t shift = zero + flip;  // a signed byte is its bits with the highest one flipped, less 128
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = (x[i] ^ flip) - shift;
    wide[i] = static_cast<std::int16_t>(value);
    total += value;
  }
  for (std::int64_t i = count; i % 4 != 0; ++i) wide[i] = 0;
  return total;
}

/// sums[r][c] = Σ over the groups, for one block of columns.
template <int kRows>
void integer_tile(const std::int16_t* x, const std::int8_t* block, std::int64_t groups,
                  std::int32_t (*sums)[kPackedColumns]) {
  for (int r = 0; r < kRows; ++r) std::fill_n(sums[r], kPackedColumns, 0);
  for (std::int64_t g = 0; g < groups; ++g, block += kPackedColumns * 4) {
    for (int r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < kPackedColumns; ++c) {
        for (int i = 0; i < 4; ++i)
          sums[r][c] = wrapped_sum(sums[r][c], x[r * kPackedDepth + 4 * g + i] * block[4 * c + i]);
      }
    }
  }
}

#if defined(__x86_64__)
/// Two partial sums per column; a product of 16 bits by 8, and a pair of them, fits 32.
template <int kRows>
__attribute__((target("avx2"))) void integer_tile_avx2(const std::int16_t* x, const std::int8_t* block,
                                                       std::int64_t groups, std::int32_t (*sums)[kPackedColumns]) {
  static_assert(kRows <= kTileRows);
  // Single variables, because the compiler keeps an array of them in memory.
  __m256i a0{}, a1{}, a2{}, a3{}, b0{}, b1{}, b2{}, b3{};
  const auto row = [&](int r, __m256i w0, __m256i w1, __m256i& a, __m256i& b) __attribute__((target("avx2"))) {
    const __m256i factors = _mm256_set1_epi64x(read<std::int64_t>(x + r * kPackedDepth));
    a = _mm256_add_epi32(a, _mm256_madd_epi16(w0, factors));
    b = _mm256_add_epi32(b, _mm256_madd_epi16(w1, factors));
  };
  for (std::int64_t g = 0; g < groups; ++g, block += kPackedColumns * 4, x += 4) {
    const __m256i w0 = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
    const __m256i w1 = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16)));
    row(0, w0, w1, a0, b0);
    if constexpr (kRows > 1) row(1, w0, w1, a1, b1);
    if constexpr (kRows > 2) row(2, w0, w1, a2, b2);
    if constexpr (kRows > 3) row(3, w0, w1, a3, b3);
  }
  const auto finish = [&](int r, __m256i a, __m256i b) __attribute__((target("avx2"))) {
    const __m256i pairs = _mm256_hadd_epi32(a, b);  // of columns 0 1 4 5 2 3 6 7
    const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0b11011000);
    std::memcpy(sums[r], &ordered, sizeof(ordered));
  };
  finish(0, a0, b0);
  if constexpr (kRows > 1) finish(1, a1, b1);
  if constexpr (kRows > 2) finish(2, a2, b2);
  if constexpr (kRows > 3) finish(3, a3, b3);
}
#endif

using Tile = void (*)(const std::int16_t*, const std::int8_t*, std::int64_t, std::int32_t (*)[kPackedColumns]);

/// The tile of 1 to kTileRows rows.
Tile tile_of(std::int64_t rows) {
#if defined(__x86_64__)
  static const bool kAvx2 = __builtin_cpu_supports("avx2") != 0;
  constexpr Tile kFast[] = {integer_tile_avx2<1>, integer_tile_avx2<2>, integer_tile_avx2<3>, integer_tile_avx2<4>};
  if (kAvx2) return kFast[rows - 1];
#endif
  constexpr Tile kPlain[] = {integer_tile<1>, integer_tile<2>, integer_tile<3>, integer_tile<4>};
  return kPlain[rows - 1];
}

}  // namespace

void integer_matmul(const IntegerRows& x, std::int64_t row, std::int64_t count, const std::int8_t* packed,
                    const std::int32_t* zeros, std::int64_t n, std::int64_t first, std::int64_t last, std::int32_t* y) {
  alignas(32) std::int16_t wide[kPackedRows * kPackedDepth];
  std::int32_t totals[kPackedRows] = {};
  const std::int64_t block_bytes = (x.k + 3) / 4 * 4 * kPackedColumns;
  std::int64_t depth = 0;
  do {
    const std::int64_t part = std::min(kPackedDepth, x.k - depth);
    for (std::int64_t r = 0; r < count; ++r) {
      totals[r] += widen_row(x.data + (row + r) * x.k + depth, x.is_signed, x.zero, part, wide + r * kPackedDepth);
    }
    for (std::int64_t b = first; b < last; ++b) {
      const std::int8_t* block = packed + b * block_bytes + depth * kPackedColumns;
      const std::int64_t column = b * kPackedColumns;
      const std::int64_t width = std::min(kPackedColumns, n - column);
      for (std::int64_t r = 0; r < count; r += kTileRows) {
        const std::int64_t rows = std::min<std::int64_t>(kTileRows, count - r);
        std::int32_t sums[kTileRows][kPackedColumns];
        tile_of(rows)(wide + r * kPackedDepth, block, (part + 3) / 4, sums);
        for (std::int64_t i = 0; i < rows; ++i) {
          std::int32_t* out = y + (row + r + i) * n + column;
          if (depth == 0) {
            std::copy_n(sums[i], width, out);
          } else {
            for (std::int64_t c = 0; c < width; ++c) out[c] = wrapped_sum(out[c], sums[i][c]);
          }
        }
      }
    }
    depth += part;
  } while (depth < x.k);
  if (zeros == nullptr) return;
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = first * kPackedColumns; c < std::min(n, last * kPackedColumns); ++c)
      y[(row + r) * n + c] =
          wrapped_sum(y[(row + r) * n + c], static_cast<std::int32_t>(-std::int64_t{zeros[c]} * totals[r]));
  }
}

LATHE_CLONES std::int32_t quantize_row(const float* x, std::int64_t count, float scale, float zero, QuantizedRow row) {
  std::int32_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // |x / scale| is at most 255 where x is finite: scale comes from the range of x.
    float v = (x[i] / scale + kRounder) - kRounder + zero;
    v = v > 0.0F ? v : 0.0F;  // of NaN too
    v = v > 255.0F ? 255.0F : v;
    const auto shifted = static_cast<std::int32_t>(v) - 128;
    row.values[i] = static_cast<std::int8_t>(shifted);
    row.magnitudes[i] = static_cast<std::uint8_t>(shifted < 0 ? -shifted : shifted);
    total += shifted;
  }
  return total;
}

LATHE_CLONES void add_dequantized(const std::int32_t* products, std::int32_t zero, const std::int32_t* sums,
                                  const std::int32_t* zeros, std::int32_t total, float scale, const float* scales,
                                  std::int64_t columns, float* y) {
  for (std::int64_t c = 0; c < columns; ++c) {
    y[c] += static_cast<float>(products[c] - zero * sums[c] - zeros[c] * total) * (scale * scales[c]);
  }
}

LATHE_CLONES void sigmoid(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Exponential e = exponential(-x[i]);
    x[i] = 1.0F / (1.0F + (e.scale + e.scale * e.q));
  }
}

LATHE_CLONES void tanh(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(x[i]);
    // tanh |x| = d / (d + 2) with d = e^(2|x|) − 1, in a form that cancels nothing; beyond 10 it is 1.
    const Exponential e = exponential(2 * (magnitude > 10.0F ? 10.0F : magnitude));
    const float d = e.scale * e.q + (e.scale - 1.0F);
    x[i] = std::copysign(d / (d + 2.0F), x[i]);
  }
}

LATHE_CLONES void range_with_zero(const float* x, std::int64_t count, float* least, float* most) {
  constexpr std::int64_t kLanes = 16;
  float low[kLanes] = {};
  float high[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
    }
  }
  for (; i < count; ++i) {
    low[0] = std::min(low[0], x[i]);
    high[0] = std::max(high[0], x[i]);
  }
  *least = *std::min_element(low, low + kLanes);
  *most = *std::max_element(high, high + kLanes);
}

}  // namespace lathe::ops
