// Inference and plain evaluation of single nodes.
#include "ops/ir/evaluate.h"

#include <algorithm>

#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"
#include "ops/ir/loop_builder.h"
#include "ops/ir/memory.h"
#include "ops/ir/numeric.h"

namespace lathe::ops {
namespace {

bool all_values_known(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId in) {
    return in == kNone || (graph.value(in).value() && graph.value(in).value()->size() <= kKnownElements);
  });
}

std::vector<Value> input_values(const Graph& graph, const Node& node) {
  std::vector<Value> inputs(node.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] != kNone) inputs[i] = *graph.value(node.inputs[i]).value();
  }
  return inputs;
}

std::vector<Value> evaluate_lowered(const Node& node, std::span<const Value> inputs, const RunLoop& run_loop) {
  Graph graph;
  Node copy;
  copy.op = node.op;
  copy.name = node.name;
  copy.attributes = node.attributes;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    copy.inputs.push_back(node.inputs[i] == kNone ? kNone : graph.add_constant(inputs[i].tensor()));
  }
  for (ValueId out : node.outputs) copy.outputs.push_back(out == kNone ? kNone : graph.add_value({}));
  const NodeId id = graph.add_node(std::move(copy));
  const NodeFacts before(graph, id);
  const Facts facts = infer_node(graph.node(id), before.inputs(), before.values());
  for (std::size_t i = 0; i < facts.size() && i < graph.node(id).outputs.size(); ++i) {
    if (graph.node(id).outputs[i] != kNone) graph.value(graph.node(id).outputs[i]).fact = facts[i];
  }
  const NodeFacts nf(graph, id);
  Builder builder(graph, node.name);
  const std::vector<ValueId> results = node.op->lower(nf.view(), builder);
  graph.remove_node(id);
  // Backwards from the results: lowering may have left nodes behind that nobody reads.
  std::vector<Value> values(graph.value_count());
  std::vector<bool> needed(graph.node_count(), false);
  const std::vector<NodeId> order = graph.order();
  const auto need = [&](ValueId v) {
    if (v != kNone && graph.value(v).producer != kNone && !graph.value(v).known) {
      needed[static_cast<std::size_t>(graph.value(v).producer)] = true;
    }
  };
  for (ValueId r : results) need(r);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (!needed[static_cast<std::size_t>(*it)]) continue;
    for (ValueId in : graph.node(*it).inputs) need(in);
  }
  const auto value_of = [&](ValueId v) -> Value {
    if (v == kNone) return {};
    return graph.value(v).value() ? Value(*graph.value(v).value()) : values[static_cast<std::size_t>(v)];
  };
  for (NodeId n : order) {
    if (!needed[static_cast<std::size_t>(n)]) continue;
    const Node& step = graph.node(n);
    std::vector<Value> ins;
    for (ValueId in : step.inputs) ins.push_back(value_of(in));
    std::vector<Value> outs = evaluate_node(step, ins, run_loop);
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] != kNone) values[static_cast<std::size_t>(step.outputs[i])] = std::move(outs[i]);
    }
  }
  std::vector<Value> outputs;
  for (ValueId r : results) outputs.push_back(value_of(r));
  outputs.resize(node.outputs.size());
  return outputs;
}

