// What is said of plans and specialized graphs: every node, inside control flow too, as it really runs.
#include <gtest/gtest.h>

#include <algorithm>

#include <lathe/tools.h>

#include "ops/ir/text.h"
#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

/// The step that runs the node of that name.
const tools::StepRecord& step_of(const tools::PlanRecord& plan, const std::string& node) {
  for (const tools::StepRecord& step : plan.steps) {
    if (std::count(step.nodes.begin(), step.nodes.end(), node) > 0) return step;
  }
  throw Exception({ErrorCode::not_found, "no step runs " + node});
}

/// y = -(go ? exp(x) + x : tanh(x)), x of any length.
onnx::ModelSpec branches() {
  const std::vector<onnx::Bytes> result = {onnx::value("r", DType::f32, {"n"})};
  const onnx::Bytes yes =
      onnx::graph({.nodes = {{"Exp", {"x"}, {"e"}, {}, "exp"}, {"Add", {"e", "x"}, {"r"}, {}, "add"}},
                   .outputs = result,
                   .name = "yes"});
  const onnx::Bytes no = onnx::graph({.nodes = {{"Tanh", {"x"}, {"r"}, {}, "tanh"}}, .outputs = result, .name = "no"});
  return {.graph = {.nodes = {{"If",
                               {"go"},
                               {"b"},
                               {onnx::attr_graph("then_branch", yes), onnx::attr_graph("else_branch", no)},
                               "choice"},
                              {"Neg", {"b"}, {"y"}, {}, "negated"}},
                    .inputs = {onnx::value("go", DType::boolean, {}), onnx::value("x", DType::f32, {"n"})},
                    .outputs = {onnx::value("y", DType::f32, {"n"})}}};
}

Inputs branch_inputs(bool go) { return {{"go", Tensor::scalar(go)}, {"x", Tensor(DType::f32, {5})}}; }

TEST(Explain, ListsTheBranchThatRan) {
  const Engine engine = engine_of(branches());
  const tools::PlanRecord plan = tools::explain_run(engine, branch_inputs(true));
  EXPECT_EQ(step_of(plan, "choice").backend, "region");
  const tools::StepRecord& add = step_of(plan, "add");
  EXPECT_EQ(add.backend, "jit");
  EXPECT_EQ(add.kernel, "pointwise");
  EXPECT_EQ(add.nodes, (std::vector<std::string>{"exp", "add"}));
  EXPECT_EQ(add.inside, "then_branch of If 'choice'");
  EXPECT_EQ(add.outputs, std::vector<std::string>{"f32[5]"});
  const tools::StepRecord& tanh = step_of(plan, "tanh");
  EXPECT_EQ(tanh.backend, "not run");
  EXPECT_EQ(tanh.kernel, "");
  EXPECT_EQ(tanh.inside, "else_branch of If 'choice'");
  EXPECT_FALSE(tanh.allocates);
  EXPECT_EQ(plan.run_ended_by, "");
}

TEST(Explain, ShapesAloneTellNothingOfWhatDataDecides) {
  const tools::PlanRecord plan = tools::explain(engine_of(branches()), {{"x", Shape{5}}});
  for (const char* node : {"choice", "add", "tanh", "negated"})
    EXPECT_EQ(step_of(plan, node).backend, "not run") << node;
}

TEST(Explain, PlansBehindARegionAreReal) {
  const tools::PlanRecord plan = tools::explain_run(engine_of(branches()), branch_inputs(true));
  const tools::StepRecord& negated = step_of(plan, "negated");
  EXPECT_EQ(negated.backend, "jit");
  EXPECT_EQ(negated.kernel, "pointwise");
  EXPECT_EQ(negated.inside, "");
  EXPECT_EQ(negated.outputs, std::vector<std::string>{"f32[5]"});
  EXPECT_FALSE(negated.allocates);
  EXPECT_EQ(plan.kernels, 2U);
}

TEST(Explain, LoopBodiesThatRunAndThoseThatDoNot) {
  const Engine engine = engine_of(loop_model({{"Mul", {"a", "x"}, {"b"}, {}, "times"}, go_on()}, {3}, {3}));
  const auto inputs = [](std::int64_t trips) -> Inputs {
    return {{"trips", Tensor::scalar(trips)}, {"start", Tensor(DType::f32, {3})}, {"x", Tensor(DType::f32, {3})}};
  };
  const tools::PlanRecord some = tools::explain_run(engine, inputs(2));
  EXPECT_EQ(step_of(some, "times").backend, "jit");
  EXPECT_EQ(step_of(some, "times").inside, "body of Loop 'loop'");
  const tools::PlanRecord none = tools::explain_run(engine, inputs(0));
  EXPECT_EQ(step_of(none, "times").backend, "not run");
  EXPECT_EQ(step_of(none, "loop").backend, "region");
}

