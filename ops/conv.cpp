// Convolutions: Conv and ConvInteger as contractions over input channels and kernel positions, QLinearConv said through
// ConvInteger, ConvTranspose scattering each input element through the kernel.
#include <algorithm>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"
#include "ops/ir/loop_builder.h"
#include "ops/plain.h"
#include "ops/quantize.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

constexpr Attribute kConvAttributes[] = {
    {"auto_pad", "NOTSET"},       {"dilations", AttrKind::integers}, {"group", 1}, {"kernel_shape", AttrKind::integers},
    {"pads", AttrKind::integers}, {"strides", AttrKind::integers}};

/// The kernel's extents, which kernel_shape may repeat.
Shape kernel_extents(const OpView& op, const Shape& weights) {
  const Shape kernel = spatial(weights);
  const auto stated = op.attr_ints("kernel_shape");
  op.require(stated.empty() || Shape(stated) == kernel, "kernel_shape is {}, but the weights have shape {}",
             Shape(stated), weights);
  return kernel;
}

/// Checks what every convolution demands of x (input `x_index`) and its weights; true to `transposed` where weights
/// come input channels first.
void check_channels(const OpView& op, const Shape& x, const Shape& w, bool transposed) {
  op.require(x.rank() >= 3, "x must have a batch, a channel and at least one spatial axis, got shape {}", x);
  op.require(w.rank() == x.rank(), "the weights must have rank {} like x, got shape {}", x.rank(), w);
  const std::int64_t group = op.i("group");
  op.require(group >= 1, "group must be positive, got {}", group);
  if (transposed) {
    op.require(x[1] == w[0], "x has {} channels, the weights {}", x[1], w[0]);
    op.require(x[1] % group == 0, "{} input channels do not divide into {} groups", x[1], group);
  } else {
    op.require(w[1] < (std::int64_t{1} << 40) && x[1] == w[1] * group,
               "x has {} channels, the weights {} in each of {} groups", x[1], w[1], group);
    op.require(w[0] % group == 0, "{} output channels do not divide into {} groups", w[0], group);
  }
}

void check_bias(const OpView& op, int i, std::int64_t channels) {
  if (!op.has(i)) return;
  op.require(op.in(i).shape == Shape{channels}, "the bias must have shape {}, got {}", Shape{channels}, op.in(i).shape);
}

Shape conv_output(const OpView& op, const Shape& x, const Shape& w) {
  check_channels(op, x, w, false);
  Shape out{x[0], w[0]};
  for (std::int64_t extent : resolve_window(op, spatial(x), kernel_extents(op, w)).out) out.push_back(extent);
  return out;
}

struct ConvOperands {
  Scalar x, w;
};

/// The input channel that output channel `m` reads at position `c` of its group.
Coord input_channel(LoopBuilder& b, const Shape& w, std::int64_t group, Coord m, Coord c) {
  if (group == 1) return c;
  if (w[1] == 1 && w[0] == group) return m;
  const Scalar which = b.binary(loops::Op::div, b.coordinate(m), b.number_int(DType::i64, w[0] / group));
  const Scalar first = b.binary(loops::Op::mul, which, b.number_int(DType::i64, w[1]));
  return b.indirect(b.binary(loops::Op::add, first, b.coordinate(c)), w[1] * group);
}

/// x and w under the reduced loops; where x lies in the padding it is `padding`.
ConvOperands operands(const OpView& op, LoopBuilder& b, int w_index, const Coords& at, Scalar padding) {
  const Shape& w = op.in(w_index).shape;
  const Window window = resolve_window(op, spatial(op.in(0).shape), spatial(w));
  std::vector<std::int64_t> extents{w[1]};
  extents.insert(extents.end(), window.kernel.begin(), window.kernel.end());
  const std::vector<Coord> inner = b.inner(extents);

  Coords x_at, w_at;
  std::vector<int> checked;
  x_at.push_back(at[0]);
  x_at.push_back(input_channel(b, w, op.i("group"), at[1], inner[0]));
  w_at.push_back(at[1]);
  w_at.push_back(inner[0]);
  for (int d = 0; d < window.rank(); ++d) {
    const Coord k = inner[static_cast<std::size_t>(d) + 1];
    x_at.push_back(window.position(d, at[d + 2], k));
    w_at.push_back(k);
    if (window.pads_begin[d] != 0 || window.pads_end[d] != 0) checked.push_back(d + 2);
  }
  return {checked.empty() ? b.in(0, x_at) : b.in_or(0, x_at, checked, padding), b.in(w_index, w_at)};
}

