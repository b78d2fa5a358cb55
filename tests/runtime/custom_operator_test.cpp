// Operators that an application registers: those of docs/custom-operators.md, and what is refused and how.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <stdexcept>

#include <lathe/tools.h>

#include "custom_operators_page.h"
#include "tests/support/engine_of.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

constexpr const char* kDomain = "com.example";

Tensor row(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
std::vector<std::int64_t> longs(const Value& value) {
  const auto view = value.tensor().view<std::int64_t>();
  return {view.begin(), view.end()};
}

/// x -> op -> y, one node of a custom operator called "node".
onnx::ModelSpec one_node(const std::string& op, DType y, std::vector<onnx::Bytes> attributes = {}) {
  return {.graph = {.nodes = {{op, {"x"}, {"y"}, std::move(attributes), "node", kDomain}},
                    .inputs = {onnx::value("x", DType::f32, {"n"})},
                    .outputs = {onnx::value("y", y, {"m"})}},
          .opsets = {onnx::opset(kDomain, 1)}};
}

void register_under(std::string name, CustomOperator op) {
  op.name = std::move(name);
  register_operator(std::move(op));
}

CustomOperator named(std::string name) {
  CustomOperator op;
  op.name = std::move(name);
  op.domain = kDomain;
  op.infer = [](const OperatorNode& node) -> Result<std::vector<TensorType>> { return std::vector{node.input(0)}; };
  op.run = [](const OperatorNode&, std::span<const Tensor> inputs, std::span<Tensor> outputs) -> Result<void> {
    std::memcpy(outputs[0].mutable_data(), inputs[0].data(), inputs[0].bytes());
    return {};
  };
  return op;
}

/// The error of loading and running a model of one such node.
std::string error_of(const CustomOperator& op, ErrorCode code) {
  const Result<void> registered = try_register_operator(op);
  EXPECT_TRUE(registered.ok()) << registered.error().message;
  const Result<Engine> engine = try_engine_of(onnx::model(one_node(op.name, DType::f32)));
  Error error;
  if (engine.ok()) {
    const Result<Outputs> outputs = engine->try_run(row({1, 2}));
    EXPECT_FALSE(outputs.ok());
    if (!outputs.ok()) error = outputs.error();
  } else {
    error = engine.error();
  }
  EXPECT_EQ(to_string(error.code), to_string(code)) << error.message;
  return error.message;
}

std::string refusal(const CustomOperator& op) {
  const Result<void> result = try_register_operator(op);
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  return result.error().message;
}

TEST(CustomOperators, OfThePageRunInAModelFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "model.onnx";
  std::ofstream(path, std::ios::binary) << onnx::model(
      {.graph = {.nodes = {{"SquaredRelu", {"x"}, {"s"}, {}, "activation", kDomain},
                           {"Bucketize", {"s", "edges"}, {"b"}, {}, "buckets", kDomain},
                           {"PeakPick", {"s"}, {"p"}, {onnx::attr("threshold", 2.0F)}, "peaks", kDomain},
                           {"Gather", {"b", "p"}, {"at_peaks"}, {}, "take"}},
                 .inputs = {onnx::value("x", DType::f32, {"n"})},
                 .outputs = {onnx::value("b", DType::i64, {"n"}), onnx::value("at_peaks", DType::i64, {"k"})},
                 .initializers = {onnx::tensor("edges", {3}, std::vector<float>{1, 4, 10})}},
       .opsets = {onnx::opset(kDomain, 1)}});
  const Engine engine = load_with_custom_operators(path);
  for (int round = 0; round < 2; ++round) {
    const Outputs y = engine.run(row({-3, 2, 1, 5, 5, 1, 1.2F, 0}));  // squared: 0 4 1 25 25 1 1.44 0
    EXPECT_EQ(longs(y[0]), (std::vector<std::int64_t>{0, 1, 0, 3, 3, 0, 1, 0}));
    EXPECT_EQ(longs(y[1]), (std::vector<std::int64_t>{1, 3}));  // peaks at 1 and 3
  }
  EXPECT_TRUE(longs(engine.run(Tensor(DType::f32, {0}))[1]).empty());
  EXPECT_EQ(refusal(bucketize()), "custom operator 'Bucketize': there is one of that name in domain 'com.example'");
}

TEST(CustomOperators, MissingOnesSayHowToRegister) {
  const Result<Engine> engine = try_engine_of(onnx::model(one_node("NotRegistered", DType::f32)));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::unsupported);
  for (const char* part : {"com.example::NotRegistered", "'node'", "lathe::register_operator"}) {
    EXPECT_NE(engine.error().message.find(part), std::string::npos) << engine.error().message;
  }
}

