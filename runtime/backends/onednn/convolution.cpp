// Conv and ConvTranspose through oneDNN, cut over batch and output rows: a piece is a convolution with padding of its
// own.
#include <algorithm>

#include "runtime/backends/onednn/primitive.h"

namespace lathe::onednn {
namespace {

constexpr int kSpatial = 2;  // the first spatial dim of src and dst

/// One piece: its part of dst and of src, and its padding.
struct Piece {
  Slice dst;
  Slice src;
  Shape pads_begin;
  Shape pads_end;
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

/// The rows of src that rows [begin, end) of dst are made from (dim `s` of the spatial dims), and the padding around
/// them.
struct Rows {
  std::int64_t begin, end, pad_begin, pad_end;
};

Rows source_rows(const ConvSpec& spec, int s, std::int64_t begin, std::int64_t end) {
  const std::int64_t reach = (spec.weights.dims[kSpatial + s] - 1) * spec.dilations[s];
  const std::int64_t stride = spec.strides[s];
  const std::int64_t pad = spec.pads_begin[s];
  const std::int64_t extent = spec.src.dims[kSpatial + s];
  Rows rows{};
  if (spec.transposed) {
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

/// The padding at the end that makes oneDNN's arithmetic give dst's extent.
std::int64_t end_padding(const ConvSpec& spec, int s) {
  const std::int64_t reach = (spec.weights.dims[kSpatial + s] - 1) * spec.dilations[s];
  const std::int64_t in = spec.src.dims[kSpatial + s];
  const std::int64_t out = spec.dst.dims[kSpatial + s];
  if (spec.transposed) return (in - 1) * spec.strides[s] + reach + 1 - spec.pads_begin[s] - out;
  return (out - 1) * spec.strides[s] + reach + 1 - in - spec.pads_begin[s];
}

std::vector<Piece> pieces_of(const ConvSpec& spec, Cut way) {
  const std::int64_t batch = spec.dst.dims[0];
  Piece whole{{Shape::filled(spec.dst.dims.rank(), 0), spec.dst.dims},
              {Shape::filled(spec.src.dims.rank(), 0), spec.src.dims},
              spec.pads_begin,
              spec.pads_begin};
  for (int s = 0; s < spec.pads_begin.rank(); ++s) whole.pads_end[s] = end_padding(spec, s);
  std::vector<Piece> pieces;
  const std::int64_t parts = way == Cut::none ? 1 : spec.parts;
  const std::int64_t images = std::min(batch, parts);
  const std::int64_t chunks =
      way == Cut::preferred ? std::min((parts + batch - 1) / batch, spec.dst.dims[kSpatial]) : 1;
  for (std::int64_t i = 0; i < images; ++i) {
    Piece piece = whole;
    piece.dst.begin[0] = piece.src.begin[0] = batch * i / images;
    piece.dst.extents[0] = piece.src.extents[0] = batch * (i + 1) / images - batch * i / images;
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (chunks > 1) {
        const std::int64_t begin = spec.dst.dims[kSpatial] * c / chunks;
        const std::int64_t end = spec.dst.dims[kSpatial] * (c + 1) / chunks;
        const Rows rows = source_rows(spec, 0, begin, end);
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

/// A part of src or dst: every dim is cut as the slice says, extents of 1 included.
Operand exact_part(const Operand& operand, const Slice& slice) {
  return {operand.dtype, slice.extents, operand.strides};
}

/// The weights as oneDNN orders their dims: [groups,] output channels, input channels, kernel.
Operand ordered_weights(const ConvSpec& spec) {
  const Operand& w = spec.weights;
  const int out = spec.transposed ? 1 : 0;
  const int in = 1 - out;
  Operand ordered{w.dtype, {}, {}};
  // Groups split the dim that counts all of its side's channels: outputs of Conv, inputs of ConvTranspose.
  const std::int64_t per_group = w.dims[0] / spec.groups;
  if (spec.groups > 1) {
    ordered.dims.push_back(spec.groups);
    ordered.strides.push_back(per_group * w.strides[0]);
  }
  ordered.dims.push_back(out == 0 ? per_group : w.dims[out]);
  ordered.strides.push_back(w.strides[out]);
  ordered.dims.push_back(in == 0 ? per_group : w.dims[in]);
  ordered.strides.push_back(w.strides[in]);
  for (int d = kSpatial; d < w.dims.rank(); ++d) {
    ordered.dims.push_back(w.dims[d]);
    ordered.strides.push_back(w.strides[d]);
  }
  return ordered;
}

void check(const ConvSpec& spec) {
  for (const Operand* operand : {&spec.src, &spec.weights, &spec.dst}) {
    for (const std::int64_t extent : operand->dims) {
      if (extent == 0) throw Declined{"a tensor is empty"};
    }
  }
  const int rank = spec.src.dims.rank();
  if (rank < 3 || rank > 5) throw Declined{"oneDNN convolves 1 to 3 spatial dims"};
  for (const std::int64_t pad : spec.pads_begin) {
    if (pad < 0) throw Declined{"oneDNN has no negative padding"};
  }
  const bool f32 = spec.src.dtype == DType::f32 && spec.weights.dtype == DType::f32 && spec.dst.dtype == DType::f32;
  const bool int8 = !spec.transposed && (spec.src.dtype == DType::u8 || spec.src.dtype == DType::i8) &&
                    spec.weights.dtype == DType::i8 && (spec.dst.dtype == DType::i32 || spec.dst.dtype == DType::f32);
  if (!f32 && !int8) {
    throw Declined{"oneDNN is not used for " + std::string(spec.src.dtype.name()) + " by " +
                   std::string(spec.weights.dtype.name()) + " -> " + std::string(spec.dst.dtype.name())};
  }
  if (int8 && !exact_int8()) throw Declined{"without VNNI oneDNN's 8-bit products saturate"};
}

Kernel compile_piece(const ConvSpec& spec, const Piece& piece, const Md& weights) {
  const Md src = describe(exact_part(spec.src, piece.src));
  const Md dst = describe(exact_part(spec.dst, piece.dst));
  const Shape channels{spec.dst.dims[1]};
  const Md bias = spec.bias ? describe({DType::f32, channels, Shape{1}}) : Md();
  const auto strides = to_dims(spec.strides);
  auto dilations = to_dims(spec.dilations);
  for (auto& d : dilations) --d;  // oneDNN counts the elements between taps
  const auto begin = to_dims(piece.pads_begin);
  const auto end = to_dims(piece.pads_end);
  const dnnl::primitive_attr attr = attributes(spec.post_ops, piece.dst);
  constexpr auto kInference = dnnl::prop_kind::forward_inference;
  if (spec.transposed) {
    using Forward = dnnl::deconvolution_forward;
    const Forward::primitive_desc desc(engine(), kInference, dnnl::algorithm::deconvolution_direct, src, weights, bias,
                                       dst, strides, dilations, begin, end, attr, true);
    return compile<Forward::primitive_desc, Forward>(desc, spec.bias, spec.post_ops, piece.dst);
  }
  using Forward = dnnl::convolution_forward;
  const Forward::primitive_desc desc(engine(), kInference, dnnl::algorithm::convolution_direct, src, weights, bias, dst,
                                     strides, dilations, begin, end, attr, true);
  return compile<Forward::primitive_desc, Forward>(desc, spec.bias, spec.post_ops, piece.dst);
}

std::unique_ptr<Primitive::Impl> make(const ConvSpec& spec, Cut way) {
  auto impl = std::make_unique<Primitive::Impl>();
  const Operand weights = ordered_weights(spec);
  const std::vector<Piece> pieces = pieces_of(spec, way);
  std::map<std::vector<std::int64_t>, int> known;
  for (const Piece& piece : pieces) {
    std::vector<std::int64_t> key = to_dims(piece.dst.extents);
    for (const Shape& more : {piece.src.extents, piece.pads_begin, piece.pads_end}) {
      key.insert(key.end(), more.begin(), more.end());
    }
    const auto [found, fresh] = known.try_emplace(key, static_cast<int>(impl->kernels.size()));
    if (fresh) {
      const bool first = impl->kernels.empty();  // it picks the layout of the weights, which the others share
      impl->kernels.push_back(
          compile_piece(spec, piece, first ? describe_any(weights.dtype, weights.dims) : impl->packed_weights));
      if (first) impl->packed_weights = impl->kernels[0].weights;
    }
    Part part;
    part.kernel = found->second;
    part.src = bytes_of(spec.src, offset_of(spec.src, piece.src));
    part.dst = bytes_of(spec.dst, offset_of(spec.dst, piece.dst));
    part.operands = operand_offsets(spec.post_ops, piece.dst);
    impl->parts.push_back(std::move(part));
  }
  impl->finish(spec.post_ops, describe(weights));
  return impl;
}

}  // namespace

Made make_convolution(const ConvSpec& spec) {
  return make_or_decline(spec, [](const ConvSpec& checked, Cut way) {
    check(checked);
    return make(checked, way);
  });
}

}  // namespace lathe::onednn
