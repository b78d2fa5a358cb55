// Builder and Patch.
#include "ops/ir/builder.h"

#include <limits>

#include "ops/ir/evaluate.h"
#include "ops/ir/loop_builder.h"

namespace lathe::ops {

std::vector<ValueId> Builder::ops(std::string_view name, std::vector<ValueId> inputs, int outputs,
                                  Attributes attributes) {
  const auto [domain, base] = split_name(name);
  const OpDef* op = find_operator(base, domain);
  if (!op) fail(ErrorCode::unsupported, "operator {} does not exist", name);
  const NodeId id = graph_.add_node(*op, prefix_.empty() ? std::string(base) : fmt::format("{}/{}", prefix_, base),
                                    std::move(inputs), outputs, std::move(attributes));
  for (ValueId in : graph_.node(id).inputs) {
    if (in != kNone && !graph_.value(in).fact) return graph_.node(id).outputs;
  }
  const NodeFacts facts(graph_, id);
  for (int i = 0; i < static_cast<int>(graph_.node(id).inputs.size()) && i < 32; ++i) {
    if (((op->shape_inputs >> i) & 1U) && facts.view().has(i) && !facts.view().value(i)) return graph_.node(id).outputs;
  }
  if (op->dynamic_output || op->region != Region::none) return graph_.node(id).outputs;
  infer_one(graph_, id);
  return graph_.node(id).outputs;
}

ValueId Builder::scalar(DType dtype, double value) { return constant(Tensor::scalar(value).cast(dtype)); }

ValueId Builder::ints(const std::vector<std::int64_t>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return constant(Tensor::from(values, {count}));
}

ValueId Builder::cast(ValueId a, DType to) {
  if (graph_.value(a).fact && fact(a).dtype == to) return a;
  return op("Cast", {a}, {{"to", static_cast<std::int64_t>(to)}});
}

ValueId Builder::transpose(ValueId a, std::vector<std::int64_t> perm) {
  return op("Transpose", {a}, {{"perm", std::move(perm)}});
}

ValueId Builder::reduce(std::string_view name, ValueId a, const std::vector<std::int64_t>& axes, bool keep_dims) {
  return op(name, {a, ints(axes)}, {{"keepdims", std::int64_t{keep_dims ? 1 : 0}}});
}

ValueId Builder::unsqueeze(ValueId a, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? a : op("Unsqueeze", {a, ints(axes)});
}

ValueId Builder::squeeze(ValueId a, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? a : op("Squeeze", {a, ints(axes)});
}

ValueId Builder::reshape(ValueId a, ValueId shape) {
  return op("Reshape", {a, shape}, {{"allowzero", std::int64_t{1}}});
}

ValueId Builder::reshape(ValueId a, const std::vector<std::int64_t>& shape) { return op("Reshape", {a, ints(shape)}); }

ValueId Builder::shape_of(ValueId a) { return op("Shape", {a}); }

ValueId Builder::shape_of(ValueId a, int begin, int end) {
  return op("Shape", {a}, {{"start", std::int64_t{begin}}, {"end", std::int64_t{end}}});
}

ValueId Builder::concat(std::vector<ValueId> parts, int axis) {
  return op("Concat", std::move(parts), {{"axis", std::int64_t{axis}}});
}

ValueId Builder::slice(ValueId a, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
                       const std::vector<std::int64_t>& axes, const std::vector<std::int64_t>& steps) {
  std::vector<ValueId> inputs = {a, ints(starts), ints(ends), ints(axes)};
  if (!steps.empty()) inputs.push_back(ints(steps));
  return op("Slice", std::move(inputs));
}

ValueId Builder::counted(ValueId count) {
  return op("Range", {scalar(DType::i64, 0), squeeze(count, {0}), scalar(DType::i64, 1)});
}

void Patch::apply() {
  for (const auto& [from, to] : replacements_) {
    const auto& a = graph_.value(from).fact;
    const auto& b = graph_.value(to).fact;
    if (a && b && !a->same_type(*b)) {
      fail(ErrorCode::internal, "a rewrite replaces '{}' ({}) by '{}' ({})", shown(graph_.value(from).name),
           a->to_string(), shown(graph_.value(to).name), b->to_string());
    }
  }
  for (const auto& [from, to] : replacements_) {
    graph_.replace_uses(from, to);
    if (graph_.value(to).producer != kNone && is_output(graph_, to)) graph_.value(to).name = graph_.value(from).name;
  }
  replacements_.clear();
}

}  // namespace lathe::ops