// ---- Conv ----

Facts infer_conv(const OpView& op) {
  const Shape out = conv_output(op, op.in(0).shape, op.in(1).shape);
  check_bias(op, 2, out[1]);
  return {Fact(op.in(0).dtype, out)};
}

Scalar expr_conv(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const ConvOperands o = operands(op, b, 1, at, b.constant(op.in(0).dtype, 0));
  const Scalar sum = b.reduce(loops::Reduction::sum, b.binary(loops::Op::mul, o.x, o.w));
  if (!op.has(2)) return sum;
  Coords channel;
  channel.push_back(at[1]);
  return b.binary(loops::Op::add, sum, b.in(2, channel));
}

// ---- ConvInteger: padding stands for the zero point, so it contributes nothing ----

void check_zero_points(const OpView& op, int x_zero, int w_zero, const Shape& w) {
  if (op.has(x_zero))
    op.require(op.in(x_zero).shape.elements() == 1, "x's zero point must be one value, got shape {}",
               op.in(x_zero).shape);
  if (op.has(w_zero)) {
    const Shape& zero = op.in(w_zero).shape;
    op.require(zero.elements() == 1 || zero == Shape{w[0]},
               "the weights' zero point must be one value or one per output channel, got shape {}", zero);
  }
}

Facts infer_conv_integer(const OpView& op) {
  const Shape out = conv_output(op, op.in(0).shape, op.in(1).shape);
  check_zero_points(op, 2, 3, op.in(1).shape);
  return {Fact(DType::i32, out)};
}

Scalar zero_point(const OpView& op, LoopBuilder& b, int i, const Coords& at, bool cast) {
  Coords c;
  const Shape& shape = op.in(i).shape;
  for (int d = 0; d < shape.rank(); ++d) c.push_back(shape[d] == 1 ? Coord{} : at[1]);
  const Scalar zero = b.in(i, c);
  return cast ? b.cast(zero, DType::i32) : zero;
}

/// 1 where the window lies inside x, 0 in the padding.
Scalar inside(const OpView& op, LoopBuilder& b, const Window& window, const Coords& at,
              const std::vector<Coord>& inner) {
  Scalar all = b.constant_int(DType::boolean, 1);
  for (int d = 0; d < window.rank(); ++d) {
    if (window.pads_begin[d] == 0 && window.pads_end[d] == 0) continue;
    const Scalar p = b.coordinate(window.position(d, at[d + 2], inner[static_cast<std::size_t>(d) + 1]));
    const Scalar low = b.binary(loops::Op::greater_equal, p, b.constant_int(DType::i64, 0));
    const Scalar high = b.binary(loops::Op::less, p, b.number_int(DType::i64, op.in(0).shape[d + 2]));
    all = b.binary(loops::Op::logical_and, all, b.binary(loops::Op::logical_and, low, high));
  }
  return all;
}

Scalar expr_conv_integer(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Shape& w_shape = op.in(1).shape;
  const Window window = resolve_window(op, spatial(op.in(0).shape), spatial(w_shape));
  const ConvOperands o = operands(op, b, 1, at, b.constant_int(op.in(0).dtype, 0));
  Scalar x = b.cast(o.x, DType::i32);
  Scalar w = b.cast(o.w, DType::i32);
  if (op.has(2)) {
    x = b.binary(loops::Op::sub, x, zero_point(op, b, 2, at, true));
    if (window.may_reach_outside(false)) {
      std::vector<std::int64_t> extents{w_shape[1]};
      extents.insert(extents.end(), window.kernel.begin(), window.kernel.end());
      x = b.select(inside(op, b, window, at, b.inner(extents)), x, b.constant_int(DType::i32, 0));
    }
  }
  if (op.has(3)) w = b.binary(loops::Op::sub, w, zero_point(op, b, 3, at, true));
  return b.reduce(loops::Reduction::sum, b.binary(loops::Op::mul, x, w));
}

// ---- QLinearConv ----

