// Window: the geometry that convolutions and pools share: kernel, strides, dilations, pads and output extents.
#pragma once

#include <vector>

#include "ops/ir/loop_builder.h"
#include "ops/ir/op.h"

namespace lathe::ops {

/// Everything per spatial axis, `auto_pad` already resolved into pads.
struct Window {
  Shape in, kernel, strides, dilations, pads_begin, pads_end, out;

  [[nodiscard]] int rank() const { return kernel.rank(); }
  /// The extent that the dilated kernel covers along a spatial axis.
  [[nodiscard]] std::int64_t span(int axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
  /// Whether a window can reach outside the input for some extent of it (so that loads need guards).
  [[nodiscard]] bool may_reach_outside(bool ceil_mode) const;
  /// The input position under kernel position `k` of output position `o` along a spatial axis.
  [[nodiscard]] Coord position(int axis, Coord o, Coord k) const;
};

/// The window of a convolution or pool over spatial extents `in`, from the attributes strides, dilations, pads,
/// auto_pad and, where the operator has it, ceil_mode. Failure where they contradict each other or the input.
Window resolve_window(const OpView& op, const Shape& in, const Shape& kernel);

/// The same for a transposed convolution (output_padding, output_shape): `in` is the smaller side, `out` the larger.
Window resolve_transposed_window(const OpView& op, const Shape& in, const Shape& kernel);

/// The extents behind batch and channel.
Shape spatial(const Shape& shape);

/// The dims of [batch, spatial…, channels] in the order [batch, channels, spatial…], and back.
std::vector<std::int64_t> channels_first_order(int rank);
std::vector<std::int64_t> channels_last_order(int rank);
Shape channels_first(const Shape& shape);
Shape channels_last(const Shape& shape);

}  // namespace lathe::ops
