// The calling thread's memory source and whom it works for.
#include "ops/ir/memory.h"

#include "ops/ir/op.h"

namespace lathe::ops {
namespace {

thread_local MemorySource* source_of_thread = nullptr;
thread_local const Node* node_of_thread = nullptr;
thread_local const std::string* name_of_thread = nullptr;

}  // namespace

MemoryScope::MemoryScope(MemorySource* source) noexcept : before_(source_of_thread) { source_of_thread = source; }
MemoryScope::~MemoryScope() { source_of_thread = before_; }
MemorySource* MemoryScope::current() noexcept { return source_of_thread; }

OnBehalfOf::OnBehalfOf(const Node& node) noexcept : outermost_(!node_of_thread && !name_of_thread) {
  if (outermost_) node_of_thread = &node;
}
OnBehalfOf::OnBehalfOf(const std::string& name) noexcept : outermost_(!node_of_thread && !name_of_thread) {
  if (outermost_) name_of_thread = &name;
}
OnBehalfOf::~OnBehalfOf() {
  if (!outermost_) return;
  node_of_thread = nullptr;
  name_of_thread = nullptr;
}

std::string OnBehalfOf::blame() {
  if (node_of_thread) return describe(*node_of_thread) + ": ";
  return name_of_thread ? *name_of_thread + ": " : "";
}

}  // namespace lathe::ops
