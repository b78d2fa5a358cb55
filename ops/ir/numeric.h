// Scalar numbers of every dtype as raw bits, and their conversions: the definition that tensors, readers and kernels
// share.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <lathe/dtype.h>

namespace lathe::numeric {

/// A binary floating-point format narrower than f32: sign, exponent, mantissa.
struct MiniFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t max_finite;  ///< code of the largest finite value
  std::uint32_t infinity;    ///< code of infinity; 0 where there is none
  std::uint32_t nan;         ///< code of the NaN that conversions give
  bool unsigned_zero;        ///< "fnuz": one zero, and its negative is the only NaN

  [[nodiscard]] constexpr std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
};

inline constexpr MiniFloat kF16{5, 10, 15, 0x7bff, 0x7c00, 0x7e00, false};
inline constexpr MiniFloat kBf16{8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false};
inline constexpr MiniFloat kF8e4m3fn{4, 3, 7, 0x7e, 0, 0x7f, false};
inline constexpr MiniFloat kF8e4m3fnuz{4, 3, 8, 0x7f, 0, 0x80, true};
inline constexpr MiniFloat kF8e5m2{5, 2, 15, 0x7b, 0x7c, 0x7f, false};
inline constexpr MiniFloat kF8e5m2fnuz{5, 2, 16, 0x7f, 0, 0x80, true};
inline constexpr MiniFloat kF4e2m1{2, 1, 1, 0x7, 0, 0x8, false};  // no NaN: one becomes -0, as in ONNX's cases

/// What a conversion gives above the largest finite value.
enum class Overflow : std::uint8_t {
  ieee,      ///< infinity; NaN where the format has none
  saturate,  ///< the largest finite value, also for infinity
};

/// The exact value of a code.
template <MiniFloat F>
constexpr float decode(std::uint32_t code) {
  constexpr std::uint32_t kMantissaMask = (1U << F.mantissa_bits) - 1;
  constexpr std::uint32_t kExponentMask = (1U << F.exponent_bits) - 1;
  const std::uint32_t sign = (code & F.sign_bit()) != 0 ? 0x80000000U : 0U;
  const std::uint32_t magnitude = code & (F.sign_bit() - 1);
  const std::uint32_t mantissa = magnitude & kMantissaMask;
  const std::uint32_t exponent = magnitude >> F.mantissa_bits;
  if constexpr (F.infinity != 0) {
    if (exponent == kExponentMask) {
      const std::uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
      return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << (23 - F.mantissa_bits)));
    }
  } else if constexpr (F.unsigned_zero) {
    if (code == F.nan) return std::numeric_limits<float>::quiet_NaN();
  } else if (F.nan > F.max_finite && F.nan < F.sign_bit() && magnitude == F.nan) {
    return std::bit_cast<float>(sign | 0x7fc00000U);
  }
  if constexpr (F.exponent_bits == 8) return std::bit_cast<float>(code << 16);
  if (exponent == 0) {
    constexpr auto kUnit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - F.bias - F.mantissa_bits) << 23);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * kUnit));
  }
  const std::uint32_t rebased = exponent + static_cast<std::uint32_t>(127 - F.bias);
  return std::bit_cast<float>(sign | (rebased << 23) | (mantissa << (23 - F.mantissa_bits)));
}

/// The code nearest to a value, ties to even; rounded once.
template <MiniFloat F>
constexpr std::uint32_t encode(double value, Overflow overflow = Overflow::ieee) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = (bits >> 63) != 0 ? F.sign_bit() : 0U;
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff && fraction != 0) return F.nan | (F.nan < F.sign_bit() ? sign : 0U);

  std::uint64_t code = 0;
  if (exponent == 0x7ff) {
    code = std::numeric_limits<std::uint64_t>::max();
  } else if (exponent != 0) {  // subnormal doubles are far below every format's half of the smallest value
    const int rebased = exponent - 1023 + F.bias;
    const int drop = 52 - F.mantissa_bits + (rebased < 1 ? 1 - rebased : 0);
    if (drop < 64) {
      const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
      const std::uint64_t half = std::uint64_t{1} << (drop - 1);
      const std::uint64_t rest = significand & ((half << 1) - 1);
      code = significand >> drop;
      if (rest > half || (rest == half && (code & 1) != 0)) ++code;
      // The hidden bit adds one to the exponent field, and so does a carry out of the mantissa.
      if (rebased > 1) code += static_cast<std::uint64_t>(rebased - 1) << F.mantissa_bits;
    }
  }
  if (code > F.max_finite) {
    if (overflow == Overflow::saturate) {
      code = F.max_finite;
    } else if (F.infinity != 0) {
      code = F.infinity;
    } else {
      return F.nan | (F.nan < F.sign_bit() ? sign : 0U);
    }
  }
  if (F.unsigned_zero && code == 0) return 0;
  return sign | static_cast<std::uint32_t>(code);
}

