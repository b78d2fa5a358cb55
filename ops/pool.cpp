// Pools: maxima, averages and p-norms of sliding windows, their global forms, and MaxUnpool.
#include <algorithm>
#include <limits>

#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"
#include "ops/ir/loop_builder.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

Shape stated_kernel(const OpView& op) {
  const auto kernel = op.attr_ints("kernel_shape");
  op.require(!kernel.empty() && kernel.size() <= Shape::kMaxRank - 2,
             "kernel_shape must have a value per spatial axis, got {}", kernel.size());
  return Shape(kernel);
}

Window pool_window(const OpView& op) { return resolve_window(op, spatial(op.in(0).shape), stated_kernel(op)); }

Fact pooled(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() >= 3, "x must have a batch, a channel and at least one spatial axis, got shape {}", x);
  Shape out{x[0], x[1]};
  for (std::int64_t extent : pool_window(op).out) out.push_back(extent);
  return {op.in(0).dtype, out};
}

bool ceil_mode(const OpView& op) { return op.i("ceil_mode") != 0; }

/// The window of output `at`: its loops, the places of x under them, and which of those can lie outside.
struct Sweep {
  Window window;
  std::vector<Coord> inner;
  Coords x;
  std::vector<int> checked;
};

Sweep sweep(const OpView& op, LoopBuilder& b, const Coords& at) {
  Sweep s;
  s.window = pool_window(op);
  s.inner = b.inner(s.window.kernel.dims());
  s.x.push_back(at[0]);
  s.x.push_back(at[1]);
  const bool guarded = s.window.may_reach_outside(ceil_mode(op));
  for (int d = 0; d < s.window.rank(); ++d) {
    s.x.push_back(s.window.position(d, at[d + 2], s.inner[static_cast<std::size_t>(d)]));
    if (guarded) s.checked.push_back(d + 2);
  }
  return s;
}

Scalar load(const Sweep& s, LoopBuilder& b, Scalar outside) {
  return s.checked.empty() ? b.in(0, s.x) : b.in_or(0, s.x, s.checked, outside);
}

// ---- MaxPool ----

constexpr Attribute kMaxPoolAttributes[] = {{"auto_pad", "NOTSET"},
                                            {"ceil_mode", 0},
                                            {"dilations", AttrKind::integers},
                                            {"kernel_shape", AttrKind::integers, Attribute::kRequired},
                                            {"pads", AttrKind::integers},
                                            {"storage_order", 0},
                                            {"strides", AttrKind::integers}};

Facts infer_max_pool(const OpView& op) {
  op.require(op.i("storage_order") == 0 || op.i("storage_order") == 1, "storage_order must be 0 or 1, got {}",
             op.i("storage_order"));
  const Fact y = pooled(op);
  return {y, Fact(DType::i64, y.shape)};
}

Scalar lowest(LoopBuilder& b, DType t) {
  if (t.is_float()) return b.constant(t, -std::numeric_limits<double>::infinity());
  return b.constant_int(t, t == DType::i8 ? -128 : 0);
}

/// 1 where every position of the window lies inside x.
Scalar inside(const Sweep& s, LoopBuilder& b, const Shape& x) {
  Scalar all = b.constant_int(DType::boolean, 1);
  for (int d : s.checked) {
    const Scalar p = b.coordinate(s.x[d]);
    all = b.binary(loops::Op::logical_and, all, b.binary(loops::Op::greater_equal, p, b.constant_int(DType::i64, 0)));
    all = b.binary(loops::Op::logical_and, all, b.binary(loops::Op::less, p, b.number_int(DType::i64, x[d])));
  }
  return all;
}

