// Vector loops for plain C++ kernels.
#include "ops/vector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace lathe::ops {
namespace {

#define LATHE_INLINE inline __attribute__((always_inline))

constexpr std::int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

/// The dot products of `kRows` consecutive rows with x. Sixteen partial sums each, added up as a tree.
template <int kRows>
LATHE_INLINE void dot_rows(const float* matrix, std::int64_t columns, const float* x, float* y) {
  Lanes sums[kRows] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Lanes xs;
    std::memcpy(&xs, x + c, sizeof(xs));
    for (int r = 0; r < kRows; ++r) {
      Lanes m;
      std::memcpy(&m, matrix + r * columns + c, sizeof(m));
      sums[r] += m * xs;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float lanes[kLanes];
    std::memcpy(lanes, &sums[r], sizeof(lanes));
    for (std::int64_t i = c; i < columns; ++i) lanes[i - c] += matrix[r * columns + i] * x[i];
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    }
    y[r] += lanes[0];
  }
}

/// q with e^x = scale · (1 + q), for x clamped to what a float can hold.
struct Exponential {
  float q, scale;
};

LATHE_INLINE Exponential exponential(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 · 2^23: adding it rounds to an integer, kept in the low mantissa bits
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift) + 127U)
                                 << 23;
  return {r + r * r * p, std::bit_cast<float>(exponent)};
}

}  // namespace

LATHE_CLONES void add_matvec(const float* matrix, std::int64_t rows, std::int64_t columns, const float* x,
                             std::int64_t x_stride, std::int64_t count, float* y, std::int64_t y_stride) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (std::int64_t b = 0; b < count; ++b)
      dot_rows<4>(matrix + r * columns, columns, x + b * x_stride, y + b * y_stride + r);
  }
  for (; r < rows; ++r) {
    for (std::int64_t b = 0; b < count; ++b)
      dot_rows<1>(matrix + r * columns, columns, x + b * x_stride, y + b * y_stride + r);
  }
}

void add_matvec(const double* matrix, std::int64_t rows, std::int64_t columns, const double* x, std::int64_t x_stride,
                std::int64_t count, double* y, std::int64_t y_stride) {
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c) sum += matrix[r * columns + c] * x[b * x_stride + c];
      y[b * y_stride + r] += sum;
    }
  }
}

LATHE_CLONES void integer_vecmat(const std::uint8_t* x, const std::int8_t* matrix, std::int64_t rows,
                                 std::int64_t columns, std::int32_t* y) {
  constexpr std::int64_t kBlock = 64;  // sums that stay in registers
  std::int64_t c = 0;
  for (; c + kBlock <= columns; c += kBlock) {
    std::int32_t sums[kBlock] = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int16_t factor = x[r];
      const std::int8_t* row = matrix + r * columns + c;
      for (std::int64_t i = 0; i < kBlock; ++i) sums[i] += factor * row[i];
    }
    std::memcpy(y + c, sums, sizeof(sums));
  }
  for (; c < columns; ++c) {
    std::int32_t sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += x[r] * matrix[r * columns + c];
    y[c] = sum;
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
