// One instruction on one element: floats by the C library, integers modulo their width.
#include "ops/loops/scalar.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/ir/numeric.h"

namespace lathe::loops {
namespace {

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
std::uint64_t to_bits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// Calls `f` with a value of the C++ type that a dtype computes in.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::boolean:
    case DType::u8:
      return f(std::uint8_t{});
    case DType::u16:
      return f(std::uint16_t{});
    case DType::u32:
      return f(std::uint32_t{});
    default:
      assert(dtype == DType::u64);
      return f(std::uint64_t{});
  }
}

template <class T>
T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}

template <std::floating_point T>
T float_mod(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Functions without an exact definition in T, in double.
double function(Op op, double x) {
  switch (op) {
    case Op::exp:
      return std::exp(x);
    case Op::exp2:
      return std::exp2(x);
    case Op::log:
      return std::log(x);
    case Op::sin:
      return std::sin(x);
    case Op::cos:
      return std::cos(x);
    case Op::tan:
      return std::tan(x);
    case Op::asin:
      return std::asin(x);
    case Op::acos:
      return std::acos(x);
    case Op::atan:
      return std::atan(x);
    case Op::sinh:
      return std::sinh(x);
    case Op::cosh:
      return std::cosh(x);
    case Op::tanh:
      return std::tanh(x);
    case Op::asinh:
      return std::asinh(x);
    case Op::acosh:
      return std::acosh(x);
    case Op::atanh:
      return std::atanh(x);
    case Op::erf:
      return std::erf(x);
    default:
      assert(op == Op::sigmoid);
      return 1 / (1 + std::exp(-x));
  }
}

template <std::floating_point T>
T compute(Op op, T a, T b, T c) {
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::abs(a);
    case Op::sign:
      return a > 0 ? T{1} : a < 0 ? T{-1} : a == 0 ? T{0} : a;
    case Op::floor:
      return std::floor(a);
    case Op::ceil:
      return std::ceil(a);
    case Op::round:
      return std::nearbyint(a);
    case Op::trunc:
      return std::trunc(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::reciprocal:
      return T{1} / a;
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return a / b;
    case Op::mod:
      return float_mod(a, b);
    case Op::fmod:
      return std::fmod(a, b);
    case Op::pow:
      return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case Op::min:
      return minimum(a, b);
    case Op::max:
      return maximum(a, b);
    case Op::fma:
      return std::fma(a, b, c);
    default:
      return static_cast<T>(function(op, static_cast<double>(a)));
  }
}

/// In 64 unsigned bits, whose low part is right whatever the width.
std::uint64_t integer_power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

template <std::integral T>
T power(T base, T exponent) {
  if (exponent >= 0) {
    return static_cast<T>(integer_power(static_cast<std::uint64_t>(base), static_cast<std::uint64_t>(exponent)));
  }
  if (base == 1) return 1;
  if (base == static_cast<T>(-1)) return (exponent & 1) != 0 ? base : T{1};
  return 0;
}

template <std::integral T>
T quotient(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<std::uint64_t>(a));
  }
  return static_cast<T>(a / b);
}

template <std::integral T>
T remainder(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}

template <std::integral T>
T integer_mod(T a, T b) {
  const T rest = remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
}

template <std::integral T>
T compute(Op op, T a, T b, T /*c*/) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  const bool shifts = y < static_cast<std::uint64_t>(8 * sizeof(T));
  switch (op) {
    case Op::neg:
      return static_cast<T>(0 - x);
    case Op::abs:
      return static_cast<T>(a < 0 ? 0 - x : x);
    case Op::sign:
      return static_cast<T>(a > 0 ? 1 : a < 0 ? -1 : 0);
    case Op::bit_not:
      return static_cast<T>(~x);
    case Op::add:
      return static_cast<T>(x + y);
    case Op::sub:
      return static_cast<T>(x - y);
    case Op::mul:
      return static_cast<T>(x * y);
    case Op::div:
      return quotient(a, b);
    case Op::mod:
      return integer_mod(a, b);
    case Op::fmod:
      return remainder(a, b);
    case Op::pow:
      return power(a, b);
    case Op::min:
      return minimum(a, b);
    case Op::max:
      return maximum(a, b);
    case Op::bit_and:
      return static_cast<T>(x & y);
    case Op::bit_or:
      return static_cast<T>(x | y);
    case Op::bit_xor:
      return static_cast<T>(x ^ y);
    case Op::shift_left:
      return static_cast<T>(shifts ? x << y : 0);
    case Op::shift_right:
      return static_cast<T>(shifts ? a >> y : T{0});
    case Op::logical_not:
      return static_cast<T>(a == 0);
    case Op::logical_and:
      return static_cast<T>(a != 0 && b != 0);
    case Op::logical_or:
      return static_cast<T>(a != 0 || b != 0);
    default:
      assert(op == Op::logical_xor);
      return static_cast<T>((a != 0) != (b != 0));
  }
}

template <class T>
bool holds(Op op, T a, T b) {
  switch (op) {
    case Op::is_nan:
      return a != a;
    case Op::is_inf:
      return a > std::numeric_limits<T>::max() || a < std::numeric_limits<T>::lowest();
    case Op::equal:
      return a == b;
    case Op::not_equal:
      return a != b;
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    default:
      assert(op == Op::greater_equal);
      return a >= b;
  }
}

bool is_predicate(Op op) {
  return op == Op::is_nan || op == Op::is_inf || (op >= Op::equal && op <= Op::greater_equal);
}

}  // namespace

std::uint64_t apply(Op op, DType operand, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return with_type(operand, [&]<class T>(T) -> std::uint64_t {
    if (is_predicate(op)) return holds(op, from_bits<T>(a), from_bits<T>(b)) ? 1 : 0;
    return to_bits(compute(op, from_bits<T>(a), from_bits<T>(b), from_bits<T>(c)));
  });
}

std::uint64_t initial(Reduction reduction, DType dtype) {
  return with_type(dtype, [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    switch (reduction) {
      case Reduction::sum:
        return to_bits(T{0});
      case Reduction::prod:
        return to_bits(T{1});
      case Reduction::min:
        return to_bits(Limits::has_infinity ? Limits::infinity() : Limits::max());
      default:
        assert(reduction == Reduction::max);
        return to_bits(Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest());
    }
  });
}

std::uint64_t accumulate(Reduction reduction, DType dtype, std::uint64_t so_far, std::uint64_t value) {
  switch (reduction) {
    case Reduction::sum:
      return apply(Op::add, dtype, so_far, value, 0);
    case Reduction::prod:
      return apply(Op::mul, dtype, so_far, value, 0);
    case Reduction::min:
      return apply(Op::min, dtype, so_far, value, 0);
    default:
      assert(reduction == Reduction::max);
      return apply(Op::max, dtype, so_far, value, 0);
  }
}

bool replaces(Reduction reduction, DType dtype, std::uint64_t value, std::uint64_t best) {
  return with_type(dtype, [&]<class T>(T) {
    const T x = from_bits<T>(value);
    const T y = from_bits<T>(best);
    const bool last = reduction == Reduction::argmin_last || reduction == Reduction::argmax_last;
    if (x != x || y != y) return x != x && (last || y == y);
    if (x == y) return last;
    return reduction == Reduction::argmin_first || reduction == Reduction::argmin_last ? x < y : x > y;
  });
}

}  // namespace lathe::loops
