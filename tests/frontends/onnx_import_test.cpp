// ONNX import: what a file says becomes a graph; each test writes its own model.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/frontends/import_text.h"

namespace lathe::tests {
namespace {

using namespace onnx;

const std::vector<Bytes> kX = {value("x", DType::f32, {2})};
const std::vector<Bytes> kY = {value("y", DType::f32, {2})};

TEST(OnnxImport, NodesInitializersAndDeclaredTypes) {
  EXPECT_EQ(import_text({.graph = {.nodes = {{"Add", {"x", "w"}, {"a"}, {}, "first"}, {"Relu", {"a"}, {"y"}}},
                                   .inputs = {value("x", DType::f32, {"batch", 2})},
                                   .outputs = {value("y", DType::f32, {"batch", 2})},
                                   .initializers = {tensor("w", {2}, std::vector<float>{1, 2})}}}),
            R"(graph g(%x: f32[batch,2]) {
  %w = constant f32[2] [1.0, 2.0]
  %a = Add(%x, %w) @first
  %y = Relu(%a) @y
  return %y: f32[batch,2]
}
)");
}

TEST(OnnxImport, NodesInAnyOrder) {
  EXPECT_EQ(import_text({.graph = {.nodes = {{"Relu", {"b"}, {"y"}}, {"Neg", {"a"}, {"b"}}, {"Abs", {"x"}, {"a"}}},
                                   .inputs = kX,
                                   .outputs = kY}}),
            R"(graph g(%x: f32[2]) {
  %a = Abs(%x) @a
  %b = Neg(%a) @b
  %y = Relu(%b) @y
  return %y: f32[2]
}
)");
}

TEST(OnnxImport, ConstantNodesOfEveryForm) {
  const auto constant = [](const std::string& name, Bytes attribute) {
    return NodeSpec{"Constant", {}, {name}, {std::move(attribute)}};
  };
  const Bytes sparse = message([](auto& w) {
    w.add_message(1, tensor("v", {2}, std::vector<float>{5, 7}));
    w.add_message(2, tensor("i", {2, 2}, Ints{0, 1, 1, 0}));
    w.add_int64(3, 2);
    w.add_int64(3, 2);
  });
  EXPECT_EQ(
      import_text(
          {.graph = {.nodes = {constant("a", attr_tensor("value", tensor("", {1}, std::vector<float>{1}))),
                               constant("b", attr("value_float", 0.5F)),
                               constant("c", attr("value_floats", std::vector<float>{1, 2})),
                               constant("d", attr("value_int", 3)), constant("e", attr("value_ints", Ints{4, 5})),
                               constant("f", attr("value_string", "s")),
                               constant("h", attr("value_strings", Names{"s", "t"})),
                               constant("i",
                                        attribute("sparse_value", 11, [&](auto& w) { w.add_message(22, sparse); }))},
                     .outputs = {value("a", DType::f32, {1}), value("b", DType::f32, {}), value("c", DType::f32, {2}),
                                 value("d", DType::i64, {}), value("e", DType::i64, {2}), value("f", DType::string, {}),
                                 value("h", DType::string, {2}), value("i", DType::f32, {2, 2})}}}),
      R"(graph g() {
  %a = constant f32[1] [1.0]
  %b = constant f32[] [0.5]
  %c = constant f32[2] [1.0, 2.0]
  %d = constant i64[] [3]
  %e = constant i64[2] [4, 5]
  %f = constant string[] ["s"]
  %h = constant string[2] ["s", "t"]
  %i = constant f32[2,2] [0.0, 5.0, 7.0, 0.0]
  return %a: f32[1], %b: f32[], %c: f32[2], %d: i64[], %e: i64[2], %f: string[], %h: string[2], %i: f32[2,2]
}
)");
}