/// The position of the maximum, counted over all of x; spatial axes from the last to the first where storage_order
/// is 1.
Scalar max_index(const OpView& op, LoopBuilder& b, const Sweep& s, const Coords& at) {
  const Shape& x = op.in(0).shape;
  Scalar value = load(s, b, lowest(b, op.in(0).dtype));
  if (!op.in(0).dtype.is_float()) {
    // Padding must lose against the least value that x can hold.
    value = b.select(inside(s, b, x), b.cast(value, DType::i32), b.constant_int(DType::i32, -1000));
  }
  Scalar rest = b.reduce(loops::Reduction::argmax_first, value);
  const auto i64 = [&](std::int64_t v) { return b.number_int(DType::i64, v); };
  const auto times_plus = [&](Scalar a, std::int64_t factor, Scalar c) {
    return b.binary(loops::Op::add, b.binary(loops::Op::mul, a, i64(factor)), c);
  };
  std::vector<Scalar> position(static_cast<std::size_t>(s.window.rank()));
  for (int d = s.window.rank() - 1; d >= 0; --d) {
    const Scalar extent = i64(s.window.kernel[d]);
    const Scalar k = b.binary(loops::Op::mod, rest, extent);
    rest = b.binary(loops::Op::div, rest, extent);
    position[static_cast<std::size_t>(d)] =
        times_plus(k, s.window.dilations[d], b.coordinate(s.window.position(d, at[d + 2], Coord{})));
  }
  Scalar plane{-1};
  const auto append = [&](int d) {
    const Scalar p = position[static_cast<std::size_t>(d)];
    plane = plane.inst < 0 ? p : times_plus(plane, x[d + 2], p);
  };
  const bool column_major = op.i("storage_order") != 0;
  for (int d = 0; d < s.window.rank(); ++d) append(column_major ? s.window.rank() - 1 - d : d);
  return times_plus(times_plus(b.coordinate(at[0]), x[1], b.coordinate(at[1])), s.window.in.elements(), plane);
}

Scalar expr_max_pool(const OpView& op, LoopBuilder& b, int output, const Coords& at) {
  const Sweep s = sweep(op, b, at);
  if (output == 1) return max_index(op, b, s, at);
  return b.reduce(loops::Reduction::max, load(s, b, lowest(b, op.in(0).dtype)));
}

// ---- AveragePool ----

constexpr Attribute kAveragePoolAttributes[] = {{"auto_pad", "NOTSET"},
                                                {"ceil_mode", 0},
                                                {"count_include_pad", 0},
                                                {"dilations", AttrKind::integers},
                                                {"kernel_shape", AttrKind::integers, Attribute::kRequired},
                                                {"pads", AttrKind::integers},
                                                {"strides", AttrKind::integers}};

Facts infer_float_pool(const OpView& op) { return {pooled(op)}; }

/// How many kernel positions of the window at `at` lie in [0, extent) along a spatial axis, or, with padding, in
/// [−begin, extent + end).
Scalar count_along(const Window& w, LoopBuilder& b, int d, const Coord& o, bool with_padding) {
  using loops::Op;
  const auto i64 = [&](std::int64_t v) { return b.number_int(DType::i64, v); };
  const Scalar zero = b.constant_int(DType::i64, 0);
  const Scalar start = b.coordinate(w.position(d, o, Coord{}));
  const auto steps_to = [&](std::int64_t bound) {  // positions before `bound`, rounded up
    const Scalar distance = b.binary(Op::sub, i64(bound), start);
    if (w.dilations[d] == 1) return distance;
    return b.binary(Op::div, b.binary(Op::add, distance, i64(w.dilations[d] - 1)), i64(w.dilations[d]));
  };
  const Scalar first = b.binary(Op::max, zero, steps_to(with_padding ? -w.pads_begin[d] : 0));
  const Scalar end = b.binary(Op::min, i64(w.kernel[d]), steps_to(with_padding ? w.in[d] + w.pads_end[d] : w.in[d]));
  return b.binary(Op::sub, end, first);
}

Scalar expr_average_pool(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  const Sweep s = sweep(op, b, at);
  const Scalar sum = b.reduce(loops::Reduction::sum, load(s, b, b.constant(op.in(0).dtype, 0)));
  const bool with_padding = op.i("count_include_pad") != 0;
  if (s.checked.empty() || (with_padding && !ceil_mode(op))) {
    return b.binary(loops::Op::div, sum, b.number(compute, static_cast<double>(s.window.kernel.elements())));
  }
  Scalar count{-1};
  for (int d = 0; d < s.window.rank(); ++d) {
    const Scalar along = count_along(s.window, b, d, at[d + 2], with_padding);
    count = d == 0 ? along : b.binary(loops::Op::mul, count, along);
  }
  return b.binary(loops::Op::div, sum, b.cast(count, compute));
}