std::vector<Value> evaluate_expr(const Node& node, std::span<const Value> inputs, const Facts& facts,
                                 const RunLoop& run_loop) {
  Graph graph;
  Node copy;
  copy.op = node.op;
  copy.name = node.name;
  copy.attributes = node.attributes;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) {
      copy.inputs.push_back(kNone);
      continue;
    }
    const ValueId v = graph.add_value({});
    graph.value(v).fact = Fact(inputs[i].dtype(), inputs[i].shape());
    if ((node.op->shape_inputs >> i) & 1U) graph.value(v).known = inputs[i].tensor();
    copy.inputs.push_back(v);
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    copy.outputs.push_back(node.outputs[i] == kNone ? kNone : graph.add_value({}));
    if (node.outputs[i] != kNone) graph.value(copy.outputs.back()).fact = facts[i];
  }
  const NodeId id = graph.add_node(std::move(copy));
  std::vector<Value> outputs(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId out = graph.node(id).outputs[i];
    if (out == kNone) continue;
    Tensor result(facts[i].dtype, facts[i].shape);
    outputs[i] = result;
    if (result.size() == 0) continue;
    const GroupKernel gk = build_kernel(graph, single_node_group(graph, id, static_cast<int>(i)));
    std::vector<void*> buffers;
    std::vector<Tensor> unpacked;  // kernels see packed dtypes one element to a byte
    for (ValueId b : gk.buffers) {
      const auto& ins = graph.node(id).inputs;
      const auto at = std::find(ins.begin(), ins.end(), b);
      Tensor t = at == ins.end() ? result : inputs[static_cast<std::size_t>(at - ins.begin())].tensor();
      if (t.dtype().is_packed()) {
        unpacked.emplace_back(DType::u8, t.shape());
        numeric::unpack(t.dtype(), t.data(), t.size(), unpacked.back().mutable_data());
        buffers.push_back(unpacked.back().mutable_data());
      } else {
        buffers.push_back(t.mutable_data());
      }
    }
    const std::vector<std::int64_t> params = loops::pack_params(gk.kernel);
    loops::ErrorSlot error;
    const loops::KernelArgs args{buffers.data(), params.data(), 0, gk.kernel.outer ? gk.kernel.extents[0] : 1,
                                 nullptr,        &error};
    const bool compiles = std::all_of(gk.kernel.buffers.begin(), gk.kernel.buffers.end(), [](const loops::Buffer& b) {
      return b.dtype != DType::string && !b.dtype.is_complex();
    });
    if ((compiles ? run_loop(gk.kernel, args) : loops::evaluate(gk.kernel, args)) != loops::kOk) {
      fail(ErrorCode::out_of_range, "{}: index {} at element {} is out of range for extent {}", describe(node),
           error.value, error.position, error.extent);
    }
    const auto stored = std::find(gk.buffers.begin(), gk.buffers.end(), out);
    if (result.dtype().is_packed()) {
      numeric::pack(result.dtype(), buffers[static_cast<std::size_t>(stored - gk.buffers.begin())], result.size(),
                    result.mutable_data());
    }
  }
  return outputs;
}

/// Failure where a tensor is of a dtype that the operator does not take.
void require_dtypes(const OpView& op) {
  for (const Takes& rule : op.op().takes) {
    int first = kNone;
    for (int i = 0; i < op.inputs(); ++i) {
      if (!rule.covers(i) || !op.has(i) || !op.in(i).is_tensor()) continue;
      op.require(rule.dtypes.contains(op.in(i).dtype), "input {} must be {}, got {}", i, rule.dtypes.to_string(),
                 op.in(i).dtype);
      if (first == kNone) first = i;
      if (rule.alike) op.require_same_dtype(first, i);
    }
  }
}

/// The same, and failure where an input is no tensor and the operator takes nothing else.
void require_inputs(const OpView& op) {
  for (int i = 0; i < op.inputs() && !op.op().any_kind; ++i) {
    if (op.has(i)) op.require(op.in(i).is_tensor(), "input {} must be a tensor, got {}", i, op.in(i).to_string());
  }
  require_dtypes(op);
}

}  // namespace

Facts infer_node(const Node& node, std::span<const Fact* const> inputs, std::span<const Tensor* const> values) {
  const OpView view(node, inputs, values);
  require_inputs(view);
  Facts facts = node.op->infer(view);
  for (const Fact& f : facts) {
    if (!f.is_tensor()) continue;
    for (std::int64_t d : f.shape) view.require(d >= 0, "output shape {} has a negative extent", f.shape);
    view.require(f.shape.elements() >= 0 && Tensor::byte_size(f.dtype, f.shape) < (std::size_t{1} << 62),
                 "an output of shape {} is too large", f.shape);
  }
  if (facts.size() < node.outputs.size()) {
    fail(ErrorCode::internal, "{}: {} facts inferred for {} outputs", describe(node), facts.size(),
         node.outputs.size());
  }
  return facts;
}

void check_dtypes(const Node& node, std::span<const Value> inputs) {
  std::vector<Fact> facts(inputs.size());
  std::vector<const Fact*> pointers(inputs.size(), nullptr);
  for (std::size_t i = 0; i < inputs.size() && i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    facts[i] = fact_of(inputs[i]);
    pointers[i] = &facts[i];
  }
  require_dtypes(OpView(node, pointers, {}));
}

