// Custom operators: what an application registers, behind the hooks of an OpDef.
#include <lathe/operator.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"

namespace lathe {
namespace ops {
namespace {

/// An operator and the strings and lists that its OpDef refers to. Lives as long as the process.
struct Registered {
  CustomOperator custom;
  std::vector<Attribute> attributes;
  OpDef op;
};

/// Stable addresses, since graphs refer to operators; never destroyed, since graphs may outlive the end of main.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Registered>> operators;  // in the order of registration
};
Registry& registry() {
  static auto* const kRegistry = new Registry();
  return *kRegistry;
}

/// Whether `first` was registered before `second`; what Lathe has itself was before all.
bool registered_before(const OpDef* first, const OpDef& second) {
  if (!first->custom) return true;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& r : all.operators) {
    if (&r->op == &second) return false;
    if (&r->op == first) return true;
  }
  return false;
}

const CustomOperator& custom_of(const OpView& view) { return *view.op().custom; }

[[noreturn]] void fail_node(const Node& node, ErrorCode code, std::string_view message) {
  fail(code, "{}: {}", describe(node), message);
}

/// What `body` returns; its Error or exception becomes a Failure that names the node.
template <class Body>
auto guarded(const Node& node, Body&& body) {
  try {
    auto result = body();
    if (!result.ok()) fail_node(node, result.error().code, result.error().message);
    if constexpr (!std::is_same_v<decltype(result), Result<void>>) return *std::move(result);
  } catch (const Failure&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Exception& error) {
    fail_node(node, error.code(), error.what());
  } catch (const std::exception& error) {
    fail_node(node, ErrorCode::invalid_argument, error.what());
  } catch (...) {
    fail_node(node, ErrorCode::invalid_argument, "its function threw");
  }
}

Facts infer(const OpView& view) {
  const auto types = guarded(view.node(), [&] { return custom_of(view).infer(OperatorNode(view)); });
  view.require(static_cast<int>(types.size()) >= view.outputs(), "its `infer` gave {} types for {} outputs",
               types.size(), view.outputs());
  Facts facts;
  for (const TensorType& type : types) {
    view.require(type.dtype != DType::undefined, "its `infer` gave no dtype for output {}", facts.size());
    facts.emplace_back(type.dtype, type.shape);
  }
  return facts;
}

void run(KernelContext& context) {
  const OpView& view = context.op();
  const bool inferred = !view.op().dynamic_output;
  std::pmr::vector<Tensor> inputs(static_cast<std::size_t>(view.inputs()), context.memory());
  std::pmr::vector<Tensor> outputs(static_cast<std::size_t>(view.outputs()), context.memory());
  for (int i = 0; i < view.inputs(); ++i) {
    if (view.has(i)) inputs[static_cast<std::size_t>(i)] = context.in(i);
  }
  for (int o = 0; inferred && o < view.outputs(); ++o) {
    if (view.wants(o)) outputs[static_cast<std::size_t>(o)] = context.out(o);
  }
  guarded(view.node(), [&] { return custom_of(view).run(OperatorNode(view), inputs, outputs); });
  for (int o = 0; o < view.outputs(); ++o) {
    const Tensor& made = outputs[static_cast<std::size_t>(o)];
    if (!view.wants(o)) continue;
    view.require(made.defined(), "its `run` left output {} undefined", o);
    if (!inferred) {
      context.set(o, made.clone());  // it may lie in an input's memory, or in what the function borrowed
    } else {
      view.require(made.data() == context.out(o).data(), "its `run` replaced output {}, which it was to write to", o);
    }
  }
}

bool is_value(const Graph& graph, GraphValue value) {
  return value && static_cast<std::size_t>(value.id) < graph.value_count();
}

/// What stands for the outputs, or what went wrong while it was built.
std::vector<ValueId> lower(const OpView& view, Builder& b) {
  Result<void> status;
  GraphBuilder builder(view, b, status);
  const auto made = guarded(view.node(), [&]() -> Result<std::vector<GraphValue>> {
    auto values = custom_of(view).lower(OperatorNode(view), builder);
    if (!status.ok()) return status.error();
    return values;
  });
  view.require(static_cast<int>(made.size()) >= view.outputs(), "its `lower` gave {} values for {} outputs",
               made.size(), view.outputs());
  std::vector<ValueId> results;
  for (int o = 0; o < view.outputs(); ++o) {
    const GraphValue value = made[static_cast<std::size_t>(o)];
    results.push_back(view.wants(o) ? value.id : kNone);
    if (!view.wants(o)) continue;
    view.require(is_value(b.graph(), value), "its `lower` gave no value for output {}", o);
    const auto& fact = b.graph().value(value.id).fact;
    view.require(fact && fact->same_type(view.out(o)), "its `lower` made {} for output {}, its `infer` said {}",
                 fact ? fact->to_string() : "nothing known", o, view.out(o).to_string());
  }
  return results;
}

AttrKind kind_of(const AttributeValue& value) {
  constexpr AttrKind kKinds[] = {AttrKind::integer, AttrKind::number,  AttrKind::string, AttrKind::integers,
                                 AttrKind::numbers, AttrKind::strings, AttrKind::tensor};
  static_assert(std::size(kKinds) == std::variant_size_v<AttributeValue>);
  return kKinds[value.index()];
}

void check(const CustomOperator& op) {
  const auto require = [&](bool condition, std::string_view message) {
    if (!condition) fail(ErrorCode::invalid_argument, "custom operator '{}': {}", shown(op.name), message);
  };
  require(!op.name.empty(), "it has no name");
  require(op.domain != "lathe", "the domain 'lathe' is taken");
  require(static_cast<bool>(op.run) != static_cast<bool>(op.lower), "it must have one of `run` and `lower`");
  require(op.infer || !op.lower, "`lower` needs `infer`");
  require(op.min_inputs >= 0 && op.min_inputs <= op.max_inputs, "min_inputs must be from 0 to max_inputs");
  require(op.min_outputs >= 1 && op.min_outputs <= op.max_outputs, "min_outputs must be from 1 to max_outputs");
  require(op.infer || op.shape_inputs.empty(), "shape_inputs are for `infer`, which it lacks");
  for (int i : op.shape_inputs) require(i >= 0 && i < 32 && i < op.max_inputs, "shape_inputs names no input below 32");
  for (std::size_t i = 0; i < op.attributes.size(); ++i) {
    require(!op.attributes[i].name.empty(), "an attribute has no name");
    for (std::size_t k = 0; k < i; ++k)
      require(op.attributes[k].name != op.attributes[i].name,
              "two attributes are called '" + op.attributes[i].name + "'");
  }
  require(!op.real_time || op.infer, "real_time needs `infer`: what makes its outputs takes memory");
  require(op.pure || op.run, "what `lower` builds is pure or not by itself: leave `pure` as it is");
}

const OpDef* find_registered(Registry& all, std::string_view name, std::string_view domain) {
  for (const auto& r : all.operators) {
    if (r->op.name == name && r->op.domain == domain) return &r->op;
  }
  return nullptr;
}

void add(CustomOperator custom) {
  check(custom);
  if (custom.domain == "ai.onnx") custom.domain.clear();
  const auto require_new = [&](const OpDef* found) {
    if (!found) return;
    fail(ErrorCode::invalid_argument, "custom operator '{}': there is one of that name in domain '{}'",
         shown(custom.name), shown(custom.domain));
  };
  require_new(find_operator(custom.name, custom.domain));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  require_new(find_registered(all, custom.name, custom.domain));  // it may have come meanwhile
  auto made = std::make_unique<Registered>();
  Registered& r = *made;
  r.custom = std::move(custom);
  for (const OperatorAttribute& a : r.custom.attributes)
    r.attributes.emplace_back(a.name, kind_of(a.otherwise), a.required);
  r.op.name = r.custom.name;
  r.op.domain = r.custom.domain;
  r.op.inputs = {r.custom.min_inputs, r.custom.max_inputs};
  r.op.outputs = {r.custom.min_outputs, r.custom.max_outputs};
  r.op.attributes = r.attributes;
  for (int i : r.custom.shape_inputs) r.op.shape_inputs |= 1U << static_cast<unsigned>(i);
  r.op.dynamic_output = !r.custom.infer;
  r.op.impure = !r.custom.pure;
  r.op.infer = r.custom.infer ? infer : nullptr;
  if (r.custom.run) {
    r.op.kernel = run;
  } else {
    r.op.lower = lower;
  }
  r.op.real_time = r.custom.real_time;
  r.op.custom = &r.custom;
  all.operators.push_back(std::move(made));
}

}  // namespace

