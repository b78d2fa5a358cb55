// ONNX test-data files.
#include <lathe/tools.h>

#include "frontends/onnx/tensor_file.h"
#include "runtime/boundary.h"
#include "runtime/tools/files.h"

namespace lathe::tools {

Result<NamedValue> try_read_onnx_value(const std::string& path, ValueInfo::Kind kind) noexcept {
  return runtime::guarded<NamedValue>([&] {
    const std::vector<std::byte> bytes = runtime::read_file(path, kArchiveLimit);
    try {
      return frontends::onnx::read_value_proto(bytes, kind);
    } catch (Failure& failure) {
      failure.error.message = shown(path) + ": " + failure.error.message;
      throw;
    }
  });
}

}  // namespace lathe::tools
