// Conversions between element types, as numeric::convert defines them.
#include <llvm/IR/Intrinsics.h>

#include <bit>

#include "jit/codegen.h"
#include "ops/ir/numeric.h"

namespace lathe::jit {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;

namespace {

/// Floats that are held as integers of their bits.
bool is_bits(DType dtype) { return dtype == DType::bf16 || dtype.is_float8() || dtype == DType::f4e2m1; }
bool is_narrow(DType dtype) { return dtype == DType::f16 || is_bits(dtype); }

float decoded(DType dtype, int code) {
  return static_cast<float>(numeric::float_value(dtype, static_cast<std::uint64_t>(code)));
}

}  // namespace

Value* Emitter::constant(DType dtype, double number, std::int64_t integer) {
  Type* t = type(dtype);
  if (dtype == DType::f64) return ConstantFP::get(t, number);
  if (dtype == DType::f32) return ConstantFP::get(b_.getContext(), llvm::APFloat(static_cast<float>(number)));
  if (dtype.is_float()) {
    const std::uint64_t bits = numeric::float_bits(dtype, number);
    if (is_bits(dtype)) return ConstantInt::get(t, bits);
    return ConstantFP::get(b_.getContext(), llvm::APFloat(llvm::APFloat::IEEEhalf(), llvm::APInt(16, bits)));
  }
  if (dtype == DType::boolean) return b_.getInt1(integer != 0);
  std::uint64_t bits = numeric::truncate(dtype, static_cast<std::uint64_t>(integer));
  if (dtype.is_packed()) bits = numeric::byte_of_packed(dtype, bits);
  return ConstantInt::get(t, bits);
}

Value* Emitter::convert(DType to, DType from, Value* v) {
  if (to == from) return v;
  if (is_narrow(from)) {
    v = narrow_to_f32(from, v);
    from = DType::f32;
    if (to == from) return v;
  }
  Type* t = like(type(to), v);
  Constant* zero = Constant::getNullValue(v->getType());
  if (from.is_float()) {
    if (to == DType::boolean) return b_.CreateFCmpUNE(v, zero);
    if (is_narrow(to)) return float_to_narrow(to, v);
    if (to.is_float()) return to == DType::f64 ? b_.CreateFPExt(v, t) : b_.CreateFPTrunc(v, t);
    return float_to_integer(to, v);
  }
  const bool is_signed = from.is_signed_integer();
  if (to == DType::boolean) return b_.CreateICmpNE(v, zero);
  if (to.is_float()) {
    // To narrower floats through f32.
    Type* float_type = like(to == DType::f64 ? b_.getDoubleTy() : b_.getFloatTy(), v);
    v = is_signed ? b_.CreateSIToFP(v, float_type) : b_.CreateUIToFP(v, float_type);
    return is_narrow(to) ? float_to_narrow(to, v) : v;
  }
  if (to.is_packed()) {
    Type* few = like(b_.getIntNTy(static_cast<unsigned>(to.bits())), v);
    v = from == DType::boolean ? b_.CreateZExt(v, t) : v;
    v = b_.CreateTrunc(v, few);
    return to.is_signed_integer() ? b_.CreateSExt(v, t) : b_.CreateZExt(v, t);
  }
  return is_signed ? b_.CreateSExtOrTrunc(v, t) : b_.CreateZExtOrTrunc(v, t);
}

Value* Emitter::narrow_to_f32(DType from, Value* v) {
  Type* t = like(b_.getFloatTy(), v);
  if (from == DType::f16) return b_.CreateFPExt(v, t);
  if (from == DType::bf16) {
    Value* bits = b_.CreateShl(b_.CreateZExt(v, like(b_.getInt32Ty(), v)), 16);
    return b_.CreateBitCast(bits, t);
  }
  // The few codes of an 8 bit float are looked up.
  const std::string name = "lathe_table_" + std::string(from.name());
  llvm::GlobalVariable* table = module_.getGlobalVariable(name, true);
  auto* table_type = llvm::ArrayType::get(b_.getFloatTy(), 256);
  if (table == nullptr) {
    std::vector<float> values;
    for (int code = 0; code < 256; ++code) values.push_back(decoded(from, code));
    auto* init = llvm::ConstantDataArray::get(module_.getContext(), llvm::ArrayRef<float>(values));
    table = new llvm::GlobalVariable(module_, table_type, true, llvm::GlobalValue::PrivateLinkage, init, name);
  }
  const auto look_up = [&](Value* code) {
    Value* index = b_.CreateZExt(code, b_.getInt64Ty());
    return b_.CreateLoad(b_.getFloatTy(), b_.CreateGEP(b_.getFloatTy(), table, index));
  };
  if (!v->getType()->isVectorTy()) return look_up(v);
  Value* result = llvm::PoisonValue::get(t);
  for (int lane = 0; lane < lanes_; ++lane) {
    result = b_.CreateInsertElement(result, look_up(b_.CreateExtractElement(v, i64(lane))), i64(lane));
  }
  return result;
}

Value* Emitter::float_to_narrow(DType to, Value* v) {
  if (to == DType::f16) return b_.CreateFPTrunc(v, like(b_.getHalfTy(), v));
  const bool is_f32 = v->getType()->getScalarType()->isFloatTy();
  if (to == DType::bf16 && is_f32) {
    // Adding just under half of what is cut off, plus the last bit that stays, rounds to nearest even.
    Type* bits_type = like(b_.getInt32Ty(), v);
    const auto number = [&](std::uint32_t n) { return ConstantInt::get(bits_type, n); };
    Value* bits = b_.CreateBitCast(v, bits_type);
    Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), number(1));
    Value* rounded = b_.CreateAdd(b_.CreateAdd(bits, number(0x7fff)), odd);
    Value* nan = b_.CreateOr(b_.CreateAnd(bits, number(0x80000000U)), number(0x7fc00000U));
    rounded = b_.CreateSelect(b_.CreateFCmpUNO(v, v), nan, rounded);
    return b_.CreateTrunc(b_.CreateLShr(rounded, 16), like(b_.getInt16Ty(), v));
  }
  if (is_f32) v = b_.CreateFPExt(v, like(b_.getDoubleTy(), v));
  return call_per_lane("lathe_f64_to_" + std::string(to.name()), type(to), {v});
}

