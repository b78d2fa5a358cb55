// Operators whose output extents depend on the data: NonZero, Unique and NonMaxSuppression.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

// ---- NonZero: the positions of all elements that are not zero, one column each ----

template <class T>
void collect_nonzero(const Tensor& x, std::vector<std::int64_t>& found) {
  const auto values = x.view<T>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != T{}) found.push_back(static_cast<std::int64_t>(i));
  }
}

void kernel_nonzero(KernelContext& ctx) {
  const Tensor x = widened(ctx, ctx.in(0));
  std::vector<std::int64_t> found;
  if (x.dtype() == DType::string) {
    collect_nonzero<std::string>(x, found);
  } else if (x.dtype() == DType::c64) {
    collect_nonzero<std::complex<float>>(x, found);
  } else if (x.dtype() == DType::c128) {
    collect_nonzero<std::complex<double>>(x, found);
  } else {
    dispatch_numeric(x.dtype(), [&](auto* type) { collect_nonzero<std::remove_pointer_t<decltype(type)>>(x, found); });
  }
  const Shape& shape = x.shape();  // a scalar has no position to say: 0 rows
  const auto count = static_cast<std::int64_t>(found.size());
  Tensor y = ctx.allocate(0, DType::i64, {shape.rank(), count});
  auto out = y.mutable_view<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = found[static_cast<std::size_t>(i)];
    for (int d = shape.rank() - 1; d >= 0; --d) {
      out[static_cast<std::size_t>(d * count + i)] = rest % shape[d];
      rest /= shape[d];
    }
  }
}

// ---- Unique: the distinct elements, or slices along an axis ----

constexpr Attribute kUniqueAttributes[] = {{"axis", AttrKind::integer}, {"sorted", 1}};

/// x as items to compare: item i is elements (o, i, j) for all outer o and inner j.
struct Items {
  std::int64_t count, outer, inner;
};

/// -1, 0 or 1; NaN counts as larger than any number and equal to itself.
template <class T>
int order_of(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - static_cast<int>(std::isnan(b));
  }
  return a < b ? -1 : b < a ? 1 : 0;
}
template <class T>
int order_of(const std::complex<T>& a, const std::complex<T>& b) {
  const int real = order_of(a.real(), b.real());
  return real != 0 ? real : order_of(a.imag(), b.imag());
}

template <class T>
int compare_items(const T* x, const Items& items, std::int64_t a, std::int64_t b) {
  for (std::int64_t o = 0; o < items.outer; ++o) {
    for (std::int64_t j = 0; j < items.inner; ++j) {
      const std::int64_t base = o * items.count * items.inner + j;
      const int order = order_of(x[base + a * items.inner], x[base + b * items.inner]);
      if (order != 0) return order;
    }
  }
  return 0;
}

struct Groups {
  std::vector<std::int64_t> first;    // of each group, in the order of the output
  std::vector<std::int64_t> inverse;  // the group of each item
  std::vector<std::int64_t> counts;
};

