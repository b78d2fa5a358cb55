// graph_fuse: gathers nodes into groups that run as one kernel each.
//
// A group is a loop nest over one domain. Pointwise nodes join the group that makes their input; reductions turn it
// into a row kernel over the same rows; what reads a contraction element by element becomes its epilogue. Views
// (Transpose, Slice, Expand, …) cost nothing: they are inlined into every group that reads through them, and become
// kernels of their own only where a plain kernel or the graph's output needs them in memory.
#include <algorithm>
#include <memory>
#include <optional>

#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::Graph;
using ops::Group;
using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

constexpr std::size_t kMaxInstructions = 160;
constexpr std::size_t kMaxBuffers = 24;

enum class Kind : std::uint8_t { known, plain, view, pointwise, reduction, contraction };

class Fuser {
 public:
  Fuser(const Graph& graph, const Context& context, bool fuse)
      : graph_(graph),
        context_(context),
        fuse_(fuse),
        order_(graph.order()),
        consumers_(graph.consumers()),
        group_of_(graph.node_count(), -1) {}

  std::vector<Group> run() {
    for (NodeId id : order_) {
      context_.check();
      place(id);
    }
    finish();
    return sorted();
  }

 private:
  struct Candidate {
    Group group;
    bool contraction = false;
    bool reduction = false;
    bool plain = false;
    bool dead = false;
    std::vector<int> needs;  ///< groups it reads from, directly
  };

  [[nodiscard]] Kind kind(NodeId id) const {
    const Node& n = graph_.node(id);
    if (outputs_known(graph_, n)) return Kind::known;
    if (!n.op->expr) return Kind::plain;
    if (n.op->is_view) return Kind::view;
    if (n.op->contraction) return Kind::contraction;
    if (n.op->reduced_axes) {
      const ops::NodeFacts nf(graph_, id);
      if (!n.op->reduced_axes(nf.view()).empty()) return Kind::reduction;
    }
    return Kind::pointwise;
  }

  [[nodiscard]] NodeId producer(ValueId v) const { return v == kNone ? kNone : graph_.value(v).producer; }

  /// The view nodes between `v` and memory, nearest last, and the value they read.
  ValueId through_views(ValueId v, std::vector<NodeId>& views) const {
    NodeId p = producer(v);
    while (p != kNone && kind(p) == Kind::view) {
      if (std::find(views.begin(), views.end(), p) == views.end()) views.insert(views.begin(), p);
      v = graph_.node(p).inputs.front();
      p = producer(v);
    }
    return v;
  }

  /// Every view that the inputs of `id` are read through.
  std::vector<NodeId> views_of(NodeId id) const {
    std::vector<NodeId> views;
    for (ValueId in : graph_.node(id).inputs) {
      if (in != kNone) through_views(in, views);
    }
    std::sort(views.begin(), views.end(), [&](NodeId a, NodeId b) { return position(a) < position(b); });
    return views;
  }

  [[nodiscard]] std::size_t position(NodeId id) const {
    if (positions_.empty()) {
      positions_.resize(graph_.node_count());
      for (std::size_t i = 0; i < order_.size(); ++i) positions_[static_cast<std::size_t>(order_[i])] = i;
    }
    return positions_[static_cast<std::size_t>(id)];
  }

