// How a sliding window is cut.
#include "runtime/backends/onednn/pieces.h"

#include <algorithm>

namespace lathe::onednn {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

std::int64_t reach_of(const Sliding& sliding, int s) { return (sliding.kernel[s] - 1) * sliding.dilations[s]; }

/// The rows of src that rows [begin, end) of dst are made from (dim `s` of the spatial dims), and the padding around
/// them.
struct Rows {
  std::int64_t begin, end, pad_begin, pad_end;
};

Rows source_rows(const Sliding& sliding, int s, std::int64_t begin, std::int64_t end) {
  const std::int64_t reach = reach_of(sliding, s);
  const std::int64_t stride = sliding.strides[s];
  const std::int64_t pad = sliding.pads_begin[s];
  const std::int64_t extent = sliding.src.dims[kSpatial + s];
  Rows rows{};
  if (sliding.transposed) {
    rows.begin = std::max<std::int64_t>(ceil_div(begin + pad - reach, stride), 0);
    rows.end = std::min(floor_div(end - 1 + pad, stride) + 1, extent);
    rows.pad_begin = begin + pad - rows.begin * stride;
    rows.pad_end = (rows.end - rows.begin - 1) * stride + reach + 1 - rows.pad_begin - (end - begin);
  } else {
    const std::int64_t first = begin * stride - pad;
    const std::int64_t last = (end - 1) * stride - pad + reach + 1;
    rows = {std::max<std::int64_t>(first, 0), std::min(last, extent), std::max<std::int64_t>(-first, 0),
            std::max<std::int64_t>(last - extent, 0)};
  }
  return rows;
}

std::vector<Piece> pieces_of(const Sliding& sliding, Cut way) {
  const std::int64_t batch = sliding.dst.dims[0];
  Piece whole{{Shape::filled(sliding.dst.dims.rank(), 0), sliding.dst.dims},
              {Shape::filled(sliding.src.dims.rank(), 0), sliding.src.dims},
              sliding.pads_begin,
              sliding.pads_begin};
  for (int s = 0; s < sliding.pads_begin.rank(); ++s) whole.pads_end[s] = end_padding(sliding, s);
  std::vector<Piece> pieces;
  const std::int64_t parts = way == Cut::none ? 1 : sliding.parts;
  const std::int64_t images = std::min(batch, parts);
  const std::int64_t chunks =
      way == Cut::preferred ? std::min((parts + batch - 1) / batch, sliding.dst.dims[kSpatial]) : 1;
  for (std::int64_t i = 0; i < images; ++i) {
    Piece piece = whole;
    piece.dst.begin[0] = piece.src.begin[0] = batch * i / images;
    piece.dst.extents[0] = piece.src.extents[0] = batch * (i + 1) / images - batch * i / images;
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (chunks > 1) {
        const std::int64_t begin = sliding.dst.dims[kSpatial] * c / chunks;
        const std::int64_t end = sliding.dst.dims[kSpatial] * (c + 1) / chunks;
        const Rows rows = source_rows(sliding, 0, begin, end);
        if (rows.begin >= rows.end || rows.pad_begin < 0) throw Declined{"a piece would see padding only"};
        piece.dst.begin[kSpatial] = begin;
        piece.dst.extents[kSpatial] = end - begin;
        piece.src.begin[kSpatial] = rows.begin;
        piece.src.extents[kSpatial] = rows.end - rows.begin;
        piece.pads_begin[0] = rows.pad_begin;
        piece.pads_end[0] = rows.pad_end;
      }
      pieces.push_back(piece);
    }
  }
  return pieces;
}

/// What two pieces must share to run the same kernel.
std::vector<std::int64_t> extents_of(const Piece& piece) {
  std::vector<std::int64_t> key = to_dims(piece.dst.extents);
  for (const Shape& more : {piece.src.extents, piece.pads_begin, piece.pads_end}) {
    key.insert(key.end(), more.begin(), more.end());
  }
  return key;
}

}  // namespace

std::int64_t end_padding(const Sliding& sliding, int s) {
  const std::int64_t reach = reach_of(sliding, s);
  const std::int64_t in = sliding.src.dims[kSpatial + s];
  const std::int64_t out = sliding.dst.dims[kSpatial + s];
  if (sliding.transposed) return (in - 1) * sliding.strides[s] + reach + 1 - sliding.pads_begin[s] - out;
  return (out - 1) * sliding.strides[s] + reach + 1 - in - sliding.pads_begin[s];
}

void add_pieces(Primitive::Impl& impl, const Sliding& sliding, const std::vector<PostOp>& post_ops, Cut way,
                const std::function<Kernel(const Piece&)>& compile_piece) {
  std::map<std::vector<std::int64_t>, int> known;
  for (const Piece& piece : pieces_of(sliding, way)) {
    const auto [found, fresh] = known.try_emplace(extents_of(piece), static_cast<int>(impl.kernels.size()));
    if (fresh) impl.kernels.push_back(compile_piece(piece));
    Part part;
    part.kernel = found->second;
    part.src = bytes_of(sliding.src, offset_of(sliding.src, piece.src));
    part.dst = bytes_of(sliding.dst, offset_of(sliding.dst, piece.dst));
    part.operands = operand_offsets(post_ops, piece.dst);
    impl.parts.push_back(std::move(part));
  }
}

dnnl::memory::dims gaps_of(const Shape& dilations) {
  auto gaps = to_dims(dilations);
  for (auto& gap : gaps) --gap;
  return gaps;
}

Operand exact_part(const Operand& operand, const Slice& slice) {
  return {operand.dtype, slice.extents, operand.strides};
}

}  // namespace lathe::onednn
