// Sampling at places that data decides: GridSample and AffineGrid, pools over regions of interest, DeformConv.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/plain.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

// ---- GridSample ----

constexpr Attribute kGridSampleAttributes[] = {{"align_corners", 0}, {"mode", "linear"}, {"padding_mode", "zeros"}};

enum class Interpolation : std::uint8_t { linear, nearest, cubic };
enum class Padding : std::uint8_t { zeros, border, reflection };

struct GridSettings {
  Interpolation mode;
  Padding padding;
  bool align_corners;
};

GridSettings grid_settings(const OpView& op) {
  const std::string_view mode = op.s("mode"), padding = op.s("padding_mode");
  op.require(mode == "linear" || mode == "nearest" || mode == "cubic",
             "mode must be linear, nearest or cubic, got '{}'", shown(mode));
  op.require(padding == "zeros" || padding == "border" || padding == "reflection",
             "padding_mode must be zeros, border or reflection, got '{}'", shown(padding));
  return {mode == "linear"    ? Interpolation::linear
          : mode == "nearest" ? Interpolation::nearest
                              : Interpolation::cubic,
          padding == "zeros"    ? Padding::zeros
          : padding == "border" ? Padding::border
                                : Padding::reflection,
          op.i("align_corners") != 0};
}

Facts infer_grid_sample(const OpView& op) {
  const Shape &x = op.in(0).shape, &grid = op.in(1).shape;
  grid_settings(op);
  const DType dtype = op.in(0).dtype;
  op.require(x.rank() >= 3 && grid.rank() == x.rank(), "x and the grid must have one rank of at least 3, got {} and {}",
             x, grid);
  op.require(grid[0] == x[0] && grid.back() == x.rank() - 2,
             "the grid must have {} batches and end in {} coordinates, got shape {}", x[0], x.rank() - 2, grid);
  Shape out{x[0], x[1]};
  for (int d = 1; d + 1 < grid.rank(); ++d) out.push_back(grid[d]);
  op.require(spatial(x).elements() > 0 || out.elements() == 0, "x of shape {} has nothing to sample", x);
  return {Fact(dtype, out)};
}

/// Folds a position back at both borders until it lies between them.
double reflect(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  if (x >= low && x <= high) return x;
  const double away = x < low ? low - x : x - high;
  const double folds = std::floor(away / range), rest = away - folds * range;
  const bool even = std::fmod(folds, 2) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

/// What one axis of a sample contributes: up to four elements with their weights; -1 is an element that counts as 0.
struct AxisTaps {
  int count = 0;
  std::int64_t index[4];
  double weight[4];
};

std::int64_t padded_index(double i, std::int64_t extent, const GridSettings& s) {
  const auto last = static_cast<double>(extent - 1);
  if (i >= 0 && i <= last) return static_cast<std::int64_t>(i);
  if (s.padding == Padding::zeros || std::isnan(i)) return -1;
  if (s.padding == Padding::border) return i < 0 ? 0 : extent - 1;
  const double half = s.align_corners ? 0 : 0.5;
  return static_cast<std::int64_t>(std::clamp(reflect(i, -half, last + half), 0.0, last));
}

AxisTaps axis_taps(double normalized, std::int64_t extent, const GridSettings& s) {
  const auto n = static_cast<double>(extent);
  // Samples are placed in f32, as models are exported with: .5 decides between neighbours.
  double x = static_cast<float>(s.align_corners ? (normalized + 1) / 2 * (n - 1) : ((normalized + 1) * n - 1) / 2);
  if (s.mode == Interpolation::nearest) x = std::nearbyint(x);
  const double half = s.align_corners ? 0 : 0.5;
  if (x < -half || x > n - 1 + half) {
    if (s.padding == Padding::border) x = std::clamp(x, 0.0, n - 1);
    if (s.padding == Padding::reflection) x = reflect(x, -half, n - 1 + half);
  }
  AxisTaps t;
  if (s.mode == Interpolation::nearest) {
    t.count = 1;
    t.index[0] = padded_index(s.padding == Padding::reflection ? std::trunc(x) : x, extent, s);
    t.weight[0] = 1;
    return t;
  }
  const double base = std::floor(x), r = x - base;
  if (s.mode == Interpolation::linear) {
    t.count = 2;
    t.weight[0] = 1 - r;
    t.weight[1] = r;
  } else {
    constexpr double kA = -0.75;
    const auto far = [](double d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
    const auto near = [](double d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
    t.count = 4;
    t.weight[0] = far(r + 1);
    t.weight[1] = near(r);
    t.weight[2] = near(1 - r);
    t.weight[3] = far(2 - r);
  }
  for (int k = 0; k < t.count; ++k) t.index[k] = padded_index(base + k - (t.count == 4 ? 1 : 0), extent, s);
  return t;
}

/// Σ over the taps of axes [axis, end) of the product of their weights times the element.
double combine(const double* plane, const Shape& extents, const AxisTaps* taps, int axis, std::int64_t offset) {
  if (axis == extents.rank()) return plane[offset];
  double sum = 0;
  for (int k = 0; k < taps[axis].count; ++k) {
    if (taps[axis].index[k] < 0) continue;
    sum += taps[axis].weight[k] * combine(plane, extents, taps, axis + 1, offset * extents[axis] + taps[axis].index[k]);
  }
  return sum;
}

void kernel_grid_sample(KernelContext& ctx) {
  const GridSettings s = grid_settings(ctx.op());
  const Tensor x = ctx.in(0).cast(DType::f64), grid = ctx.in(1).cast(DType::f64);
  Tensor y(DType::f64, ctx.out(0).shape());
  const Shape extents = spatial(x.shape());
  const std::int64_t channels = x.shape()[1], in_plane = extents.elements();
  const std::int64_t places = extent_of(y.shape(), 2, y.shape().rank());
  const int axes = extents.rank();
  ctx.parallel(x.shape()[0] * places, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      AxisTaps taps[Shape::kMaxRank];
      const double* at = grid.view<double>().data() + p * axes;
      for (int d = 0; d < axes; ++d)
        taps[d] = axis_taps(at[axes - 1 - d], extents[d], s);  // the grid names the last axis first
      const std::int64_t n = p / places;
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* plane = x.view<double>().data() + (n * channels + c) * in_plane;
        y.mutable_view<double>()[static_cast<std::size_t>((n * channels + c) * places + p % places)] =
            combine(plane, extents, taps, 0, 0);
      }
    }
  });
  assign(ctx.out(0), y);
}