Facts infer_qlinear_conv(const OpView& op) {
  const Shape out = conv_output(op, op.in(0).shape, op.in(3).shape);
  check_zero_points(op, 2, 5, op.in(3).shape);
  const Shape& scale = op.in(4).shape;
  op.require(op.in(1).shape.elements() == 1 && op.in(6).shape.elements() == 1 && op.in(7).shape.elements() == 1,
             "scales and zero points of x and y must be one value");
  op.require(scale.elements() == 1 || scale == Shape{out[1]},
             "the weights' scale must be one value or one per output channel, got shape {}", scale);
  check_bias(op, 8, out[1]);
  return {Fact(op.in(7).dtype, out)};
}

std::vector<ValueId> lower_qlinear_conv(const OpView& op, Builder& b) {
  std::vector<std::int64_t> axes;  // a value per channel becomes [channels, 1, …]
  for (int d = 1; d + 1 < op.in(0).rank(); ++d) axes.push_back(d);
  const auto per_channel = [&](ValueId v) { return b.fact(v).rank() == 1 ? b.unsqueeze(v, axes) : v; };
  ValueId sum = b.op("ConvInteger", {op.id(0), op.id(3), op.id(2), op.id(5)}, op.node().attributes);
  if (op.has(8)) sum = b.add(sum, per_channel(op.id(8)));
  const auto one = [&](ValueId v) { return b.fact(v).rank() == 0 ? v : b.reshape(v, std::vector<std::int64_t>{}); };
  return {requantize(b, b.cast(sum, DType::f32), one(op.id(1)), per_channel(op.id(4)), one(op.id(6)), one(op.id(7)))};
}

// ---- ConvTranspose ----

constexpr Attribute kConvTransposeAttributes[] = {{"auto_pad", "NOTSET"},
                                                  {"dilations", AttrKind::integers},
                                                  {"group", 1},
                                                  {"kernel_shape", AttrKind::integers},
                                                  {"output_padding", AttrKind::integers},
                                                  {"output_shape", AttrKind::integers},
                                                  {"pads", AttrKind::integers},
                                                  {"strides", AttrKind::integers}};

Facts infer_conv_transpose(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const Shape& w = op.in(1).shape;
  check_channels(op, x, w, true);
  const std::int64_t group = op.i("group");
  op.require(w[1] < (std::int64_t{1} << 40) && group < (std::int64_t{1} << 20),
             "{} output channels in each of {} groups are too many", w[1], group);
  Shape out{x[0], w[1] * group};
  for (std::int64_t extent : resolve_transposed_window(op, spatial(x), kernel_extents(op, w)).out)
    out.push_back(extent);
  check_bias(op, 2, out[1]);
  return {Fact(op.in(0).dtype, out)};
}

/// Steps through all positions of a shape in row-major order; false at the end.
bool advance(Shape& position, const Shape& extents) {
  for (int d = extents.rank() - 1; d >= 0; --d) {
    if (++position[d] < extents[d]) return true;
    position[d] = 0;
  }
  return false;
}

std::int64_t product(const Shape& shape) { return shape.elements(); }

/// Adds one input plane times one kernel plane to one output plane.
template <class T>
void scatter_plane(const Window& w, const T* x, const T* kernel, T* y) {
  if (product(w.in) == 0 || product(w.out) == 0) return;
  const int last = w.rank() - 1;
  Shape k = Shape::filled(w.rank(), 0);
  do {
    const T weight = *kernel++;
    Shape lines = w.in;
    lines[last] = 1;
    Shape i = Shape::filled(w.rank(), 0);
    const T* line = x;
    // The input columns whose target lies inside the output.
    const std::int64_t shift = k[last] * w.dilations[last] - w.pads_begin[last];
    const std::int64_t stride = w.strides[last];
    const std::int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    const std::int64_t end =
        w.out[last] > shift ? std::min(w.in[last], (w.out[last] - shift + stride - 1) / stride) : 0;
    do {
      std::int64_t target = 0;
      bool in_range = true;
      for (int d = 0; d < last && in_range; ++d) {
        const std::int64_t o = i[d] * w.strides[d] + k[d] * w.dilations[d] - w.pads_begin[d];
        in_range = o >= 0 && o < w.out[d];
        target = target * w.out[d] + o;
      }
      if (in_range) {
        T* out = y + target * w.out[last];
        for (std::int64_t c = first; c < end; ++c) out[c * stride + shift] += line[c] * weight;
      }
      line += w.in[last];
    } while (advance(i, lines));
  } while (advance(k, w.kernel));
}

