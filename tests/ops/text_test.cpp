// The text form: what prints parses back to the same graph, and what is no graph is refused with its place.
#include "ops/ir/text.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"

namespace lathe::ops {
namespace {

/// Parsing and printing gives the text itself.
void expect_stable(const std::string& text) { EXPECT_EQ(to_text(parse_text(text)), text); }

std::string refusal(const std::string& text) {
  try {
    parse_text(text);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.code, ErrorCode::invalid_model);
    return failure.error.message;
  }
  return "none";
}

TEST(Text, GraphOfNodesConstantsAndFacts) {
  expect_stable(R"(graph main(%x: f32[1,3], %n: f32[batch,4]) {
  %w = constant f32[3] [1.0, -2.5, 1e-07]
  %y = Mul(%x, %w) @scale : f32[1,3]
  %z = LeakyRelu(%y) {alpha = 0.5} @act
  return %z: f32[1,3]
}
)");
}

TEST(Text, DeclaredTypesOfEveryKind) {
  expect_stable(
      R"(graph main(%a: f32[2,batch,?], %b: f16[...], %c: ?[...], %d: seq(i64[...]), %e: optional(f32[2]), %f: map(f32[...]), %g: optional(seq(u8[...])), %h: f32["-1","odd name",p2o.Dim.0]) {
  return %a, %b
}
)");
}

TEST(Text, FactsBeyondTheDeclaredType) {
  expect_stable(
      R"(graph main(%x: f32[batch,4,8,8] fact f32[2,4,8,8]{0,2,3,1}, %y fact seq(f32), %k: i64[1] = i64[1] [3]) {
  %w = constant f32[2,2]{1,0} [1.0, 2.0, 3.0, 4.0]
  %z = Relu(%x) @r : f32[2,4,8,8]{0,2,3,1}
  return %z
}
)");
}

TEST(Text, FixedInputsGetFacts) {
  const Graph graph = parse_text("graph g(%x: f32[2,3], %y: f32[n]) { return %x }");
  ASSERT_TRUE(graph.value(graph.inputs[0]).fact.has_value());
  EXPECT_EQ(graph.value(graph.inputs[0]).fact->shape, (Shape{2, 3}));
  EXPECT_FALSE(graph.value(graph.inputs[1]).fact.has_value());
}

TEST(Text, ConstantsOfEveryDtype) {
  expect_stable(R"(graph main() {
  %f64 = constant f64[3] [0.1, inf, nan]
  %f16 = constant f16[3] [0.0999755859375, -inf, 65504.0]
  %bf16 = constant bf16[2] [1.0, 3.3895313892515355e+38]
  %f8 = constant f8e5m2[3] [0x00, 0x7c, 0xff]
  %f4 = constant f4e2m1[3] [0.5, -6.0, 1.0]
  %i4 = constant i4[3] [-8, 7, 0]
  %u4 = constant u4[2] [15, 1]
  %u2 = constant u2[5] [3, 2, 1, 0, 3]
  %i64 = constant i64[2] [-9223372036854775808, 9223372036854775807]
  %u64 = constant u64[] [18446744073709551615]
  %b = constant bool[2] [true, false]
  %s = constant string[2] ["a\"b\\", "\x00\xff\n"]
  %c = constant c64[2] [1.0, 2.0, -0.5, 0.0]
  %none = constant f32[0,4] []
  return %f64, %f16
}
)");
}

TEST(Text, AttributesOfEveryKind) {
  const OpDef op = {.name = "Test", .inputs = 0, .outputs = 1};
  Attributes attributes;
  attributes.set("b", 1.0);
  attributes.set("a", std::int64_t{-1});
  attributes.set("c", std::string("x y"));
  attributes.set("d", Tensor::from<float>({1, 2}, {2}));
  attributes.set("e", std::vector<std::int64_t>{0, 1});
  attributes.set("f", std::vector<double>{0.5, 1e30});
  attributes.set("g", std::vector<std::string>{"x", ""});
  attributes.set("h", std::vector<Tensor>{Tensor::scalar<std::int64_t>(3)});
  attributes.set("i", std::vector<std::int64_t>());
  attributes.set("j", std::vector<double>());
  attributes.set("k", std::vector<std::string>());
  Graph graph;
  Node node;
  node.op = &op;
  node.name = "n";
  node.outputs = {graph.add_value("y")};
  graph.outputs = node.outputs;
  graph.add_node(std::move(node));
  graph.edit(0).attributes = attributes;
  EXPECT_EQ(to_text(graph), R"(graph ""() {
  %y = Test() {a = -1, b = 1.0, c = "x y", d = tensor f32[2] [1.0, 2.0], e = [0, 1], f = [0.5, 1e+30], g = ["x", ""], h = tensors [i64[] [3]], i = ints [], j = floats [], k = strings []} @n
  return %y
}
)");
}