// ---- AffineGrid: the grid that an affine map of the output gives ----

constexpr Attribute kAffineGridAttributes[] = {{"align_corners", 0}};

Facts infer_affine_grid(const OpView& op) {
  const Shape& theta = op.in(0).shape;
  const std::vector<std::int64_t> size = op.ints(1);
  op.require(size.size() == 4 || size.size() == 5, "size must have 4 or 5 values, got {}", size.size());
  const auto axes = static_cast<std::int64_t>(size.size()) - 2;
  op.require(theta == Shape{size[0], axes, axes + 1}, "theta must have shape {}, got {}",
             Shape{size[0], axes, axes + 1}, theta);
  Shape out{size[0]};
  for (std::size_t d = 2; d < size.size(); ++d) {
    op.require(size[d] >= 0, "size must not be negative, got {}", size[d]);
    out.push_back(size[d]);
  }
  out.push_back(axes);
  return {Fact(op.in(0).dtype, out)};
}

std::vector<ValueId> lower_affine_grid(const OpView& op, Builder& b) {
  const bool align = op.i("align_corners") != 0;
  const auto number = [&](double v) { return b.scalar(DType::f64, v); };
  const ValueId theta = b.cast(op.id(0), DType::f64);
  const ValueId size = b.cast(op.id(1), DType::i64);
  const std::int64_t axes = op.in(0).shape[1];
  std::vector<std::int64_t> spatial_axes(static_cast<std::size_t>(axes));
  std::iota(spatial_axes.begin(), spatial_axes.end(), 1);
  /// The column of theta that belongs to a coordinate, [n, 1…, axes].
  const auto column = [&](std::int64_t j) {
    return b.unsqueeze(b.squeeze(b.slice(theta, {j}, {j + 1}, {2}), {2}), spatial_axes);
  };
  ValueId y = column(axes);
  for (std::int64_t d = 0; d < axes; ++d) {
    const ValueId extent = b.slice(size, {d + 2}, {d + 3}, {0});
    const ValueId n = b.cast(extent, DType::f64);
    const ValueId twice = b.mul(b.cast(b.counted(extent), DType::f64), number(2));
    ValueId at =
        align ? b.div(twice, b.op("Max", {b.sub(n, number(1)), number(1)})) : b.div(b.add(twice, number(1)), n);
    at = b.sub(at, number(1));
    std::vector<std::int64_t> others;  // of [n, spatial…, axes], all but this one
    for (std::int64_t o = 0; o < axes + 2; ++o) {
      if (o != d + 1) others.push_back(o);
    }
    y = b.add(y, b.mul(column(axes - 1 - d), b.unsqueeze(at, others)));  // theta's columns begin with the last axis
  }
  return {b.cast(y, op.in(0).dtype)};
}

