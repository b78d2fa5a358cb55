// Reverse accumulation over a graph, and the derivatives of operators.
#include "frontends/onnx/gradient.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"

namespace lathe::frontends::onnx {
namespace {

using ops::kNone;
using ops::Node;
using ops::ValueId;

/// The derivatives found so far of y with respect to each value.
class Tape {
 public:
  Tape(const Draft& node, UpgradeContext& context) : node_(node), context_(context) {}

  ValueId emit(std::string_view op, std::vector<ValueId> inputs, ops::Attributes attributes = {}) {
    return context_.emit(node_, op, std::move(inputs), std::move(attributes));
  }
  ValueId number(double value, ValueId like) { return context_.number_like(node_, "number", value, like); }
  /// A tensor of that shape and dtype.
  ValueId filled(float value, ValueId like) {
    const ValueId all = emit("ConstantOfShape", {emit("Shape", {like})}, {{"value", Tensor::from({value}, {1})}});
    return emit("CastLike", {all, like});
  }

  void add(ValueId to, ValueId gradient) {
    if (to == kNone) return;
    const auto [at, is_new] = gradients_.emplace(to, gradient);
    if (!is_new) at->second = emit("Add", {at->second, gradient});
  }
  /// The same for an operand that was broadcast.
  void add_reduced(ValueId to, ValueId gradient) { add(to, emit("lathe::SumTo", {gradient, to})); }

  [[nodiscard]] ValueId of(ValueId id) const {
    const auto at = gradients_.find(id);
    return at == gradients_.end() ? kNone : at->second;
  }

