// ValueInfo: what a model declares of an input or output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lathe/dtype.h>
#include <lathe/export.h>
#include <lathe/shape.h>

namespace lathe {

/// One declared dim: a fixed extent, a name shared by dims that must agree, or neither.
struct Dim {
  std::int64_t extent = -1;  ///< -1 where the model leaves it open
  std::string symbol;        ///< "batch", "sequence", …; empty where it has none
};

/// What a model declares of an input or output. For sequences, optionals and maps `dtype` and `dims` speak of the
/// tensors inside.
struct LATHE_API ValueInfo {
  enum class Kind : std::uint8_t { tensor, sequence, optional, map, optional_sequence };

  std::string name;
  Kind kind = Kind::tensor;
  DType dtype;                           ///< undefined where unknown
  std::optional<std::vector<Dim>> dims;  ///< absent where even the rank is unknown
  bool required = true;                  ///< false for an input that has a default in the file

  /// Whether a shape is among those that `dims` allow; the symbols may stand for any extent.
  [[nodiscard]] bool admits(const Shape& shape) const;
  /// "f32[batch,3,224,224]"; "f32[?]" for an open dim, "f32[...]" for an unknown rank.
  [[nodiscard]] std::string to_string() const;
};

}  // namespace lathe
