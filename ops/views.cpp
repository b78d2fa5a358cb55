// Operators that only move data by an affine index map: Transpose, Slice, Expand, Squeeze, Unsqueeze and Split. A loop
// kernel that reads through them pays nothing.
#include <algorithm>
#include <numeric>

#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

// ---- Transpose ----

constexpr Attribute kTransposeAttributes[] = {{"perm", AttrKind::integers}};

std::vector<int> permutation(const OpView& op) {
  const int rank = op.in(0).rank();
  std::vector<int> perm(static_cast<std::size_t>(rank));
  if (!op.has_attr("perm")) {
    std::iota(perm.rbegin(), perm.rend(), 0);
    return perm;
  }
  const auto given = op.attr_ints("perm");
  op.require(static_cast<int>(given.size()) == rank, "perm has {} entries, the input has rank {}", given.size(), rank);
  std::vector<bool> seen(perm.size(), false);
  for (std::size_t i = 0; i < perm.size(); ++i) {
    perm[i] = op.axis(given[i], rank, "an entry of perm");
    op.require(!seen[static_cast<std::size_t>(perm[i])], "perm names axis {} twice", perm[i]);
    seen[static_cast<std::size_t>(perm[i])] = true;
  }
  return perm;
}

Facts infer_transpose(const OpView& op) {
  Shape shape;
  for (int axis : permutation(op)) shape.push_back(op.in(0).shape[axis]);
  return {{op.in(0).dtype, shape}};
}

Scalar transpose_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Coords c = at;
  int d = 0;
  for (int axis : permutation(op)) c[axis] = at[d++];
  return b.in(0, c);
}

// ---- Slice ----

struct Range {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t extent = 0;
};

// numpy's rules: negative positions count from the end, then both ends are clamped to what exists.
Range range_of(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t dim) {
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  const std::int64_t last = step > 0 ? dim : dim - 1;
  const std::int64_t first = step > 0 ? 0 : -1;
  start = std::clamp(start, std::min<std::int64_t>(0, last), std::max<std::int64_t>(0, last));
  end = std::clamp(end, first, std::max(first, last));
  const std::int64_t distance = step > 0 ? end - start : start - end;
  const auto size = step > 0 ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
  if (distance <= 0 || dim == 0) return {0, 1, 0};
  const auto extent = static_cast<std::int64_t>((static_cast<std::uint64_t>(distance) - 1) / size + 1);
  return {start, extent > 1 ? step : 1, extent};
}

std::vector<Range> ranges(const OpView& op) {
  const Shape& shape = op.in(0).shape;
  std::vector<Range> result;
  for (std::int64_t dim : shape) result.push_back({0, 1, dim});
  const std::vector<std::int64_t> starts = op.ints(1);
  const std::vector<std::int64_t> ends = op.ints(2);
  std::vector<std::int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (op.has(3)) axes = op.ints(3);
  std::vector<std::int64_t> steps(starts.size(), 1);
  if (op.has(4)) steps = op.ints(4);
  op.require(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
             "starts, ends, axes and steps have {}, {}, {} and {} entries", starts.size(), ends.size(), axes.size(),
             steps.size());
  std::vector<bool> seen(result.size(), false);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const int axis = op.axis(axes[i], shape.rank(), "an axis");
    const auto at = static_cast<std::size_t>(axis);
    op.require(!seen[at], "axis {} is sliced twice", axis);
    op.require(steps[i] != 0, "the step of axis {} is 0", axis);
    seen[at] = true;
    result[at] = range_of(starts[i], ends[i], steps[i], shape[axis]);
  }
  return result;
}

Facts infer_slice(const OpView& op) {
  Shape shape;
  for (const Range& range : ranges(op)) shape.push_back(range.extent);
  return {{op.in(0).dtype, shape}};
}

Scalar slice_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Coords c = at;
  int d = 0;
  for (const Range& range : ranges(op)) {
    c[d] *= range.step;
    c[d++] += range.start;
  }
  return b.in(0, c);
}

// ---- Expand ----

Facts infer_expand(const OpView& op) {
  const std::vector<std::int64_t> target = op.ints(1);
  op.require(target.size() <= Shape::kMaxRank, "shape has {} entries, at most {} are supported", target.size(),
             Shape::kMaxRank);
  for (std::int64_t dim : target) op.require(dim >= 0, "shape has a negative entry, {}", dim);
  return {{op.in(0).dtype, op.broadcast(op.in(0).shape, Shape(target))}};
}

Scalar expand_expr(const OpView&, LoopBuilder& b, int, const Coords& at) { return b.in_broadcast(0, at); }

// ---- Squeeze and Unsqueeze ----

// Which axes of a tensor of rank `rank` input 1 names.
std::vector<bool> named_axes(const OpView& op, int rank) {
  std::vector<bool> named(static_cast<std::size_t>(rank), false);
  for (std::int64_t value : op.ints(1)) {
    const int axis = op.axis(value, rank, "an axis");
    op.require(!named[static_cast<std::size_t>(axis)], "axis {} is named twice", axis);
    named[static_cast<std::size_t>(axis)] = true;
  }
  return named;
}

std::vector<bool> squeezed_axes(const OpView& op) {
  const Shape& shape = op.in(0).shape;
  if (op.has(1)) return named_axes(op, shape.rank());
  std::vector<bool> ones;
  for (std::int64_t dim : shape) ones.push_back(dim == 1);
  return ones;
}