std::vector<Value> evaluate_node(const Node& node, std::span<const Value> inputs, const RunLoop& run_loop) {
  const OnBehalfOf name(node);
  std::vector<Fact> in_facts(inputs.size());
  std::vector<const Fact*> fact_pointers(inputs.size(), nullptr);
  std::vector<const Tensor*> values(inputs.size(), nullptr);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    in_facts[i] = fact_of(inputs[i]);
    fact_pointers[i] = &in_facts[i];
    if (inputs[i].is_tensor()) values[i] = &inputs[i].tensor();
  }
  if (node.op->lower) return evaluate_lowered(node, inputs, run_loop);
  Facts facts;
  if (node.op->dynamic_output) {
    require_inputs(OpView(node, fact_pointers, values));
  } else {
    facts = infer_node(node, fact_pointers, values);
  }
  if (node.op->expr) return evaluate_expr(node, inputs, facts, run_loop);
  if (!node.op->kernel) fail(ErrorCode::unsupported, "{}: has no plain evaluation", describe(node));
  std::vector<const Fact*> out_pointers;
  for (const Fact& f : facts) out_pointers.push_back(&f);
  const OpView view(node, fact_pointers, values, out_pointers);
  std::vector<Value> outputs(node.outputs.size());
  for (std::size_t i = 0; i < outputs.size() && i < facts.size(); ++i) {
    if (node.outputs[i] != kNone && facts[i].is_tensor()) outputs[i] = Tensor(facts[i].dtype, facts[i].shape);
  }
  Workers workers;
  Scratch scratch;
  KernelContext context(view, inputs, outputs, workers, scratch);
  run_kernel(context);
  return outputs;
}

Fact fact_of(const Value& value) {
  if (value.is_tensor()) return {value.tensor().dtype(), value.tensor().shape()};
  if (value.is_sequence()) {
    return Fact::of_kind(Fact::Kind::sequence,
                         value.sequence().empty() ? DType() : fact_of(value.sequence().front()).dtype);
  }
  if (value.is_optional()) {
    return Fact::of_kind(Fact::Kind::optional,
                         value.optional().value ? fact_of(*value.optional().value).dtype : DType());
  }
  return Fact::of_kind(Fact::Kind::map, DType::undefined);
}

bool follows_from_shapes(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op->name == "Shape" || node.op->name == "Size") return true;
  if (node.op->impure || node.op->region != Region::none || node.inputs.empty()) return false;
  return all_values_known(graph, node);
}

void infer_one(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const bool known = follows_from_shapes(graph, id);
  const auto set_known = [&](std::vector<Value> results) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone || !results[i].is_tensor()) continue;
      graph.value(node.outputs[i]).fact = fact_of(results[i]);
      graph.value(node.outputs[i]).known = results[i].tensor();
    }
  };
  if (node.op->dynamic_output) {
    if (!known) fail(ErrorCode::internal, "{}: its output shapes follow from data", describe(node));
    set_known(evaluate_node(node, input_values(graph, node)));
    return;
  }
  const NodeFacts nf(graph, id);
  Facts facts = infer_node(node, nf.inputs(), nf.values());
  bool small = true;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    ValueDef& v = graph.value(node.outputs[i]);
    if (v.fact && v.fact->rank() == facts[i].rank()) facts[i].layout = v.fact->layout;
    small = small && facts[i].is_tensor() && facts[i].shape.elements() <= kKnownElements;
    v.fact = facts[i];
    v.known.reset();
  }
  if (!known || !small) return;
  if (node.op->name == "Shape" || node.op->name == "Size") {
    set_known(evaluate_shape(nf.view()));
  } else {
    set_known(evaluate_node(node, input_values(graph, node)));
  }
}

std::vector<Value> evaluate_shape(const OpView& op) {
  const Shape& shape = op.in(0).shape;
  if (op.op().name == "Size") return {Tensor::scalar(shape.elements())};
  const std::int64_t rank = shape.rank();
  const auto clamp = [&](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const std::int64_t begin = clamp(op.i("start"));
  const std::int64_t end = op.has_attr("end") ? clamp(op.i("end")) : rank;
  const std::int64_t count = std::max<std::int64_t>(0, end - begin);
  return {
      Tensor::from(shape.dims().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), {count})};
}

void infer_graph(Graph& graph) {
  for (NodeId id : graph.order()) infer_one(graph, id);
}

}  // namespace lathe::ops
