// LoopBuilder: inlines a group's expressions into one loops::Kernel.
#include "ops/ir/loop_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::ops {

using loops::Inst;
using loops::Op;

Coord& Coord::operator+=(const Coord& other) {
  if (indirect >= 0 && other.indirect >= 0) throw NotFusable{};
  base += other.base;
  for (std::size_t d = 0; d < coef.size(); ++d) coef[d] += other.coef[d];
  if (other.indirect >= 0) {
    indirect = other.indirect;
    indirect_extent = other.indirect_extent;
  }
  return *this;
}

Coord& Coord::operator*=(std::int64_t factor) {
  if (indirect >= 0 && factor != 1) throw NotFusable{};
  base *= factor;
  for (std::int64_t& c : coef) c *= factor;
  return *this;
}

struct LoopBuilder::State {
  struct Memo {
    ValueId value;
    Coords at;
    Scalar result;
  };

  explicit State(const Graph& g) : graph(g) {}

  const Graph& graph;
  loops::Kernel kernel;
  std::vector<ValueId> buffers;
  std::vector<NodeId> members;
  std::vector<Memo> memo;
  std::vector<std::pair<ValueId, Scalar>> immediates;
  bool inner_set = false;

  [[nodiscard]] bool fused(ValueId v) const {
    const NodeId p = graph.value(v).producer;
    return p != kNone && std::find(members.begin(), members.end(), p) != members.end();
  }

  Scalar push(Inst inst) {
    for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
      const Inst& k = kernel.insts[i];
      if (k.op == inst.op && k.dtype == inst.dtype && k.a == inst.a && k.b == inst.b && k.c == inst.c &&
          k.index == inst.index && k.reduction == inst.reduction && k.imm_int == inst.imm_int &&
          std::bit_cast<std::uint64_t>(k.imm) == std::bit_cast<std::uint64_t>(inst.imm)) {
        return {static_cast<int>(i)};
      }
    }
    kernel.insts.push_back(inst);
    return {static_cast<int>(kernel.insts.size() - 1)};
  }

  int buffer(ValueId v, bool output) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i] == v && kernel.buffers[i].output == output) return static_cast<int>(i);
    }
    buffers.push_back(v);
    kernel.buffers.push_back({graph.value(v).fact->dtype, output});
    return static_cast<int>(buffers.size() - 1);
  }

  loops::Access access(ValueId v, const Coords& at, bool output) {
    const Fact& fact = *graph.value(v).fact;
    const Shape strides = strides_of(fact);
    loops::Access a;
    a.buffer = buffer(v, output);
    for (int d = 0; d < at.rank; ++d) {
      const Coord& c = at[d];
      a.offset += c.base * strides[d];
      for (std::size_t k = 0; k < c.coef.size(); ++k) a.strides[k] += c.coef[k] * strides[d];
      if (c.indirect >= 0) a.indirect.push_back({c.indirect, c.indirect_extent, strides[d]});
    }
    return a;
  }

  Scalar load(ValueId v, loops::Access a) {
    const auto same = [&](const loops::Access& b) {
      const auto guard_eq = [](const loops::Guard& x, const loops::Guard& y) {
        return x.base == y.base && x.extent == y.extent && x.coef == y.coef;
      };
      const auto ind_eq = [](const loops::Indirect& x, const loops::Indirect& y) {
        return x.inst == y.inst && x.extent == y.extent && x.stride == y.stride;
      };
      return a.buffer == b.buffer && a.offset == b.offset && a.strides == b.strides && a.fallback == b.fallback &&
             std::equal(a.guards.begin(), a.guards.end(), b.guards.begin(), b.guards.end(), guard_eq) &&
             std::equal(a.indirect.begin(), a.indirect.end(), b.indirect.begin(), b.indirect.end(), ind_eq);
    };
    std::size_t index = 0;
    while (index < kernel.loads.size() && !same(kernel.loads[index])) ++index;
    if (index == kernel.loads.size()) kernel.loads.push_back(std::move(a));
    Inst inst;
    inst.op = Op::load;
    inst.dtype = graph.value(v).fact->dtype;
    inst.index = static_cast<int>(index);
    return push(inst);
  }

  Scalar convert(Scalar a, DType to) {
    if (kernel.insts[static_cast<std::size_t>(a.inst)].dtype == to) return a;
    Inst inst;
    inst.op = Op::cast;
    inst.dtype = to;
    inst.a = a.inst;
    return push(inst);
  }

  [[nodiscard]] bool same_place(const Coords& a, const Coords& b) const {
    if (a.rank != b.rank) return false;
    for (int d = 0; d < a.rank; ++d) {
      if (a[d].base != b[d].base || a[d].indirect != b[d].indirect || a[d].coef != b[d].coef) return false;
    }
    return true;
  }

  /// A single constant or known element becomes part of the code or an argument.
  std::optional<Scalar> immediate(ValueId v, DType type) {
    const ValueDef& def = graph.value(v);
    const Tensor* t = def.value();
    if (!t || t->size() != 1 || def.fact->dtype == DType::string || def.fact->dtype.is_complex()) return std::nullopt;
    for (const auto& [value, made] : immediates) {
      if (value == v && kernel.insts[static_cast<std::size_t>(made.inst)].dtype == type) return made;
    }
    loops::Number n;
    if (type.is_float()) {
      n.value = t->number(0);
    } else {
      n.integer = t->integer(0);
    }
    const bool in_code = def.is_constant() && !is_parameter(def.fact->dtype, t->number(0));
    const Scalar made =
        in_code ? push({.op = Op::constant, .dtype = type, .imm = n.value, .imm_int = n.integer}) : number(type, n);
    immediates.emplace_back(v, made);
    return made;
  }

  Scalar number(DType type, loops::Number n) {
    kernel.numbers.push_back(n);
    return push({.op = Op::number, .dtype = type, .index = static_cast<int>(kernel.numbers.size()) - 1});
  }

  /// Whether a constant is an argument of the code rather than part of it: layers that differ in scales and zero points
  /// only share one kernel. What code gets shorter by (a sum with 0, a division by 2) and integers that places are
  /// computed from stay in it.
  static bool is_parameter(DType dtype, double value) {
    if (!dtype.is_float() && dtype.bits() > 8) return false;
    int exponent = 0;
    return std::isfinite(value) && value != 0 && std::abs(std::frexp(value, &exponent)) != 0.5;
  }

  /// Value v at a place, in its compute type.
  Scalar value_at(ValueId v, const Coords& at) {
    const Fact& fact = *graph.value(v).fact;
    const DType type = compute_type(fact.dtype);
    if (const auto i = immediate(v, type)) return *i;
    for (const Memo& m : memo) {
      if (m.value == v && same_place(m.at, at)) return m.result;
    }
    Scalar result;
    if (fused(v)) {
      const NodeId producer = graph.value(v).producer;
      const NodeFacts nf(graph, producer);
      const OpView view = nf.view();
      LoopBuilder b(*this, view);
      const auto& outs = graph.node(producer).outputs;
      const auto output = static_cast<int>(std::find(outs.begin(), outs.end(), v) - outs.begin());
      // Rounded where an unfused output would be stored, so that the answer does not depend on fusion.
      result = convert(convert(view.op().expr(view, b, output, at), fact.dtype), type);
    } else {
      result = convert(load(v, access(v, at, false)), type);
    }
    memo.push_back({v, at, result});
    return result;
  }
};