const OpDef* find_custom_operator(std::string_view name, std::string_view domain) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return find_registered(all, name, domain);
}

}  // namespace ops

std::string_view OperatorNode::name() const { return view_->node().name; }
int OperatorNode::inputs() const { return view_->inputs(); }
int OperatorNode::outputs() const { return view_->outputs(); }
bool OperatorNode::has_input(int i) const { return i >= 0 && view_->has(i); }
bool OperatorNode::wants_output(int i) const { return i >= 0 && view_->wants(i); }

TensorType OperatorNode::input(int i) const {
  return has_input(i) ? TensorType{view_->in(i).dtype, view_->in(i).shape} : TensorType{};
}

const Tensor* OperatorNode::value(int i) const { return has_input(i) ? view_->value(i) : nullptr; }

template <class T>
const T* OperatorNode::find(std::string_view attribute) const {
  if (const ops::AttrValue* stated = view_->node().attributes.find(attribute)) return std::get_if<T>(stated);
  for (const OperatorAttribute& a : view_->op().custom->attributes) {
    if (a.name == attribute) return std::get_if<T>(&a.otherwise);
  }
  return nullptr;
}

namespace {

template <class T>
T value_or_zero(const T* value) {
  return value ? *value : T();
}

template <class T>
std::span<const T> list_of(const std::vector<T>* values) {
  return values ? std::span<const T>(*values) : std::span<const T>();
}

}  // namespace

