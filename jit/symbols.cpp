// What compiled code calls by name: the C library's functions, and those that LLVM emits calls to on its own.
#include "jit/symbols.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/ir/numeric.h"
#include "ops/loops/scalar.h"

// Conversions of the compiler's own library, reached by address only: their types have no name here.
extern "C" {
void __truncsfhf2();
void __truncdfhf2();
void __extendhfsf2();
}

namespace lathe::jit {
namespace {

using F32 = float (*)(float);
using F64 = double (*)(double);
using F32x2 = float (*)(float, float);
using F64x2 = double (*)(double, double);

template <class F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}
template <auto Function>
float rounded(float x) {
  return static_cast<float>(Function(static_cast<double>(x)));
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
float sigmoidf(float x) { return static_cast<float>(sigmoid(static_cast<double>(x))); }

std::int64_t pow_i64(std::int64_t a, std::int64_t b) {
  const auto bits = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  return static_cast<std::int64_t>(loops::apply(loops::Op::pow, DType::i64, bits(a), bits(b), 0));
}
std::uint64_t pow_u64(std::uint64_t a, std::uint64_t b) { return loops::apply(loops::Op::pow, DType::u64, a, b, 0); }

std::uint16_t f64_to_bf16(double x) { return numeric::f64_to_bf16(x); }
template <DType::Code Kind>
std::uint8_t f64_to_byte(double x) {
  return static_cast<std::uint8_t>(numeric::float_bits(Kind, x));
}

#define LATHE_UNARY(name) \
  {"lathe_" #name "f", address(static_cast<F32>(std::name))}, { "lathe_" #name, address(static_cast<F64>(std::name)) }
#define LATHE_BINARY(name)                                        \
  {"lathe_" #name "f", address(static_cast<F32x2>(std::name))}, { \
    "lathe_" #name, address(static_cast<F64x2>(std::name))        \
  }

const Symbol kSymbols[] = {
    LATHE_UNARY(exp),
    LATHE_UNARY(exp2),
    LATHE_UNARY(log),
    LATHE_UNARY(sin),
    LATHE_UNARY(cos),
    LATHE_UNARY(tan),
    LATHE_UNARY(asin),
    LATHE_UNARY(acos),
    LATHE_UNARY(atan),
    LATHE_UNARY(sinh),
    LATHE_UNARY(cosh),
    LATHE_UNARY(tanh),
    LATHE_UNARY(asinh),
    LATHE_UNARY(acosh),
    LATHE_UNARY(atanh),
    LATHE_UNARY(erf),
    LATHE_BINARY(pow),
    LATHE_BINARY(fmod),
    {"lathe_sigmoidf", address(sigmoidf)},
    {"lathe_sigmoid", address(sigmoid)},
    {"lathe_pow_i64", address(pow_i64)},
    {"lathe_pow_u64", address(pow_u64)},
    {"lathe_f64_to_bf16", address(f64_to_bf16)},
    {"lathe_f64_to_f8e4m3fn", address(f64_to_byte<DType::f8e4m3fn>)},
    {"lathe_f64_to_f8e4m3fnuz", address(f64_to_byte<DType::f8e4m3fnuz>)},
    {"lathe_f64_to_f8e5m2", address(f64_to_byte<DType::f8e5m2>)},
    {"lathe_f64_to_f8e5m2fnuz", address(f64_to_byte<DType::f8e5m2fnuz>)},
    {"lathe_f64_to_f8e8m0", address(f64_to_byte<DType::f8e8m0>)},
    {"lathe_f64_to_f4e2m1", address(f64_to_byte<DType::f4e2m1>)},
    // LLVM's own choice, where the target lacks the instruction.
    {"memcpy", address(std::memcpy)},
    {"memmove", address(std::memmove)},
    {"memset", address(std::memset)},
    {"fmaf", address(static_cast<float (*)(float, float, float)>(std::fma))},
    {"fma", address(static_cast<double (*)(double, double, double)>(std::fma))},
    {"floorf", address(static_cast<F32>(std::floor))},
    {"floor", address(static_cast<F64>(std::floor))},
    {"ceilf", address(static_cast<F32>(std::ceil))},
    {"ceil", address(static_cast<F64>(std::ceil))},
    {"truncf", address(static_cast<F32>(std::trunc))},
    {"trunc", address(static_cast<F64>(std::trunc))},
    {"roundevenf", address(static_cast<F32>(std::nearbyint))},
    {"roundeven", address(static_cast<F64>(std::nearbyint))},
    {"sqrtf", address(static_cast<F32>(std::sqrt))},
    {"sqrt", address(static_cast<F64>(std::sqrt))},
    {"fmodf", address(static_cast<F32x2>(std::fmod))},
    {"fmod", address(static_cast<F64x2>(std::fmod))},
    {"__truncsfhf2", address(__truncsfhf2)},
    {"__truncdfhf2", address(__truncdfhf2)},
    {"__extendhfsf2", address(__extendhfsf2)},
};

#undef LATHE_UNARY
#undef LATHE_BINARY

}  // namespace

std::span<const Symbol> symbols() { return kSymbols; }

}  // namespace lathe::jit
