// Resolves the attributes that convolutions and pools share into a Window.
#include "ops/window.h"

#include <algorithm>

namespace lathe::ops {
namespace {

// Larger values could only overflow the arithmetic on extents.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

bool has_attribute(const OpView& op, std::string_view name) {
  return std::any_of(op.op().attributes.begin(), op.op().attributes.end(),
                     [&](const Attribute& a) { return a.name == name; });
}

Shape per_axis(const OpView& op, std::string_view name, int rank) {
  const auto values = op.attr_ints(name);
  if (values.empty()) return Shape::filled(rank, 1);
  op.require(static_cast<int>(values.size()) == rank, "{} must have {} values, one per spatial axis, got {}", name,
             rank, values.size());
  for (std::int64_t v : values) {
    op.require(v >= 1 && v < kMost, "{} must be between 1 and {}, got {}", name, kMost - 1, v);
  }
  return Shape(values);
}

void read_pads(const OpView& op, Window& w) {
  const int rank = w.rank();
  w.pads_begin = w.pads_end = Shape::filled(rank, 0);
  const auto pads = op.attr_ints("pads");
  if (pads.empty()) return;
  op.require(static_cast<int>(pads.size()) == 2 * rank,
             "pads must have {} values, a begin and an end per spatial axis, got {}", 2 * rank, pads.size());
  for (int d = 0; d < rank; ++d) {
    w.pads_begin[d] = pads[static_cast<std::size_t>(d)];
    w.pads_end[d] = pads[static_cast<std::size_t>(d) + pads.size() / 2];
    op.require(w.pads_begin[d] >= 0 && w.pads_end[d] >= 0 && w.pads_begin[d] < kMost && w.pads_end[d] < kMost,
               "pads must be between 0 and {}, got {} and {}", kMost - 1, w.pads_begin[d], w.pads_end[d]);
  }
}

Window basics(const OpView& op, const Shape& in, const Shape& kernel) {
  Window w;
  w.in = in;
  w.kernel = kernel;
  op.require(in.rank() == kernel.rank(), "the input has {} spatial axes and the kernel {}", in.rank(), kernel.rank());
  w.strides = per_axis(op, "strides", w.rank());
  w.dilations = has_attribute(op, "dilations") ? per_axis(op, "dilations", w.rank()) : Shape::filled(w.rank(), 1);
  for (int d = 0; d < w.rank(); ++d) {
    op.require(kernel[d] >= 1 && kernel[d] < kMost, "kernel extents must be positive, got {}", kernel);
    op.require(in[d] < kMost, "spatial extents above {} are not supported, got {}", kMost - 1, in);
  }
  read_pads(op, w);
  return w;
}

void split_same(Window& w, int d, std::int64_t total, bool upper) {
  const std::int64_t small = total / 2;
  w.pads_begin[d] = upper ? small : total - small;
  w.pads_end[d] = total - w.pads_begin[d];
}

std::string_view auto_pad(const OpView& op) {
  if (!has_attribute(op, "auto_pad")) return "NOTSET";
  const std::string_view mode = op.s("auto_pad");
  op.require(mode == "NOTSET" || mode == "SAME_UPPER" || mode == "SAME_LOWER" || mode == "VALID",
             "auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got '{}'", shown(mode));
  return mode;
}

std::int64_t strided_extent(const Window& w, int d, bool ceil_mode) {
  const std::int64_t padded = w.in[d] + w.pads_begin[d] + w.pads_end[d];
  const std::int64_t room = padded - w.span(d);
  if (!ceil_mode) return room < 0 ? 0 : room / w.strides[d] + 1;
  if (room <= -w.strides[d]) return 0;
  std::int64_t out = (room + w.strides[d] - 1) / w.strides[d] + 1;
  // A window that would start in the right padding is left out.
  if ((out - 1) * w.strides[d] >= w.in[d] + w.pads_begin[d]) --out;
  return out;
}

Shape reordered(const Shape& shape, const std::vector<std::int64_t>& order) {
  Shape result;
  for (std::int64_t d : order) result.push_back(shape[static_cast<int>(d)]);
  return result;
}

}  // namespace

bool Window::may_reach_outside(bool ceil_mode) const {
  if (ceil_mode) return true;
  for (int d = 0; d < rank(); ++d) {
    if (pads_begin[d] != 0 || pads_end[d] != 0) return true;
  }
  return false;
}

Coord Window::position(int axis, Coord o, Coord k) const {
  o *= strides[axis];
  k *= dilations[axis];
  o += k;
  o += -pads_begin[axis];
  return o;
}

Shape spatial(const Shape& shape) {
  Shape s;
  for (int d = 2; d < shape.rank(); ++d) s.push_back(shape[d]);
  return s;
}

std::vector<std::int64_t> channels_first_order(int rank) {
  std::vector<std::int64_t> order = {0, rank - 1};
  for (int d = 1; d < rank - 1; ++d) order.push_back(d);
  return order;
}

std::vector<std::int64_t> channels_last_order(int rank) {
  std::vector<std::int64_t> order = {0};
  for (int d = 2; d < rank; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}

Shape channels_first(const Shape& shape) { return reordered(shape, channels_first_order(shape.rank())); }
Shape channels_last(const Shape& shape) { return reordered(shape, channels_last_order(shape.rank())); }

Window resolve_window(const OpView& op, const Shape& in, const Shape& kernel) {
  Window w = basics(op, in, kernel);
  const std::string_view mode = auto_pad(op);
  const bool ceil_mode = has_attribute(op, "ceil_mode") && op.i("ceil_mode") != 0;
  for (int d = 0; d < w.rank(); ++d) {
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      const std::int64_t out = (in[d] + w.strides[d] - 1) / w.strides[d];
      split_same(w, d, std::max<std::int64_t>(0, (out - 1) * w.strides[d] + w.span(d) - in[d]), mode == "SAME_UPPER");
      w.out.push_back(out);
      continue;
    }
    if (mode == "VALID") w.pads_begin[d] = w.pads_end[d] = 0;
    w.out.push_back(strided_extent(w, d, ceil_mode));
    op.require(in[d] == 0 || w.out.back() > 0,
               "the kernel covers {} elements along spatial axis {}, but the padded input has {}", w.span(d), d,
               in[d] + w.pads_begin[d] + w.pads_end[d]);
  }
  return w;
}

Window resolve_transposed_window(const OpView& op, const Shape& in, const Shape& kernel) {
  Window w = basics(op, in, kernel);
  const std::string_view mode = auto_pad(op);
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  const bool convolution = has_attribute(op, "output_padding");
  const auto extra = convolution ? op.attr_ints("output_padding") : std::span<const std::int64_t>{};
  auto wanted = convolution ? op.attr_ints("output_shape") : std::span<const std::int64_t>{};
  const auto rank = static_cast<std::size_t>(w.rank());
  if (wanted.size() == rank + 2) wanted = wanted.subspan(2);  // batch and channel are stated by some exporters
  op.require(extra.empty() || extra.size() == rank, "output_padding must have {} values, got {}", rank, extra.size());
  op.require(wanted.empty() || wanted.size() == rank, "output_shape must have {} values, got {}", rank, wanted.size());
  for (int d = 0; d < w.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t padding = extra.empty() ? 0 : extra[i];
    op.require(padding >= 0 && padding < kMost, "output_padding must not be negative, got {}", padding);
    const std::int64_t full = std::max<std::int64_t>(0, in[d] - 1) * w.strides[d] + padding + w.span(d);
    if (!wanted.empty() || same) {
      const std::int64_t out = wanted.empty() ? in[d] * w.strides[d] : wanted[i];
      op.require(out >= 0 && out < kMost, "output_shape must not be negative, got {}", out);
      const std::int64_t total = std::max<std::int64_t>(0, full - out);
      split_same(w, d, total, mode == "SAME_UPPER");
      w.out.push_back(in[d] == 0 && wanted.empty() ? 0 : out);
      continue;
    }
    if (mode == "VALID") w.pads_begin[d] = w.pads_end[d] = 0;
    const std::int64_t out = full - w.pads_begin[d] - w.pads_end[d];
    op.require(out >= 0, "the pads along spatial axis {} exceed the output: {} elements before padding is taken away",
               d, full);
    w.out.push_back(in[d] == 0 ? 0 : out);
  }
  return w;
}

}  // namespace lathe::ops
