// What import can tell of a value's dtype and rank: from what the file declares, and from a few common operators.
#pragma once

#include <unordered_map>

#include "ops/ir/graph.h"

namespace lathe::frontends::onnx {

/// Undefined and -1 where unknown.
struct Hint {
  DType dtype;
  int rank = -1;
};

/// Hints for the values of one graph. Upgrades read them; nothing rests on a hint that is not there.
class Hints {
 public:
  [[nodiscard]] Hint of(const ops::Graph& graph, ops::ValueId id) const;
  void set(ops::ValueId id, Hint hint) { hints_[id] = hint; }
  /// Follows a node whose inputs have hints.
  void follow(const ops::Graph& graph, const ops::Node& node);

 private:
  std::unordered_map<ops::ValueId, Hint> hints_;
};

}  // namespace lathe::frontends::onnx