template <class T>
Groups group_items(const T* x, const Items& items, bool sorted) {
  std::vector<std::int64_t> by_value(static_cast<std::size_t>(items.count));
  std::iota(by_value.begin(), by_value.end(), 0);
  std::sort(by_value.begin(), by_value.end(), [&](std::int64_t a, std::int64_t b) {
    const int order = compare_items(x, items, a, b);
    return order != 0 ? order < 0 : a < b;
  });
  Groups g;
  g.inverse.resize(by_value.size());
  for (std::size_t i = 0; i < by_value.size(); ++i) {
    if (i == 0 || compare_items(x, items, by_value[i - 1], by_value[i]) != 0) {
      g.first.push_back(by_value[i]);
      g.counts.push_back(0);
    }
    g.inverse[static_cast<std::size_t>(by_value[i])] = static_cast<std::int64_t>(g.first.size()) - 1;
    ++g.counts.back();
  }
  if (sorted) return g;
  // In the order of their first occurrence.
  std::vector<std::int64_t> by_first(g.first.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  const auto at = [](const std::vector<std::int64_t>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  std::sort(by_first.begin(), by_first.end(),
            [&](std::int64_t a, std::int64_t b) { return at(g.first, a) < at(g.first, b); });
  Groups r;
  std::vector<std::int64_t> rank(by_first.size());
  for (std::size_t i = 0; i < by_first.size(); ++i) {
    r.first.push_back(at(g.first, by_first[i]));
    r.counts.push_back(at(g.counts, by_first[i]));
    rank[static_cast<std::size_t>(by_first[i])] = static_cast<std::int64_t>(i);
  }
  for (std::int64_t group : g.inverse) r.inverse.push_back(at(rank, group));
  return r;
}

Groups group_tensor(const Tensor& x, const Items& items, bool sorted) {
  switch (x.dtype()) {
    case DType::string:
      return group_items(x.view<std::string>().data(), items, sorted);
    case DType::c64:
      return group_items(x.view<std::complex<float>>().data(), items, sorted);
    case DType::c128:
      return group_items(x.view<std::complex<double>>().data(), items, sorted);
    default:
      return dispatch_numeric(x.dtype(), [&](auto* type) {
        return group_items(x.view<std::remove_pointer_t<decltype(type)>>().data(), items, sorted);
      });
  }
}

void kernel_unique(KernelContext& ctx) {
  const Tensor& x = ctx.in(0);
  const bool by_axis = ctx.op().has_attr("axis");
  const int axis = by_axis ? ctx.op().axis("axis", x.shape().rank()) : 0;
  Items items{x.size(), 1, 1};
  if (by_axis)
    items = {x.shape()[axis], extent_of(x.shape(), 0, axis), extent_of(x.shape(), axis + 1, x.shape().rank())};
  const Groups g = group_tensor(widened(ctx, x), items, ctx.op().i("sorted") != 0);
  const auto count = static_cast<std::int64_t>(g.first.size());
  Shape out{count};
  if (by_axis) {
    out = x.shape();
    out[axis] = count;
  }
  Tensor y = ctx.allocate(0, x.dtype(), out);
  for (std::int64_t o = 0; o < items.outer; ++o) {
    for (std::int64_t i = 0; i < count; ++i) {
      copy_elements(x, (o * items.count + g.first[static_cast<std::size_t>(i)]) * items.inner, y,
                    (o * count + i) * items.inner, items.inner);
    }
  }
  const std::vector<std::int64_t>* extras[] = {&g.first, &g.inverse, &g.counts};
  for (int i = 0; i < 3; ++i) {
    if (ctx.wants(i + 1)) ctx.set(i + 1, Tensor::from(*extras[i], {static_cast<std::int64_t>(extras[i]->size())}));
  }
}

// ---- NonMaxSuppression: the best boxes of each class that overlap no better one ----

constexpr Attribute kNmsAttributes[] = {{"center_point_box", 0}};

struct Box {
  float y1, x1, y2, x2;

  [[nodiscard]] float area() const { return (y2 - y1) * (x2 - x1); }
};

Box read_box(const float* b, bool center) {
  if (center) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

bool overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return false;
  const float both = a.area() + b.area() - height * width;
  return a.area() > 0 && b.area() > 0 && both > 0 && height * width / both > threshold;
}

struct NmsLimits {
  std::int64_t most = 0;
  float overlap = 0;
  const float* score = nullptr;
};

std::vector<std::int64_t> suppress(const float* boxes, const float* scores, std::int64_t count, bool center,
                                   const NmsLimits& limits) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < count; ++i) {
    if (limits.score == nullptr || scores[i] > *limits.score) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const int by_score = order_of(scores[b], scores[a]);
    return by_score != 0 ? by_score < 0 : a < b;
  });
  std::vector<std::int64_t> kept;
  for (std::int64_t i : order) {
    if (static_cast<std::int64_t>(kept.size()) >= limits.most) break;
    const Box box = read_box(boxes + i * 4, center);
    const bool suppressed = std::any_of(kept.begin(), kept.end(), [&](std::int64_t k) {
      return overlaps(box, read_box(boxes + k * 4, center), limits.overlap);
    });
    if (!suppressed) kept.push_back(i);
  }
  return kept;
}

