// alter_op_layout: keeps convolution regions channels-last in memory.
//
// A layout is a property of a value, not a node of the graph: loops read and write any strides, so only what needs a
// certain order gets a copy in front of it (an Identity whose output has that order). Convolutions read and write
// channels-last, pointwise operators and Concat follow their inputs; plain kernels, Reshape and the graph's outputs
// stay row-major.
#include <algorithm>

#include "ops/ir/builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::Fact;
using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

bool is(const Node& node, std::string_view name) { return node.op->domain.empty() && node.op->name == name; }

/// Channels-last is another order than row-major only where there are several channels and several positions.
bool differs(const Fact& f) {
  if (f.rank() < 3 || f.rank() > 5 || f.shape[1] == 1) return false;
  for (int d = 2; d < f.rank(); ++d) {
    if (f.shape[d] != 1) return true;
  }
  return false;
}

class Layouts {
 public:
  explicit Layouts(ops::Graph& graph) : graph_(graph) {}

  std::size_t run() {
    for (NodeId id : graph_.order()) visit(id);
    for (ValueId& out : graph_.outputs) {
      if (!fact(out).layout.row_major) out = copy(out, {});
    }
    return changes_;
  }

 private:
  [[nodiscard]] Fact& fact(ValueId v) { return *graph_.value(v).fact; }
  [[nodiscard]] bool channels_last(ValueId v) {
    return v != kNone && graph_.value(v).fact && !fact(v).layout.row_major;
  }

  /// `v` in another order, made once per order.
  ValueId copy(ValueId v, const ops::Layout& layout) {
    for (const auto& [from, to] : copies_) {
      if (from == v && fact(to).layout == layout) return to;
    }
    ops::Builder b(graph_, graph_.value(v).name + (layout.row_major ? "/row_major" : "/channels_last"));
    const ValueId made = b.op("Identity", {v});
    fact(made).layout = layout;
    copies_.emplace_back(v, made);
    ++changes_;
    return made;
  }

  void make_channels_last(ValueId v) {
    if (v == kNone || !differs(fact(v))) return;
    fact(v).layout = ops::Layout::channels_last(fact(v).rank());
    ++changes_;
  }

  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    const bool known = std::all_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId v) { return v == kNone || graph_.value(v).known.has_value(); });
    if (known || node.outputs.empty() || node.outputs[0] == kNone) return;
    if ((is(node, "Conv") || is(node, "ConvTranspose")) && fact(node.inputs[0]).dtype == DType::f32) {
      if (!graph_.value(node.inputs[1]).is_constant()) return rows(id);
      const ValueId x = node.inputs[0];
      if (differs(fact(x)) && !channels_last(x))
        graph_.node(id).inputs[0] = copy(x, ops::Layout::channels_last(fact(x).rank()));
      make_channels_last(node.outputs[0]);
      return;
    }
    if (is(node, "Concat")) {
      follow(node);
      return;
    }
    if (!node.op->expr) return rows(id);
    if (node.op->is_view || node.op->contraction) {
      // Pools are contractions over a window: they keep the order of what they read.
      const bool matrices = node.op->name.starts_with("MatMul");
      if (node.op->contraction && !matrices && fact(node.outputs[0]).rank() == fact(node.inputs[0]).rank())
        follow(node);
      return;
    }
    follow(node);
  }

  /// The output takes the order of an input of its own shape and rank.
  void follow(const Node& node) {
    for (ValueId out : node.outputs) {
      if (out == kNone || !differs(fact(out))) continue;
      const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
        return channels_last(in) && fact(in).rank() == fact(out).rank() && fact(in).shape[1] != 1;
      });
      if (any) make_channels_last(out);
    }
  }

  /// A node that reads row-major memory only.
  void rows(NodeId id) {
    for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
      const ValueId v = graph_.node(id).inputs[i];
      if (channels_last(v)) graph_.node(id).inputs[i] = copy(v, {});
    }
  }

  ops::Graph& graph_;
  std::vector<std::pair<ValueId, ValueId>> copies_;
  std::size_t changes_ = 0;
};

}  // namespace

std::size_t alter_op_layout(ops::Graph& graph, Context& context) {
  if (!context.target || !context.target->prefers_channels_last()) return 0;
  bool any = false;
  for (NodeId id : graph.order()) any = any || is(graph.node(id), "Conv") || is(graph.node(id), "ConvTranspose");
  return any ? Layouts(graph).run() : 0;
}

}  // namespace lathe::passes