// ---- RoiAlign ----

constexpr Attribute kRoiAlignAttributes[] = {{"coordinate_transformation_mode", "half_pixel"},
                                             {"mode", "avg"},
                                             {"output_height", 1},
                                             {"output_width", 1},
                                             {"sampling_ratio", 0},
                                             {"spatial_scale", 1.0}};
constexpr std::int64_t kMostPooled = 1 << 16;

Facts infer_roi_align(const OpView& op) {
  const Shape &x = op.in(0).shape, &rois = op.in(1).shape;
  op.require(x.rank() == 4, "x must have 4 dims, got shape {}", x);
  op.require(rois.rank() == 2 && rois[1] == 4, "rois must have shape regions x 4, got {}", rois);
  op.require(op.in(2).dtype == DType::i64 && op.in(2).shape == Shape{rois[0]},
             "batch_indices must be i64 of shape {}, got {}", Shape{rois[0]}, op.in(2).to_string());
  const std::string_view mode = op.s("mode"), transform = op.s("coordinate_transformation_mode");
  op.require(mode == "avg" || mode == "max", "mode must be avg or max, got '{}'", shown(mode));
  op.require(transform == "half_pixel" || transform == "output_half_pixel",
             "coordinate_transformation_mode must be half_pixel or output_half_pixel, got '{}'", shown(transform));
  const std::int64_t height = op.i("output_height"), width = op.i("output_width");
  op.require(height > 0 && width > 0 && height <= kMostPooled && width <= kMostPooled && op.i("sampling_ratio") >= 0 &&
                 op.i("sampling_ratio") <= kMostPooled,
             "output_height, output_width and sampling_ratio must be between 1 (0) and {}", kMostPooled);
  return {Fact(op.in(0).dtype, {rois[0], x[1], height, width})};
}

/// Four neighbours and their weights; all weights 0 where the place lies outside.
struct Neighbours {
  std::int64_t index[4] = {};
  double weight[4] = {};
};

Neighbours neighbours(double y, double x, std::int64_t height, std::int64_t width) {
  Neighbours n;
  if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width))) return n;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(width - 1));
  const auto top = static_cast<std::int64_t>(y), left = static_cast<std::int64_t>(x);
  const std::int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const double dy = y - static_cast<double>(top), dx = x - static_cast<double>(left);
  const std::int64_t index[] = {top * width + left, top * width + right, bottom * width + left, bottom * width + right};
  const double weight[] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
  std::copy_n(index, 4, n.index);
  std::copy_n(weight, 4, n.weight);
  return n;
}

struct Region {
  double top, left, bin_height, bin_width;
  std::int64_t samples_y, samples_x;  // per bin
};

Region region(const OpView& op, const Tensor& rois, std::int64_t r) {
  const double scale = op.f("spatial_scale");
  const bool half = op.s("coordinate_transformation_mode") == "half_pixel";
  const double offset = half ? 0.5 : 0;
  const auto corner = [&](std::int64_t k) { return rois.number(r * 4 + k) * scale - offset; };
  double width = corner(2) - corner(0), height = corner(3) - corner(1);
  if (!half) {
    width = std::max(width, 1.0);
    height = std::max(height, 1.0);
  }
  const auto rows = static_cast<double>(op.i("output_height")), columns = static_cast<double>(op.i("output_width"));
  const std::int64_t stated = op.i("sampling_ratio");
  const auto samples = [&](double extent) {
    return stated > 0 ? stated
                      : static_cast<std::int64_t>(std::clamp(std::ceil(extent), 0.0, static_cast<double>(kMostPooled)));
  };
  return {corner(1), corner(0), height / rows, width / columns, samples(height / rows), samples(width / columns)};
}

