// Gradient (ai.onnx.preview.training): the derivative of one value with respect to others, said as nodes.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "frontends/onnx/upgrade.h"

namespace lathe::frontends::onnx {

/// Whether a node must wait until the rest of its graph is there.
bool is_gradient(const Draft& node);

/// Adds the nodes of a Gradient by reverse accumulation over copies of the nodes between its xs and zs and its y, with
/// its inputs in the place of xs and zs. `find` gives the value of a name. Failure (unsupported) naming the nodes whose
/// operators have no derivative here.
void add_gradient(Draft node, const std::function<std::optional<ops::ValueId>(std::string_view)>& find,
                  UpgradeContext& context);

}  // namespace lathe::frontends::onnx