// ---- LpPool: the p-norm of each window ----

constexpr Attribute kLpPoolAttributes[] = {{"auto_pad", "NOTSET"},
                                           {"ceil_mode", 0},
                                           {"dilations", AttrKind::integers},
                                           {"kernel_shape", AttrKind::integers, Attribute::kRequired},
                                           {"p", 2},
                                           {"pads", AttrKind::integers},
                                           {"strides", AttrKind::integers}};
constexpr Attribute kGlobalLpPoolAttributes[] = {{"p", 2}};

std::int64_t norm_order(const OpView& op) {
  op.require(op.i("p") >= 1, "p must be positive, got {}", op.i("p"));
  return op.i("p");
}

Facts infer_lp_pool(const OpView& op) {
  norm_order(op);
  return infer_float_pool(op);
}

Scalar expr_lp_pool(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  const std::int64_t p = norm_order(op);
  const Sweep s = sweep(op, b, at);
  const Scalar x = b.unary(loops::Op::abs, load(s, b, b.constant(op.in(0).dtype, 0)));
  if (p == 1) return b.reduce(loops::Reduction::sum, x);
  if (p == 2) return b.unary(loops::Op::sqrt, b.reduce(loops::Reduction::sum, b.binary(loops::Op::mul, x, x)));
  const auto order = static_cast<double>(p);
  const Scalar sum = b.reduce(loops::Reduction::sum, b.binary(loops::Op::pow, x, b.constant(compute, order)));
  return b.binary(loops::Op::pow, sum, b.constant(compute, 1 / order));
}

// ---- the global pools: reductions over all spatial axes ----

Facts infer_global(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() >= 2, "x must have a batch and a channel axis, got shape {}", x);
  Shape out{x[0], x[1]};
  for (int d = 2; d < x.rank(); ++d) out.push_back(1);
  return {Fact(op.in(0).dtype, out)};
}

Facts infer_global_lp(const OpView& op) {
  norm_order(op);
  return infer_global(op);
}

ValueId reduce_spatial(const OpView& op, Builder& b, std::string_view name, ValueId x) {
  std::vector<std::int64_t> axes;
  for (int d = 2; d < op.in(0).rank(); ++d) axes.push_back(d);
  return axes.empty() ? b.op("Identity", {x}) : b.reduce(name, x, axes);
}

std::vector<ValueId> lower_global_average(const OpView& op, Builder& b) {
  return {reduce_spatial(op, b, "ReduceMean", op.id(0))};
}

std::vector<ValueId> lower_global_max(const OpView& op, Builder& b) {
  return {reduce_spatial(op, b, "ReduceMax", op.id(0))};
}

std::vector<ValueId> lower_global_lp(const OpView& op, Builder& b) {
  const std::int64_t p = norm_order(op);
  if (p == 1) return {reduce_spatial(op, b, "ReduceL1", op.id(0))};
  if (p == 2) return {reduce_spatial(op, b, "ReduceL2", op.id(0))};
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  const auto order = static_cast<double>(p);
  const ValueId powers = b.op("Pow", {b.op("Abs", {b.cast(op.id(0), compute)}), b.scalar(compute, order)});
  const ValueId root = b.op("Pow", {reduce_spatial(op, b, "ReduceSum", powers), b.scalar(compute, 1 / order)});
  return {b.cast(root, op.in(0).dtype)};
}

// ---- MaxUnpool: each value back to the index it came from, zeros elsewhere ----

constexpr Attribute kMaxUnpoolAttributes[] = {{"kernel_shape", AttrKind::integers, Attribute::kRequired},
                                              {"pads", AttrKind::integers},
                                              {"strides", AttrKind::integers}};

Facts infer_max_unpool(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.rank() >= 3, "x must have a batch, a channel and at least one spatial axis, got shape {}", x.shape);
  op.require(op.in(1).dtype == DType::i64 && op.in(1).shape == x.shape, "the indices must be i64 of shape {}, got {}",
             x.shape, op.in(1).to_string());
  Shape out{x.shape[0], x.shape[1]};
  for (std::int64_t extent : resolve_transposed_window(op, spatial(x.shape), stated_kernel(op)).out)
    out.push_back(extent);
  if (op.has(2)) {
    const std::vector<std::int64_t> wanted = op.ints(2);
    op.require(static_cast<int>(wanted.size()) == x.rank(), "output_shape must have {} values, got {}", x.rank(),
               wanted.size());
    out = Shape(wanted);
  }
  return {Fact(x.dtype, out)};
}

