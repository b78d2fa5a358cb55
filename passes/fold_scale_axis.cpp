// fold_scale_axis: scales and shifts per channel move into the weights and bias of the contraction beside them.
//
//   conv(x, W) · s      = conv(x, W·s)                 s per output channel
//   conv(x, W) + t      = conv(x, W) with bias t       t per output channel
//   conv(x · s, W)      = conv(x, s·W)                 s per input channel; a shift is not folded: it would cross the
//   padding
//   matmul(x, W) · s    = matmul(x, W·s)               s per column, or one value
//   view(conv(x, W) + t) · s = view(conv(x, W·s) + t·s)   s one value, any views and shifts between: attention's scale
//
// Folded in float64 and rounded once. Declines where a factor is not finite, a finite weight would become infinite, all
// the weights that share a factor would fall below the smallest normal number, or the weight or the intermediate result
// has another reader.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "ops/ir/builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

class Folder {
 public:
  explicit Folder(ops::Graph& graph) : graph_(graph) {}

  std::size_t run() {
    std::size_t changes = 0;
    bool changed = true;
    while (changed) {
      changed = false;
      consumers_ = graph_.consumers();
      for (NodeId id : graph_.order()) {
        const Node& node = graph_.node(id);
        if (node.removed || node.inputs.size() != 2 || (!is(node, "Mul") && !is(node, "Add"))) continue;
        if (after(id) || before(id) || through(id)) {
          ++changes;
          changed = true;
          break;
        }
      }
    }
    return changes;
  }

 private:
  [[nodiscard]] const Tensor& constant(ValueId v) const { return graph_.value(v).constant; }
  /// Whether one node alone reads the elements of `v`: Shape and Size do not.
  [[nodiscard]] bool only_reader(ValueId v) const {
    const auto& readers = consumers_[static_cast<std::size_t>(v)];
    const auto of_elements = std::count_if(readers.begin(), readers.end(), [&](NodeId id) {
      return !is(graph_.node(id), "Shape") && !is(graph_.node(id), "Size");
    });
    return of_elements == 1 && !ops::is_output(graph_, v);
  }
  static bool contraction(const Node& n) { return is(n, "Conv") || is(n, "ConvTranspose") || is(n, "MatMul"); }

