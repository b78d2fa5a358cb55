// Signals, sampling, strings and attention: values checked by hand or by an identity, and what they refuse.
#include <cmath>
#include <numbers>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

using Ints = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;

Tensor ramp(const Shape& shape, double scale = 1) {
  Tensor t(DType::f32, shape);
  double i = 0;
  for (float& v : t.mutable_view<float>()) v = static_cast<float>(std::sin(1.3 * ++i) * scale);
  return t;
}

TEST(Dft, ReturnsAfterItsInverse) {
  // Lengths with small factors, a small prime and primes that need a convolution.
  for (std::int64_t n : {1, 2, 8, 12, 31, 45, 97, 131}) {
    const Tensor x = ramp({2, n, 2});
    const Tensor spectrum = run("DFT", {x});
    const Tensor back = run("DFT", {spectrum}, {{"inverse", std::int64_t{1}}});
    expect_tensor(back, DType::f32, x.shape(), numbers(x), 1e-5);
    double energy = 0, spectral = 0;
    for (double v : numbers(x)) energy += v * v;
    for (double v : numbers(spectrum)) spectral += v * v;
    EXPECT_NEAR(spectral, energy * static_cast<double>(n), 1e-3 * spectral);
  }
}

TEST(Dft, EqualsItsSum) {
  const Tensor x = ramp({1, 7, 1});
  const Tensor y = run("DFT", {x}, {{"onesided", std::int64_t{1}}});
  ASSERT_EQ(y.shape().to_string(), "1x4x2");
  for (std::int64_t k = 0; k < 4; ++k) {
    double real = 0, imaginary = 0;
    for (std::int64_t n = 0; n < 7; ++n) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k * n) / 7;
      real += x.number(n) * std::cos(angle);
      imaginary -= x.number(n) * std::sin(angle);
    }
    EXPECT_NEAR(y.number(2 * k), real, 1e-5);
    EXPECT_NEAR(y.number(2 * k + 1), imaginary, 1e-5);
  }
  const Tensor back = run("DFT", {y, longs({7}, {})}, {{"onesided", std::int64_t{1}}, {"inverse", std::int64_t{1}}});
  expect_tensor(back, DType::f32, {1, 7, 1}, numbers(x), 1e-5);
  EXPECT_NE(refusal("DFT", {ramp({1, 7, 3})}).find("1 or 2 parts"), std::string::npos);
  EXPECT_NE(refusal("DFT", {x, Tensor(), longs({2}, {})}).find("axis must not be the last"), std::string::npos);
}

TEST(Stft, TransformsWindowedFrames) {
  const Tensor x = ramp({1, 10, 1});
  const Tensor window = floats({1, 2, 2, 1});
  const Tensor y = run("STFT", {x, longs({3}, {}), window});
  ASSERT_EQ(y.shape().to_string(), "1x3x3x2");
  Tensor frame(DType::f32, {1, 4, 1});
  for (std::size_t i = 0; i < 4; ++i) frame.mutable_view<float>()[i] = x.view<float>()[3 + i] * window.view<float>()[i];
  const std::vector<double> expected = numbers(run("DFT", {frame}, {{"onesided", std::int64_t{1}}})), all = numbers(y);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(all[6 + i], expected[i], 1e-5);
}

TEST(Windows, SumCosines) {
  expect_tensor(run("HannWindow", {longs({4}, {})}), DType::f32, {4}, {0, 0.5, 1, 0.5});
  expect_tensor(run("HannWindow", {longs({3}, {})}, {{"periodic", std::int64_t{0}}}), DType::f32, {3}, {0, 1, 0});
  expect_tensor(run("BlackmanWindow", {longs({6}, {})}, {{"output_datatype", std::int64_t{DType::i32}}}), DType::i32,
                {6}, {0, 0, 0, 1, 0, 0});
  expect_tensor(run("HammingWindow", {longs({2}, {})}), DType::f32, {2}, {4.0 / 46, 1});
  expect_tensor(run("BlackmanWindow", {longs({2}, {})}, {{"output_datatype", std::int64_t{DType::f64}}}), DType::f64,
                {2}, {0, 1});
  expect_tensor(run("HannWindow", {longs({0}, {})}), DType::f32, {0}, {});
}

