// Damaged models: whatever is in the file, import ends in a graph that verifies or in an Error about the model.
#include <gtest/gtest.h>

#include "tests/frontends/import_text.h"
#include "tests/support/proto_mutator.h"
#include "tests/support/rounds.h"

namespace lathe::tests {
namespace {

using namespace onnx;

/// A model with a bit of everything: initializers, defaults, a constant node, a subgraph, a function, an old opset.
Bytes sample_model() {
  const Bytes out = value("o", DType::f32, {2});
  const Bytes then_branch = graph({.nodes = {{"Relu", {"x"}, {"o"}}}, .outputs = {out}, .name = "then"});
  const Bytes else_branch = graph({.nodes = {{"Add", {"a", "w"}, {"o"}}}, .outputs = {out}, .name = "else"});
  const FunctionSpec scaled = {
      .domain = "my",
      .name = "Scaled",
      .inputs = {"p"},
      .outputs = {"r"},
      .nodes = {{"LeakyRelu", {"p"}, {"q"}, {attr_ref("alpha", 1, "slope")}}, {"Neg", {"q"}, {"r"}}},
      .attribute_protos = {attr("slope", 0.25F)},
      .opset = 9};
  return model(
      {.graph = {.nodes = {{"Scaled", {"x"}, {"a"}, {attr("slope", 0.5F)}, "", "my"},
                           {"Constant", {}, {"k"}, {attr_tensor("value", tensor("", {2}, std::vector<float>{1, 2}))}},
                           {"Clip", {"a"}, {"b"}, {attr("min", 0.0F), attr("max", 6.0F)}},
                           {"Softmax", {"b"}, {"s"}, {attr("axis", 0)}},
                           {"Slice", {"s"}, {"l"}, {attr("starts", Ints{0}), attr("ends", Ints{2})}},
                           {"Mul", {"l", "k"}, {"m"}},
                           {"If",
                            {"c"},
                            {"y"},
                            {attr_graph("then_branch", then_branch), attr_graph("else_branch", else_branch)}}},
                 .inputs = {value("x", DType::f32, {2}), value("w", DType::f32, {"n"}), value("c", DType::boolean, {})},
                 .outputs = {value("y", DType::f32, {2}), value("m", DType::f32, {2})},
                 .initializers = {tensor("w", {2}, std::vector<float>{1, 2}),
                                  tensor_int32("unused", DType::f16, {2}, {1, 2})},
                 .value_infos = {value("b", DType::f32, {2})}},
       .opset = 9,
       .functions = {function(scaled)},
       .opsets = {opset("my", 1)}});
}

TEST(OnnxMutation, DamagedModelsAreRefusedOrImport) {
  const Bytes sound = sample_model();
  LoadOptions options;
  options.limits.bytes = 1 << 20;
  options.limits.nodes = 1000;
  options.formats = {"onnx"};
  ProtoMutator mutator(20261202);
  int imported = 0;
  constexpr int kMutants = test::rounds(3000);
  for (int i = 0; i < kMutants; ++i) {
    const std::string bytes = mutator.mutate(sound);
    try {
      const ops::Graph graph = import_bytes(bytes, options);
      ops::verify(graph);
      static_cast<void>(ops::to_text(graph));
      ++imported;
    } catch (const Failure& failure) {
      const ErrorCode code = failure.error.code;
      EXPECT_TRUE(code == ErrorCode::invalid_model || code == ErrorCode::unsupported ||
                  code == ErrorCode::limit_exceeded || code == ErrorCode::not_found)
          << i << ": " << failure.error.message;
      EXPECT_LT(failure.error.message.size(), 10000U) << i;
    }
  }
  EXPECT_GT(imported, 0);
  EXPECT_LT(imported, kMutants);
}

}  // namespace
}  // namespace lathe::tests
