// Shape: the extents of a tensor, held inline so that using one never allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <lathe/export.h>

namespace lathe {

/// The extents of a tensor, outermost first. Rank 0 is a scalar. Extents are never negative in a tensor's shape.
class LATHE_API Shape {
 public:
  static constexpr int kMaxRank = 16;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> dims) {
    for (std::int64_t d : dims) push_back(d);
  }
  explicit constexpr Shape(std::span<const std::int64_t> dims) {
    for (std::int64_t d : dims) push_back(d);
  }
  static constexpr Shape filled(int rank, std::int64_t extent) {
    Shape s;
    for (int i = 0; i < rank; ++i) s.push_back(extent);
    return s;
  }

  [[nodiscard]] constexpr int rank() const { return rank_; }
  [[nodiscard]] constexpr bool empty() const { return rank_ == 0; }
  constexpr std::int64_t& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  constexpr const std::int64_t& operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] constexpr std::int64_t back() const { return dims_[rank_ - 1U]; }
  [[nodiscard]] constexpr const std::int64_t* begin() const { return dims_.data(); }
  [[nodiscard]] constexpr const std::int64_t* end() const { return dims_.data() + rank_; }
  constexpr std::int64_t* begin() { return dims_.data(); }
  constexpr std::int64_t* end() { return dims_.data() + rank_; }
  [[nodiscard]] constexpr std::span<const std::int64_t> dims() const { return {dims_.data(), rank_}; }

  /// Appends a dim. Past kMaxRank it is dropped: whoever reads ranks from outside checks them first.
  constexpr void push_back(std::int64_t extent) {
    if (rank_ < kMaxRank) dims_[rank_++] = extent;
  }
  constexpr void insert(int axis, std::int64_t extent) {
    if (rank_ == kMaxRank) return;
    for (int i = rank_; i > axis; --i) (*this)[i] = (*this)[i - 1];
    (*this)[axis] = extent;
    ++rank_;
  }
  constexpr void erase(int axis) {
    for (int i = axis; i + 1 < rank_; ++i) (*this)[i] = (*this)[i + 1];
    --rank_;
  }

  /// The number of elements, 1 for a scalar; -1 where it does not fit in 63 bits or an extent is negative.
  [[nodiscard]] std::int64_t elements() const;
  /// "2x3x4"; "scalar" for rank 0.
  [[nodiscard]] std::string to_string() const;

  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::uint8_t rank_ = 0;
};

}  // namespace lathe
