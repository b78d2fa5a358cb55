// Matrix products, convolutions, pools and quantization: values checked by hand or against a direct sum, and refusals.
#include <cmath>
#include <limits>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

using Ints = std::vector<std::int64_t>;

/// Small integers in a fixed order that repeats late: every sum of products is exact.
Tensor counting(const Shape& shape, DType dtype = DType::f32) {
  Tensor t(DType::f32, shape);
  auto values = t.mutable_view<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 + 3) % 11) - 5;
  return t.cast(dtype);
}

TEST(MatMul, HandlesEveryPairOfRanks) {
  expect_tensor(run("MatMul", {floats({1, 2, 3}), floats({4, 5, 6})}), DType::f32, {}, {32});
  expect_tensor(run("MatMul", {floats({1, 2}), floats({1, 2, 3, 4}, {2, 2})}), DType::f32, {2}, {7, 10});
  expect_tensor(run("MatMul", {floats({1, 2, 3, 4}, {2, 2}), floats({1, 2})}), DType::f32, {2}, {5, 11});
  const Tensor batch = floats({1, 0, 0, 1, 2, 0, 0, 2}, {2, 2, 2});
  expect_tensor(run("MatMul", {batch, floats({1, 2, 3, 4}, {1, 2, 2})}), DType::f32, {2, 2, 2},
                {1, 2, 3, 4, 2, 4, 6, 8});
  expect_tensor(run("MatMul", {batch, floats({1, 2})}), DType::f32, {2, 2}, {1, 2, 2, 4});
  expect_tensor(run("MatMul", {floats({1, 2}), batch}), DType::f32, {2, 2}, {1, 2, 2, 4});
}

TEST(MatMul, KeepsDtypesAndEmptyExtents) {
  for (DType t : {DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u32, DType::u64}) {
    const Tensor a = floats({1, 2, 3, 4}, {2, 2}).cast(t);
    expect_tensor(run("MatMul", {a, a}), t, {2, 2}, {7, 10, 15, 22});
  }
  expect_tensor(run("MatMul", {Tensor(DType::f32, {2, 0}), Tensor(DType::f32, {0, 2})}), DType::f32, {2, 2},
                {0, 0, 0, 0});
  expect_tensor(run("MatMul", {Tensor(DType::f32, {0, 3}), counting({3, 2})}), DType::f32, {0, 2}, {});
}

TEST(MatMulInteger, SubtractsZeroPointsPerRowAndColumn) {
  const Tensor a = floats({1, 2, 3, 4}, {2, 2}).cast(DType::u8);
  const Tensor b = floats({5, 6, 7, 8}, {2, 2}).cast(DType::i8);
  expect_tensor(run("MatMulInteger", {a, b}), DType::i32, {2, 2}, {19, 22, 43, 50});
  const Tensor rows = floats({1, 3}).cast(DType::u8);
  const Tensor columns = floats({5, 8}).cast(DType::i8);
  expect_tensor(run("MatMulInteger", {a, b, rows, columns}), DType::i32, {2, 2}, {2, 0, 2, 0});
}

/// Values of an 8-bit dtype, the extremes among them.
Tensor bytes(const Shape& shape, DType dtype, int seed) {
  Tensor t(dtype, shape);
  auto* values = static_cast<std::uint8_t*>(t.mutable_data());
  constexpr std::uint8_t kExtremes[] = {0x00, 0x7f, 0x80, 0xff};
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const auto n = static_cast<std::uint32_t>(i * 7 + seed) * 2654435761U >> 16;
    values[i] = n % 3 == 0 ? kExtremes[n / 3 % 4] : static_cast<std::uint8_t>(n >> 3);
  }
  return t;
}