std::int64_t OperatorNode::integer(std::string_view a) const { return value_or_zero(find<std::int64_t>(a)); }
double OperatorNode::number(std::string_view a) const { return value_or_zero(find<double>(a)); }
std::string_view OperatorNode::text(std::string_view a) const {
  const auto* value = find<std::string>(a);
  return value ? std::string_view(*value) : std::string_view();
}
std::span<const std::int64_t> OperatorNode::integers(std::string_view a) const {
  return list_of(find<std::vector<std::int64_t>>(a));
}
std::span<const double> OperatorNode::numbers(std::string_view a) const {
  return list_of(find<std::vector<double>>(a));
}
std::span<const std::string> OperatorNode::texts(std::string_view a) const {
  return list_of(find<std::vector<std::string>>(a));
}
const Tensor* OperatorNode::tensor(std::string_view a) const { return find<Tensor>(a); }

GraphValue GraphBuilder::input(int i) const { return {i >= 0 ? view_->id(i) : ops::kNone}; }

TensorType GraphBuilder::type(GraphValue value) const {
  if (!ops::is_value(builder_->graph(), value)) return {};
  const auto& fact = builder_->graph().value(value.id).fact;
  return fact ? TensorType{fact->dtype, fact->shape} : TensorType{};
}

GraphValue GraphBuilder::constant(Tensor tensor) {
  if (tensor.defined()) return {builder_->constant(std::move(tensor))};
  if (status_->ok()) *status_ = Error{ErrorCode::invalid_argument, "`lower` made a constant of no tensor"};
  return {};
}

GraphValue GraphBuilder::scalar(double number, GraphValue like) {
  const DType dtype = type(like).dtype;
  return constant(dtype == DType::undefined ? Tensor() : Tensor::scalar(number).cast(dtype));
}

GraphValue GraphBuilder::op(std::string_view name, std::span<const GraphValue> inputs,
                            std::span<const std::pair<std::string, AttributeValue>> attributes) {
  return op_with_outputs(1, name, inputs, attributes).front();
}

std::vector<GraphValue> GraphBuilder::op_with_outputs(
    int outputs, std::string_view name, std::span<const GraphValue> inputs,
    std::span<const std::pair<std::string, AttributeValue>> attributes) {
  std::vector<GraphValue> made(static_cast<std::size_t>(std::max(outputs, 1)));
  if (!status_->ok()) return made;
  try {
    std::vector<ops::ValueId> ids;
    for (const GraphValue& v : inputs) {
      if (v && !ops::is_value(builder_->graph(), v))
        fail(ErrorCode::invalid_argument, "`lower` gave {} an input that is no value", name);
      ids.push_back(v ? v.id : ops::kNone);
    }
    ops::Attributes stated;
    for (const auto& [key, value] : attributes) {
      std::visit([&, key = key](const auto& v) { stated.set(key, v); }, value);
    }
    const auto [domain, base] = ops::split_name(name);
    const ops::OpDef* op = ops::find_operator(base, domain);
    if (name == "Constant") fail(ErrorCode::invalid_argument, "`lower` makes constants with GraphBuilder::constant");
    if (op && !ops::registered_before(op, view_->op())) {
      fail(ErrorCode::invalid_argument, "`lower` uses {}, which was not registered before", name);
    }
    const std::vector<ops::ValueId> results =
        builder_->ops(name, std::move(ids), static_cast<int>(made.size()), std::move(stated));
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!builder_->graph().value(results[i]).fact) {
        fail(ErrorCode::unsupported, "`lower` uses {}, whose outputs depend on data: only `run` can do that", name);
      }
      made[i].id = results[i];
    }
  } catch (const Failure& failure) {
    *status_ = failure.error;
  } catch (const std::exception&) {
    *status_ = Error{ErrorCode::out_of_memory, fmt::format("no memory to build {}", name)};
  }
  return made;
}

Result<void> try_register_operator(CustomOperator op) noexcept {
  try {
    ops::add(std::move(op));
    return {};
  } catch (Failure& failure) {
    return std::move(failure.error);
  } catch (const std::exception&) {
    return Error{ErrorCode::out_of_memory, "no memory for a custom operator"};
  }
}

}  // namespace lathe
