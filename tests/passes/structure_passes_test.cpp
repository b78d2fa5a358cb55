// The passes that know shapes (lower, alter_op_layout, graph_fuse), and the pass manager.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/passes/pass_run.h"

namespace lathe::passes {
namespace {

TEST(Lower, SaysCompositesInSimplerOperators) {
  for (const char* op : {"Softmax(%x)", "LogSoftmax(%x) {axis = 1}", "Gelu(%x)", "Mish(%x)"}) {
    const std::string text = std::string("graph g(%x: f32[2,3,4]) {\n  %y = ") + op + " @y\n  return %y\n}";
    const PassResult r = expect_same_results(lower, text);
    for (ops::NodeId id : r.graph.order()) EXPECT_FALSE(r.graph.node(id).op->lower) << op << ": " << r.operators();
  }
}

TEST(Lower, LeavesLoopsAndContractionsAlone) {
  const PassResult r = run_pass(
      lower, "graph g(%x: f32[2,3], %w: f32[3,4]) {\n  %m = MatMul(%x, %w) @m\n  %y = Relu(%m) @y\n  return %y\n}");
  EXPECT_EQ(r.operators(), "MatMul Relu");
  EXPECT_EQ(r.changes, 0U);
}

std::string quantized_product(const std::string& weights, const std::string& zero) {
  return "graph g(%x: f32[2,3]) {\n  %s = constant f32[] [0.05]\n  %z = constant u8[] [100]\n" + weights + zero +
         "  %q = QuantizeLinear(%x, %s, %z) @q\n  %y = MatMulInteger(%q, %w, %z" + (zero.empty() ? "" : ", %zw") +
         ") @y\n  return %y\n}";
}

TEST(PackMatMulInteger, ConstantWeightsArePackedWithTheirZeroPoints) {
  const std::string i8 = "  %w = constant i8[3,2] [1, -128, 127, 3, -4, 5]\n";
  const std::string u8 = "  %w = constant u8[3,2] [1, 128, 255, 3, 0, 5]\n";
  struct Case {
    std::string weights, zero;
    bool corrected;  // by the columns' zero points
  };
  for (const Case& c : {Case{i8, "", false}, Case{i8, "  %zw = constant i8[] [0]\n", false},
                        Case{i8, "  %zw = constant i8[2] [3, -7]\n", true}, Case{u8, "", true},
                        Case{u8, "  %zw = constant u8[] [128]\n", true}}) {
    const PassResult r = expect_same_results(pack_matmul_integer, quantized_product(c.weights, c.zero));
    EXPECT_EQ(r.operators(), "QuantizeLinear PackMatrix PackedMatMul");
    const ops::Node& product = r.graph.node(r.graph.order().back());
    EXPECT_EQ(product.inputs.size() > 4 && product.inputs[4] != ops::kNone, c.corrected) << c.weights << c.zero;
  }
}

TEST(PackMatMulInteger, LeavesProductsOfComputedMatrices) {
  const std::string text =
      "graph g(%x: f32[2,2]) {\n  %s = constant f32[] [0.05]\n  %q = QuantizeLinear(%x, %s) @q\n"
      "  %y = MatMulInteger(%q, %q) @y\n  return %y\n}";
  EXPECT_EQ(run_pass(pack_matmul_integer, text).changes, 0U);
}

/// Heads merged with the batch, the last two dims swapped, and split again.
std::string swapped(const std::string& split, const std::string& perm = "[0, 2, 1]") {
  return "graph g(%x: f32[2,3,4,5]) {\n  %to = constant i64[3] [-1, 4, 5]\n  %back = constant i64" + split +
         "\n  %m = Reshape(%x, %to) @m\n  %t = Transpose(%m) {perm = " + perm + "} @t\n  %r = Reshape(%t, %back) @r\n" +
         "  %y = Neg(%r) @y\n  return %y\n}";
}

TEST(ReshapeToView, ATransposeOfMergedDimsIsOneView) {
  EXPECT_EQ(expect_same_results(reshape_to_view, swapped("[4] [2, 3, 5, 4]")).operators(),
            "Reshape Transpose TransposeBlocks Neg");  // the first two are dead
  EXPECT_EQ(expect_same_results(reshape_to_view, swapped("[4] [0, 4, 2, 3]", "[2, 1, 0]")).operators(),
            "Reshape Transpose TransposeBlocks Neg");
}

TEST(ReshapeToView, OtherSplitsStayReshapes) {
  for (const char* split : {"[4] [3, 2, 5, 4]", "[2] [6, 20]", "[5] [2, 3, 5, 2, 2]", "[1] [120]"})
    EXPECT_EQ(expect_same_results(reshape_to_view, swapped(split)).operators(), "Reshape Transpose Reshape Neg")
        << split;
}

class ChannelsLast final : public TargetInfo {
 public:
  [[nodiscard]] bool prefers_channels_last() const override { return true; }
};

std::string two_convolutions() {
  return "graph g(%x: f32[1,2,6,6]) {\n  %w = " + constant({2, 2, 3, 3}, 1) +
         "\n  %a = Conv(%x, %w) @a\n  %b = Relu(%a) @b\n  %y = Conv(%b, %w) @y\n  return %y\n}";
}

TEST(AlterOpLayout, ARegionOfConvolutionsIsCopiedAtItsEdgesOnly) {
  const ChannelsLast target;
  const PassResult r = expect_same_results(alter_op_layout, two_convolutions(), test_context(&target));
  EXPECT_EQ(r.operators(), "Copy Conv Relu Conv Copy");
  const std::vector<ops::NodeId> order = r.graph.order();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ops::Layout& layout = r.graph.value(r.graph.node(order[i]).outputs[0]).fact->layout;
    EXPECT_EQ(layout.row_major, i + 1 == order.size()) << "node " << i;
  }
}

TEST(AlterOpLayout, NothingWithoutConvolutionsOrWithoutTheTargetsWish) {
  const ChannelsLast target;
  EXPECT_EQ(run_pass(alter_op_layout, "graph g(%x: f32[1,2,6,6]) {\n  %y = Relu(%x) @y\n  return %y\n}",
                     test_context(&target))
                .changes,
            0U);
  EXPECT_EQ(run_pass(alter_op_layout, two_convolutions()).changes, 0U);
}

TEST(AlterOpLayout, PlainKernelsReadRowMajor) {
  const ChannelsLast target;
  const std::string text = "graph g(%x: f32[1,2,4,4], %i: i64[1,2,2,2]) {\n  %w = " + constant({2, 2, 3, 3}, 1) +
                           "\n  %a = Conv(%x, %w) @a\n  %y = NonZero(%a) @y\n  return %y\n}";
  ops::Graph graph = ops::parse_text(text);
  for (ops::NodeId id : graph.order()) {
    if (!graph.node(id).op->dynamic_output) ops::infer_one(graph, id);
  }
  graph.value(graph.outputs[0]).fact = ops::Fact{};
  Context context = test_context(&target);
  alter_op_layout(graph, context);
  for (ops::NodeId id : graph.order()) {
    if (graph.node(id).op->name != "NonZero") continue;
    EXPECT_TRUE(graph.value(graph.node(id).inputs[0]).fact->layout.row_major);
  }
}

/// The groups of a graph as "Add Mul | Softmax": one part per group, in execution order.
std::string groups_of(const std::string& text, bool fuse = true) {
  ops::Graph graph = ops::parse_text(text);
  ops::infer_graph(graph);
  Context context = test_context();
  lower(graph, context);
  graph.compact();
  std::string result;
  for (const ops::Group& group : graph_fuse(graph, {}, fuse)) {
    std::vector<std::string> names;
    for (ops::NodeId id : group.nodes) names.emplace_back(graph.node(id).op->name);
    std::sort(names.begin(), names.end());
    if (!result.empty()) result += " |";
    for (const std::string& name : names) result += (result.empty() ? "" : " ") + name;
  }
  return result;
}

TEST(GraphFuse, PointwiseNodesAreOneKernel) {
  const std::string text = R"(graph g(%x: f32[4,5], %b: f32[5]) {
  %a = Add(%x, %b) @a
  %e = Exp(%a) @e
  %y = Mul(%e, %x) @y
  return %y
})";
  EXPECT_EQ(groups_of(text), "Add Exp Mul");
  EXPECT_EQ(groups_of(text, false), "Add | Exp | Mul");
}