Value* Emitter::float_to_integer(DType to, Value* v) {
  Type* t = like(type(to), v);
  const auto number = [&](double n) { return ConstantFP::get(v->getType(), n); };
  const auto truncated = [&](unsigned bits, Value* in_range) {
    Type* integer = like(b_.getIntNTy(bits), v);
    Value* safe = b_.CreateSelect(in_range, v, number(0));
    Constant* minimum = ConstantInt::get(integer, llvm::APInt::getSignedMinValue(bits));
    return b_.CreateSelect(in_range, b_.CreateFPToSI(safe, integer), minimum);
  };
  constexpr double k31 = 2147483648.0;
  constexpr double k63 = 9223372036854775808.0;
  if (to.is_packed()) {
    const double top = static_cast<double>(1 << (to.bits() - (to.is_signed_integer() ? 1 : 0)));
    const double bottom = to.is_signed_integer() ? -top : 0.0;
    Value* fits = b_.CreateAnd(b_.CreateFCmpOGT(v, number(bottom - 1)), b_.CreateFCmpOLT(v, number(top)));
    Value* integer = b_.CreateFPToSI(b_.CreateSelect(fits, v, number(0)), like(b_.getInt32Ty(), v));
    return convert(to, DType::i32, integer);
  }
  if (to.bits() == 64 || to == DType::u32) {
    Value* fits = b_.CreateAnd(b_.CreateFCmpOGE(v, number(-k63)), b_.CreateFCmpOLT(v, number(k63)));
    Value* integer = truncated(64, fits);
    if (to == DType::u64) {
      Value* high = b_.CreateAnd(b_.CreateFCmpOGE(v, number(k63)), b_.CreateFCmpOLT(v, number(2 * k63)));
      Value* rest = b_.CreateFSub(b_.CreateSelect(high, v, number(k63)), number(k63));
      Value* top = ConstantInt::get(integer->getType(), llvm::APInt::getSignedMinValue(64));
      Value* upper = b_.CreateXor(b_.CreateFPToSI(rest, integer->getType()), top);
      integer = b_.CreateSelect(high, upper, integer);
    }
    return b_.CreateTrunc(integer, t);
  }
  // An f32 just above -2^31 - 1 is -2^31 itself.
  Value* above = v->getType()->getScalarType()->isFloatTy() ? b_.CreateFCmpOGE(v, number(-k31))
                                                            : b_.CreateFCmpOGT(v, number(-k31 - 1));
  Value* fits = b_.CreateAnd(above, b_.CreateFCmpOLT(v, number(k31)));
  return b_.CreateTrunc(truncated(32, fits), t);
}

}  // namespace lathe::jit
