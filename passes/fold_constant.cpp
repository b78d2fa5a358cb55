// fold_constant: computes at load what depends on constants alone.
#include <algorithm>

#include "ops/ir/evaluate.h"
#include "ops/ir/loop_builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;

/// A result may be this much larger than its operands before it is better made anew at every run.
constexpr std::size_t kGrowth = 4;
constexpr std::size_t kAlwaysSmall = std::size_t{1} << 16;

bool constant_inputs(const ops::Graph& graph, const ops::Node& node) {
  return !node.inputs.empty() && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ops::ValueId v) {
    return v == kNone || graph.value(v).is_constant();
  });
}

/// Bytes that the node's outputs would take; nothing where the node cannot be folded.
std::optional<std::size_t> result_bytes(const ops::Graph& graph, ops::NodeId id) {
  const ops::Node& node = graph.node(id);
  if (node.op->dynamic_output) {
    std::size_t bytes = 0;
    for (ops::ValueId v : node.inputs) bytes += v == kNone ? 0 : graph.value(v).constant.bytes();
    return bytes * 8;
  }
  const ops::NodeFacts nf(graph, id);
  const ops::Facts facts = ops::infer_node(node, nf.inputs(), nf.values());
  std::size_t bytes = 0;
  for (const ops::Fact& f : facts) {
    if (!f.is_tensor()) return std::nullopt;
    bytes += Tensor::byte_size(f.dtype, f.shape);
  }
  return bytes;
}

std::vector<Value> evaluated(const ops::Graph& graph, const ops::Node& node, const std::vector<Value>& inputs,
                             Context& context) {
  if (!context.folded) return context.evaluate(node, inputs);
  const std::string key = computation_key(node, [&](std::string& k, ops::ValueId v) {
    const Tensor t = v == kNone ? Tensor() : graph.value(v).constant;
    const void* data = t.data();
    k.append(reinterpret_cast<const char*>(&data), sizeof(data));
    k += t.shape().to_string();
  });
  std::shared_ptr<const Folded> folded = context.folded->find(key);
  if (!folded) {
    folded = std::make_shared<const Folded>(Folded{context.evaluate(node, inputs), inputs});
    context.folded->add(key, folded);
    for (const Value& v : folded->results) context.folded_bytes += v.tensor().bytes();
  }
  context.kept.push_back(folded);
  return folded->results;
}

}  // namespace

std::shared_ptr<const Folded> FoldedConstants::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return entries_.find(key);
}

void FoldedConstants::add(const std::string& key, const std::shared_ptr<const Folded>& folded) {
  const std::lock_guard lock(mutex_);
  entries_.add(key, folded);
}

std::size_t fold_constant(ops::Graph& graph, Context& context) {
  std::size_t changes = 0;
  for (ops::NodeId id : graph.order()) {
    const ops::Node& node = graph.node(id);
    if (node.op->impure || node.op->region != ops::Region::none || !constant_inputs(graph, node)) continue;
    const auto bytes = result_bytes(graph, id);
    if (!bytes) continue;
    std::size_t operands = 0;
    for (ops::ValueId v : node.inputs) operands += v == kNone ? 0 : graph.value(v).constant.bytes();
    if (*bytes > kAlwaysSmall && *bytes / kGrowth > operands) continue;
    if (*bytes > context.fold_bytes) {
      fail(ErrorCode::limit_exceeded, "{}: folding it needs {} bytes, {} are left of the limit", ops::describe(node),
           *bytes, context.fold_bytes);
    }
    check_at(context.check, node);
    std::vector<Value> inputs;
    for (ops::ValueId v : node.inputs) inputs.emplace_back(v == kNone ? Tensor() : graph.value(v).constant);
    std::vector<Value> results = evaluated(graph, node, inputs, context);
    const bool tensors = std::all_of(results.begin(), results.end(), [](const Value& v) { return v.is_tensor(); });
    if (!tensors) continue;
    context.fold_bytes -= std::min(context.fold_bytes, *bytes);
    const std::vector<ops::ValueId> outputs = node.outputs;
    graph.remove_node(id);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      ops::ValueDef& v = graph.value(outputs[i]);
      v.constant = results[i].tensor();
      v.fact = ops::fact_of(results[i]);
      v.known.reset();
    }
    ++changes;
  }
  return changes;
}

}  // namespace lathe::passes
