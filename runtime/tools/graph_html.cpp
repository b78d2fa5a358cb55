// A graph as one HTML page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/ir/op.h"
#include "runtime/tools/graph_view.h"

namespace lathe::runtime {
namespace {

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Model graph</title><style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #222; background: #fff; }
input { font: inherit; padding: .3rem .5rem; width: 24rem; max-width: 90%; margin-bottom: 1rem; }
.node { border: 1px solid #ccd; border-radius: 6px; padding: .3rem .6rem; margin: .25rem 0; }
.node:target { background: #fff3c4; }
.node b { color: #174ea6; }
.name, .attributes { color: #666; font-size: 12px; overflow-wrap: anywhere; }
.body { margin: .3rem 0 .3rem 1.2rem; border-left: 3px solid #dde; padding-left: .8rem; }
code { font-size: 12px; } a { color: inherit; }
@media (prefers-color-scheme: dark) { body { background: #17181c; color: #ddd; } .node { border-color: #445; }
  .node:target { background: #4a4020; } .node b { color: #8ab4f8; } .name, .attributes { color: #999; } }
</style></head><body>
<input id="search" placeholder="Show nodes with this operator, name or type" autofocus>
)html";

constexpr std::string_view kTail = R"html(<script>
document.getElementById("search").addEventListener("input", function (event) {
  const words = event.target.value.toLowerCase();
  for (const node of document.querySelectorAll(".node")) node.hidden = !node.textContent.toLowerCase().includes(words);
});
</script></body></html>
)html";

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : shown(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct AttributeText {
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return "\"" + v + "\""; }
  std::string operator()(const Tensor& v) const { return ops::Fact(v.dtype(), v.shape()).to_string(); }
  std::string operator()(const std::vector<std::int64_t>& v) const { return fmt::format("{}", v); }
  std::string operator()(const std::vector<double>& v) const { return fmt::format("{}", v); }
  std::string operator()(const std::vector<std::string>& v) const { return fmt::format("{} strings", v.size()); }
  std::string operator()(const std::vector<Tensor>& v) const { return fmt::format("{} tensors", v.size()); }
  std::string operator()(const ValueInfo& v) const { return v.to_string(); }
};

class HtmlWriter {
 public:
  std::string write(const ops::Graph& graph) {
    out_ = kHead;
    body(graph);
    return std::move(out_) + std::string(kTail);
  }

 private:
  void body(const ops::Graph& graph) {
    const int scope = scopes_++;
    for (ops::ValueId v : graph.inputs) {
      out_ += fmt::format("<div class=\"node\" id=\"v{}_{}\"><b>input</b> {}</div>\n", scope, v, value_text(graph, v));
    }
    for (ops::NodeId n : graph.order()) node(graph, graph.node(n), scope);
    for (ops::ValueId v : graph.outputs) {
      out_ += fmt::format("<div class=\"node\"><b>output</b> {}</div>\n", link(graph, v, scope));
    }
  }

  void node(const ops::Graph& graph, const ops::Node& node, int scope) {
    std::vector<std::string> outputs, inputs, attributes;
    std::string anchors;
    for (ops::ValueId v : node.outputs) {
      if (v == ops::kNone) continue;
      outputs.push_back(value_text(graph, v));
      anchors += fmt::format("<span id=\"v{}_{}\"></span>", scope, v);
    }
    for (ops::ValueId v : node.inputs) inputs.push_back(v == ops::kNone ? "_" : link(graph, v, scope));
    for (const auto& [name, value] : node.attributes) {
      attributes.push_back(escaped(name) + " = " + escaped(std::visit(AttributeText{}, value)));
    }
    out_ += fmt::format("<div class=\"node\">{}{} = <b>{}</b>({})", anchors, fmt::join(outputs, ", "),
                        escaped(node.op->name), fmt::join(inputs, ", "));
    if (!attributes.empty()) out_ += fmt::format(" <span class=\"attributes\">{}</span>", fmt::join(attributes, ", "));
    if (!node.name.empty()) out_ += fmt::format(" <span class=\"name\">{}</span>", escaped(node.name));
    for (const auto& subgraph : node.subgraphs) {
      out_ += fmt::format("<div class=\"body\"><b>{}</b>\n", escaped(subgraph->name));
      body(*subgraph);
      out_ += "</div>";
    }
    out_ += "</div>\n";
  }

  static std::string value_text(const ops::Graph& graph, ops::ValueId v) {
    return fmt::format("{} <code>{}</code>", escaped(graph.value(v).name), escaped(type_text(graph.value(v))));
  }
  static std::string link(const ops::Graph& graph, ops::ValueId v, int scope) {
    if (graph.value(v).is_constant()) return "constant " + value_text(graph, v);
    return fmt::format("<a href=\"#v{}_{}\">{}</a>", scope, v, value_text(graph, v));
  }

  std::string out_;
  int scopes_ = 0;
};

}  // namespace

std::string to_html(const ops::Graph& graph) { return HtmlWriter().write(graph); }

}  // namespace lathe::runtime
