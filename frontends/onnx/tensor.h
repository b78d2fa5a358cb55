// Reads ONNX's tensor messages into tensors that own their memory.
#pragma once

#include <string_view>

#include <lathe/tensor.h>

#include "frontends/source.h"

namespace lathe::frontends::onnx {

struct NamedTensor {
  std::string_view name;  ///< a view of the message
  Tensor tensor;
};

/// A TensorProto. `source` gives external data and may be null where there must be none.
NamedTensor read_tensor(std::string_view message, const ModelSource* source, Budget& budget);

/// A SparseTensorProto, made dense; named after its values.
NamedTensor read_sparse_tensor(std::string_view message, const ModelSource* source, Budget& budget);

/// The name of a TensorProto, without reading the rest.
std::string_view tensor_name(std::string_view message);

}  // namespace lathe::frontends::onnx
