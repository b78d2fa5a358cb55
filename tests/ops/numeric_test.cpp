// Conversions between dtypes against the definitions of the formats, over every code.
#include "ops/ir/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lathe::numeric {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Format {
  const char* name;
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  std::uint32_t max_finite;
};
constexpr Format kFormats[] = {
    {"f16", DType::f16, 5, 10, 15, 0x7bff},       {"bf16", DType::bf16, 8, 7, 127, 0x7f7f},
    {"f8e4m3fn", DType::f8e4m3fn, 4, 3, 7, 0x7e}, {"f8e4m3fnuz", DType::f8e4m3fnuz, 4, 3, 8, 0x7f},
    {"f8e5m2", DType::f8e5m2, 5, 2, 15, 0x7b},    {"f8e5m2fnuz", DType::f8e5m2fnuz, 5, 2, 16, 0x7f},
    {"f4e2m1", DType::f4e2m1, 2, 1, 1, 0x7}};

class MiniFloats : public testing::TestWithParam<Format> {
 protected:
  /// (-1)^sign * 2^(exponent - bias) * 1.mantissa, without a bit trick.
  static double by_definition(std::uint32_t magnitude) {
    const Format& f = GetParam();
    const int mantissa = static_cast<int>(magnitude % (1U << f.mantissa_bits));
    const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
    const double fraction = mantissa / std::exp2(f.mantissa_bits);
    return exponent == 0 ? fraction * std::exp2(1 - f.bias) : (1 + fraction) * std::exp2(exponent - f.bias);
  }
  static std::uint32_t sign_bit() { return 1U << (GetParam().exponent_bits + GetParam().mantissa_bits); }
  static double value(std::uint32_t code) { return float_value(GetParam().dtype, code); }
  static std::uint64_t code(double x) { return float_bits(GetParam().dtype, x); }
};

TEST_P(MiniFloats, EveryFiniteCodeHasItsValueAndComesBack) {
  for (std::uint32_t c = 0; c <= GetParam().max_finite; ++c) {
    ASSERT_EQ(value(c), by_definition(c)) << c;
    ASSERT_EQ(code(value(c)), c);
    const bool fnuz_nan = c == 0 && (GetParam().dtype == DType::f8e4m3fnuz || GetParam().dtype == DType::f8e5m2fnuz);
    if (fnuz_nan) continue;
    ASSERT_EQ(value(c | sign_bit()), -by_definition(c)) << c;
    ASSERT_EQ(code(value(c | sign_bit())), c | sign_bit());
  }
}

TEST_P(MiniFloats, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t c = 0; c < GetParam().max_finite; ++c) {
    const double middle = (by_definition(c) + by_definition(c + 1)) / 2;
    ASSERT_EQ(code(middle), c % 2 == 0 ? c : c + 1) << c;
    ASSERT_EQ(code(std::nextafter(middle, 0)), c) << c;
    ASSERT_EQ(code(std::nextafter(middle, kInf)), c + 1) << c;
    ASSERT_EQ(code(-std::nextafter(middle, kInf)), (c + 1) | sign_bit()) << c;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MiniFloats, testing::ValuesIn(kFormats),
                         [](const auto& format) { return format.param.name; });

TEST(Numeric, HalfPrecisionsKeepInfinityAndNaN) {
  EXPECT_EQ(f32_to_f16(65519.0F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f64_to_f16(-kInf), 0xfc00);
  EXPECT_EQ(f64_to_bf16(kInf), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f64_to_f16(1e-310), 0);
  int nans = 0;
  for (std::uint32_t c = 0; c < 0x10000; ++c) {
    const auto code = static_cast<std::uint16_t>(c);
    if (std::isnan(f16_to_f32(code))) {
      ++nans;
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f16_to_f32(code)))));
      ASSERT_GT(c & 0x7fff, 0x7c00U);
    }
    ASSERT_EQ(std::isnan(bf16_to_f32(code)), (c & 0x7fff) > 0x7f80) << c;
  }
  EXPECT_EQ(nans, 2 * 1023);
}

