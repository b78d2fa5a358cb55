// Older forms of operators arrive in the newest.
#include <gtest/gtest.h>

#include "tests/frontends/import_text.h"

namespace lathe::tests {
namespace {

using namespace onnx;

/// The imported text of one node `y = op(x, …)` in `opset`, without its first and last lines.
std::string upgraded(const NodeSpec& node, int opset, const std::vector<DimSpec>& dims = {2, 3},
                     std::vector<Bytes> initializers = {}, std::vector<Bytes> more_outputs = {}) {
  std::vector<Bytes> outputs = {value("y", DType::f32, {})};
  outputs.insert(outputs.end(), more_outputs.begin(), more_outputs.end());
  std::vector<Bytes> inputs = {value("x", DType::f32, dims)};
  const std::string text = import_text(
      {.graph = {.nodes = {node}, .inputs = inputs, .outputs = outputs, .initializers = std::move(initializers)},
       .opset = opset});
  const std::size_t first = text.find('\n') + 1;
  return text.substr(first, text.find("  return") - first);
}

TEST(OnnxUpgrade, AxesBecomeAnInput) {
  EXPECT_EQ(upgraded({"Squeeze", {"x"}, {"y"}, {attr("axes", Ints{0})}}, 11), R"(  %y/axes = constant i64[1] [0]
  %y = Squeeze(%x, %y/axes) @y
)");
  EXPECT_EQ(upgraded({"ReduceMean", {"x"}, {"y"}, {attr("axes", Ints{1}), attr("keepdims", 0)}}, 13),
            R"(  %y/axes = constant i64[1] [1]
  %y = ReduceMean(%x, %y/axes) {keepdims = 0} @y
)");
  EXPECT_EQ(upgraded({"ReduceSum", {"x"}, {"y"}}, 11), "  %y = ReduceSum(%x) @y\n");
  EXPECT_EQ(upgraded({"Squeeze", {"x", "a"}, {"y"}}, 13, {2, 3}, {tensor("a", {1}, Ints{0})}),
            R"(  %a = constant i64[1] [0]
  %y = Squeeze(%x, %a) @y
)");
}

TEST(OnnxUpgrade, SliceAndPadAndClip) {
  EXPECT_EQ(
      upgraded(
          {"Slice", {"x"}, {"y"}, {attr("starts", Ints{0, 1}), attr("ends", Ints{1, 9}), attr("axes", Ints{0, 1})}}, 9),
      R"(  %y/starts = constant i64[2] [0, 1]
  %y/ends = constant i64[2] [1, 9]
  %y/axes = constant i64[2] [0, 1]
  %y = Slice(%x, %y/starts, %y/ends, %y/axes) @y
)");
  EXPECT_EQ(
      upgraded({"Pad", {"x"}, {"y"}, {attr("pads", Ints{0, 1, 0, 1}), attr("mode", "constant"), attr("value", 1.5F)}},
               10),
      R"(  %y/pads = constant i64[4] [0, 1, 0, 1]
  %y/value = constant f32[] [1.5]
  %y = Pad(%x, %y/pads, %y/value) {mode = "constant"} @y
)");
  EXPECT_EQ(upgraded({"Clip", {"x"}, {"y"}, {attr("max", 6.0F)}}, 6), R"(  %y/max = constant f32[] [6.0]
  %y = Clip(%x, _, %y/max) @y
)");
}

TEST(OnnxUpgrade, SplitGetsItsSizesOrTheirNumber) {
  const std::vector<Bytes> z = {value("z", DType::f32, {})};
  EXPECT_EQ(upgraded({"Split", {"x"}, {"y", "z"}, {attr("split", Ints{1, 2}), attr("axis", 1)}}, 11, {2, 3}, {}, z),
            R"(  %y/split = constant i64[2] [1, 2]
  %y, %z = Split(%x, %y/split) {axis = 1} @y
)");
  EXPECT_EQ(upgraded({"Split", {"x"}, {"y", "z"}}, 13, {2, 3}, {}, z), "  %y, %z = Split(%x) {num_outputs = 2} @y\n");
}

TEST(OnnxUpgrade, SoftmaxOverSeveralDims) {
  EXPECT_EQ(upgraded({"Softmax", {"x"}, {"y"}}, 11), "  %y = Softmax(%x) {axis = -1} @y\n");
  EXPECT_EQ(upgraded({"Softmax", {"x"}, {"y"}, {attr("axis", 1)}}, 11, {2, 3, 4}), R"(  %y/Shape = Shape(%x) @y/Shape
  %y/Flatten = Flatten(%x) {axis = 1} @y/Flatten
  %y/before_Reshape = Softmax(%y/Flatten) {axis = -1} @y
  %y = Reshape(%y/before_Reshape, %y/Shape) {allowzero = 1} @y/Reshape
)");
  EXPECT_EQ(upgraded({"Softmax", {"x"}, {"y"}, {attr("axis", 1)}}, 13, {2, 3, 4}),
            "  %y = Softmax(%x) {axis = 1} @y\n");
}

TEST(OnnxUpgrade, BroadcastAttributes) {
  const std::vector<Bytes> w = {tensor("w", {3}, std::vector<float>{1, 2, 3})};
  EXPECT_EQ(upgraded({"Add", {"x", "w"}, {"y"}, {attr("broadcast", 1), attr("axis", 1)}}, 6, {2, 3, 4, 4}, w),
            R"(  %w = constant f32[3] [1.0, 2.0, 3.0]
  %y/axes = constant i64[2] [1, 2]
  %y/Unsqueeze = Unsqueeze(%w, %y/axes) @y/Unsqueeze
  %y = Add(%x, %y/Unsqueeze) @y
)");
  EXPECT_EQ(upgraded({"Add", {"x", "w"}, {"y"}, {attr("broadcast", 1)}}, 6, {2, 3}, w),
            R"(  %w = constant f32[3] [1.0, 2.0, 3.0]
  %y = Add(%x, %w) @y
)");
}

TEST(OnnxUpgrade, ResamplingOfTheOldKind) {
  EXPECT_EQ(
      upgraded({"Upsample", {"x"}, {"y"}, {attr("scales", std::vector<float>{1, 1, 2, 2}), attr("mode", "nearest")}},
               7),
      R"(  %y/scales = constant f32[4] [1.0, 1.0, 2.0, 2.0]
  %y = Resize(%x, _, %y/scales) {coordinate_transformation_mode = "asymmetric", mode = "nearest", nearest_mode = "floor"} @y
)");
  const std::vector<Bytes> inputs = {tensor("r", {0}, std::vector<float>{}),
                                     tensor("s", {2}, std::vector<float>{1, 2})};
  EXPECT_EQ(upgraded({"Resize", {"x", "r", "s"}, {"y"}, {attr("mode", "nearest")}}, 11, {2, 3}, inputs),
            R"(  %s = constant f32[2] [1.0, 2.0]
  %y = Resize(%x, _, %s) {mode = "nearest"} @y
)");
}

TEST(OnnxUpgrade, TopKAndScatterAndCast) {
  EXPECT_EQ(upgraded({"TopK", {"x"}, {"y", "i"}, {attr("k", 2)}}, 1), R"(  %y/k = constant i64[1] [2]
  %y, %i = TopK(%x, %y/k) @y
)");
  EXPECT_EQ(upgraded({"Cast", {"x"}, {"y"}, {attr("to", "INT64")}}, 1), "  %y = Cast(%x) {to = 7} @y\n");
  const std::vector<Bytes> more = {tensor("i", {1, 1}, Ints{0}), tensor("u", {1, 1}, std::vector<float>{1})};
  EXPECT_EQ(upgraded({"Scatter", {"x", "i", "u"}, {"y"}}, 9, {2, 3}, more), R"(  %i = constant i64[1,1] [0]
  %u = constant f32[1,1] [1.0]
  %y = ScatterElements(%x, %i, %u) @y
)");
}

TEST(OnnxUpgrade, InPlaceHintsAndTrainingFlagsGo) {
  EXPECT_EQ(upgraded({"Relu", {"x"}, {"y"}, {attr("consumed_inputs", Ints{0})}}, 1), "  %y = Relu(%x) @y\n");
  EXPECT_EQ(upgraded({"Dropout", {"x"}, {"y"}, {attr("is_test", 1), attr("ratio", 0.25F)}}, 6),
            "  %y = Dropout(%x) @y\n");
  // In an opset that does not know the attribute any more it is an error.
  const Error error =
      import_error(ModelSpec{.graph = {.nodes = {{"Relu", {"x"}, {"y"}, {attr("consumed_inputs", Ints{0})}}},
                                       .inputs = {value("x", DType::f32, {2})},
                                       .outputs = {value("y", DType::f32, {2})}}});
  EXPECT_NE(error.message.find("unknown attribute 'consumed_inputs'"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace lathe::tests