TEST(GridSample, ReadsBetweenElements) {
  const Tensor x = floats({0, 1, 2, 3}, {1, 1, 2, 2});
  const auto at = [&](float px, float py, Attributes a) {
    return run("GridSample", {x, floats({px, py}, {1, 1, 1, 2})}, std::move(a)).number(0);
  };
  EXPECT_NEAR(at(0, 0, {}), 1.5, 1e-6);
  EXPECT_NEAR(at(-1, -1, {{"align_corners", std::int64_t{1}}}), 0, 1e-6);
  EXPECT_NEAR(at(1, -1, {{"align_corners", std::int64_t{1}}}), 1, 1e-6);
  EXPECT_NEAR(at(-1, -1, {}), 0.25 * 0, 1e-6);
  EXPECT_NEAR(at(1, 1, {}), 0.25 * 3, 1e-6);
  EXPECT_NEAR(at(1, 1, {{"padding_mode", "border"}}), 3, 1e-6);
  EXPECT_NEAR(at(3, 0.5F, {{"padding_mode", "reflection"}, {"mode", "nearest"}}), 2, 1e-6);
  EXPECT_NEAR(at(0, 0, {{"mode", "cubic"}, {"padding_mode", "border"}}), 1.5, 1e-6);
}

TEST(AffineGrid, IdentityGivesTheSamplesOfGridSample) {
  const Tensor theta = floats({1, 0, 0, 0, 1, 0}, {1, 2, 3});
  for (std::int64_t align : {0, 1}) {
    const Attributes a = {{"align_corners", align}};
    const Tensor grid = run("AffineGrid", {theta, longs({1, 1, 3, 4})}, a);
    const Tensor x = ramp({1, 1, 3, 4});
    expect_tensor(run("GridSample", {x, grid}, a), DType::f32, x.shape(), numbers(x), 1e-5);
  }
}

TEST(Regions, PoolTheirBins) {
  Tensor x(DType::f32, {1, 1, 4, 4});
  for (std::size_t i = 0; i < 16; ++i) x.mutable_view<float>()[i] = static_cast<float>(i);
  const Attributes two = {
      {"output_height", std::int64_t{2}}, {"output_width", std::int64_t{2}}, {"sampling_ratio", std::int64_t{1}}};
  const Tensor roi = floats({0.5F, 0.5F, 4.5F, 4.5F}, {1, 4});
  expect_tensor(run("RoiAlign", {x, roi, longs({0})}, two), DType::f32, {1, 1, 2, 2}, {5, 7, 13, 15});
  expect_tensor(run("MaxRoiPool", {x, floats({0, 0, 0, 3, 3}, {1, 5})}, {{"pooled_shape", Ints{2, 2}}}), DType::f32,
                {1, 1, 2, 2}, {5, 7, 13, 15});
  EXPECT_NE(refusal("RoiAlign", {x, roi, longs({1})}, two).find("batch index 1 is outside [0, 1)"), std::string::npos);
}

TEST(DeformConv, WithoutOffsetsIsConv) {
  const Tensor x = ramp({1, 4, 5, 5}), w = ramp({2, 2, 3, 3}), bias = floats({1, 2});
  const Attributes a = {{"group", std::int64_t{2}}, {"pads", Ints{1, 0, 1, 0}}};
  const Tensor expected = run("Conv", {x, w, bias}, a);
  const Tensor offset(DType::f32, {1, 18, expected.shape()[2], expected.shape()[3]});
  expect_tensor(run("DeformConv", {x, w, offset, bias}, a), DType::f32, expected.shape(), numbers(expected), 1e-5);
}

