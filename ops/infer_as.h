// infer_as(): what another operator makes of some facts, for operators that are said through it.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/ir/evaluate.h"

namespace lathe::ops {

/// Fact of the first output of operator `name` on inputs with these facts, none of their values known. Failure in the
/// name of op's node.
inline Fact infer_as(const OpView& op, std::string_view name, std::initializer_list<Fact> inputs,
                     Attributes attributes = {}) {
  Node node;
  node.op = find_operator(name);
  node.name = op.node().name;
  node.attributes = std::move(attributes);
  std::vector<const Fact*> facts;
  for (const Fact& fact : inputs) {
    node.inputs.push_back(static_cast<ValueId>(facts.size()));
    facts.push_back(&fact);
  }
  node.outputs = {static_cast<ValueId>(facts.size())};
  const std::vector<const Tensor*> values(facts.size(), nullptr);
  return infer_node(node, facts, values).front();
}

}  // namespace lathe::ops
