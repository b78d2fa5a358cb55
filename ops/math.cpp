// Functions of one number: Neg and Abs to Atanh and Erf.
#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

using loops::Op;

template <Op kOp>
constexpr OpDef function(std::string_view name, Forms forms, DTypes takes = kFloats) {
  return {.name = name, .forms = forms, .takes = takes, .infer = infer_unary, .expr = unary_expr<kOp>};
}

}  // namespace

extern const OpDef op_neg, op_abs, op_sign, op_floor, op_ceil, op_round, op_sqrt, op_reciprocal, op_exp, op_log, op_sin,
    op_cos, op_tan, op_asin, op_acos, op_atan, op_sinh, op_cosh, op_tanh, op_asinh, op_acosh, op_atanh, op_erf;

constinit const OpDef op_neg = function<Op::neg>("Neg", 13, kFloats | kSigned);
constinit const OpDef op_abs = function<Op::abs>("Abs", 13, kNumbers);
constinit const OpDef op_sign = function<Op::sign>("Sign", {9, 13}, kNumbers);
constinit const OpDef op_floor = function<Op::floor>("Floor", 13);
constinit const OpDef op_ceil = function<Op::ceil>("Ceil", 13);
constinit const OpDef op_round = function<Op::round>("Round", {11, 22});
constinit const OpDef op_sqrt = function<Op::sqrt>("Sqrt", 13);
constinit const OpDef op_reciprocal = function<Op::reciprocal>("Reciprocal", 13);
constinit const OpDef op_exp = function<Op::exp>("Exp", 13);
constinit const OpDef op_log = function<Op::log>("Log", 13);
constinit const OpDef op_sin = function<Op::sin>("Sin", {7, 22});
constinit const OpDef op_cos = function<Op::cos>("Cos", {7, 22});
constinit const OpDef op_tan = function<Op::tan>("Tan", {7, 22});
constinit const OpDef op_asin = function<Op::asin>("Asin", {7, 22});
constinit const OpDef op_acos = function<Op::acos>("Acos", {7, 22});
constinit const OpDef op_atan = function<Op::atan>("Atan", {7, 22});
constinit const OpDef op_sinh = function<Op::sinh>("Sinh", {9, 22});
constinit const OpDef op_cosh = function<Op::cosh>("Cosh", {9, 22});
constinit const OpDef op_tanh = function<Op::tanh>("Tanh", 13);
constinit const OpDef op_asinh = function<Op::asinh>("Asinh", {9, 22});
constinit const OpDef op_acosh = function<Op::acosh>("Acosh", {9, 22});
constinit const OpDef op_atanh = function<Op::atanh>("Atanh", {9, 22});
constinit const OpDef op_erf = function<Op::erf>("Erf", {9, 13});

}  // namespace lathe::ops