TEST(Col2Im, AddsBlocks) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6, 7, 8}, {1, 4, 2});
  expect_tensor(run("Col2Im", {x, longs({2, 3}), longs({2, 2})}), DType::f32, {1, 1, 2, 3}, {1, 5, 4, 5, 13, 8});
}

TEST(CenterCropPad, KeepsTheMiddle) {
  const Tensor x = floats({1, 2, 3, 4, 5});
  expect_tensor(run("CenterCropPad", {x, longs({3})}), DType::f32, {3}, {2, 3, 4});
  expect_tensor(run("CenterCropPad", {x, longs({2})}), DType::f32, {2}, {2, 3});
  expect_tensor(run("CenterCropPad", {x, longs({8})}), DType::f32, {8}, {0, 1, 2, 3, 4, 5, 0, 0});
}

TEST(Det, Eliminates) {
  expect_tensor(run("Det", {floats({0, 1, 2, 0, 3, 4, 5, 6}, {2, 2, 2})}), DType::f32, {2}, {-2, -2});
  expect_tensor(run("Det", {Tensor(DType::f32, {3, 3})}), DType::f32, {}, {0});
}

TEST(Strings, SplitJoinAndMatch) {
  const auto parts =
      run_op("StringSplit", {texts({"a,b,c", "", "d"}, {3})}, {{"delimiter", ","}, {"maxsplit", std::int64_t{1}}}, 2);
  EXPECT_EQ(parts[0].shape().to_string(), "3x2");
  EXPECT_EQ(parts[0].view<std::string>()[1], "b,c");
  expect_tensor(parts[1], DType::i64, {3}, {2, 1, 1});
  const auto words = run_op("StringSplit", {texts({"  x  y "}, {1})}, {}, 2);
  expect_tensor(words[1], DType::i64, {1}, {2});
  EXPECT_EQ(words[0].view<std::string>()[1], "y");
  EXPECT_EQ(run("StringConcat", {texts({"a", "b"}, {2, 1}), texts({"1", "2"}, {2})}).view<std::string>()[2], "b1");
  expect_tensor(run("RegexFullMatch", {texts({"ab", "abc"}, {2})}, {{"pattern", "a.?"}}), DType::boolean, {2}, {1, 0});
  EXPECT_NE(refusal("RegexFullMatch", {texts({"a"}, {1})}, {{"pattern", "("}}).find("pattern '(' is wrong"),
            std::string::npos);
}

TEST(Strings, NormalizeBeyondAscii) {
  const Tensor y = run("StringNormalizer", {texts({"Straße", "ÀÉŽ", "the", "ΣΩ", "Ж"}, {5})},
                       {{"case_change_action", "LOWER"}, {"stopwords", Strings{"THE"}}});
  const std::vector<std::string> expected = {"straße", "àéž", "σω", "ж"};
  ASSERT_EQ(y.size(), 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(y.view<std::string>()[i], expected[i]);
  EXPECT_EQ(
      run("StringNormalizer", {texts({"àéžσωж\xff"}, {1})}, {{"case_change_action", "UPPER"}}).view<std::string>()[0],
      "ÀÉŽΣΩЖ\xff");
  EXPECT_EQ(run("StringNormalizer", {texts({"a"}, {1})}, {{"stopwords", Strings{"a"}}}).view<std::string>()[0], "");
}

TEST(TfIdf, CountsGramsWithSkips) {
  const Attributes a = {{"mode", "TFIDF"},
                        {"min_gram_length", std::int64_t{1}},
                        {"max_gram_length", std::int64_t{2}},
                        {"max_skip_count", std::int64_t{1}},
                        {"ngram_counts", Ints{0, 2}},
                        {"ngram_indexes", Ints{0, 1, 2}},
                        {"pool_int64s", Ints{5, 6, 5, 7}},
                        {"weights", std::vector<double>{1, 1, 0.5}}};
  // 5 twice, 6 once, and 5 7 both next to each other and with one between.
  expect_tensor(run("TfIdfVectorizer", {longs({5, 6, 7, 5, 7})}, a), DType::f32, {3}, {2, 1, 1});
}

/// Attention over heads that are not grouped, by its definition.
TEST(Attention, WeighsValuesByTheirKeys) {
  const Tensor q = ramp({1, 2, 3, 4}), k = ramp({1, 2, 5, 4}, 2), v = ramp({1, 2, 5, 2});
  const Tensor y = run("Attention", {q, k, v});
  ASSERT_EQ(y.shape().to_string(), "1x2x3x2");
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 3; ++i) {
      double weights[5], sum = 0;
      for (std::int64_t j = 0; j < 5; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < 4; ++d) score += q.number((h * 3 + i) * 4 + d) * k.number((h * 5 + j) * 4 + d);
        sum += weights[j] = std::exp(score / 2);
      }
      for (std::int64_t d = 0; d < 2; ++d) {
        double expected = 0;
        for (std::int64_t j = 0; j < 5; ++j) expected += weights[j] / sum * v.number((h * 5 + j) * 2 + d);
        EXPECT_NEAR(y.number((h * 3 + i) * 2 + d), expected, 1e-5);
      }
    }
  }
}