TEST(PackedMatMul, EqualsMatMulInteger) {
  const struct {
    Shape a;
    std::int64_t columns;
  } sizes[] = {{{1, 1}, 1}, {{3, 5}, 7},      {{4, 8}, 8},     {{2, 3, 9}, 17}, {{17, 12}, 33},
               {{5}, 9},    {{35, 1030}, 10}, {{2, 2051}, 70}, {{2, 0}, 5},     {{0, 4}, 5}};
  for (const auto& [shape, columns] : sizes) {
    for (DType da : {DType::u8, DType::i8}) {
      for (DType db : {DType::u8, DType::i8}) {
        const Tensor a = bytes(shape, da, 1), b = bytes({shape.back(), columns}, db, 2);
        for (const Tensor& zero : {Tensor(), bytes({}, db, 5), bytes({columns}, db, 3)}) {
          const Tensor zero_a = bytes({}, da, zero.defined() ? 7 : 0);
          const std::vector<Value> packed = run_op("lathe::PackMatrix", {b, zero}, {}, 3);
          const Tensor y =
              run("lathe::PackedMatMul", {a, packed[0].tensor(), packed[1].tensor(), zero_a, packed[2].tensor()},
                  {{"columns", columns}});
          const Tensor expected = run("MatMulInteger", {a, b, zero_a, zero});
          ASSERT_EQ(y.shape(), expected.shape());
          for (std::int64_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(y.integer(i), expected.integer(i)) << shape.to_string() << " times " << columns << " at " << i;
        }
      }
    }
  }
}

TEST(MatMul, RefusesWhatDoesNotFit) {
  EXPECT_NE(refusal("MatMul", {counting({2, 3}), counting({2, 3})}).find("the inner extents differ: 2x3 times 2x3"),
            std::string::npos);
  EXPECT_NE(refusal("MatMul", {counting({2, 3}), counting({3, 2}, DType::f64)}).find("one dtype"), std::string::npos);
  EXPECT_NE(refusal("MatMul", {counting({2, 2, 3}), counting({3, 3, 2})}).find("do not broadcast"), std::string::npos);
  EXPECT_NE(refusal("Gemm", {counting({2, 3, 1}), counting({3, 2})}).find("must be matrices"), std::string::npos);
}

struct ConvCase {
  Shape x, w;
  Ints strides, dilations, pads;
  std::int64_t group;
};

/// A two-dimensional convolution by its definition.
std::vector<double> direct_conv(const Tensor& x, const Tensor& w, const ConvCase& c, const Shape& y) {
  std::vector<double> out;
  const Shape &xs = x.shape(), &ws = w.shape();
  const std::int64_t per_group = ws[0] / c.group;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t m = 0; m < y[1]; ++m)
      for (std::int64_t i = 0; i < y[2]; ++i)
        for (std::int64_t j = 0; j < y[3]; ++j) {
          double sum = 0;
          for (std::int64_t ch = 0; ch < ws[1]; ++ch)
            for (std::int64_t p = 0; p < ws[2]; ++p)
              for (std::int64_t q = 0; q < ws[3]; ++q) {
                const std::int64_t r = i * c.strides[0] + p * c.dilations[0] - c.pads[0];
                const std::int64_t s = j * c.strides[1] + q * c.dilations[1] - c.pads[1];
                if (r < 0 || r >= xs[2] || s < 0 || s >= xs[3]) continue;
                const std::int64_t channel = m / per_group * ws[1] + ch;
                sum += x.number(((n * xs[1] + channel) * xs[2] + r) * xs[3] + s) *
                       w.number(((m * ws[1] + ch) * ws[2] + p) * ws[3] + q);
              }
          out.push_back(sum);
        }
  return out;
}