TEST(OnnxImport, InitializersThatAreInputsAreDefaults) {
  const GraphSpec graph = {.nodes = {{"Add", {"x", "w"}, {"y"}}},
                           .inputs = {value("x", DType::f32, {2}), value("w", DType::f32, {2})},
                           .outputs = kY,
                           .initializers = {tensor("w", {2}, std::vector<float>{1, 2})}};
  EXPECT_EQ(import_text({.graph = graph}), R"(graph g(%x: f32[2], %w: f32[2] = f32[2] [1.0, 2.0]) {
  %y = Add(%x, %w) @y
  return %y: f32[2]
}
)");
  const ops::Graph imported = import_bytes(model({.graph = graph}));
  EXPECT_TRUE(imported.value(imported.inputs[0]).declared->required);
  EXPECT_FALSE(imported.value(imported.inputs[1]).declared->required);
  // Before IR 4 all initializers had to be listed so: they are constants.
  EXPECT_EQ(import_text({.graph = graph, .ir = 3}), R"(graph g(%x: f32[2]) {
  %w = constant f32[2] [1.0, 2.0]
  %y = Add(%x, %w) @y
  return %y: f32[2]
}
)");
}

TEST(OnnxImport, OmittedInputsAndOutputs) {
  EXPECT_EQ(import_text({.graph = {.nodes = {{"Clip", {"x", "", "m"}, {"c"}}, {"Dropout", {"c", "", ""}, {"y", ""}}},
                                   .inputs = kX,
                                   .outputs = kY,
                                   .initializers = {tensor("m", {}, std::vector<float>{6})}}}),
            R"(graph g(%x: f32[2]) {
  %m = constant f32[] [6.0]
  %c = Clip(%x, _, %m) @c
  %y = Dropout(%c) @y
  return %y: f32[2]
}
)");
}

TEST(OnnxImport, FunctionsAreInlined) {
  const FunctionSpec scaled = {
      .domain = "my",
      .name = "ScaledRelu",
      .inputs = {"a", "s"},
      .outputs = {"out"},
      .nodes = {{"LeakyRelu", {"a"}, {"r"}, {attr_ref("alpha", 1, "slope")}}, {"Mul", {"r", "s"}, {"out"}}},
      .attribute_protos = {attr("slope", 0.25F)}};
  const FunctionSpec twice = {.domain = "my",
                              .name = "Twice",
                              .inputs = {"a"},
                              .outputs = {"same", "out"},
                              .nodes = {{"ScaledRelu", {"a", "a"}, {"r"}, {attr_ref("slope", 1, "outer")}, "", "my"},
                                        {"ScaledRelu", {"r", "a"}, {"out"}, {}, "", "my"},
                                        {"Identity", {"a"}, {"same"}}},
                              .attributes = {"outer"}};
  EXPECT_EQ(import_text({.graph = {.nodes = {{"Twice", {"x"}, {"s", "y"}, {attr("outer", 0.5F)}, "", "my"}},
                                   .inputs = kX,
                                   .outputs = kY},
                         .functions = {function(scaled), function(twice)},
                         .opsets = {opset("my", 1)}}),
            R"(graph g(%x: f32[2]) {
  %r.1 = LeakyRelu(%x) {alpha = 0.5} @r
  %r = Mul(%r.1, %x) @out
  %r.2 = LeakyRelu(%r) {alpha = 0.25} @r
  %y = Mul(%r.2, %x) @out
  %s = Identity(%x) @same
  return %y: f32[2]
}
)");
}

TEST(OnnxImport, FunctionOutputsThatAreInputsOrConstants) {
  const FunctionSpec f = {.domain = "my",
                          .name = "F",
                          .inputs = {"a", "unused"},
                          .outputs = {"a", "c"},
                          .nodes = {{"Constant", {}, {"c"}, {attr_ref("value_float", 1, "v")}}},
                          .attributes = {"v"}};
  EXPECT_EQ(import_text(
                {.graph = {.nodes = {{"F", {"x"}, {"p", "c"}, {attr("v", 2.0F)}, "", "my"}, {"Mul", {"p", "c"}, {"y"}}},
                           .inputs = kX,
                           .outputs = kY},
                 .functions = {function(f)}}),
            R"(graph g(%x: f32[2]) {
  %c = constant f32[] [2.0]
  %p = Identity(%x) @p
  %y = Mul(%p, %c) @y
  return %y: f32[2]
}
)");
}

