// Resize: each resized axis is a `lathe::Resample` through a table of input positions and weights per output position,
// which `lathe::ResizeTable` computes from shapes, scales and sizes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

// ---- what the attributes say ----

enum class Mode : std::uint8_t { nearest, linear, cubic };
enum class Transform : std::uint8_t {
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_crop_and_resize,
};
enum class Nearest : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };

constexpr std::string_view kModes[] = {"nearest", "linear", "cubic"};
constexpr std::string_view kTransforms[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                            "align_corners", "asymmetric",           "tf_crop_and_resize"};
constexpr std::string_view kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
constexpr std::string_view kPolicies[] = {"stretch", "not_larger", "not_smaller"};

/// The position of a string attribute's value in a list of names.
template <std::size_t N>
std::size_t choice(const OpView& op, std::string_view attribute, const std::string_view (&names)[N]) {
  const std::string_view value = op.s(attribute);
  const auto found = std::find(std::begin(names), std::end(names), value);
  op.require(found != std::end(names), "{} '{}' is unknown", attribute, shown(value));
  return static_cast<std::size_t>(found - std::begin(names));
}

struct Settings {
  Mode mode;
  Transform transform;
  Nearest nearest;
  bool antialias, exclude_outside;
  double cubic_a;
};

Settings settings(const OpView& op) {
  return {static_cast<Mode>(choice(op, "mode", kModes)),
          static_cast<Transform>(choice(op, "coordinate_transformation_mode", kTransforms)),
          static_cast<Nearest>(choice(op, "nearest_mode", kNearest)),
          op.i("antialias") != 0,
          op.i("exclude_outside") != 0,
          op.f("cubic_coeff_a")};
}

std::vector<int> resized_axes(const OpView& op, int rank) {
  std::vector<int> axes;
  for (std::int64_t a : op.attr_ints("axes")) axes.push_back(op.axis(a, rank, "axes"));
  if (!op.has_attr("axes")) {
    for (int d = 0; d < rank; ++d) axes.push_back(d);
  }
  return axes;
}

// ---- scales and output extents ----

struct Target {
  std::vector<double> scales;  // per axis of x
  Shape out;
};

constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;

void target_from_scales(const OpView& op, const Tensor& scales, const std::vector<int>& axes, Target& t) {
  op.require(scales.dtype() == DType::f32 && scales.size() == static_cast<std::int64_t>(axes.size()),
             "scales must be {} f32 values, got {} {}", axes.size(), scales.size(), scales.dtype());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto scale = static_cast<float>(scales.number(static_cast<std::int64_t>(i)));
    op.require(scale > 0 && std::isfinite(scale), "scales must be positive, got {}", scale);
    const float extent = std::floor(static_cast<float>(t.out[axes[i]]) * scale);
    op.require(extent < static_cast<float>(kMostExtent), "a scale of {} makes axis {} too large", scale, axes[i]);
    t.scales[static_cast<std::size_t>(axes[i])] = scale;
    t.out[axes[i]] = static_cast<std::int64_t>(extent);
  }
}

void target_from_sizes(const OpView& op, const Tensor& sizes, const std::vector<int>& axes, Target& t) {
  op.require(sizes.dtype() == DType::i64 && sizes.size() == static_cast<std::int64_t>(axes.size()),
             "sizes must be {} i64 values, got {} {}", axes.size(), sizes.size(), sizes.dtype());
  const std::size_t policy = choice(op, "keep_aspect_ratio_policy", kPolicies);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t size = sizes.integer(static_cast<std::int64_t>(i));
    op.require(size >= 0 && size < kMostExtent, "sizes must be between 0 and {}, got {}", kMostExtent - 1, size);
    const std::int64_t in = t.out[axes[i]];
    wanted.push_back(in == 0 ? 1.0 : static_cast<double>(size) / static_cast<double>(in));
    if (policy == 0) t.out[axes[i]] = size;
  }
  if (policy != 0 && !wanted.empty()) {
    const double common =
        policy == 1 ? *std::min_element(wanted.begin(), wanted.end()) : *std::max_element(wanted.begin(), wanted.end());
    std::fill(wanted.begin(), wanted.end(), common);
    for (int axis : axes)
      t.out[axis] = static_cast<std::int64_t>(std::floor(common * static_cast<double>(t.out[axis]) + 0.5));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) t.scales[static_cast<std::size_t>(axes[i])] = wanted[i];
}

