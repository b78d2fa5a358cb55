// Follows dtypes and ranks through the operators that stand in front of those whose old forms need them.
#include "frontends/onnx/hints.h"

#include <algorithm>
#include <string_view>

#include "ops/ir/op.h"

namespace lathe::frontends::onnx {
namespace {

using ops::kNone;

/// Output 0 has the dtype and rank of input 0.
constexpr std::string_view kSameType[] = {"Abs",
                                          "AveragePool",
                                          "BatchNormalization",
                                          "Ceil",
                                          "Clip",
                                          "Conv",
                                          "ConvTranspose",
                                          "Dropout",
                                          "Elu",
                                          "Erf",
                                          "Exp",
                                          "Floor",
                                          "Gelu",
                                          "HardSigmoid",
                                          "HardSwish",
                                          "Identity",
                                          "InstanceNormalization",
                                          "LRN",
                                          "LayerNormalization",
                                          "LeakyRelu",
                                          "Log",
                                          "LogSoftmax",
                                          "MaxPool",
                                          "Neg",
                                          "PRelu",
                                          "Pad",
                                          "Relu",
                                          "Resize",
                                          "Selu",
                                          "Sigmoid",
                                          "Slice",
                                          "Softmax",
                                          "Softplus",
                                          "Sqrt",
                                          "Tanh",
                                          "Transpose",
                                          "GlobalAveragePool",
                                          "GlobalMaxPool",
                                          "Concat"};
/// Output 0 has the dtype of input 0 and the larger rank of its inputs.
constexpr std::string_view kBroadcast[] = {"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"};

template <std::size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

int widest(const Hints& hints, const ops::Graph& graph, const ops::Node& node) {
  int rank = 0;
  for (ops::ValueId id : node.inputs) {
    const int r = id == kNone ? -1 : hints.of(graph, id).rank;
    if (r < 0) return -1;
    rank = std::max(rank, r);
  }
  return rank;
}

}  // namespace

Hint Hints::of(const ops::Graph& graph, ops::ValueId id) const {
  const Tensor& constant = graph.value(id).constant;
  if (constant.defined()) return {constant.dtype(), constant.shape().rank()};
  const auto at = hints_.find(id);
  return at == hints_.end() ? Hint() : at->second;
}

void Hints::follow(const ops::Graph& graph, const ops::Node& node) {
  if (node.inputs.empty() || node.outputs.empty() || node.inputs[0] == kNone || node.outputs[0] == kNone) return;
  const std::string_view op = node.op->domain.empty() ? node.op->name : std::string_view();
  if (const Hint known = of(graph, node.outputs[0]); known.dtype != DType::undefined && known.rank >= 0) return;
  const Hint first = of(graph, node.inputs[0]);
  if (contains(kSameType, op)) return set(node.outputs[0], first);
  if (contains(kBroadcast, op)) return set(node.outputs[0], {first.dtype, widest(*this, graph, node)});
  if (op == "Gemm" || op == "Flatten") return set(node.outputs[0], {first.dtype, 2});
  if (op == "MatMul") {
    const int rank = widest(*this, graph, node);
    return set(node.outputs[0], {first.dtype, rank > 1 ? rank : -1});
  }
  if (op == "Reshape" && node.inputs.size() > 1 && node.inputs[1] != kNone) {
    const Tensor& shape = graph.value(node.inputs[1]).constant;
    const bool known = shape.defined() && shape.size() <= Shape::kMaxRank;
    set(node.outputs[0], {first.dtype, known ? static_cast<int>(shape.size()) : -1});
  }
}

}  // namespace lathe::frontends::onnx
