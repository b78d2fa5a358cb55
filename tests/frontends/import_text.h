// Imports a model written by a test: as graph text, or as the error it gives.
#pragma once

#include <span>
#include <string>

#include "frontends/frontend.h"
#include "ops/ir/failure.h"
#include "ops/ir/text.h"
#include "tests/support/onnx_writer.h"

namespace lathe::tests {

inline ops::Graph import_bytes(const std::string& bytes, const LoadOptions& options = {}) {
  const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  return frontends::import_model(frontends::ModelSource::from_bytes(view, options), options);
}

/// The graph's text.
inline std::string import_text(const onnx::ModelSpec& spec, const LoadOptions& options = {}) {
  return ops::to_text(import_bytes(onnx::model(spec), options));
}

inline Error import_error(const std::string& bytes, const LoadOptions& options = {}) {
  try {
    import_bytes(bytes, options);
  } catch (const Failure& failure) {
    return failure.error;
  }
  return {ErrorCode::internal, "no error"};
}
inline Error import_error(const onnx::ModelSpec& spec, const LoadOptions& options = {}) {
  return import_error(onnx::model(spec), options);
}

}  // namespace lathe::tests
