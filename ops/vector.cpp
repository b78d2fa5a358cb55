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

/// A whole block of any values: the elements of x are made u8 by adding 128, and Σ x · w is Σ (x + 128) · w - 128 · Σ
/// w.
__attribute__((target("avx512f,avx512vnni"))) void integer_block_vnni(const std::int8_t* x, const std::int8_t* block,
                                                                      std::int64_t groups, const std::int32_t* sums,
                                                                      std::int32_t* y) {
  constexpr std::int64_t kApart = 4;  // groups that are summed apart, so that no sum waits for the one before it
  __m512i s[kApart][2] = {};
  const auto add = [&](std::int64_t g, __m512i * sum) __attribute__((target("avx512f,avx512vnni"), always_inline)) {
    const __m512i factors = _mm512_set1_epi32(read<std::int32_t>(x + 4 * g) ^ static_cast<std::int32_t>(0x80808080U));
    sum[0] = _mm512_dpbusd_epi32(sum[0], factors, _mm512_loadu_si512(block + g * kIntegerBlock * 4));
    sum[1] = _mm512_dpbusd_epi32(sum[1], factors, _mm512_loadu_si512(block + g * kIntegerBlock * 4 + 64));
  };
  std::int64_t g = 0;
  for (; g + kApart <= groups; g += kApart) {
#pragma GCC unroll 4
    for (std::int64_t a = 0; a < kApart; ++a) add(g + a, s[a]);
  }
  for (; g < groups; ++g) add(g, s[0]);
  for (int v = 0; v < 2; ++v) {
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(s[0][v], s[1][v]), _mm512_add_epi32(s[2][v], s[3][v]));
    const __m512i excess = _mm512_mullo_epi32(_mm512_loadu_si512(sums + v * 16), _mm512_set1_epi32(128));
    _mm512_storeu_si512(y + v * 16, _mm512_sub_epi32(sum, excess));
  }
}
#endif

}  // namespace

void integer_vecmat(QuantizedRow x, const std::int8_t* matrix, std::int64_t groups, std::int64_t columns,
                    const std::int32_t* sums, bool has_lowest, std::int32_t* y, IntegerLevel level) {
  std::int64_t c = 0;
#if defined(__x86_64__)
  for (; level != IntegerLevel::plain && c + kIntegerBlock <= columns; c += kIntegerBlock) {
    const std::int8_t* block = matrix + c * groups * 4;
    if (level == IntegerLevel::avx512_vnni) {
      integer_block_vnni(x.values, block, groups, sums + c, y + c);
    } else if (has_lowest) {
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
