// Reductions, softmax and normalizations against sums written out.
#include <cmath>
#include <limits>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool mentions(const std::string& message, std::string_view text) { return message.find(text) != std::string::npos; }

const Attributes kDropDims{{"keepdims", std::int64_t{0}}};

TEST(Reduce, OverNamedAxes) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  expect_tensor(run("ReduceSum", {x, longs({-2})}), DType::f32, {2, 1, 2}, {4, 6, 12, 14});
  expect_tensor(run("ReduceSum", {x, longs({2, 0})}, kDropDims), DType::f32, {2}, {14, 22});
  expect_tensor(run("ReduceProd", {x, longs({0})}, kDropDims), DType::f32, {2, 2}, {5, 12, 21, 32});
  expect_tensor(run("ReduceMax", {x, longs({1})}, kDropDims), DType::f32, {2, 2}, {3, 4, 7, 8});
  expect_tensor(run("ReduceMin", {x}), DType::f32, {1, 1, 1}, {1});
  expect_tensor(run("ReduceMean", {x}, kDropDims), DType::f32, {}, {4.5});
}

TEST(Reduce, NoAxesMeansAllOrNone) {
  const Tensor x = floats({1, -2}, {2});
  const Attributes noop{{"noop_with_empty_axes", std::int64_t{1}}};
  for (const char* op : {"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean"}) {
    expect_tensor(run(op, {x, Tensor(DType::i64, {0})}, noop), DType::f32, {2}, {1, -2});
  }
  expect_tensor(run("ReduceL1", {x}, noop), DType::f32, {2}, {1, 2});
  expect_tensor(run("ReduceSumSquare", {x}, noop), DType::f32, {2}, {1, 4});
  expect_tensor(run("ReduceLogSumExp", {x}, noop), DType::f32, {2}, {1, -2});
  expect_tensor(run("ReduceSum", {x, Tensor(DType::i64, {0})}), DType::f32, {1}, {-1});
}

TEST(Reduce, ScalarsReduceToThemselves) {
  expect_tensor(run("ReduceSum", {Tensor::scalar(3.0F)}), DType::f32, {}, {3});
  expect_tensor(run("ReduceLogSumExp", {Tensor::scalar(3.0F)}), DType::f32, {}, {3});
}

TEST(Reduce, EmptySetsGiveTheNeutralElement) {
  const Tensor x(DType::f32, {2, 0});
  expect_tensor(run("ReduceSum", {x, longs({1})}), DType::f32, {2, 1}, {0, 0});
  expect_tensor(run("ReduceProd", {x, longs({1})}), DType::f32, {2, 1}, {1, 1});
  expect_tensor(run("ReduceMax", {x, longs({1})}), DType::f32, {2, 1}, {-kInf, -kInf});
  expect_tensor(run("ReduceMin", {x, longs({1})}), DType::f32, {2, 1}, {kInf, kInf});
  expect_tensor(run("ReduceMean", {x, longs({1})}), DType::f32, {2, 1}, {kNan, kNan});
  expect_tensor(run("ReduceLogSumExp", {x, longs({1})}), DType::f32, {2, 1}, {-kInf, -kInf});
  expect_tensor(run("ReduceMax", {Tensor(DType::i32, {0})}), DType::i32, {1}, {std::numeric_limits<int>::min()});
}

TEST(Reduce, Integers) {
  const Tensor x = longs({1, 2, 4}).cast(DType::i32);
  expect_tensor(run("ReduceMean", {x}), DType::i32, {1}, {2});
  expect_tensor(run("ReduceL2", {longs({3, 4}).cast(DType::i32)}), DType::i32, {1}, {5});
  const Tensor large = longs({2000000000, 2000000000}).cast(DType::i32);
  expect_tensor(run("ReduceMean", {large}), DType::i32, {1}, {2000000000});
}

TEST(Reduce, Booleans) {
  expect_tensor(run("ReduceMax", {bools({false, true})}), DType::boolean, {1}, {1});
  expect_tensor(run("ReduceMin", {bools({false, true})}), DType::boolean, {1}, {0});
  EXPECT_TRUE(mentions(refusal("ReduceSum", {bools({true})}), "got bool"));
}

TEST(Reduce, Norms) {
  const Tensor x = floats({3, -4}, {2});
  expect_tensor(run("ReduceL1", {x}), DType::f32, {1}, {7});
  expect_tensor(run("ReduceL2", {x}), DType::f32, {1}, {5});
  expect_tensor(run("ReduceSumSquare", {x}), DType::f32, {1}, {25});
  expect_tensor(run("ReduceLogSum", {floats({1, 3})}), DType::f32, {1}, {std::log(4.0)});
  expect_tensor(run("ReduceLogSumExp", {floats({1000, 1000})}, kDropDims), DType::f32, {}, {1000 + std::log(2.0)});
  expect_tensor(run("ReduceLogSumExp", {floats({INFINITY, 0})}), DType::f32, {1}, {kInf});
}

