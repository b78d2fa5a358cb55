// Taking elements by index: Gather, GatherElements, GatherND, ReverseSequence and Compress.
#include <algorithm>

#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAxis0[] = {{"axis", 0}};
constexpr Attribute kBatchDims[] = {{"batch_dims", 0}};
constexpr Attribute kReverseAttributes[] = {{"batch_axis", 1}, {"time_axis", 0}};
constexpr Attribute kCompressAttributes[] = {{"axis", AttrKind::integer}};

// ---- Gather ----

Facts infer_gather(const OpView& op) {
  const Shape& data = op.in(0).shape;
  const Shape& indices = op.in(1).shape;
  const int axis = op.axis("axis", data.rank());
  op.require(data.rank() + indices.rank() - 1 <= Shape::kMaxRank,
             "the output would have rank {}, at most {} is supported", data.rank() + indices.rank() - 1,
             Shape::kMaxRank);
  Shape shape;
  for (int d = 0; d < axis; ++d) shape.push_back(data[d]);
  for (std::int64_t dim : indices) shape.push_back(dim);
  for (int d = axis + 1; d < data.rank(); ++d) shape.push_back(data[d]);
  return {{op.in(0).dtype, shape}};
}

// The coordinate that element `at` of the indices names. A single index that is known makes the whole a view.
Coord index_at(const OpView& op, LoopBuilder& b, const Coords& at, std::int64_t extent) {
  const Tensor* known = op.value(1);
  if (known && known->size() == 1) {
    const std::int64_t index = known->integer(0);
    if (index < -extent || index >= extent) {
      fail(ErrorCode::out_of_range, "{}: index {} is out of range for extent {}", describe(op.node()), index, extent);
    }
    Coord c;
    c.base = index < 0 ? index + extent : index;
    return c;
  }
  return b.indirect(b.in(1, at), extent);
}

Scalar gather_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Shape& data = op.in(0).shape;
  const int axis = op.axis("axis", data.rank());
  const int width = op.in(1).rank();
  Coords indices;
  for (int d = 0; d < width; ++d) indices.push_back(at[axis + d]);
  Coords c;
  for (int d = 0; d < data.rank(); ++d) {
    if (d == axis) {
      c.push_back(index_at(op, b, indices, data[axis]));
    } else {
      c.push_back(at[d < axis ? d : d - 1 + width]);
    }
  }
  return b.in(0, c);
}

// ---- GatherElements ----

Facts infer_gather_elements(const OpView& op) {
  const Shape& data = op.in(0).shape;
  const Shape& indices = op.in(1).shape;
  const int axis = op.axis("axis", data.rank());
  op.require(indices.rank() == data.rank(), "data has rank {}, indices has rank {}", data.rank(), indices.rank());
  for (int d = 0; d < data.rank(); ++d) {
    op.require(d == axis || indices[d] <= data[d], "indices {} reach beyond data {} along axis {}", indices, data, d);
  }
  return {{op.in(0).dtype, indices}};
}

Scalar gather_elements_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const int axis = op.axis("axis", op.in(0).rank());
  Coords c = at;
  c[axis] = index_at(op, b, at, op.in(0).shape[axis]);
  return b.in(0, c);
}

// ---- GatherND ----

Facts infer_gather_nd(const OpView& op) {
  const Shape& data = op.in(0).shape;
  const Shape& indices = op.in(1).shape;
  op.require(data.rank() >= 1 && indices.rank() >= 1, "data and indices must have rank 1 or more, got {} and {}", data,
             indices);
  const std::int64_t batch = op.i("batch_dims");
  op.require(batch >= 0 && batch < std::min(data.rank(), indices.rank()), "batch_dims is {} for ranks {} and {}", batch,
             data.rank(), indices.rank());
  const std::int64_t depth = indices.back();
  op.require(depth >= 1 && depth <= data.rank() - batch, "the last extent of indices is {}, expected 1 to {}", depth,
             data.rank() - batch);
  Shape shape;
  for (int d = 0; d < indices.rank() - 1; ++d) {
    op.require(d >= batch || indices[d] == data[d], "indices {} and data {} differ in batch axis {}", indices, data, d);
    shape.push_back(indices[d]);
  }
  const int kept = static_cast<int>(batch + depth);
  op.require(shape.rank() + data.rank() - kept <= Shape::kMaxRank,
             "the output would have rank {}, at most {} is supported", shape.rank() + data.rank() - kept,
             Shape::kMaxRank);
  for (int d = kept; d < data.rank(); ++d) shape.push_back(data[d]);
  return {{op.in(0).dtype, shape}};
}