DType LoopBuilder::compute_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype.is_float8() || dtype == DType::f4e2m1 ? DType(DType::f32)
                                                                                                    : dtype;
}

Scalar LoopBuilder::in(int i, const Coords& at) {
  if (at.rank != op_.in(i).rank()) {
    fail(ErrorCode::internal, "{}: {} coordinates for input {} of rank {}", describe(op_.node()), at.rank, i,
         op_.in(i).rank());
  }
  return s_.value_at(op_.id(i), at);
}

Coords LoopBuilder::broadcast_coords(int i, const Coords& at) const {
  const Shape& shape = op_.in(i).shape;
  Coords c;
  for (int d = 0; d < shape.rank(); ++d) {
    const int from = at.rank - shape.rank() + d;
    c.push_back(shape[d] == 1 || from < 0 ? Coord{} : at[from]);
  }
  return c;
}

Scalar LoopBuilder::in_broadcast(int i, const Coords& at) { return in(i, broadcast_coords(i, at)); }

Scalar LoopBuilder::in_or(int i, const Coords& at, std::span<const int> checked, Scalar fallback) {
  const ValueId v = op_.id(i);
  if (s_.fused(v)) throw NotFusable{};
  loops::Access a = s_.access(v, at, false);
  for (int d : checked) {
    loops::Guard g;
    g.base = at[d].base;
    g.coef = at[d].coef;
    g.extent = op_.in(i).shape[d];
    if (at[d].indirect >= 0) throw NotFusable{};
    a.guards.push_back(g);
  }
  Inst constant = s_.kernel.insts[static_cast<std::size_t>(fallback.inst)];
  constant.dtype = op_.in(i).dtype;
  a.fallback = s_.push(constant).inst;
  return s_.convert(s_.load(v, std::move(a)), compute_type(op_.in(i).dtype));
}

Scalar LoopBuilder::constant(DType dtype, double value) {
  Inst inst;
  inst.op = Op::constant;
  inst.dtype = dtype;
  if (dtype.is_float()) {
    inst.imm = value;
  } else {
    inst.imm_int = static_cast<std::int64_t>(value);
  }
  return s_.push(inst);
}