TEST(CustomOperators, AnswersDoNotDependOnTheWay) {
  register_under("AnyWay", squared_relu());
  const onnx::ModelSpec spec = one_node("AnyWay", DType::f32);
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.passes = "-all"}, EngineOptions{.backends = {"plain"}}}) {
    const Outputs y = engine_of(spec, options).run(row({-1, 3}));
    EXPECT_EQ(y[0].tensor().view<float>()[0], 0);
    EXPECT_EQ(y[0].tensor().view<float>()[1], 9);
  }
}

TEST(CustomOperators, LoweredNodesAreCompiledWithTheirNeighbours) {
  register_under("Compiled", squared_relu());
  onnx::ModelSpec spec = one_node("Compiled", DType::f32);
  spec.graph.nodes[0].outputs = {"s"};
  spec.graph.nodes.push_back({"Exp", {"s"}, {"y"}, {}, "exp"});
  const auto report = tools::explain(engine_of(spec), {{"x", Shape{8}}});
  ASSERT_EQ(report.steps.size(), 1U);
  EXPECT_EQ(report.steps[0].backend, "jit");
}

TEST(CustomOperators, SeeAttributesDefaultsOptionalInputsAndKnownValues) {
  CustomOperator op;
  op.name = "Fill";  // shape, value (left out: the attribute) -> as many as asked for
  op.domain = kDomain;
  op.max_inputs = 2;
  op.max_outputs = 2;
  op.attributes = {{"value", 7.0},
                   {"label", ""},
                   {"offsets", std::vector<std::int64_t>{}},
                   {"weights", std::vector<double>{0.5}},
                   {"names", std::vector<std::string>{}},
                   {"table", Tensor()}};
  op.shape_inputs = {0};
  op.infer = [](const OperatorNode& node) -> Result<std::vector<TensorType>> {
    const auto dims = node.value(0)->view<std::int64_t>();
    return std::vector<TensorType>(2, {DType::f32, Shape(std::vector<std::int64_t>(dims.begin(), dims.end()))});
  };
  op.run = [](const OperatorNode& node, std::span<const Tensor> inputs, std::span<Tensor> outputs) -> Result<void> {
    EXPECT_EQ(node.name(), "fill");
    EXPECT_EQ(node.inputs(), 1);
    EXPECT_FALSE(node.has_input(1));
    EXPECT_FALSE(node.has_input(-1));
    EXPECT_EQ(node.input(1).dtype, DType::undefined);
    EXPECT_EQ(node.input(0).shape, Shape{1});
    EXPECT_FALSE(node.wants_output(0));
    EXPECT_TRUE(node.wants_output(1));
    EXPECT_FALSE(outputs[0].defined());
    EXPECT_EQ(inputs.size(), 1U);
    EXPECT_EQ(node.text("label"), "loud");
    EXPECT_EQ(node.integers("offsets").size(), 2U);
    EXPECT_EQ(node.numbers("weights").front(), 0.5);
    EXPECT_EQ(node.texts("names").back(), "b");
    EXPECT_EQ(node.tensor("table")->view<float>()[1], 4);
    EXPECT_EQ(node.integer("value"), 0) << "another kind";
    EXPECT_EQ(node.number("nothing"), 0);
    for (float& y : outputs[1].mutable_view<float>()) y = static_cast<float>(node.number("value"));
    return {};
  };
  register_operator(op);
  const onnx::ModelSpec spec = {
      .graph = {.nodes = {{"Fill",
                           {"shape"},
                           {"", "y"},
                           {onnx::attr("label", "loud"), onnx::attr("offsets", onnx::Ints{1, 2}),
                            onnx::attr("names", onnx::Names{"a", "b"}),
                            onnx::attr_tensor("table", onnx::tensor("", {2}, std::vector<float>{3, 4}))},
                           "fill",
                           kDomain}},
                .inputs = {onnx::value("shape", DType::i64, {1})},
                .outputs = {onnx::value("y", DType::f32, {"n"})}},
      .opsets = {onnx::opset(kDomain, 1)}};
  const Engine engine = engine_of(spec);
  for (const std::int64_t n : {3, 0, 5}) {
    const Outputs y = engine.run(Tensor::from<std::int64_t>({n}, {1}));
    ASSERT_EQ(y[0].tensor().shape(), Shape{n});
    for (const float v : y[0].tensor().view<float>()) EXPECT_EQ(v, 7);
  }
  onnx::ModelSpec wrong = spec;
  wrong.graph.nodes[0].attributes = {onnx::attr("volume", 3)};
  const Result<Engine> refused = try_engine_of(onnx::model(wrong));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'volume'"), std::string::npos) << refused.error().message;
}

