// Views, reshapes, Concat and Pad: where elements go, and what is refused.
#include <limits>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Tensor counted(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(values, shape);
}

bool mentions(const std::string& message, std::string_view text) { return message.find(text) != std::string::npos; }

TEST(Transpose, ReversesOrPermutes) {
  const Tensor x = counted({2, 3});
  expect_tensor(run("Transpose", {x}), DType::f32, {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_tensor(run("Transpose", {counted({1, 2, 3})}, {{"perm", std::vector<std::int64_t>{2, 0, 1}}}), DType::f32,
                {3, 1, 2}, {0, 3, 1, 4, 2, 5});
  EXPECT_TRUE(mentions(refusal("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 0}}}), "twice"));
  EXPECT_TRUE(mentions(refusal("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0}}}), "rank 2"));
}

TEST(Transpose, MovesTextAndPackedElements) {
  const Tensor text = run("Transpose", {texts({"a", "b", "c", "d"}, {2, 2})});
  EXPECT_EQ(text.view<std::string>()[1], "c");
  EXPECT_EQ(text.view<std::string>()[2], "b");
  expect_tensor(run("Transpose", {longs({1, -2, 3, -4, 5, -6}, {2, 3}).cast(DType::i4)}), DType::i4, {3, 2},
                {1, -4, -2, 5, 3, -6});
}

struct SliceCase {
  std::int64_t start, end, step;
  std::vector<double> expected;
};

TEST(Slice, FollowsNumpyAlongOneAxis) {
  const SliceCase cases[] = {
      {1, 4, 1, {1, 2, 3}},
      {-3, kMax, 1, {3, 4, 5}},
      {0, 6, 2, {0, 2, 4}},
      {kMax, kMin, -1, {5, 4, 3, 2, 1, 0}},
      {4, 0, -2, {4, 2}},
      {-1, -4, -1, {5, 4, 3}},
      {3, 3, 1, {}},
      {10, 20, 1, {}},
      {-100, 2, 1, {0, 1}},
      {0, 6, kMax, {0}},
      {5, kMin, kMin + 1, {5}},
      {5, kMin, kMin, {5}},
      {2, -100, -1, {2, 1, 0}},
      {0, -1, -1, {}},
      {-100, kMin, -1, {0}},
  };
  for (const SliceCase& c : cases) {
    SCOPED_TRACE(fmt::format("{}:{}:{}", c.start, c.end, c.step));
    const Tensor y = run("Slice", {counted({6}), longs({c.start}), longs({c.end}), longs({0}), longs({c.step})});
    expect_tensor(y, DType::f32, {static_cast<std::int64_t>(c.expected.size())}, c.expected);
  }
}

TEST(Slice, TakesAxesInAnyOrderAndLeavesTheRest) {
  const Tensor x = counted({2, 3, 4});
  expect_tensor(run("Slice", {x, longs({3, 1}), longs({1, 2}), longs({-1, 0}), longs({-1, 1})}), DType::f32, {1, 3, 2},
                {15, 14, 19, 18, 23, 22});
  expect_tensor(run("Slice", {x, longs({1}), longs({2})}), DType::f32, {1, 3, 4},
                {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  expect_tensor(run("Slice", {Tensor(DType::f32, {0, 2}), longs({0}), longs({5}), longs({0}), longs({-1})}), DType::f32,
                {0, 2}, {});
}

TEST(Slice, Refuses) {
  const Tensor x = counted({4});
  EXPECT_TRUE(mentions(refusal("Slice", {x, longs({0}), longs({2}), longs({0}), longs({0})}), "step of axis 0 is 0"));
  EXPECT_TRUE(mentions(refusal("Slice", {x, longs({0}), longs({2}), longs({1})}), "an axis is 1"));
  EXPECT_TRUE(mentions(refusal("Slice", {x, longs({0}), longs({2, 3})}), "entries"));
  EXPECT_TRUE(mentions(refusal("Slice", {x, longs({0, 0}), longs({2, 2}), longs({0, -1})}), "twice"));
}

TEST(Expand, BroadcastsBothWays) {
  expect_tensor(run("Expand", {floats({1, 2}, {2, 1}), longs({1, 3})}), DType::f32, {2, 3}, {1, 1, 1, 2, 2, 2});
  expect_tensor(run("Expand", {floats({1}, {1}), longs({0})}), DType::f32, {0}, {});
  EXPECT_TRUE(mentions(refusal("Expand", {counted({2}), longs({3})}), "broadcast"));
  EXPECT_TRUE(mentions(refusal("Expand", {counted({1}), longs({-3})}), "negative"));
}

TEST(Squeeze, DropsNamedOrAllOnes) {
  EXPECT_EQ(run("Squeeze", {counted({1, 3, 1})}).shape(), (Shape{3}));
  EXPECT_EQ(run("Squeeze", {counted({1, 3, 1}), longs({-1})}).shape(), (Shape{1, 3}));
  EXPECT_TRUE(mentions(refusal("Squeeze", {counted({1, 3}), longs({1})}), "is not 1"));
}

TEST(Unsqueeze, CountsAxesInTheOutput) {
  expect_tensor(run("Unsqueeze", {floats({1, 2}), longs({0, -1})}), DType::f32, {1, 2, 1}, {1, 2});
  EXPECT_TRUE(mentions(refusal("Unsqueeze", {floats({1, 2}), longs({0, -3})}), "twice"));
  EXPECT_TRUE(mentions(refusal("Unsqueeze", {floats({1, 2}), longs({2})}), "an axis is 2"));
}

TEST(Split, GivenOrEqualParts) {
  std::vector<Value> out = run_op("Split", {counted({5}), longs({2, 0, 3})}, {}, 3);
  expect_tensor(out[0].tensor(), DType::f32, {2}, {0, 1});
  expect_tensor(out[1].tensor(), DType::f32, {0}, {});
  expect_tensor(out[2].tensor(), DType::f32, {3}, {2, 3, 4});
  out = run_op("Split", {counted({2, 5})}, {{"axis", std::int64_t{-1}}, {"num_outputs", std::int64_t{2}}}, 2);
  expect_tensor(out[0].tensor(), DType::f32, {2, 3}, {0, 1, 2, 5, 6, 7});
  expect_tensor(out[1].tensor(), DType::f32, {2, 2}, {3, 4, 8, 9});
  EXPECT_TRUE(mentions(refusal("Split", {counted({5}), longs({2, 2})}, {}, 2), "adds up to 4"));
}

TEST(Reshape, CopiesAndInfers) {
  EXPECT_EQ(run("Reshape", {counted({2, 3, 4}), longs({0, -1})}).shape(), (Shape{2, 12}));
  EXPECT_EQ(run("Reshape", {Tensor(DType::f32, {0, 3, 4}), longs({0, -1})}).shape(), (Shape{0, 12}));
  EXPECT_EQ(run("Reshape", {Tensor(DType::f32, {0, 3}), longs({3, 0})}, {{"allowzero", std::int64_t{1}}}).shape(),
            (Shape{3, 0}));
  EXPECT_EQ(run("Reshape", {counted({1}), Tensor(DType::i64, {0})}).shape(), (Shape{}));
  EXPECT_EQ(run("Reshape", {texts({"x", "y"}, {2}), longs({2, 1})}).view<std::string>()[1], "y");
  EXPECT_TRUE(mentions(refusal("Reshape", {counted({5}), longs({2, -1})}), "cannot be reshaped"));
  EXPECT_TRUE(mentions(refusal("Reshape", {counted({5}), longs({-1, -1})}), "more than one -1"));
  EXPECT_TRUE(mentions(refusal("Reshape", {counted({5}), longs({5, 0})}), "has rank 1"));
  EXPECT_TRUE(mentions(refusal("Reshape", {counted({6}), longs({4})}), "cannot be reshaped"));
}

TEST(Flatten, SplitsAtTheAxis) {
  const auto shape_of = [](std::int64_t axis) {
    return run("Flatten", {counted({2, 3, 4, 5})}, {{"axis", axis}}).shape();
  };
  EXPECT_EQ(shape_of(0), (Shape{1, 120}));
  EXPECT_EQ(shape_of(1), (Shape{2, 60}));
  EXPECT_EQ(shape_of(-2), (Shape{6, 20}));
  EXPECT_EQ(shape_of(4), (Shape{120, 1}));
  EXPECT_EQ(run("Flatten", {Tensor(DType::f32, {0, 3})}).shape(), (Shape{0, 3}));
  const auto flattened = [](const Shape& shape, std::int64_t axis) {
    return run("Flatten", {Tensor(DType::f32, shape)}, {{"axis", axis}}).shape();
  };
  EXPECT_EQ(flattened({2, 3, 0}, 2), (Shape{6, 0}));
  EXPECT_EQ(flattened({4, 0, 1, 1}, 3), (Shape{0, 1}));
  EXPECT_EQ(flattened({3, 0, 4}, -1), (Shape{0, 4}));
  EXPECT_EQ(flattened({1, 0, 1, 0, 0}, 2), (Shape{0, 0}));
  EXPECT_TRUE(mentions(refusal("Flatten", {counted({2})}, {{"axis", std::int64_t{2}}}), "axis is 2"));
}

TEST(Tile, RepeatsEachAxis) {
  expect_tensor(run("Tile", {floats({1, 2, 3, 4}, {2, 2}), longs({1, 2})}), DType::f32, {2, 4},
                {1, 2, 1, 2, 3, 4, 3, 4});
  expect_tensor(run("Tile", {floats({1, 2}), longs({0})}), DType::f32, {0}, {});
  EXPECT_TRUE(mentions(refusal("Tile", {floats({1, 2}), longs({1, 2})}), "rank 1"));
}

TEST(DepthToSpace, UndoesSpaceToDepth) {
  const Tensor x = counted({1, 2, 4, 6});
  for (const char* mode : {"DCR", "CRD"}) {
    const Attributes attributes{{"blocksize", std::int64_t{2}}, {"mode", mode}};
    const Tensor deep = run("SpaceToDepth", {x}, attributes);
    EXPECT_EQ(deep.shape(), (Shape{1, 8, 2, 3}));
    expect_tensor(run("DepthToSpace", {deep}, attributes), DType::f32, {1, 2, 4, 6}, numbers(x));
  }
  EXPECT_TRUE(mentions(refusal("DepthToSpace", {x}, {{"blocksize", std::int64_t{2}}}), "multiple of 4"));
  for (const Shape& empty : {Shape{2, 4, 0, 4}, Shape{0, 15, 0, 2}, Shape{1, 0, 2, 2}}) {
    const Tensor deep = run("SpaceToDepth", {Tensor(DType::f32, empty)}, {{"blocksize", std::int64_t{2}}});
    EXPECT_EQ(deep.shape(), (Shape{empty[0], empty[1] * 4, empty[2] / 2, empty[3] / 2}));
    EXPECT_EQ(run("DepthToSpace", {deep}, {{"blocksize", std::int64_t{2}}}).shape(), empty);
  }
}

TEST(Concat, JoinsAlongTheAxis) {
  const Tensor a = counted({2, 1});
  const Tensor b = counted({2, 2});
  expect_tensor(run("Concat", {a, b, Tensor(DType::f32, {2, 0})}, {{"axis", std::int64_t{1}}}), DType::f32, {2, 3},
                {0, 0, 1, 1, 2, 3});
  expect_tensor(run("Concat", {counted({1, 2}), b}, {{"axis", std::int64_t{-2}}}), DType::f32, {3, 2},
                {0, 1, 0, 1, 2, 3});
  EXPECT_EQ(run("Concat", {texts({"x"}, {1}), texts({"y"}, {1})}, {{"axis", std::int64_t{0}}}).view<std::string>()[1],
            "y");
  EXPECT_TRUE(mentions(refusal("Concat", {a, b}, {{"axis", std::int64_t{0}}}), "differ along axis 1"));
  EXPECT_TRUE(mentions(refusal("Concat", {a, longs({1, 2}, {2, 1})}, {{"axis", std::int64_t{1}}}), "one dtype"));
}

TEST(Pad, ConstantWithCuts) {
  const Tensor x = counted({2, 3});
  expect_tensor(run("Pad", {x, longs({0, 1, 1, -1}), Tensor::scalar(9.0F)}), DType::f32, {3, 3},
                {9, 0, 1, 9, 3, 4, 9, 9, 9});
  expect_tensor(run("Pad", {longs({1, 2}), longs({1, 1})}), DType::i64, {4}, {0, 1, 2, 0});
  expect_tensor(run("Pad", {counted({2, 2}), longs({1, 0}), Tensor(), longs({-1})}), DType::f32, {2, 3},
                {0, 0, 1, 0, 2, 3});
  EXPECT_EQ(run("Pad", {texts({"a"}, {1}), longs({1, 0}), texts({"-"}, {})}).view<std::string>()[0], "-");
}

TEST(Pad, ModesThatReadTheInput) {
  const Tensor x = counted({3});
  const auto mode = [](const char* name) { return Attributes{{"mode", name}}; };
  expect_tensor(run("Pad", {x, longs({3, 4})}, mode("reflect")), DType::f32, {10}, {1, 2, 1, 0, 1, 2, 1, 0, 1, 2});
  expect_tensor(run("Pad", {x, longs({2, 1})}, mode("edge")), DType::f32, {6}, {0, 0, 0, 1, 2, 2});
  expect_tensor(run("Pad", {x, longs({4, 2})}, mode("wrap")), DType::f32, {9}, {2, 0, 1, 2, 0, 1, 2, 0, 1});
  expect_tensor(run("Pad", {x, longs({-1, 1})}, mode("edge")), DType::f32, {3}, {1, 2, 2});
  EXPECT_TRUE(mentions(refusal("Pad", {x, longs({1, 1})}, mode("mirror")), "mode must be"));
  EXPECT_TRUE(mentions(refusal("Pad", {x, longs({-2, -2})}), "cut more"));
  for (const std::int64_t far : {INT64_MIN, INT64_MAX})
    EXPECT_TRUE(mentions(refusal("Pad", {x, longs({far, 1})}), "too large"));
  EXPECT_TRUE(mentions(refusal("Pad", {x, longs({1})}), "expected 2"));
  EXPECT_TRUE(mentions(refusal("Pad", {Tensor(DType::f32, {0}), longs({1, 0})}, mode("edge")), "no elements"));
}

}  // namespace
}  // namespace lathe::ops
