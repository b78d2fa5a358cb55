// Concat without copies: what is made in its slice of the result, and what must not be.
#include <gtest/gtest.h>

#include <cmath>

#include <lathe/tools.h>

#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

using namespace onnx;

Tensor counting(const Shape& shape) {
  Tensor t(DType::f32, shape);
  float next = -3;
  for (float& v : t.mutable_view<float>()) v = next += 0.5F;
  return t;
}

int concat_steps(const Engine& engine, const Shape& x) {
  int steps = 0;
  for (const tools::StepRecord& step : tools::explain(engine, {{"x", x}}).steps) {
    steps += static_cast<int>(step.kernel == "copy");
  }
  return steps;
}

/// Every output is what the plain evaluator makes of the graph as it stands, twice in one session's memory.
void expect_same_as_plain(const ModelSpec& spec, const std::vector<Shape>& shapes) {
  const Engine plain = engine_of(spec, {.threads = 1, .passes = "-all", .backends = {"plain"}});
  for (const EngineOptions& options : {EngineOptions{.threads = 1}, {.threads = 2}, {.threads = 1, .passes = "-all"}}) {
    const Engine engine = engine_of(spec, options);
    for (int round = 0; round < 2; ++round) {
      for (const Shape& shape : shapes) {
        const Tensor x = counting(shape);
        const Outputs expected = plain.run({{"x", x}}), actual = engine.run({{"x", x}});
        ASSERT_EQ(expected.size(), actual.size());
        for (std::size_t o = 0; o < expected.size(); ++o) {
          const auto want = expected[o].view<float>(), got = actual[o].view<float>();
          ASSERT_EQ(want.size(), got.size());
          for (std::size_t i = 0; i < want.size(); ++i)
            ASSERT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i])))
                << "output " << o << " at " << shape.to_string() << ", element " << i;
        }
      }
    }
  }
}

ModelSpec graph_of(std::vector<NodeSpec> nodes, const Names& outputs, const std::vector<DimSpec>& x = {"n", "m"}) {
  ModelSpec spec{.graph = {.nodes = std::move(nodes), .inputs = {value("x", DType::f32, x)}}};
  for (const std::string& name : outputs) spec.graph.outputs.push_back(value(name, DType::f32));
  return spec;
}

NodeSpec concat(const Names& inputs, const std::string& output, int axis) {
  return {"Concat", inputs, {output}, {attr("axis", axis)}};
}

TEST(ConcatSteps, WhatIsComputedIsMadeInItsSlice) {
  const ModelSpec spec = graph_of(
      {{"Neg", {"x"}, {"a"}}, {"Softmax", {"x"}, {"b"}}, concat({"a", "b"}, "c", 0), {"TopK", {"c", "k"}, {"y", "i"}}},
      {"y"});
  ModelSpec with_k = spec;
  with_k.graph.initializers = {tensor("k", {1}, std::vector<std::int64_t>{1})};
  expect_same_as_plain(with_k, {{2, 3}, {1, 7}});
  EXPECT_EQ(concat_steps(engine_of(with_k), {2, 3}), 0);
}

TEST(ConcatSteps, RowsThatLieApartAreCopied) {
  const ModelSpec spec =
      graph_of({{"Neg", {"x"}, {"a"}}, {"Softmax", {"x"}, {"b"}}, concat({"a", "b"}, "y", 1)}, {"y"});
  expect_same_as_plain(spec, {{2, 3}, {1, 7}, {0, 3}, {3, 0}});
  EXPECT_EQ(concat_steps(engine_of(spec), {2, 3}), 2);
  EXPECT_EQ(concat_steps(engine_of(spec), {1, 3}), 0);  // one row does not
}

TEST(ConcatSteps, InputsConstantsAndWhatStandsTwiceAreCopied) {
  ModelSpec spec = graph_of({{"Neg", {"x"}, {"a"}}, concat({"x", "a", "a", "w"}, "y", 0)}, {"y"});
  spec.graph.initializers = {tensor("w", {1, 2}, std::vector<float>{7, 8})};
  expect_same_as_plain(spec, {{2, 2}, {1, 2}});
  EXPECT_EQ(concat_steps(engine_of(spec), {2, 2}), 3);
}

TEST(ConcatSteps, PartsThatAreReadElsewhereOrLeave) {
  expect_same_as_plain(graph_of({{"Neg", {"x"}, {"a"}},
                                 {"Softmax", {"x"}, {"b"}},
                                 concat({"a", "b"}, "c", 0),
                                 {"Softmax", {"c"}, {"d"}},
                                 {"MatMul", {"b", "x"}, {"y"}},
                                 {"Softmax", {"a"}, {"z"}}},
                                {"d", "y", "z", "a"}),
                       {{2, 2}, {3, 3}});
  // The part leaves under another shape; the whole leaves too.
  ModelSpec reshaped = graph_of({{"Softmax", {"x"}, {"a"}},
                                 {"Softmax", {"x"}, {"b"}, {attr("axis", 0)}},
                                 concat({"a", "b"}, "c", 0),
                                 {"Reshape", {"a", "flat"}, {"y"}}},
                                {"c", "y"});
  reshaped.graph.initializers = {tensor("flat", {1}, std::vector<std::int64_t>{-1})};
  expect_same_as_plain(reshaped, {{2, 2}, {3, 1}});
}

TEST(ConcatSteps, OneInsideAnother) {
  const ModelSpec spec = graph_of({{"Softmax", {"x"}, {"a"}},
                                   {"Neg", {"x"}, {"b"}},
                                   concat({"a", "b"}, "inner", 0),
                                   {"Exp", {"x"}, {"e"}},
                                   concat({"e", "inner"}, "outer", 0),
                                   {"Softmax", {"outer"}, {"y"}, {attr("axis", 0)}},
                                   {"Softmax", {"inner"}, {"z"}, {attr("axis", 0)}}},
                                  {"y", "z"});
  expect_same_as_plain(spec, {{2, 3}, {1, 4}});
  EXPECT_EQ(concat_steps(engine_of(spec), {2, 3}), 0);
}

TEST(ConcatSteps, ChannelsOfConvolutions) {
  std::vector<float> weights(4 * 4 * 3 * 3);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) - 2;
  const Bytes pads = attr("pads", Ints{1, 1, 1, 1});
  ModelSpec spec = graph_of({{"Conv", {"x", "w"}, {"a"}, {pads}},
                             {"Conv", {"a", "w"}, {"b"}, {pads}},
                             concat({"a", "b", "x"}, "c", 1),
                             {"Relu", {"c"}, {"y"}}},
                            {"y"}, {"n", 4, "h", "w"});
  spec.graph.initializers = {tensor("w", {4, 4, 3, 3}, weights)};
  expect_same_as_plain(spec, {{1, 4, 5, 5}, {2, 4, 8, 3}, {1, 4, 1, 1}});
}

}  // namespace
}  // namespace lathe::tests
