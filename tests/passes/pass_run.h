// Running one pass on a graph in text form, and comparing what the graph computes before and after by the operators'
// definitions.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ops/ir/evaluate.h"
#include "ops/ir/failure.h"
#include "ops/ir/text.h"
#include "passes/passes.h"

namespace lathe::passes {

using PassFunction = std::size_t (*)(ops::Graph&, Context&);

/// A context that folds by the reference and, where asked, prefers channels-last.
inline Context test_context(const TargetInfo* target = nullptr) {
  Context context;
  context.evaluate = [](const ops::Node& node, std::span<const Value> inputs) {
    return ops::evaluate_node(node, inputs);
  };
  context.target = target;
  return context;
}

struct PassResult {
  ops::Graph graph;
  std::size_t changes = 0;

  /// The operators of the graph in order: "Conv Relu".
  [[nodiscard]] std::string operators() const {
    std::string names;
    for (ops::NodeId id : graph.order()) names += (names.empty() ? "" : " ") + std::string(graph.node(id).op->name);
    return names;
  }
};

/// Parses `text`, infers its facts where all inputs are fixed, and runs the pass.
inline PassResult run_pass(PassFunction pass, const std::string& text, Context context = test_context(),
                           bool infer = true) {
  PassResult result;
  result.graph = ops::parse_text(text);
  if (infer) ops::infer_graph(result.graph);
  result.changes = pass(result.graph, context);
  ops::verify(result.graph);
  result.graph.compact();
  return result;
}

/// `before` becomes `after`, up to facts and spelling.
inline void expect_becomes(PassFunction pass, const std::string& before, const std::string& after) {
  const PassResult result = run_pass(pass, before, test_context(), false);
  EXPECT_EQ(ops::to_text(result.graph), ops::to_text(ops::parse_text(after)));
  EXPECT_GT(result.changes, 0U);
}

inline void expect_unchanged(PassFunction pass, const std::string& text) {
  const PassResult result = run_pass(pass, text, test_context(), false);
  EXPECT_EQ(ops::to_text(result.graph), ops::to_text(ops::parse_text(text)));
  EXPECT_EQ(result.changes, 0U);
}

/// The outputs of a graph by the definitions of its operators.
inline std::vector<Tensor> evaluate(const ops::Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<Value> values(graph.value_count());
  const auto at = [](ops::ValueId v) { return static_cast<std::size_t>(v); };
  for (std::size_t i = 0; i < inputs.size(); ++i) values[at(graph.inputs[i])] = inputs[i];
  const auto value_of = [&](ops::ValueId v) -> Value {
    if (v == ops::kNone) return {};
    return graph.value(v).is_constant() ? Value(graph.value(v).constant) : values[at(v)];
  };
  for (ops::NodeId id : graph.order()) {
    std::vector<Value> in;
    for (ops::ValueId v : graph.node(id).inputs) in.push_back(value_of(v));
    const std::vector<Value> out = ops::evaluate_node(graph.node(id), in);
    for (std::size_t o = 0; o < out.size() && o < graph.node(id).outputs.size(); ++o) {
      if (graph.node(id).outputs[o] != ops::kNone) values[at(graph.node(id).outputs[o])] = out[o];
    }
  }
  std::vector<Tensor> outputs;
  for (ops::ValueId v : graph.outputs) outputs.push_back(value_of(v).tensor());
  return outputs;
}

/// Numbers between -2 and 2 for the graph's f32 inputs, whose facts are known.
inline std::vector<Tensor> some_inputs(const ops::Graph& graph) {
  std::vector<Tensor> inputs;
  for (ops::ValueId v : graph.inputs) {
    Tensor t(DType::f32, graph.value(v).fact->shape);
    int i = 0;
    for (float& e : t.mutable_view<float>()) e = static_cast<float>(i++ * 37 % 41 - 20) / 10;
    inputs.push_back(t);
  }
  return inputs;
}

/// The pass leaves what the graph computes as it is, to a tolerance relative to the largest value.
inline PassResult expect_same_results(PassFunction pass, const std::string& text, Context context = test_context()) {
  ops::Graph before = ops::parse_text(text);
  const std::vector<Tensor> inputs = some_inputs(before);
  const std::vector<Tensor> expected = evaluate(before, inputs);
  PassResult result = run_pass(pass, text, std::move(context));
  const std::vector<Tensor> actual = evaluate(result.graph, inputs);
  EXPECT_EQ(actual.size(), expected.size());
  for (std::size_t o = 0; o < actual.size() && o < expected.size(); ++o) {
    EXPECT_EQ(actual[o].shape().to_string(), expected[o].shape().to_string());
    double scale = 1;
    for (std::int64_t i = 0; i < expected[o].size(); ++i) scale = std::max(scale, std::abs(expected[o].number(i)));
    for (std::int64_t i = 0; i < expected[o].size() && i < actual[o].size(); ++i)
      EXPECT_NEAR(actual[o].number(i), expected[o].number(i), 1e-5 * scale) << "output " << o << ", element " << i;
  }
  return result;
}

/// "f32[2,3] [v, v', ...]": a constant of that shape in text form, its elements made of `seed`.
inline std::string constant(const Shape& shape, int seed) {
  std::string text = "constant f32[";
  for (int d = 0; d < shape.rank(); ++d) text += (d ? "," : "") + std::to_string(shape[d]);
  text += "] [";
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    text += (i ? ", " : "") + std::to_string(static_cast<double>((i * 7 + seed * 5) % 19 - 9) / 4);
  return text + "]";
}

}  // namespace lathe::passes
