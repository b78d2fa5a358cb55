// Inference and plain evaluation of single nodes: what constant folding of shape arithmetic and the tests stand on.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ops/ir/graph.h"
#include "ops/ir/op.h"
#include "ops/loops/kernel.h"

namespace lathe::ops {

/// Values that follow from shapes are known up to this many elements: shapes, axes, index tables. Larger ones are data
/// like any other.
inline constexpr std::int64_t kKnownElements = 4096;

/// Runs a loop kernel over its whole range: loops::evaluate, or compiled code.
using RunLoop = std::function<std::int32_t(const loops::Kernel& kernel, const loops::KernelArgs& args)>;

/// Failure, naming the node, where a tensor is of a dtype that its operator does not take.
void check_dtypes(const Node& node, std::span<const Value> inputs);

/// Runs one node of any non-region operator by its definition (lowered, as a loop, or its plain kernel), on row-major
/// tensors. Inputs that are omitted are undefined tensors. With loops::evaluate it is the reference: slow and obvious.
std::vector<Value> evaluate_node(const Node& node, std::span<const Value> inputs,
                                 const RunLoop& run_loop = loops::evaluate);

/// The output facts of a node from its input facts and the values known so far, checked to be sane (rank, non-negative
/// extents, sizes that fit). Failure naming the node.
Facts infer_node(const Node& node, std::span<const Fact* const> inputs, std::span<const Tensor* const> values);

/// Whether a node's outputs follow from shapes alone, once its inputs' facts are inferred: Shape and Size always; any
/// other pure operator when all its inputs' values are known and its outputs are small.
bool follows_from_shapes(const Graph& graph, NodeId id);

/// The fact of a value at run time.
Fact fact_of(const Value& value);

/// Shape and Size from the fact of their input alone.
std::vector<Value> evaluate_shape(const OpView& op);

/// Infers one node whose inputs have facts: sets its outputs' facts and, where they follow from shapes, known values.
void infer_one(Graph& graph, NodeId id);

/// Infers every node of a graph whose inputs have facts, in order; sets facts and known values. Nodes whose shape
/// inputs are unknown, dynamic and region nodes must not be in it: Failure. Layouts that values already have are kept
/// where the rank fits.
void infer_graph(Graph& graph);

}  // namespace lathe::ops
