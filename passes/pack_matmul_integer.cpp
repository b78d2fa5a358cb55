// pack_matmul_integer: 8-bit products with constant weights read them packed.
//
//   MatMulInteger(a, B, za, zb) = lathe::PackedMatMul(a, lathe::PackMatrix(B, zb), za)
#include "ops/ir/builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;
using ops::Node;
using ops::ValueId;

bool is_scalar(const ops::Graph& graph, ValueId v) { return graph.value(v).fact->shape.elements() == 1; }

bool all_zero(const Tensor& t) {
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (t.integer(i) != 0) return false;
  }
  return true;
}

}  // namespace

std::size_t pack_matmul_integer(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  for (ops::NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!is(node, "MatMulInteger")) continue;
    const ValueId a = node.inputs[0];
    const ValueId w = node.inputs[1];
    const ValueId za = node.inputs.size() > 2 ? node.inputs[2] : kNone;
    const ValueId zw = node.inputs.size() > 3 ? node.inputs[3] : kNone;
    const Tensor& weights = graph.value(w).constant;
    if (!weights.defined() || weights.shape().rank() != 2 || graph.value(a).fact->rank() < 1) continue;
    if ((za != kNone && !is_scalar(graph, za)) || (zw != kNone && !graph.value(zw).is_constant())) continue;
    if (zw != kNone && !is_scalar(graph, zw) && graph.value(zw).fact->rank() != 1) continue;
    const bool symmetric = weights.dtype() == DType::i8 && (zw == kNone || all_zero(graph.value(zw).constant));
    const std::int64_t columns = weights.shape()[1];
    const ValueId y = node.outputs[0];
    ops::Patch patch(graph, node.name.empty() ? "MatMulInteger" : node.name);
    ops::Builder& b = patch.build();
    const std::vector<ValueId> packed = b.ops("lathe::PackMatrix", {w, zw}, 3);
    patch.replace(y, b.op("lathe::PackedMatMul", {a, packed[0], packed[1], za, symmetric ? kNone : packed[2]},
                          {{"columns", columns}}));
    patch.apply();
    graph.remove_node(id);
    ++changes;
  }
  return changes;
}

}  // namespace lathe::passes
