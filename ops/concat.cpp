// Concat: tensors one behind the other along an axis.
#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"axis", AttrKind::integer, Attribute::kRequired}};

Facts infer(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) {
    op.require_same_dtype(0, i);
  }
  Shape shape = op.in(0).shape;
  const int axis = op.axis("axis", shape.rank());
  for (int i = 1; i < op.inputs(); ++i) {
    const Shape& x = op.in(i).shape;
    op.require(x.rank() == shape.rank(), "inputs have ranks {} and {}", shape.rank(), x.rank());
    for (int d = 0; d < x.rank(); ++d) {
      op.require(d == axis || x[d] == shape[d], "inputs of {} and {} differ along axis {}, not only along axis {}",
                 op.in(0).shape, x, d, axis);
    }
    op.require(x[axis] <= INT64_MAX - shape[axis], "the output is too large");
    shape[axis] += x[axis];
  }
  return {{op.in(0).dtype, shape}};
}

template <class T>
void concat_rows(KernelContext& c, int axis, T* out, std::int64_t begin, std::int64_t end) {
  const auto run_of = [&](const Shape& shape) {
    std::int64_t run = 1;
    for (int d = axis; d < shape.rank(); ++d) run *= shape[d];
    return run;
  };
  const std::int64_t row = run_of(c.out(0).shape());
  std::int64_t offset = 0;
  for (int i = 0; i < c.op().inputs(); ++i) {
    const std::int64_t run = run_of(c.in(i).shape());
    const T* in = static_cast<const T*>(c.in(i).data());
    for (std::int64_t o = begin; run > 0 && o < end; ++o) std::copy_n(in + o * run, run, out + o * row + offset);
    offset += run;
  }
}

void concat(KernelContext& c) {
  Tensor y = c.out(0);
  const int axis = c.op().axis("axis", y.shape().rank());
  std::int64_t outer = 1;
  for (int d = 0; d < axis; ++d) outer *= y.shape()[d];
  if (y.size() == 0) return;
  const std::int64_t grain = std::max<std::int64_t>(1, (std::int64_t{1} << 15) / (y.size() / outer));
  c.parallel(outer, grain, [&](std::int64_t begin, std::int64_t end) {
    dispatch_element(y.dtype(), [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      concat_rows(c, axis, static_cast<T*>(y.mutable_data()), begin, end);
    });
  });
}

}  // namespace

extern const OpDef op_concat;
constinit const OpDef op_concat = {.name = "Concat",
                                   .inputs = {1, Arity::kMany},
                                   .attributes = kAttributes,
                                   .forms = 13,
                                   .takes = kAny - kPacked,
                                   .infer = infer,
                                   .kernel = concat};

}  // namespace lathe::ops
