// widen_matmul_integer: 8-bit products with constant weights become float32 products, which every CPU multiplies fast.
//
//   MatMulInteger(a, B, za, zb) = i32(matmul(f32(a) − f32(za), f32(B) − f32(zb)))
//
// Exact: each sum stays below 2^24, the largest integer up to which float32 holds all; longer rows are cut into pieces
// that do, and added as integers.
#include <algorithm>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;
using ops::Node;
using ops::ValueId;

constexpr std::int64_t kExact = std::int64_t{1} << 24;

bool is_scalar(const ops::Graph& graph, ValueId v) { return graph.value(v).fact->shape.elements() == 1; }

std::int64_t largest(DType dtype, bool shifted) { return dtype == DType::u8 || shifted ? 255 : 128; }

}  // namespace

std::size_t widen_matmul_integer(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  for (ops::NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!is(node, "MatMulInteger")) continue;
    const ValueId a = node.inputs[0];
    const ValueId w = node.inputs[1];
    const ValueId za = node.inputs.size() > 2 ? node.inputs[2] : kNone;
    const ValueId zw = node.inputs.size() > 3 ? node.inputs[3] : kNone;
    const Tensor& weights = graph.value(w).constant;
    if (!weights.defined() || weights.shape().rank() != 2 || graph.value(a).fact->rank() < 2) continue;
    if ((za != kNone && !is_scalar(graph, za)) || (zw != kNone && !graph.value(zw).is_constant())) continue;
    if (zw != kNone && !is_scalar(graph, zw) && graph.value(zw).fact->rank() != 1) continue;
    const std::int64_t k = weights.shape()[0];
    const std::int64_t bound = largest(graph.value(a).fact->dtype, za != kNone) * largest(weights.dtype(), zw != kNone);
    const std::int64_t piece = (kExact - 1) / bound;
    const std::string name = node.name.empty() ? "MatMulInteger" : node.name;
    const ValueId y = node.outputs[0];
    ops::Patch patch(graph, name);
    ops::Builder& b = patch.build();
    const auto rank = static_cast<std::int64_t>(graph.value(a).fact->rank());
    const auto widened = [&](ValueId v, ValueId zero) {
      const ValueId wide = b.cast(v, DType::f32);
      return zero == kNone
                 ? wide
                 : b.sub(wide, b.cast(is_scalar(graph, zero) ? b.reshape(zero, std::vector<std::int64_t>{}) : zero,
                                      DType::f32));
    };
    const ValueId x = widened(a, za);
    const ValueId m = widened(w, zw);
    ValueId sum = kNone;
    for (std::int64_t begin = 0; begin < std::max<std::int64_t>(k, 1); begin += piece) {
      const std::int64_t end = std::min(k, begin + piece);
      const bool whole = begin == 0 && end == k;
      const ValueId left = whole ? x : b.slice(x, {begin}, {end}, {rank - 1});
      const ValueId right = whole ? m : b.slice(m, {begin}, {end}, {0});
      const ValueId part = b.cast(b.matmul(left, right), DType::i32);
      sum = sum == kNone ? part : b.add(sum, part);
    }
    patch.replace(y, sum);
    patch.apply();
    graph.remove_node(id);
    ++changes;
  }
  return changes;
}

}  // namespace lathe::passes
