// Scatters: ScatterElements, ScatterND and the deprecated Scatter write updates to indexed places of a copy of `data`;
// TensorScatter writes them into a cache.
#include <cstdint>

#include "ops/elements.h"
#include "ops/ir/builder.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

constexpr Attribute kElementsAttributes[] = {{"axis", 0}, {"reduction", "none"}};
constexpr Attribute kNdAttributes[] = {{"reduction", "none"}};
constexpr Attribute kScatterAttributes[] = {{"axis", 0}};

enum class Reduction : std::uint8_t { none, add, mul, min, max };

Reduction reduction(const OpView& op) {
  const std::string_view name = op.s("reduction");
  if (name == "none") return Reduction::none;
  op.require(name == "add" || name == "mul" || name == "min" || name == "max",
             "reduction must be none, add, mul, min or max, got '{}'", shown(name));
  const DType dtype = op.in(0).dtype;
  op.require(dtype.is_integer() || dtype.is_float() || dtype == DType::boolean, "reduction '{}' needs numbers, got {}",
             shown(name), dtype);
  return name == "add"   ? Reduction::add
         : name == "mul" ? Reduction::mul
         : name == "min" ? Reduction::min
                         : Reduction::max;
}

template <class T>
T combine(Reduction r, T old, T update) {
  switch (r) {
    case Reduction::none:
      return update;
    case Reduction::add:
      return static_cast<T>(old + update);
    case Reduction::mul:
      return static_cast<T>(old * update);
    case Reduction::min:
      return update < old || update != update ? update : old;
    case Reduction::max:
      return update > old || update != update ? update : old;
  }
  return old;
}

std::int64_t checked_index(const KernelContext& ctx, std::int64_t index, std::int64_t extent) {
  if (index < -extent || index >= extent) {
    ctx.error(ErrorCode::out_of_range, "index {} is outside [{}, {})", index, -extent, extent);
  }
  return index < 0 ? index + extent : index;
}

/// Runs scatter(data, updates, combine) on a copy of `data`, in f32 where a reduction works on a narrower float.
template <class Scatter>
void scatter_into_copy(KernelContext& ctx, Reduction r, Scatter&& scatter) {
  Tensor y = ctx.out(0);
  copy_elements(ctx.in(0), 0, y, 0, y.size());
  if (ctx.in(2).size() == 0) return;
  if (r == Reduction::none) {
    dispatch_element(y.dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const auto assign_one = [](T& to, const T& from) { to = from; };
      scatter(static_cast<T*>(y.mutable_data()), static_cast<const T*>(ctx.in(2).data()), assign_one);
    });
    return;
  }
  const Tensor updates = widened(ctx, ctx.in(2));
  Tensor work = updates.dtype() == y.dtype() ? y : widened(ctx, y);
  dispatch_numeric(work.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto combine_one = [r](T& to, const T& from) { to = combine(r, to, from); };
    scatter(static_cast<T*>(work.mutable_data()), static_cast<const T*>(updates.data()), combine_one);
  });
  if (updates.dtype() != y.dtype()) assign(y, work);
}

// ---- ScatterElements ----

Facts infer_elements(const OpView& op) {
  const Fact& data = op.in(0);
  const Fact& indices = op.in(1);
  op.require(data.rank() >= 1, "data must have at least one dim");
  const int axis = op.axis("axis", data.rank());
  op.require(indices.shape == op.in(2).shape, "indices and updates must have one shape, got {} and {}", indices.shape,
             op.in(2).shape);
  op.require(indices.rank() == data.rank(), "indices must have rank {}, got {}", data.rank(), indices.rank());
  for (int d = 0; d < data.rank(); ++d) {
    op.require(d == axis || indices.shape[d] <= data.shape[d],
               "indices of shape {} exceed data of shape {} along axis {}", indices.shape, data.shape, d);
  }
  if (op.op().name != "Scatter") reduction(op);
  return {data};
}