TEST(Text, NamesThatAreNotPlainAreQuotedAndDoubledOnesToldApart) {
  Graph graph;
  const ValueId x = graph.add_input("x:0");
  const OpDef& relu = *find_operator("Relu");
  const NodeId a = graph.add_node(relu, "same name", {x}, 1);
  const NodeId b = graph.add_node(relu, "same name", {graph.node(a).outputs[0]}, 1);
  graph.outputs = {graph.node(b).outputs[0]};
  const std::string text = to_text(graph);
  EXPECT_EQ(text, R"(graph ""(%"x:0") {
  %"same name.1" = Relu(%"x:0") @"same name"
  %"same name" = Relu(%"same name.1") @"same name"
  return %"same name"
}
)");
  expect_stable(text);
}

TEST(Text, SubgraphsWithCapturesAndAttributes) {
  expect_stable(R"(graph main(%c: bool[], %x: f32[2], %s: f32[3,2]) {
  %y = If(%c, %x) captures 1 {
    graph then(%x) {
      %a = Relu(%x) @a
      return %a: f32[2]
    }
    graph else(%unused) {
      %b = constant f32[2] [1.0, 2.0]
      return %b
    }
  } : f32[2]
  %z, %zs = Scan(%y, %s, %x) {num_scan_inputs = 1} captures 1 @scan {
    graph ""(%state, %element, %x) {
      %next = Add(%state, %element) @n
      %out = Mul(%next, %x) @o
      return %next, %out
    }
  }
  return %z, %zs
}
)");
}

TEST(Text, LargeConstantsAreAHashOfTheirContent) {
  Tensor large(DType::f32, {100});
  large.mutable_view<float>()[7] = 1;
  Graph graph;
  graph.outputs = {graph.add_constant(large, "w")};
  const std::string text = to_text(graph);
  EXPECT_NE(text.find("constant f32[100] #" + content_hash(large)), std::string::npos) << text;
  EXPECT_NE(refusal(text).find("is not known"), std::string::npos);
  const Graph again =
      parse_text(text, [&](std::string_view hash) { return hash == content_hash(large) ? large : Tensor(); });
  EXPECT_EQ(to_text(again), text);
  Tensor other = large.clone();
  other.mutable_view<float>()[8] = 1;
  EXPECT_NE(content_hash(other), content_hash(large));
}

TEST(Text, ForwardReferencesCommentsAndOmittedValues) {
  const Graph graph = parse_text(R"(
// a comment
graph g(%x: f32[2]) {
  %z = Add(%y, %x)  // reads what follows
  %y = Clip(%x, _, %m)
  %m = constant f32[] [6.0]
  return %z
})");
  EXPECT_EQ(graph.node(1).inputs[1], kNone);
  EXPECT_EQ(graph.order(), (std::vector<NodeId>{1, 0}));
}

TEST(Text, RefusalsNameThePlace) {
  EXPECT_EQ(refusal("graph g() {\n  %y = NoSuchOp()\n  return %y\n}"),
            "graph text, line 2, column 16: there is no operator 'NoSuchOp'");
  EXPECT_NE(refusal("graph g() { return %y }").find("nothing produces 'y'"), std::string::npos);
  EXPECT_NE(refusal("graph g(%x, %x) { return %x }").find("two inputs"), std::string::npos);
  EXPECT_NE(refusal("graph g(%x) { %y = Relu(%x) %y = Relu(%x) return %y }").find("two producers of 'y'"),
            std::string::npos);
  EXPECT_NE(refusal("graph g(%x) { %y = Relu(%x, %x) return %y }").find("2 inputs, expected 1"), std::string::npos);
  EXPECT_NE(refusal("graph g(%x) { %y = Relu(%x) {nope = 1} return %y }").find("unknown attribute 'nope'"),
            std::string::npos);
  EXPECT_NE(refusal("graph g() { %c = constant f32[2] [1] return %c }").find("expected ','"), std::string::npos);
  EXPECT_NE(refusal("graph g() { %c = constant f32[1000000000000] [1] return %c }").find("too large"),
            std::string::npos);
  EXPECT_NE(refusal("graph g() { %c = constant f32[2] [1, \"").find("expected a number"), std::string::npos);
  EXPECT_NE(refusal("graph g() { %c = constant string[1] [\"ab").find("no end"), std::string::npos);
  EXPECT_NE(refusal("graph g(%x: f32[2]{0}) { return %x }"), "none");
  EXPECT_NE(refusal("graph g(%x) { return %x } more").find("expected the end"), std::string::npos);
  EXPECT_NE(refusal(""), "none");
}

}  // namespace
}  // namespace lathe::ops