TEST(Attention, MasksAndKeepsItsCache) {
  const Tensor q = ramp({1, 1, 2, 2}), k = ramp({1, 1, 2, 2}), v = floats({1, 2, 3, 4}, {1, 1, 2, 2});
  const auto causal = run_op("Attention", {q, k, v}, {{"is_causal", std::int64_t{1}}}, 1);
  EXPECT_NEAR(causal[0].tensor().number(0), 1, 1e-6);  // the first query sees the first key alone
  EXPECT_NEAR(causal[0].tensor().number(1), 2, 1e-6);
  Tensor none(DType::boolean, {2, 2});
  expect_tensor(run("Attention", {q, k, v, none}), DType::f32, {1, 1, 2, 2}, {0, 0, 0, 0});
  const Tensor past_k = ramp({1, 1, 3, 2}), past_v = ramp({1, 1, 3, 2});
  const auto cached = run_op("Attention", {q, k, v, Tensor(), past_k, past_v}, {}, 3);
  EXPECT_EQ(cached[1].shape().to_string(), "1x1x5x2");
  expect_tensor(run("Attention", {q, run("Concat", {past_k, k}, {{"axis", std::int64_t{2}}}),
                                  run("Concat", {past_v, v}, {{"axis", std::int64_t{2}}})}),
                DType::f32, {1, 1, 2, 2}, numbers(cached[0]));
  EXPECT_NE(refusal("Attention", {q, k, v, Tensor(), past_k}).find("must be given together"), std::string::npos);
  EXPECT_NE(refusal("Attention", {ramp({1, 2, 4}), ramp({1, 2, 4}), ramp({1, 2, 4})})
                .find("q_num_heads and kv_num_heads must be given"),
            std::string::npos);
}

TEST(RotaryEmbedding, TurnsPairs) {
  const Tensor x = floats({1, 2, 3, 4}, {1, 1, 1, 4});
  const Tensor cos = floats({0, 1}, {1, 1, 2}), sin = floats({1, 0}, {1, 1, 2});
  expect_tensor(run("RotaryEmbedding", {x, cos, sin}), DType::f32, {1, 1, 1, 4}, {-3, 2, 1, 4});
  expect_tensor(run("RotaryEmbedding", {x, cos, sin}, {{"interleaved", std::int64_t{1}}}), DType::f32, {1, 1, 1, 4},
                {-2, 1, 3, 4});
  const Tensor half_cos = floats({0}, {1, 1, 1}), half_sin = floats({1}, {1, 1, 1});
  expect_tensor(run("RotaryEmbedding", {x, half_cos, half_sin}, {{"rotary_embedding_dim", std::int64_t{2}}}),
                DType::f32, {1, 1, 1, 4}, {-2, 1, 3, 4});
}

}  // namespace
}  // namespace lathe::ops
