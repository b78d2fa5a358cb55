// Vector loops against plain ones in wider arithmetic.
#include "ops/vector.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

namespace lathe::ops {
namespace {

/// The distance of two floats in units in the last place of the expected one.
double ulps(float actual, double expected) {
  const auto nearest = static_cast<float>(expected);
  const float next = std::nextafter(std::fabs(nearest), std::numeric_limits<float>::infinity());
  return std::fabs(static_cast<double>(actual) - expected) / (static_cast<double>(next) - std::fabs(nearest));
}

std::vector<float> sampled_floats() {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x7f800000U; bits += 9973) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-std::bit_cast<float>(bits));
  }
  return x;
}

TEST(VectorMath, SigmoidAndTanhStayWithinTwoUlps) {
  const std::vector<float> x = sampled_floats();
  std::vector<float> s = x, t = x;
  sigmoid(s.data(), static_cast<std::int64_t>(s.size()));
  tanh(t.data(), static_cast<std::int64_t>(t.size()));
  double worst_sigmoid = 0, worst_tanh = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    // Below the smallest normal number only the absolute error counts.
    if (wide > -87) worst_sigmoid = std::max(worst_sigmoid, ulps(s[i], 1 / (1 + std::exp(-wide))));
    worst_tanh = std::max(worst_tanh, ulps(t[i], std::tanh(wide)));
    EXPECT_LE(std::fabs(s[i] - 1 / (1 + std::exp(-wide))), 1e-6) << x[i];
  }
  EXPECT_LE(worst_sigmoid, 2.5);
  EXPECT_LE(worst_tanh, 2.5);
}

TEST(VectorMath, KeepsNanAndSigns) {
  std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(), -0.0F, std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};
  std::vector<float> s = x;
  tanh(x.data(), 4);
  sigmoid(s.data(), 4);
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_TRUE(std::signbit(x[1]));
  EXPECT_EQ(x[2], 1.0F);
  EXPECT_EQ(x[3], -1.0F);
  EXPECT_TRUE(std::isnan(s[0]));
  EXPECT_EQ(s[1], 0.5F);
  EXPECT_EQ(s[2], 1.0F);
  EXPECT_LE(s[3], 1e-37F);
}

/// Calls fn(block begin, block width) for the column blocks of a matrix.
template <class Fn>
void for_blocks(std::int64_t columns, std::int64_t block, const Fn& fn) {
  for (std::int64_t c = 0; c < columns; c += block) fn(c, std::min(block, columns - c));
}

TEST(VectorMath, DenseProductsEqualPlainOnes) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> small(-8, 8);
  for (std::int64_t columns : {1, 63, 64, 65, 200}) {
    constexpr std::int64_t kRows = 19, kCount = 3;
    std::vector<float> matrix(static_cast<std::size_t>(kRows * columns)), x(kRows * kCount);
    for (float& v : matrix) v = static_cast<float>(small(random));
    for (float& v : x) v = static_cast<float>(small(random));
    std::vector<float> y(static_cast<std::size_t>(columns * kCount), 1.0F);
    add_vecmat(x.data(), kRows, kCount, matrix.data(), kRows, columns, y.data(), columns);
    for_blocks(columns, kDenseBlock, [&](std::int64_t first, std::int64_t width) {
      for (std::int64_t b = 0; b < kCount; ++b) {
        for (std::int64_t c = 0; c < width; ++c) {
          float sum = 1;
          for (std::int64_t r = 0; r < kRows; ++r) {
            sum += x[static_cast<std::size_t>(b * kRows + r)] *
                   matrix[static_cast<std::size_t>(first * kRows + r * width + c)];
          }
          EXPECT_EQ(y[static_cast<std::size_t>(b * columns + first + c)], sum);
        }
      }
    });
  }
}

/// Every level that this processor has.
std::vector<IntegerLevel> integer_levels() {
  std::vector<IntegerLevel> levels;
  for (const IntegerLevel level : {IntegerLevel::plain, IntegerLevel::avx2, IntegerLevel::avx512_vnni}) {
    if (level <= integer_level()) levels.push_back(level);
  }
  return levels;
}