Facts infer_squeeze(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const std::vector<bool> squeezed = squeezed_axes(op);
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (!squeezed[static_cast<std::size_t>(d)]) {
      shape.push_back(x[d]);
    } else {
      op.require(x[d] == 1, "axis {} of {} is not 1", d, x);
    }
  }
  return {{op.in(0).dtype, shape}};
}

Scalar squeeze_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Coords c;
  int d = 0;
  for (bool squeezed : squeezed_axes(op)) c.push_back(squeezed ? Coord{} : at[d++]);
  return b.in(0, c);
}

std::vector<bool> unsqueezed_axes(const OpView& op) {
  const std::size_t rank = static_cast<std::size_t>(op.in(0).rank()) + op.ints(1).size();
  op.require(rank <= Shape::kMaxRank, "the output would have rank {}, at most {} is supported", rank, Shape::kMaxRank);
  return named_axes(op, static_cast<int>(rank));
}

Facts infer_unsqueeze(const OpView& op) {
  Shape shape;
  int d = 0;
  for (bool inserted : unsqueezed_axes(op)) shape.push_back(inserted ? 1 : op.in(0).shape[d++]);
  return {{op.in(0).dtype, shape}};
}

Scalar unsqueeze_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Coords c;
  int d = 0;
  for (bool inserted : unsqueezed_axes(op)) {
    if (!inserted) c.push_back(at[d]);
    ++d;
  }
  return b.in(0, c);
}

// ---- Split ----

constexpr Attribute kSplitAttributes[] = {{"axis", 0}, {"num_outputs", AttrKind::integer}};

// The extents of the parts: given, or equal but for a smaller last one.
std::vector<std::int64_t> parts(const OpView& op, std::int64_t dim) {
  const auto count = static_cast<std::int64_t>(op.outputs());
  if (op.has(1)) {
    std::vector<std::int64_t> given = op.ints(1);
    op.require(static_cast<std::int64_t>(given.size()) == count, "split has {} entries for {} outputs", given.size(),
               count);
    std::int64_t total = 0;
    for (std::int64_t part : given) {
      op.require(part >= 0 && part <= dim - total, "split does not add up to {}, the extent of the axis", dim);
      total += part;
    }
    op.require(total == dim, "split adds up to {}, the axis has extent {}", total, dim);
    return given;
  }
  op.require(!op.has_attr("num_outputs") || op.i("num_outputs") == count, "num_outputs is {}, the node has {} outputs",
             op.i("num_outputs"), count);
  const std::int64_t part = (dim + count - 1) / count;
  std::vector<std::int64_t> result;
  for (std::int64_t left = dim, i = 0; i < count; ++i) {
    result.push_back(std::min(part, left));
    left -= result.back();
  }
  return result;
}

Facts infer_split(const OpView& op) {
  const int axis = op.axis("axis", op.in(0).rank());
  Facts facts;
  for (std::int64_t part : parts(op, op.in(0).shape[axis])) {
    facts.emplace_back(op.in(0).dtype, op.in(0).shape);
    facts.back().shape[axis] = part;
  }
  return facts;
}

Scalar split_expr(const OpView& op, LoopBuilder& b, int output, const Coords& at) {
  const int axis = op.axis("axis", op.in(0).rank());
  const std::vector<std::int64_t> extents = parts(op, op.in(0).shape[axis]);
  Coords c = at;
  c[axis] += std::accumulate(extents.begin(), extents.begin() + output, std::int64_t{0});
  return b.in(0, c);
}

constexpr std::uint32_t input_bit(int i) { return 1U << static_cast<unsigned>(i); }

}  // namespace

extern const OpDef op_transpose, op_slice, op_expand, op_squeeze, op_unsqueeze, op_split;

constinit const OpDef op_transpose = {.name = "Transpose",
                                      .attributes = kTransposeAttributes,
                                      .forms = 25,
                                      .takes = kAny,
                                      .infer = infer_transpose,
                                      .expr = transpose_expr,
                                      .is_view = true};
constinit const OpDef op_slice = {.name = "Slice",
                                  .inputs = {3, 5},
                                  .forms = 13,
                                  .takes = {{kAny, inputs(0)}, {kIndices, inputs(1, 2, 3, 4)}},
                                  .shape_inputs = input_bit(1) | input_bit(2) | input_bit(3) | input_bit(4),
                                  .infer = infer_slice,
                                  .expr = slice_expr,
                                  .is_view = true};
constinit const OpDef op_expand = {.name = "Expand",
                                   .inputs = 2,
                                   .forms = {8, 13},
                                   .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                   .shape_inputs = input_bit(1),
                                   .infer = infer_expand,
                                   .expr = expand_expr,
                                   .is_view = true};
constinit const OpDef op_squeeze = {.name = "Squeeze",
                                    .inputs = {1, 2},
                                    .forms = 25,
                                    .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                    .shape_inputs = input_bit(1),
                                    .infer = infer_squeeze,
                                    .expr = squeeze_expr,
                                    .is_view = true};
constinit const OpDef op_unsqueeze = {.name = "Unsqueeze",
                                      .inputs = 2,
                                      .forms = 25,
                                      .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                      .shape_inputs = input_bit(1),
                                      .infer = infer_unsqueeze,
                                      .expr = unsqueeze_expr,
                                      .is_view = true};
constinit const OpDef op_split = {.name = "Split",
                                  .inputs = {1, 2},
                                  .outputs = {1, Arity::kMany},
                                  .attributes = kSplitAttributes,
                                  .forms = 18,
                                  .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                  .shape_inputs = input_bit(1),
                                  .infer = infer_split,
                                  .expr = split_expr,
                                  .is_view = true};

}  // namespace lathe::ops
