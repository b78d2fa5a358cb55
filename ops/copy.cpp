// lathe::Copy: the same tensor, in whatever memory order its output is given.
#include "ops/ir/loop_builder.h"
#include "ops/ir/op.h"

namespace lathe::ops {
namespace {

Facts infer(const OpView& op) { return {Fact(op.in(0).dtype, op.in(0).shape)}; }

Scalar expr(const OpView&, LoopBuilder& b, int, const Coords& at) { return b.in(0, at); }

}  // namespace

extern const OpDef op_copy;
// Impure: a value known while it is compiled lies in row-major order, whatever order its fact states.
constinit const OpDef op_copy = {.name = "Copy", .domain = "lathe", .impure = true, .infer = infer, .expr = expr};

}  // namespace lathe::ops