TEST(Conv, EqualsItsDefinition) {
  const ConvCase cases[] = {
      {{2, 3, 5, 6}, {4, 3, 3, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
      {{1, 2, 7, 5}, {3, 2, 3, 3}, {2, 1}, {1, 2}, {1, 2, 0, 2}, 1},
      {{2, 4, 4, 4}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 4},
      {{1, 2, 4, 4}, {6, 1, 2, 2}, {1, 2}, {1, 1}, {0, 1, 1, 0}, 2},
      {{1, 6, 4, 4}, {4, 3, 2, 2}, {1, 1}, {2, 1}, {1, 0, 1, 0}, 2},
      {{0, 3, 4, 4}, {2, 3, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
  };
  for (const ConvCase& c : cases) {
    const Attributes attributes = {
        {"strides", c.strides}, {"dilations", c.dilations}, {"pads", c.pads}, {"group", c.group}};
    for (DType t : {DType::f32, DType::f64, DType::f16}) {
      const Tensor x = counting(c.x, t), w = counting(c.w, t);
      const Tensor y = run("Conv", {x, w}, attributes);
      expect_tensor(y, t, y.shape(), direct_conv(x, w, c, y.shape()));
    }
    const Tensor x = counting(c.x, DType::i8), w = counting(c.w, DType::i8);
    const Tensor y = run("ConvInteger", {x, w}, attributes);
    expect_tensor(y, DType::i32, y.shape(), direct_conv(x, w, c, y.shape()));
  }
}

TEST(Conv, ResolvesAutoPad) {
  const Tensor x = floats({1, 2, 3, 4}, {1, 1, 4});
  const Tensor w = floats({1, 10}, {1, 1, 2});
  expect_tensor(run("Conv", {x, w}, {{"auto_pad", "SAME_UPPER"}}), DType::f32, {1, 1, 4}, {21, 32, 43, 4});
  expect_tensor(run("Conv", {x, w}, {{"auto_pad", "SAME_LOWER"}}), DType::f32, {1, 1, 4}, {10, 21, 32, 43});
  expect_tensor(run("Conv", {x, w}, {{"auto_pad", "VALID"}, {"strides", Ints{2}}}), DType::f32, {1, 1, 2}, {21, 43});
  expect_tensor(run("Conv", {x, w, floats({100})}), DType::f32, {1, 1, 3}, {121, 132, 143});
}

TEST(Conv, RefusesWhatDoesNotFit) {
  const Tensor x = counting({1, 4, 5, 5});
  EXPECT_NE(refusal("Conv", {x, counting({2, 3, 3, 3})}).find("x has 4 channels"), std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({3, 2, 3, 3})}, {{"group", std::int64_t{2}}}).find("do not divide"),
            std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({2, 4, 6, 6})}).find("the padded input has 5"), std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({2, 4, 3, 3})}, {{"strides", Ints{0, 1}}}).find("strides must be between 1"),
            std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({2, 4, 3, 3})}, {{"pads", Ints{1, 1}}}).find("pads must have 4 values"),
            std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({2, 4, 3, 3})}, {{"auto_pad", "SAME"}}).find("auto_pad must be"),
            std::string::npos);
  EXPECT_NE(refusal("Conv", {x, counting({2, 4, 3, 3}), counting({3})}).find("the bias must have shape 2"),
            std::string::npos);
}

TEST(ConvInteger, PaddingCountsAsTheZeroPoint) {
  const Tensor x = floats({2, 3, 4, 5, 6, 7, 8, 9, 10}, {1, 1, 3, 3}).cast(DType::u8);
  const Tensor w = floats({1, 1, 1, 1}, {1, 1, 2, 2}).cast(DType::u8);
  const Tensor one = floats({1}).cast(DType::u8);
  expect_tensor(run("ConvInteger", {x, w, one}, {{"pads", Ints{1, 1, 1, 1}}}), DType::i32, {1, 1, 4, 4},
                {1, 3, 5, 3, 5, 12, 16, 9, 11, 24, 28, 15, 7, 15, 17, 9});
}