TEST(OnnxImport, FunctionsThatCallThemselves) {
  const FunctionSpec a = {
      .domain = "my", .name = "A", .inputs = {"x"}, .outputs = {"y"}, .nodes = {{"B", {"x"}, {"y"}, {}, "", "my"}}};
  const FunctionSpec b = {
      .domain = "my", .name = "B", .inputs = {"x"}, .outputs = {"y"}, .nodes = {{"A", {"x"}, {"y"}, {}, "", "my"}}};
  const Error error =
      import_error(ModelSpec{.graph = {.nodes = {{"A", {"x"}, {"y"}, {}, "", "my"}}, .inputs = kX, .outputs = kY},
                             .functions = {function(a), function(b)}});
  EXPECT_EQ(error.code, ErrorCode::invalid_model);
  EXPECT_NE(error.message.find("function 'A' calls itself"), std::string::npos) << error.message;
}

/// 2^40 nodes from 40 functions.
TEST(OnnxImport, FunctionsThatMultiplyStayWithinTheLimit) {
  std::vector<Bytes> functions;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "F" + std::to_string(i + 1);
    const FunctionSpec f = {.domain = "my",
                            .name = "F" + std::to_string(i),
                            .inputs = {"x"},
                            .outputs = {"y"},
                            .nodes = {{next, {"x"}, {"z"}, {}, "", "my"}, {next, {"z"}, {"y"}, {}, "", "my"}}};
    functions.push_back(function(f));
  }
  functions.push_back(
      function({.domain = "my", .name = "F40", .inputs = {"x"}, .outputs = {"y"}, .nodes = {{"Relu", {"x"}, {"y"}}}}));
  LoadOptions options;
  options.limits.nodes = 10'000;
  const Error error =
      import_error(ModelSpec{.graph = {.nodes = {{"F0", {"x"}, {"y"}, {}, "", "my"}}, .inputs = kX, .outputs = kY},
                             .functions = functions},
                   options);
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << error.message;
}

TEST(OnnxImport, UnsupportedOperatorsAreListedAtOnce) {
  const FunctionSpec f = {
      .domain = "my", .name = "F", .inputs = {"x"}, .outputs = {"y"}, .nodes = {{"Inside", {"x"}, {"y"}, {}, "deep"}}};
  const Error error = import_error(ModelSpec{.graph = {.nodes = {{"Foo", {"x"}, {"a"}, {}, "one"},
                                                                 {"Foo", {"a"}, {"b"}, {}, "two"},
                                                                 {"Foo", {"b"}, {"c"}, {}, "three"},
                                                                 {"Foo", {"c"}, {"d"}, {}, "four"},
                                                                 {"Bar", {"d"}, {"e"}, {}, "bad\nname", "com.x"},
                                                                 {"F", {"e"}, {"y"}, {}, "", "my"}},
                                                       .inputs = kX,
                                                       .outputs = kY},
                                             .functions = {function(f)}});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(
      error.message,
      "'model': the model uses 3 operators that this build lacks: Foo ('one', 'two', 'three' and 1 more); Inside "
      "('deep'); "
      "com.x::Bar ('bad\\x0aname'); an application can supply operators of its own with lathe::register_operator");
}