TEST(GraphFuse, SoftmaxIsOneRowKernel) {
  EXPECT_EQ(groups_of("graph g(%x: f32[4,50]) {\n  %y = Softmax(%x) @y\n  return %y\n}").find('|'), std::string::npos);
}

TEST(GraphFuse, LayerNormalizationIsOneRowKernel) {
  EXPECT_EQ(groups_of("graph g(%x: f32[4,50], %s: f32[50]) {\n  %y = LayerNormalization(%x, %s) @y\n  return %y\n}")
                .find('|'),
            std::string::npos);
}

TEST(GraphFuse, AContractionTakesBiasAndActivation) {
  EXPECT_EQ(groups_of(R"(graph g(%x: f32[4,5], %w: f32[5,6], %b: f32[6]) {
  %m = MatMul(%x, %w) @m
  %a = Add(%m, %b) @a
  %y = Relu(%a) @y
  return %y
})"),
            "Add MatMul Relu");
}

TEST(GraphFuse, ATransposedConvolutionTakesAnEpilogueButNoPrologue) {
  const std::string text = R"(graph g(%x: f32[1,2,4,4], %w: f32[2,3,2,2], %r: f32[1,3,5,5]) {
  %a = Neg(%x) @a
  %c = ConvTranspose(%a, %w) @c
  %s = Add(%c, %r) @s
  %y = Relu(%s) @y
  return %y
})";
  EXPECT_EQ(groups_of(text), "Neg | Add ConvTranspose Relu");
  EXPECT_EQ(groups_of(text, false), "Neg | ConvTranspose | Add | Relu");
}

