// Engines of models that a test writes itself.
#pragma once

#include <span>
#include <string>

#include <lathe/lathe.h>

#include "tests/support/onnx_writer.h"

namespace lathe::tests {

inline Result<Engine> try_engine_of(const std::string& bytes, const EngineOptions& options = {.threads = 1},
                                    const LoadOptions& load = {}) {
  return Engine::try_load({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, options, load);
}

inline Engine engine_of(const onnx::ModelSpec& spec, const EngineOptions& options = {.threads = 1}) {
  return unwrap(try_engine_of(onnx::model(spec), options));
}

/// x: f32[n] -> y = x · 2 + 1, two nodes.
inline onnx::ModelSpec scale_and_shift() {
  return {.graph = {.nodes = {{"Mul", {"x", "two"}, {"m"}, {}, "scale"}, {"Add", {"m", "one"}, {"y"}, {}, "shift"}},
                    .inputs = {onnx::value("x", DType::f32, {"n"})},
                    .outputs = {onnx::value("y", DType::f32, {"n"})},
                    .initializers = {onnx::tensor("two", {}, std::vector<float>{2}),
                                     onnx::tensor("one", {}, std::vector<float>{1})}}};
}

/// A Loop over `trips`, whose body adds to the carried value `a` what `step` names.
inline onnx::ModelSpec loop_model(std::vector<onnx::NodeSpec> body_nodes, const std::vector<onnx::DimSpec>& carried,
                                  const std::vector<onnx::DimSpec>& x) {
  const onnx::Bytes body =
      onnx::graph({.nodes = std::move(body_nodes),
                   .inputs = {onnx::value("i", DType::i64, {}), onnx::value("go", DType::boolean, {}),
                              onnx::value("a", DType::f32, carried)},
                   .outputs = {onnx::value("go_on", DType::boolean, {}), onnx::value("b", DType::f32, carried)},
                   .name = "body"});
  return {.graph = {.nodes = {{"Loop", {"trips", "", "start"}, {"y"}, {onnx::attr_graph("body", body)}, "loop"}},
                    .inputs = {onnx::value("trips", DType::i64, {}), onnx::value("start", DType::f32, carried),
                               onnx::value("x", DType::f32, x)},
                    .outputs = {onnx::value("y", DType::f32, carried)}}};
}

inline onnx::NodeSpec go_on() { return {"Identity", {"go"}, {"go_on"}, {}, "go_on"}; }

}  // namespace lathe::tests
