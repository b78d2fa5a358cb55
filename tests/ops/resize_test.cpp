// Resize: modes, coordinate transformations, and what it refuses.
#include <algorithm>
#include <numeric>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

Tensor none() { return {}; }

Tensor resized(const Tensor& x, std::initializer_list<float> scales, Attributes attributes) {
  return run("Resize", {x, none(), floats(scales)}, std::move(attributes));
}

TEST(Resize, RepeatsTheNearest) {
  const Tensor x = floats({1, 2, 3, 4}, {1, 1, 2, 2});
  const std::vector<double> doubled = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
  const Attributes floor = {{"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}};
  expect_tensor(resized(x, {1, 1, 2, 2}, floor), DType::f32, {1, 1, 4, 4}, doubled);
  expect_tensor(run("Resize", {x, none(), none(), longs({1, 1, 4, 4})}, floor), DType::f32, {1, 1, 4, 4}, doubled);
  expect_tensor(resized(x.cast(DType::u8), {1, 1, 2, 2}, floor), DType::u8, {1, 1, 4, 4}, doubled);
}

TEST(Resize, InterpolatesLinearly) {
  const Tensor x = floats({0, 10}, {1, 2});
  expect_tensor(resized(x, {1, 2}, {{"mode", "linear"}}), DType::f32, {1, 4}, {0, 2.5, 7.5, 10});
  expect_tensor(resized(x, {1, 2}, {{"mode", "linear"}, {"coordinate_transformation_mode", "align_corners"}}),
                DType::f32, {1, 4}, {0, 10.0 / 3, 20.0 / 3, 10}, 1e-5);
  expect_tensor(resized(x, {1, 2}, {{"mode", "linear"}, {"coordinate_transformation_mode", "asymmetric"}}), DType::f32,
                {1, 4}, {0, 5, 10, 10});
  expect_tensor(resized(x.cast(DType::f16), {1, 2}, {{"mode", "linear"}}), DType::f16, {1, 4}, {0, 2.5, 7.5, 10});
}

TEST(Resize, StretchesTheFilterWhenAsked) {
  const Tensor x = floats({0, 1, 2, 3, 4, 5, 6, 7}, {8});
  expect_tensor(resized(x, {0.5F}, {{"mode", "linear"}}), DType::f32, {4}, {0.5, 2.5, 4.5, 6.5});
  // Weights 1/8, 3/8, 3/8, 1/8 around each pair, the ends repeated.
  expect_tensor(resized(x, {0.5F}, {{"mode", "linear"}, {"antialias", std::int64_t{1}}}), DType::f32, {4},
                {0.625, 2.5, 4.5, 6.375});
}

TEST(Resize, KeepsConstantsUnderEveryFilter) {
  const Tensor x = run("Expand", {Tensor::scalar(3.0F), longs({1, 5, 7})});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* transform :
         {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"}) {
      const Tensor y = resized(x, {1, 1.7F, 0.6F}, {{"mode", mode}, {"coordinate_transformation_mode", transform}});
      expect_tensor(y, DType::f32, {1, 8, 4}, std::vector<double>(32, 3.0), 1e-5);
    }
  }
}

TEST(Resize, CropsAndExtrapolates) {
  const Tensor x = floats({0, 10, 20, 30}, {4});
  const Tensor roi = floats({0.5F, 1.5F});
  const Attributes crop = {
      {"mode", "linear"}, {"coordinate_transformation_mode", "tf_crop_and_resize"}, {"extrapolation_value", -1.0}};
  expect_tensor(run("Resize", {x, roi, none(), longs({3})}, crop), DType::f32, {3}, {15, 30, -1});
}

TEST(Resize, KeepsTheAspectRatio) {
  const Tensor x(DType::f32, {1, 1, 2, 4});
  const auto shape = [&](const char* policy) {
    return run("Resize", {x, none(), none(), longs({7, 8})},
               {{"axes", std::vector<std::int64_t>{2, 3}}, {"keep_aspect_ratio_policy", policy}})
        .shape()
        .to_string();
  };
  EXPECT_EQ(shape("stretch"), "1x1x7x8");
  EXPECT_EQ(shape("not_larger"), "1x1x4x8");
  EXPECT_EQ(shape("not_smaller"), "1x1x7x14");
}

TEST(Resize, KeepsAnIntegerThatIsTheSameAllOver) {
  for (const DType dtype : {DType::i8, DType::u8, DType::i32, DType::i64}) {
    const Tensor x = Tensor::from<float>(std::vector<float>(12, 7), {3, 4}).cast(dtype);
    for (const char* mode : {"linear", "cubic"}) {
      const Tensor y = run("Resize", {x, none(), none(), longs({7, 11})}, {{"mode", mode}});
      expect_tensor(y, dtype, {7, 11}, std::vector<double>(77, 7));
    }
  }
}

TEST(Resize, IntegersAreRoundedAndKeptInRange) {
  const Tensor x = floats({0, 3}).cast(DType::u8);
  expect_tensor(run("Resize", {x, none(), none(), longs({4})}, {{"mode", "linear"}}), DType::u8, {4}, {0, 1, 2, 3});
  const auto step_up = [](DType dtype, double low, double high) {
    const Tensor steps = Tensor::from<double>({low, low, high, high}, {4}).cast(dtype);
    return run("Resize", {steps, none(), none(), longs({8})}, {{"mode", "cubic"}});
  };
  for (const DType dtype : {DType::u8, DType::i8}) {
    const std::int64_t low = dtype == DType::i8 ? -128 : 0;
    const Tensor y = step_up(dtype, static_cast<double>(low), static_cast<double>(low + 255));
    EXPECT_EQ(y.integer(2), low) << dtype.name();
    EXPECT_EQ(y.integer(5), low + 255) << dtype.name();
  }
  EXPECT_LT(step_up(DType::i64, 0, 255).integer(2), 0);
  EXPECT_GT(step_up(DType::i64, 0, 255).integer(5), 255);
  EXPECT_EQ(step_up(DType::u64, 0, 255).view<std::uint64_t>()[2], 0U);
  const double most = 0x1p62 * 1.9;
  EXPECT_GT(step_up(DType::i64, -most, most).integer(5), INT64_MAX - 4096);
  EXPECT_EQ(step_up(DType::i64, -most, most).integer(2), INT64_MIN);
}

TEST(Resize, PlacesBetweenNeighboursAreExactToTheLastBits) {
  const Tensor x = Tensor::from<double>({0, 7}, {2});
  const Tensor y = run("Resize", {x, none(), none(), longs({7})}, {{"mode", "linear"}});
  for (std::int64_t i = 0; i < 7; ++i) {
    const double place = std::clamp((static_cast<double>(i) + 0.5) * 2 / 7 - 0.5, 0.0, 1.0);
    EXPECT_NEAR(y.number(i), 7 * place, 1e-14);
  }
}

TEST(Resize, CropsTheNearestByWholeSizes) {
  for (std::int64_t in = 3; in < 100; in += 2) {
    std::vector<float> values(static_cast<std::size_t>(in));
    std::iota(values.begin(), values.end(), 0.0F);
    const Tensor y = run("Resize", {Tensor::from(values, {in}), floats({0, 1}), none(), longs({3})},
                         {{"coordinate_transformation_mode", "tf_crop_and_resize"}, {"nearest_mode", "floor"}});
    const std::int64_t middle = in / 2;
    EXPECT_EQ(y.number(1), static_cast<double>(middle)) << "of " << in;
  }
}

TEST(Resize, RefusesWhatDoesNotFit) {
  const Tensor x(DType::f32, {2, 2});
  EXPECT_NE(refusal("Resize", {x, none(), floats({1})}).find("scales must be 2 f32 values"), std::string::npos);
  EXPECT_NE(refusal("Resize", {x, none(), floats({1, 0})}).find("scales must be positive"), std::string::npos);
  EXPECT_NE(refusal("Resize", {x}).find("exactly one of scales and sizes"), std::string::npos);
  EXPECT_NE(refusal("Resize", {x, none(), floats({1, 2})}, {{"mode", "sinc"}}).find("mode 'sinc' is unknown"),
            std::string::npos);
  EXPECT_NE(
      refusal("Resize", {Tensor(DType::f32, {0, 2}), none(), none(), longs({2, 2})}).find("no elements to make 2 of"),
      std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