TEST(GraphFuse, AViewThatATransposedConvolutionReadsComesBeforeItWhateverItsEpilogueReads) {
  const std::string text = R"(graph g(%x: f32[1,2,4,3], %w: f32[2,2,1,1]) {
  %t = Transpose(%x) {perm = [0, 1, 3, 2]} @t
  %c = ConvTranspose(%t, %w) @c
  %y = Add(%c, %t) @y
  return %y
})";
  EXPECT_EQ(groups_of(text), "Transpose | Add ConvTranspose Transpose");
}

TEST(GraphFuse, ViewsCostNoKernel) {
  const std::string groups = groups_of(R"(graph g(%x: f32[4,5], %z: f32[5,4]) {
  %t = Transpose(%x) @t
  %y = Add(%t, %z) @y
  return %y
})");
  EXPECT_EQ(groups.find('|'), std::string::npos) << groups;
}

TEST(GraphFuse, EachGroupComesAfterWhatItReads) {
  const std::string text = R"(graph g(%x: f32[4,5], %w: f32[5,5]) {
  %a = Neg(%x) @a
  %m = MatMul(%a, %w) @m
  %b = Add(%m, %a) @b
  %n = MatMul(%b, %w) @n
  %y = Sub(%n, %m) @y
  return %y
})";
  ops::Graph graph = ops::parse_text(text);
  ops::infer_graph(graph);
  std::vector<bool> there(graph.value_count(), false);
  for (ops::ValueId v : graph.inputs) there[static_cast<std::size_t>(v)] = true;
  std::size_t nodes = 0;
  for (const ops::Group& group : graph_fuse(graph, {}, true)) {
    std::vector<bool> inside = there;
    for (ops::NodeId id : group.nodes) {
      for (ops::ValueId v : graph.node(id).outputs) inside[static_cast<std::size_t>(v)] = true;
    }
    for (ops::NodeId id : group.nodes) {
      for (ops::ValueId v : graph.node(id).inputs) EXPECT_TRUE(inside[static_cast<std::size_t>(v)]);
    }
    there = inside;
    nodes += group.nodes.size();
  }
  EXPECT_EQ(nodes, 5U);
}

std::vector<Record> run_all(const std::string& switches) {
  ops::Graph graph = ops::parse_text(R"(graph g(%x: f32[4]) {
  %i = Identity(%x) @i
  %y = Softmax(%i) @y
  return %y
})");
  std::vector<Record> records;
  Context context = test_context();
  context.switches = switches;
  context.records = &records;
  run_at_load(graph, context);
  ops::infer_graph(graph);
  run_for_structure(graph, context);
  return records;
}

TEST(PassManager, RunsEveryPassInOrderAndTellsWhatItDid) {
  const std::vector<Record> records = run_all("");
  ASSERT_EQ(records.size(), all_passes().size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].pass, all_passes()[i].name);
    EXPECT_EQ(records[i].at_load, all_passes()[i].at_load);
    EXPECT_FALSE(records[i].switched_off);
    EXPECT_GE(records[i].seconds, 0);
  }
  EXPECT_EQ(records[0].pass, "simplify_inference");
  EXPECT_EQ(records[0].changes, 1U);
  EXPECT_EQ(records[0].nodes_before, 2U);
  EXPECT_EQ(records[0].nodes_after, 1U);
  EXPECT_EQ(records.back().pass, "graph_fuse");
  EXPECT_EQ(records.back().changes, records.back().nodes_before - 1) << "a softmax is one kernel";
}

TEST(PassManager, SwitchesTurnOffAllButWhatAlwaysRuns) {
  for (const Record& r : run_all("-all")) EXPECT_EQ(r.switched_off, r.pass != "lower") << r.pass;
  for (const Record& r : run_all("-fold_constant,-simplify_inference"))
    EXPECT_EQ(r.switched_off, r.pass == "fold_constant" || r.pass == "simplify_inference") << r.pass;
}

}  // namespace
}  // namespace lathe::passes
