// Contractions through oneDNN: matmul, convolution, transposed convolution, average pooling, with what is fused behind
// them as post-ops.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace lathe::runtime {

/// A step that oneDNN runs, or the reason why it declined.
struct ContractionStep {
  std::unique_ptr<Step> step;
  std::vector<ops::ValueId> reads;  ///< in the order of the step's slots, before the written one
  ops::ValueId writes = ops::kNone;
  std::shared_ptr<const void> packed;  ///< weights that the plan must keep
  std::vector<ops::NodeId> rest;       ///< nodes of the group that could not become post-ops
  std::string declined;
};

/// Whether oneDNN is asked first for groups of this operator.
bool offered_to_onednn(const ops::OpDef& op);

/// Tries to run a contraction group on oneDNN, as much of its epilogue as oneDNN takes included.
ContractionStep make_contraction(const ops::Graph& graph, const ops::Group& group, const BuildOptions& options);

}  // namespace lathe::runtime
