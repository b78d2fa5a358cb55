// Pictures of graphs: what is in them, and that names from files cannot break out of them.
#include "runtime/tools/graph_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include <lathe/tools.h>

#include "ops/ir/op.h"

namespace lathe::runtime {
namespace {

ops::Graph hostile_graph() {
  ops::Graph graph;
  graph.name = "main";
  ValueInfo info;
  info.dtype = DType::f32;
  info.dims = std::vector<Dim>{{-1, "batch"}, {3, ""}};
  const ops::ValueId x = graph.add_input("x\"]; evil [label=\"", info);
  const ops::NodeId n = graph.add_node(*ops::find_operator("Relu"), "</div><script>alert(1)</script>\n", {x}, 1);
  graph.outputs = {graph.node(n).outputs[0]};
  return graph;
}

TEST(GraphView, DotQuotesNames) {
  const std::string dot = to_dot(hostile_graph());
  EXPECT_NE(dot.find("[label=\"Relu\""), std::string::npos) << dot;
  EXPECT_NE(dot.find("x\\\"]; evil [label=\\\""), std::string::npos) << dot;
  EXPECT_NE(dot.find("batch,3"), std::string::npos) << dot;
}

TEST(GraphView, HtmlEscapesNames) {
  const std::string html = to_html(hostile_graph());
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert"), std::string::npos);
  EXPECT_NE(html.find("<b>Relu</b>"), std::string::npos);
  EXPECT_TRUE(html.ends_with("</html>\n"));
}

TEST(OperatorTable, IsSortedAndSaysHowEachRuns) {
  const auto all = tools::operators();
  ASSERT_GT(all.size(), 20U);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LT(std::tie(all[i - 1].domain, all[i - 1].name), std::tie(all[i].domain, all[i].name));
  }
  const auto softmax = std::find_if(all.begin(), all.end(), [](const auto& op) { return op.name == "Softmax"; });
  ASSERT_NE(softmax, all.end());
  EXPECT_EQ(softmax->how, "lower");
  EXPECT_EQ(softmax->since, 13);
}

}  // namespace
}  // namespace lathe::runtime
