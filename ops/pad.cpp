// Pad: elements added to (or, where negative, cut from) both ends of axes: a constant, or what the mode makes of the
// input.
#include <algorithm>
#include <array>

#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"mode", "constant"}};

struct Ends {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Of each axis.
std::array<Ends, Shape::kMaxRank> ends_of(const OpView& op) {
  const int rank = op.in(0).rank();
  std::array<Ends, Shape::kMaxRank> ends{};
  const Tensor& pads = op.known_integers(1);
  const Tensor* axes = op.has(3) ? &op.known_integers(3) : nullptr;
  const std::int64_t count = axes ? axes->size() : rank;
  op.require(pads.size() == 2 * count, "pads has {} entries, expected {}", pads.size(), 2 * count);
  for (std::int64_t i = 0; i < count; ++i) {
    constexpr std::int64_t kLimit = std::int64_t{1} << 48;
    const Ends e{pads.integer(i), pads.integer(i + count)};
    op.require(e.begin > -kLimit && e.begin < kLimit && e.end > -kLimit && e.end < kLimit,
               "pads of {} and {} are too large", e.begin, e.end);
    ends[static_cast<std::size_t>(op.axis(axes ? axes->integer(i) : i, rank, "an axis"))] = e;
  }
  return ends;
}

Facts infer(const OpView& op) {
  const auto mode = op.s("mode");
  op.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
             "mode must be constant, reflect, edge or wrap, got \"{}\"", mode);
  if (op.has(2)) {
    op.require(is_scalar(op.in(2)), "constant_value must be a scalar, got {}", op.in(2).to_string());
  }
  Shape shape = op.in(0).shape;
  const auto ends = ends_of(op);
  for (int d = 0; d < shape.rank(); ++d) {
    const Ends& e = ends[static_cast<std::size_t>(d)];
    const std::int64_t kept = shape[d] + std::min<std::int64_t>(0, e.begin) + std::min<std::int64_t>(0, e.end);
    op.require(shape[d] + e.begin + e.end >= 0, "pads of {} and {} cut more than the {} elements of axis {}", e.begin,
               e.end, shape[d], d);
    op.require(mode == "constant" || kept > 0 || (e.begin <= 0 && e.end <= 0), "axis {} has no elements to pad with",
               d);
    shape[d] += e.begin + e.end;
  }
  return {{op.in(0).dtype, shape}};
}

// A constant that is known becomes part of a loop kernel, guarded at the ends; the rest is plain code.
std::vector<ValueId> lower(const OpView& op, Builder& b) {
  std::vector<ValueId> inputs;
  for (int i = 0; i < op.inputs(); ++i) inputs.push_back(op.id(i));
  const DType dtype = op.in(0).dtype;
  const bool is_number = dtype != DType::string && !dtype.is_complex();
  if (op.s("mode") == "constant" && is_number && (!op.has(2) || op.value(2))) {
    return {b.op("lathe::PadConstant", std::move(inputs))};
  }
  return {b.op("lathe::PadKernel", std::move(inputs), {{"mode", std::string(op.s("mode"))}})};
}

Scalar constant_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType type = LoopBuilder::compute_type(op.in(0).dtype);
  Scalar fill = b.constant(type, 0);
  const Tensor* value = op.value(2);
  if (value && type.is_float()) fill = b.number(type, value->number(0));
  if (value && !type.is_float()) fill = b.number_int(type, value->integer(0));
  Coords c = at;
  std::vector<int> checked;
  const auto ends = ends_of(op);
  for (int d = 0; d < op.in(0).rank(); ++d) {
    const Ends& e = ends[static_cast<std::size_t>(d)];
    c[d] += -e.begin;
    if (e.begin > 0 || e.end > 0) checked.push_back(d);
  }
  return b.in_or(0, c, checked, fill);
}

