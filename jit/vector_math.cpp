// Polynomials for the transcendental functions in f32. Coefficients were fitted by weighted least squares iterated
// towards the minimax error (Lawson), in the form that each function states; tests/jit/vector_math_test.cpp measures
// the bounds.
#include "jit/vector_math.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <initializer_list>

namespace lathe::jit::math {
namespace {

using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;
using loops::Op;
namespace Intrinsic = llvm::Intrinsic;

/// Arithmetic on values shaped like one example.
class Vector {
 public:
  Vector(llvm::IRBuilder<>& builder, Value* shape) : b(builder), shape_(shape) {}

  Type* like(Type* element) const {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape_->getType());
    return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
  }
  Type* f32() const { return like(b.getFloatTy()); }
  Type* f64() const { return like(b.getDoubleTy()); }
  Type* i32() const { return like(b.getInt32Ty()); }
  Value* number(double v) const { return ConstantFP::get(f32(), v); }
  Value* wide_number(double v) const { return ConstantFP::get(f64(), v); }
  Value* integer(std::uint32_t v) const { return ConstantInt::get(i32(), v); }
  Value* fma(Value* x, Value* y, Value* z) const {
    return b.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, y, z});
  }
  Value* abs(Value* x) const { return b.CreateUnaryIntrinsic(Intrinsic::fabs, x); }
  Value* with_sign(Value* magnitude, Value* sign) const {
    return b.CreateBinaryIntrinsic(Intrinsic::copysign, magnitude, sign);
  }
  /// c0 + c1 x + c2 x² …
  Value* polynomial(Value* x, std::initializer_list<double> coefficients) const {
    Value* sum = nullptr;
    for (const double* c = coefficients.end(); c != coefficients.begin();) {
      Value* term = ConstantFP::get(x->getType(), *--c);
      sum = sum == nullptr ? term : fma(sum, x, term);
    }
    return sum;
  }
  /// The smaller (larger) of x and a limit; NaN stays.
  Value* at_most(Value* x, double limit) const {
    return b.CreateSelect(b.CreateFCmpOGT(x, number(limit)), number(limit), x);
  }
  Value* at_least(Value* x, double limit) const {
    return b.CreateSelect(b.CreateFCmpOLT(x, number(limit)), number(limit), x);
  }

  /// The integer nearest to x / unit, as a float and as bits. Adding 1.5·2^23 leaves it in the low bits of the sum,
  /// which is safe for NaN too.
  struct Rounded {
    Value* value;
    Value* bits;
  };
  Rounded round_scaled(Value* x, double factor) const {
    constexpr double kMagic = 12582912;
    Value* sum = fma(x, number(factor), number(kMagic));
    return {b.CreateFSub(sum, number(kMagic)), b.CreateSub(b.CreateBitCast(sum, i32()), integer(0x4b400000))};
  }
  /// 2^n for n in [-126, 127], as bits.
  Value* power_of_two(Value* n) const {
    return b.CreateBitCast(b.CreateShl(b.CreateAdd(n, integer(127)), integer(23)), f32());
  }
  /// x · 2^n for n in [-252, 254], rounded once where the result is normal or the first product is.
  Value* scale(Value* x, Value* n) const {
    Value* half = b.CreateAShr(n, integer(1));
    return b.CreateFMul(b.CreateFMul(x, power_of_two(half)), power_of_two(b.CreateSub(n, half)));
  }
  /// x - n·ln 2 in two steps: n · kHigh is exact.
  Value* reduce_by_ln2(Value* x, Value* n) const {
    return fma(n, number(-1.42860677e-6), fma(n, number(-0.693145752), x));
  }

  llvm::IRBuilder<>& b;

 private:
  Value* shape_;
};

/// e^x = 2^n · e^r with |r| <= ln 2 / 2; e^r = 1 + r + r² q(r).
Value* exp(const Vector& v, Value* x) {
  x = v.at_least(v.at_most(x, 89), -104);
  const auto n = v.round_scaled(x, 1.44269504088896341);
  Value* r = v.reduce_by_ln2(x, n.value);
  Value* q = v.polynomial(
      r, {0.4999999403953552, 0.16666515171527863, 0.041668228805065155, 0.008369384333491325, 0.0013825445203110576});
  Value* p = v.b.CreateFAdd(v.fma(v.b.CreateFMul(r, r), q, r), v.number(1));
  return v.scale(p, n.bits);
}

/// 2^x = 2^n · (1 + r q(r)), r = x - n.
Value* exp2(const Vector& v, Value* x) {
  x = v.at_least(v.at_most(x, 128.5), -151);
  const auto n = v.round_scaled(x, 1);
  Value* r = v.b.CreateFSub(x, n.value);
  Value* q = v.polynomial(r, {0.6931471824645996, 0.24022650718688965, 0.05550405755639076, 0.009618076495826244,
                              0.0013337236596271396, 0.00015456942492164671, 1.4496769836114254e-05});
  return v.scale(v.fma(r, q, v.number(1)), n.bits);
}