double pool_bin(const double* plane, const std::vector<Neighbours>& bin, bool average) {
  double result = 0;
  bool first = true;
  for (const Neighbours& n : bin) {
    if (average) {
      for (int k = 0; k < 4; ++k) result += n.weight[k] * plane[n.index[k]];
      continue;
    }
    double most = n.weight[0] * plane[n.index[0]];
    for (int k = 1; k < 4; ++k) most = std::max(most, n.weight[k] * plane[n.index[k]]);
    result = first ? most : std::max(result, most);
    first = false;
  }
  return average ? result / static_cast<double>(std::max<std::size_t>(bin.size(), 1)) : result;
}

void kernel_roi_align(KernelContext& ctx) {
  const Tensor x = ctx.in(0).cast(DType::f64), rois = ctx.in(1).cast(DType::f64);
  const auto batches = ctx.in<std::int64_t>(2);
  const std::int64_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  for (std::int64_t b : batches) {
    if (b < 0 || b >= x.shape()[0])
      ctx.error(ErrorCode::out_of_range, "batch index {} is outside [0, {})", b, x.shape()[0]);
  }
  Tensor y(DType::f64, ctx.out(0).shape());
  const std::int64_t rows = y.shape()[2], columns = y.shape()[3];
  const bool average = ctx.op().s("mode") == "avg";
  if (height * width == 0) return assign(ctx.out(0), y);
  ctx.parallel(y.shape()[0] * rows * columns, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Neighbours> bin;
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t r = p / (rows * columns), i = p / columns % rows, j = p % columns;
      const Region g = region(ctx.op(), rois, r);
      bin.clear();
      for (std::int64_t v = 0; v < g.samples_y; ++v) {
        for (std::int64_t u = 0; u < g.samples_x; ++u) {
          const double sample_y =
              (static_cast<double>(v) + 0.5) / static_cast<double>(g.samples_y) + static_cast<double>(i);
          const double sample_x =
              (static_cast<double>(u) + 0.5) / static_cast<double>(g.samples_x) + static_cast<double>(j);
          bin.push_back(neighbours(g.top + sample_y * g.bin_height, g.left + sample_x * g.bin_width, height, width));
        }
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* plane =
            x.view<double>().data() + (batches[static_cast<std::size_t>(r)] * channels + c) * height * width;
        y.mutable_view<double>()[static_cast<std::size_t>(((r * channels + c) * rows + i) * columns + j)] =
            pool_bin(plane, bin, average);
      }
    }
  });
  assign(ctx.out(0), y);
}

// ---- MaxRoiPool: rois [regions, 5] of batch, left, top, right, bottom ----

constexpr Attribute kMaxRoiPoolAttributes[] = {{"pooled_shape", AttrKind::integers, Attribute::kRequired},
                                               {"spatial_scale", 1.0}};

Facts infer_max_roi_pool(const OpView& op) {
  const Shape &x = op.in(0).shape, &rois = op.in(1).shape;
  op.require(x.rank() == 4 && rois.rank() == 2 && rois[1] == 5,
             "x must have 4 dims and rois shape regions x 5, got {} and {}", x, rois);
  const auto pooled = op.attr_ints("pooled_shape");
  op.require(
      pooled.size() == 2 && pooled[0] > 0 && pooled[1] > 0 && pooled[0] <= kMostPooled && pooled[1] <= kMostPooled,
      "pooled_shape must be two extents between 1 and {}", kMostPooled);
  return {Fact(op.in(0).dtype, {rois[0], x[1], pooled[0], pooled[1]})};
}

/// The elements [first, second) that bin `k` of a region covers along an axis.
std::pair<std::int64_t, std::int64_t> bin_range(double begin, double end, std::int64_t k, std::int64_t bins,
                                                std::int64_t extent) {
  const double size = std::max(end - begin + 1, 1.0) / static_cast<double>(bins);
  const auto clamped = [&](double v) {
    return static_cast<std::int64_t>(std::clamp(v + begin, 0.0, static_cast<double>(extent)));
  };
  return {clamped(std::floor(static_cast<double>(k) * size)), clamped(std::ceil(static_cast<double>(k + 1) * size))};
}

