// Gradient against differences of the function itself; FlexAttention's modifiers and SequenceMap's captured values.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

using onnx::attr;
using Floats = std::vector<float>;

constexpr const char* kTraining = "ai.onnx.preview.training";

Tensor ramp(const Shape& shape, float from) {
  Tensor t(DType::f32, shape);
  const auto view = t.mutable_view<float>();
  for (std::size_t i = 0; i < view.size(); ++i) view[i] = from + 0.37F * static_cast<float>((i * 5) % 7);
  return t;
}

struct Function {
  const char* name;
  std::vector<onnx::NodeSpec> nodes;  ///< from "a" [2, 3] and "b" to the scalar "y"
  Shape b;
};

onnx::ModelSpec with_gradient(const Function& f) {
  onnx::ModelSpec spec;
  spec.graph.nodes = f.nodes;
  spec.graph.nodes.push_back(
      {"Gradient", {"a", "b"}, {"da", "db"}, {attr("xs", onnx::Names{"a", "b"}), attr("y", "y")}, "grad", kTraining});
  std::vector<onnx::DimSpec> b_dims;
  for (int d = 0; d < f.b.rank(); ++d) b_dims.emplace_back(static_cast<int>(f.b[d]));
  spec.graph.inputs = {onnx::value("a", DType::f32, {2, 3}), onnx::value("b", DType::f32, b_dims)};
  spec.graph.outputs = {onnx::value("y", DType::f32, {}), onnx::value("da", DType::f32, {2, 3}),
                        onnx::value("db", DType::f32, b_dims)};
  spec.graph.initializers = {onnx::tensor("axis", {1}, onnx::Ints{1}), onnx::tensor("flat", {1}, onnx::Ints{-1})};
  spec.opsets = {onnx::opset(kTraining, 1)};
  return spec;
}

class Gradients : public testing::TestWithParam<Function> {};

TEST_P(Gradients, AreTheSlopesOfTheFunction) {
  const Engine engine = engine_of(with_gradient(GetParam()));
  const Tensor inputs[] = {ramp({2, 3}, 0.4F), ramp(GetParam().b, 0.7F)};
  const Outputs exact = engine.run({{"a", inputs[0]}, {"b", inputs[1]}});
  constexpr float kStep = 1e-2F;
  for (int which = 0; which < 2; ++which) {
    const auto slope = exact[static_cast<std::size_t>(which) + 1].view<float>();
    for (std::size_t i = 0; i < slope.size(); ++i) {
      float y[2];
      for (int side = 0; side < 2; ++side) {
        Tensor moved[] = {inputs[0].clone(), inputs[1].clone()};
        moved[which].mutable_view<float>()[i] += side == 0 ? -kStep : kStep;
        y[side] = engine.run({{"a", moved[0]}, {"b", moved[1]}})[0].view<float>()[0];
      }
      const float measured = (y[1] - y[0]) / (2 * kStep);
      EXPECT_NEAR(slope[i], measured, 2e-2F * (1 + std::fabs(measured))) << "input " << which << ", element " << i;
    }
  }
}

