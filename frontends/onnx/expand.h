// Operators that take graphs as attributes and are no control flow: said without them.
#pragma once

#include "frontends/onnx/upgrade.h"

namespace lathe::frontends::onnx {

/// Turns such a node, in its newest form, into others with its graphs between them; `node` becomes the last of these.
void expand(Draft& node, UpgradeContext& context);

}  // namespace lathe::frontends::onnx