Scalar LoopBuilder::constant_int(DType dtype, std::int64_t value) {
  Inst inst;
  inst.op = Op::constant;
  inst.dtype = dtype;
  inst.imm_int = value;
  return s_.push(inst);
}

Scalar LoopBuilder::number(DType dtype, double value) {
  loops::Number n;
  if (dtype.is_float()) {
    n.value = value;
  } else {
    n.integer = static_cast<std::int64_t>(value);
  }
  return s_.number(dtype, n);
}

Scalar LoopBuilder::number_int(DType dtype, std::int64_t value) {
  loops::Number n;
  n.integer = value;
  return s_.number(dtype, n);
}

Scalar LoopBuilder::coordinate(const Coord& c) {
  Scalar sum{-1};
  const auto add = [&](Scalar term) { sum = sum.inst < 0 ? term : binary(Op::add, sum, term); };
  for (int d = 0; d < s_.kernel.rank(); ++d) {
    const std::int64_t coef = c.coef[static_cast<std::size_t>(d)];
    if (coef == 0) continue;
    Inst inst;
    inst.op = Op::loop_index;
    inst.dtype = DType::i64;
    inst.index = d;
    const Scalar var = s_.push(inst);
    add(coef == 1 ? var : binary(Op::mul, var, number_int(DType::i64, coef)));
  }
  if (c.indirect >= 0) add({c.indirect});
  if (c.base != 0 || sum.inst < 0) add(number_int(DType::i64, c.base));
  return sum;
}

Scalar LoopBuilder::unary(Op op, Scalar a) {
  Inst inst;
  inst.op = op;
  inst.dtype = op == Op::is_nan || op == Op::is_inf || op == Op::logical_not ? DType(DType::boolean) : dtype(a);
  inst.a = a.inst;
  return s_.push(inst);
}

Scalar LoopBuilder::binary(Op op, Scalar a, Scalar b) {
  if (dtype(a) != dtype(b)) {
    fail(ErrorCode::internal, "{}: operands of {} and {} in one expression", describe(op_.node()), dtype(a), dtype(b));
  }
  const bool predicate =
      (op >= Op::equal && op <= Op::greater_equal) || (op >= Op::logical_and && op <= Op::logical_xor);
  Inst inst;
  inst.op = op;
  inst.dtype = predicate ? DType(DType::boolean) : dtype(a);
  inst.a = a.inst;
  inst.b = b.inst;
  return s_.push(inst);
}

Scalar LoopBuilder::select(Scalar condition, Scalar a, Scalar b) {
  Inst inst;
  inst.op = Op::select;
  inst.dtype = dtype(a);
  inst.a = condition.inst;
  inst.b = a.inst;
  inst.c = b.inst;
  return s_.push(inst);
}

Scalar LoopBuilder::fma(Scalar a, Scalar b, Scalar c) {
  Inst inst;
  inst.op = Op::fma;
  inst.dtype = dtype(a);
  inst.a = a.inst;
  inst.b = b.inst;
  inst.c = c.inst;
  return s_.push(inst);
}

Scalar LoopBuilder::cast(Scalar a, DType to) { return s_.convert(a, to); }

DType LoopBuilder::dtype(Scalar a) const { return s_.kernel.insts[static_cast<std::size_t>(a.inst)].dtype; }

std::vector<Coord> LoopBuilder::inner(std::span<const std::int64_t> extents) {
  loops::Kernel& k = s_.kernel;
  if (k.outer + static_cast<int>(extents.size()) > loops::kMaxDims) throw NotFusable{};
  if (s_.inner_set) {
    const bool same = k.inner == static_cast<int>(extents.size()) &&
                      std::equal(extents.begin(), extents.end(), k.extents.begin() + k.outer);
    if (!same) throw NotFusable{};
  }
  s_.inner_set = true;
  k.inner = static_cast<int>(extents.size());
  std::vector<Coord> vars(extents.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t d = static_cast<std::size_t>(k.outer) + i;
    k.extents[d] = extents[i];
    vars[i].coef[d] = 1;
  }
  return vars;
}

Coords LoopBuilder::reduced(std::span<const int> axes, const Coords& at, bool keep_dims) {
  const Shape& shape = op_.in(0).shape;
  std::vector<std::int64_t> extents;
  extents.reserve(axes.size());
  for (int a : axes) extents.push_back(shape[a]);
  const std::vector<Coord> vars = inner(extents);
  for (int d = 0; d < at.rank; ++d) {
    for (int k = s_.kernel.outer; k < s_.kernel.rank(); ++k) {
      if (at[d].coef[static_cast<std::size_t>(k)] != 0) throw NotFusable{};
    }
  }
  Coords c;
  int next = 0;
  std::size_t var = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (var < axes.size() && axes[var] == d) {
      c.push_back(vars[var++]);
      next += keep_dims ? 1 : 0;
    } else {
      c.push_back(at[next++]);
    }
  }
  return c;
}

