// TopK: the k largest or smallest elements along an axis, with their positions. Equal elements keep their order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"axis", -1}, {"largest", 1}, {"sorted", 1}};

Facts infer(const OpView& op) {
  const Fact& x = op.in(0);
  const int axis = op.axis("axis", x.rank());
  const std::vector<std::int64_t> k = op.ints(1);
  op.require(k.size() == 1, "k must be one value, got {}", k.size());
  op.require(k[0] >= 0 && k[0] <= x.shape[axis], "k is {}, but axis {} has {} elements", k[0], axis, x.shape[axis]);
  Shape out = x.shape;
  out[axis] = k[0];
  return {Fact(x.dtype, out), Fact(DType::i64, out)};
}

template <class T>
struct Element {
  T value;
  std::int64_t index;
};

/// NaN counts as larger than any number.
template <class T>
bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  }
  return a < b;
}

template <class T>
void select(const T* x, std::int64_t count, std::int64_t stride, std::int64_t k, bool largest,
            std::pmr::vector<Element<T>>& work) {
  work.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) work[static_cast<std::size_t>(i)] = {x[i * stride], i};
  const auto before = [largest](const Element<T>& a, const Element<T>& b) {
    const bool a_less = less(a.value, b.value), b_less = less(b.value, a.value);
    if (a_less != b_less) return largest ? b_less : a_less;
    return a.index < b.index;
  };
  if (k < count) std::nth_element(work.begin(), work.begin() + k, work.end(), before);
  std::sort(work.begin(), work.begin() + k, before);
}

template <class T>
void top_k(KernelContext& ctx, const Tensor& x, Tensor& values, Tensor& indices) {
  const int axis = ctx.op().axis("axis", x.shape().rank());
  const std::int64_t count = x.shape()[axis], k = indices.shape()[axis];
  const std::int64_t inner = extent_of(x.shape(), axis + 1, x.shape().rank());
  const std::int64_t rows = extent_of(x.shape(), 0, axis) * inner;
  const bool largest = ctx.op().i("largest") != 0;
  const T* from = x.view<T>().data();
  T* out = values.mutable_view<T>().data();
  std::int64_t* positions = indices.mutable_view<std::int64_t>().data();
  ctx.parallel(rows, 1 + 4096 / (count + 1), [&](std::int64_t begin, std::int64_t end, auto* memory) {
    std::pmr::vector<Element<T>> work(memory);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t o = row / inner, i = row % inner;
      select(from + o * count * inner + i, count, inner, k, largest, work);
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t at = (o * k + j) * inner + i;
        out[at] = work[static_cast<std::size_t>(j)].value;
        positions[at] = work[static_cast<std::size_t>(j)].index;
      }
    }
  });
}

void kernel(KernelContext& ctx) {
  const Tensor x = widened(ctx, ctx.in(0));
  Tensor values = x.dtype() == ctx.in(0).dtype() ? ctx.out(0) : ctx.temporary(x.dtype(), ctx.out(0).shape());
  Tensor indices = ctx.wants(1) ? ctx.out(1) : ctx.temporary(DType::i64, values.shape());
  dispatch_numeric(x.dtype(),
                   [&](auto* type) { top_k<std::remove_pointer_t<decltype(type)>>(ctx, x, values, indices); });
  if (x.dtype() != ctx.in(0).dtype()) assign(ctx.out(0), values);
}

}  // namespace

extern const OpDef op_top_k;
constinit const OpDef op_top_k = {.name = "TopK",
                                  .inputs = 2,
                                  .outputs = {1, 2},
                                  .attributes = kAttributes,
                                  .forms = 24,
                                  .takes = {{kNumbers, inputs(0)}, {DType::i64, inputs(1)}},
                                  .shape_inputs = 1U << 1,
                                  .infer = infer,
                                  .kernel = kernel,
                                  .real_time = true};

}  // namespace lathe::ops
