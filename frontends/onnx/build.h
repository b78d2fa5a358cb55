// Builds the graph of an ONNX model: names become values, functions are inlined, subgraphs get their captures stated.
#pragma once

#include "frontends/onnx/proto.h"
#include "ops/ir/graph.h"

namespace lathe::frontends::onnx {

/// The main graph in the newest opset. Failure naming the place; operators that this build lacks are listed in one.
ops::Graph build_graph(const ModelProto& model, const ModelSource& source, Budget& budget);

}  // namespace lathe::frontends::onnx