 private:
  const Draft& node_;
  UpgradeContext& context_;
  std::unordered_map<ValueId, ValueId> gradients_;
};

// ---- derivatives: `g` is y's with respect to the node's only output ----

ValueId in(const Node& n, std::size_t i) { return n.inputs[i]; }

void add(Tape& t, const Node& n, ValueId g) {
  t.add_reduced(in(n, 0), g);
  t.add_reduced(in(n, 1), g);
}

void sub(Tape& t, const Node& n, ValueId g) {
  t.add_reduced(in(n, 0), g);
  t.add_reduced(in(n, 1), t.emit("Neg", {g}));
}

void mul(Tape& t, const Node& n, ValueId g) {
  t.add_reduced(in(n, 0), t.emit("Mul", {g, in(n, 1)}));
  t.add_reduced(in(n, 1), t.emit("Mul", {g, in(n, 0)}));
}

// d(a / b) = da / b − (a / b) db / b
void div(Tape& t, const Node& n, ValueId g) {
  const ValueId by_a = t.emit("Div", {g, in(n, 1)});
  t.add_reduced(in(n, 0), by_a);
  t.add_reduced(in(n, 1), t.emit("Neg", {t.emit("Mul", {by_a, n.outputs[0]})}));
}

// d(aᵇ) = b aᵇ⁻¹ da + aᵇ log a db
void pow(Tape& t, const Node& n, ValueId g) {
  const ValueId a = in(n, 0), b = in(n, 1);
  const ValueId lower = t.emit("Pow", {a, t.emit("Sub", {b, t.number(1, b)})});
  t.add_reduced(a, t.emit("Mul", {g, t.emit("Mul", {b, lower})}));
  t.add_reduced(b, t.emit("Mul", {g, t.emit("Mul", {n.outputs[0], t.emit("Log", {a})})}));
}

void neg(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Neg", {g})); }
void identity(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), g); }
void exp(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Mul", {g, n.outputs[0]})); }
void log(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Div", {g, in(n, 0)})); }
void sin(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Mul", {g, t.emit("Cos", {in(n, 0)})})); }
void cos(Tape& t, const Node& n, ValueId g) {
  t.add(in(n, 0), t.emit("Neg", {t.emit("Mul", {g, t.emit("Sin", {in(n, 0)})})}));
}
void abs(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Mul", {g, t.emit("Sign", {in(n, 0)})})); }

void sqrt(Tape& t, const Node& n, ValueId g) {
  t.add(in(n, 0), t.emit("Div", {g, t.emit("Mul", {t.number(2, g), n.outputs[0]})}));
}

void tanh(Tape& t, const Node& n, ValueId g) {
  const ValueId square = t.emit("Mul", {n.outputs[0], n.outputs[0]});
  t.add(in(n, 0), t.emit("Mul", {g, t.emit("Sub", {t.number(1, square), square})}));
}

void sigmoid(Tape& t, const Node& n, ValueId g) {
  const ValueId y = n.outputs[0];
  const ValueId slope = t.emit("Mul", {y, t.emit("Sub", {t.number(1, y), y})});
  t.add(in(n, 0), t.emit("Mul", {g, slope}));
}

void relu(Tape& t, const Node& n, ValueId g) {
  const ValueId positive = t.emit("Greater", {in(n, 0), t.number(0, in(n, 0))});
  t.add(in(n, 0), t.emit("Where", {positive, g, t.number(0, g)}));
}

/// The last two dims of a matrix product's operand exchanged.
constexpr const char* kTurn = "...ij->...ji";
ValueId turned(Tape& t, ValueId x) { return t.emit("Einsum", {x}, {{"equation", std::string(kTurn)}}); }

void matmul(Tape& t, const Node& n, ValueId g) {
  const ValueId a = in(n, 0), b = in(n, 1);
  t.add_reduced(a, t.emit("MatMul", {g, turned(t, b)}));
  t.add_reduced(b, t.emit("MatMul", {turned(t, a), g}));
}

// y = alpha A B + beta C
void gemm(Tape& t, const Node& n, ValueId g) {
  const auto number = [&](std::string_view name) {
    const ops::AttrValue* value = n.attributes.find(name);
    return value ? std::get<double>(*value) : 1.0;
  };
  const auto flag = [&](std::string_view name) {
    const ops::AttrValue* value = n.attributes.find(name);
    return value && std::get<std::int64_t>(*value) != 0;
  };
  const ValueId a = in(n, 0), b = in(n, 1);
  const bool a_turned = flag("transA"), b_turned = flag("transB");
  const ValueId scaled = t.emit("Mul", {g, t.number(number("alpha"), g)});
  const ValueId by_a = t.emit("MatMul", {scaled, b_turned ? b : turned(t, b)});
  const ValueId by_b = t.emit("MatMul", {a_turned ? a : turned(t, a), scaled});
  t.add(a, a_turned ? turned(t, by_a) : by_a);
  t.add(b, b_turned ? turned(t, by_b) : by_b);
  if (n.inputs.size() > 2 && in(n, 2) != kNone) {
    t.add_reduced(in(n, 2), t.emit("Mul", {g, t.number(number("beta"), g)}));
  }
}

void reshape(Tape& t, const Node& n, ValueId g) {
  t.add(in(n, 0), t.emit("Reshape", {g, t.emit("Shape", {in(n, 0)})}, {{"allowzero", std::int64_t{1}}}));
}

void transpose(Tape& t, const Node& n, ValueId g) {
  ops::Attributes back;
  if (const ops::AttrValue* stated = n.attributes.find("perm")) {
    const auto& perm = std::get<std::vector<std::int64_t>>(*stated);
    std::vector<std::int64_t> inverse(perm.size());
    for (std::size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] < 0 || static_cast<std::size_t>(perm[i]) >= perm.size()) return;  // refused where it is inferred
      inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
    }
    back.set("perm", std::move(inverse));
  }
  t.add(in(n, 0), t.emit("Transpose", {g}, std::move(back)));
}

/// The gradient of a reduced value, spread over what was reduced.
ValueId spread(Tape& t, const Node& n, ValueId g) {
  const ops::AttrValue* keep = n.attributes.find("keepdims");
  const bool dropped = keep && std::get<std::int64_t>(*keep) == 0;
  const bool some = n.inputs.size() > 1 && in(n, 1) != kNone;
  const ValueId kept = dropped && some ? t.emit("Unsqueeze", {g, in(n, 1)}) : g;
  return t.emit("Expand", {kept, t.emit("Shape", {in(n, 0)})});
}

void reduce_sum(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), spread(t, n, g)); }

void reduce_mean(Tape& t, const Node& n, ValueId g) {
  const auto count = [&](ValueId x) { return t.emit("Size", {x}); };
  const ValueId ratio = t.emit("Div", {count(in(n, 0)), count(n.outputs[0])});
  t.add(in(n, 0), t.emit("Div", {spread(t, n, g), t.emit("CastLike", {ratio, g})}));
}

/// Its outputs do not move with its inputs.
void constant(Tape&, const Node&, ValueId) {}

void cast_like(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("CastLike", {g, in(n, 0)})); }
void expand(Tape& t, const Node& n, ValueId g) { t.add_reduced(in(n, 0), g); }

