// Arithmetic of compiled kernels: every operator on scalars or vectors, as ops/loops/scalar.cpp defines it.
#include <llvm/IR/Intrinsics.h>

#include <cassert>

#include "jit/codegen.h"
#include "jit/vector_math.h"

namespace lathe::jit {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;
using loops::Inst;
using loops::Op;
namespace Intrinsic = llvm::Intrinsic;

namespace {

/// Functions of the C library for what has no inline form; those of f64 have the same name without the `f`.
const char* library_name(Op op) {
  switch (op) {
    case Op::exp:
      return "expf";
    case Op::exp2:
      return "exp2f";
    case Op::log:
      return "logf";
    case Op::sin:
      return "sinf";
    case Op::cos:
      return "cosf";
    case Op::tan:
      return "tanf";
    case Op::asin:
      return "asinf";
    case Op::acos:
      return "acosf";
    case Op::atan:
      return "atanf";
    case Op::sinh:
      return "sinhf";
    case Op::cosh:
      return "coshf";
    case Op::tanh:
      return "tanhf";
    case Op::asinh:
      return "asinhf";
    case Op::acosh:
      return "acoshf";
    case Op::atanh:
      return "atanhf";
    case Op::erf:
      return "erff";
    case Op::pow:
      return "powf";
    case Op::fmod:
    case Op::mod:
      return "fmodf";
    default:
      return "sigmoidf";
  }
}

std::string library_function(Op op, bool is_f64) {
  std::string name = library_name(op);
  if (is_f64) name.pop_back();
  return "lathe_" + name;
}

bool is_uniform_constant(Value* v, double wanted) {
  auto* c = llvm::dyn_cast<Constant>(v);
  if (c == nullptr) return false;
  if (c->getType()->isVectorTy()) c = c->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<ConstantFP>(c);
  return number != nullptr && number->getValueAPF().convertToDouble() == wanted;
}

}  // namespace

Value* Emitter::compute(const Inst& inst, Value* a, Value* b, Value* c) {
  const DType dtype = inst_at(inst.a).dtype;
  switch (inst.op) {
    case Op::cast:
      return convert(inst.dtype, dtype, a);
    case Op::select:
      return b_.CreateSelect(a, b, c);
    case Op::fma:
      return b_.CreateIntrinsic(Intrinsic::fma, {a->getType()}, {a, b, c});
    case Op::equal:
    case Op::not_equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
      return compare(inst.op, dtype, a, b);
    case Op::logical_not:
      return b_.CreateNot(a);
    case Op::logical_and:
      return b_.CreateAnd(a, b);
    case Op::logical_or:
      return b_.CreateOr(a, b);
    case Op::logical_xor:
      return b_.CreateXor(a, b);
    case Op::min:
    case Op::max:
      return min_max(inst.op == Op::min, dtype, a, b);
    default:
      return dtype.is_float() ? compute_float(inst, a, b) : compute_integer(inst, dtype, a, b);
  }
}

Value* Emitter::compute_float(const Inst& inst, Value* a, Value* b) {
  Type* t = a->getType();
  const auto unary = [&](ID id) { return b_.CreateUnaryIntrinsic(id, a); };
  const auto number = [&](double v) { return ConstantFP::get(t, v); };
  switch (inst.op) {
    case Op::neg:
      return b_.CreateFNeg(a);
    case Op::abs:
      return unary(Intrinsic::fabs);
    case Op::sign: {
      Value* positive = b_.CreateSelect(b_.CreateFCmpOGT(a, number(0)), number(1), b_.CreateFMul(a, number(0)));
      return b_.CreateSelect(b_.CreateFCmpOLT(a, number(0)), number(-1), positive);
    }
    case Op::floor:
      return unary(Intrinsic::floor);
    case Op::ceil:
      return unary(Intrinsic::ceil);
    case Op::round:
      return unary(Intrinsic::roundeven);
    case Op::trunc:
      return unary(Intrinsic::trunc);
    case Op::sqrt:
      return unary(Intrinsic::sqrt);
    case Op::reciprocal:
      return b_.CreateFDiv(number(1), a);
    case Op::is_nan:
      return b_.CreateFCmpUNO(a, a);
    case Op::is_inf:
      return b_.CreateFCmpOEQ(unary(Intrinsic::fabs), ConstantFP::getInfinity(t));
    case Op::add:
      return b_.CreateFAdd(a, b);
    case Op::sub:
      return b_.CreateFSub(a, b);
    case Op::mul:
      return b_.CreateFMul(a, b);
    case Op::div:
      return b_.CreateFDiv(a, b);
    default:
      break;
  }
  const bool is_f64 = t->getScalarType()->isDoubleTy();
  if (inst.op == Op::pow) {
    if (is_uniform_constant(b, 1)) return a;
    if (is_uniform_constant(b, 2)) return b_.CreateFMul(a, a);
    if (is_uniform_constant(b, 3)) return b_.CreateFMul(b_.CreateFMul(a, a), a);
    if (is_uniform_constant(b, -1)) return b_.CreateFDiv(number(1), a);
  }
  if (!is_f64) {
    if (Value* v = math::function(b_, inst.op, a)) return v;
  }
  const std::string name = library_function(inst.op, is_f64);
  if (b == nullptr) return call_per_lane(name, t->getScalarType(), {a});
  Value* v = call_per_lane(name, t->getScalarType(), {a, b});
  if (inst.op != Op::mod) return v;
  // The remainder takes the divisor's sign.
  Value* other_sign = b_.CreateXor(b_.CreateFCmpOLT(v, number(0)), b_.CreateFCmpOLT(b, number(0)));
  Value* adjust = b_.CreateAnd(b_.CreateFCmpUNE(v, number(0)), other_sign);
  return b_.CreateSelect(adjust, b_.CreateFAdd(v, b), v);
}

Value* Emitter::compute_integer(const Inst& inst, DType dtype, Value* a, Value* b) {
  Type* t = a->getType();
  const bool is_signed = dtype.is_signed_integer();
  Constant* zero = Constant::getNullValue(t);
  switch (inst.op) {
    case Op::neg:
      return b_.CreateNeg(a);
    case Op::abs:
      return is_signed ? b_.CreateSelect(b_.CreateICmpSLT(a, zero), b_.CreateNeg(a), a) : a;
    case Op::sign: {
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(a, zero), t);
      if (!is_signed) return positive;
      return b_.CreateSelect(b_.CreateICmpSLT(a, zero), Constant::getAllOnesValue(t), positive);
    }
    case Op::bit_not:
      return b_.CreateNot(a);
    case Op::add:
      return b_.CreateAdd(a, b);
    case Op::sub:
      return b_.CreateSub(a, b);
    case Op::mul:
      return b_.CreateMul(a, b);
    case Op::bit_and:
      return b_.CreateAnd(a, b);
    case Op::bit_or:
      return b_.CreateOr(a, b);
    case Op::bit_xor:
      return b_.CreateXor(a, b);
    case Op::shift_left:
    case Op::shift_right: {
      Value* in_range = b_.CreateICmpULT(b, ConstantInt::get(t, t->getScalarSizeInBits()));
      Value* amount = b_.CreateSelect(in_range, b, zero);
      Value* v = inst.op == Op::shift_left ? b_.CreateShl(a, amount)
                 : is_signed               ? b_.CreateAShr(a, amount)
                                           : b_.CreateLShr(a, amount);
      return b_.CreateSelect(in_range, v, zero);
    }
    case Op::div:
    case Op::mod:
    case Op::fmod:
      return divide(inst.op, is_signed, a, b);
    default: {
      assert(inst.op == Op::pow);
      Type* wide_type = like(b_.getInt64Ty(), a);
      const auto widen = [&](Value* v) {
        return is_signed ? b_.CreateSExt(v, wide_type) : b_.CreateZExt(v, wide_type);
      };
      const std::string name = is_signed ? "lathe_pow_i64" : "lathe_pow_u64";
      return b_.CreateTrunc(call_per_lane(name, b_.getInt64Ty(), {widen(a), widen(b)}), t);
    }
  }
}

