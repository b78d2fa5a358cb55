// Fact: what is known of a value once the shapes that arrive are known.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <lathe/dtype.h>
#include <lathe/shape.h>

namespace lathe::ops {

/// The order of a tensor's dims in memory, outermost first. Row-major unless a pass decided otherwise.
struct Layout {
  bool row_major = true;
  std::array<std::uint8_t, Shape::kMaxRank> order{};

  /// The layout that keeps dim 1 innermost: 0, 2, 3, …, 1.
  static Layout channels_last(int rank);
  [[nodiscard]] int dim_at(int position) const {
    return row_major ? position : order[static_cast<std::size_t>(position)];
  }
  friend bool operator==(const Layout& a, const Layout& b);
};

struct Fact {
  enum class Kind : std::uint8_t { tensor, sequence, optional, map };

  Kind kind = Kind::tensor;
  DType dtype;    ///< of the tensor, or of the tensors inside
  Shape shape;    ///< tensors only
  Layout layout;  ///< tensors only

  Fact() = default;
  Fact(DType d, const Shape& s) : dtype(d), shape(s) {}
  static Fact of_kind(Kind kind, DType dtype) {
    Fact f;
    f.kind = kind;
    f.dtype = dtype;
    return f;
  }

  [[nodiscard]] bool is_tensor() const { return kind == Kind::tensor; }
  [[nodiscard]] int rank() const { return shape.rank(); }
  /// "f32[1,3,224,224]", with "{0,2,3,1}" behind it for a layout that is not row-major; "seq(f32)".
  [[nodiscard]] std::string to_string() const;
  /// Same dtype, shape and kind (the layout may differ).
  [[nodiscard]] bool same_type(const Fact& other) const {
    return kind == other.kind && dtype == other.dtype && (!is_tensor() || shape == other.shape);
  }
};

/// The distance in elements between neighbours along each dim, for the fact's layout.
Shape strides_of(const Fact& fact);

}  // namespace lathe::ops
