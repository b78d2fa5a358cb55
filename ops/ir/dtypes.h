// DTypes: a set of dtypes; Takes: which of them some inputs of an operator take.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "lathe/dtype.h"

namespace lathe::ops {

class DTypes {
 public:
  constexpr DTypes() = default;
  constexpr DTypes(DType d)
      : bits_(std::uint32_t{1} << static_cast<unsigned>(d)) {}  // NOLINT(google-explicit-constructor)
  constexpr DTypes(DType::Code d) : DTypes(DType(d)) {}         // NOLINT(google-explicit-constructor)

  [[nodiscard]] constexpr bool contains(DType d) const { return (bits_ & DTypes(d).bits_) != 0; }
  [[nodiscard]] constexpr int count() const { return std::popcount(bits_); }
  [[nodiscard]] constexpr bool contains(DTypes others) const { return (bits_ & others.bits_) == others.bits_; }
  friend constexpr DTypes operator|(DTypes a, DTypes b) { return DTypes(a.bits_ | b.bits_); }
  friend constexpr DTypes operator-(DTypes a, DTypes b) { return DTypes(a.bits_ & ~b.bits_); }
  friend constexpr bool operator==(DTypes a, DTypes b) { return a.bits_ == b.bits_; }

  /// "f16, bf16, f32 or f64", "anything but bool or string"; floats first, narrow ones before wide ones.
  [[nodiscard]] std::string to_string() const;

 private:
  constexpr explicit DTypes(std::uint32_t bits) : bits_(bits) {}

  std::uint32_t bits_ = 0;
};

// The sets that schemas name most.
inline constexpr DTypes kFloats = DTypes(DType::f16) | DType::bf16 | DType::f32 | DType::f64;
inline constexpr DTypes kSigned = DTypes(DType::i8) | DType::i16 | DType::i32 | DType::i64;
inline constexpr DTypes kUnsigned = DTypes(DType::u8) | DType::u16 | DType::u32 | DType::u64;
inline constexpr DTypes kIntegers = kSigned | kUnsigned;  ///< of whole bytes
inline constexpr DTypes kNumbers = kFloats | kIntegers;
inline constexpr DTypes kBytes = DTypes(DType::i8) | DType::u8;
inline constexpr DTypes kIndices = DTypes(DType::i32) | DType::i64;
inline constexpr DTypes kFloat8 = DTypes(DType::f8e4m3fn) | DType::f8e4m3fnuz | DType::f8e5m2 | DType::f8e5m2fnuz;
inline constexpr DTypes kComplex = DTypes(DType::c64) | DType::c128;
inline constexpr DTypes kPacked = DTypes(DType::i4) | DType::u4 | DType::i2 | DType::u2 | DType::f4e2m1;
inline constexpr DTypes kReals =
    kNumbers | kFloat8 | DType::f8e8m0 | kPacked;  ///< all but bool, text and complex numbers
inline constexpr DTypes kAny = kReals | kComplex | DType::boolean | DType::string;

/// Which dtypes some inputs take. Those of one rule must share theirs.
struct Takes {
  static constexpr int kInputs = 31;  ///< rules tell so many apart; those behind are as the last bit says

  DTypes dtypes;
  std::uint32_t inputs = ~std::uint32_t{0};  ///< bit i: input i
  bool alike = true;                         ///< the inputs of the rule must have one dtype

  [[nodiscard]] constexpr bool covers(int input) const {
    return (inputs >> static_cast<unsigned>(input < kInputs ? input : kInputs) & 1U) != 0;
  }
};

/// The inputs that a rule is of.
template <class... I>
constexpr std::uint32_t inputs(I... i) {
  return ((std::uint32_t{1} << static_cast<unsigned>(i)) | ...);
}
/// Input `i` and all behind it.
constexpr std::uint32_t inputs_from(int i) { return ~std::uint32_t{0} << static_cast<unsigned>(i); }

/// Input `first` and every `step`-th from there, as far as rules tell inputs apart.
constexpr std::uint32_t inputs_every(int first, int step) {
  std::uint32_t mask = 0;
  for (int i = first; i < Takes::kInputs; i += step) mask |= inputs(i);
  return mask;
}

/// The rules of an operator; an input without one takes whatever `infer` lets pass.
class TakesRules {
 public:
  static constexpr int kMost = 8;

  constexpr TakesRules() = default;
  constexpr TakesRules(DTypes all) : rules_{{all}}, size_(1) {}  // NOLINT(google-explicit-constructor): of all inputs
  constexpr TakesRules(DType::Code all) : TakesRules(DTypes(all)) {}  // NOLINT(google-explicit-constructor)
  constexpr TakesRules(std::initializer_list<Takes> rules) {
    for (const Takes& rule : rules) rules_[size_++] = rule;
  }

  [[nodiscard]] constexpr const Takes* begin() const { return rules_; }
  [[nodiscard]] constexpr const Takes* end() const { return rules_ + size_; }

 private:
  Takes rules_[kMost] = {};
  int size_ = 0;
};

}  // namespace lathe::ops