template <class I, class T, class Combine>
void scatter_elements(const KernelContext& ctx, int axis, T* data, const T* updates, const Combine& combine_one) {
  const Shape &shape = ctx.in(0).shape(), &index_shape = ctx.in(1).shape();
  const I* indices = ctx.in<I>(1).data();
  const int rank = shape.rank();
  Shape strides = Shape::filled(rank, 1);
  for (int d = rank - 2; d >= 0; --d) strides[d] = strides[d + 1] * shape[d + 1];
  const std::int64_t row = index_shape[rank - 1];
  const std::int64_t step = axis == rank - 1 ? 0 : 1;
  Shape at = Shape::filled(rank, 0);
  for (std::int64_t done = 0, total = index_shape.elements(); done < total; done += row) {
    std::int64_t base = 0;
    for (int d = 0; d < rank - 1; ++d) base += d == axis ? 0 : at[d] * strides[d];
    for (std::int64_t i = 0; i < row; ++i) {
      const std::int64_t index = checked_index(ctx, static_cast<std::int64_t>(indices[done + i]), shape[axis]);
      combine_one(data[base + i * step + index * strides[axis]], updates[done + i]);
    }
    for (int d = rank - 2; d >= 0; --d) {
      if (++at[d] < index_shape[d]) break;
      at[d] = 0;
    }
  }
}

void kernel_elements(KernelContext& ctx) {
  const int axis = ctx.op().axis("axis", ctx.in(0).shape().rank());
  scatter_into_copy(ctx, reduction(ctx.op()), [&](auto* data, const auto* updates, const auto& combine_one) {
    if (ctx.in(1).dtype() == DType::i32) return scatter_elements<std::int32_t>(ctx, axis, data, updates, combine_one);
    scatter_elements<std::int64_t>(ctx, axis, data, updates, combine_one);
  });
}

std::vector<ValueId> lower_scatter(const OpView& op, Builder& b) {
  return {b.op("ScatterElements", {op.id(0), op.id(1), op.id(2)}, {{"axis", op.i("axis")}})};
}

// ---- ScatterND ----

Facts infer_nd(const OpView& op) {
  const Fact& data = op.in(0);
  const Fact& indices = op.in(1);
  op.require(data.rank() >= 1 && indices.rank() >= 1, "data and indices must have at least one dim, got {} and {}",
             data.shape, indices.shape);
  op.require(indices.shape.back() <= data.rank(), "each index has {} values, but data only {} dims",
             indices.shape.back(), data.rank());
  Shape expected;
  for (int d = 0; d + 1 < indices.rank(); ++d) expected.push_back(indices.shape[d]);
  for (int d = static_cast<int>(indices.shape.back()); d < data.rank(); ++d) expected.push_back(data.shape[d]);
  op.require(op.in(2).shape == expected, "updates must have shape {}, got {}", expected, op.in(2).shape);
  reduction(op);
  return {data};
}

void kernel_nd(KernelContext& ctx) {
  const Shape& shape = ctx.in(0).shape();
  const auto indices = ctx.in<std::int64_t>(1);
  const auto depth = static_cast<int>(ctx.in(1).shape().back());
  const std::int64_t count = extent_of(ctx.in(1).shape(), 0, ctx.in(1).shape().rank() - 1);
  const std::int64_t block = extent_of(shape, depth, shape.rank());
  scatter_into_copy(ctx, reduction(ctx.op()), [&](auto* data, const auto* updates, const auto& combine_one) {
    for (std::int64_t n = 0; n < count; ++n) {
      std::int64_t offset = 0;
      for (int d = 0; d < depth; ++d) {
        offset = offset * shape[d] + checked_index(ctx, indices[static_cast<std::size_t>(n * depth + d)], shape[d]);
      }
      for (std::int64_t i = 0; i < block; ++i) combine_one(data[offset * block + i], updates[n * block + i]);
    }
  });
}

// ---- TensorScatter: updates written behind each batch row's write index ----

constexpr Attribute kTensorScatterAttributes[] = {{"axis", -2}, {"mode", "linear"}};

int sequence_axis(const OpView& op) {
  const int axis = op.axis("axis", op.in(0).rank());
  op.require(axis != 0, "axis must not be the batch axis 0");
  return axis;
}