/// e^x - 1 for 0 <= x <= 80: 2^n (e^r - 1) + (2^n - 1).
Value* expm1_positive(const Vector& v, Value* x) {
  const auto n = v.round_scaled(x, 1.44269504088896341);
  Value* r = v.reduce_by_ln2(x, n.value);
  Value* q = v.polynomial(r, {0.5, 0.1666666865348816, 0.04166646674275398, 0.008332847617566586, 0.0013934909366071224,
                              0.00020144735754001886});
  Value* p = v.fma(v.b.CreateFMul(r, r), q, r);
  Value* power = v.power_of_two(n.bits);
  return v.fma(power, p, v.b.CreateFSub(power, v.number(1)));
}

/// log x = k ln 2 + log(1 + f), 1 + f in [√½, √2); log(1 + f) = f - f²/2 + f³ q(f).
Value* log(const Vector& v, Value* x) {
  auto& b = v.b;
  Value* subnormal = b.CreateFCmpOLT(x, v.number(1.17549435e-38));
  Value* scaled = b.CreateSelect(subnormal, b.CreateFMul(x, v.number(8388608)), x);
  Value* bits = b.CreateBitCast(scaled, v.i32());
  Value* k = b.CreateAShr(b.CreateSub(bits, v.integer(0x3f3504f3)), v.integer(23));
  Value* m = b.CreateBitCast(b.CreateSub(bits, b.CreateShl(k, v.integer(23))), v.f32());
  Value* exponent = b.CreateSIToFP(b.CreateSub(k, b.CreateSelect(subnormal, v.integer(23), v.integer(0))), v.f32());
  Value* f = b.CreateFSub(m, v.number(1));
  Value* q = v.polynomial(
      f, {0.3333331346511841, -0.25000011920928955, 0.20002073049545288, -0.1666785478591919, 0.14220233261585236,
          -0.12408196926116943, 0.11886204034090042, -0.11660660803318024, 0.06733010709285736});
  Value* square = b.CreateFMul(f, f);
  Value* tail = v.fma(b.CreateFMul(square, f), q, b.CreateFMul(square, v.number(-0.5)));
  tail = v.fma(exponent, v.number(1.42860677e-6), tail);
  Value* result = v.fma(exponent, v.number(0.693145752), b.CreateFAdd(tail, f));
  Value* infinity = ConstantFP::getInfinity(v.f32());
  result = b.CreateSelect(b.CreateFCmpOEQ(x, infinity), infinity, result);
  result = b.CreateSelect(b.CreateFCmpOEQ(x, v.number(0)), ConstantFP::getInfinity(v.f32(), true), result);
  return b.CreateSelect(b.CreateFCmpULT(x, v.number(0)), ConstantFP::getNaN(v.f32()), result);
}

/// tanh x = t / (t + 2), t = e^2|x| - 1, which loses nothing near 0.
Value* tanh(const Vector& v, Value* x) {
  Value* magnitude = v.at_most(v.abs(x), 10);
  Value* t = expm1_positive(v, v.b.CreateFAdd(magnitude, magnitude));
  return v.with_sign(v.b.CreateFDiv(t, v.b.CreateFAdd(t, v.number(2))), x);
}

/// 1 / (1 + e^-x), from e^-|x| so that neither side overflows.
Value* sigmoid(const Vector& v, Value* x) {
  Value* e = exp(v, v.b.CreateFNeg(v.abs(x)));
  Value* numerator = v.b.CreateSelect(v.b.CreateFCmpOLT(x, v.number(0)), e, v.number(1));
  return v.b.CreateFDiv(numerator, v.b.CreateFAdd(e, v.number(1)));
}

/// x + x q(x²) near 0; 1 - e^p(|x|) elsewhere, p being the logarithm of 1 - erf.
Value* erf(const Vector& v, Value* x) {
  auto& b = v.b;
  Value* square = b.CreateFMul(x, x);
  Value* q = v.polynomial(square, {0.12837916612625122, -0.37612631916999817, 0.1128368154168129, -0.026859022676944733,
                                   0.00520072178915143, -0.0008144158055074513, 8.392268500756472e-05});
  Value* near = v.fma(x, q, x);
  Value* t = v.at_most(v.abs(x), 3.95);
  Value* p = v.polynomial(t, {-0.12862983345985413, -0.635227382183075, -0.10611067712306976, 0.02365308441221714,
                              -0.0035908299032598734, 0.00031008615042082965, -9.959125236491673e-06});
  Value* far = b.CreateFSub(v.number(1), exp(v, v.fma(p, t, b.CreateFNeg(t))));
  return b.CreateSelect(b.CreateFCmpOLT(t, v.number(0.89)), near, v.with_sign(far, x));
}