TEST(Numeric, HalfPrecisionRoundsDoublesOnce) {
  // Rounded to f32 first, this would lie on a tie and go down.
  const double above_tie = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(f64_to_f16(above_tie), 0x3c01);
  EXPECT_EQ(f32_to_f16(static_cast<float>(above_tie)), 0x3c00);
}

TEST(Numeric, Float8OverflowsAsOnnxSays) {
  struct Row {
    DType dtype;
    int saturated, infinity, nan, negative_zero;
  };
  for (const Row& row : {Row{DType::f8e4m3fn, 0x7e, 0x7f, 0x7f, 0x80}, Row{DType::f8e4m3fnuz, 0x7f, 0x80, 0x80, 0x00},
                         Row{DType::f8e5m2, 0x7b, 0x7c, 0x7f, 0x80}, Row{DType::f8e5m2fnuz, 0x7f, 0x80, 0x80, 0x00}}) {
    const int minus = row.nan == 0x80 ? 0 : 0x80;
    EXPECT_EQ(f64_to_f8(row.dtype, 1e6), row.saturated) << row.dtype.name();
    EXPECT_EQ(f64_to_f8(row.dtype, kInf), row.saturated);
    EXPECT_EQ(f64_to_f8(row.dtype, -kInf), row.saturated | 0x80);
    EXPECT_EQ(f64_to_f8(row.dtype, 1e6, false), row.infinity);
    EXPECT_EQ(f64_to_f8(row.dtype, -1e6, false), row.infinity | minus);
    EXPECT_EQ(f64_to_f8(row.dtype, kInf, false), row.infinity);
    EXPECT_EQ(f64_to_f8(row.dtype, kNaN), row.nan);
    EXPECT_EQ(f64_to_f8(row.dtype, -0.0), row.negative_zero);
    EXPECT_TRUE(std::isnan(f8_to_f32(row.dtype, static_cast<std::uint8_t>(row.nan))));
  }
  EXPECT_EQ(f8_to_f32(DType::f8e5m2, 0xfc), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(f32_to_f4e2m1(std::numeric_limits<float>::infinity()), 0x7);
  EXPECT_EQ(f32_to_f4e2m1(std::numeric_limits<float>::quiet_NaN()), 0x8);
}

TEST(Numeric, PowersOfTwoRoundUpDownAndToNearest) {
  for (int c = 0; c < 255; ++c) {
    const double power = std::exp2(c - 127);
    const auto code = static_cast<std::uint8_t>(c);
    ASSERT_EQ(f8e8m0_to_f32(code), power);
    ASSERT_EQ(f64_to_f8e8m0(power), c);
    if (c == 254) continue;
    ASSERT_EQ(f64_to_f8e8m0(power * 1.01), c + 1);
    ASSERT_EQ(f64_to_f8e8m0(power * 1.99, true, E8m0Rounding::down), c);
    ASSERT_EQ(f64_to_f8e8m0(power * 1.49, true, E8m0Rounding::nearest), c);
    ASSERT_EQ(f64_to_f8e8m0(power * 1.5, true, E8m0Rounding::nearest), c + 1);
  }
  EXPECT_EQ(f64_to_f8e8m0(0), 0);
  EXPECT_EQ(f64_to_f8e8m0(kInf), 0xfe);
  EXPECT_EQ(f64_to_f8e8m0(kInf, false), 0xff);
  EXPECT_EQ(f64_to_f8e8m0(kNaN), 0xff);
  EXPECT_TRUE(std::isnan(f8e8m0_to_f32(0xff)));
}

std::int64_t to_integer(DType dtype, double value) {
  return integer_value(dtype, convert(dtype, DType::f64, float_bits(DType::f64, value)));
}

TEST(Numeric, FloatsTruncateToIntegers) {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64, DType::i4}) {
    EXPECT_EQ(to_integer(dtype, -1.9), -1) << dtype.name();
    EXPECT_EQ(to_integer(dtype, 1.9), 1);
    EXPECT_EQ(to_integer(dtype, -0.9), 0);
  }
  EXPECT_EQ(to_integer(DType::u8, 300), 300 - 256);
  EXPECT_EQ(to_integer(DType::u8, -1), 255);
  EXPECT_EQ(to_integer(DType::i8, 200), -56);
  EXPECT_EQ(to_integer(DType::u32, 4294967295.0), 4294967295);
  EXPECT_EQ(static_cast<std::uint64_t>(to_integer(DType::u64, 0x1.8p63)), 0xc000000000000000U);
}

