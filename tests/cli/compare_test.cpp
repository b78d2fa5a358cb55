// The comparing rule of `lathe test`.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/compare.h"

namespace lathe::cli {
namespace {

const float kNan = std::nanf("");
const float kInf = INFINITY;

std::string compare(const Value& expected, const Value& actual, const Tolerance& tolerance = {}) {
  return difference(expected, actual, tolerance).value_or("same");
}
Tensor floats(std::initializer_list<float> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

TEST(Compare, FloatsWithinBothTolerances) {
  const Tolerance t{.relative = 1e-2, .absolute = 1e-3};
  EXPECT_EQ(compare(floats({100, 0}), floats({100.9F, 0.0009F}), t), "same");
  EXPECT_EQ(compare(floats({100, 0}), floats({101.1F, 0}), t),
            "1 of 2 elements differ, first at [0]: expected 100, got 101.099998");
  EXPECT_EQ(compare(floats({100, 0}), floats({100, 0.0011F}), t),
            "1 of 2 elements differ, first at [1]: expected 0, got 0.00109999999");
}

TEST(Compare, NonFiniteValuesExactly) {
  EXPECT_EQ(compare(floats({kNan, kInf, -kInf}), floats({kNan, kInf, -kInf})), "same");
  EXPECT_NE(compare(floats({kInf}), floats({-kInf})), "same");
  EXPECT_NE(compare(floats({kNan}), floats({0})), "same");
  EXPECT_NE(compare(floats({1}), floats({kNan})), "same");
  EXPECT_NE(compare(floats({kInf}), floats({3e38F})), "same");
}

TEST(Compare, DtypesAndShapes) {
  EXPECT_EQ(compare(Tensor(DType::f32, {2, 3}), Tensor(DType::f64, {2, 3})), "dtype f64, expected f32");
  EXPECT_EQ(compare(Tensor(DType::f32, {2, 3}), Tensor(DType::f32, {3, 2})), "shape 3x2, expected 2x3");
  EXPECT_EQ(compare(Tensor(DType::f32, {1}), Tensor(DType::f32, {})), "shape scalar, expected 1");
  const Tolerance shape_only{.shape_only = true};
  EXPECT_EQ(compare(floats({1, 2}), floats({3, 4}), shape_only), "same");
  EXPECT_NE(compare(floats({1, 2}), floats({3}), shape_only), "same");
}

TEST(Compare, IntegersStringsAndBooleansExactly) {
  EXPECT_EQ(compare(Tensor::from<std::int64_t>({1, 1'000'000'000'001}, {2}),
                    Tensor::from<std::int64_t>({1, 1'000'000'000'002}, {2})),
            "1 of 2 elements differ, first at [1]: expected 1000000000001, got 1000000000002");
  EXPECT_EQ(compare(Tensor::from<std::string>({"a", "b"}, {1, 2}), Tensor::from<std::string>({"a", "c"}, {1, 2})),
            "1 of 2 elements differ, first at [0,1]: expected \"b\", got \"c\"");
  EXPECT_NE(compare(Tensor::from<bool>({true}, {1}), Tensor::from<bool>({false}, {1})), "same");
}

TEST(Compare, IntegersByStepsWhereTheseAreAllowed) {
  const Tolerance step{.relative = 1e-3, .absolute = 1};
  const auto longs = [](std::int64_t v) { return Tensor::from<std::int64_t>({v}, {1}); };
  EXPECT_EQ(compare(longs(5), longs(6), step), "same");
  EXPECT_NE(compare(longs(5000), longs(5002), step), "same");
  EXPECT_NE(compare(longs(5000), longs(5001)), "same");
  EXPECT_NE(compare(longs(INT64_MAX), longs(INT64_MAX - 1)), "same");
  EXPECT_NE(compare(Tensor::from<bool>({true}, {1}), Tensor::from<bool>({false}, {1}), step), "same");
}

TEST(Compare, ComplexNumbersInBothParts) {
  using C = std::complex<float>;
  EXPECT_EQ(compare(Tensor::from<C>({C(1, 2)}, {1}), Tensor::from<C>({C(1, 2)}, {1})), "same");
  EXPECT_NE(compare(Tensor::from<C>({C(1, 2)}, {1}), Tensor::from<C>({C(1, 2.1F)}, {1})), "same");
}

TEST(Compare, SequencesOptionalsAndMapsPartByPart) {
  EXPECT_EQ(compare(Sequence{floats({1}), floats({2})}, Sequence{floats({1}), floats({3})}),
            "element 1: 1 of 1 elements differ, first at [0]: expected 2, got 3");
  EXPECT_EQ(compare(Sequence{floats({1})}, Sequence{}), "sequence of 0, expected 1");
  EXPECT_EQ(compare(Sequence{}, floats({1})), "a tensor, expected a sequence");
  const Optional absent, filled{std::make_shared<Value>(floats({1}))};
  EXPECT_EQ(compare(filled, filled), "same");
  EXPECT_EQ(compare(absent, absent), "same");
  EXPECT_EQ(compare(filled, absent), "an absent optional, expected a filled one");
  EXPECT_EQ(compare(Map{{"a", floats({1})}}, Map{{"b", floats({1})}}), "key 'a' is missing");
  EXPECT_EQ(compare(Map{{std::int64_t{1}, floats({1})}}, Map{{std::int64_t{1}, floats({1})}}), "same");
}

}  // namespace
}  // namespace lathe::cli