/// Indices count within the window's own output; where output_shape is larger, a value goes to the same place from the
/// origin.
void kernel_max_unpool(KernelContext& ctx) {
  const Tensor& x = ctx.in(0);
  Tensor y = ctx.out(0);
  Shape inner{x.shape()[0], x.shape()[1]};
  for (std::int64_t extent : resolve_transposed_window(ctx.op(), spatial(x.shape()), stated_kernel(ctx.op())).out)
    inner.push_back(extent);
  const std::size_t width = static_cast<std::size_t>(x.dtype().bits()) / 8;
  const auto* from = static_cast<const std::byte*>(x.data());
  auto* to = static_cast<std::byte*>(y.mutable_data());
  std::fill_n(to, y.bytes(), std::byte{0});
  const auto indices = ctx.in<std::int64_t>(1);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    std::int64_t rest = indices[i];
    if (rest < 0 || rest >= inner.elements())
      ctx.error(ErrorCode::out_of_range, "index {} is outside [0, {})", rest, inner.elements());
    std::int64_t target = 0, stride = 1;
    for (int d = inner.rank() - 1; d >= 0; --d) {
      const std::int64_t p = rest % inner[d];
      rest /= inner[d];
      if (p >= y.shape()[d])
        ctx.error(ErrorCode::out_of_range, "index {} lies outside the output {}", indices[i], y.shape());
      target += p * stride;
      stride *= y.shape()[d];
    }
    std::copy_n(from + i * width, width, to + static_cast<std::size_t>(target) * width);
  }
}

}  // namespace

extern const OpDef op_max_pool;
constinit const OpDef op_max_pool = {.name = "MaxPool",
                                     .outputs = {1, 2},
                                     .attributes = kMaxPoolAttributes,
                                     .forms = 22,
                                     .takes = kFloats | kBytes,
                                     .infer = infer_max_pool,
                                     .expr = expr_max_pool,
                                     .contraction = true};

extern const OpDef op_average_pool;
constinit const OpDef op_average_pool = {.name = "AveragePool",
                                         .attributes = kAveragePoolAttributes,
                                         .forms = 22,
                                         .takes = kFloats,
                                         .infer = infer_float_pool,
                                         .expr = expr_average_pool,
                                         .contraction = true};

extern const OpDef op_lp_pool;
constinit const OpDef op_lp_pool = {.name = "LpPool",
                                    .attributes = kLpPoolAttributes,
                                    .forms = 22,
                                    .takes = kFloats,
                                    .infer = infer_lp_pool,
                                    .expr = expr_lp_pool,
                                    .contraction = true};

extern const OpDef op_global_average_pool;
constinit const OpDef op_global_average_pool = {
    .name = "GlobalAveragePool", .forms = 22, .takes = kFloats, .infer = infer_global, .lower = lower_global_average};

extern const OpDef op_global_max_pool;
constinit const OpDef op_global_max_pool = {
    .name = "GlobalMaxPool", .forms = 22, .takes = kFloats, .infer = infer_global, .lower = lower_global_max};

extern const OpDef op_global_lp_pool;
constinit const OpDef op_global_lp_pool = {.name = "GlobalLpPool",
                                           .attributes = kGlobalLpPoolAttributes,
                                           .forms = 22,
                                           .takes = kFloats,
                                           .infer = infer_global_lp,
                                           .lower = lower_global_lp};

extern const OpDef op_max_unpool;
constinit const OpDef op_max_unpool = {.name = "MaxUnpool",
                                       .inputs = {2, 3},
                                       .attributes = kMaxUnpoolAttributes,
                                       .forms = {9, 22},
                                       .takes = {{kFloats, inputs(0)}, {DType::i64, inputs(1, 2)}},
                                       .shape_inputs = 1U << 2,
                                       .infer = infer_max_unpool,
                                       .kernel = kernel_max_unpool,
                                       .real_time = true};

}  // namespace lathe::ops