/// Sums as many of the elements of x as `count` says, and so on its own.
onnx::ModelSpec dynamic_nodes() {
  return {.graph = {.nodes = {{"NonZero", {"x"}, {"i"}, {}, "found"},
                              {"Reshape", {"x", "shape"}, {"r"}, {}, "shaped"},
                              {"ReduceSum", {"x", "axes"}, {"y"}, {}, "summed"}},
                    .inputs = {onnx::value("x", DType::f32, {"n"}), onnx::value("shape", DType::i64, {2}),
                               onnx::value("axes", DType::i64, {1})},
                    .outputs = {onnx::value("i", DType::i64, {1, "m"}), onnx::value("r", DType::f32, {"a", "b"}),
                                onnx::value("y", DType::f32, {1})}}};
}

tools::PlanRecord explain_dynamic_nodes(std::int64_t length, const EngineOptions& options = {.threads = 1}) {
  const std::vector<std::int64_t> shape = {2, length / 2}, axes = {0};
  return tools::explain_run(engine_of(dynamic_nodes(), options), {{"x", Tensor(DType::f32, {length})},
                                                                  {"shape", Tensor::from(std::span(shape), {2})},
                                                                  {"axes", Tensor::from(std::span(axes), {1})}});
}

TEST(Explain, NodesOnTheirOwnSayWhatRanThem) {
  const tools::PlanRecord plan = explain_dynamic_nodes(1000);
  EXPECT_EQ(step_of(plan, "found").backend, "plain");
  EXPECT_EQ(step_of(plan, "found").kernel, "NonZero");
  EXPECT_EQ(step_of(plan, "found").outputs, std::vector<std::string>{"i64[1,0]"});
  EXPECT_EQ(step_of(plan, "shaped").outputs, std::vector<std::string>{"f32[2,500]"});
  EXPECT_EQ(step_of(plan, "summed").backend, "jit");
  EXPECT_EQ(step_of(plan, "summed").kernel, "row");
  EXPECT_TRUE(step_of(plan, "summed").allocates);
}

TEST(Explain, LoopsOverAFewElementsAreNotCompiled) {
  for (const tools::PlanRecord& plan :
       {explain_dynamic_nodes(4), explain_dynamic_nodes(1000, {.threads = 1, .backends = {"plain"}})}) {
    EXPECT_EQ(step_of(plan, "summed").backend, "plain");
    EXPECT_EQ(step_of(plan, "summed").kernel, "row, evaluated element by element");
    EXPECT_EQ(plan.kernels, 0U);
  }
}

TEST(Explain, WhatCostsNothingIsAView) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Relu", {"x"}, {"a"}, {}, "relu"},
                                     {"Reshape", {"a", "shape"}, {"b"}, {}, "reshaped"},
                                     {"TopK", {"b", "k"}, {"c", "i"}, {}, "chosen"},
                                     {"Unsqueeze", {"c", "axis"}, {"d"}, {}, "unsqueezed"},
                                     {"TopK", {"d", "k"}, {"y", "j"}, {}, "again"},
                                     {"Shape", {"x"}, {"s"}, {}, "extents"},
                                     {"Slice", {"x", "zero", "zero"}, {"nothing"}, {}, "cut"},
                                     {"Exp", {"nothing"}, {"z"}, {}, "exp"}},
                           .inputs = {onnx::value("x", DType::f32, {"n", 6})},
                           .outputs = {onnx::value("y", DType::f32, {"a", "b", "c"}), onnx::value("s", DType::i64, {2}),
                                       onnx::value("z", DType::f32, {"d", 6})},
                           .initializers = {
                               onnx::tensor("shape", {2}, onnx::Ints{-1, 4}), onnx::tensor("k", {1}, onnx::Ints{1}),
                               onnx::tensor("axis", {1}, onnx::Ints{0}), onnx::tensor("zero", {1}, onnx::Ints{0})}}});
  const tools::PlanRecord plan = tools::explain(engine, {{"x", Shape{2, 6}}});
  const auto expect_view = [&](const char* node, const char* kernel) {
    SCOPED_TRACE(node);
    EXPECT_EQ(step_of(plan, node).backend, "view");
    EXPECT_EQ(step_of(plan, node).kernel, kernel);
    EXPECT_FALSE(step_of(plan, node).allocates);
    EXPECT_EQ(step_of(plan, node).why_not_real_time, "");
  };
  expect_view("reshaped", "alias");
  expect_view("unsqueezed", "alias");
  expect_view("extents", "known");
  expect_view("exp", "empty");
  const auto place = [&](const char* node) { return &step_of(plan, node) - plan.steps.data(); };
  EXPECT_LT(place("relu"), place("reshaped"));
  EXPECT_LT(place("reshaped"), place("chosen"));
}

