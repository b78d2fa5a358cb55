// eliminate_common: one node for all that compute the same; one constant for equal small ones.
#include <cstdint>
#include <unordered_map>

#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;
using ops::ValueId;

constexpr std::size_t kSmallConstant = 1024;

void add_bytes(std::string& key, const void* data, std::size_t bytes) {
  key.append(static_cast<const char*>(data), bytes);
}

template <class T>
void add_number(std::string& key, T value) {
  add_bytes(key, &value, sizeof(value));
}

void add_text(std::string& key, std::string_view text) {
  add_number(key, text.size());
  key.append(text);
}

void add_tensor(std::string& key, const Tensor& t) {
  add_number(key, static_cast<int>(t.dtype()));
  add_number(key, t.shape().rank());
  for (std::int64_t d : t.shape()) add_number(key, d);
  if (t.dtype() == DType::string) {
    for (const std::string& s : t.view<std::string>()) add_text(key, s);
  } else {
    add_bytes(key, t.data(), t.bytes());
  }
}

struct Add {
  std::string& key;
  void operator()(std::int64_t v) const { add_number(key, v); }
  void operator()(double v) const { add_number(key, v); }
  void operator()(const std::string& v) const { add_text(key, v); }
  void operator()(const Tensor& v) const { add_tensor(key, v); }
  void operator()(const ValueInfo& v) const { add_text(key, v.to_string()); }
  template <class T>
  void operator()(const std::vector<T>& list) const {
    add_number(key, list.size());
    for (const T& v : list) (*this)(v);
  }
};

}  // namespace

std::string computation_key(const ops::Node& node, const std::function<void(std::string&, ValueId)>& name_input) {
  std::string key;
  add_number(key, reinterpret_cast<std::uintptr_t>(node.op));
  add_number(key, node.inputs.size());
  for (ValueId v : node.inputs) name_input(key, v);
  add_number(key, node.outputs.size());
  for (ValueId v : node.outputs) add_number(key, v == kNone);
  for (const auto& [name, value] : node.attributes) {
    add_text(key, name);
    add_number(key, value.index());
    std::visit(Add{key}, value);
  }
  return key;
}

std::size_t eliminate_common(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  std::unordered_map<std::string, ValueId> constants;
  const auto users = graph.consumers();
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    const auto id = static_cast<ValueId>(v);
    const Tensor& t = graph.value(id).constant;
    if (!t.defined() || t.bytes() > kSmallConstant || users[v].empty()) continue;
    std::string key;
    add_tensor(key, t);
    const auto [found, added] = constants.emplace(std::move(key), id);
    if (added || ops::is_output(graph, id)) continue;
    graph.replace_uses(id, found->second);
    ++changes;
  }
  std::unordered_map<std::string, ops::NodeId> seen;
  for (ops::NodeId id : graph.order()) {
    const ops::Node& node = graph.node(id);
    if (node.op->impure || node.op->region != ops::Region::none) continue;
    const auto [found, added] =
        seen.emplace(computation_key(node, [](std::string& key, ValueId v) { add_number(key, v); }), id);
    if (added) continue;
    const std::vector<ValueId> outputs = node.outputs;
    bool is_output = false;
    for (ValueId v : outputs) is_output = is_output || (v != kNone && ops::is_output(graph, v));
    if (is_output) continue;  // outputs keep values of their own
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNone) graph.replace_uses(outputs[i], graph.node(found->second).outputs[i]);
    }
    graph.remove_node(id);
    ++changes;
  }
  return changes;
}

}  // namespace lathe::passes
