// Col2Im adds overlapping columns back to an image; CenterCropPad cuts or pads both sides evenly; Det is the
// determinant.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ir/loop_builder.h"
#include "ops/plain.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

// ---- Col2Im ----

constexpr Attribute kCol2ImAttributes[] = {
    {"dilations", AttrKind::integers}, {"pads", AttrKind::integers}, {"strides", AttrKind::integers}};

struct Columns {
  Window window;  // from the image to the blocks
  std::int64_t batch, channels;
};

Columns read_columns(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const std::vector<std::int64_t> image = op.ints(1), block = op.ints(2);
  op.require(x.rank() == 3, "x must have 3 dims, got shape {}", x);
  op.require(!image.empty() && image.size() == block.size() && image.size() <= Shape::kMaxRank - 2,
             "image_shape and block_shape must have one length, got {} and {}", image.size(), block.size());
  Columns c{resolve_window(op, Shape(image), Shape(block)), x[0], 0};
  const std::int64_t kernel = c.window.kernel.elements();
  op.require(kernel > 0 && x[1] % kernel == 0, "{} rows of x do not divide into blocks of {}", x[1], kernel);
  op.require(x[2] == c.window.out.elements(), "x has {} columns, but the image has {} blocks", x[2],
             c.window.out.elements());
  c.channels = x[1] / kernel;
  return c;
}

Facts infer_col2im(const OpView& op) {
  const DType dtype = op.in(0).dtype;
  const Columns c = read_columns(op);
  Shape out{c.batch, c.channels};
  for (std::int64_t extent : c.window.in) out.push_back(extent);
  return {Fact(dtype, out)};
}

/// The image element under kernel position `k` of block `o`; -1 in the padding.
std::int64_t image_position(const Window& w, std::int64_t o, std::int64_t k) {
  std::int64_t position = 0, stride = 1;
  for (int d = w.rank() - 1; d >= 0; --d) {
    const std::int64_t i = o % w.out[d] * w.strides[d] + k % w.kernel[d] * w.dilations[d] - w.pads_begin[d];
    if (i < 0 || i >= w.in[d]) return -1;
    position += i * stride;
    stride *= w.in[d];
    o /= w.out[d];
    k /= w.kernel[d];
  }
  return position;
}

template <class T>
void add_columns(const KernelContext& ctx, const Columns& c, const Tensor& x, Tensor& y) {
  const std::int64_t kernel = c.window.kernel.elements(), blocks = c.window.out.elements(),
                     plane = c.window.in.elements();
  auto out = y.mutable_view<T>();
  std::fill(out.begin(), out.end(), T{});
  const T* from = x.view<T>().data();
  ctx.parallel(c.batch * c.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      for (std::int64_t k = 0; k < kernel; ++k) {
        for (std::int64_t o = 0; o < blocks; ++o) {
          const std::int64_t at = image_position(c.window, o, k);
          if (at < 0) continue;
          T& sum = out[static_cast<std::size_t>(p * plane + at)];
          sum = static_cast<T>(sum + from[(p * kernel + k) * blocks + o]);
        }
      }
    }
  });
}

void kernel_col2im(KernelContext& ctx) {
  const Columns c = read_columns(ctx.op());
  const Tensor x = widened(ctx, ctx.in(0));
  Tensor y = x.dtype() == ctx.in(0).dtype() ? ctx.out(0) : ctx.temporary(x.dtype(), ctx.out(0).shape());
  dispatch_numeric(x.dtype(), [&](auto* type) { add_columns<std::remove_pointer_t<decltype(type)>>(ctx, c, x, y); });
  if (x.dtype() != ctx.in(0).dtype()) assign(ctx.out(0), y);
}

// ---- CenterCropPad ----

constexpr Attribute kCropAttributes[] = {{"axes", AttrKind::integers}};

