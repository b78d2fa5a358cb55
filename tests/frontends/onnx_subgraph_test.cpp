// Subgraphs: what they read of the graphs around them becomes explicit.
#include <gtest/gtest.h>

#include "tests/frontends/import_text.h"

namespace lathe::tests {
namespace {

using namespace onnx;

const Bytes kOut = value("o", DType::f32, {2});
const std::vector<Bytes> kInputs = {value("c", DType::boolean, {}), value("x", DType::f32, {2})};
const std::vector<Bytes> kY = {value("y", DType::f32, {2})};

NodeSpec branch_on(const std::string& condition, const GraphSpec& then_branch, const GraphSpec& else_branch,
                   const std::string& output) {
  return {"If",
          {condition},
          {output},
          {attr_graph("then_branch", graph(then_branch)), attr_graph("else_branch", graph(else_branch))}};
}

TEST(OnnxSubgraph, CapturesAreTheSameInBothBranches) {
  const GraphSpec then_branch = {.nodes = {{"Relu", {"a"}, {"o"}}}, .outputs = {kOut}, .name = "then"};
  const GraphSpec else_branch = {.nodes = {{"Add", {"b", "a"}, {"o"}}}, .outputs = {kOut}, .name = "else"};
  EXPECT_EQ(import_text({.graph = {.nodes = {branch_on("c", then_branch, else_branch, "y"),
                                             {"Neg", {"x"}, {"a"}},
                                             {"Abs", {"x"}, {"b"}}},
                                   .inputs = kInputs,
                                   .outputs = kY}}),
            R"(graph g(%c: bool[], %x: f32[2]) {
  %a = Neg(%x) @a
  %b = Abs(%x) @b
  %y = If(%c, %a, %b) captures 2 @y {
    graph then(%a, %unused) {
      %o = Relu(%a) @o
      return %o: f32[2]
    }
    graph else(%a, %b) {
      %o = Add(%b, %a) @o
      return %o: f32[2]
    }
  }
  return %y: f32[2]
}
)");
}

TEST(OnnxSubgraph, ConstantsAreCopiedAndOutputsMayBeOuterValues) {
  const GraphSpec then_branch = {.nodes = {{"Mul", {"x", "w"}, {"o"}}}, .outputs = {kOut}, .name = "then"};
  const GraphSpec else_branch = {.nodes = {}, .outputs = {value("x", DType::f32, {2})}, .name = "else"};
  EXPECT_EQ(import_text({.graph = {.nodes = {branch_on("c", then_branch, else_branch, "y")},
                                   .inputs = kInputs,
                                   .outputs = kY,
                                   .initializers = {tensor("w", {2}, std::vector<float>{1, 2})}}}),
            R"(graph g(%c: bool[], %x: f32[2]) {
  %y = If(%c, %x) captures 1 @y {
    graph then(%x) {
      %w = constant f32[2] [1.0, 2.0]
      %o = Mul(%x, %w) @o
      return %o: f32[2]
    }
    graph else(%x: f32[2]) {
      return %x
    }
  }
  return %y: f32[2]
}
)");
}

TEST(OnnxSubgraph, NestedGraphsCaptureThroughTheOnesAround) {
  const GraphSpec leaf = {.nodes = {{"Relu", {"x"}, {"o"}}}, .outputs = {kOut}, .name = "leaf"};
  const GraphSpec shadow = {
      .nodes = {{"Neg", {"a"}, {"x"}}, {"Abs", {"x"}, {"o"}}}, .outputs = {kOut}, .name = "shadow"};
  const GraphSpec inner = {.nodes = {branch_on("d", leaf, shadow, "o")}, .outputs = {kOut}, .name = "inner"};
  EXPECT_EQ(
      import_text({.graph = {.nodes = {{"Not", {"c"}, {"d"}}, {"Exp", {"x"}, {"a"}}, branch_on("c", inner, leaf, "y")},
                             .inputs = kInputs,
                             .outputs = kY}}),
      R"(graph g(%c: bool[], %x: f32[2]) {
  %d = Not(%c) @d
  %a = Exp(%x) @a
  %y = If(%c, %d, %x, %a) captures 3 @y {
    graph inner(%d, %x, %a) {
      %o = If(%d, %x, %a) captures 2 @o {
        graph leaf(%x, %unused) {
          %o = Relu(%x) @o
          return %o: f32[2]
        }
        graph shadow(%unused, %a) {
          %x = Neg(%a) @x
          %o = Abs(%x) @o
          return %o: f32[2]
        }
      }
      return %o: f32[2]
    }
    graph leaf(%unused, %x, %unused.1) {
      %o = Relu(%x) @o
      return %o: f32[2]
    }
  }
  return %y: f32[2]
}
)");
}