TEST(ConvTranspose, IsTheAdjointOfConv) {
  // <Conv(x), y> = <x, ConvTranspose(y)> for the same weights.
  const ConvCase cases[] = {
      {{1, 2, 7, 5}, {4, 2, 3, 3}, {2, 1}, {1, 2}, {1, 2, 0, 2}, 1},
      {{2, 4, 6, 6}, {6, 2, 3, 2}, {1, 2}, {2, 1}, {1, 0, 1, 0}, 2},
      {{1, 3, 4, 4}, {3, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 3},
  };
  for (const ConvCase& c : cases) {
    const Tensor x = counting(c.x), w = counting(c.w);
    const Attributes attributes = {
        {"strides", c.strides}, {"dilations", c.dilations}, {"pads", c.pads}, {"group", c.group}};
    const Tensor conv = run("Conv", {x, w}, attributes);
    const Tensor y = counting(conv.shape());
    Attributes transposed = attributes;
    transposed.set("output_shape", Ints{c.x[2], c.x[3]});
    transposed.erase("pads");
    Ints extra(2);
    for (std::size_t d = 0; d < 2; ++d) {
      const int axis = static_cast<int>(d) + 2;
      const std::int64_t covered = (conv.shape()[axis] - 1) * c.strides[d] + (c.w[axis] - 1) * c.dilations[d] + 1;
      extra[d] = c.x[axis] + c.pads[d] + c.pads[d + 2] - covered;
    }
    transposed = attributes;
    transposed.set("output_padding", extra);
    const Tensor back = run("ConvTranspose", {y, w}, transposed);
    ASSERT_EQ(back.shape().to_string(), x.shape().to_string());
    double left = 0, right = 0;
    for (std::int64_t i = 0; i < conv.size(); ++i) left += conv.number(i) * y.number(i);
    for (std::int64_t i = 0; i < x.size(); ++i) right += x.number(i) * back.number(i);
    EXPECT_EQ(left, right);
  }
}

TEST(ConvTranspose, SplitsPadsOfAStatedOutput) {
  const Tensor x = floats({1, 2}, {1, 1, 2});
  const Tensor w = floats({1, 10, 100}, {1, 1, 3});
  expect_tensor(run("ConvTranspose", {x, w}), DType::f32, {1, 1, 4}, {1, 12, 120, 200});
  expect_tensor(run("ConvTranspose", {x, w}, {{"output_shape", Ints{3}}}), DType::f32, {1, 1, 3}, {12, 120, 200});
  expect_tensor(run("ConvTranspose", {x, w}, {{"output_shape", Ints{3}}, {"auto_pad", "SAME_UPPER"}}), DType::f32,
                {1, 1, 3}, {1, 12, 120});
  expect_tensor(run("ConvTranspose", {x.cast(DType::f16), w.cast(DType::f16), floats({0.5F}).cast(DType::f16)}),
                DType::f16, {1, 1, 4}, {1.5, 12.5, 120.5, 200.5});
}

TEST(MaxPool, GivesValuesAndIndices) {
  const Tensor x = floats({1, 5, 2, 7, 3, 0}, {1, 1, 2, 3});
  const auto pooled = run_op("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}}, 2);
  expect_tensor(pooled[0], DType::f32, {1, 1, 1, 2}, {7, 5});
  expect_tensor(pooled[1], DType::i64, {1, 1, 1, 2}, {3, 1});
  const auto columns = run_op("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"storage_order", std::int64_t{1}}}, 2);
  expect_tensor(columns[1], DType::i64, {1, 1, 1, 2}, {1, 2});
  const Tensor zeros = Tensor(DType::u8, {1, 1, 2, 2});
  const auto padded = run_op("MaxPool", {zeros}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}}, 2);
  expect_tensor(padded[0], DType::u8, {1, 1, 2, 2}, {0, 0, 0, 0});
  expect_tensor(padded[1], DType::i64, {1, 1, 2, 2}, {0, 0, 0, 0});
}

TEST(AveragePool, RoundedUpAKernelMayBeLargerThanTheInput) {
  const Tensor x = floats({1, 2, 3, 4, 5}, {1, 1, 5});
  const auto pool = [](std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
    return Attributes{{"kernel_shape", Ints{kernel}},
                      {"strides", Ints{stride}},
                      {"dilations", Ints{dilation}},
                      {"ceil_mode", std::int64_t{1}}};
  };
  expect_tensor(run("AveragePool", {x}, pool(7, 3, 1)), DType::f32, {1, 1, 1}, {3});
  expect_tensor(run("AveragePool", {x}, pool(3, 5, 4)), DType::f32, {1, 1, 1}, {3});
  expect_tensor(run("MaxPool", {x}, pool(7, 3, 1)), DType::f32, {1, 1, 1}, {5});
  EXPECT_NE(refusal("AveragePool", {x}, pool(7, 2, 1)).find("the kernel covers 7 elements"), std::string::npos);
  EXPECT_NE(refusal("AveragePool", {x}, {{"kernel_shape", Ints{7}}}).find("the kernel covers 7 elements"),
            std::string::npos);
}

TEST(AveragePool, CountsWhatItIsAskedTo) {
  const Tensor x = floats({1, 2, 3, 4, 5}, {1, 1, 5});
  const Attributes same = {{"kernel_shape", Ints{3}}, {"pads", Ints{1, 1}}, {"strides", Ints{2}}};
  expect_tensor(run("AveragePool", {x}, same), DType::f32, {1, 1, 3}, {1.5, 3, 4.5});
  Attributes padded = same;
  padded.set("count_include_pad", std::int64_t{1});
  expect_tensor(run("AveragePool", {x}, padded), DType::f32, {1, 1, 3}, {1, 3, 3});
  // The last window of ceil_mode ends outside: only what lies in the input (and the stated padding) counts.
  const Attributes ceil = {{"kernel_shape", Ints{2}},
                           {"strides", Ints{2}},
                           {"ceil_mode", std::int64_t{1}},
                           {"count_include_pad", std::int64_t{1}}};
  expect_tensor(run("AveragePool", {x}, ceil), DType::f32, {1, 1, 3}, {1.5, 3.5, 5});
  const Attributes dilated = {{"kernel_shape", Ints{2}}, {"dilations", Ints{3}}, {"pads", Ints{1, 1}}};
  expect_tensor(run("AveragePool", {x}, dilated), DType::f32, {1, 1, 4}, {3, 2.5, 3.5, 3});
}

TEST(LpPool, TakesTheNorm) {
  const Tensor x = floats({3, -4, 0}, {1, 1, 3});
  expect_tensor(run("LpPool", {x}, {{"kernel_shape", Ints{2}}}), DType::f32, {1, 1, 2}, {5, 4});
  expect_tensor(run("LpPool", {x}, {{"kernel_shape", Ints{2}}, {"p", std::int64_t{1}}}), DType::f32, {1, 1, 2}, {7, 4});
  expect_tensor(run("LpPool", {x}, {{"kernel_shape", Ints{2}}, {"p", std::int64_t{3}}}), DType::f32, {1, 1, 2},
                {std::cbrt(91.0), 4});
}

TEST(MaxUnpool, ReturnsValuesToTheirPlace) {
  const Tensor x = floats({5, 6, 7, 8}, {1, 1, 2, 2});
  const Tensor indices = longs({0, 3, 8, 15}, {1, 1, 2, 2});
  const Attributes attributes = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  expect_tensor(run("MaxUnpool", {x, indices}, attributes), DType::f32, {1, 1, 4, 4},
                {5, 0, 0, 6, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 8});
  EXPECT_NE(
      refusal("MaxUnpool", {x, longs({0, 3, 8, 16}, {1, 1, 2, 2})}, attributes).find("index 16 is outside [0, 16)"),
      std::string::npos);
}

TEST(QuantizeLinear, RoundsHalfToEvenAndSaturates) {
  const Tensor x = floats({-300, -1.5F, 0.5F, 1.5F, 2.5F, 300});
  const Tensor one = Tensor::scalar(1.0F);
  expect_tensor(run("QuantizeLinear", {x, one}), DType::u8, {6}, {0, 0, 0, 2, 2, 255});
  expect_tensor(run("QuantizeLinear", {x, one, Tensor::scalar(std::int8_t{1})}), DType::i8, {6},
                {-128, -1, 1, 3, 3, 127});
  expect_tensor(run("QuantizeLinear", {x, one}, {{"output_dtype", std::int64_t{DType::i4}}}), DType::i4, {6},
                {-8, -2, 0, 2, 2, 7});
}

TEST(QuantizeLinear, Float8BeyondItsRangeWithoutSaturation) {
  const Tensor x = floats({1, 449, -1e6F, 3, 465}), one = Tensor::scalar(1.0F);
  const auto q = [&](DType dtype, std::int64_t saturate) {
    return run("QuantizeLinear", {x, one},
               {{"output_dtype", static_cast<std::int64_t>(dtype)}, {"saturate", saturate}});
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  expect_tensor(q(DType::f8e4m3fn, 1), DType::f8e4m3fn, {5}, {1, 448, -448, 3, 448});
  expect_tensor(q(DType::f8e4m3fn, 0), DType::f8e4m3fn, {5}, {1, 448, nan, 3, nan});
  expect_tensor(q(DType::f8e5m2, 0), DType::f8e5m2, {5}, {1, 448, -inf, 3, 448});
  expect_tensor(q(DType::f8e4m3fnuz, 0), DType::f8e4m3fnuz, {5}, {1, nan, nan, 3, nan});
}

TEST(DequantizeLinear, DifferencesOfLargeIntegersDoNotWrap) {
  const Tensor x = Tensor::from<std::int32_t>({INT32_MIN, INT32_MAX}, {2});
  const Tensor y = run("DequantizeLinear", {x, Tensor::scalar(1.0F), Tensor::scalar(std::int32_t{6})});
  EXPECT_EQ(y.number(0), -2147483648.0);
  EXPECT_EQ(y.number(1), 2147483648.0);
  EXPECT_EQ(run("DequantizeLinear", {x, Tensor::scalar(1.0F), Tensor::scalar(std::int32_t{INT32_MIN})}).number(1),
            4294967296.0);
}

TEST(QuantizeLinear, ScalesPerAxisAndBlock) {
  const Tensor x = floats({2, 4, 6, 8, 10, 12}, {2, 3});
  const Tensor zero = floats({0, 1}).cast(DType::u8);
  expect_tensor(run("QuantizeLinear", {x, floats({2, 4}), zero}, {{"axis", std::int64_t{0}}}), DType::u8, {2, 3},
                {1, 2, 3, 3, 3, 4});
  const Tensor blocks = floats({1, 2, 4, 2}, {2, 2});
  expect_tensor(run("QuantizeLinear", {x, blocks}, {{"block_size", std::int64_t{2}}}), DType::u8, {2, 3},
                {2, 4, 3, 2, 2, 6});
  const Tensor q = floats({1, 2, 3, 4, 5, 6}, {2, 3}).cast(DType::i8);
  expect_tensor(run("DequantizeLinear", {q, blocks}, {{"block_size", std::int64_t{2}}, {"axis", std::int64_t{-1}}}),
                DType::f32, {2, 3}, {1, 2, 6, 16, 20, 12});
  EXPECT_NE(refusal("QuantizeLinear", {x, floats({1, 2, 3, 4})}).find("one value or 3 along axis 1"),
            std::string::npos);
  EXPECT_NE(refusal("DequantizeLinear", {q, Tensor::scalar(1.0F), Tensor::scalar(std::uint8_t{0})})
                .find("inputs 0 and 2 must have one dtype"),
            std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
