// DType: the element type of a tensor.
#pragma once

#include <cstdint>
#include <string_view>

#include <lathe/export.h>

namespace lathe {

/// The element type of a tensor. The codes are ONNX's (`TensorProto.DataType`), so they are stable in files and across
/// releases. A DType converts to its code, so it can be switched over and compared.
class LATHE_API DType {
 public:
  enum Code : std::uint8_t {
    undefined = 0,
    f32 = 1,
    u8 = 2,
    i8 = 3,
    u16 = 4,
    i16 = 5,
    i32 = 6,
    i64 = 7,
    string = 8,
    boolean = 9,
    f16 = 10,
    f64 = 11,
    u32 = 12,
    u64 = 13,
    c64 = 14,
    c128 = 15,
    bf16 = 16,
    f8e4m3fn = 17,
    f8e4m3fnuz = 18,
    f8e5m2 = 19,
    f8e5m2fnuz = 20,
    u4 = 21,
    i4 = 22,
    f4e2m1 = 23,
    f8e8m0 = 24,
    u2 = 25,
    i2 = 26,
  };
  static constexpr int kCount = 27;

  constexpr DType() = default;
  constexpr DType(Code code) : code_(code) {}  // NOLINT(google-explicit-constructor): a code is a dtype
  constexpr operator Code() const { return code_; }

  /// Bits of one element in a tensor: 4 and 2 for the packed types; for strings, the size of the handle.
  [[nodiscard]] constexpr int bits() const {
    switch (code_) {
      case undefined:
        return 0;
      case boolean:
      case u8:
      case i8:
      case f8e4m3fn:
      case f8e4m3fnuz:
      case f8e5m2:
      case f8e5m2fnuz:
      case f8e8m0:
        return 8;
      case u16:
      case i16:
      case f16:
      case bf16:
        return 16;
      case f32:
      case u32:
      case i32:
        return 32;
      case f64:
      case u64:
      case i64:
      case c64:
        return 64;
      case c128:
        return 128;
      case u4:
      case i4:
      case f4e2m1:
        return 4;
      case u2:
      case i2:
        return 2;
      case string:
        return 256;
    }
    return 0;
  }
  /// Real floating point of any width (no complex).
  [[nodiscard]] constexpr bool is_float() const {
    return code_ == f32 || code_ == f64 || code_ == f16 || code_ == bf16 || is_float8() || code_ == f4e2m1;
  }
  [[nodiscard]] constexpr bool is_float8() const {
    return (code_ >= f8e4m3fn && code_ <= f8e5m2fnuz) || code_ == f8e8m0;
  }
  [[nodiscard]] constexpr bool is_signed_integer() const {
    return code_ == i8 || code_ == i16 || code_ == i32 || code_ == i64 || code_ == i4 || code_ == i2;
  }
  [[nodiscard]] constexpr bool is_unsigned_integer() const {
    return code_ == u8 || code_ == u16 || code_ == u32 || code_ == u64 || code_ == u4 || code_ == u2;
  }
  [[nodiscard]] constexpr bool is_integer() const { return is_signed_integer() || is_unsigned_integer(); }
  [[nodiscard]] constexpr bool is_complex() const { return code_ == c64 || code_ == c128; }
  /// Elements narrower than a byte, packed from the low bits up.
  [[nodiscard]] constexpr bool is_packed() const { return code_ != undefined && bits() < 8; }

  /// The short name used in every message and in graph text: "f32", "i64", "bool", "f8e4m3fn", …
  [[nodiscard]] std::string_view name() const;
  /// The dtype of a short name; `undefined` where there is none.
  [[nodiscard]] static DType from_name(std::string_view name);

 private:
  Code code_ = undefined;
};

}  // namespace lathe
