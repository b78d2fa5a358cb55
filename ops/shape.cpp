// Shape and Size: what a tensor's extents are, as a value.
#include "ops/elements.h"
#include "ops/elementwise.h"
#include "ops/ir/evaluate.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"start", 0}, {"end", AttrKind::integer}};

Facts infer(const OpView& op) { return {{DType::i64, evaluate_shape(op).front().shape()}}; }

void kernel(KernelContext& c) {
  Tensor y = c.out(0);
  copy_elements(evaluate_shape(c.op()).front().tensor(), y);
}

}  // namespace

extern const OpDef op_shape, op_size;
constinit const OpDef op_shape = {
    .name = "Shape", .attributes = kAttributes, .forms = 25, .takes = kAny, .infer = infer, .kernel = kernel};
constinit const OpDef op_size = {.name = "Size", .forms = 25, .takes = kAny, .infer = infer, .kernel = kernel};

}  // namespace lathe::ops