void where(Tape& t, const Node& n, ValueId g) {
  const ValueId zero = t.number(0, g);
  t.add_reduced(in(n, 1), t.emit("Where", {in(n, 0), g, zero}));
  t.add_reduced(in(n, 2), t.emit("Where", {in(n, 0), zero, g}));
}

void sum_to(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), t.emit("Expand", {g, t.emit("Shape", {in(n, 0)})})); }
void turn(Tape& t, const Node& n, ValueId g) { t.add(in(n, 0), turned(t, g)); }

struct Derivative {
  std::string_view op;
  void (*add)(Tape&, const Node&, ValueId);
};
constexpr Derivative kDerivatives[] = {{"Abs", abs},
                                       {"Add", add},
                                       {"CastLike", cast_like},
                                       {"ConstantOfShape", constant},
                                       {"Cos", cos},
                                       {"Div", div},
                                       {"Einsum", turn},
                                       {"Equal", constant},
                                       {"Exp", exp},
                                       {"Expand", expand},
                                       {"Gemm", gemm},
                                       {"Greater", constant},
                                       {"Identity", identity},
                                       {"Less", constant},
                                       {"Log", log},
                                       {"MatMul", matmul},
                                       {"Mul", mul},
                                       {"Neg", neg},
                                       {"Pow", pow},
                                       {"ReduceMean", reduce_mean},
                                       {"ReduceSum", reduce_sum},
                                       {"Relu", relu},
                                       {"Reshape", reshape},
                                       {"Shape", constant},
                                       {"Sigmoid", sigmoid},
                                       {"Sign", constant},
                                       {"Sin", sin},
                                       {"Size", constant},
                                       {"Sqrt", sqrt},
                                       {"Squeeze", reshape},
                                       {"Sub", sub},
                                       {"SumTo", sum_to},
                                       {"Tanh", tanh},
                                       {"Transpose", transpose},
                                       {"Unsqueeze", reshape},
                                       {"Where", where}};

const Derivative* derivative_of(const Node& node) {
  if (const ops::AttrValue* equation = node.attributes.find("equation")) {
    if (std::get<std::string>(*equation) != kTurn) return nullptr;
  }
  const auto* at = std::find_if(std::begin(kDerivatives), std::end(kDerivatives),
                                [&](const Derivative& d) { return d.op == node.op->name; });
  return at == std::end(kDerivatives) ? nullptr : at;
}

std::vector<std::string> names(const Draft& node, std::string_view attribute) {
  const ops::AttrValue* value = node.attributes.find(attribute);
  const auto* list = value ? std::get_if<std::vector<std::string>>(value) : nullptr;
  return list ? *list : std::vector<std::string>();
}

[[noreturn]] void refuse(const Draft& node, std::string_view why) {
  fail(ErrorCode::invalid_model, "Gradient '{}': {}", shown(node.name), why);
}

/// The nodes that y needs, down to the values that are given, producers first.
std::vector<ops::NodeId> nodes_between(const ops::Graph& graph, ValueId y, const std::unordered_set<ValueId>& given) {
  std::unordered_set<ops::NodeId> needed;
  std::vector<ValueId> open = {y};
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == kNone || given.count(id) != 0) continue;
    const ops::NodeId producer = graph.value(id).producer;
    if (producer == kNone || !needed.insert(producer).second) continue;
    const Node& node = graph.node(producer);
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  std::vector<ops::NodeId> sorted;
  for (ops::NodeId id : graph.order()) {
    if (needed.count(id) != 0) sorted.push_back(id);
  }
  return sorted;
}

}  // namespace

bool is_gradient(const Draft& node) { return node.domain == "ai.onnx.preview.training" && node.op_type == "Gradient"; }

