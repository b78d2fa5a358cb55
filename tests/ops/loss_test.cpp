// Losses against their sums written out.
#include <cmath>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

const Attributes kEach{{"reduction", "none"}};

TEST(Loss, NegativeLogLikelihood) {
  const Tensor x = floats({-1, -2, -3, -4, -5, -6}, {2, 3});
  const Tensor classes = longs({2, 0});
  const Tensor weight = floats({1, 2, 3});
  expect_tensor(run("NegativeLogLikelihoodLoss", {x, classes}, kEach), DType::f32, {2}, {3, 4});
  expect_tensor(run("NegativeLogLikelihoodLoss", {x, classes}), DType::f32, {}, {3.5});
  expect_tensor(run("NegativeLogLikelihoodLoss", {x, classes, weight}), DType::f32, {}, {(9.0 + 4) / 4});
  expect_tensor(run("NegativeLogLikelihoodLoss", {x, longs({-1, 0}), weight}, {{"ignore_index", std::int64_t{-1}}}),
                DType::f32, {}, {4});
  EXPECT_NE(refusal("NegativeLogLikelihoodLoss", {x, longs({3, 0})}).find("index 3"), std::string::npos);
  EXPECT_NE(refusal("NegativeLogLikelihoodLoss", {x, longs({3})}).find("expected 2"), std::string::npos);
}

TEST(Loss, SoftmaxCrossEntropy) {
  const std::vector<Value> out =
      run_op("SoftmaxCrossEntropyLoss", {floats({0, 0, 1, 0}, {2, 2}), longs({0, 0})}, {{"reduction", "sum"}}, 2);
  const double right = -std::log(std::exp(1.0) / (1 + std::exp(1.0)));
  expect_tensor(out[0].tensor(), DType::f32, {}, {std::log(2.0) + right});
  expect_tensor(out[1].tensor(), DType::f32, {2, 2}, {-std::log(2.0), -std::log(2.0), -right, -1 - right});
}

}  // namespace
}  // namespace lathe::ops