Target target(const OpView& op, const Shape& in, const Tensor* scales, const Tensor* sizes) {
  const bool by_scales = scales != nullptr && scales->size() != 0;
  const bool by_sizes = sizes != nullptr && sizes->size() != 0;
  op.require(by_scales != by_sizes || in.rank() == 0, "exactly one of scales and sizes must be given");
  Target t{std::vector<double>(static_cast<std::size_t>(in.rank()), 1.0), in};
  const std::vector<int> axes = resized_axes(op, in.rank());
  if (by_scales) target_from_scales(op, *scales, axes, t);
  if (by_sizes) target_from_sizes(op, *sizes, axes, t);
  for (int d = 0; d < in.rank(); ++d) {
    op.require(in[d] > 0 || t.out[d] == 0, "axis {} has no elements to make {} of", d, t.out[d]);
  }
  return t;
}

// ---- the table of one axis ----

struct AxisMap {
  std::int64_t in, out;
  double scale, roi_begin, roi_end;
};

/// Which position of the input lies under one of the output, computed in T.
template <class T>
T position_in(const AxisMap& m, Transform transform, std::int64_t position) {
  const auto x = static_cast<T>(position), in = static_cast<T>(m.in), out = static_cast<T>(m.out);
  const auto scale = static_cast<T>(m.scale);
  const T resized = static_cast<T>(m.scale * static_cast<double>(m.in));  // not rounded to an extent
  constexpr T kHalf = 0.5;
  switch (transform) {
    case Transform::half_pixel:
      return (x + kHalf) / scale - kHalf;
    case Transform::half_pixel_symmetric:
      return in / 2 * (1 - out / resized) + (x + kHalf) / scale - kHalf;
    case Transform::pytorch_half_pixel:
      return m.out > 1 ? (x + kHalf) / scale - kHalf : 0;
    case Transform::align_corners:
      return resized == 1 ? 0 : x * (in - 1) / (resized - 1);
    case Transform::asymmetric:
      return x / scale;
    case Transform::tf_crop_and_resize: {
      const T begin = static_cast<T>(m.roi_begin) * (in - 1);
      const T span = static_cast<T>(m.roi_end - m.roi_begin) * (in - 1);
      return resized == 1 ? begin + span / 2 : begin + x * span / (resized - 1);
    }
  }
  return x;
}

/// Nearest positions in f32, as models are exported with: one that rounds to a whole one there decides which neighbour
/// is the nearest. Between neighbours, in f64.
double original_position(const AxisMap& m, const Settings& s, std::int64_t position) {
  return s.mode == Mode::nearest ? static_cast<double>(position_in<float>(m, s.transform, position))
                                 : position_in<double>(m, s.transform, position);
}

double nearest_position(double x, Nearest nearest) {
  switch (nearest) {
    case Nearest::round_prefer_floor:
      return std::ceil(x - 0.5);
    case Nearest::round_prefer_ceil:
      return std::floor(x + 0.5);
    case Nearest::floor:
      return std::floor(x);
    case Nearest::ceil:
      return std::ceil(x);
  }
  return x;
}