TEST(CustomOperators, ImpureOnesRunEveryTime) {
  static std::atomic<int> calls = 0;
  for (const bool pure : {true, false}) {
    CustomOperator op = named(pure ? "Same" : "Counter");
    op.pure = pure;
    op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor> outputs) -> Result<void> {
      outputs[0].mutable_view<float>()[0] = static_cast<float>(++calls);
      return {};
    };
    register_operator(op);
    onnx::ModelSpec spec = one_node(op.name, DType::f32);
    spec.graph.nodes[0].inputs = {"c"};
    spec.graph.initializers = {onnx::tensor("c", {1}, std::vector<float>{0})};
    const Engine engine = engine_of(spec);
    const float first = engine.run(row({0}))[0].tensor().view<float>()[0];
    EXPECT_EQ(engine.run(row({0}))[0].tensor().view<float>()[0], pure ? first : first + 1);
  }
}

TEST(CustomOperators, TheirErrorsNameTheNode) {
  CustomOperator op = named("FailsInInfer");
  op.infer = [](const OperatorNode&) -> Result<std::vector<TensorType>> {
    return Error{ErrorCode::invalid_model, "x must be square"};
  };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model), "FailsInInfer 'node': x must be square");
  op = named("FailsInRun");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> {
    return Error{ErrorCode::out_of_range, "no such row"};
  };
  EXPECT_EQ(error_of(op, ErrorCode::out_of_range), "FailsInRun 'node': no such row");
  op = named("Throws");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> {
    throw std::runtime_error("device lost");
  };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_argument), "Throws 'node': device lost");
  op = named("ThrowsOurs");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> {
    throw Exception({ErrorCode::io, "cannot read the table"});
  };
  EXPECT_EQ(error_of(op, ErrorCode::io), "ThrowsOurs 'node': cannot read the table");
  op = named("ThrowsANumber");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> { throw 3; };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_argument), "ThrowsANumber 'node': its function threw");
}

TEST(CustomOperators, WhatTheyReturnIsChecked) {
  CustomOperator op = named("NoTypes");
  op.infer = [](const OperatorNode&) -> Result<std::vector<TensorType>> { return std::vector<TensorType>{}; };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model), "NoTypes 'node': its `infer` gave 0 types for 1 outputs");
  op = named("NoDtype");
  op.infer = [](const OperatorNode&) -> Result<std::vector<TensorType>> { return std::vector<TensorType>(1); };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model), "NoDtype 'node': its `infer` gave no dtype for output 0");
  op = named("NegativeShape");
  op.infer = [](const OperatorNode&) -> Result<std::vector<TensorType>> {
    return std::vector{TensorType{DType::f32, Shape{-2}}};
  };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model), "NegativeShape 'node': output shape -2 has a negative extent");
  op = named("Replaces");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor> outputs) -> Result<void> {
    outputs[0] = Tensor(DType::f32, {2});
    return {};
  };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model),
            "Replaces 'node': its `run` replaced output 0, which it was to write to");
  op = named("MakesNothing");
  op.infer = {};
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> { return {}; };
  EXPECT_EQ(error_of(op, ErrorCode::invalid_model), "MakesNothing 'node': its `run` left output 0 undefined");
  op.name = "MakesIntegers";  // the model declares f32
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor> outputs) -> Result<void> {
    outputs[0] = Tensor(DType::i32, {2});
    return {};
  };
  const std::string said = error_of(op, ErrorCode::invalid_model);
  EXPECT_NE(said.find("'y'"), std::string::npos) << said;
  EXPECT_NE(said.find("i32"), std::string::npos) << said;
}

