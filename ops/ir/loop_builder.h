// LoopBuilder: turns operators' `expr` hooks into a loops::Kernel, inlining the nodes of a fused group into each other.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "ops/ir/op.h"
#include "ops/loops/kernel.h"

namespace lathe::ops {

/// An instruction of the kernel being built.
struct Scalar {
  int inst = -1;
};

/// One coordinate of a tensor: affine in the loop variables, plus an index taken from data (`indirect`, times
/// `indirect_scale`), or none.
struct Coord {
  std::int64_t base = 0;
  loops::Dims coef{};
  int indirect = -1;                 ///< an i64 instruction; -1 for none
  std::int64_t indirect_extent = 0;  ///< bound that the index is checked against; negative indices count from it

  Coord& operator+=(const Coord& other);
  Coord& operator*=(std::int64_t factor);
  Coord& operator+=(std::int64_t offset) {
    base += offset;
    return *this;
  }
};

/// A place in a tensor: one coordinate per dim.
struct Coords {
  std::array<Coord, Shape::kMaxRank> dims;
  int rank = 0;

  Coord& operator[](int i) { return dims[static_cast<std::size_t>(i)]; }
  const Coord& operator[](int i) const { return dims[static_cast<std::size_t>(i)]; }
  void push_back(const Coord& c) { dims[static_cast<std::size_t>(rank++)] = c; }
};

/// Thrown when a group cannot be one kernel (its reductions disagree); the fusing pass avoids such groups.
struct NotFusable {};

class LoopBuilder {
 public:
  /// Input i of the operator at `at` (one coordinate per dim of the input): a load, or the fused producer's expression.
  /// f16, bf16 and float8 values arrive as f32.
  Scalar in(int i, const Coords& at);
  /// The same where `at` are coordinates of the broadcast output: aligned right, 0 along the input's extents of 1.
  Scalar in_broadcast(int i, const Coords& at);
  /// Input i at `at`, or `fallback` where coordinate d (for the dims in `checked`) is outside the input: padding.
  Scalar in_or(int i, const Coords& at, std::span<const int> checked, Scalar fallback);
  /// Coordinates aligned right to input i of a broadcast output.
  [[nodiscard]] Coords broadcast_coords(int i, const Coords& at) const;

  // Instructions. Binary operands have one dtype; comparisons give booleans.
  Scalar constant(DType dtype, double value);  ///< part of the structure
  Scalar constant_int(DType dtype, std::int64_t value);
  Scalar number(DType dtype, double value);  ///< known at plan time, an argument of the kernel
  Scalar number_int(DType dtype, std::int64_t value);
  Scalar coordinate(const Coord& c);  ///< a coordinate as an i64 value
  Scalar unary(loops::Op op, Scalar a);
  Scalar binary(loops::Op op, Scalar a, Scalar b);
  Scalar select(Scalar condition, Scalar a, Scalar b);
  Scalar fma(Scalar a, Scalar b, Scalar c);
  Scalar cast(Scalar a, DType to);
  [[nodiscard]] DType dtype(Scalar a) const;

  /// Coordinates of input 0 whose reduced axes are the kernel's inner loop variables and whose other axes are taken in
  /// order from `at` (dims kept with extent 1 are skipped when keep_dims).
  Coords reduced(std::span<const int> axes, const Coords& at, bool keep_dims);
  /// The kernel's inner loop variables for a contraction with these extents (k; or channel, row, column).
  std::vector<Coord> inner(std::span<const std::int64_t> extents);
  /// Reduces over all inner loop variables.
  Scalar reduce(loops::Reduction kind, Scalar a);
  /// An index taken from data as a coordinate, checked against `extent`.
  Coord indirect(Scalar index, std::int64_t extent);

  /// The type that arithmetic on `dtype` happens in: f32 for the narrow floats, else itself.
  static DType compute_type(DType dtype);

  struct State;
  LoopBuilder(State& state, const OpView& op) : s_(state), op_(op) {}

 private:
  State& s_;
  const OpView& op_;
};

/// A set of nodes to become one kernel.
struct Group {
  std::vector<NodeId> nodes;     ///< in topological order
  std::vector<ValueId> outputs;  ///< values of these nodes that are stored
  ValueId domain = kNone;        ///< the value whose shape the loops walk: an output, or the reduced input
  std::vector<int> reduced;      ///< axes of `domain` that are inner dims (empty for pointwise groups and contractions)
};

/// A built kernel and which values its buffers are, inputs and outputs alike.
struct GroupKernel {
  loops::Kernel kernel;
  std::vector<ValueId> buffers;
};

/// The group of one `expr` node that stores its output `output`.
Group single_node_group(const Graph& graph, NodeId id, int output);

/// Builds the group's kernel for the facts in `graph` (every value's fact must be inferred). Throws NotFusable where
/// the nodes cannot share one loop nest. The kernel is canonical unless
/// told otherwise: then its outer dims are the domain's dims that are not reduced, in memory order.
GroupKernel build_kernel(const Graph& graph, const Group& group, bool canonical = true);

/// The facts and known values of a node's inputs and outputs, gathered from a graph whose facts are inferred.
class NodeFacts {
 public:
  NodeFacts(const Graph& graph, NodeId id);
  [[nodiscard]] OpView view() const { return {node_, inputs_, values_, outputs_}; }
  [[nodiscard]] std::span<const Fact* const> inputs() const { return inputs_; }
  [[nodiscard]] std::span<const Tensor* const> values() const { return values_; }

 private:
  const Node& node_;
  std::vector<const Fact*> inputs_;
  std::vector<const Tensor*> values_;
  std::vector<const Fact*> outputs_;
};

}  // namespace lathe::ops