double filter(const Settings& s, double distance) {
  const double x = std::abs(distance), a = s.cubic_a;
  if (s.mode == Mode::linear) return std::max(0.0, 1 - x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

/// The half width of the filter in input positions: 1 or 2, more where antialiasing stretches it over a reduction.
double support(const Settings& s, double scale) {
  const double radius = s.mode == Mode::linear ? 1 : 2;
  return s.antialias && scale < 1 ? radius / scale : radius;
}

std::int64_t taps(const Settings& s, double scale) {
  if (s.mode == Mode::nearest) return 1;
  return 2 * static_cast<std::int64_t>(std::ceil(support(s, scale)));
}

struct TableRow {
  std::int64_t* indices;
  std::vector<double> weights;
};

void fill_row(const Settings& s, const AxisMap& m, double x, TableRow& row) {
  const auto clamped = [&](double p) {
    return static_cast<std::int64_t>(std::clamp(p, 0.0, static_cast<double>(m.in - 1)));
  };
  if (s.mode == Mode::nearest) {
    row.indices[0] = clamped(nearest_position(x, s.nearest));
    return;
  }
  const double stretch = s.antialias ? std::min(1.0, m.scale) : 1.0;
  const std::size_t before = row.weights.size() / 2;
  const double first = std::floor(x) + 1 - static_cast<double>(before);
  double sum = 0;
  for (std::size_t t = 0; t < row.weights.size(); ++t) {
    const double p = first + static_cast<double>(t);
    const bool outside = p < 0 || p > static_cast<double>(m.in - 1);
    row.indices[t] = clamped(p);
    row.weights[t] = s.exclude_outside && outside ? 0 : filter(s, (p - x) * stretch);
    sum += row.weights[t];
  }
  const bool normalize = (s.exclude_outside || s.antialias) && sum != 0;
  for (double& w : row.weights) w = normalize ? w / sum : w;
}

// ---- lathe::ResizeTable(shape of x, scales, sizes, roi) → indices and weights [out, taps], inside [out] ----

#define LATHE_RESIZE_ATTRIBUTES                                                                     \
  {"antialias", 0}, {"axes", AttrKind::integers}, {"coordinate_transformation_mode", "half_pixel"}, \
      {"cubic_coeff_a", -0.75}, {"exclude_outside", 0}, {"extrapolation_value", 0.0},               \
      {"keep_aspect_ratio_policy", "stretch"}, {"mode", "nearest"}, {                               \
    "nearest_mode", "round_prefer_floor"                                                            \
  }
constexpr Attribute kResizeAttributes[] = {LATHE_RESIZE_ATTRIBUTES};
constexpr Attribute kTableAttributes[] = {
    LATHE_RESIZE_ATTRIBUTES, {"axis", AttrKind::integer, Attribute::kRequired}, {"wide", 0}};  // weights in f64
#undef LATHE_RESIZE_ATTRIBUTES

Target table_target(const OpView& op) {
  const std::vector<std::int64_t> shape = op.ints(0);
  return target(op, Shape(shape), op.value(1), op.value(2));
}

Facts infer_table(const OpView& op) {
  const Target t = table_target(op);
  const auto axis = static_cast<int>(op.i("axis"));
  const std::int64_t out = t.out[axis];
  const std::int64_t count = taps(settings(op), t.scales[static_cast<std::size_t>(axis)]);
  op.require(count < (std::int64_t{1} << 31), "a scale of {} is too small", t.scales[static_cast<std::size_t>(axis)]);
  return {Fact(DType::i64, {out, count}), Fact(op.i("wide") != 0 ? DType::f64 : DType::f32, {out, count}),
          Fact(DType::boolean, {out})};
}

AxisMap axis_map(const KernelContext& ctx, int axis) {
  const Target t = target(ctx.op(), Shape(ctx.in<std::int64_t>(0)), ctx.has(1) ? &ctx.in(1) : nullptr,
                          ctx.has(2) ? &ctx.in(2) : nullptr);
  AxisMap m{ctx.in<std::int64_t>(0)[static_cast<std::size_t>(axis)], t.out[axis],
            t.scales[static_cast<std::size_t>(axis)], 0, 1};
  if (!ctx.has(3) || ctx.in(3).size() == 0) return m;
  const std::vector<int> axes = resized_axes(ctx.op(), t.out.rank());
  const auto count = static_cast<std::int64_t>(axes.size());
  ctx.op().require(ctx.in(3).size() == 2 * count, "roi must have {} values, got {}", 2 * count, ctx.in(3).size());
  const std::int64_t place = std::find(axes.begin(), axes.end(), axis) - axes.begin();
  m.roi_begin = ctx.in(3).number(place);
  m.roi_end = ctx.in(3).number(place + count);
  return m;
}

void kernel_table(KernelContext& ctx) {
  const Settings s = settings(ctx.op());
  const AxisMap m = axis_map(ctx, static_cast<int>(ctx.op().i("axis")));
  const std::int64_t count = ctx.out(0).shape()[1];
  Tensor weights(DType::f64, ctx.out(1).shape());
  TableRow row{ctx.out<std::int64_t>(0).data(), std::vector<double>(static_cast<std::size_t>(count), 1.0)};
  auto inside = ctx.out<bool>(2);
  for (std::int64_t o = 0; o < m.out; ++o, row.indices += count) {
    const double x = original_position(m, s, o);
    inside[static_cast<std::size_t>(o)] = x >= 0 && x <= static_cast<double>(m.in - 1);
    fill_row(s, m, x, row);
    std::copy(row.weights.begin(), row.weights.end(), weights.mutable_view<double>().begin() + o * count);
  }
  assign(ctx.out(1), weights);
}

// ---- lathe::Resample(x, indices, weights): out[…, o, …] = Σ_t weights[o, t] · x[…, indices[o, t], …] ----

constexpr Attribute kResampleAttributes[] = {
    {"axis", AttrKind::integer, Attribute::kRequired},
    {"taps", 0},               // unrolled; 0: a loop over the table's
    {"same_is_identity", 0}};  // an axis that keeps its extent keeps its elements

Facts infer_resample(const OpView& op) {
  Fact y = op.in(0);
  y.layout = Layout();
  y.shape[static_cast<int>(op.i("axis"))] = op.in(1).shape[0];
  if (op.has(2)) y.dtype = op.in(2).dtype;
  return {y};
}

Scalar tap(const OpView& op, LoopBuilder& b, const Coords& at, const Coord& t) {
  const auto axis = static_cast<int>(op.i("axis"));
  Coords entry;
  entry.push_back(at[axis]);
  entry.push_back(t);
  Coords x = at;
  x[axis] = b.indirect(b.in(1, entry), op.in(0).shape[axis]);
  const Scalar value = b.in(0, x);
  return op.has(2) ? b.binary(loops::Op::mul, b.cast(value, op.in(2).dtype), b.in(2, entry)) : value;
}

Scalar expr_resample(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const auto axis = static_cast<int>(op.i("axis"));
  if (op.i("same_is_identity") != 0 && op.in(0).shape[axis] == op.in(1).shape[0]) {
    const Scalar value = b.in(0, at);
    return op.has(2) ? b.cast(value, op.in(2).dtype) : value;
  }
  Scalar sum = tap(op, b, at, Coord{});
  for (std::int64_t t = 1; t < op.i("taps"); ++t) {
    Coord c;
    c += t;
    sum = b.binary(loops::Op::add, sum, tap(op, b, at, c));
  }
  return sum;
}

Scalar expr_resample_loop(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::int64_t extents[] = {op.in(1).shape[1]};
  return b.reduce(loops::Reduction::sum, tap(op, b, at, b.inner(extents)[0]));
}

// ---- Resize ----

Facts infer_resize(const OpView& op) {
  const Fact& x = op.in(0);
  const Settings s = settings(op);
  op.require(s.mode == Mode::nearest || x.dtype.is_float() || x.dtype.is_integer(), "mode '{}' needs numbers, got {}",
             op.s("mode"), x.dtype);
  op.require(s.transform != Transform::tf_crop_and_resize || x.dtype != DType::string,
             "tf_crop_and_resize has no text to put outside");
  if (op.has(1)) op.require(op.in(1).dtype.is_float(), "roi must be floating point, got {}", op.in(1).dtype);
  return {Fact(x.dtype, target(op, x.shape, op.value(2), op.value(3)).out)};
}

/// Whether the scale of the axis at `place` is the constant 1.
bool keeps_axis(const OpView& op, Builder& b, std::size_t place) {
  if (!op.has(2) || !b.graph().value(op.id(2)).is_constant()) return false;
  const Tensor& scales = *op.value(2);
  return scales.size() > static_cast<std::int64_t>(place) && scales.number(static_cast<std::int64_t>(place)) == 1.0;
}

Attributes table_attributes(const OpView& op, int axis, bool wide) {
  Attributes a = op.node().attributes;
  a.set("axis", std::int64_t{axis});
  a.set("wide", std::int64_t{wide ? 1 : 0});
  return a;
}

/// Rounded to the nearest integers that the dtype has.
ValueId to_whole(Builder& b, ValueId y, DType dtype) {
  y = b.op("Round", {y});
  const double low = dtype.is_signed_integer() ? -std::ldexp(1, dtype.bits() - 1) : 0;
  const double past = std::ldexp(1, dtype.bits() - (dtype.is_signed_integer() ? 1 : 0));
  const double high = dtype.bits() > 32 ? std::nextafter(past, 0) : past - 1;
  return b.op("Clip", {y, b.scalar(b.fact(y).dtype, low), b.scalar(b.fact(y).dtype, high)});
}

std::vector<ValueId> lower_resize(const OpView& op, Builder& b) {
  const Settings s = settings(op);
  const DType dtype = op.in(0).dtype;
  const bool wide = dtype == DType::f64 || dtype.is_integer();
  const bool crop = s.transform == Transform::tf_crop_and_resize;
  const bool by_sizes = op.has(3) && op.in(3).shape.elements() != 0;
  const bool identity = !crop && by_sizes && op.s("keep_aspect_ratio_policy") == "stretch";
  const std::vector<int> axes = resized_axes(op, op.in(0).rank());
  const ValueId shape = b.shape_of(op.id(0));
  ValueId y = op.id(0);
  std::vector<ValueId> inside;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!crop && keeps_axis(op, b, i)) continue;
    const std::vector<ValueId> table = b.ops("lathe::ResizeTable", {shape, op.id(2), op.id(3), crop ? op.id(1) : kNone},
                                             3, table_attributes(op, axes[i], wide));
    Attributes a = {{"axis", std::int64_t{axes[i]}}, {"same_is_identity", std::int64_t{identity ? 1 : 0}}};
    if (!s.antialias || s.mode == Mode::nearest) a.set("taps", taps(s, 1.0));
    const ValueId weights = s.mode == Mode::nearest ? kNone : table[1];
    y = b.op(s.antialias && s.mode != Mode::nearest ? "lathe::ResampleLoop" : "lathe::Resample", {y, table[0], weights},
             std::move(a));
    if (crop) {
      std::vector<std::int64_t> behind;
      for (int d = axes[i] + 1; d < op.in(0).rank(); ++d) behind.push_back(d - axes[i]);
      inside.push_back(b.unsqueeze(table[2], behind));
    }
  }
  if (!inside.empty()) {
    const ValueId beyond = b.scalar(b.fact(y).dtype, op.f("extrapolation_value"));
    for (ValueId mask : inside) y = b.op("Where", {mask, y, beyond});
  }
  if (dtype.is_integer() && b.fact(y).dtype.is_float()) y = to_whole(b, y, dtype);
  y = b.cast(y, dtype);
  return {y == op.id(0) ? b.op("Identity", {y}) : y};
}

}  // namespace