TEST(Numeric, FloatsOutOfRangeGiveWhatTheProcessorGives) {
  constexpr std::int64_t kMin32 = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
  for (const double value : {kNaN, kInf, -kInf, 1e30}) {
    EXPECT_EQ(to_integer(DType::i32, value), kMin32);
    EXPECT_EQ(to_integer(DType::i64, value), kMin64);
    EXPECT_EQ(to_integer(DType::u64, value), kMin64);
    for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::u16, DType::u32, DType::i4, DType::u2}) {
      EXPECT_EQ(to_integer(dtype, value), 0) << dtype.name();
    }
  }
  EXPECT_EQ(to_integer(DType::i32, 2147483647.5), 2147483647);
  EXPECT_EQ(to_integer(DType::i32, -2147483648.5), kMin32);
  EXPECT_EQ(to_integer(DType::i4, 7.9), 7);
  EXPECT_EQ(to_integer(DType::i4, 8), 0);
  EXPECT_EQ(to_integer(DType::u4, -1), 0);
  EXPECT_EQ(to_integer(DType::i2, -2), -2);
}

TEST(Numeric, IntegersKeepTheirLowBitsAndRoundOnceToFloats) {
  EXPECT_EQ(convert(DType::i8, DType::i16, 200), 200U);
  EXPECT_EQ(integer_value(DType::i8, 200), -56);
  EXPECT_EQ(convert(DType::i64, DType::i8, 0xff), ~std::uint64_t{0});
  EXPECT_EQ(convert(DType::u16, DType::i8, 0xff), 0xffffU);
  EXPECT_EQ(convert(DType::i4, DType::i64, static_cast<std::uint64_t>(-3)), 0xdU);
  const std::uint64_t odd = (std::uint64_t{1} << 53) + (1 << 29) + 1;  // through f64 it would be a tie
  EXPECT_EQ(convert(DType::f32, DType::i64, odd), float_bits(DType::f32, 0x1p53 + 0x1p30));
  EXPECT_EQ(float_value(DType::f64, convert(DType::f64, DType::u64, ~std::uint64_t{0})), 0x1p64);
  EXPECT_EQ(float_value(DType::f16, convert(DType::f16, DType::i8, 0xfd)), -3);
}

TEST(Numeric, BooleansAreWhetherNotZero) {
  for (const double value : {0.5, -1e-300, kNaN, kInf}) {
    EXPECT_EQ(convert(DType::boolean, DType::f64, float_bits(DType::f64, value)), 1U);
  }
  EXPECT_EQ(convert(DType::boolean, DType::f64, float_bits(DType::f64, -0.0)), 0U);
  EXPECT_EQ(convert(DType::boolean, DType::i32, 256), 1U);
  EXPECT_EQ(convert(DType::f32, DType::boolean, 1), float_bits(DType::f32, 1));
}

TEST(Numeric, PackedElementsLieFromTheLowBitsUp) {
  const std::vector<std::uint8_t> packed = {0x21, 0xf3};
  std::uint8_t bytes[4];
  unpack(DType::u4, packed.data(), 4, bytes);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes, bytes + 4), (std::vector<std::uint8_t>{1, 2, 3, 15}));
  unpack(DType::i4, packed.data(), 4, bytes);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[3]), -1);
  std::vector<std::uint8_t> again(2);
  pack(DType::i4, bytes, 4, again.data());
  EXPECT_EQ(again, packed);
  unpack(DType::i2, packed.data(), 4, bytes);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes, bytes + 4), (std::vector<std::uint8_t>{1, 0, 0xfe, 0}));
}

}  // namespace
}  // namespace lathe::numeric
