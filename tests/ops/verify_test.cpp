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
  graph.node(0).inputs[1] = graph.node(1).outputs[0];
  EXPECT_NE(fault(graph).find("cycle"), std::string::npos) << fault(graph);
}

TEST(Verify, MissingProducer) {
  Graph graph = sample();
  graph.node(0).inputs[1] = graph.add_value("lost");
  EXPECT_EQ(fault(graph), "Add 'first': nothing produces its input 'lost'");
  graph = sample();
  graph.outputs[0] = graph.add_value("lost");
  EXPECT_EQ(fault(graph), "nothing produces graph output 'lost'");
}

TEST(Verify, TwoProducers) {
  Graph graph = sample();
  graph.node(1).outputs = graph.node(0).outputs;
  EXPECT_EQ(fault(graph), "value 'a' has two producers");
  graph = sample();
  graph.inputs.push_back(graph.inputs[0]);
  EXPECT_EQ(fault(graph), "value 'x' has two producers");
}

TEST(Verify, IndicesOutOfRange) {
  for (const ValueId bad : {ValueId{99}, ValueId{-2}}) {
    Graph graph = sample();
    graph.node(1).inputs[0] = bad;
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
  graph.node(0).inputs.pop_back();
  EXPECT_EQ(fault(graph), "Add 'first': 1 inputs, expected 2");
  graph = sample();
  graph.node(1).attributes.set("nope", std::int64_t{1});
  EXPECT_EQ(fault(graph), "Relu 'second': unknown attribute 'nope'");
}

TEST(Verify, Captures) {
  Graph graph = sample();
  graph.node(1).captures = 2;
  EXPECT_NE(fault(graph).find("captures"), std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
