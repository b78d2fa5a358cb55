// MatMul through oneDNN, cut over batch, rows or columns.
#include <algorithm>
#include <numeric>

#include "runtime/backends/onednn/primitive.h"

namespace lathe::onednn {
namespace {

constexpr std::int64_t kMinColumns = 64;  // a part with fewer is slower than one with some of the rows
constexpr std::int64_t kMinRows = 8;
constexpr std::int64_t kColumnStep = 16;

/// Batch dims and rows of a matrix operand as one dim, where its strides allow it; `full` are the result's dims.
std::optional<Operand> fold_rows(const Operand& operand, const Shape& full) {
  const int rank = operand.dims.rank();
  Operand folded{operand.dtype, {}, {}};
  std::int64_t rows = 1;
  std::int64_t stride = 0;
  bool broadcast = true;
  for (int d = rank - 2; d >= 0; --d) {
    if (full[d] == 1) continue;
    if (operand.dims[d] == 1 && broadcast) continue;
    if (operand.dims[d] == 1) return std::nullopt;
    if (broadcast) stride = operand.strides[d];
    if (operand.strides[d] != stride * rows) return std::nullopt;
    broadcast = false;
    rows *= full[d];
  }
  std::int64_t all = 1;
  for (int d = 0; d < rank - 1; ++d) all *= full[d];
  if (!broadcast && rows != all) return std::nullopt;
  folded.dims = {rows, operand.dims[rank - 1]};
  folded.strides = {broadcast ? operand.dims[rank - 1] * operand.strides[rank - 1] : stride, operand.strides[rank - 1]};
  return folded;
}

/// With one b for the whole batch, batch and rows are the same thing: the spec in two dims, or as it was.
MatMulSpec fold(const MatMulSpec& spec) {
  const int rank = spec.dst.dims.rank();
  if (rank == 2) return spec;
  for (int d = 0; d < rank - 2; ++d) {
    if (spec.b.dims[d] != 1) return spec;
  }
  MatMulSpec folded = spec;
  Shape a_full = spec.dst.dims;
  a_full[rank - 1] = spec.a.dims[rank - 1];
  const std::optional<Operand> a = fold_rows(spec.a, a_full);
  const std::optional<Operand> dst = fold_rows(spec.dst, spec.dst.dims);
  if (!a || !dst || a->dims[0] != dst->dims[0]) return spec;
  folded.a = *a;
  folded.dst = *dst;
  folded.b.dims = {spec.b.dims[rank - 2], spec.b.dims[rank - 1]};
  folded.b.strides = {spec.b.strides[rank - 2], spec.b.strides[rank - 1]};
  for (PostOp& op : folded.post_ops) {
    if (!has_operand(op.kind)) continue;
    const std::optional<Operand> operand = fold_rows(op.operand, spec.dst.dims);
    if (!operand) return spec;
    op.operand = *operand;
  }
  return folded;
}

void check(const MatMulSpec& spec) {
  for (const std::int64_t extent : spec.dst.dims) {
    if (extent == 0) throw Declined{"the result is empty"};
  }
  if (spec.a.dims[spec.a.dims.rank() - 1] == 0) throw Declined{"the sum has no terms"};
  const bool f32 = spec.a.dtype == DType::f32 && spec.b.dtype == DType::f32 && spec.dst.dtype == DType::f32;
  const bool int8 = (spec.a.dtype == DType::u8 || spec.a.dtype == DType::i8) && spec.b.dtype == DType::i8 &&
                    (spec.dst.dtype == DType::i32 || spec.dst.dtype == DType::f32);
  if (!f32 && !int8) {
    throw Declined{"oneDNN is not used for " + std::string(spec.a.dtype.name()) + " x " +
                   std::string(spec.b.dtype.name()) + " -> " + std::string(spec.dst.dtype.name())};
  }
  if (int8 && !exact_int8()) throw Declined{"without VNNI oneDNN's 8-bit products saturate"};
}

/// Cuts dim `d` of each slice into `count` even pieces of a multiple of `step`.
std::vector<Slice> cut(const std::vector<Slice>& slices, int d, std::int64_t count, std::int64_t step) {
  std::vector<Slice> pieces;
  for (const Slice& slice : slices) {
    const std::int64_t extent = slice.extents[d];
    const std::int64_t units = (extent + step - 1) / step;
    const std::int64_t n = std::clamp<std::int64_t>(count, 1, units);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t begin = units * i / n * step;
      Slice piece = slice;
      piece.begin[d] += begin;
      piece.extents[d] = std::min(units * (i + 1) / n * step, extent) - begin;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

/// Batch first; then columns, because a cut between whole column blocks changes no bit of the result; then rows.
std::vector<Slice> pieces_of(const MatMulSpec& spec, Cut way, std::int64_t column_step) {
  const Shape& dims = spec.dst.dims;
  const int rank = dims.rank();
  std::vector<Slice> slices{{Shape::filled(rank, 0), dims}};
  std::int64_t left = way == Cut::none ? 1 : spec.parts;
  for (int d = 0; d < rank - 2 && left > 1; ++d) {
    if (dims[d] == 1) continue;
    slices = cut(slices, d, left, 1);
    left /= std::min(left, dims[d]);
    break;  // the outermost batch dim; further ones would only make smaller pieces
  }
  if (left == 1) return slices;
  const std::int64_t rows = dims[rank - 2];
  const std::int64_t columns = dims[rank - 1];
  const bool wide = columns >= left * kMinColumns || rows < left * kMinRows;
  if (wide && way == Cut::preferred) return cut(slices, rank - 1, left, column_step);
  return cut(slices, rank - 2, left, 1);
}

/// Slices of a and of b that a slice of the result is made from.
Slice slice_of_a(const MatMulSpec& spec, Slice slice) {
  const int last = slice.extents.rank() - 1;
  slice.begin[last] = 0;
  slice.extents[last] = spec.a.dims[last];
  return slice;
}
Slice slice_of_b(const MatMulSpec& spec, Slice slice) {
  const int rows = slice.extents.rank() - 2;
  slice.begin[rows] = 0;
  slice.extents[rows] = spec.b.dims[rows];
  return slice;
}

Kernel compile_piece(const MatMulSpec& spec, const Slice& slice, const Md& weights) {
  const int rank = slice.extents.rank();
  const Slice of_a = slice_of_a(spec, slice);
  Md bias;
  if (spec.bias) {
    Shape dims = Shape::filled(rank, 1);
    dims[rank - 1] = slice.extents[rank - 1];
    bias = describe({DType::f32, dims, row_major(dims)});
  }
  const dnnl::matmul::primitive_desc desc(engine(), describe(part_of(spec.a, of_a)), weights, bias,
                                          describe(part_of(spec.dst, slice)), attributes(spec.post_ops, slice), true);
  return compile<dnnl::matmul::primitive_desc, dnnl::matmul>(desc, spec.bias, spec.post_ops, slice);
}

/// Where a piece's weights lie inside packed ones, and how.
struct WeightsPart {
  Md md;
  std::int64_t offset = 0;  // bytes
};

WeightsPart weights_part(const MatMulSpec& spec, const Md& packed, const Slice& slice) {
  const Slice of_b = slice_of_b(spec, slice);
  if (packed.get_inner_nblks() == 0) {
    const auto strides = packed.get_strides();
    const Operand plain{spec.b.dtype, spec.b.dims, Shape(std::span<const std::int64_t>(strides))};
    return {describe(part_of(plain, of_b)), bytes_of(plain, offset_of(plain, of_b))};
  }
  if (slice.extents.back() == spec.dst.dims.back()) return {packed, 0};
  // Columns of blocked weights: what oneDNN would choose for them alone must be laid out as they are in the whole.
  const Md own = compile_piece(spec, slice, describe_any(spec.b.dtype, part_of(spec.b, of_b).dims)).weights;
  if (own.get_inner_blks() != packed.get_inner_blks() || own.get_inner_idxs() != packed.get_inner_idxs() ||
      own.get_strides() != packed.get_strides()) {
    throw Declined{"columns of packed weights are laid out differently"};
  }
  const Md inside = packed.submemory_desc(own.get_dims(), to_dims(of_b.begin));
  return {own, bytes_of(spec.b, inside.get_submemory_offset())};
}

/// The layout that oneDNN likes for the whole of constant weights; batches of weights stay as they are.
Md packed_layout(const MatMulSpec& spec) {
  const int rank = spec.dst.dims.rank();
  const bool one_matrix =
      std::all_of(spec.b.dims.begin(), spec.b.dims.end() - 2, [](std::int64_t d) { return d == 1; });
  if (!spec.constant_b || !one_matrix) return describe(spec.b);
  const Slice all{Shape::filled(rank, 0), spec.dst.dims};
  return compile_piece(spec, all, describe_any(spec.b.dtype, spec.b.dims)).weights;
}

std::unique_ptr<Primitive::Impl> make(const MatMulSpec& spec, Cut way) {
  auto impl = std::make_unique<Primitive::Impl>();
  impl->packed_weights = packed_layout(spec);
  const auto blocks = impl->packed_weights.get_inner_blks();
  const std::int64_t step =
      std::accumulate(blocks.begin(), blocks.end(), kColumnStep, std::lcm<std::int64_t, std::int64_t>);
  std::map<std::vector<std::int64_t>, int> known;
  for (const Slice& slice : pieces_of(spec, way, step)) {
    WeightsPart weights = weights_part(spec, impl->packed_weights, slice);
    const auto [found, fresh] = known.try_emplace(to_dims(slice.extents), static_cast<int>(impl->kernels.size()));
    if (fresh) impl->kernels.push_back(compile_piece(spec, slice, weights.md));
    Part part;
    part.kernel = found->second;
    part.src = bytes_of(spec.a, offset_of(spec.a, slice_of_a(spec, slice)));
    part.weights = weights.offset;
    part.bias = slice.begin.back() * static_cast<std::int64_t>(sizeof(float));
    part.dst = bytes_of(spec.dst, offset_of(spec.dst, slice));
    part.operands = operand_offsets(spec.post_ops, slice);
    impl->parts.push_back(std::move(part));
  }
  impl->finish(spec.post_ops, spec.constant_b ? std::optional<Md>(describe(spec.b)) : std::nullopt);
  return impl;
}

/// A product of two matrices as a convolution along its rows: K channels in, N out, over M positions.
ConvSpec as_convolution(const MatMulSpec& spec) {
  const auto channels_last = [](const Operand& o) {
    return Operand{o.dtype, {1, o.dims[1], o.dims[0]}, {o.dims[0] * o.strides[0], o.strides[1], o.strides[0]}};
  };
  ConvSpec conv;
  conv.src = channels_last(spec.a);
  conv.weights = {spec.b.dtype, {spec.b.dims[1], spec.b.dims[0], 1}, {spec.b.strides[1], spec.b.strides[0], 1}};
  conv.dst = channels_last(spec.dst);
  conv.strides = conv.dilations = {1};
  conv.pads_begin = {0};
  conv.bias = spec.bias;
  conv.post_ops = spec.post_ops;
  for (PostOp& op : conv.post_ops) {
    if (has_operand(op.kind)) op.operand = channels_last(op.operand);
  }
  conv.parts = spec.parts;
  return conv;
}

}  // namespace

Made make_matmul(const MatMulSpec& spec) {
  const MatMulSpec folded = fold(spec);
  Made made = make_or_decline(folded, [](const MatMulSpec& checked, Cut way) {
    check(checked);
    return make(checked, way);
  });
  // The general product packs its weights at every call, and its code is written at the first. A convolution is cut
  // over rows only.
  const bool general = made.primitive && made.primitive->name().starts_with("gemm");
  if (general && folded.constant_b && folded.dst.dims.rank() == 2 && folded.dst.dims[0] >= kMinRows) {
    if (Made other = make_convolution(as_convolution(folded)); other.primitive) return other;
  }
  return made;
}

}  // namespace lathe::onednn
