// Reductions of compiled kernels: accumulators carried through the inner loops, and how they are folded into one value.
//
// Which element goes to which accumulator, and the order in which accumulators are folded, depend on the structure and
// the inner extents only, never on how outer ranges are split, so that a result's bits do not either.
#include <llvm/IR/Intrinsics.h>

#include "jit/codegen.h"

namespace lathe::jit {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;
using loops::Inst;
using loops::Op;
using loops::Reduction;

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }
bool is_arg(Reduction r) { return r >= Reduction::argmin_first; }
bool is_last(Reduction r) { return r == Reduction::argmin_last || r == Reduction::argmax_last; }
bool wants_min(Reduction r) {
  return r == Reduction::min || r == Reduction::argmin_first || r == Reduction::argmin_last;
}

Constant* extremum(Type* t, DType dtype, bool largest) {
  if (dtype.is_float()) return ConstantFP::getInfinity(t, !largest);
  const auto bits = static_cast<unsigned>(dtype.bits());
  const bool s = dtype.is_signed_integer();
  const llvm::APInt v = largest ? (s ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits))
                                : (s ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
  return ConstantInt::get(t, v);
}

/// Before any element: later than every position for the first, earlier than every one for the last.
Constant* no_position(Type* t, Reduction r) {
  return is_last(r) ? Constant::getAllOnesValue(t) : ConstantInt::get(t, llvm::APInt::getSignedMaxValue(64));
}

}  // namespace

void Emitter::list_accumulators(int s) {
  accs_.clear();
  for (int i = 0; i < static_cast<int>(k_.insts.size()); ++i) {
    const Inst& inst = inst_at(i);
    if (inst.op != Op::reduce || !an_.live[at(i)] || an_.stage[at(i)] != s + 1) continue;
    const auto add = [&](Copy c, bool scalar_tail) { accs_.push_back({i, c, scalar_tail}); };
    if (vec_inner_) {
      for (int u = 0; u < s_.unroll; ++u) add({0, u, 0}, false);
      if (!s_.masked_tail && s_.lanes > 1) add({}, true);
      continue;
    }
    const int splits = s_.k_split ? s_.k_unroll : 1;
    for_copies(deps(inst.a) & ~(k_dim_ >= 0 ? bit(k_dim_) : 0), [&](Copy c) {
      for (int k = 0; k < splits; ++k) add({c.r, c.u, k}, false);
    });
  }
}

/// One value for each accumulator; for arg reductions its position after it.
Emitter::Values Emitter::initial_values() {
  Values values;
  for (const Accumulator& acc : accs_) {
    const Inst& inst = inst_at(acc.inst);
    const DType dtype = inst_at(inst.a).dtype;
    const bool vector = !acc.scalar_tail && (vec_inner_ || varies(inst.a));
    const int lanes = vector ? (vec_inner_ ? s_.lanes : lanes_) : 1;
    Type* t = wide(type(dtype), lanes);
    switch (inst.reduction) {
      case Reduction::sum:
        values.push_back(Constant::getNullValue(t));
        break;
      case Reduction::prod:
        values.push_back(dtype.is_float() ? ConstantFP::get(t, 1.0) : ConstantInt::get(t, 1));
        break;
      default:
        values.push_back(extremum(t, dtype, wants_min(inst.reduction)));
    }
    if (!is_arg(inst.reduction)) continue;
    values.push_back(no_position(wide(b_.getInt64Ty(), lanes), inst.reduction));
  }
  return values;
}

std::pair<Value*, Value*> Emitter::combine(const Inst& inst, Value* a, Value* ai, Value* b, Value* bi) {
  const DType dtype = inst_at(inst.a).dtype;
  switch (inst.reduction) {
    case Reduction::sum:
      return {dtype.is_float() ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b), nullptr};
    case Reduction::prod:
      return {dtype.is_float() ? b_.CreateFMul(a, b) : b_.CreateMul(a, b), nullptr};
    case Reduction::min:
    case Reduction::max:
      return {min_max(inst.reduction == Reduction::min, dtype, b, a), nullptr};
    default:
      break;
  }
  Value* better = compare(wants_min(inst.reduction) ? Op::less : Op::greater, dtype, b, a);
  Value* equal = compare(Op::equal, dtype, a, b);
  if (dtype.is_float()) {
    Value* nan_a = b_.CreateFCmpUNO(a, a);
    Value* nan_b = b_.CreateFCmpUNO(b, b);
    better = b_.CreateOr(better, b_.CreateAnd(nan_b, b_.CreateNot(nan_a)));
    equal = b_.CreateOr(equal, b_.CreateAnd(nan_a, nan_b));
  }
  Value* in_order = is_last(inst.reduction) ? b_.CreateICmpSGT(bi, ai) : b_.CreateICmpSLT(bi, ai);
  Value* replaces = b_.CreateOr(better, b_.CreateAnd(equal, in_order));
  return {b_.CreateSelect(replaces, b, a), b_.CreateSelect(replaces, bi, ai)};
}

/// The position of an element, counted over the inner dims; of each lane along the vector dim where `as_vector`.
Value* Emitter::position_vector(Copy c, bool as_vector) {
  Value* first = place(position_linear_, c);
  if (!as_vector) return first;
  if (!vec_inner_) return splat(first, lanes_);
  Value* steps = llvm::PoisonValue::get(wide(b_.getInt64Ty(), lanes_));
  for (int lane = 0; lane < lanes_; ++lane) {
    steps = b_.CreateInsertElement(steps, advance(position_linear_, first, s_.vec_dim, lane), i64(lane));
  }
  return steps;
}