/// What loading a node of that lowering says.
std::string lowering_error(const std::string& name,
                           std::function<Result<std::vector<GraphValue>>(const OperatorNode&, GraphBuilder&)> lower,
                           ErrorCode code) {
  CustomOperator op = named(name);
  op.run = {};
  op.lower = std::move(lower);
  return error_of(op, code);
}

TEST(CustomOperators, MayUseNodesOfSeveralOutputs) {
  CustomOperator op = named("SwapHalves");
  op.run = {};
  op.lower = [](const OperatorNode&, GraphBuilder& b) -> Result<std::vector<GraphValue>> {
    const std::vector<GraphValue> x = {b.input(0)};
    const std::vector<std::pair<std::string, AttributeValue>> halves = {{"num_outputs", std::int64_t{2}}};
    const std::vector<GraphValue> parts = b.op_with_outputs(2, "Split", x, halves);
    return std::vector{b.op("Concat", {parts[1], parts[0]}, {{"axis", std::int64_t{0}}})};
  };
  register_operator(op);
  const Engine engine = engine_of(one_node("SwapHalves", DType::f32));
  const Outputs y = engine.run(row({1, 2, 3, 4}));
  const auto view = y[0].view<float>();
  EXPECT_EQ(std::vector<float>(view.begin(), view.end()), (std::vector<float>{3, 4, 1, 2}));
}

TEST(CustomOperators, WrongLoweringsAreNamed) {
  using Lowered = Result<std::vector<GraphValue>>;
  EXPECT_NE(lowering_error(
                "LowersToUnknown",
                [](const OperatorNode&, GraphBuilder& b) -> Lowered {
                  const GraphValue unknown = b.op("NoSuchOperator", {b.input(0)});
                  return std::vector{b.op("Relu", {unknown})};
                },
                ErrorCode::unsupported)
                .find("LowersToUnknown 'node': operator NoSuchOperator does not exist"),
            std::string::npos);
  EXPECT_NE(lowering_error(
                "LowersWrongly",
                [](const OperatorNode&, GraphBuilder& b) -> Lowered { return std::vector{b.op("Not", {b.input(0)})}; },
                ErrorCode::invalid_model)
                .find("Not 'node/Not'"),
            std::string::npos);
  EXPECT_EQ(
      lowering_error(
          "LowersToAnotherType",
          [](const OperatorNode&, GraphBuilder& b) -> Lowered { return std::vector{b.op("Shape", {b.input(0)})}; },
          ErrorCode::invalid_model),
      "LowersToAnotherType 'node': its `lower` made i64[1] for output 0, its `infer` said f32[2]");
  for (const std::string dynamic : {"NonZero", "Compress"}) {
    const std::string said = lowering_error(
        "LowersTo" + dynamic,
        [dynamic](const OperatorNode&, GraphBuilder& b) -> Lowered {
          const GraphValue x = b.input(0);
          const GraphValue some =
              dynamic == "NonZero" ? b.op(dynamic, {x}) : b.op(dynamic, {x, b.op("Greater", {x, b.scalar(0, x)})});
          return std::vector{b.op("Add", {x, b.op("ReduceSum", {b.op("Cast", {some}, {{"to", 1}})})})};
        },
        ErrorCode::unsupported);
    EXPECT_EQ(said,
              fmt::format("LowersTo{} 'node': `lower` uses {}, whose outputs depend on data: only `run` can do that",
                          dynamic, dynamic));
  }
  EXPECT_EQ(lowering_error(
                "LowersByNoValue",
                [](const OperatorNode&, GraphBuilder& b) -> Lowered { return std::vector{b.scalar(1, {99999})}; },
                ErrorCode::invalid_argument),
            "LowersByNoValue 'node': `lower` made a constant of no tensor");
  EXPECT_EQ(
      lowering_error(
          "LowersToNothing", [](const OperatorNode&, GraphBuilder&) -> Lowered { return std::vector<GraphValue>(1); },
          ErrorCode::invalid_model),
      "LowersToNothing 'node': its `lower` gave no value for output 0");
  EXPECT_EQ(
      lowering_error(
          "LowersToTooFew", [](const OperatorNode&, GraphBuilder&) -> Lowered { return std::vector<GraphValue>(); },
          ErrorCode::invalid_model),
      "LowersToTooFew 'node': its `lower` gave 0 values for 1 outputs");
  EXPECT_EQ(lowering_error(
                "LowersFromNowhere",
                [](const OperatorNode&, GraphBuilder& b) -> Lowered { return std::vector{b.op("Relu", {{12345}})}; },
                ErrorCode::invalid_argument),
            "LowersFromNowhere 'node': `lower` gave Relu an input that is no value");
  EXPECT_EQ(lowering_error(
                "LowersToItself",
                [](const OperatorNode&, GraphBuilder& b) -> Lowered {
                  return std::vector{b.op("com.example::LowersToItself", {b.input(0)})};
                },
                ErrorCode::invalid_argument),
            "LowersToItself 'node': `lower` uses com.example::LowersToItself, which was not registered before");
}