/// Integer division that never traps: by zero it gives 0, the smallest number by -1 itself.
Value* Emitter::divide(Op op, bool is_signed, Value* a, Value* b) {
  Type* t = a->getType();
  Constant* zero = Constant::getNullValue(t);
  Constant* one = ConstantInt::get(t, 1);
  Value* by_zero = b_.CreateICmpEQ(b, zero);
  Value* safe = b_.CreateSelect(by_zero, one, b);
  if (!is_signed) {
    Value* v = op == Op::div ? b_.CreateUDiv(a, safe) : b_.CreateURem(a, safe);
    return b_.CreateSelect(by_zero, zero, v);
  }
  Value* by_minus_one = b_.CreateICmpEQ(b, Constant::getAllOnesValue(t));
  safe = b_.CreateSelect(by_minus_one, one, safe);
  if (op == Op::div) {
    Value* v = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), b_.CreateSDiv(a, safe));
    return b_.CreateSelect(by_zero, zero, v);
  }
  Value* rest = b_.CreateSelect(by_zero, zero, b_.CreateSRem(a, safe));
  if (op == Op::fmod) return rest;
  Value* other_sign = b_.CreateICmpSLT(b_.CreateXor(rest, b), zero);
  Value* adjust = b_.CreateAnd(b_.CreateICmpNE(rest, zero), other_sign);
  return b_.CreateSelect(adjust, b_.CreateAdd(rest, b), rest);
}