Emitter::Values Emitter::accumulate(const Values& carried) {
  Values values = carried;
  std::size_t next = 0;
  for (const Accumulator& acc : accs_) {
    const Inst& inst = inst_at(acc.inst);
    const std::size_t slot = next;
    next += is_arg(inst.reduction) ? 2 : 1;
    if (acc.copy.r >= rows_ || acc.copy.u >= vecs_) continue;
    if (vec_inner_ && acc.scalar_tail != (lanes_ == 1 && s_.lanes > 1)) continue;
    // Steps of an unrolled loop go to accumulators of their own, or one after the other to the same.
    for (int k = acc.copy.k; k < steps_; k += s_.k_split ? s_.k_unroll : 1) {
      const Copy c{acc.copy.r, acc.copy.u, k};
      const bool vector = values[slot]->getType()->isVectorTy();
      const auto operand = [&](int i) { return vector ? get_wide(i, c) : get(i, c); };
      Value* before = values[slot];
      Value* before_index = is_arg(inst.reduction) ? values[slot + 1] : nullptr;
      Value* after = nullptr;
      Value* after_index = nullptr;
      if (an_.fused[at(inst.a)]) {
        const Inst& product = inst_at(inst.a);
        after = b_.CreateIntrinsic(llvm::Intrinsic::fma, {before->getType()},
                                   {operand(product.a), operand(product.b), before});
      } else {
        Value* position = is_arg(inst.reduction) ? position_vector(c, vector) : nullptr;
        std::tie(after, after_index) = combine(inst, before, before_index, operand(inst.a), position);
      }
      if (vec_inner_ && vector && tail_count_ != nullptr) {
        after = b_.CreateSelect(tail_mask_, after, before);
        if (after_index != nullptr) after_index = b_.CreateSelect(tail_mask_, after_index, before_index);
      }
      values[slot] = after;
      if (after_index != nullptr) values[slot + 1] = after_index;
    }
  }
  return values;
}

/// All lanes of a vector into one: halves onto each other.
std::pair<Value*, Value*> Emitter::fold_lanes(const Inst& inst, Value* v, Value* i) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  if (vector == nullptr) return {v, i};
  const int lanes = static_cast<int>(vector->getNumElements());
  for (int half = lanes / 2; half > 0; half /= 2) {
    std::vector<int> upper;
    std::vector<int> lower;
    for (int l = 0; l < half; ++l) {
      lower.push_back(l);
      upper.push_back(half + l);
    }
    const auto part = [&](Value* x, const std::vector<int>& mask) {
      return x == nullptr ? nullptr : b_.CreateShuffleVector(x, mask);
    };
    std::tie(v, i) = combine(inst, part(v, lower), part(i, lower), part(v, upper), part(i, upper));
  }
  v = b_.CreateExtractElement(v, i64(0));
  if (i != nullptr) i = b_.CreateExtractElement(i, i64(0));
  return {v, i};
}

void Emitter::finish_sweep(const Values& carried) {
  struct Partial {
    Value* value;
    Value* index;
  };
  std::size_t next = 0;
  for (std::size_t a = 0; a < accs_.size();) {
    const int reduce = accs_[a].inst;
    const Inst& inst = inst_at(reduce);
    const Copy target{accs_[a].copy.r, vec_inner_ ? 0 : accs_[a].copy.u, 0};
    std::vector<Partial> parts;
    std::vector<Partial> tails;
    for (; a < accs_.size() && accs_[a].inst == reduce; ++a) {
      const Copy c = accs_[a].copy;
      if (c.r != target.r || (!vec_inner_ && c.u != target.u)) break;
      Value* value = carried[next++];
      Value* index = is_arg(inst.reduction) ? carried[next++] : nullptr;
      (accs_[a].scalar_tail ? tails : parts).push_back({value, index});
    }
    while (parts.size() > 1) {
      std::vector<Partial> folded;
      for (std::size_t p = 0; p + 1 < parts.size(); p += 2) {
        const auto [v, i] = combine(inst, parts[p].value, parts[p].index, parts[p + 1].value, parts[p + 1].index);
        folded.push_back({v, i});
      }
      if (parts.size() % 2 != 0) folded.push_back(parts.back());
      parts = std::move(folded);
    }
    Value* value = parts[0].value;
    Value* index = parts[0].index;
    if (vec_inner_) std::tie(value, index) = fold_lanes(inst, value, index);
    if (!tails.empty()) std::tie(value, index) = combine(inst, value, index, tails[0].value, tails[0].index);
    if (is_arg(inst.reduction)) {
      // Over no elements at all, the position is 0.
      Value* none = no_position(index->getType(), inst.reduction);
      value = b_.CreateSelect(b_.CreateICmpEQ(index, none), Constant::getNullValue(index->getType()), index);
    }
    st_.value[this->slot(reduce, target)] = value;
    st_.emitted[at(reduce)] = true;
  }
  // Splats for what follows stand here, outside its loops.
  for (const Accumulator& acc : accs_) {
    if (splat_wanted_[at(acc.inst)] && lanes_ > 1) get_wide(acc.inst, {acc.copy.r, vec_inner_ ? 0 : acc.copy.u, 0});
  }
}

}  // namespace lathe::jit
