// Identity, and Dropout, which is Identity outside training.
#include <cstring>
#include <random>

#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kDropoutAttributes[] = {{"seed", AttrKind::integer}};

Facts infer_identity(const OpView& op) {
  Fact fact = op.in(0);
  fact.layout = {};
  return {fact};
}

void identity(KernelContext& c) {
  if (c.value(0).is_tensor()) {
    Tensor y = c.out(0);
    copy_elements(c.in(0), y);
  } else {
    c.set(0, c.value(0));
  }
}

Facts infer_dropout(const OpView& op) {
  for (int i : {1, 2}) {
    if (!op.has(i)) continue;
    op.require(is_scalar(op.in(i)), "{} must be a scalar, got {}", i == 1 ? "ratio" : "training_mode",
               op.in(i).to_string());
  }
  return {{op.in(0).dtype, op.in(0).shape}, {DType::boolean, op.in(0).shape}};
}

// Keeps each element with probability 1 - ratio, scaled by 1 / (1 - ratio).
void drop(KernelContext& c, double ratio, Tensor& y, std::span<bool> mask) {
  std::mt19937_64 engine(c.op().has_attr("seed") ? static_cast<std::uint64_t>(c.op().i("seed"))
                                                 : std::random_device{}());
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  Tensor kept = c.in(0).cast(DType::f64).clone();
  const std::span<double> values = kept.mutable_view<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool keep = uniform(engine) >= ratio;
    values[i] = keep ? values[i] / (1 - ratio) : 0.0;
    if (!mask.empty()) mask[i] = keep;
  }
  copy_elements(kept.cast(y.dtype()), y);
}

void dropout(KernelContext& c) {
  const bool training = c.has(2) && c.in(2).integer(0) != 0;
  const double ratio = c.has(1) ? c.in(1).number(0) : 0.5;
  if (training && (ratio < 0 || ratio >= 1)) {
    c.error(ErrorCode::invalid_argument, "ratio is {}, expected a value in [0, 1)", ratio);
  }
  Tensor y = c.out(0);
  Tensor mask = c.wants(1) ? c.out(1) : Tensor();
  const std::span<bool> bits = c.wants(1) ? mask.mutable_view<bool>() : std::span<bool>();
  if (training && ratio > 0) {
    drop(c, ratio, y, bits);
  } else {
    copy_elements(c.in(0), y);
    for (bool& bit : bits) bit = true;
  }
}

}  // namespace

extern const OpDef op_identity, op_dropout;

constinit const OpDef op_identity = {
    .name = "Identity", .forms = 25, .takes = kAny, .any_kind = true, .infer = infer_identity, .kernel = identity};
constinit const OpDef op_dropout = {.name = "Dropout",
                                    .inputs = {1, 3},
                                    .outputs = {1, 2},
                                    .attributes = kDropoutAttributes,
                                    .forms = 22,
                                    .takes = {{kFloats, inputs(0)}, {kFloats, inputs(1)}, {DType::boolean, inputs(2)}},
                                    .impure = true,
                                    .infer = infer_dropout,
                                    .kernel = dropout};

}  // namespace lathe::ops