Facts infer_tensor_scatter(const OpView& op) {
  const Fact& cache = op.in(0);
  const Fact& update = op.in(1);
  const int axis = sequence_axis(op);
  op.require(op.s("mode") == "linear" || op.s("mode") == "circular", "mode must be linear or circular, got '{}'",
             shown(op.s("mode")));
  op.require(update.rank() == cache.rank(), "update must have rank {}, got {}", cache.rank(), update.rank());
  for (int d = 0; d < cache.rank(); ++d) {
    op.require(d == axis ? update.shape[d] <= cache.shape[d] : update.shape[d] == cache.shape[d],
               "update of shape {} does not fit the cache of shape {}", update.shape, cache.shape);
  }
  if (op.has(2)) {
    op.require(op.in(2).dtype == DType::i64 && op.in(2).shape == Shape{cache.shape[0]},
               "write_indices must be i64 of shape {}, got {}", Shape{cache.shape[0]}, op.in(2).to_string());
  }
  return {cache};
}

void kernel_tensor_scatter(KernelContext& ctx) {
  const Tensor &cache = ctx.in(0), &update = ctx.in(1);
  Tensor y = ctx.out(0);
  copy_elements(cache, 0, y, 0, y.size());
  const int axis = sequence_axis(ctx.op());
  const bool circular = ctx.op().s("mode") == "circular";
  const std::int64_t length = cache.shape()[axis], count = update.shape()[axis];
  const std::int64_t middle = extent_of(cache.shape(), 1, axis),
                     inner = extent_of(cache.shape(), axis + 1, cache.shape().rank());
  for (std::int64_t n = 0; n < cache.shape()[0]; ++n) {
    const std::int64_t first = ctx.has(2) ? ctx.in<std::int64_t>(2)[static_cast<std::size_t>(n)] : 0;
    if (first < 0 || (!circular && first > length - count)) {
      ctx.error(ErrorCode::out_of_range, "write index {} with {} elements is outside the cache of {}", first, count,
                length);
    }
    for (std::int64_t m = 0; m < middle; ++m) {
      for (std::int64_t s = 0; s < count; ++s) {
        const std::int64_t to = (first % length + s) % length;
        copy_elements(update, ((n * middle + m) * count + s) * inner, y, ((n * middle + m) * length + to) * inner,
                      inner);
      }
    }
  }
}

}  // namespace

extern const OpDef op_scatter_elements;
constinit const OpDef op_scatter_elements = {.name = "ScatterElements",
                                             .inputs = 3,
                                             .attributes = kElementsAttributes,
                                             .forms = {11, 18},
                                             .takes = {{kAny - kPacked, inputs(0, 2)}, {kIndices, inputs(1)}},
                                             .infer = infer_elements,
                                             .kernel = kernel_elements,
                                             .real_time = true};

extern const OpDef op_scatter;
constinit const OpDef op_scatter = {.name = "Scatter",
                                    .inputs = 3,
                                    .attributes = kScatterAttributes,
                                    .forms = {9, 11},
                                    .takes = {{kAny - kPacked, inputs(0, 2)}, {kIndices, inputs(1)}},
                                    .infer = infer_elements,
                                    .lower = lower_scatter};

extern const OpDef op_scatter_nd;
constinit const OpDef op_scatter_nd = {.name = "ScatterND",
                                       .inputs = 3,
                                       .attributes = kNdAttributes,
                                       .forms = {11, 18},
                                       .takes = {{kAny - kPacked, inputs(0, 2)}, {DType::i64, inputs(1)}},
                                       .infer = infer_nd,
                                       .kernel = kernel_nd,
                                       .real_time = true};

extern const OpDef op_tensor_scatter;
constinit const OpDef op_tensor_scatter = {
    .name = "TensorScatter",
    .inputs = {2, 3},
    .attributes = kTensorScatterAttributes,
    .forms = {24, 24},
    .takes = {{kAny - DType::u2 - DType::i2, inputs(0, 1)}, {DType::i64, inputs(2)}},
    .infer = infer_tensor_scatter,
    .kernel = kernel_tensor_scatter,
    .real_time = true};

}  // namespace lathe::ops