  /// The constant's values per channel of a tensor of rank `rank` whose channels are dim `axis`; nothing where it is
  /// something else. One value serves every channel.
  static std::optional<std::vector<double>> per_channel(const Tensor& t, int rank, int axis, std::int64_t channels) {
    if (!t.defined() || t.dtype() != DType::f32 || t.shape().rank() > rank) return std::nullopt;
    const int at = axis - (rank - t.shape().rank());
    if (t.size() != 1 && (at < 0 || t.shape()[at] != channels || t.size() != channels)) return std::nullopt;
    std::vector<double> values(static_cast<std::size_t>(channels));
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c] = t.number(t.size() == 1 ? 0 : static_cast<std::int64_t>(c));
    return values;
  }

  static bool finite(const std::vector<double>& factors) {
    return std::all_of(factors.begin(), factors.end(), [](double f) { return std::isfinite(f); });
  }

  /// What is scaled: an input may be large that a weight too small for all its bits is multiplied with.
  enum class Part : std::uint8_t { weight, shift };

  /// W with every element times a factor, which is the same for `run` elements in a row: factor(the first of them).
  /// Nothing where a finite element becomes infinite, or all of a run's weights subnormal.
  template <class Factor>
  static std::optional<Tensor> scaled(Part part, const Tensor& w, std::int64_t run, const Factor& factor) {
    constexpr float kNormal = std::numeric_limits<float>::min();
    Tensor result(DType::f32, w.shape());
    const auto from = w.view<float>();
    const auto to = result.mutable_view<float>();
    for (std::size_t begin = 0; begin < from.size(); begin += static_cast<std::size_t>(run)) {
      const double f = factor(static_cast<std::int64_t>(begin));
      float most_before = 0;
      float most_after = 0;
      bool overflows = false;
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(run); ++i) {
        to[i] = static_cast<float>(static_cast<double>(from[i]) * f);
        overflows = overflows || (std::isfinite(from[i]) && !std::isfinite(to[i]));
        most_before = std::max(most_before, std::abs(from[i]));
        most_after = std::max(most_after, std::abs(to[i]));
      }
      const bool vanishes = part == Part::weight && f != 0 && most_before >= kNormal && most_after < kNormal;
      if (overflows || vanishes) return std::nullopt;
    }
    return result;
  }

  /// Whether the model declares `v` with that rank and that many channels.
  [[nodiscard]] bool has_channels(ValueId v, int rank, std::int64_t channels) const {
    const auto& declared = graph_.value(v).declared;
    return declared && declared->dims && static_cast<int>(declared->dims->size()) == rank &&
           (*declared->dims)[1].extent == channels;
  }

  struct Channels {
    std::int64_t count = 0;      ///< output channels
    int rank = 0;                ///< of the result
    int axis = 0;                ///< of the result
    std::int64_t inner = 1;      ///< weight elements per step of the channel
    std::int64_t per_group = 0;  ///< transposed: output channels in a group
    std::int64_t group_in = 0;   ///< transposed: input channels in a group
  };

  std::optional<Channels> channels_of(const Node& n) const {
    const Tensor& w = constant(n.inputs[1]);
    if (!w.defined() || w.dtype() != DType::f32 || w.shape().rank() < 2) return std::nullopt;
    Channels c;
    const std::int64_t group = ops::OpView(n, {}, {}).i("group");
    std::int64_t kernel = 1;
    for (int d = 2; d < w.shape().rank(); ++d) kernel *= w.shape()[d];
    if (is(n, "MatMul")) {
      if (w.shape().rank() != 2) return std::nullopt;
      c.count = w.shape()[1];
      c.rank = 0;
      return c;
    }
    c.rank = w.shape().rank();
    c.axis = 1;
    if (is(n, "Conv")) {
      c.count = w.shape()[0];
      c.inner = w.shape()[1] * kernel;
    } else {
      if (group < 1 || w.shape()[0] % group != 0) return std::nullopt;
      c.per_group = w.shape()[1];
      c.count = w.shape()[1] * group;
      c.group_in = w.shape()[0] / group;
      c.inner = kernel;
    }
    return c;
  }

  static std::int64_t channel_of(const Node& n, const Channels& c, std::int64_t element) {
    if (is(n, "MatMul")) return element % c.count;
    if (is(n, "Conv")) return element / c.inner;
    const std::int64_t row = element / c.inner;  // input channel · per_group + output channel in its group
    return row / c.per_group / c.group_in * c.per_group + row % c.per_group;
  }

  /// contraction → Mul or Add of constants per output channel.
  bool after(NodeId id) {
    const Node node = copy_of(id);
    for (std::size_t side = 0; side < 2; ++side) {
      const ValueId y = node.inputs[side];
      const Tensor& t = constant(node.inputs[1 - side]);
      const NodeId p = graph_.value(y).producer;
      if (!t.defined() || p == kNone || !contraction(graph_.node(p)) || !only_reader(y)) continue;
      Node& n = graph_.edit(p);
      const auto c = channels_of(n);
      if (!c) continue;
      const bool matmul = is(n, "MatMul");
      const auto values =
          matmul ? per_channel(t, std::max(1, t.shape().rank()), std::max(0, t.shape().rank() - 1), c->count)
                 : per_channel(t, c->rank, c->axis, c->count);
      if (!values || (matmul && (is(node, "Add") || t.shape().rank() > 1))) continue;
      if (is(node, "Mul") ? !scale(n, *c, *values) : !shift(n, *c, *values)) continue;
      finish(id, node.outputs[0], y);
      return true;
    }
    return false;
  }

  /// contraction → views and Adds of constants → Mul of one value.
  bool through(NodeId id) {
    const Node node = copy_of(id);
    if (!is(node, "Mul")) return false;
    for (std::size_t side = 0; side < 2; ++side) {
      const Tensor& t = constant(node.inputs[1 - side]);
      if (!t.defined() || t.dtype() != DType::f32 || t.shape().rank() != 0) continue;
      const double factor = t.number(0);
      std::vector<NodeId> adds;  // on the way
      ValueId y = node.inputs[side];
      NodeId p = graph_.value(y).producer;
      while (p != kNone && only_reader(y) && !contraction(graph_.node(p))) {
        const Node& n = graph_.node(p);
        std::size_t from = 0;
        if (is(n, "Add")) {
          from = shift_of(n) == 0 ? 1 : 0;
          const Tensor& shift = constant(n.inputs[1 - from]);
          if (!shift.defined() || shift.dtype() != DType::f32) break;
          adds.push_back(p);
        } else if (!(is(n, "Reshape") || (n.op->is_view && n.outputs.size() == 1))) {
          break;
        }
        y = n.inputs[from];
        p = graph_.value(y).producer;
      }
      if (p == kNone || !only_reader(y) || !contraction(graph_.node(p))) continue;
      std::vector<Tensor> shifts;
      for (NodeId add : adds) {
        const Node& n = graph_.node(add);
        const Tensor& shift = constant(n.inputs[shift_of(n)]);
        auto product = scaled(Part::shift, shift, shift.size(), [&](std::int64_t) { return factor; });
        if (product) shifts.push_back(std::move(*product));
      }
      if (shifts.size() != adds.size()) continue;
      Node& n = graph_.edit(p);
      const auto c = channels_of(n);
      if (!c || !scale(n, *c, std::vector<double>(static_cast<std::size_t>(c->count), factor))) continue;
      for (std::size_t i = 0; i < adds.size(); ++i) {
        Node& add = graph_.edit(adds[i]);
        ValueId& in = add.inputs[shift_of(add)];
        in = graph_.add_constant(std::move(shifts[i]), graph_.value(in).name);
      }
      finish(id, node.outputs[0], node.inputs[side]);
      return true;
    }
    return false;
  }

  /// Which input of an Add is the constant, where one is.
  [[nodiscard]] std::size_t shift_of(const Node& add) const {
    return graph_.value(add.inputs[0]).is_constant() ? 0 : 1;
  }

  bool scale(Node& n, const Channels& c, const std::vector<double>& s) {
    if (!only_reader(n.inputs[1]) || !finite(s)) return false;
    const Tensor& old = constant(n.inputs[1]);
    const bool one_factor = std::adjacent_find(s.begin(), s.end(), std::not_equal_to<>()) == s.end();
    const auto w = scaled(Part::weight, old, one_factor ? std::max<std::int64_t>(1, old.size()) : c.inner,
                          [&](std::int64_t i) { return s[static_cast<std::size_t>(channel_of(n, c, i))]; });
    if (!w) return false;
    std::optional<Tensor> bias;
    const bool biased = n.inputs.size() > 2 && n.inputs[2] != kNone;
    if (biased) {
      const Tensor& b = constant(n.inputs[2]);
      if (!b.defined() || b.dtype() != DType::f32 || b.size() != c.count) return false;
      bias = scaled(Part::shift, b, 1, [&](std::int64_t i) { return s[static_cast<std::size_t>(i)]; });
      if (!bias) return false;
    }
    n.inputs[1] = graph_.add_constant(*w, graph_.value(n.inputs[1]).name);
    if (biased) n.inputs[2] = graph_.add_constant(*bias, graph_.value(n.inputs[2]).name);
    return true;
  }

  bool shift(Node& n, const Channels& c, const std::vector<double>& t) {
    Tensor bias(DType::f32, {c.count});
    const bool biased = n.inputs.size() > 2 && n.inputs[2] != kNone;
    const Tensor* old = biased ? &constant(n.inputs[2]) : nullptr;
    if (biased && (!old->defined() || old->dtype() != DType::f32 || old->size() != c.count)) return false;
    for (std::int64_t i = 0; i < c.count; ++i) {
      const double b = (old ? old->number(i) : 0.0) + t[static_cast<std::size_t>(i)];
      bias.mutable_view<float>()[static_cast<std::size_t>(i)] = static_cast<float>(b);
      if (std::isfinite(b) && !std::isfinite(static_cast<float>(b))) return false;
    }
    const ValueId v = graph_.add_constant(bias, n.name + "/bias");
    n.inputs.resize(std::max<std::size_t>(n.inputs.size(), 3), kNone);
    n.inputs[2] = v;
    return true;
  }

  /// Mul of constants per input channel → Conv.
  bool before(NodeId id) {
    const Node node = copy_of(id);
    if (!is(node, "Mul") || !only_reader(node.outputs[0])) return false;
    Node& n = graph_.edit(consumers_[static_cast<std::size_t>(node.outputs[0])].front());
    if (!is(n, "Conv") || n.inputs[0] != node.outputs[0] || n.inputs[1] == node.outputs[0]) return false;
    const Tensor& w = constant(n.inputs[1]);
    if (!w.defined() || w.dtype() != DType::f32 || w.shape().rank() < 3 || !only_reader(n.inputs[1])) return false;
    const std::int64_t group = ops::OpView(n, {}, {}).i("group");
    if (group < 1 || w.shape()[0] % group != 0) return false;
    const std::int64_t channels = w.shape()[1] * group;
    for (std::size_t side = 0; side < 2; ++side) {
      const Tensor& t = constant(node.inputs[1 - side]);
      const auto s = per_channel(t, w.shape().rank(), 1, channels);
      if (!s || !finite(*s) || graph_.value(node.inputs[side]).is_constant()) continue;
      // One channel times many, or a missing dim times one of extent 1, makes what the convolution reads.
      if (t.shape().rank() > 0 && !has_channels(node.inputs[side], w.shape().rank(), channels)) continue;
      std::int64_t kernel = 1;
      for (int d = 2; d < w.shape().rank(); ++d) kernel *= w.shape()[d];
      const std::int64_t in = w.shape()[1];
      const std::int64_t out_per_group = w.shape()[0] / group;
      const auto folded = scaled(Part::weight, w, kernel, [&](std::int64_t i) {
        const std::int64_t m = i / kernel / in;
        return (*s)[static_cast<std::size_t>(m / out_per_group * in + i / kernel % in)];
      });
      if (!folded) return false;
      n.inputs[1] = graph_.add_constant(*folded, graph_.value(n.inputs[1]).name);
      finish(id, node.outputs[0], node.inputs[side]);
      return true;
    }
    return false;
  }

  [[nodiscard]] Node copy_of(NodeId id) const {
    const Node& n = graph_.node(id);
    Node copy;
    copy.op = n.op;
    copy.inputs = n.inputs;
    copy.outputs = n.outputs;
    return copy;
  }

  void finish(NodeId id, ValueId from, ValueId to) {
    graph_.value(to).fact = graph_.value(from).fact;
    graph_.value(to).declared = graph_.value(from).declared;
    graph_.replace_uses(from, to);
    graph_.remove_node(id);
  }

  ops::Graph& graph_;
  std::vector<std::vector<NodeId>> consumers_;
};

}  // namespace

std::size_t fold_scale_axis(ops::Graph& graph, Context&) { return Folder(graph).run(); }

}  // namespace lathe::passes
