// Names become values, functions are inlined, subgraphs get their captures stated, older forms are upgraded.
#include "frontends/onnx/build.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "frontends/onnx/expand.h"
#include "frontends/onnx/gradient.h"
#include "frontends/onnx/hints.h"
#include "frontends/onnx/scope.h"
#include "frontends/onnx/tensor.h"
#include "frontends/onnx/upgrade.h"
#include "ops/ir/failure.h"
#include "ops/ir/op.h"

namespace lathe::frontends::onnx {
namespace {

using ops::Graph;
using ops::kNone;
using ops::ValueId;

std::string_view node_name(const NodeProto& node) {
  if (!node.name.empty()) return node.name;
  for (std::string_view output : node.outputs) {
    if (!output.empty()) return output;
  }
  return node.op_type;
}

std::string place(const NodeProto& node) { return fmt::format("{} '{}'", shown(node.op_type), shown(node_name(node))); }

bool is_constant_node(const NodeProto& node) {
  return node.op_type == "Constant" && node.domain.empty() && node.outputs.size() == 1 && !node.outputs[0].empty();
}

template <class T>
Tensor tensor_from(const std::vector<T>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

Hint hint_of(const ValueInfo& info) {
  if (info.kind != ValueInfo::Kind::tensor) return {};
  return {info.dtype, info.dims ? static_cast<int>(info.dims->size()) : -1};
}

std::vector<std::string> owned(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

class GraphBuilder {
 public:
  GraphBuilder(const ModelProto& model, const ModelSource& source, Budget& budget)
      : model_(model), source_(source), budget_(budget) {
    for (std::string_view message : model.functions) {
      FunctionProto f = parse_function(message);
      const FunctionKey key{f.domain, f.name, f.overload};
      if (!functions_.emplace(key, std::move(f)).second) {
        fail(ErrorCode::invalid_model, "function '{}' is defined twice", shown(std::get<1>(key)));
      }
    }
  }

  Graph build() {
    Graph graph;
    const GraphProto proto = parse_graph(*model_.graph, budget_);
    Scope scope(graph, model_.opsets);
    build_into(proto, scope, Environment());
    unsupported_.report();
    return graph;
  }

 private:
  using FunctionKey = std::tuple<std::string_view, std::string_view, std::string_view>;  // domain, name, overload
  using Initializers = std::unordered_map<std::string_view, Tensor>;

  // ---- graphs ----

  void build_into(const GraphProto& proto, Scope& scope, const Environment& environment) {
    Graph& graph = scope.graph();
    graph.name = proto.name;
    for (std::string_view message : proto.value_infos) scope.set_declared(value_name(message), message);
    Initializers initializers;
    std::vector<std::string_view> order;
    const auto read = [&](NamedTensor t) {
      if (t.name.empty()) fail(ErrorCode::invalid_model, "an initializer has no name");
      if (!initializers.emplace(t.name, std::move(t.tensor)).second) {
        fail(ErrorCode::invalid_model, "initializer '{}' is defined twice", shown(t.name));
      }
      order.push_back(t.name);
    };
    for (std::string_view message : proto.initializers) read(read_tensor(message, &source_, budget_));
    for (std::string_view message : proto.sparse_initializers) read(read_sparse_tensor(message, &source_, budget_));

    for (std::string_view message : proto.inputs) add_input(message, initializers, scope);
    for (std::string_view name : order) {
      if (const auto left = initializers.find(name); left != initializers.end()) {
        scope.declare(name, graph.add_constant(std::move(left->second), std::string(name)));
      }
    }
    declare_outputs(proto.nodes, scope, environment);
    for (std::string_view message : proto.outputs) scope.set_read(value_name(message));
    const std::size_t outer = gradients_.size();
    for (const NodeProto& node : proto.nodes) add_node(node, scope, environment);
    add_gradients(outer, scope);
    for (std::string_view message : proto.outputs) add_output(message, scope);
  }

  /// Those waiting since there were `from`: all that they differentiate is there now.
  void add_gradients(std::size_t from, Scope& scope) {
    Context context(*this, scope);
    for (std::size_t i = from; i < gradients_.size(); ++i) {
      add_gradient(
          std::move(gradients_[i]), [&](std::string_view name) { return scope.find(name); }, context);
    }
    gradients_.resize(from);
  }

  /// An initializer of an input's name is its default. Before IR 4 every initializer had to be listed as an input too:
  /// then it is a plain constant.
  void add_input(std::string_view message, Initializers& initializers, Scope& scope) {
    const std::string_view name = value_name(message);
    if (name.empty()) fail(ErrorCode::invalid_model, "a graph input has no name");
    const auto initializer = initializers.find(name);
    const bool has_default = initializer != initializers.end();
    constexpr std::int64_t kDefaultsSince = 4;
    if (has_default && model_.ir_version < kDefaultsSince) return;
    ValueInfo info = parse_value_info(message, budget_);
    info.required = !has_default;
    const Hint hint = hint_of(info);
    const ValueId id = scope.graph().add_input(std::string(name), std::move(info));
    scope.declare(name, id);
    hints_[&scope.graph()].set(id, hint);
    if (has_default) {
      scope.graph().value(id).default_value = std::move(initializer->second);
      initializers.erase(initializer);
    }
  }

  void add_output(std::string_view message, Scope& scope) {
    ValueInfo info = parse_value_info(message, budget_);
    const std::optional<ValueId> id = scope.find(value_name(message));
    if (!id || *id == kNone) fail(ErrorCode::invalid_model, "nothing produces graph output '{}'", shown(info.name));
    Graph& graph = scope.graph();
    graph.outputs.push_back(*id);
    std::optional<ValueInfo>& declared = graph.value(*id).declared;
    if (!declared) {
      declared = std::move(info);
    } else if (declared->dtype != info.dtype && info.dtype != DType::undefined) {
      fail(ErrorCode::invalid_model, "'{}' is declared as {} and, as a graph output, as {}", shown(info.name),
           declared->to_string(), info.to_string());
    }
  }

  /// Values for all outputs first, since a node may stand before the nodes that it reads. Constants are values at once,
  /// so that subgraphs can copy instead of capture them.
  void declare_outputs(const std::vector<NodeProto>& nodes, Scope& scope, const Environment& environment) {
    Graph& graph = scope.graph();
    for (const NodeProto& node : nodes) {
      for (std::string_view name : node.inputs) scope.set_read(name);
      for (std::string_view name : node.outputs) {
        if (name.empty()) continue;
        const ValueId id = scope.claim_result(name);
        const ValueId value = id != kNone ? id : graph.add_value(std::string(name));
        scope.declare(name, value);
        if (const std::string_view message = scope.declared(name); !message.empty()) {
          hints_[&graph].set(value, hint_of(parse_value_info(message, budget_)));
        }
      }
      if (!is_constant_node(node)) continue;
      Tensor tensor = constant_of(node, scope, environment);
      auto& value = graph.value(*scope.find(node.outputs[0]));
      value.fact = ops::Fact(tensor.dtype(), tensor.shape());
      value.constant = std::move(tensor);
    }
  }

  // ---- nodes ----

  void add_node(const NodeProto& proto, Scope& scope, const Environment& environment) {
    if (is_constant_node(proto)) return;
    if (!inlining_.empty()) budget_.take_node();  // those of graphs were counted when they were read
    const auto function = functions_.find({proto.domain, proto.op_type, proto.overload});
    if (function != functions_.end()) return inline_function(function->second, proto, scope, environment);

    Draft draft;
    draft.domain = proto.domain;
    draft.op_type = proto.op_type;
    draft.name = node_name(proto);
    for (std::string_view name : proto.inputs) draft.inputs.push_back(resolve(scope, name, proto));
    for (std::string_view name : proto.outputs) draft.outputs.push_back(name.empty() ? kNone : *scope.find(name));
    const std::vector<BoundAttribute> attributes = bind_attributes(proto, scope, environment);
    try {
      for (const BoundAttribute& a : attributes) add_attribute(draft, a, scope);
    } catch (const Failure& failure) {
      fail(failure.error.code, "{}: {}", place(proto), failure.error.message);
    }
    std::int64_t opset = opset_of(scope.opsets(), proto.domain);
    if (opset == 0) opset = opset_of(model_.opsets, proto.domain);  // a function may leave out what the model states
    if (opset == 0 && proto.domain.empty()) {
      fail(ErrorCode::invalid_model, "{}: the model states no opset for its operators", place(proto));
    }
    Context context(*this, scope);
    upgrade(draft, opset, context);
    expand(draft, context);
    if (is_gradient(draft)) {
      gradients_.push_back(std::move(draft));
      return;
    }
    finish(std::move(draft), scope.graph());
  }

  static ValueId resolve(Scope& scope, std::string_view name, const NodeProto& node) {
    if (name.empty()) return kNone;
    const std::optional<ValueId> id = scope.find(name);
    if (!id) fail(ErrorCode::invalid_model, "{}: nothing produces its input '{}'", place(node), shown(name));
    return *id;
  }

  /// Puts a node of the newest opset into the graph.
  void finish(Draft draft, Graph& graph) {
    const ops::OpDef* op = ops::find_operator(draft.op_type, draft.domain);
    if (!op) return unsupported_.add(draft.domain, draft.op_type, draft.name);
    ops::Node node;
    node.op = op;
    node.name = std::move(draft.name);
    node.attributes = std::move(draft.attributes);
    node.inputs = std::move(draft.inputs);
    node.outputs = std::move(draft.outputs);
    while (!node.inputs.empty() && node.inputs.back() == kNone) node.inputs.pop_back();
    while (!node.outputs.empty() && node.outputs.back() == kNone) node.outputs.pop_back();
    constexpr std::size_t kLoopInputs = 2;  // trip count and condition, both optional
    if (op->region == ops::Region::loop && node.inputs.size() < kLoopInputs) node.inputs.resize(kLoopInputs, kNone);
    attach_subgraphs(node, std::move(draft.subgraphs));
    hints_[&graph].follow(graph, node);
    graph.add_node(std::move(node));
  }

  void inline_function(const FunctionProto& function, const NodeProto& call, Scope& caller,
                       const Environment& environment) {
    if (std::find(inlining_.begin(), inlining_.end(), &function) != inlining_.end()) {
      fail(ErrorCode::invalid_model, "{}: function '{}' calls itself", place(call), shown(function.name));
    }
    if (call.inputs.size() > function.inputs.size() || call.outputs.size() > function.outputs.size()) {
      fail(ErrorCode::invalid_model, "{}: {} inputs and {} outputs, but the function has {} and {}", place(call),
           call.inputs.size(), call.outputs.size(), function.inputs.size(), function.outputs.size());
    }
    inlining_.push_back(&function);
    budget_.check_nesting(static_cast<int>(inlining_.size()) + depth_, "a function");
    Environment inner;
    for (std::string_view message : function.attribute_protos) {
      AttributeProto proto = parse_attribute(message);
      const std::string_view name = proto.name;
      inner.emplace(name, BoundAttribute{std::move(proto), nullptr, nullptr});
    }
    for (BoundAttribute& a : bind_attributes(call, caller, environment))
      inner.insert_or_assign(a.proto.name, std::move(a));

    Scope scope(caller.graph(), function.opsets.empty() ? model_.opsets : function.opsets);
    for (std::size_t i = 0; i < function.inputs.size(); ++i) {
      scope.declare(function.inputs[i], i < call.inputs.size() ? resolve(caller, call.inputs[i], call) : kNone);
    }
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (!call.outputs[i].empty()) scope.expect_result(function.outputs[i], *caller.find(call.outputs[i]));
    }
    declare_outputs(function.nodes, scope, inner);
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (!call.outputs[i].empty()) scope.set_read(function.outputs[i]);
    }
    const std::size_t outer = gradients_.size();
    for (const NodeProto& node : function.nodes) add_node(node, scope, inner);
    add_gradients(outer, scope);
    pass_through(function, call, scope, caller);
    inlining_.pop_back();
  }

  /// Outputs of a function that are its inputs, or the same value twice.
  void pass_through(const FunctionProto& function, const NodeProto& call, Scope& scope, Scope& caller) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].empty()) continue;
      const ValueId result = *caller.find(call.outputs[i]);
      const std::optional<ValueId> id = scope.find(function.outputs[i]);
      if (!id || *id == kNone) {
        fail(ErrorCode::invalid_model, "{}: nothing in the function produces its output '{}'", place(call),
             shown(function.outputs[i]));
      }
      if (*id == result) continue;
      Draft identity;
      identity.op_type = "Identity";
      identity.name = call.outputs[i];
      identity.inputs = {*id};
      identity.outputs = {result};
      finish(std::move(identity), scope.graph());
    }
  }

  // ---- attributes ----

  /// The attributes of a node, with references to the enclosing function's attributes resolved.
  static std::vector<BoundAttribute> bind_attributes(const NodeProto& node, Scope& scope,
                                                     const Environment& environment) {
    constexpr std::size_t kMost = 256;
    if (node.attributes.size() > kMost) {
      fail(ErrorCode::limit_exceeded, "{}: has {} attributes, at most {} are read", place(node), node.attributes.size(),
           kMost);
    }
    std::vector<BoundAttribute> bound;
    for (std::string_view message : node.attributes) {
      AttributeProto proto = parse_attribute(message);
      for (const BoundAttribute& other : bound) {
        if (other.proto.name == proto.name) {
          fail(ErrorCode::invalid_model, "{}: attribute '{}' is stated twice", place(node), shown(proto.name));
        }
      }
      if (proto.ref_attr_name.empty()) {
        bound.push_back({std::move(proto), &scope, &environment});
        continue;
      }
      const auto given = environment.find(proto.ref_attr_name);
      if (given == environment.end()) continue;  // the caller left it out: so does the node
      bound.push_back(given->second);
      bound.back().proto.name = proto.name;
    }
    return bound;
  }

  Tensor constant_of(const NodeProto& node, Scope& scope, const Environment& environment) {
    const std::vector<BoundAttribute> attributes = bind_attributes(node, scope, environment);
    if (attributes.size() != 1)
      fail(ErrorCode::invalid_model, "{}: has {} attributes, expected 1", place(node), attributes.size());
    const AttributeProto& a = attributes.front().proto;
    try {
      switch (a.type) {
        case AttributeType::tensor:
          return read_tensor(a.message, &source_, budget_).tensor;
        case AttributeType::sparse_tensor:
          return read_sparse_tensor(a.message, &source_, budget_).tensor;
        case AttributeType::real:
          return Tensor::scalar(a.f);
        case AttributeType::integer:
          return Tensor::scalar(a.i);
        case AttributeType::string:
          return Tensor::scalar(std::string(a.s));
        case AttributeType::reals:
          return tensor_from(std::vector<float>(a.floats.begin(), a.floats.end()));
        case AttributeType::integers:
          return tensor_from(a.ints);
        case AttributeType::strings:
          return tensor_from(owned(a.strings));
        default:
          fail(ErrorCode::invalid_model, "attribute '{}' is no constant", shown(a.name));
      }
    } catch (const Failure& failure) {
      fail(failure.error.code, "{}: {}", place(node), failure.error.message);
    }
  }

  void add_attribute(Draft& draft, const BoundAttribute& attribute, Scope& scope) {
    const AttributeProto& a = attribute.proto;
    ops::Attributes& to = draft.attributes;
    std::string name(a.name);
    switch (a.type) {
      case AttributeType::real:
        return to.set(std::move(name), static_cast<double>(a.f));
      case AttributeType::integer:
        return to.set(std::move(name), a.i);
      case AttributeType::string:
        return to.set(std::move(name), std::string(a.s));
      case AttributeType::reals:
        return to.set(std::move(name), a.floats);
      case AttributeType::integers:
        return to.set(std::move(name), a.ints);
      case AttributeType::strings:
        return to.set(std::move(name), owned(a.strings));
      case AttributeType::tensor:
        return to.set(std::move(name), read_tensor(a.message, &source_, budget_).tensor);
      case AttributeType::type:
        return to.set(std::move(name), parse_type(a.message, budget_));
      case AttributeType::graph:
        draft.subgraphs.push_back(build_subgraph(attribute, scope));
        return;
      case AttributeType::tensors: {
        std::vector<Tensor> tensors;
        for (std::string_view message : a.messages) tensors.push_back(read_tensor(message, &source_, budget_).tensor);
        return to.set(std::move(name), std::move(tensors));
      }
      default:
        fail(ErrorCode::unsupported, "attribute '{}' has a type that is not supported", shown(a.name));
    }
  }

  // ---- subgraphs ----

  Subgraph build_subgraph(const BoundAttribute& attribute, Scope& scope) {
    if (attribute.scope && &attribute.scope->graph() != &scope.graph()) {
      fail(ErrorCode::unsupported, "graph '{}' is handed through a function into another graph",
           shown(attribute.proto.name));
    }
    budget_.check_nesting(++depth_ + static_cast<int>(inlining_.size()), "a subgraph");
    Subgraph subgraph;
    subgraph.name = attribute.proto.name;
    subgraph.graph = std::make_unique<Graph>();
    const GraphProto proto = parse_graph(attribute.proto.message, budget_);
    Scope inner(*subgraph.graph, attribute.scope ? attribute.scope->opsets() : scope.opsets(), attribute.scope);
    static const Environment kEmpty;
    build_into(proto, inner, attribute.environment ? *attribute.environment : kEmpty);
    subgraph.captured = inner.captured();
    hints_.erase(subgraph.graph.get());
    --depth_;
    return subgraph;
  }

  /// What any of the subgraphs reads becomes an input of the node and, in the same order, of all of them.
  static void attach_subgraphs(ops::Node& node, std::vector<Subgraph> subgraphs) {
    std::vector<ValueId> captures;
    std::unordered_set<ValueId> seen;
    for (const Subgraph& s : subgraphs) {
      for (ValueId outer : s.captured) {
        if (seen.insert(outer).second) captures.push_back(outer);
      }
    }
    for (Subgraph& s : subgraphs) {
      std::vector<ValueId>& inputs = s.graph->inputs;
      const auto own = inputs.end() - static_cast<std::ptrdiff_t>(s.captured.size());
      std::unordered_map<ValueId, ValueId> inner;
      for (std::size_t i = 0; i < s.captured.size(); ++i)
        inner.emplace(s.captured[i], own[static_cast<std::ptrdiff_t>(i)]);
      inputs.erase(own, inputs.end());
      for (ValueId outer : captures) {
        const auto at = inner.find(outer);
        inputs.push_back(at != inner.end() ? at->second : s.graph->add_value("unused"));
      }
    }
    node.inputs.insert(node.inputs.end(), captures.begin(), captures.end());
    node.captures = static_cast<int>(captures.size());
    for (std::string_view wanted : node.op->subgraphs) {
      const auto at =
          std::find_if(subgraphs.begin(), subgraphs.end(), [&](const Subgraph& s) { return s.name == wanted; });
      if (at == subgraphs.end())
        fail(ErrorCode::invalid_model, "{}: lacks its subgraph '{}'", ops::describe(node), wanted);
      node.subgraphs.push_back(std::move(at->graph));
      subgraphs.erase(at);
    }
    if (!subgraphs.empty()) {
      fail(ErrorCode::invalid_model, "{}: unknown attribute '{}'", ops::describe(node), shown(subgraphs.front().name));
    }
  }

  /// What upgrades see of the builder.
  class Context final : public UpgradeContext {
   public:
    Context(GraphBuilder& builder, Scope& scope) : builder_(builder), scope_(scope) {}
    Graph& graph() override { return scope_.graph(); }
    void add(Draft draft) override {
      builder_.budget_.take_node();
      builder_.finish(std::move(draft), scope_.graph());
    }
    Hint hint(ValueId id) override { return builder_.hints_[&scope_.graph()].of(scope_.graph(), id); }
    bool is_read(ValueId id) override { return scope_.is_read(id); }

   private:
    GraphBuilder& builder_;
    Scope& scope_;
  };

  const ModelProto& model_;
  const ModelSource& source_;
  Budget& budget_;
  std::map<FunctionKey, FunctionProto> functions_;
  std::vector<const FunctionProto*> inlining_;
  int depth_ = 0;                 ///< of subgraphs
  std::vector<Draft> gradients_;  ///< waiting until their graph is whole
  std::unordered_map<const Graph*, Hints> hints_;
  Unsupported unsupported_;
};

}  // namespace

ops::Graph build_graph(const ModelProto& model, const ModelSource& source, Budget& budget) {
  return GraphBuilder(model, source, budget).build();
}

}  // namespace lathe::frontends::onnx