  [[nodiscard]] bool depends(int group, int on) const {
    if (group == on) return true;
    std::vector<bool> seen(groups_.size(), false);
    std::vector<int> stack = {group};
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      if (g == on) return true;
      if (seen[static_cast<std::size_t>(g)]) continue;
      seen[static_cast<std::size_t>(g)] = true;
      for (int n : groups_[static_cast<std::size_t>(g)].needs) stack.push_back(n);
    }
    return false;
  }

  /// Groups that the inputs of `id` come from, views looked through.
  std::vector<int> sources(NodeId id) const {
    std::vector<int> result;
    for (ValueId in : graph_.node(id).inputs) {
      if (in == kNone) continue;
      std::vector<NodeId> views;
      const NodeId p = producer(through_views(in, views));
      const int g = p == kNone ? -1 : group_of_[static_cast<std::size_t>(p)];
      if (g >= 0 && std::find(result.begin(), result.end(), g) == result.end()) result.push_back(g);
      for (NodeId v : views) {  // a view that gathers by computed indices reads those as well
        for (ValueId vin : graph_.node(v).inputs) {
          const NodeId vp = producer(vin);
          const int vg = vp == kNone ? -1 : group_of_[static_cast<std::size_t>(vp)];
          if (vg >= 0 && std::find(result.begin(), result.end(), vg) == result.end()) result.push_back(vg);
        }
      }
    }
    return result;
  }

  void place(NodeId id) {
    const Kind k = kind(id);
    if (k == Kind::known || k == Kind::view) return;  // views are placed by whoever reads them
    const std::vector<int> from = sources(id);
    if (fuse_ && (k == Kind::pointwise || k == Kind::reduction)) {
      for (int g : from) {
        if (!join(id, k, g, from)) continue;
        for (int other : from) {
          if (other != g) merge(other, g);
        }
        return;
      }
    }
    Candidate c;
    c.group.nodes = views_of(id);
    c.group.nodes.push_back(id);
    c.contraction = graph_.node(id).op->contraction;
    c.reduction = k == Kind::reduction;
    c.plain = k == Kind::plain;
    if (c.plain) c.group.nodes = {id};
    c.needs = from;
    set_domain(c, id, k);
    if (c.group.nodes.size() > 1 && !buildable(c, id)) read_from_memory(c, id);
    group_of_[static_cast<std::size_t>(id)] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(c));
  }

  /// Padded reads cannot look through views: those lie in memory then.
  void read_from_memory(Candidate& c, NodeId id) {
    c.group.nodes = {id};
    for (ValueId in : graph_.node(id).inputs) {
      const NodeId p = producer(in);
      if (p != kNone && kind(p) == Kind::view) in_memory_.push_back(in);
    }
  }

  void set_domain(Candidate& c, NodeId id, Kind k) const {
    const Node& n = graph_.node(id);
    for (ValueId out : n.outputs) {
      if (out != kNone) {
        c.group.domain = out;
        break;
      }
    }
    if (k == Kind::reduction) {
      const ops::NodeFacts nf(graph_, id);
      c.group.domain = n.inputs.front();
      c.group.reduced = n.op->reduced_axes(nf.view());
    }
  }

  [[nodiscard]] const Shape& shape(ValueId v) const { return graph_.value(v).fact->shape; }

  /// Adds `id` to group `g` where the two can share a loop nest.
  bool join(NodeId id, Kind k, int g, const std::vector<int>& from) {
    Candidate& target = groups_[static_cast<std::size_t>(g)];
    if ((target.plain && !target.contraction) || graph_.node(id).outputs.size() != 1) return false;
    for (int other : from) {
      if (other != g && depends(other, g)) return false;
    }
    Candidate merged = target;
    for (NodeId v : views_of(id)) add(merged.group.nodes, v);
    add(merged.group.nodes, id);
    for (int other : from) {
      if (other != g) add(merged.needs, other);
    }
    const ValueId out = graph_.node(id).outputs.front();
    if (k == Kind::reduction) {
      const ops::NodeFacts nf(graph_, id);
      const std::vector<int> axes = graph_.node(id).op->reduced_axes(nf.view());
      const ValueId input = graph_.node(id).inputs.front();
      if (merged.contraction) return false;
      if (merged.reduction) {
        if (!(shape(input) == shape(merged.group.domain)) || axes != merged.group.reduced) return false;
      } else {
        if (!(shape(input) == shape(merged.group.domain))) return false;
        merged.group.domain = input;
        merged.group.reduced = axes;
        merged.reduction = true;
      }
    } else if (merged.reduction) {
      if (!fits_rows(out, merged.group)) return false;
    } else {
      if (shape(out).elements() != shape(merged.group.domain).elements()) return false;
      if (!same_but_for_ones(shape(out), shape(merged.group.domain))) return false;
    }
    if (!buildable(merged, id)) return false;
    target = std::move(merged);
    group_of_[static_cast<std::size_t>(id)] = g;
    return true;
  }

  /// Takes group `other` into `g` where they share a loop nest: two reductions of one row, two halves of a product.
  void merge(int other, int g) {
    const Candidate& a = groups_[static_cast<std::size_t>(other)];
    const Candidate& b = groups_[static_cast<std::size_t>(g)];
    if (a.plain || a.dead || a.contraction || b.contraction) return;
    for (int n : b.needs) {
      if (n != other && depends(n, other)) return;
    }
    for (int n : a.needs) {
      if (depends(n, g)) return;
    }
    Candidate merged = b;
    for (NodeId n : a.group.nodes) add(merged.group.nodes, n);
    for (int n : a.needs) add(merged.needs, n);
    std::erase(merged.needs, other);
    const Shape& rows = shape(a.group.domain);
    if (a.reduction && b.reduction) {
      if (!(rows == shape(b.group.domain)) || a.group.reduced != b.group.reduced) return;
    } else if (a.reduction) {
      merged.group.domain = a.group.domain;
      merged.group.reduced = a.group.reduced;
      merged.reduction = true;
      if (!same_but_for_ones(shape(b.group.domain), rows) && !fits_rows(b.group.domain, a.group)) return;
    } else if (!same_but_for_ones(rows, shape(b.group.domain))) {
      return;
    }
    sort_nodes(merged.group.nodes);
    if (!buildable(merged, merged.group.nodes.back())) return;
    for (NodeId n : a.group.nodes) {
      if (group_of_[static_cast<std::size_t>(n)] == other) group_of_[static_cast<std::size_t>(n)] = g;
    }
    groups_[static_cast<std::size_t>(g)] = std::move(merged);
    Candidate gone;
    gone.dead = true;
    groups_[static_cast<std::size_t>(other)] = std::move(gone);
    for (Candidate& c : groups_) {
      if (std::erase(c.needs, other) > 0 && &c != &groups_[static_cast<std::size_t>(g)]) add(c.needs, g);
    }
  }

  [[nodiscard]] bool fits_rows(ValueId out, const Group& group) const {
    const Shape& domain = shape(group.domain);
    if (same_but_for_ones(shape(out), domain)) return true;
    Shape rows;
    for (int d = 0; d < domain.rank(); ++d) {
      if (std::find(group.reduced.begin(), group.reduced.end(), d) == group.reduced.end()) rows.push_back(domain[d]);
    }
    return same_but_for_ones(shape(out), rows);
  }

  template <class T>
  static void add(std::vector<T>& list, T item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }

  /// Values of the group that someone outside reads.
  [[nodiscard]] std::vector<ValueId> outputs_of(const Candidate& c) const {
    std::vector<ValueId> outs;
    for (NodeId n : c.group.nodes) {
      if (kind(n) == Kind::view && !(c.group.nodes.size() == 1)) continue;
      for (ValueId v : graph_.node(n).outputs) {
        if (v != kNone && needed_outside(v, c)) outs.push_back(v);
      }
    }
    return outs;
  }

  /// Whether someone outside reads `v`, be it through views (which may be inside: they are inlined into every reader).
  [[nodiscard]] bool needed_outside(ValueId v, const Candidate& c) const {
    if (ops::is_output(graph_, v)) return true;
    for (NodeId user : consumers_[static_cast<std::size_t>(v)]) {
      if (kind(user) != Kind::view) {
        if (std::find(c.group.nodes.begin(), c.group.nodes.end(), user) == c.group.nodes.end()) return true;
        continue;
      }
      for (ValueId out : graph_.node(user).outputs) {
        if (out != kNone && needed_outside(out, c)) return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool buildable(Candidate& c, NodeId last) const {
    sort_nodes(c.group.nodes);
    Group trial = c.group;
    std::erase_if(trial.nodes, [&](NodeId n) { return kind(n) == Kind::plain; });  // a transposed convolution
    trial.outputs = outputs_of(c);
    const ValueId newest = graph_.node(last).outputs.front();
    if (std::find(trial.outputs.begin(), trial.outputs.end(), newest) == trial.outputs.end())
      trial.outputs.push_back(newest);
    try {
      const ops::GroupKernel k = ops::build_kernel(graph_, trial);
      return k.kernel.insts.size() <= kMaxInstructions && k.kernel.buffers.size() <= kMaxBuffers;
    } catch (const ops::NotFusable&) {
      return false;
    }
  }

  void sort_nodes(std::vector<NodeId>& nodes) const {
    std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) { return position(a) < position(b); });
  }

  /// Views that must lie in memory, and everyone's outputs.
  void finish() {
    for (NodeId id : order_) {
      if (kind(id) != Kind::view) continue;
      for (ValueId out : graph_.node(id).outputs) {
        if (out == kNone || !view_in_memory(out)) continue;
        Candidate c;
        c.group.nodes = views_of(id);
        c.group.nodes.push_back(id);
        c.group.domain = out;
        c.group.outputs = {out};
        c.needs = sources(id);
        group_of_[static_cast<std::size_t>(id)] = static_cast<int>(groups_.size());
        groups_.push_back(std::move(c));
      }
    }
    for (Candidate& c : groups_) {
      if (!c.dead && c.group.outputs.empty()) c.group.outputs = outputs_of(c);
    }
  }

  [[nodiscard]] bool view_in_memory(ValueId v) const {
    if (ops::is_output(graph_, v)) return true;
    if (std::find(in_memory_.begin(), in_memory_.end(), v) != in_memory_.end()) return true;
    const auto& users = consumers_[static_cast<std::size_t>(v)];
    return std::any_of(users.begin(), users.end(), [&](NodeId u) { return kind(u) == Kind::plain; });
  }

  /// Groups in an order that respects who reads whom.
  std::vector<Group> sorted() {
    // What a plain node reads may be a view that became a group of its own.
    std::vector<int> maker(graph_.value_count(), -1);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].dead) continue;
      for (ValueId out : groups_[g].group.outputs) maker[static_cast<std::size_t>(out)] = static_cast<int>(g);
      if (groups_[g].plain && groups_[g].group.nodes.size() == 1) {
        for (ValueId out : graph_.node(groups_[g].group.nodes.back()).outputs) {
          if (out != kNone) maker[static_cast<std::size_t>(out)] = static_cast<int>(g);
        }
      }
    }
    std::vector<Group> result;
    std::vector<int> state(groups_.size(), 0);
    const auto visit = [&](auto&& self, int g) -> void {
      if (state[static_cast<std::size_t>(g)] != 0) return;
      state[static_cast<std::size_t>(g)] = 1;
      Candidate& c = groups_[static_cast<std::size_t>(g)];
      for (NodeId n : c.group.nodes) {
        for (ValueId in : graph_.node(n).inputs) {
          if (in == kNone) continue;
          // What its own nodes make is inlined, also where a view of them is a group that reads this one. A plain node
          // reads from memory, whatever others of its group see through the same view.
          const NodeId p = producer(in);
          const bool own = std::find(c.group.nodes.begin(), c.group.nodes.end(), p) != c.group.nodes.end();
          if (own && kind(n) != Kind::plain) continue;
          const int m = maker[static_cast<std::size_t>(in)];
          if (m >= 0 && m != g) self(self, m);
        }
      }
      result.push_back(std::move(c.group));
    };
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].dead) visit(visit, static_cast<int>(g));
    }
    return result;
  }

  const Graph& graph_;
  const Context& context_;
  bool fuse_;
  std::vector<NodeId> order_;
  std::vector<std::vector<NodeId>> consumers_;
  std::vector<int> group_of_;
  std::vector<Candidate> groups_;
  std::vector<ValueId> in_memory_;  ///< results of views that someone reads from memory
  mutable std::vector<std::size_t> positions_;
};

}  // namespace

std::vector<ops::Group> graph_fuse(const ops::Graph& graph, const Context& context, bool fuse) {
  return Fuser(graph, context, fuse).run();
}

std::size_t graph_fuse(ops::Graph& graph, Context& context) {
  graph.compact();
  context.groups = graph_fuse(graph, context, true);
  std::size_t fused = 0;
  for (const ops::Group& group : context.groups) fused += group.nodes.size() - 1;
  return fused;
}

}  // namespace lathe::passes