Scalar gather_nd_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Shape& data = op.in(0).shape;
  const int rows = op.in(1).rank() - 1;
  const int batch = static_cast<int>(op.i("batch_dims"));
  const int depth = static_cast<int>(op.in(1).shape.back());
  Coords tuple;
  for (int d = 0; d < rows; ++d) tuple.push_back(at[d]);
  tuple.push_back({});
  Coords c;
  for (int d = 0; d < data.rank(); ++d) {
    if (d < batch) {
      c.push_back(at[d]);
    } else if (d < batch + depth) {
      tuple[rows].base = d - batch;
      c.push_back(b.indirect(b.in(1, tuple), data[d]));
    } else {
      c.push_back(at[rows + d - batch - depth]);
    }
  }
  return b.in(0, c);
}

// ---- ReverseSequence ----

Facts infer_reverse_sequence(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const std::int64_t batch = op.i("batch_axis");
  const std::int64_t time = op.i("time_axis");
  op.require(x.rank() >= 2, "the input must have rank 2 or more, got {}", x);
  op.require((batch == 0 && time == 1) || (batch == 1 && time == 0),
             "batch_axis and time_axis must be 0 and 1, got {} and {}", batch, time);
  op.require(op.in(1).shape == Shape{x[static_cast<int>(batch)]}, "sequence_lens has shape {}, expected {}",
             op.in(1).shape, x[static_cast<int>(batch)]);
  return {{op.in(0).dtype, x}};
}

// Element t of a sequence of n elements comes from n - 1 - t where t < n, else it stays.
Scalar reverse_sequence_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const int batch = static_cast<int>(op.i("batch_axis"));
  const int time = static_cast<int>(op.i("time_axis"));
  Coords which;
  which.push_back(at[batch]);
  const Ex length(b, b.in(1, which));
  const Ex t(b, b.coordinate(at[time]));
  Coords c = at;
  c[time] = b.indirect(select(t < length, length - 1 - t, t), op.in(0).shape[time]);
  return b.in(0, c);
}

// ---- Compress ----

void compress(KernelContext& c) {
  const OpView& op = c.op();
  const Tensor& x = c.in(0);
  const std::span<const bool> condition = c.in<bool>(1);
  op.require(op.in(1).dtype == DType::boolean && op.in(1).rank() == 1, "condition must be a vector of bool, got {}",
             op.in(1).to_string());
  const bool flat = !op.has_attr("axis");
  const Shape in = flat ? Shape{x.size()} : x.shape();
  const int axis = flat ? 0 : op.axis("axis", in.rank());
  std::vector<std::int64_t> chosen;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (!condition[i]) continue;
    if (static_cast<std::int64_t>(i) >= in[axis]) {
      c.error(ErrorCode::out_of_range, "condition selects element {}, the axis has extent {}", i, in[axis]);
    }
    chosen.push_back(static_cast<std::int64_t>(i));
  }
  Shape out = in;
  out[axis] = static_cast<std::int64_t>(chosen.size());
  Tensor y = c.allocate(0, x.dtype(), out);
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int d = 0; d < in.rank(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : in[d];
  dispatch_element(x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* from = static_cast<const T*>(x.data());
    T* to = static_cast<T*>(y.mutable_data());
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i : chosen) to = std::copy_n(from + (o * in[axis] + i) * inner, inner, to);
    }
  });
}

}  // namespace

extern const OpDef op_gather, op_gather_elements, op_gather_nd, op_reverse_sequence, op_compress;

constinit const OpDef op_gather = {.name = "Gather",
                                   .inputs = 2,
                                   .attributes = kAxis0,
                                   .forms = 13,
                                   .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                   .infer = infer_gather,
                                   .expr = gather_expr};
constinit const OpDef op_gather_elements = {.name = "GatherElements",
                                            .inputs = 2,
                                            .attributes = kAxis0,
                                            .forms = {11, 13},
                                            .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                            .infer = infer_gather_elements,
                                            .expr = gather_elements_expr};
constinit const OpDef op_gather_nd = {.name = "GatherND",
                                      .inputs = 2,
                                      .attributes = kBatchDims,
                                      .forms = {11, 13},
                                      .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                      .infer = infer_gather_nd,
                                      .expr = gather_nd_expr};
constinit const OpDef op_reverse_sequence = {.name = "ReverseSequence",
                                             .inputs = 2,
                                             .attributes = kReverseAttributes,
                                             .forms = {10, 28},
                                             .takes = {{kAny, inputs(0)}, {DType::i64, inputs(1)}},
                                             .infer = infer_reverse_sequence,
                                             .expr = reverse_sequence_expr};
constinit const OpDef op_compress = {.name = "Compress",
                                     .inputs = 2,
                                     .attributes = kCompressAttributes,
                                     .forms = {9, 28},
                                     .takes = {{kAny - kPacked, inputs(0)}, {DType::boolean, inputs(1)}},
                                     .dynamic_output = true,
                                     .kernel = compress};

}  // namespace lathe::ops
