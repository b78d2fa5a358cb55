// alter_op_layout: keeps convolution regions channels-last in memory.
//
// A layout is a property of a value, not a node of the graph: loops read and write any strides, so only what needs a
// certain order gets a copy in front of it (lathe::Copy). Convolutions read and write channels-last; pointwise
// operators, pools and Concat keep the order of what they read, also through views (a Transpose of channels-last memory
// is row-major as it stands); plain kernels, Reshape and the graph's outputs stay row-major.
#include <algorithm>
#include <cstdlib>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::Fact;
using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

/// Whether two layouts order the dims that have several elements in the same way.
bool same_order(const Shape& shape, const ops::Layout& a, const ops::Layout& b) {
  int q = 0;
  for (int p = 0; p < shape.rank(); ++p) {
    if (shape[a.dim_at(p)] == 1) continue;
    while (shape[b.dim_at(q)] == 1) ++q;
    if (a.dim_at(p) != b.dim_at(q)) return false;
    ++q;
  }
  return true;
}

class Layouts {
 public:
  explicit Layouts(ops::Graph& graph) : graph_(graph) {}

  std::size_t run() {
    for (NodeId id : graph_.order()) visit(id);
    for (ValueId& out : graph_.outputs) {
      if (!row_major(out)) out = copy(out, {});
    }
    return changes_;
  }

 private:
  [[nodiscard]] Fact& fact(ValueId v) { return *graph_.value(v).fact; }
  [[nodiscard]] bool row_major(ValueId v) {
    return v == kNone || !graph_.value(v).fact || same_order(fact(v).shape, fact(v).layout, {});
  }

  /// `v` in another order, made once per order.
  ValueId copy(ValueId v, const ops::Layout& layout) {
    for (const auto& [from, to] : copies_) {
      if (from == v && fact(to).layout == layout) return to;
    }
    ops::Builder b(graph_, graph_.value(v).name + (layout.row_major ? "/row_major" : "/channels_last"));
    const ValueId made = b.op("lathe::Copy", {v});
    fact(made).layout = layout;
    copies_.emplace_back(v, made);
    ++changes_;
    return made;
  }

  void set(ValueId v, const ops::Layout& layout) {
    if (v == kNone || same_order(fact(v).shape, layout, fact(v).layout)) return;
    fact(v).layout = layout;
    ++changes_;
  }

  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (outputs_known(graph_, node) || node.outputs.empty() || node.outputs[0] == kNone) return;
    if ((is(node, "Conv") || is(node, "ConvTranspose")) && fact(node.inputs[0]).dtype == DType::f32) {
      if (!graph_.value(node.inputs[1]).is_constant() || fact(node.inputs[0]).rank() > 5) return rows(id);
      const ValueId x = node.inputs[0];
      const auto wanted = ops::Layout::channels_last(fact(x).rank());
      if (!same_order(fact(x).shape, fact(x).layout, wanted)) graph_.edit(id).inputs[0] = copy(x, wanted);
      set(node.outputs[0], wanted);
      return;
    }
    if (is(node, "Concat")) {
      follow(node);
      return;
    }
    if (!node.op->expr) return rows(id);
    if (node.op->is_view) return view(id);
    // Pools are contractions over a window: they keep the order of what they read. Matrix products do not.
    if (node.op->contraction && node.op->name.starts_with("MatMul")) return;
    follow(node);
  }

  /// The output takes the order of the first input that has its rank and is not row-major.
  void follow(const Node& node) {
    for (ValueId out : node.outputs) {
      if (out == kNone) continue;
      for (ValueId in : node.inputs) {
        if (row_major(in) || fact(in).rank() != fact(out).rank()) continue;
        set(out, fact(in).layout);
        break;
      }
    }
  }

  /// The order in which a view's result lies in the memory it looks at.
  void view(NodeId id) {
    const ValueId out = graph_.node(id).outputs[0];
    const Fact& f = fact(out);
    if (f.shape.elements() == 0) return;
    try {
      const ops::GroupKernel k = ops::build_kernel(graph_, ops::single_node_group(graph_, id, 0), false);
      if (k.kernel.loads.size() != 1 || !k.kernel.loads[0].indirect.empty()) return;
      ops::Layout order;
      order.row_major = false;
      std::vector<int> dims;
      for (int d = 0; d < f.rank(); ++d) dims.push_back(d);
      const auto& strides = k.kernel.loads[0].strides;
      // Repeated and single elements have no place of their own: they stay where they are.
      std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
        const auto sa = std::abs(strides[static_cast<std::size_t>(a)]);
        const auto sb = std::abs(strides[static_cast<std::size_t>(b)]);
        return sa != 0 && sb != 0 && f.shape[a] != 1 && f.shape[b] != 1 && sa > sb;
      });
      for (std::size_t p = 0; p < dims.size(); ++p) order.order[p] = static_cast<std::uint8_t>(dims[p]);
      set(out, order);
    } catch (const ops::NotFusable&) {
      return;
    }
  }

  /// A node that reads row-major memory only.
  void rows(NodeId id) {
    for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
      const ValueId v = graph_.node(id).inputs[i];
      if (!row_major(v)) graph_.edit(id).inputs[i] = copy(v, {});
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