void kernel_max_roi_pool(KernelContext& ctx) {
  const Tensor x = ctx.in(0).cast(DType::f64), rois = ctx.in(1).cast(DType::f64);
  const double scale = ctx.op().f("spatial_scale");
  const std::int64_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  Tensor y(DType::f64, ctx.out(0).shape());
  const std::int64_t rows = y.shape()[2], columns = y.shape()[3];
  double* out = y.mutable_view<double>().data();
  for (std::int64_t r = 0; r < y.shape()[0]; ++r) {
    const std::int64_t batch = rois.integer(r * 5);
    if (batch < 0 || batch >= x.shape()[0])
      ctx.error(ErrorCode::out_of_range, "batch index {} is outside [0, {})", batch, x.shape()[0]);
    const auto edge = [&](std::int64_t k) { return std::round(rois.number(r * 5 + k) * scale); };
    for (std::int64_t c = 0; c < channels; ++c) {
      const double* plane = x.view<double>().data() + (batch * channels + c) * height * width;
      for (std::int64_t i = 0; i < rows; ++i) {
        const auto [top, bottom] = bin_range(edge(2), edge(4), i, rows, height);
        for (std::int64_t j = 0; j < columns; ++j) {
          const auto [left, right] = bin_range(edge(1), edge(3), j, columns, width);
          const bool empty = top >= bottom || left >= right;
          double most = empty ? 0 : plane[top * width + left];
          for (std::int64_t v = top; v < bottom; ++v) {
            for (std::int64_t u = left; u < right; ++u) most = std::max(most, plane[v * width + u]);
          }
          *out++ = most;
        }
      }
    }
  }
  assign(ctx.out(0), y);
}

// ---- DeformConv: a convolution whose kernel positions are moved by `offset` and weighted by `mask` ----

constexpr Attribute kDeformConvAttributes[] = {{"dilations", AttrKind::integers},    {"group", 1},
                                               {"kernel_shape", AttrKind::integers}, {"offset_group", 1},
                                               {"pads", AttrKind::integers},         {"strides", AttrKind::integers}};
enum DeformInput { kX, kW, kOffset, kB, kMask };

Facts infer_deform_conv(const OpView& op) {
  const Shape &x = op.in(kX).shape, &w = op.in(kW).shape;
  op.require(x.rank() == 4 && w.rank() == 4, "x and the weights must have 4 dims, got {} and {}", x, w);
  const std::int64_t group = op.i("group"), offset_group = op.i("offset_group");
  op.require(group > 0 && offset_group > 0 && group < (1 << 20) && x[1] == w[1] * group && w[0] % group == 0 &&
                 x[1] % offset_group == 0,
             "{} channels of x and weights {} do not fit {} groups and {} offset groups", x[1], w, group, offset_group);
  const auto stated = op.attr_ints("kernel_shape");
  op.require(stated.empty() || Shape(stated) == spatial(w), "kernel_shape is {}, but the weights have shape {}",
             Shape(stated), w);
  const Window window = resolve_window(op, spatial(x), spatial(w));
  const std::int64_t kernel = window.kernel.elements();
  op.require(offset_group < (1 << 20) && kernel < (std::int64_t{1} << 32), "the kernel is too large");
  const Shape offset{x[0], offset_group * kernel * 2, window.out[0], window.out[1]};
  op.require(op.in(kOffset).shape == offset, "offset must have shape {}, got {}", offset, op.in(kOffset).shape);
  if (op.has(kB))
    op.require(op.in(kB).shape == Shape{w[0]}, "the bias must have shape {}, got {}", Shape{w[0]}, op.in(kB).shape);
  const Shape mask{x[0], offset_group * kernel, window.out[0], window.out[1]};
  if (op.has(kMask))
    op.require(op.in(kMask).shape == mask, "mask must have shape {}, got {}", mask, op.in(kMask).shape);
  return {Fact(op.in(kX).dtype, {x[0], w[0], window.out[0], window.out[1]})};
}

double bilinear(const double* plane, std::int64_t height, std::int64_t width, double y, double x) {
  const double top = std::floor(y), left = std::floor(x);
  double sum = 0;
  for (int k = 0; k < 4; ++k) {
    const double row = top + (k >> 1), column = left + (k & 1);
    if (!(row >= 0 && row < static_cast<double>(height) && column >= 0 && column < static_cast<double>(width)))
      continue;
    const double weight = (1 - std::fabs(y - row)) * (1 - std::fabs(x - column));
    sum += weight * plane[static_cast<std::int64_t>(row) * width + static_cast<std::int64_t>(column)];
  }
  return sum;
}

