// ONNX's test data files (`input_0.pb`): a tensor, sequence, optional or map message each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <lathe/engine.h>

namespace lathe::frontends::onnx {

/// The value in a file. The file does not say its kind: it is that of the model's input or output. Failure where it is
/// damaged.
NamedValue read_value_proto(std::span<const std::byte> bytes, ValueInfo::Kind kind);

/// A tensor as a TensorProto.
std::vector<std::byte> write_tensor_proto(const Tensor& tensor, const std::string& name = {});

}  // namespace lathe::frontends::onnx