void add_gradient(Draft node, const std::function<std::optional<ValueId>(std::string_view)>& find,
                  UpgradeContext& context) {
  const auto look_up = [&](const std::string& name) {
    const std::optional<ValueId> id = find(name);
    if (!id || *id == kNone) refuse(node, fmt::format("nothing in its graph is called '{}'", shown(name)));
    return *id;
  };
  const std::vector<std::string> xs = names(node, "xs"), zs = names(node, "zs");
  const ops::AttrValue* stated = node.attributes.find("y");
  const auto* y_name = stated ? std::get_if<std::string>(stated) : nullptr;
  if (y_name == nullptr || xs.empty()) refuse(node, "lacks xs or y");
  if (node.inputs.size() != xs.size() + zs.size() || node.outputs.size() > xs.size()) {
    refuse(node, fmt::format("has {} inputs and {} outputs for {} xs and {} zs", node.inputs.size(),
                             node.outputs.size(), xs.size(), zs.size()));
  }

  ops::Graph& graph = context.graph();
  std::unordered_map<ValueId, ValueId> copied;  // what stands for a value of the graph
  std::unordered_set<ValueId> given;
  std::vector<ValueId> wanted;
  for (std::size_t i = 0; i < xs.size() + zs.size(); ++i) {
    const ValueId id = look_up(i < xs.size() ? xs[i] : zs[i - xs.size()]);
    if (node.inputs[i] == kNone) refuse(node, fmt::format("input {} is left out", i));
    given.insert(id);
    // A value of its own, even where two names stand for one.
    copied[id] = context.emit(node, "Identity", {node.inputs[i]});
    if (i < xs.size()) wanted.push_back(copied[id]);
  }

  const ValueId y = look_up(*y_name);
  const std::vector<ops::NodeId> between = nodes_between(graph, y, given);
  std::unordered_set<ValueId> varies;
  for (ValueId id : wanted) varies.insert(id);
  const auto copy_of = [&](ValueId id) {
    const auto at = copied.find(id);
    return at == copied.end() ? id : at->second;
  };
  std::vector<ops::NodeId> taped;  // the copies that depend on an x
  std::string missing;
  for (ops::NodeId id : between) {
    const Node& original = graph.node(id);
    Draft copy;
    copy.domain = original.op->domain;
    copy.op_type = original.op->name;
    copy.name = node.name + "/" + original.name;
    copy.attributes = original.attributes;
    bool replaced = false, depends = false;
    for (ValueId v : original.inputs) {
      copy.inputs.push_back(copy_of(v));
      replaced = replaced || copied.count(v) != 0;
      depends = depends || varies.count(copy_of(v)) != 0;
    }
    if (!replaced) continue;  // the same whatever is given
    if ((depends && derivative_of(original) == nullptr) || !original.subgraphs.empty())
      missing += fmt::format("; {}", ops::describe(original));
    for (ValueId v : original.outputs) {
      if (v == kNone) {
        copy.outputs.push_back(kNone);
        continue;
      }
      const ValueId made = graph.add_value(node.name + "/" + graph.value(v).name);
      copy.outputs.push_back(made);
      copied[v] = made;
      if (depends) varies.insert(made);
    }
    if (!missing.empty()) continue;  // nothing is added any more, only told
    const ValueId made = copy.outputs.front();
    context.add(std::move(copy));
    if (depends) taped.push_back(graph.value(made).producer);
  }
  if (!missing.empty()) {
    fail(ErrorCode::unsupported, "Gradient '{}': these nodes have no derivative here{}", shown(node.name), missing);
  }

  Tape tape(node, context);
  tape.add(copy_of(y), tape.filled(1, copy_of(y)));
  for (auto at = taped.rbegin(); at != taped.rend(); ++at) {
    const Node& copy = graph.node(*at);
    const ValueId g = tape.of(copy.outputs.front());
    if (g != kNone) derivative_of(copy)->add(tape, copy, g);
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    const ValueId g = tape.of(wanted[i]);
    Draft result;
    result.op_type = "Identity";
    result.name = node.name;
    result.inputs = {g != kNone ? g : tape.filled(0, wanted[i])};
    result.outputs = {node.outputs[i]};
    context.add(std::move(result));
  }
}

}  // namespace lathe::frontends::onnx
