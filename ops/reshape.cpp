// Reshape and what is said with it: Flatten, Tile, DepthToSpace and SpaceToDepth; and transposes between two Reshapes.
#include "ops/reshape.h"

#include <numeric>

#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kReshapeAttributes[] = {{"allowzero", 0}};
constexpr Attribute kFlattenAttributes[] = {{"axis", 1}};
constexpr Attribute kBlockAttributes[] = {{"blocksize", AttrKind::integer, Attribute::kRequired}, {"mode", "DCR"}};

// What -1 stands for. Dims that 0 copies stand on both sides and cancel, so an empty batch leaves the answer well
// defined.
std::int64_t rest_of(const OpView& op, const Shape& x, std::span<const std::int64_t> target, bool copies) {
  std::int64_t numerator = 1;
  std::int64_t denominator = 1;
  const auto is_copied = [&](int d) {
    return copies && d < static_cast<int>(target.size()) && target[static_cast<std::size_t>(d)] == 0;
  };
  for (int d = 0; d < x.rank(); ++d) numerator *= is_copied(d) ? 1 : x[d];
  for (int d = 0; d < static_cast<int>(target.size()); ++d) {
    const std::int64_t dim = target[static_cast<std::size_t>(d)];
    if (dim < 0 || is_copied(d)) continue;
    op.require(dim == 0 || denominator <= INT64_MAX / dim, "shape has too many elements");
    denominator *= dim;
  }
  op.require(denominator > 0 && numerator % denominator == 0, "{} cannot be reshaped to [{}]", x,
             fmt::join(target, ","));
  return numerator / denominator;
}

// `x` in the shape that input `input` asks for; whether extents of 0 in it copy those of `x`.
Shape reshaped(const OpView& op, const Shape& x, int input, bool copies) {
  const std::vector<std::int64_t> target = op.ints(input);
  op.require(target.size() <= Shape::kMaxRank, "shape has {} entries, at most {} are supported", target.size(),
             Shape::kMaxRank);
  Shape shape;
  bool has_rest = false;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const std::int64_t dim = target[i];
    op.require(dim >= -1, "shape has a negative entry, {}", dim);
    if (dim == -1) {
      op.require(!has_rest, "shape has more than one -1");
      has_rest = true;
      shape.push_back(rest_of(op, x, target, copies));
    } else if (dim == 0 && copies) {
      op.require(static_cast<int>(i) < x.rank(), "entry {} of shape is 0, but the input has rank {}", i, x.rank());
      shape.push_back(x[static_cast<int>(i)]);
    } else {
      shape.push_back(dim);
    }
  }
  op.require(shape.elements() == x.elements(), "{} cannot be reshaped to [{}]", x, fmt::join(target, ","));
  return shape;
}

Facts infer_reshape(const OpView& op) {
  return {{op.in(0).dtype, reshaped(op, op.in(0).shape, 1, op.i("allowzero") == 0)}};
}

void reshape(KernelContext& c) {
  Tensor y = c.out(0);
  copy_elements(c.in(0), y);
}

// ---- Transposes of merged dims ----

constexpr Attribute kTransposeBlocksAttributes[] = {
    {"perm", AttrKind::integers, Attribute::kRequired}, {"allowzero", 0}, {"allowzero_split", 0}};

Shape merged_shape(const OpView& op) { return reshaped(op, op.in(0).shape, 1, op.i("allowzero") == 0); }

Facts infer_transpose_blocks(const OpView& op) {
  const Shape merged = merged_shape(op);
  Shape moved;
  for (std::int64_t axis : op.attr_ints("perm"))
    moved.push_back(merged[op.axis(axis, merged.rank(), "an entry of perm")]);
  return {{op.in(0).dtype, reshaped(op, moved, 2, op.i("allowzero_split") == 0)}};
}

// Which shapes merge and split alike is the structure's: where others come, NotFusable asks for a program of their own.
Scalar transpose_blocks_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::vector<int> perm =
      block_permutation(op.in(0).shape, merged_shape(op), op.attr_ints("perm"), op.out(0).shape);
  if (perm.empty()) throw NotFusable{};
  Coords c = at;
  int d = 0;
  for (int axis : perm) c[axis] = at[d++];
  return b.in(0, c);
}

// ---- Flatten ----