template <class T>
void conv_transpose(KernelContext& ctx, const Tensor& x, const Tensor& weights, const Tensor& bias, Tensor& y) {
  const Window w = resolve_transposed_window(ctx.op(), spatial(x.shape()), spatial(weights.shape()));
  const std::int64_t group = ctx.op().i("group");
  const std::int64_t in_per_group = x.shape()[1] / group;
  const std::int64_t out_per_group = weights.shape()[1];
  const std::int64_t in_plane = product(w.in), out_plane = product(w.out), kernel_plane = product(w.kernel);
  const T* px = x.view<T>().data();
  const T* pw = weights.view<T>().data();
  const T* pb = bias.defined() ? bias.view<T>().data() : nullptr;
  T* py = y.mutable_view<T>().data();
  const std::int64_t planes = x.shape()[0] * group * out_per_group;
  ctx.parallel(planes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t n = plane / (group * out_per_group);
      const std::int64_t m = plane % (group * out_per_group);
      const std::int64_t g = m / out_per_group;
      T* out = py + plane * out_plane;
      std::fill_n(out, out_plane, pb != nullptr ? pb[m] : T{0});
      for (std::int64_t c = g * in_per_group; c < (g + 1) * in_per_group; ++c) {
        scatter_plane(w, px + (n * group * in_per_group + c) * in_plane,
                      pw + (c * out_per_group + m % out_per_group) * kernel_plane, out);
      }
    }
  });
}

void kernel_conv_transpose(KernelContext& ctx) {
  Tensor y = ctx.out(0);
  const Tensor x = widened(ctx, ctx.in(0)), weights = widened(ctx, ctx.in(1));
  const Tensor bias = ctx.has(2) ? widened(ctx, ctx.in(2)) : Tensor();
  Tensor wide = x.dtype() == y.dtype() ? y : ctx.temporary(DType::f32, y.shape());
  if (y.dtype() == DType::f64) return conv_transpose<double>(ctx, x, weights, bias, wide);
  conv_transpose<float>(ctx, x, weights, bias, wide);
  if (wide.dtype() != y.dtype()) assign(y, wide);
}

}  // namespace

extern const OpDef op_conv;
constinit const OpDef op_conv = {.name = "Conv",
                                 .inputs = {2, 3},
                                 .attributes = kConvAttributes,
                                 .forms = 22,
                                 .takes = kFloats,
                                 .infer = infer_conv,
                                 .expr = expr_conv,
                                 .contraction = true};

extern const OpDef op_conv_integer;
constinit const OpDef op_conv_integer = {.name = "ConvInteger",
                                         .inputs = {2, 4},
                                         .attributes = kConvAttributes,
                                         .forms = {10, 10},
                                         .takes = {{kBytes, inputs(0, 2)}, {kBytes, inputs(1, 3)}},
                                         .infer = infer_conv_integer,
                                         .expr = expr_conv_integer,
                                         .contraction = true};

extern const OpDef op_qlinear_conv;
constinit const OpDef op_qlinear_conv = {.name = "QLinearConv",
                                         .inputs = {8, 9},
                                         .attributes = kConvAttributes,
                                         .forms = {10, 10},
                                         .takes = {{kBytes, inputs(0, 2)},
                                                   {DType::f32, inputs(1)},
                                                   {kBytes, inputs(3, 5)},
                                                   {DType::f32, inputs(4)},
                                                   {DType::f32, inputs(6)},
                                                   {kBytes, inputs(7)},
                                                   {DType::i32, inputs(8)}},
                                         .infer = infer_qlinear_conv,
                                         .lower = lower_qlinear_conv};

extern const OpDef op_conv_transpose;
constinit const OpDef op_conv_transpose = {.name = "ConvTranspose",
                                           .inputs = {2, 3},
                                           .attributes = kConvTransposeAttributes,
                                           .forms = 22,
                                           .takes = kFloats,
                                           .infer = infer_conv_transpose,
                                           .kernel = kernel_conv_transpose,
                                           .real_time = true,
                                           .contraction = true};

}  // namespace lathe::ops