const Function kFunctions[] = {
    {"arithmetic",
     {{"Mul", {"a", "b"}, {"m"}},
      {"Sub", {"m", "a"}, {"s"}},
      {"Div", {"s", "b"}, {"d"}},
      {"Add", {"d", "m"}, {"p"}},
      {"Neg", {"p"}, {"n"}},
      {"ReduceSum", {"n"}, {"y"}, {attr("keepdims", 0)}}},
     {3}},
    {"functions",
     {{"Tanh", {"a"}, {"t"}},
      {"Exp", {"t"}, {"e"}},
      {"Log", {"b"}, {"l"}},
      {"Sqrt", {"b"}, {"r"}},
      {"Sigmoid", {"e"}, {"g"}},
      {"Sin", {"l"}, {"si"}},
      {"Cos", {"r"}, {"co"}},
      {"Mul", {"si", "co"}, {"m"}},
      {"Pow", {"a", "r"}, {"w"}},
      {"Mul", {"w", "g"}, {"x"}},
      {"Add", {"x", "m"}, {"z"}},
      {"ReduceMean", {"z"}, {"y"}, {attr("keepdims", 0)}}},
     {2, 1}},
    {"products",
     {{"MatMul", {"a", "b"}, {"p"}},
      {"Gemm", {"p", "a", "b"}, {"q"}, {attr("transA", 1), attr("alpha", 0.5F), attr("beta", 2.0F)}},
      {"Relu", {"q"}, {"r"}},
      {"Transpose", {"r"}, {"t"}},
      {"Reshape", {"t", "flat"}, {"f"}},
      {"Mul", {"f", "f"}, {"s"}},
      {"ReduceSum", {"s"}, {"y"}, {attr("keepdims", 0)}}},
     {3, 3}},
    {"reductions",
     {{"Mul", {"a", "b"}, {"m"}},
      {"ReduceSum", {"m", "axis"}, {"s"}, {attr("keepdims", 0)}},
      {"ReduceMean", {"m", "axis"}, {"k"}},
      {"Mul", {"s", "s"}, {"q"}},
      {"Mul", {"k", "q"}, {"w"}},
      {"ReduceSum", {"w"}, {"y"}, {attr("keepdims", 0)}}},
     {1}},
};
INSTANTIATE_TEST_SUITE_P(All, Gradients, testing::ValuesIn(kFunctions),
                         [](const auto& f) { return std::string(f.param.name); });

TEST(Gradient, OfAGradientAndAtOtherValues) {
  // y = x³: y' = 3x², y'' = 6x; the second one taken at z.
  onnx::ModelSpec spec;
  spec.graph.nodes = {{"Mul", {"x", "x"}, {"s"}},
                      {"Mul", {"s", "x"}, {"y"}},
                      {"Gradient", {"x"}, {"d"}, {attr("xs", onnx::Names{"x"}), attr("y", "y")}, "first", kTraining},
                      {"Gradient", {"z"}, {"dd"}, {attr("xs", onnx::Names{"x"}), attr("y", "d")}, "second", kTraining}};
  spec.graph.inputs = {onnx::value("x", DType::f32, {}), onnx::value("z", DType::f32, {})};
  spec.graph.outputs = {onnx::value("d", DType::f32, {}), onnx::value("dd", DType::f32, {})};
  spec.opsets = {onnx::opset(kTraining, 1)};
  const Outputs out = engine_of(spec).run({{"x", Tensor::scalar(2.0F)}, {"z", Tensor::scalar(5.0F)}});
  EXPECT_FLOAT_EQ(out[0].view<float>()[0], 12);
  EXPECT_FLOAT_EQ(out[1].view<float>()[0], 30);
}

TEST(Gradient, TakesWhatIsGivenForZsToo) {
  // y = x · z², so dy/dx = z², at the z that the node is given.
  onnx::ModelSpec spec;
  spec.graph.nodes = {{"Mul", {"z", "z"}, {"s"}},
                      {"Mul", {"x", "s"}, {"y"}},
                      {"Gradient",
                       {"x", "other"},
                       {"d"},
                       {attr("xs", onnx::Names{"x"}), attr("zs", onnx::Names{"z"}), attr("y", "y")},
                       "grad",
                       kTraining}};
  spec.graph.inputs = {onnx::value("x", DType::f32, {}), onnx::value("z", DType::f32, {}),
                       onnx::value("other", DType::f32, {})};
  spec.graph.outputs = {onnx::value("y", DType::f32, {}), onnx::value("d", DType::f32, {})};
  spec.opsets = {onnx::opset(kTraining, 1)};
  const Outputs out =
      engine_of(spec).run({{"x", Tensor::scalar(2.0F)}, {"z", Tensor::scalar(3.0F)}, {"other", Tensor::scalar(5.0F)}});
  EXPECT_FLOAT_EQ(out[0].view<float>()[0], 18);
  EXPECT_FLOAT_EQ(out[1].view<float>()[0], 25);
}