// An axis may also be the rank: everything is before it.
int flatten_axis(const OpView& op) {
  const std::int64_t axis = op.i("axis");
  const int rank = op.in(0).rank();
  op.require(axis >= -rank && axis <= rank, "axis is {}, expected a value in [{}, {}]", axis, -rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Facts infer_flatten(const OpView& op) {
  const int axis = flatten_axis(op);
  Shape shape{1, 1};
  for (int d = 0; d < op.in(0).rank(); ++d) shape[d < axis ? 0 : 1] *= op.in(0).shape[d];
  return {{op.in(0).dtype, shape}};
}

std::vector<ValueId> lower_flatten(const OpView& op, Builder& b) {
  const ValueId x = op.id(0);
  const int rank = op.in(0).rank();
  const int axis = flatten_axis(op);
  const bool empty = op.in(0).shape.elements() == 0;  // then -1 could be anything
  if (axis == 0 && !empty) return {b.reshape(x, {1, -1})};
  if (axis == 1 && !empty) return {b.reshape(x, {0, -1})};
  if (axis == rank && !empty) return {b.reshape(x, {-1, 1})};
  const auto merged = [&](int begin, int end) {
    return begin == end ? b.ints({1}) : b.reduce("ReduceProd", b.shape_of(x, begin, end), {0});
  };
  return {b.reshape(x, b.concat({merged(0, axis), merged(axis, rank)}, 0))};
}

// ---- Tile ----

Facts infer_tile(const OpView& op) {
  const std::vector<std::int64_t> repeats = op.ints(1);
  Shape shape = op.in(0).shape;
  op.require(static_cast<int>(repeats.size()) == shape.rank(), "repeats has {} entries, the input has rank {}",
             repeats.size(), shape.rank());
  for (int d = 0; d < shape.rank(); ++d) {
    const std::int64_t n = repeats[static_cast<std::size_t>(d)];
    op.require(n >= 0, "repeats has a negative entry, {}", n);
    op.require(n == 0 || shape[d] <= INT64_MAX / n, "the output is too large");
    shape[d] *= n;
  }
  return {{op.in(0).dtype, shape}};
}

// [a, b] repeated [m, n] times is [1, a, 1, b] expanded to [m, a, n, b] and reshaped to [m a, n b].
std::vector<ValueId> lower_tile(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  op.require(2 * rank <= Shape::kMaxRank, "rank {} is more than the {} supported", rank, Shape::kMaxRank / 2);
  if (rank == 0) return {b.op("Identity", {op.id(0)})};
  std::vector<std::int64_t> axes;
  for (int d = 0; d < rank; ++d) axes.push_back(2 * d);
  const ValueId repeats = b.cast(op.id(1), DType::i64);
  const ValueId shape = b.shape_of(op.id(0));
  const ValueId pairs = b.concat({b.unsqueeze(repeats, {1}), b.unsqueeze(shape, {1})}, 1);
  const ValueId expanded = b.op("Expand", {b.unsqueeze(op.id(0), axes), b.reshape(pairs, b.ints({-1}))});
  return {b.op("Reshape", {expanded, b.mul(repeats, shape)}, {{"allowzero", std::int64_t{1}}})};
}

// ---- blocks of space in depth ----

std::int64_t block_of(const OpView& op) {
  const auto mode = op.s("mode");
  const std::int64_t block = op.i("blocksize");
  op.require(op.in(0).rank() == 4, "the input must have rank 4, got {}", op.in(0).shape);
  op.require(block > 0 && block < (1 << 15), "blocksize must be between 1 and 32767, got {}", block);
  op.require(mode == "DCR" || mode == "CRD", "mode must be DCR or CRD, got \"{}\"", mode);
  return block;
}

Facts infer_depth_to_space(const OpView& op) {
  const std::int64_t block = block_of(op);
  const Shape& x = op.in(0).shape;
  op.require(x[1] % (block * block) == 0, "{} channels are no multiple of {}", x[1], block * block);
  return {{op.in(0).dtype, {x[0], x[1] / (block * block), x[2] * block, x[3] * block}}};
}

Facts infer_space_to_depth(const OpView& op) {
  const std::int64_t block = block_of(op);
  const Shape& x = op.in(0).shape;
  op.require(x[2] % block == 0 && x[3] % block == 0, "{}x{} is no multiple of {}", x[2], x[3], block);
  return {{op.in(0).dtype, {x[0], x[1] * block * block, x[2] / block, x[3] / block}}};
}

std::vector<ValueId> lower_depth_to_space(const OpView& op, Builder& b) {
  const ValueId x = op.id(0);
  const std::int64_t block = op.i("blocksize");
  const bool depth_first = op.s("mode") == "DCR";
  const ValueId batch = b.shape_of(x, 0, 1);
  const ValueId depth = b.div(b.shape_of(x, 1, 2), b.ints({block * block}));
  const ValueId space = b.shape_of(x, 2, 4);
  const ValueId blocks = b.ints({block, block});
  const ValueId split =
      depth_first ? b.concat({batch, blocks, depth, space}, 0) : b.concat({batch, depth, blocks, space}, 0);
  const ValueId moved = b.transpose(b.reshape(x, split), depth_first ? std::vector<std::int64_t>{0, 3, 4, 1, 5, 2}
                                                                     : std::vector<std::int64_t>{0, 1, 4, 2, 5, 3});
  return {b.reshape(moved, b.concat({batch, depth, b.mul(space, blocks)}, 0))};
}

std::vector<ValueId> lower_space_to_depth(const OpView& op, Builder& b) {
  const ValueId x = op.id(0);
  const std::int64_t block = op.i("blocksize");
  const ValueId batch = b.shape_of(x, 0, 1);
  const ValueId channels = b.shape_of(x, 1, 2);
  const ValueId one = b.ints({block});
  const ValueId rows = b.div(b.shape_of(x, 2, 3), one);
  const ValueId columns = b.div(b.shape_of(x, 3, 4), one);
  const ValueId split = b.reshape(x, b.concat({batch, channels, rows, one, columns, one}, 0));
  const ValueId moved = b.transpose(split, op.s("mode") == "DCR" ? std::vector<std::int64_t>{0, 3, 5, 1, 2, 4}
                                                                 : std::vector<std::int64_t>{0, 1, 3, 5, 2, 4});
  return {b.reshape(moved, b.concat({batch, b.mul(channels, b.ints({block * block})), rows, columns}, 0))};
}

}  // namespace

std::vector<int> block_permutation(const Shape& x, const Shape& merged, std::span<const std::int64_t> perm,
                                   const Shape& split) {
  if (x.elements() == 0) return {};
  std::vector<std::pair<int, int>> blocks;  // the dims of x in each merged dim
  int d = 0;
  for (std::int64_t extent : merged) {
    const int begin = d;
    std::int64_t product = 1;
    do {
      if (d == x.rank()) return {};
      product *= x[d++];
    } while (product < extent);
    if (product != extent) return {};
    blocks.emplace_back(begin, d);
  }
  if (d != x.rank()) return {};
  std::vector<int> dims;
  for (std::int64_t axis : perm) {
    const auto [begin, end] = blocks[static_cast<std::size_t>(axis < 0 ? axis + merged.rank() : axis)];
    for (int i = begin; i < end; ++i) dims.push_back(i);
  }
  const bool as_before =
      static_cast<int>(dims.size()) == split.rank() &&
      std::equal(dims.begin(), dims.end(), split.begin(), [&](int i, std::int64_t extent) { return x[i] == extent; });
  return as_before ? dims : std::vector<int>();
}

extern const OpDef op_reshape, op_transpose_blocks, op_flatten, op_tile, op_depth_to_space, op_space_to_depth;

constinit const OpDef op_reshape = {.name = "Reshape",
                                    .inputs = 2,
                                    .attributes = kReshapeAttributes,
                                    .forms = 25,
                                    .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                    .shape_inputs = 0b10,
                                    .infer = infer_reshape,
                                    .kernel = reshape};
constinit const OpDef op_transpose_blocks = {.name = "TransposeBlocks",
                                             .domain = "lathe",
                                             .inputs = 3,
                                             .attributes = kTransposeBlocksAttributes,
                                             .shape_inputs = 0b110,
                                             .infer = infer_transpose_blocks,
                                             .expr = transpose_blocks_expr,
                                             .is_view = true};
constinit const OpDef op_flatten = {.name = "Flatten",
                                    .attributes = kFlattenAttributes,
                                    .forms = 25,
                                    .takes = kAny,
                                    .infer = infer_flatten,
                                    .lower = lower_flatten};
constinit const OpDef op_tile = {.name = "Tile",
                                 .inputs = 2,
                                 .forms = 13,
                                 .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                 .shape_inputs = 0b10,
                                 .infer = infer_tile,
                                 .lower = lower_tile};
constinit const OpDef op_depth_to_space = {.name = "DepthToSpace",
                                           .attributes = kBlockAttributes,
                                           .forms = 28,
                                           .takes = kAny,
                                           .infer = infer_depth_to_space,
                                           .lower = lower_depth_to_space};
constinit const OpDef op_space_to_depth = {.name = "SpaceToDepth",
                                           .attributes = kBlockAttributes,
                                           .forms = 28,
                                           .takes = kAny,
                                           .infer = infer_space_to_depth,
                                           .lower = lower_space_to_depth};

}  // namespace lathe::ops