Scalar LoopBuilder::reduce(loops::Reduction kind, Scalar a) {
  Inst inst;
  inst.op = Op::reduce;
  inst.reduction = kind;
  inst.dtype = kind >= loops::Reduction::argmin_first ? DType(DType::i64) : dtype(a);
  inst.a = a.inst;
  return s_.push(inst);
}

Coord LoopBuilder::indirect(Scalar index, std::int64_t extent) {
  Coord c;
  c.indirect = cast(index, DType::i64).inst;
  c.indirect_extent = extent;
  return c;
}

namespace {

/// Maps the dims of `shape` that are not 1, in order, to those of `dims` (extent, loop variable). Nothing where they
/// differ.
std::optional<Coords> match_dims(const Shape& shape, const std::vector<std::pair<std::int64_t, int>>& dims) {
  Coords c;
  std::size_t next = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    Coord coord;
    if (shape[d] != 1) {
      while (next < dims.size() && dims[next].first == 1) ++next;
      if (next == dims.size() || dims[next].first != shape[d]) return std::nullopt;
      coord.coef[static_cast<std::size_t>(dims[next++].second)] = 1;
    }
    c.push_back(coord);
  }
  while (next < dims.size() && dims[next].first == 1) ++next;
  return next == dims.size() ? std::optional<Coords>(c) : std::nullopt;
}

}  // namespace

GroupKernel build_kernel(const Graph& graph, const Group& group, bool canonical) {
  LoopBuilder::State state(graph);
  state.members = group.nodes;
  loops::Kernel& k = state.kernel;
  const Fact& domain = *graph.value(group.domain).fact;
  const auto is_reduced = [&](int d) {
    return std::find(group.reduced.begin(), group.reduced.end(), d) != group.reduced.end();
  };
  std::array<int, Shape::kMaxRank> variable{};
  for (int p = 0; p < domain.rank(); ++p) {
    const int d = domain.layout.dim_at(p);
    if (is_reduced(d)) continue;
    k.extents[static_cast<std::size_t>(k.outer)] = domain.shape[d];
    variable[static_cast<std::size_t>(d)] = k.outer++;
  }
  if (!group.reduced.empty()) {
    state.inner_set = true;
    for (int d : group.reduced) {
      const int at = k.outer + k.inner++;
      k.extents[static_cast<std::size_t>(at)] = domain.shape[d];
      variable[static_cast<std::size_t>(d)] = at;
    }
  }
  std::vector<std::pair<std::int64_t, int>> all;
  std::vector<std::pair<std::int64_t, int>> kept;
  for (int d = 0; d < domain.rank(); ++d) {
    all.emplace_back(domain.shape[d], variable[static_cast<std::size_t>(d)]);
    if (!is_reduced(d)) kept.push_back(all.back());
  }
  for (ValueId out : group.outputs) {
    const Shape& shape = graph.value(out).fact->shape;
    std::optional<Coords> at = match_dims(shape, all);
    if (!at) at = match_dims(shape, kept);
    if (!at) throw NotFusable{};
    const Scalar value = state.convert(state.value_at(out, *at), graph.value(out).fact->dtype);
    k.stores.push_back({value.inst, state.access(out, *at, true)});
  }
  for (NodeId n : group.nodes) {
    k.name += (k.name.empty() ? "" : "_") + std::string(graph.node(n).op->name);
    if (k.name.size() > 80) {
      k.name += "_etc";
      break;
    }
  }
  if (canonical) loops::canonicalize(k);
  return {std::move(state.kernel), std::move(state.buffers)};
}

Group single_node_group(const Graph& graph, NodeId id, int output) {
  const Node& node = graph.node(id);
  Group g;
  g.nodes = {id};
  g.outputs = {node.outputs[static_cast<std::size_t>(output)]};
  g.domain = g.outputs.front();
  if (node.op->reduced_axes) {
    const NodeFacts nf(graph, id);
    g.reduced = node.op->reduced_axes(nf.view());
    if (!g.reduced.empty()) g.domain = node.inputs.front();
  }
  return g;
}

NodeFacts::NodeFacts(const Graph& graph, NodeId id) : node_(graph.node(id)) {
  for (ValueId in : node_.inputs) {
    const bool present = in != kNone && graph.value(in).fact;
    inputs_.push_back(present ? &*graph.value(in).fact : nullptr);
    values_.push_back(in == kNone ? nullptr : graph.value(in).value());
  }
  for (ValueId out : node_.outputs) {
    const bool present = out != kNone && graph.value(out).fact;
    outputs_.push_back(present ? &*graph.value(out).fact : nullptr);
  }
}

}  // namespace lathe::ops