extern const OpDef op_resize;
constinit const OpDef op_resize = {.name = "Resize",
                                   .inputs = {1, 4},
                                   .attributes = kResizeAttributes,
                                   .forms = {10, 19},
                                   .takes = {{kAny, inputs(0)},
                                             {DTypes(DType::f32) | DType::f64 | DType::f16, inputs(1)},
                                             {DType::f32, inputs(2)},
                                             {DType::i64, inputs(3)}},
                                   .shape_inputs = (1U << 2) | (1U << 3),
                                   .infer = infer_resize,
                                   .lower = lower_resize};

extern const OpDef op_lathe_resize_table;
constinit const OpDef op_lathe_resize_table = {.name = "ResizeTable",
                                               .domain = "lathe",
                                               .inputs = {1, 4},
                                               .outputs = 3,
                                               .attributes = kTableAttributes,
                                               .shape_inputs = 7U,
                                               .infer = infer_table,
                                               .kernel = kernel_table};

extern const OpDef op_lathe_resample;
constinit const OpDef op_lathe_resample = {.name = "Resample",
                                           .domain = "lathe",
                                           .inputs = {2, 3},
                                           .attributes = kResampleAttributes,
                                           .infer = infer_resample,
                                           .expr = expr_resample};

extern const OpDef op_lathe_resample_loop;
constinit const OpDef op_lathe_resample_loop = {.name = "ResampleLoop",
                                                .domain = "lathe",
                                                .inputs = 3,
                                                .attributes = kResampleAttributes,
                                                .infer = infer_resample,
                                                .expr = expr_resample_loop,
                                                .contraction = true};

}  // namespace lathe::ops