TEST(Explain, PartsWithSequencesRunNodeByNode) {
  const Engine engine = engine_of({.graph = {.nodes = {{"SequenceConstruct", {"x", "x"}, {"s"}, {}, "made"},
                                                       {"SequenceLength", {"s"}, {"y"}, {}, "counted"}},
                                             .inputs = {onnx::value("x", DType::f32, {"n"})},
                                             .outputs = {onnx::value("y", DType::i64, {})}}});
  const tools::PlanRecord plan = tools::explain_run(engine, {{"x", Tensor(DType::f32, {3})}});
  for (const char* node : {"made", "counted"}) EXPECT_EQ(step_of(plan, node).backend, "plain") << node;
  EXPECT_EQ(step_of(plan, "counted").outputs, std::vector<std::string>{"i64[]"});
  EXPECT_EQ(step_of(tools::explain(engine, {{"x", Shape{3}}}), "made").backend, "not run");
}

TEST(Explain, OfALoopItIsTheLastTurn) {
  const Engine engine =
      engine_of(loop_model({{"Concat", {"a", "x"}, {"b"}, {onnx::attr("axis", 0)}, "grown"}, go_on()}, {"m"}, {3}));
  const tools::PlanRecord plan = tools::explain_run(
      engine,
      {{"trips", Tensor::scalar(std::int64_t{4})}, {"start", Tensor(DType::f32, {0})}, {"x", Tensor(DType::f32, {3})}});
  EXPECT_EQ(step_of(plan, "grown").outputs, std::vector<std::string>{"f32[12]"});
}

TEST(Explain, ARunThatFailsTellsWhereAndWhatWentBefore) {
  const Engine engine = engine_of(loop_model({{"Gather", {"x", "i"}, {"b"}, {}, "pick"}, go_on()}, {}, {3}));
  const tools::PlanRecord plan = tools::explain_run(
      engine,
      {{"trips", Tensor::scalar(std::int64_t{9})}, {"start", Tensor(DType::f32, {})}, {"x", Tensor(DType::f32, {3})}});
  EXPECT_NE(plan.run_ended_by.find("Gather 'pick': index 3"), std::string::npos) << plan.run_ended_by;
  EXPECT_EQ(step_of(plan, "loop").backend, "region");
  EXPECT_EQ(step_of(plan, "pick").backend, "jit");
}

TEST(Explain, InputsThatDoNotFitAreRefused) {
  const auto result = tools::try_explain_run(engine_of(branches()), {{"x", Tensor(DType::f32, {5})}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
}

TEST(SpecializedGraph, HoldsWhatPassesMadeOfEverySegment) {
  const Engine engine = engine_of(branches());
  const std::string text = tools::graph(engine, tools::Stage::specialized, tools::GraphFormat::text, {{"x", Shape{5}}});
  const auto line = [&](const std::string& op) {
    const std::size_t at = text.find(op + "(");
    if (at == std::string::npos) return std::string("no ") + op + " in " + text;
    const std::size_t begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  EXPECT_EQ(ops::to_text(ops::parse_text(text)), text);
  EXPECT_NE(line("Tanh").find("f32[5]"), std::string::npos) << text;
  EXPECT_NE(line("Neg").find("f32[5]"), std::string::npos) << text;
  EXPECT_EQ(line("Exp").find("f32[5]"), std::string::npos) << "the run on zeros does not come here:\n" << text;
}

TEST(SpecializedGraph, PassesOfEverySegmentAreListed) {
  const Engine engine = engine_of(branches());
  std::size_t lowered = 0;
  const auto records = unwrap(tools::try_passes(engine, {{"x", Shape{5}}}));
  for (const tools::PassRecord& r : records) lowered += r.name == "lower" ? 1 : 0;
  EXPECT_EQ(lowered, 2U) << "the else branch and what follows it";
}

}  // namespace
}  // namespace lathe::tests