Shape cropped_shape(const OpView& op) {
  Shape out = op.in(0).shape;
  const std::vector<std::int64_t> wanted = op.ints(1);
  std::vector<int> axes;
  for (std::int64_t a : op.attr_ints("axes")) axes.push_back(op.axis(a, out.rank(), "axes"));
  for (int d = 0; d < out.rank() && !op.has_attr("axes"); ++d) axes.push_back(d);
  op.require(wanted.size() == axes.size(), "shape must have {} values, got {}", axes.size(), wanted.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    op.require(wanted[i] >= 0, "shape must not be negative, got {}", wanted[i]);
    out[axes[i]] = wanted[i];
  }
  return out;
}

Facts infer_crop(const OpView& op) { return {Fact(op.in(0).dtype, cropped_shape(op))}; }

Scalar expr_crop(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Shape &in = op.in(0).shape, &out = op.out(0).shape;
  Coords x = at;
  std::vector<int> padded;
  for (int d = 0; d < in.rank(); ++d) {
    x[d] += in[d] >= out[d] ? (in[d] - out[d]) / 2 : -((out[d] - in[d]) / 2);
    if (out[d] > in[d]) padded.push_back(d);
  }
  if (padded.empty()) return b.in(0, x);
  return b.in_or(0, x, padded, b.constant(LoopBuilder::compute_type(op.in(0).dtype), 0));
}

// ---- Det ----

Facts infer_det(const OpView& op) {
  const Fact& x = op.in(0);
  const DType t = x.dtype;
  op.require(t == DType::f32 || t == DType::f64 || t == DType::f16 || t == DType::bf16,
             "x must be f16, bf16, f32 or f64, got {}", t);
  op.require(x.rank() >= 2 && x.shape[x.rank() - 1] == x.shape[x.rank() - 2],
             "x must end in square matrices, got shape {}", x.shape);
  Shape out;
  for (int d = 0; d + 2 < x.rank(); ++d) out.push_back(x.shape[d]);
  return {Fact(t, out)};
}

/// By elimination with the largest pivot of each column; `a` is used up.
double determinant(double* a, std::int64_t n) {
  double result = 1;
  for (std::int64_t c = 0; c < n; ++c) {
    std::int64_t pivot = c;
    for (std::int64_t r = c + 1; r < n; ++r) {
      if (std::fabs(a[r * n + c]) > std::fabs(a[pivot * n + c])) pivot = r;
    }
    if (a[pivot * n + c] == 0) return 0;
    if (pivot != c) {
      std::swap_ranges(a + pivot * n, a + (pivot + 1) * n, a + c * n);
      result = -result;
    }
    result *= a[c * n + c];
    for (std::int64_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (std::int64_t k = c; k < n; ++k) a[r * n + k] -= factor * a[c * n + k];
    }
  }
  return result;
}

void kernel_det(KernelContext& ctx) {
  Tensor x = ctx.in(0).cast(DType::f64).clone();
  Tensor y(DType::f64, ctx.out(0).shape());
  const std::int64_t n = x.shape().back();
  double* from = x.mutable_view<double>().data();
  for (double& d : y.mutable_view<double>()) {
    d = determinant(from, n);
    from += n * n;
  }
  assign(ctx.out(0), y);
}

}  // namespace

extern const OpDef op_col2_im;
constinit const OpDef op_col2_im = {
    .name = "Col2Im",
    .inputs = 3,
    .attributes = kCol2ImAttributes,
    .forms = {18, 18},
    .takes = {{kNumbers | kFloat8 | DType::boolean, inputs(0)}, {kIndices, inputs(1)}, {kIndices, inputs(2)}},
    .shape_inputs = 6U,
    .infer = infer_col2im,
    .kernel = kernel_col2im};

extern const OpDef op_center_crop_pad;
constinit const OpDef op_center_crop_pad = {.name = "CenterCropPad",
                                            .inputs = 2,
                                            .attributes = kCropAttributes,
                                            .forms = {18, 18},
                                            .takes = {{kAny - DType::f8e8m0, inputs(0)}, {kIndices, inputs(1)}},
                                            .shape_inputs = 1U << 1,
                                            .infer = infer_crop,
                                            .expr = expr_crop};

extern const OpDef op_det;
constinit const OpDef op_det = {
    .name = "Det", .forms = {11, 22}, .takes = kFloats, .infer = infer_det, .kernel = kernel_det};

}  // namespace lathe::ops