TEST(OnnxImport, ContradictionsNameThePlace) {
  const auto message_of = [](GraphSpec graph) { return import_error(ModelSpec{.graph = std::move(graph)}).message; };
  EXPECT_EQ(message_of({.nodes = {{"Relu", {"nothing"}, {"y"}, {}, "n"}}, .inputs = kX, .outputs = kY}),
            "'model': Relu 'n': nothing produces its input 'nothing'");
  EXPECT_EQ(message_of({.nodes = {{"Relu", {"x"}, {"y"}}, {"Relu", {"x"}, {"y"}}}, .inputs = kX, .outputs = kY}),
            "'model': two producers of value 'y'");
  EXPECT_EQ(message_of({.nodes = {{"Relu", {"x"}, {"z"}}}, .inputs = kX, .outputs = kY}),
            "'model': nothing produces graph output 'y'");
  EXPECT_EQ(message_of({.nodes = {{"Add", {"x", "b"}, {"a"}}, {"Relu", {"a"}, {"b"}}},
                        .inputs = kX,
                        .outputs = {value("b", DType::f32, {2})}}),
            "'model': the graph has a cycle through Add 'a'");
  EXPECT_EQ(message_of({.nodes = {{"Relu", {"x"}, {"y"}, {attr("alpha", 1.0F)}}}, .inputs = kX, .outputs = kY}),
            "'model': Relu 'y': unknown attribute 'alpha'");
  EXPECT_EQ(message_of({.nodes = {{"LeakyRelu", {"x"}, {"y"}, {attr("alpha", 1)}}}, .inputs = kX, .outputs = kY}),
            "'model': LeakyRelu 'y': attribute 'alpha' must be a float");
  EXPECT_EQ(message_of({.nodes = {{"LeakyRelu", {"x"}, {"y"}, {attr("alpha", 1.0F), attr("alpha", 2.0F)}}},
                        .inputs = kX,
                        .outputs = kY}),
            "'model': LeakyRelu 'y': attribute 'alpha' is stated twice");
  EXPECT_EQ(message_of({.nodes = {{"Add", {"x"}, {"y"}}}, .inputs = kX, .outputs = kY}),
            "'model': Add 'y': 1 inputs, expected 2");
  EXPECT_EQ(message_of({.nodes = {{"Relu", {"x"}, {"y"}}}, .inputs = {kX[0], kX[0]}, .outputs = kY}),
            "'model': two producers of value 'x'");
}

TEST(OnnxImport, Versions) {
  const GraphSpec graph = {.nodes = {{"Relu", {"x"}, {"y"}}}, .inputs = kX, .outputs = kY};
  EXPECT_EQ(import_error(ModelSpec{.graph = graph, .opset = 29}).message,
            "'model': the model uses opset 29, this build knows up to 28");
  EXPECT_EQ(import_error(ModelSpec{.graph = graph, .ir = 15}).message,
            "'model': the model has IR version 15, this build reads up to 14");
  EXPECT_EQ(import_error(ModelSpec{.graph = graph, .opset = 0}).message,
            "'model': opset 0 of domain '' does not exist");
  EXPECT_EQ(import_error(std::string("not a model")).code, ErrorCode::unsupported);
  EXPECT_EQ(import_error(std::string()).code, ErrorCode::unsupported);
  LoadOptions others;
  others.formats = {"none"};
  EXPECT_EQ(import_error(ModelSpec{.graph = graph}, others).code, ErrorCode::unsupported);
}

/// A file cut anywhere gives an error, never a crash.
TEST(OnnxImport, TruncatedAnywhere) {
  const Bytes bytes =
      model({.graph = {.nodes = {{"Add", {"x", "w"}, {"a"}}, {"LeakyRelu", {"a"}, {"y"}, {attr("alpha", 0.5F)}}},
                       .inputs = kX,
                       .outputs = kY,
                       .initializers = {tensor("w", {2}, std::vector<float>{1, 2})}}});
  for (std::size_t size = 0; size + 1 < bytes.size(); ++size) {
    const Error error = import_error(bytes.substr(0, size));
    EXPECT_TRUE(error.code == ErrorCode::invalid_model || error.code == ErrorCode::unsupported)
        << size << ": " << error.message;
  }
}

TEST(OnnxImport, NestingIsBounded) {
  Bytes inner = graph({.nodes = {{"Identity", {"x"}, {"o"}}}, .outputs = {value("o", DType::f32, {2})}});
  for (int i = 0; i < 100; ++i) {
    inner = graph(
        {.nodes = {{"Unknown", {}, {"o"}, {attr_graph("body", inner)}}}, .outputs = {value("o", DType::f32, {2})}});
  }
  const Error error = import_error(ModelSpec{
      .graph = {.nodes = {{"Unknown", {}, {"y"}, {attr_graph("body", inner)}}}, .inputs = kX, .outputs = kY}});
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << error.message;
}

}  // namespace
}  // namespace lathe::tests