TEST(Reduce, NarrowFloatsAccumulateInF32) {
  const Tensor x = Tensor::from(std::vector<float>(4096, 1.0F), {4096}).cast(DType::f16);
  expect_tensor(run("ReduceSum", {x}), DType::f16, {1}, {4096}, 0);
  expect_tensor(run("ReduceL2", {x}), DType::f16, {1}, {64}, 0);
}

TEST(Reduce, Refuses) {
  EXPECT_TRUE(mentions(refusal("ReduceSum", {floats({1}), longs({1})}), "an axis is 1"));
  EXPECT_TRUE(mentions(refusal("ReduceSum", {floats({1}), longs({0, -1})}), "twice"));
  EXPECT_TRUE(mentions(refusal("ArgMax", {Tensor(DType::f32, {2, 0})}, {{"axis", std::int64_t{1}}}), "no elements"));
}

TEST(ArgMax, FirstOrLastAndNan) {
  const Tensor x = floats({2, 5, 5, 1, 0, 0}, {2, 3});
  const auto attributes = [](std::int64_t axis, std::int64_t last) {
    return Attributes{{"axis", axis}, {"keepdims", std::int64_t{0}}, {"select_last_index", last}};
  };
  expect_tensor(run("ArgMax", {x}, attributes(1, 0)), DType::i64, {2}, {1, 0});
  expect_tensor(run("ArgMax", {x}, attributes(1, 1)), DType::i64, {2}, {2, 0});
  expect_tensor(run("ArgMin", {x}, attributes(-1, 0)), DType::i64, {2}, {0, 1});
  expect_tensor(run("ArgMin", {x}, attributes(-1, 1)), DType::i64, {2}, {0, 2});
  expect_tensor(run("ArgMax", {x}), DType::i64, {1, 3}, {0, 0, 0});
  expect_tensor(run("ArgMax", {floats({1, NAN, 3})}), DType::i64, {1}, {1});
}

TEST(Softmax, OfLargeNumbers) {
  const double e = std::exp(-1.0);
  expect_tensor(run("Softmax", {floats({1000, 999, 1, 1}, {2, 2})}), DType::f32, {2, 2},
                {1 / (1 + e), e / (1 + e), 0.5, 0.5});
  expect_tensor(run("Softmax", {floats({1, 2, 1, 2}, {2, 2})}, {{"axis", std::int64_t{0}}}), DType::f32, {2, 2},
                {0.5, 0.5, 0.5, 0.5});
  expect_tensor(run("LogSoftmax", {floats({1000, 999})}), DType::f32, {2}, {-std::log1p(e), -1 - std::log1p(e)});
  expect_tensor(run("Hardmax", {floats({1, 3, 3, 2}, {2, 2})}), DType::f32, {2, 2}, {0, 1, 1, 0});
  expect_tensor(run("Softmax", {Tensor(DType::f32, {2, 0})}), DType::f32, {2, 0}, {});
  EXPECT_TRUE(mentions(refusal("Softmax", {longs({1})}), "input 0 must be f16, bf16, f32 or f64, got i64"));
  EXPECT_TRUE(mentions(refusal("Softmax", {floats({1})}, {{"axis", std::int64_t{1}}}), "axis is 1"));
}