constexpr float f16_to_f32(std::uint16_t bits) { return decode<kF16>(bits); }
constexpr std::uint16_t f32_to_f16(float value) { return static_cast<std::uint16_t>(encode<kF16>(value)); }
constexpr std::uint16_t f64_to_f16(double value) { return static_cast<std::uint16_t>(encode<kF16>(value)); }
constexpr float bf16_to_f32(std::uint16_t bits) { return decode<kBf16>(bits); }
constexpr std::uint16_t f32_to_bf16(float value) { return static_cast<std::uint16_t>(encode<kBf16>(value)); }
constexpr std::uint16_t f64_to_bf16(double value) { return static_cast<std::uint16_t>(encode<kBf16>(value)); }
constexpr float f4e2m1_to_f32(std::uint8_t code) { return decode<kF4e2m1>(code & 0xfU); }
constexpr std::uint8_t f32_to_f4e2m1(float value) {
  return static_cast<std::uint8_t>(encode<kF4e2m1>(value, Overflow::saturate));
}

/// How a value between two powers of two becomes an f8e8m0.
enum class E8m0Rounding : std::uint8_t { up, down, nearest };

/// 2^(code - 127); 255 is NaN.
constexpr float f8e8m0_to_f32(std::uint8_t code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23);
}
/// The power of two for |value|. Nearest rounds ties up. Without saturation, what lies outside the range is NaN.
constexpr std::uint8_t f64_to_f8e8m0(double value, bool saturate = true, E8m0Rounding rounding = E8m0Rounding::up) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value) & ~(std::uint64_t{1} << 63);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if ((bits >> 52) == 0x7ff && fraction != 0) return 0xff;
  std::int64_t code = static_cast<std::int64_t>(bits >> 52) - 1023 + 127;
  const bool above_middle = fraction >= (std::uint64_t{1} << 51);
  if (rounding == E8m0Rounding::up ? fraction != 0 : rounding == E8m0Rounding::nearest && above_middle) ++code;
  if (code >= 0 && code <= 0xfe) return static_cast<std::uint8_t>(code);
  if (!saturate) return 0xff;
  return code < 0 ? 0 : 0xfe;
}

constexpr float f8_to_f32(DType kind, std::uint8_t code) {
  switch (kind) {
    case DType::f8e4m3fn:
      return decode<kF8e4m3fn>(code);
    case DType::f8e4m3fnuz:
      return decode<kF8e4m3fnuz>(code);
    case DType::f8e5m2:
      return decode<kF8e5m2>(code);
    case DType::f8e5m2fnuz:
      return decode<kF8e5m2fnuz>(code);
    default:
      return f8e8m0_to_f32(code);
  }
}
/// `saturate` as in ONNX's Cast.
constexpr std::uint8_t f64_to_f8(DType kind, double value, bool saturate = true) {
  const Overflow overflow = saturate ? Overflow::saturate : Overflow::ieee;
  switch (kind) {
    case DType::f8e4m3fn:
      return static_cast<std::uint8_t>(encode<kF8e4m3fn>(value, overflow));
    case DType::f8e4m3fnuz:
      return static_cast<std::uint8_t>(encode<kF8e4m3fnuz>(value, overflow));
    case DType::f8e5m2:
      return static_cast<std::uint8_t>(encode<kF8e5m2>(value, overflow));
    case DType::f8e5m2fnuz:
      return static_cast<std::uint8_t>(encode<kF8e5m2fnuz>(value, overflow));
    default:
      return f64_to_f8e8m0(value, saturate);
  }
}
constexpr std::uint8_t f32_to_f8(DType kind, float value, bool saturate = true) {
  return f64_to_f8(kind, value, saturate);
}

// ---- elements as raw bits: the low bits() of a uint64, the rest zero. Real dtypes only. ----

/// Keeps the low bits() of an integer.
constexpr std::uint64_t truncate(DType dtype, std::uint64_t bits) {
  return dtype.bits() >= 64 ? bits : bits & ((std::uint64_t{1} << dtype.bits()) - 1);
}

/// An integer or boolean as an i64 (a u64 keeps its bits).
constexpr std::int64_t integer_value(DType dtype, std::uint64_t bits) {
  if (!dtype.is_signed_integer()) return static_cast<std::int64_t>(bits);
  const int unused = 64 - dtype.bits();
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

/// A float of any width, exactly.
constexpr double float_value(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<double>(bits);
    case DType::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::f16:
      return f16_to_f32(static_cast<std::uint16_t>(bits));
    case DType::bf16:
      return bf16_to_f32(static_cast<std::uint16_t>(bits));
    case DType::f4e2m1:
      return f4e2m1_to_f32(static_cast<std::uint8_t>(bits));
    default:
      return f8_to_f32(dtype, static_cast<std::uint8_t>(bits));
  }
}

/// A double rounded once to a float dtype; saturating to float8 and f4e2m1.
constexpr std::uint64_t float_bits(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16:
      return f64_to_f16(value);
    case DType::bf16:
      return f64_to_bf16(value);
    case DType::f4e2m1:
      return encode<kF4e2m1>(value, Overflow::saturate);
    default:
      return f64_to_f8(dtype, value);
  }
}

