// A graph for Graphviz.
#include <fmt/format.h>

#include "ops/ir/op.h"
#include "runtime/tools/graph_view.h"

namespace lathe::runtime {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : shown(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

class DotWriter {
 public:
  std::string write(const ops::Graph& graph) {
    out_ =
        "digraph model {\n  node [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=10];\n"
        "  edge [fontname=\"sans-serif\", fontsize=8];\n";
    body(graph);
    return std::move(out_) + "}\n";
  }

 private:
  void body(const ops::Graph& graph) {
    const int scope = scopes_++;
    const auto value_id = [&](ops::ValueId v) { return fmt::format("v{}_{}", scope, v); };
    const auto node_id = [&](ops::NodeId n) { return fmt::format("n{}_{}", scope, n); };
    for (ops::ValueId v : graph.inputs) {
      out_ += fmt::format("  {} [label={}, shape=ellipse];\n", value_id(v),
                          in_quotes(graph.value(v).name + " " + type_text(graph.value(v))));
    }
    const auto source = [&](ops::ValueId v) {
      const ops::NodeId producer = graph.value(v).producer;
      return producer == ops::kNone ? value_id(v) : node_id(producer);
    };
    for (ops::NodeId n : graph.order()) {
      const ops::Node& node = graph.node(n);
      out_ += fmt::format("  {} [label={}, tooltip={}];\n", node_id(n), in_quotes(node.op->name), in_quotes(node.name));
      for (ops::ValueId v : node.inputs) {
        if (v == ops::kNone || graph.value(v).is_constant()) continue;
        out_ += fmt::format("  {} -> {} [label={}];\n", source(v), node_id(n), in_quotes(type_text(graph.value(v))));
      }
      for (const auto& subgraph : node.subgraphs) {
        out_ +=
            fmt::format("  subgraph cluster_{} {{ label={};\n", scopes_, in_quotes(node.name + ": " + subgraph->name));
        body(*subgraph);
        out_ += "  }\n";
      }
    }
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      const ops::ValueDef& value = graph.value(graph.outputs[i]);
      out_ += fmt::format("  o{}_{} [label={}, shape=ellipse];\n", scope, i,
                          in_quotes(value.name + " " + type_text(value)));
      if (value.is_constant()) continue;
      out_ += fmt::format("  {} -> o{}_{};\n", source(graph.outputs[i]), scope, i);
    }
  }

  std::string out_;
  int scopes_ = 0;
};

}  // namespace

std::string to_dot(const ops::Graph& graph) { return DotWriter().write(graph); }

std::string type_text(const ops::ValueDef& value) {
  if (value.fact) return value.fact->to_string();
  if (value.declared) return value.declared->to_string();
  if (value.is_constant()) return ops::Fact(value.constant.dtype(), value.constant.shape()).to_string();
  return "?";
}

}  // namespace lathe::runtime