TEST(VectorMath, IntegerProductsAreExactOverTheWholeRange) {
  std::mt19937 random(2);
  for (int least : {-128, -127}) {
    std::uniform_int_distribution<int> any(least, 127), extreme(0, 3);
    for (std::int64_t columns : {5, 32, 33, 96}) {
      constexpr std::int64_t kGroups = 9;
      std::vector<std::int8_t> x(kGroups * 4), matrix(static_cast<std::size_t>(kGroups * 4 * columns));
      std::vector<std::uint8_t> magnitudes;
      const auto draw = [&](int low) { return static_cast<std::int8_t>(extreme(random) == 0 ? low : any(random)); };
      for (std::int8_t& v : x)
        magnitudes.push_back(static_cast<std::uint8_t>(std::abs(static_cast<int>(v = draw(-128)))));
      for (std::int8_t& v : matrix) v = draw(least);
      std::vector<std::int32_t> expected(static_cast<std::size_t>(columns)), sums(expected), y(expected);
      for_blocks(columns, kIntegerBlock, [&](std::int64_t first, std::int64_t width) {
        for (std::int64_t c = 0; c < width; ++c) {
          for (std::int64_t i = 0; i < kGroups * 4; ++i) {
            const auto at = static_cast<std::size_t>((first * kGroups + i / 4 * width + c) * 4 + i % 4);
            expected[static_cast<std::size_t>(first + c)] += x[static_cast<std::size_t>(i)] * matrix[at];
            sums[static_cast<std::size_t>(first + c)] += matrix[at];
          }
        }
      });
      for (const IntegerLevel level : integer_levels()) {
        integer_vecmat({x.data(), magnitudes.data()}, matrix.data(), kGroups, columns, sums.data(), least == -128,
                       y.data(), level);
        EXPECT_EQ(y, expected) << "level " << static_cast<int>(level) << ", " << columns << " columns";
      }
    }
  }
}

TEST(VectorMath, PackedProductsAreExactAtEveryLevel) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> byte(0, 255), extreme(0, 3);
  const auto fill = [&](std::vector<std::uint8_t>& v) {
    for (std::uint8_t& b : v)
      b = static_cast<std::uint8_t>(extreme(random) == 0 ? 0x7f + extreme(random) : byte(random));
  };
  for (const std::int64_t k : {0, 1, 3, 4, 7, 16, 33, 2047, 4100}) {
    for (const std::int64_t n : {1, 15, 16, 17, 40}) {
      std::vector<std::uint8_t> matrix(static_cast<std::size_t>(k * n)), x(static_cast<std::size_t>(kPackedRows * k));
      fill(matrix);
      fill(x);
      std::vector<std::int8_t> packed(static_cast<std::size_t>(packed_bytes(k, n)));
      std::vector<std::int32_t> sums(static_cast<std::size_t>(n)), zeros(sums);
      pack_matrix(matrix.data(), 0, k, n, packed.data(), sums.data());
      for (std::int32_t& zero : zeros) zero = byte(random) - 128;
      for (std::int64_t rows = 1; rows <= kPackedRows; ++rows) {
        const bool is_signed = rows % 2 == 0, has_zeros = rows % 3 != 0;
        const IntegerRows given{x.data(), is_signed, is_signed ? -128 : 255, rows, k};
        std::vector<std::int32_t> expected(static_cast<std::size_t>(rows * n)), y(expected);
        for (std::int64_t i = 0; i < rows * n; ++i) {
          for (std::int64_t j = 0; j < k; ++j) {
            const std::uint8_t b = x[static_cast<std::size_t>(i / n * k + j)];
            const int element = (is_signed ? static_cast<std::int8_t>(b) : b) - given.zero;
            const auto weight = static_cast<std::int8_t>(matrix[static_cast<std::size_t>(j * n + i % n)]);
            expected[static_cast<std::size_t>(i)] +=
                element * (weight - (has_zeros ? zeros[static_cast<std::size_t>(i % n)] : 0));
          }
        }
        for (const IntegerLevel level : integer_levels()) {
          integer_matmul(given, 0, rows, {packed.data(), sums.data(), has_zeros ? zeros.data() : nullptr, n}, 0,
                         (n + kPackedColumns - 1) / kPackedColumns, y.data(), level);
          ASSERT_EQ(y, expected) << "level " << static_cast<int>(level) << ", " << rows << "x" << k << "x" << n;
        }
      }
    }
  }
}

TEST(VectorMath, QuantizesAsDynamicQuantizeLinear) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float x[] = {-1.0F, 0.0F, 0.5F, 2.0F, 1.999F, std::numeric_limits<float>::quiet_NaN(), kInf, -kInf};
  const int expected[] = {0, 85, 127, 255, 255, 0, 255, 0};
  std::int8_t values[std::size(x)];
  std::uint8_t magnitudes[std::size(x)];
  // The range [-1, 2]: scale 3/255, zero point 85.
  const std::int32_t total = quantize_row(x, std::size(x), 3.0F / 255, 85, {values, magnitudes});
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < std::size(x); ++i) {
    EXPECT_EQ(values[i], expected[i] - 128);
    EXPECT_EQ(magnitudes[i], std::abs(expected[i] - 128));
    sum += values[i];
  }
  EXPECT_EQ(total, sum);
}

}  // namespace
}  // namespace lathe::ops