/// Float to integer truncates. Out of range and NaN: i32 and narrower go through i32, whose minimum stands for what
/// does not fit; i64 and u32 through i64 likewise; u64 takes [-2^63, 2^64) modulo 2^64, 2^63 otherwise; packed types
/// give 0.
constexpr std::uint64_t float_to_integer(DType dtype, double value) {
  constexpr double k31 = 2147483648.0;
  constexpr double k63 = 9223372036854775808.0;
  if (dtype.is_packed()) {
    const double top = static_cast<double>(1 << (dtype.bits() - (dtype.is_signed_integer() ? 1 : 0)));
    const double bottom = dtype.is_signed_integer() ? -top : 0.0;
    const bool fits = value > bottom - 1 && value < top;
    return fits ? truncate(dtype, static_cast<std::uint64_t>(static_cast<std::int64_t>(value))) : 0;
  }
  if (dtype == DType::u64 && value >= k63 && value < 2 * k63) return static_cast<std::uint64_t>(value);
  const bool wide = dtype.bits() == 64 || dtype == DType::u32;
  const bool fits = wide ? value >= -k63 && value < k63 : value > -k31 - 1 && value < k31;
  const std::int64_t minimum =
      wide ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int32_t>::min();
  return truncate(dtype, static_cast<std::uint64_t>(fits ? static_cast<std::int64_t>(value) : minimum));
}

/// An integer or boolean to a float dtype: to f32 and f64 rounded once, to narrower ones through f32.
constexpr std::uint64_t integer_to_float(DType dtype, DType from, std::uint64_t bits) {
  const std::int64_t value = integer_value(from, bits);
  const bool is_u64 = from == DType::u64;
  if (dtype == DType::f64) return float_bits(dtype, is_u64 ? static_cast<double>(bits) : static_cast<double>(value));
  return float_bits(dtype, is_u64 ? static_cast<float>(bits) : static_cast<float>(value));
}

/// One element converted as ONNX's Cast does.
constexpr std::uint64_t convert(DType to, DType from, std::uint64_t bits) {
  if (to == from) return bits;
  if (from.is_float()) {
    const double value = float_value(from, bits);
    if (to == DType::boolean) return value != 0 ? 1 : 0;
    return to.is_float() ? float_bits(to, value) : float_to_integer(to, value);
  }
  if (to == DType::boolean) return bits != 0 ? 1 : 0;
  if (to.is_float()) return integer_to_float(to, from, bits);
  return truncate(to, static_cast<std::uint64_t>(integer_value(from, bits)));
}

/// Element `i` of a dense array; packed dtypes lie from the low bits of each byte up.
inline std::uint64_t load(DType dtype, const void* data, std::int64_t i) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  const auto at = static_cast<std::size_t>(i);
  if (dtype.is_packed()) {
    const std::size_t per_byte = 8U / static_cast<unsigned>(dtype.bits());
    const auto shift = static_cast<unsigned>(at % per_byte) * static_cast<unsigned>(dtype.bits());
    return truncate(dtype, static_cast<std::uint64_t>(bytes[at / per_byte] >> shift));
  }
  const auto width = static_cast<std::size_t>(dtype.bits()) / 8;
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes + at * width, width);
  return bits;
}
inline void store(DType dtype, void* data, std::int64_t i, std::uint64_t bits) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  const auto at = static_cast<std::size_t>(i);
  if (dtype.is_packed()) {
    const std::size_t per_byte = 8U / static_cast<unsigned>(dtype.bits());
    const auto shift = static_cast<unsigned>(at % per_byte) * static_cast<unsigned>(dtype.bits());
    const auto mask = static_cast<std::uint8_t>(((1U << dtype.bits()) - 1) << shift);
    std::uint8_t& byte = bytes[at / per_byte];
    byte = static_cast<std::uint8_t>((byte & ~mask) | ((static_cast<unsigned>(bits) << shift) & mask));
    return;
  }
  const auto width = static_cast<std::size_t>(dtype.bits()) / 8;
  std::memcpy(bytes + at * width, &bits, width);
}

/// How a packed element lies alone in a byte (inside kernels): signed ones as an i8, the others as their bits.
constexpr std::uint8_t byte_of_packed(DType dtype, std::uint64_t bits) {
  return static_cast<std::uint8_t>(integer_value(dtype, bits));
}
/// `count` packed elements to one per byte, and back.
inline void unpack(DType dtype, const void* packed, std::int64_t count, void* bytes) {
  auto* out = static_cast<std::uint8_t*>(bytes);
  for (std::int64_t i = 0; i < count; ++i) out[i] = byte_of_packed(dtype, load(dtype, packed, i));
}
inline void pack(DType dtype, const void* bytes, std::int64_t count, void* packed) {
  const auto* in = static_cast<const std::uint8_t*>(bytes);
  for (std::int64_t i = 0; i < count; ++i) store(dtype, packed, i, in[i]);
}

}  // namespace lathe::numeric
