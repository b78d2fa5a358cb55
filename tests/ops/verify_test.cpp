// The verifier: each rule broken once.
#include <gtest/gtest.h>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"
#include "ops/ir/text.h"

namespace lathe::ops {
namespace {

std::string fault(const Graph& graph) {
  try {
    verify(graph);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.code, ErrorCode::invalid_model);
    return failure.error.message;
  }
  return "none";
}

Graph sample() {
  return parse_text(R"(graph g(%x: f32[2]) {
  %w = constant f32[2] [1.0, 2.0]
  %a = Add(%x, %w) @first
  %b = Relu(%a) @second
  return %b
})");
}

TEST(Verify, ASoundGraphPasses) { EXPECT_EQ(fault(sample()), "none"); }

TEST(Verify, Cycle) {
  Graph graph = sample();
  graph.edit(0).inputs[1] = graph.node(1).outputs[0];
  EXPECT_NE(fault(graph).find("cycle"), std::string::npos) << fault(graph);
}

TEST(Verify, MissingProducer) {
  Graph graph = sample();
  graph.edit(0).inputs[1] = graph.add_value("lost");
  EXPECT_EQ(fault(graph), "Add 'first': nothing produces its input 'lost'");
  graph = sample();
  graph.outputs[0] = graph.add_value("lost");
  EXPECT_EQ(fault(graph), "nothing produces graph output 'lost'");
}

TEST(Verify, TwoProducers) {
  Graph graph = sample();
  graph.edit(1).outputs = graph.node(0).outputs;
  EXPECT_EQ(fault(graph), "value 'a' has two producers");
  graph = sample();
  graph.inputs.push_back(graph.inputs[0]);
  EXPECT_EQ(fault(graph), "value 'x' has two producers");
}

TEST(Verify, IndicesOutOfRange) {
  for (const ValueId bad : {ValueId{99}, ValueId{-2}}) {
    Graph graph = sample();
    graph.edit(1).inputs[0] = bad;
    EXPECT_NE(fault(graph).find("out of range"), std::string::npos) << fault(graph);
    graph = sample();
    graph.outputs[0] = bad;
    EXPECT_NE(fault(graph).find("out of range"), std::string::npos) << fault(graph);
    graph = sample();
    graph.inputs[0] = bad;
    EXPECT_NE(fault(graph).find("out of range"), std::string::npos) << fault(graph);
  }
}

TEST(Verify, Schema) {
  Graph graph = sample();
  graph.edit(0).inputs.pop_back();
  EXPECT_EQ(fault(graph), "Add 'first': 1 inputs, expected 2");
  graph = sample();
  graph.edit(1).attributes.set("nope", std::int64_t{1});
  EXPECT_EQ(fault(graph), "Relu 'second': unknown attribute 'nope'");
}

Graph conditional() {
  return parse_text(R"(graph g(%c: bool[], %x: f32[2]) {
  %y = If(%c, %x) captures 1 @choice {
    graph then(%x) { %a = Relu(%x) @inner return %a }
    graph else(%x) { return %x }
  }
  return %y
})");
}

TEST(Verify, Subgraphs) {
  EXPECT_EQ(fault(conditional()), "none");
  Graph graph = conditional();
  graph.node(0).subgraphs[0]->inputs.clear();
  EXPECT_EQ(fault(graph), "If 'choice': its subgraph 'then_branch' lacks captures");
  graph = conditional();
  graph.node(0).subgraphs[1]->outputs.clear();
  EXPECT_EQ(fault(graph), "If 'choice': its subgraph 'else_branch' has 0 outputs, expected 1");
  graph = conditional();
  graph.edit(0).subgraphs.pop_back();
  EXPECT_EQ(fault(graph), "If 'choice': 1 subgraphs, expected 2");
  graph = conditional();
  graph.edit(0).subgraphs[0]->edit(0).inputs[0] = graph.edit(0).subgraphs[0]->add_value("lost");
  EXPECT_EQ(fault(graph),
            "If 'choice': in its subgraph 'then_branch': Relu 'inner': nothing produces its input 'lost'");
  graph = conditional();
  graph.node(0).subgraphs[0]->add_input("more");
  EXPECT_EQ(fault(graph), "If 'choice': its subgraph 'then_branch' has 1 inputs, expected 0");
}

TEST(Verify, LoopBodies) {
  const auto loop = [](const std::string& outputs) {
    return parse_text("graph g(%n: i64[], %x: f32[2]) { %y, %s = Loop(%n, _, %x) @l { graph b(%i, %go, %v) { return " +
                      outputs + " } } return %y, %s }");
  };
  EXPECT_EQ(fault(loop("%go, %v, %v")), "none");
  EXPECT_EQ(fault(loop("%go, %v")), "Loop 'l': its subgraph 'body' has 2 outputs, expected 3");
}

TEST(Verify, Captures) {
  Graph graph = sample();
  graph.edit(1).captures = 2;
  EXPECT_NE(fault(graph).find("captures"), std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
