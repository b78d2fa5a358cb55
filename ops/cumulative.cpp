// CumSum and CumProd: running sums and products along an axis.
#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"exclusive", 0}, {"reverse", 0}};

Facts infer(const OpView& op) {
  op.require(is_scalar(op.in(1)), "axis must be a scalar, got {}", op.in(1).to_string());
  return {{op.in(0).dtype, op.in(0).shape}};
}

struct Line {
  std::int64_t extent;
  std::int64_t stride;
  bool exclusive;
  bool reverse;
};

template <bool kProduct, class T>
void accumulate(const T* in, T* out, const Line& line) {
  T total = kProduct ? T(1) : T(0);
  for (std::int64_t k = 0; k < line.extent; ++k) {
    const std::int64_t at = (line.reverse ? line.extent - 1 - k : k) * line.stride;
    const T x = in[at];
    if (line.exclusive) out[at] = total;
    total = kProduct ? static_cast<T>(total * x) : static_cast<T>(total + x);
    if (!line.exclusive) out[at] = total;
  }
}

template <bool kProduct>
void run(KernelContext& c) {
  // Narrow floats accumulate in f32 and are rounded once.
  const Tensor& given = c.in(0);
  const DType type = LoopBuilder::compute_type(given.dtype());
  const Tensor x = widened(c, given);
  Tensor y = given.dtype() == type ? c.out(0) : c.temporary(type, given.shape());
  const Shape& shape = x.shape();
  if (x.size() == 0) return;
  const int axis = c.op().axis(c.in(1).integer(0), shape.rank(), "axis");
  Line line{shape[axis], 1, c.op().i("exclusive") != 0, c.op().i("reverse") != 0};
  for (int d = axis + 1; d < shape.rank(); ++d) line.stride *= shape[d];
  dispatch_numeric(type, [&](auto* pointer) {
    using T = std::remove_pointer_t<decltype(pointer)>;
    if constexpr (!std::is_same_v<T, bool>) {
      const T* in = static_cast<const T*>(x.data());
      T* out = static_cast<T*>(y.mutable_data());
      c.parallel(x.size() / line.extent, std::max<std::int64_t>(1, 4096 / line.extent),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t start = i / line.stride * line.stride * line.extent + i % line.stride;
                     accumulate<kProduct>(in + start, out + start, line);
                   }
                 });
    }
  });
  if (given.dtype() != type) assign(c.out(0), y);
}

}  // namespace

extern const OpDef op_cum_sum, op_cum_prod;
constinit const OpDef op_cum_sum = {.name = "CumSum",
                                    .inputs = 2,
                                    .attributes = kAttributes,
                                    .forms = {11, 14},
                                    .takes = {{kNumbers, inputs(0)}, {kIndices, inputs(1)}},
                                    .infer = infer,
                                    .kernel = run<false>,
                                    .real_time = true};
constinit const OpDef op_cum_prod = {.name = "CumProd",
                                     .inputs = 2,
                                     .attributes = kAttributes,
                                     .forms = {26, 26},
                                     .takes = {{kNumbers, inputs(0)}, {kIndices, inputs(1)}},
                                     .infer = infer,
                                     .kernel = run<true>,
                                     .real_time = true};

}  // namespace lathe::ops