void kernel_deform_conv(KernelContext& ctx) {
  const OpView& op = ctx.op();
  const Tensor x = ctx.in(kX).cast(DType::f64), w = ctx.in(kW).cast(DType::f64),
               offset = ctx.in(kOffset).cast(DType::f64);
  const Window window = resolve_window(op, spatial(x.shape()), spatial(w.shape()));
  const std::int64_t channels = x.shape()[1], height = x.shape()[2], width = x.shape()[3],
                     kernel = window.kernel.elements();
  const std::int64_t per_offset = channels / op.i("offset_group"), per_group = w.shape()[1], outputs = w.shape()[0];
  const std::int64_t out_plane = window.out.elements(), columns = window.out[1];
  Tensor y(DType::f64, ctx.out(0).shape());
  ctx.parallel(x.shape()[0] * out_plane, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> samples(static_cast<std::size_t>(channels * kernel));
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t n = p / out_plane, place = p % out_plane;
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* plane = x.view<double>().data() + (n * channels + c) * height * width;
        for (std::int64_t k = 0; k < kernel; ++k) {
          const std::int64_t at = (n * op.i("offset_group") + c / per_offset) * kernel + k;
          const auto moved = [&](int d, std::int64_t o, std::int64_t q) {
            return static_cast<double>(o * window.strides[d] - window.pads_begin[d] + q * window.dilations[d]) +
                   offset.view<double>()[static_cast<std::size_t>((at * 2 + d) * out_plane + place)];
          };
          const double value = bilinear(plane, height, width, moved(0, place / columns, k / window.kernel[1]),
                                        moved(1, place % columns, k % window.kernel[1]));
          samples[static_cast<std::size_t>(c * kernel + k)] =
              value * (ctx.has(kMask) ? ctx.in(kMask).number(at * out_plane + place) : 1);
        }
      }
      for (std::int64_t m = 0; m < outputs; ++m) {
        const double* from = samples.data() + m / (outputs / op.i("group")) * per_group * kernel;
        const double* weights = w.view<double>().data() + m * per_group * kernel;
        double sum = ctx.has(kB) ? ctx.in(kB).number(m) : 0;
        for (std::int64_t i = 0; i < per_group * kernel; ++i) sum += from[i] * weights[i];
        y.mutable_view<double>()[static_cast<std::size_t>((n * outputs + m) * out_plane + place)] = sum;
      }
    }
  });
  assign(ctx.out(0), y);
}

}  // namespace

extern const OpDef op_grid_sample;
constinit const OpDef op_grid_sample = {
    .name = "GridSample",
    .inputs = 2,
    .attributes = kGridSampleAttributes,
    .forms = {16, 22},
    .takes = {{kNumbers | kPacked | DType::boolean, inputs(0)}, {kFloats, inputs(1)}},
    .infer = infer_grid_sample,
    .kernel = kernel_grid_sample};

extern const OpDef op_affine_grid;
constinit const OpDef op_affine_grid = {.name = "AffineGrid",
                                        .inputs = 2,
                                        .attributes = kAffineGridAttributes,
                                        .forms = {20, 20},
                                        .takes = {{kFloats, inputs(0)}, {kIndices, inputs(1)}},
                                        .shape_inputs = 1U << 1,
                                        .infer = infer_affine_grid,
                                        .lower = lower_affine_grid};

extern const OpDef op_roi_align;
constinit const OpDef op_roi_align = {.name = "RoiAlign",
                                      .inputs = 3,
                                      .attributes = kRoiAlignAttributes,
                                      .forms = {10, 22},
                                      .takes = {{kFloats, inputs(0, 1)}, {DType::i64, inputs(2)}},
                                      .infer = infer_roi_align,
                                      .kernel = kernel_roi_align};

extern const OpDef op_max_roi_pool;
constinit const OpDef op_max_roi_pool = {.name = "MaxRoiPool",
                                         .inputs = 2,
                                         .attributes = kMaxRoiPoolAttributes,
                                         .forms = 22,
                                         .takes = kFloats,
                                         .infer = infer_max_roi_pool,
                                         .kernel = kernel_max_roi_pool};

extern const OpDef op_deform_conv;
constinit const OpDef op_deform_conv = {.name = "DeformConv",
                                        .inputs = {3, 5},
                                        .attributes = kDeformConvAttributes,
                                        .forms = {19, 22},
                                        .takes = kFloats,
                                        .infer = infer_deform_conv,
                                        .kernel = kernel_deform_conv};

}  // namespace lathe::ops