TEST(OnnxSubgraph, LoopBodiesKeepTheirOwnInputsFirst) {
  const GraphSpec body = {
      .nodes = {{"Identity", {"keep_in"}, {"keep"}}, {"Add", {"v", "x"}, {"next"}}},
      .inputs = {value("i", DType::i64, {}), value("keep_in", DType::boolean, {}), value("v", DType::f32, {2})},
      .outputs = {value("keep", DType::boolean, {}), value("next", DType::f32, {2})},
      .name = "body"};
  EXPECT_EQ(import_text({.graph = {.nodes = {{"Loop", {"n", "", "x"}, {"y"}, {attr_graph("body", graph(body))}}},
                                   .inputs = {value("n", DType::i64, {}), value("x", DType::f32, {2})},
                                   .outputs = kY}}),
            R"(graph g(%n: i64[], %x: f32[2]) {
  %y = Loop(%n, _, %x, %x) captures 1 @y {
    graph body(%i: i64[], %keep_in: bool[], %v: f32[2], %x) {
      %keep = Identity(%keep_in) @keep
      %next = Add(%v, %x) @next
      return %keep: bool[], %next: f32[2]
    }
  }
  return %y: f32[2]
}
)");
}

TEST(OnnxSubgraph, FunctionsInsideSubgraphsAndSubgraphsInsideFunctions) {
  const GraphSpec then_branch = {
      .nodes = {{"LeakyRelu", {"p"}, {"o"}, {attr_ref("alpha", 1, "slope")}}}, .outputs = {kOut}, .name = "then"};
  const GraphSpec else_branch = {.nodes = {{"Neg", {"p"}, {"o"}}}, .outputs = {kOut}, .name = "else"};
  const FunctionSpec choose = {.domain = "my",
                               .name = "Choose",
                               .inputs = {"q", "p"},
                               .outputs = {"r"},
                               .nodes = {branch_on("q", then_branch, else_branch, "r")},
                               .attributes = {"slope"}};
  const NodeSpec call = {"Choose", {"c", "x"}, {"o"}, {attr("slope", 0.5F)}, "", "my"};
  const GraphSpec calling = {.nodes = {call}, .outputs = {kOut}, .name = "calling"};
  const GraphSpec plain = {.nodes = {{"Abs", {"x"}, {"o"}}}, .outputs = {kOut}, .name = "plain"};
  EXPECT_EQ(import_text({.graph = {.nodes = {branch_on("c", calling, plain, "y")}, .inputs = kInputs, .outputs = kY},
                         .functions = {function(choose)}}),
            R"(graph g(%c: bool[], %x: f32[2]) {
  %y = If(%c, %c, %x) captures 2 @y {
    graph calling(%c, %x) {
      %o = If(%c, %x) captures 1 @r {
        graph then(%x) {
          %o = LeakyRelu(%x) {alpha = 0.5} @o
          return %o: f32[2]
        }
        graph else(%x) {
          %o = Neg(%x) @o
          return %o: f32[2]
        }
      }
      return %o: f32[2]
    }
    graph plain(%unused, %x) {
      %o = Abs(%x) @o
      return %o: f32[2]
    }
  }
  return %y: f32[2]
}
)");
}

TEST(OnnxSubgraph, Faults) {
  const GraphSpec branch = {.nodes = {{"Relu", {"x"}, {"o"}}}, .outputs = {kOut}};
  const GraphSpec lost = {.nodes = {{"Relu", {"nothing"}, {"o"}}}, .outputs = {kOut}};
  const auto message_of = [](NodeSpec node) {
    return import_error(ModelSpec{.graph = {.nodes = {std::move(node)}, .inputs = kInputs, .outputs = kY}}).message;
  };
  EXPECT_EQ(message_of(branch_on("c", branch, lost, "y")),
            "'model': If 'y': Relu 'o': nothing produces its input 'nothing'");
  EXPECT_EQ(message_of({"If", {"c"}, {"y"}, {attr_graph("then_branch", graph(branch))}}),
            "'model': If 'y': lacks its subgraph 'else_branch'");
  // A branch that reads the If's own output.
  const GraphSpec own = {.nodes = {{"Relu", {"y"}, {"o"}}}, .outputs = {kOut}};
  EXPECT_NE(message_of(branch_on("c", branch, own, "y")).find("cycle"), std::string::npos);
  const GraphSpec none = {.nodes = {}, .outputs = {}};
  EXPECT_EQ(message_of(branch_on("c", branch, none, "y")),
            "'model': If 'y': its subgraph 'else_branch' has 0 outputs, expected 1");
}

}  // namespace
}  // namespace lathe::tests