TEST(CustomOperators, ContradictionsAreRefused) {
  EXPECT_EQ(refusal({}), "custom operator '': it has no name");
  CustomOperator op = named("X");
  op.run = {};
  EXPECT_EQ(refusal(op), "custom operator 'X': it must have one of `run` and `lower`");
  op.lower = [](const OperatorNode&, GraphBuilder& b) -> Result<std::vector<GraphValue>> {
    return std::vector{b.input(0)};
  };
  op.infer = {};
  EXPECT_EQ(refusal(op), "custom operator 'X': `lower` needs `infer`");
  op = named("X");
  op.max_inputs = 0;
  EXPECT_EQ(refusal(op), "custom operator 'X': min_inputs must be from 0 to max_inputs");
  op = named("X");
  op.min_outputs = 0;
  EXPECT_EQ(refusal(op), "custom operator 'X': min_outputs must be from 1 to max_outputs");
  op = named("X");
  op.shape_inputs = {1};
  EXPECT_EQ(refusal(op), "custom operator 'X': shape_inputs names no input below 32");
  op = named("X");
  op.attributes = {{"a", 1}, {"a", 2.0}};
  EXPECT_EQ(refusal(op), "custom operator 'X': two attributes are called 'a'");
  op = named("X");
  op.real_time = true;
  op.infer = {};
  EXPECT_EQ(refusal(op), "custom operator 'X': real_time needs `infer`: what makes its outputs takes memory");
  op = named("X");
  op.domain = "lathe";
  EXPECT_EQ(refusal(op), "custom operator 'X': the domain 'lathe' is taken");
  op = named("Softmax");
  op.domain = "ai.onnx";
  EXPECT_EQ(refusal(op), "custom operator 'Softmax': there is one of that name in domain ''");
}

TEST(CustomOperators, OutputsOwnTheirMemoryWhateverTheFunctionAssigned) {
  CustomOperator op = named("PassesOn");
  op.infer = {};
  op.run = [](const OperatorNode&, std::span<const Tensor> inputs, std::span<Tensor> outputs) -> Result<void> {
    outputs[0] = inputs[0];
    return {};
  };
  register_operator(op);
  const Engine engine = engine_of(one_node("PassesOn", DType::f32));
  std::vector<float> x = {1, 2};
  const Outputs y = engine.run(Tensor::borrow(DType::f32, {2}, x.data()));
  x = {7, 7};
  EXPECT_EQ(y[0].tensor().view<float>()[1], 2);
}

TEST(CustomOperators, AFunctionOfTheModelWins) {
  CustomOperator op = named("Twice");
  op.run = [](const OperatorNode&, std::span<const Tensor>, std::span<Tensor>) -> Result<void> {
    return Error{ErrorCode::internal, "not this one"};
  };
  register_operator(op);
  onnx::ModelSpec spec = one_node("Twice", DType::f32);
  spec.functions = {onnx::function({kDomain, "Twice", {"a"}, {"b"}, {{"Add", {"a", "a"}, {"b"}}}})};
  EXPECT_EQ(engine_of(spec).run(row({4}))[0].tensor().view<float>()[0], 8);
}

}  // namespace
}  // namespace lathe::tests