/// Each lane by a C function where any lane is marked; otherwise `inlined`.
Value* unless_marked(llvm::IRBuilder<>& b, Value* marked, Value* x, Value* inlined, const char* name) {
  llvm::Function* fn = b.GetInsertBlock()->getParent();
  llvm::FunctionCallee callee = fn->getParent()->getOrInsertFunction(name, b.getFloatTy(), b.getFloatTy());
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  const unsigned lanes = vector == nullptr ? 1 : vector->getNumElements();
  Value* bits = b.CreateBitCast(marked, b.getIntNTy(lanes));
  auto* before = b.GetInsertBlock();
  auto* slow = llvm::BasicBlock::Create(b.getContext(), "slow", fn);
  auto* after = llvm::BasicBlock::Create(b.getContext(), "after", fn);
  b.CreateCondBr(b.CreateICmpEQ(bits, ConstantInt::get(bits->getType(), 0)), after, slow);
  b.SetInsertPoint(slow);
  Value* called = vector == nullptr ? b.CreateCall(callee, {x}) : static_cast<Value*>(llvm::PoisonValue::get(vector));
  for (unsigned lane = 0; vector != nullptr && lane < lanes; ++lane) {
    Value* y = b.CreateCall(callee, {b.CreateExtractElement(x, std::uint64_t{lane})});
    called = b.CreateInsertElement(called, y, std::uint64_t{lane});
  }
  b.CreateBr(after);
  b.SetInsertPoint(after);
  auto* result = b.CreatePHI(x->getType(), 2);
  result->addIncoming(inlined, before);
  result->addIncoming(called, slow);
  return result;
}

/// x - n π/2 in f64, where the difference of near equals keeps all that f32 needs up to 2^40; then sine or cosine of
/// the rest by quadrant.
Value* sin_cos(const Vector& v, Value* x, bool is_cos) {
  auto& b = v.b;
  Type* i64 = v.like(b.getInt64Ty());
  const auto number = [&](std::uint64_t n) { return ConstantInt::get(i64, n); };
  constexpr double kMagic = 6755399441055744;  // 1.5 · 2^52
  Value* large = b.CreateFCmpUGT(v.abs(x), v.number(1099511627776.0));
  Value* wide = b.CreateFPExt(x, v.f64());
  Value* sum = v.fma(wide, v.wide_number(0.63661977236758134308), v.wide_number(kMagic));
  Value* n = b.CreateFSub(sum, v.wide_number(kMagic));
  Value* quadrant = b.CreateBitCast(sum, i64);
  if (is_cos) quadrant = b.CreateAdd(quadrant, number(1));
  Value* r = v.fma(n, v.wide_number(-1.5707963267948965580), wide);
  r = v.fma(n, v.wide_number(-6.1232339957367658860e-17), r);
  Value* square = b.CreateFMul(r, r);
  Value* s = v.polynomial(square,
                          {-0.1666666663955159, 0.008333329160558784, -0.00019839265902270352, 2.7176801186781264e-06});
  s = v.fma(b.CreateFMul(square, r), s, r);
  Value* c =
      v.polynomial(square, {-0.49999999711992893, 0.041666621783848605, -0.001388671380088316, 2.4385655196440537e-05});
  c = v.fma(square, c, v.wide_number(1));
  Value* odd = b.CreateICmpNE(b.CreateAnd(quadrant, number(1)), number(0));
  Value* chosen = b.CreateSelect(odd, c, s);
  Value* negative = b.CreateICmpNE(b.CreateAnd(quadrant, number(2)), number(0));
  Value* result = b.CreateFPTrunc(b.CreateSelect(negative, b.CreateFNeg(chosen), chosen), v.f32());
  return unless_marked(b, large, x, result, is_cos ? "lathe_cosf" : "lathe_sinf");
}

}  // namespace

Value* function(llvm::IRBuilder<>& b, Op op, Value* x) {
  const Vector v(b, x);
  switch (op) {
    case Op::exp:
      return exp(v, x);
    case Op::exp2:
      return exp2(v, x);
    case Op::log:
      return log(v, x);
    case Op::tanh:
      return tanh(v, x);
    case Op::sigmoid:
      return sigmoid(v, x);
    case Op::erf:
      return erf(v, x);
    case Op::sin:
      return sin_cos(v, x, false);
    case Op::cos:
      return sin_cos(v, x, true);
    default:
      return nullptr;
  }
}

}  // namespace lathe::jit::math