template <class T>
const T* one_value(const KernelContext& ctx, int i) {
  if (!ctx.has(i)) return nullptr;
  ctx.op().require(ctx.in(i).dtype() == dtype_of<T> && ctx.in(i).size() == 1,
                   "input {} must be one {}, got {} of shape {}", i, dtype_of<T>, ctx.in(i).dtype(), ctx.in(i).shape());
  return ctx.in<T>(i).data();
}

void kernel_nms(KernelContext& ctx) {
  const Tensor &boxes = ctx.in(0), &scores = ctx.in(1);
  const Shape &b = boxes.shape(), &s = scores.shape();
  ctx.op().require(boxes.dtype() == DType::f32 && scores.dtype() == DType::f32,
                   "boxes and scores must be f32, got {} and {}", boxes.dtype(), scores.dtype());
  ctx.op().require(b.rank() == 3 && s.rank() == 3 && b[2] == 4 && b[0] == s[0] && b[1] == s[2],
                   "boxes must have shape batch x boxes x 4 and scores batch x classes x boxes, got {} and {}", b, s);
  NmsLimits limits;
  if (const auto* most = one_value<std::int64_t>(ctx, 2)) limits.most = *most;
  if (const auto* overlap = one_value<float>(ctx, 3)) limits.overlap = *overlap;
  limits.score = one_value<float>(ctx, 4);
  ctx.op().require(limits.overlap >= 0 && limits.overlap <= 1, "iou_threshold must be between 0 and 1, got {}",
                   limits.overlap);
  const bool center = ctx.op().i("center_point_box") != 0;
  std::vector<std::int64_t> rows;
  for (std::int64_t batch = 0; batch < s[0]; ++batch) {
    for (std::int64_t c = 0; c < s[1]; ++c) {
      const float* from = boxes.view<float>().data() + batch * b[1] * 4;
      for (std::int64_t box :
           suppress(from, scores.view<float>().data() + (batch * s[1] + c) * s[2], s[2], center, limits)) {
        rows.insert(rows.end(), {batch, c, box});
      }
    }
  }
  Tensor y = ctx.allocate(0, DType::i64, {static_cast<std::int64_t>(rows.size()) / 3, 3});
  std::copy(rows.begin(), rows.end(), y.mutable_view<std::int64_t>().begin());
}

}  // namespace

extern const OpDef op_non_zero;
constinit const OpDef op_non_zero = {
    .name = "NonZero", .forms = {9, 13}, .takes = kAny - kPacked, .dynamic_output = true, .kernel = kernel_nonzero};

extern const OpDef op_unique;
constinit const OpDef op_unique = {.name = "Unique",
                                   .outputs = {1, 4},
                                   .attributes = kUniqueAttributes,
                                   .forms = {11, 28},
                                   .takes = kAny - kPacked,
                                   .dynamic_output = true,
                                   .kernel = kernel_unique};

extern const OpDef op_non_max_suppression;
constinit const OpDef op_non_max_suppression = {.name = "NonMaxSuppression",
                                                .inputs = {2, 5},
                                                .attributes = kNmsAttributes,
                                                .forms = {10, 11},
                                                .takes = {{DType::f32, inputs(0)},
                                                          {DType::f32, inputs(1)},
                                                          {DType::i64, inputs(2)},
                                                          {DType::f32, inputs(3)},
                                                          {DType::f32, inputs(4)}},
                                                .dynamic_output = true,
                                                .kernel = kernel_nms};

}  // namespace lathe::ops
