// AveragePool through oneDNN.
#include "runtime/backends/onednn/pieces.h"

namespace lathe::onednn {
namespace {

Sliding sliding_of(const PoolSpec& spec) {
  return {spec.src, spec.dst, spec.kernel, spec.strides, spec.dilations, spec.pads_begin, false, spec.parts};
}

void check(const PoolSpec& spec) {
  const int rank = spec.src.dims.rank();
  if (rank < 3 || rank > 5) throw Declined{"oneDNN pools 1 to 3 spatial dims"};
  if (spec.src.dtype != DType::f32)
    throw Declined{"oneDNN is not used for averages of " + std::string(spec.src.dtype.name())};
  for (const Operand* operand : {&spec.src, &spec.dst}) {
    for (const std::int64_t extent : operand->dims) {
      if (extent == 0) throw Declined{"a tensor is empty"};
    }
  }
  const Sliding sliding = sliding_of(spec);
  for (int s = 0; s < spec.kernel.rank(); ++s) {
    const std::int64_t span = (spec.kernel[s] - 1) * spec.dilations[s] + 1;
    const std::int64_t end = end_padding(sliding, s);
    if (spec.pads_begin[s] < 0) throw Declined{"oneDNN has no negative padding"};
    if (spec.pads_begin[s] >= span || end >= span) throw Declined{"a window would see padding only"};
    if (spec.counts_padding && end > spec.pads_end[s]) throw Declined{"a window reaches beyond the padding"};
  }
}

Kernel compile_piece(const PoolSpec& spec, const Piece& piece) {
  using Forward = dnnl::pooling_forward;
  const auto algorithm =
      spec.counts_padding ? dnnl::algorithm::pooling_avg_include_padding : dnnl::algorithm::pooling_avg_exclude_padding;
  const Forward::primitive_desc desc(
      engine(), dnnl::prop_kind::forward_inference, algorithm, describe(exact_part(spec.src, piece.src)),
      describe(exact_part(spec.dst, piece.dst)), to_dims(spec.strides), to_dims(spec.kernel), gaps_of(spec.dilations),
      to_dims(piece.pads_begin), to_dims(piece.pads_end), attributes(spec.post_ops, piece.dst), true);
  return compile<Forward::primitive_desc, Forward>(desc, false, spec.post_ops, piece.dst);
}

std::unique_ptr<Primitive::Impl> make(const PoolSpec& spec, Cut way) {
  auto impl = std::make_unique<Primitive::Impl>();
  add_pieces(*impl, sliding_of(spec), spec.post_ops, way,
             [&](const Piece& piece) { return compile_piece(spec, piece); });
  impl->finish(spec.post_ops, std::nullopt);
  return impl;
}

}  // namespace

Made make_pooling(const PoolSpec& spec) {
  return make_or_decline(spec, [](const PoolSpec& checked, Cut way) {
    check(checked);
    return make(checked, way);
  });
}

}  // namespace lathe::onednn
