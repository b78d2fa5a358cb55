// Conv and ConvTranspose through oneDNN.
#include "runtime/backends/onednn/pieces.h"

namespace lathe::onednn {
namespace {

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
  const auto dilations = gaps_of(spec.dilations);
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

Shape kernel_of(const ConvSpec& spec) {
  Shape kernel;
  for (int d = kSpatial; d < spec.weights.dims.rank(); ++d) kernel.push_back(spec.weights.dims[d]);
  return kernel;
}

std::unique_ptr<Primitive::Impl> make(const ConvSpec& spec, Cut way) {
  auto impl = std::make_unique<Primitive::Impl>();
  const Operand weights = ordered_weights(spec);
  const Sliding sliding{spec.src,       spec.dst,        kernel_of(spec), spec.strides,
                        spec.dilations, spec.pads_begin, spec.transposed, spec.parts};
  // The first kernel picks the layout of the weights, which the others share.
  impl->packed_weights = describe_any(weights.dtype, weights.dims);
  add_pieces(*impl, sliding, spec.post_ops, way, [&](const Piece& piece) {
    Kernel kernel = compile_piece(spec, piece, impl->packed_weights);
    impl->packed_weights = kernel.weights;
    return kernel;
  });
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