TEST(Gradient, NamesTheNodesThatHaveNone) {
  onnx::ModelSpec spec = with_gradient({"", {{"TopK", {"a", "axis"}, {"t", "i"}}, {"ReduceSum", {"t"}, {"y"}}}, {3}});
  const auto engine = try_engine_of(onnx::model(spec));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::unsupported);
  EXPECT_NE(engine.error().message.find("TopK 't'"), std::string::npos) << engine.error().message;
}

TEST(FlexAttention, ModifiersSeeOuterValues) {
  // Scores are replaced by the outer "bias": the weights are its softmax, doubled by prob_mod.
  const onnx::Bytes scores = onnx::graph({.nodes = {{"Mul", {"s", "zero"}, {"z"}}, {"Add", {"z", "bias"}, {"o"}}},
                                          .inputs = {onnx::value("s", DType::f32, {1, 1, 1, 2})},
                                          .outputs = {onnx::value("o", DType::f32, {1, 1, 1, 2})}});
  const onnx::Bytes probs = onnx::graph({.nodes = {{"Add", {"p", "p"}, {"o"}}},
                                         .inputs = {onnx::value("p", DType::f32, {1, 1, 1, 2})},
                                         .outputs = {onnx::value("o", DType::f32, {1, 1, 1, 2})}});
  onnx::ModelSpec spec;
  spec.graph.nodes = {{"FlexAttention",
                       {"q", "k", "v"},
                       {"y"},
                       {onnx::attr_graph("score_mod", scores), onnx::attr_graph("prob_mod", probs)},
                       "flex",
                       "ai.onnx.preview"}};
  spec.graph.inputs = {onnx::value("q", DType::f32, {1, 1, 1, 2}), onnx::value("k", DType::f32, {1, 1, 2, 2}),
                       onnx::value("v", DType::f32, {1, 1, 2, 1}), onnx::value("bias", DType::f32, {2})};
  spec.graph.outputs = {onnx::value("y", DType::f32, {1, 1, 1, 1})};
  spec.graph.initializers = {onnx::tensor("zero", {}, Floats{0})};
  spec.opsets = {onnx::opset("ai.onnx.preview", 1)};
  const Outputs out = engine_of(spec).run({{"q", ramp({1, 1, 1, 2}, 1)},
                                           {"k", ramp({1, 1, 2, 2}, 2)},
                                           {"v", Tensor::from(Floats{10, 20}, {1, 1, 2, 1})},
                                           {"bias", Tensor::from(Floats{0, std::log(3.0F)}, {2})}});
  EXPECT_NEAR(out[0].view<float>()[0], 2 * (0.25F * 10 + 0.75F * 20), 1e-4F);
}

TEST(SequenceMap, RefusesSequencesOfOtherLengths) {
  const onnx::Bytes body = onnx::graph({.nodes = {{"Add", {"a", "b"}, {"c"}}},
                                        .inputs = {onnx::value("a", DType::f32, {}), onnx::value("b", DType::f32, {})},
                                        .outputs = {onnx::value("c", DType::f32, {})}});
  onnx::ModelSpec spec;
  spec.graph.nodes = {{"SequenceConstruct", {"x", "x"}, {"two"}},
                      {"SequenceConstruct", {"x"}, {"one"}},
                      {"SequenceMap", {"two", "one"}, {"m"}, {onnx::attr_graph("body", body)}, "map"},
                      {"ConcatFromSequence", {"m"}, {"y"}, {attr("axis", 0), attr("new_axis", 1)}}};
  spec.graph.inputs = {onnx::value("x", DType::f32, {})};
  spec.graph.outputs = {onnx::value("y", DType::f32, {2})};
  const auto result = engine_of(spec).try_run({{"x", Tensor::scalar(1.0F)}});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("SequenceMap 'map': input 1 has 1 elements, the first 2"), std::string::npos)
      << result.error().message;
}

}  // namespace
}  // namespace lathe::tests