Value* Emitter::compare(Op op, DType dtype, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  if (dtype.is_float()) {
    const P predicate = op == Op::equal        ? P::FCMP_OEQ
                        : op == Op::not_equal  ? P::FCMP_UNE
                        : op == Op::less       ? P::FCMP_OLT
                        : op == Op::less_equal ? P::FCMP_OLE
                        : op == Op::greater    ? P::FCMP_OGT
                                               : P::FCMP_OGE;
    return b_.CreateFCmp(predicate, a, b);
  }
  const bool s = dtype.is_signed_integer();
  const P predicate = op == Op::equal        ? P::ICMP_EQ
                      : op == Op::not_equal  ? P::ICMP_NE
                      : op == Op::less       ? (s ? P::ICMP_SLT : P::ICMP_ULT)
                      : op == Op::less_equal ? (s ? P::ICMP_SLE : P::ICMP_ULE)
                      : op == Op::greater    ? (s ? P::ICMP_SGT : P::ICMP_UGT)
                                             : (s ? P::ICMP_SGE : P::ICMP_UGE);
  return b_.CreateICmp(predicate, a, b);
}

/// NaN in either operand gives NaN.
Value* Emitter::min_max(bool is_min, DType dtype, Value* a, Value* b) {
  Value* first = compare(is_min ? Op::less : Op::greater, dtype, a, b);
  Value* v = b_.CreateSelect(first, a, b);
  if (!dtype.is_float()) return v;
  const auto known = [](Value* x) { return llvm::isa<Constant>(x); };
  return known(a) ? v : b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, v);
}

Value* Emitter::call_per_lane(const std::string& name, Type* result, std::initializer_list<Value*> args) {
  std::vector<Type*> types;
  for (Value* v : args) types.push_back(v->getType()->getScalarType());
  llvm::FunctionCallee callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
  if (!(*args.begin())->getType()->isVectorTy()) return b_.CreateCall(callee, std::vector<Value*>(args));
  Value* v = llvm::PoisonValue::get(like(result, *args.begin()));
  const auto* vector = llvm::cast<llvm::FixedVectorType>((*args.begin())->getType());
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<Value*> scalars;
    for (Value* arg : args) scalars.push_back(b_.CreateExtractElement(arg, i64(lane)));
    v = b_.CreateInsertElement(v, b_.CreateCall(callee, scalars), i64(lane));
  }
  return v;
}

// ---- small things ----

Type* Emitter::type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return b_.getFloatTy();
    case DType::f64:
      return b_.getDoubleTy();
    case DType::f16:
      return b_.getHalfTy();
    case DType::boolean:
      return b_.getInt1Ty();
    default:  // bf16 and the narrower floats are their bits
      return b_.getIntNTy(static_cast<unsigned>(element_bytes(dtype)) * 8);
  }
}

Type* Emitter::memory_type(DType dtype) { return dtype == DType::boolean ? b_.getInt8Ty() : type(dtype); }

Type* Emitter::wide(Type* t, int lanes) const {
  return lanes == 1 ? t : llvm::FixedVectorType::get(t, static_cast<unsigned>(lanes));
}

/// `element`, in as many lanes as `shape` has.
Type* Emitter::like(Type* element, Value* shape) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType());
  return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
}

Value* Emitter::splat(Value* v, int lanes) {
  return lanes == 1 ? v : b_.CreateVectorSplat(static_cast<unsigned>(lanes), v);
}

Value* Emitter::param(int index) {
  if (param_values_.size() <= static_cast<std::size_t>(index))
    param_values_.resize(static_cast<std::size_t>(index) + 1);
  Value*& v = param_values_[static_cast<std::size_t>(index)];
  if (v == nullptr) {
    v = in_entry([&] {
      Value* p = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), params_, static_cast<std::uint64_t>(index));
      return b_.CreateLoad(b_.getInt64Ty(), p);
    });
  }
  return v;
}

Value* Emitter::extent_of(int dim) { return param(dim); }

/// Emits at the end of the entry block, which everything is dominated by.
Value* Emitter::in_entry(const std::function<Value*()>& make) {
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(entry_->getTerminator());
  return make();
}

}  // namespace lathe::jit