std::vector<double> normalized(const std::vector<double>& x, double epsilon) {
  double mean = 0;
  double square = 0;
  for (double v : x) mean += v / static_cast<double>(x.size());
  for (double v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y;
  for (double v : x) y.push_back((v - mean) / std::sqrt(square + epsilon));
  return y;
}

TEST(Normalization, Layer) {
  const Tensor x = floats({1, 2, 4, -1, 0, 3}, {2, 3});
  const std::vector<Value> out = run_op("LayerNormalization", {x, floats({1, 2, 3}), floats({0, 1, 0})}, {}, 3);
  const std::vector<double> a = normalized({1, 2, 4}, 1e-5);
  const std::vector<double> b = normalized({-1, 0, 3}, 1e-5);
  expect_tensor(out[0].tensor(), DType::f32, {2, 3}, {a[0], 2 * a[1] + 1, 3 * a[2], b[0], 2 * b[1] + 1, 3 * b[2]},
                1e-5);
  expect_tensor(out[1].tensor(), DType::f32, {2, 1}, {7.0 / 3, 2.0 / 3});
  expect_tensor(out[2].tensor(), DType::f32, {2, 1}, {1 / std::sqrt(14.0 / 9 + 1e-5), 1 / std::sqrt(26.0 / 9 + 1e-5)},
                1e-5);
  EXPECT_TRUE(mentions(refusal("LayerNormalization", {x, floats({1, 2})}), "broadcast"));
}

TEST(Normalization, InstanceAndGroup) {
  const Tensor x = floats({1, 2, 4, 8, 3, 5, 5, 9}, {1, 4, 2});
  const Tensor ones = floats({1, 1, 1, 2});
  const Tensor zeros = floats({0, 0, 0, 1});
  const std::vector<double> c0 = normalized({1, 2}, 1e-5);
  const std::vector<double> c3 = normalized({5, 9}, 1e-5);
  const std::vector<double> instance = numbers(run("InstanceNormalization", {x, ones, zeros}));
  EXPECT_NEAR(instance[0], c0[0], 1e-5);
  EXPECT_NEAR(instance[7], 2 * c3[1] + 1, 1e-5);
  const std::vector<double> g0 = normalized({1, 2, 4, 8}, 1e-5);
  const std::vector<double> g1 = normalized({3, 5, 5, 9}, 1e-5);
  expect_tensor(run("GroupNormalization", {x, ones, zeros}, {{"num_groups", std::int64_t{2}}}), DType::f32, {1, 4, 2},
                {g0[0], g0[1], g0[2], g0[3], g1[0], g1[1], 2 * g1[2] + 1, 2 * g1[3] + 1}, 1e-5);
  EXPECT_TRUE(mentions(refusal("GroupNormalization", {x, ones, zeros}, {{"num_groups", std::int64_t{3}}}), "3 groups"));
  EXPECT_TRUE(mentions(refusal("InstanceNormalization", {x, floats({1}), zeros}), "per channel"));
}

TEST(Normalization, Batch) {
  const Tensor x = floats({1, 2, 3, 4}, {2, 2});
  const Tensor scale = floats({2, 1});
  const Tensor bias = floats({0, 1});
  const Tensor mean = floats({1, 2});
  const Tensor variance = floats({4, 1});
  const double inverse = 1 / std::sqrt(4 + 1e-5);
  expect_tensor(run("BatchNormalization", {x, scale, bias, mean, variance}), DType::f32, {2, 2},
                {0, 1, 4 * inverse, 2 / std::sqrt(1 + 1e-5) + 1}, 1e-5);
  const std::vector<Value> out =
      run_op("BatchNormalization", {x, scale, bias, mean, variance}, {{"training_mode", std::int64_t{1}}}, 3);
  const std::vector<double> n = normalized({1, 3}, 1e-5);
  expect_tensor(out[0].tensor(), DType::f32, {2, 2}, {2 * n[0], n[0] + 1, 2 * n[1], n[1] + 1}, 1e-5);
  expect_tensor(out[1].tensor(), DType::f32, {2}, {0.9 * 1 + 0.1 * 2, 0.9 * 2 + 0.1 * 3});
  expect_tensor(out[2].tensor(), DType::f32, {2}, {0.9 * 4 + 0.1 * 1, 0.9 * 1 + 0.1 * 1});
  EXPECT_TRUE(mentions(refusal("BatchNormalization", {x, scale, bias, mean, variance}, {}, 3), "training mode only"));
}

TEST(Normalization, RmsAndLp) {
  const double inverse = 1 / std::sqrt(12.5 + 1e-5);
  expect_tensor(run("RMSNormalization", {floats({3, 4}), floats({1, 2})}), DType::f32, {2}, {3 * inverse, 8 * inverse});
  expect_tensor(run("LpNormalization", {floats({3, 4, 0, 0}, {2, 2})}), DType::f32, {2, 2}, {0.6, 0.8, 0, 0});
  expect_tensor(run("LpNormalization", {floats({3, -1})}, {{"p", std::int64_t{1}}}), DType::f32, {2}, {0.75, -0.25});
  EXPECT_TRUE(mentions(refusal("LpNormalization", {floats({1})}, {{"p", std::int64_t{3}}}), "p must be 1 or 2"));
}

TEST(Normalization, LocalResponse) {
  const Tensor x = floats({1, 2, 3}, {1, 3, 1});
  const Attributes attributes{{"size", std::int64_t{3}}, {"alpha", 3.0}, {"beta", 1.0}, {"bias", 1.0}};
  expect_tensor(run("LRN", {x}, attributes), DType::f32, {1, 3, 1}, {1.0 / 6, 2.0 / 15, 3.0 / 14});
}

}  // namespace
}  // namespace lathe::ops