// Where along an axis of `dim` elements each element of the padded axis comes from; -1 for the constant. What is cut
// goes first: the modes see what is left.
std::pmr::vector<std::int64_t> sources(std::int64_t dim, const Ends& ends, std::string_view mode,
                                       std::pmr::memory_resource* memory) {
  const std::int64_t first = std::max<std::int64_t>(0, -ends.begin);
  const std::int64_t size = dim - first - std::max<std::int64_t>(0, -ends.end);
  std::pmr::vector<std::int64_t> result(static_cast<std::size_t>(dim + ends.begin + ends.end), memory);
  std::int64_t i = -std::max<std::int64_t>(0, ends.begin);
  const auto modulo = [](std::int64_t a, std::int64_t n) { return (a % n + n) % n; };
  for (std::int64_t& source : result) {
    std::int64_t at = i++;
    if (at < 0 || at >= size) {
      if (mode == "constant") {
        source = -1;
        continue;
      }
      if (mode == "edge") at = std::clamp<std::int64_t>(at, 0, size - 1);
      if (mode == "wrap") at = modulo(at, size);
      if (mode == "reflect" && size == 1) at = 0;
      if (mode == "reflect" && size > 1) {
        at = modulo(at, 2 * (size - 1));
        at = std::min(at, 2 * (size - 1) - at);
      }
    }
    source = first + at;
  }
  return result;
}

using Sources = std::pmr::vector<std::int64_t>;

/// Rows [begin, end) along the last axis. A row is constant as soon as one of its other coordinates is.
template <class T>
void pad_rows(const Tensor& x, Tensor& y, const std::pmr::vector<Sources>& from, const T& fill, std::int64_t begin,
              std::int64_t end) {
  const int last = y.shape().rank() - 1;
  const Sources& inner = from.back();
  const auto width = static_cast<std::int64_t>(inner.size());
  T* out = static_cast<T*>(y.mutable_data()) + begin * width;
  for (std::int64_t row = begin; row < end; ++row, out += width) {
    std::int64_t offset = 0;
    std::int64_t stride = x.shape()[last];
    bool outside = false;
    for (std::int64_t d = last - 1, rest = row; d >= 0; --d) {
      const Sources& axis = from[static_cast<std::size_t>(d)];
      const std::int64_t extent = y.shape()[static_cast<int>(d)];
      const std::int64_t source = axis[static_cast<std::size_t>(rest % extent)];
      outside = outside || source < 0;
      offset += source * stride;
      stride *= x.shape()[static_cast<int>(d)];
      rest /= extent;
    }
    const T* in = static_cast<const T*>(x.data()) + (outside ? 0 : offset);
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t source = outside ? -1 : inner[static_cast<std::size_t>(i)];
      out[i] = source < 0 ? fill : in[source];
    }
  }
}

void pad(KernelContext& c) {
  Tensor y = c.out(0);
  if (y.size() == 0) return;
  if (y.shape().rank() == 0) return copy_elements(c.in(0), y);
  const auto ends = ends_of(c.op());
  const int rank = y.shape().rank();
  std::pmr::vector<Sources> from(c.memory());
  from.reserve(static_cast<std::size_t>(rank));
  for (int d = 0; d < rank; ++d) {
    from.push_back(sources(c.in(0).shape()[d], ends[static_cast<std::size_t>(d)], c.op().s("mode"), c.memory()));
  }
  const Tensor value = c.has(2) ? unpacked(c.in(2)) : Tensor();
  const std::int64_t width = y.shape().back();
  move_unpacked(c.in(0), y, [&](const Tensor& in, Tensor& out) {
    dispatch_element(out.dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T fill = value.defined() ? *static_cast<const T*>(value.data()) : T();
      c.parallel(out.size() / width, std::max<std::int64_t>(1, (std::int64_t{1} << 15) / width),
                 [&](std::int64_t begin, std::int64_t end) { pad_rows<T>(in, out, from, fill, begin, end); });
    });
  });
}

}  // namespace

extern const OpDef op_pad, op_pad_constant, op_pad_kernel;

constinit const OpDef op_pad = {.name = "Pad",
                                .inputs = {2, 4},
                                .attributes = kAttributes,
                                .forms = 25,
                                .takes = {{kAny, inputs(0, 2)}, {kIndices, inputs(1)}, {kIndices, inputs(3)}},
                                .shape_inputs = 0b1010,
                                .infer = infer,
                                .lower = lower};
constinit const OpDef op_pad_constant = {.name = "PadConstant",
                                         .domain = "lathe",
                                         .inputs = {2, 4},
                                         .attributes = kAttributes,
                                         .shape_inputs = 0b1110,
                                         .infer = infer,
                                         .expr = constant_expr};
constinit const OpDef op_pad_kernel = {.name = "PadKernel",
                                       .domain = "lathe",
                                       .inputs = {2, 4},
                                       .attributes = kAttributes,
                                       .shape_inputs = 0b1010,
                                       .infer = infer,
                                       .kernel = pad,
                                       .real_time = true};

}  // namespace lathe::ops
