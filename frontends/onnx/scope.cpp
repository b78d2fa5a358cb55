// Looks names up through enclosing graphs, capturing on the way.
#include "frontends/onnx/scope.h"

#include <algorithm>

#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {

using ops::kNone;
using ops::ValueId;

void Scope::declare(std::string_view name, ValueId id) {
  if (!names_.emplace(name, id).second) fail(ErrorCode::invalid_model, "two producers of value '{}'", shown(name));
}

std::optional<ValueId> Scope::find(std::string_view name) {
  const auto here = names_.find(name);
  if (here != names_.end()) return here->second;
  if (!parent_) return std::nullopt;
  const std::optional<ValueId> outer = parent_->find(name);
  if (!outer || *outer == kNone) return outer;
  const ops::ValueDef& value = parent_->graph().value(*outer);
  ValueId inner = kNone;
  if (value.is_constant()) {
    inner = graph_.add_constant(value.constant, value.name);
  } else {
    // Two names of one outer value (a function's input and its caller's name for it) share one capture.
    const auto [at, is_new] = stand_ins_.emplace(*outer, kNone);
    if (is_new) {
      at->second = graph_.add_input(value.name);
      captured_.push_back(*outer);
    }
    inner = at->second;
  }
  names_.emplace(name, inner);
  return inner;
}

ValueId Scope::claim_result(std::string_view name) {
  const auto at = results_.find(name);
  if (at == results_.end()) return kNone;
  const ValueId id = at->second;
  results_.erase(at);
  return id;
}

std::string_view Scope::declared(std::string_view name) const {
  const auto at = declared_.find(name);
  return at == declared_.end() ? std::string_view() : at->second;
}

bool Scope::is_read(ValueId id) const {
  return id != kNone && std::any_of(names_.begin(), names_.end(), [&](const auto& entry) {
           return entry.second == id && reads_.contains(entry.first);
         });
}

void Unsupported::add(std::string_view domain, std::string_view op, std::string_view node) {
  constexpr std::size_t kNamed = 3;  // nodes per operator
  Use& use = uses_[{std::string(domain), std::string(op)}];
  ++use.count;
  if (use.nodes.size() < kNamed) use.nodes.emplace_back(node);
}

void Unsupported::report() const {
  if (uses_.empty()) return;
  constexpr std::size_t kListed = 50;
  std::string list;
  std::size_t listed = 0;
  for (const auto& [op, use] : uses_) {
    if (!list.empty()) list += "; ";
    if (++listed > kListed) {
      list += fmt::format("and {} more", uses_.size() - kListed);
      break;
    }
    if (!op.first.empty()) list += shown(op.first) + "::";
    list += shown(op.second) + " (";
    for (std::size_t i = 0; i < use.nodes.size(); ++i)
      list += fmt::format("{}'{}'", i ? ", " : "", shown(use.nodes[i]));
    if (use.count > use.nodes.size()) list += fmt::format(" and {} more", use.count - use.nodes.size());
    list += ")";
  }
  fail(ErrorCode::unsupported,
       "the model uses {} operator{} that this build lacks: {}; an application can supply operators of its own with "
       "lathe::register_operator",
       uses_.size(), uses_.size() == 1 ? "" : "s", list);
}

}  // namespace lathe::frontends::onnx
