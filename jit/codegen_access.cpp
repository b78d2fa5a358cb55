// Memory access of compiled kernels: contiguous, gathered and transposed loads, guards, checked indices, stores.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <cstddef>

#include "jit/codegen.h"

namespace lathe::jit {

using llvm::BasicBlock;
using llvm::FixedVectorType;
using llvm::Type;
using llvm::Value;
using loops::Access;
using loops::Inst;

namespace {
std::size_t at(int i) { return static_cast<std::size_t>(i); }
}  // namespace

/// factor · coef of a dim, in bytes for pointers; products with run-time strides are computed once, at entry.
Value* Emitter::scaled(int l, int dim, std::int64_t factor) {
  const Linear& linear = linears_[at(l)];
  const std::int64_t unit = linear.element == nullptr
                                ? 1
                                : static_cast<std::int64_t>(std::max(1U, linear.element->getScalarSizeInBits() / 8));
  if (linear.cls[at(dim)] == 1) return i64(factor * unit);
  auto& memo = scaled_[at(l * std::max(1, k_.rank()) + dim)];
  for (const auto& [known, value] : memo) {
    if (known == factor) return value;
  }
  Value* product = in_entry([&] { return b_.CreateMul(linear.coef[at(dim)], i64(factor * unit)); });
  memo.emplace_back(factor, product);
  return product;
}

Value* Emitter::advance(int l, Value* from, int dim, std::int64_t factor) {
  if (factor == 0 || !linear_depends(l, dim)) return from;
  Value* offset = scaled(l, dim, factor);
  if (linears_[at(l)].element == nullptr) return b_.CreateAdd(from, offset);
  return b_.CreateGEP(b_.getInt8Ty(), from, offset);
}

/// Where a copy's first lane lies.
Value* Emitter::place(int l, Copy c) {
  Value* v = st_.linear[at(l * s_.rows + (linear_depends(l, s_.row_dim) ? c.r : 0))];
  if (k_dim_ >= 0) v = advance(l, v, k_dim_, c.k);
  if (s_.vec_dim >= 0) v = advance(l, v, s_.vec_dim, static_cast<std::int64_t>(c.u) * lanes_);
  return v;
}

/// Memory that is always readable, for lanes and accesses that a guard switches off.
Value* Emitter::dummy() {
  if (dummy_ == nullptr) {
    dummy_ = in_entry([&] {
      auto* type = FixedVectorType::get(b_.getInt8Ty(), static_cast<unsigned>(s_.lanes) * 8);
      llvm::AllocaInst* slot = b_.CreateAlloca(type);
      b_.CreateStore(llvm::Constant::getNullValue(type), slot);
      return slot;
    });
  }
  return dummy_;
}

/// The conjunction of the guards that do (or do not) vary along the vector dim; null where there are none.
Value* Emitter::guards(const Access& access, int load, Copy c, bool along_vector) {
  Value* all = nullptr;
  for (int g = 0; g < static_cast<int>(access.guards.size()); ++g) {
    const int l = guard_linear_[at(load)] + g;
    if ((linear_depends(l, s_.vec_dim) && lanes_ > 1) != along_vector) continue;
    Value* sum = place(l, c);
    const int first = load_param_[at(load)] + 1 + k_.rank();
    Value* extent = param(first + g * (2 + k_.rank()) + 1);
    if (along_vector && linears_[at(l)].cls[at(s_.vec_dim)] == 1) {
      // The lanes inside are those from -sum on, as many as the extent: small numbers, however large the sums.
      const auto clamp = [&](Value* v) {
        v = b_.CreateSelect(b_.CreateICmpSLT(v, i64(0)), i64(0), v);
        v = b_.CreateSelect(b_.CreateICmpSGT(v, i64(lanes_)), i64(lanes_), v);
        return splat(b_.CreateTrunc(v, b_.getInt32Ty()), lanes_);
      };
      std::vector<std::uint32_t> lanes;
      for (int i = 0; i < lanes_; ++i) lanes.push_back(static_cast<std::uint32_t>(i));
      Value* iota = llvm::ConstantDataVector::get(b_.getContext(), lanes);
      Value* first_lane = clamp(b_.CreateNeg(sum));
      Value* end_lane = clamp(b_.CreateSub(extent, sum));
      all = and_(all, b_.CreateICmpSGE(iota, first_lane));
      all = and_(all, b_.CreateICmpSLT(iota, end_lane));
      continue;
    }
    if (along_vector) {
      Value* steps = llvm::PoisonValue::get(wide(b_.getInt64Ty(), lanes_));
      for (int i = 0; i < lanes_; ++i) steps = b_.CreateInsertElement(steps, advance(l, sum, s_.vec_dim, i), i64(i));
      all = and_(all, b_.CreateICmpULT(steps, splat(extent, lanes_)));
    } else {
      all = and_(all, b_.CreateICmpULT(sum, extent));
    }
  }
  return all;
}

/// An index counted from the front; ends the kernel where it is out of range and `active` (null: always).
Value* Emitter::checked_index(Value* index, Value* extent, Value* active, int node, Copy c) {
  const bool vector = index->getType()->isVectorTy();
  Value* bound = vector ? splat(extent, lanes_) : extent;
  Value* negative = b_.CreateICmpSLT(index, llvm::Constant::getNullValue(index->getType()));
  Value* counted = b_.CreateSelect(negative, b_.CreateAdd(index, bound), index);
  Value* bad = and_(active, b_.CreateICmpUGE(counted, bound));
  Value* any = bad;
  if (vector) {
    bad = b_.CreateBitCast(bad, b_.getIntNTy(static_cast<unsigned>(lanes_)));
    any = b_.CreateICmpNE(bad, llvm::Constant::getNullValue(bad->getType()));
  }
  auto* fail = BasicBlock::Create(module_.getContext(), "index_error", fn_);
  auto* good = BasicBlock::Create(module_.getContext(), "index_ok", fn_);
  b_.CreateCondBr(any, fail, good, llvm::MDBuilder(module_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(fail);
  Value* lane = i64(0);
  if (vector) {
    lane = b_.CreateZExt(b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, bad, b_.getTrue()), b_.getInt64Ty());
    index = b_.CreateExtractElement(index, lane);
  }
  report_index(index, extent, node, position_of(c, lane));
  b_.SetInsertPoint(good);
  return counted;
}

/// Fills the error slot, where there is one, and returns.
void Emitter::report_index(Value* index, Value* extent, int node, Value* position) {
  auto* fill = BasicBlock::Create(module_.getContext(), "fill", fn_);
  auto* leave = BasicBlock::Create(module_.getContext(), "leave", fn_);
  b_.CreateCondBr(b_.CreateIsNull(error_), leave, fill);
  b_.SetInsertPoint(fill);
  const auto put = [&](std::size_t offset, Value* v) {
    b_.CreateStore(v, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), error_, offset));
  };
  put(offsetof(loops::ErrorSlot, node), b_.getInt32(static_cast<std::uint32_t>(node)));
  put(offsetof(loops::ErrorSlot, position), position);
  put(offsetof(loops::ErrorSlot, value), index);
  put(offsetof(loops::ErrorSlot, extent), extent);
  b_.CreateBr(leave);
  b_.SetInsertPoint(leave);
  b_.CreateRet(b_.getInt32(loops::kIndexError));
}

/// Row-major over all dims; dims whose loop is not open count as 0.
Value* Emitter::position_of(Copy c, Value* lane) {
  Value* position = i64(0);
  for (int d = 0; d < k_.rank(); ++d) {
    Value* index = has(st_.open, d) ? st_.index[at(d)] : i64(0);
    if (has(st_.open, d) && d == s_.row_dim) index = b_.CreateAdd(index, i64(c.r));
    if (has(st_.open, d) && d == k_dim_) index = b_.CreateAdd(index, i64(c.k));
    if (has(st_.open, d) && d == s_.vec_dim) {
      index = b_.CreateAdd(b_.CreateAdd(index, i64(static_cast<std::int64_t>(c.u) * lanes_)), lane);
    }
    position = b_.CreateAdd(b_.CreateMul(position, extent_of(d)), index);
  }
  return position;
}

/// Σ index · stride of the indices that do (or do not) vary along the vector dim; null where there are none.
Value* Emitter::indirect_offset(const Access& access, int load, Copy c, Value* guard, Value* mask, bool along_vector) {
  Value* sum = nullptr;
  const int first = load_param_[at(load)] + (1 + k_.rank()) + static_cast<int>(access.guards.size()) * (2 + k_.rank());
  for (int i = 0; i < static_cast<int>(access.indirect.size()); ++i) {
    const int inst = access.indirect[at(i)].inst;
    if ((varies(inst) && lanes_ > 1) != along_vector) continue;
    Value* extent = param(first + 2 * i);
    Value* stride = param(first + 2 * i + 1);
    Value* active = guard;
    if (along_vector) {
      active = guard == nullptr ? mask : and_(mask, splat(guard, lanes_));
    } else if (mask != nullptr) {
      // One index for all lanes counts where any lane is on.
      Value* bits = b_.CreateBitCast(mask, b_.getIntNTy(static_cast<unsigned>(lanes_)));
      active = and_(guard, b_.CreateICmpNE(bits, llvm::Constant::getNullValue(bits->getType())));
    }
    Value* index = checked_index(get(inst, c), extent, active, indirect_base_[at(load)] + i, c);
    Value* offset = b_.CreateMul(index, along_vector ? splat(stride, lanes_) : stride);
    sum = sum == nullptr ? offset : b_.CreateAdd(sum, offset);
  }
  return sum;
}

Value* Emitter::load(int i, Copy c) {
  const Inst& inst = inst_at(i);
  const int id = inst.index;
  const Access& access = k_.loads[at(id)];
  Type* element = memory_type(inst.dtype);
  const llvm::Align align(static_cast<std::uint64_t>(element_bytes(inst.dtype)));
  const bool vector = varies(i) && lanes_ > 1;

  Value* guard = guards(access, id, c, false);
  Value* lane_guard = vector ? guards(access, id, c, true) : nullptr;
  Value* mask = lane_guard;
  if (vector && tail_count_ != nullptr) mask = and_(mask, tail_mask_);
  Value* base = place(id, c);
  if (Value* offset = indirect_offset(access, id, c, guard, mask, false)) base = b_.CreateGEP(element, base, offset);
  Value* lane_offsets = vector ? indirect_offset(access, id, c, guard, mask, true) : nullptr;
  if (guard != nullptr) base = b_.CreateSelect(guard, base, dummy());

  Value* loaded = nullptr;
  const bool contiguous = vector && linears_[at(id)].cls[at(s_.vec_dim)] == 1 && lane_offsets == nullptr;
  const bool maskable = element_bytes(inst.dtype) >= 4 || machine_.narrow_masks;
  if (!vector) {
    loaded = b_.CreateAlignedLoad(element, base, align);
  } else if (contiguous && mask == nullptr) {
    loaded = b_.CreateAlignedLoad(wide(element, lanes_), base, align);
  } else if (contiguous && maskable) {
    Type* t = wide(element, lanes_);
    loaded = b_.CreateMaskedLoad(t, base, align, mask, llvm::Constant::getNullValue(t));
  } else {
    loaded = gather(id, base, c, guard, mask, lane_offsets);
  }
  Value* value = from_memory(inst.dtype, loaded);
  if (access.fallback < 0) return value;
  const auto select = [&](Value* condition) {
    Value* other = vector ? get_wide(access.fallback, c) : get(access.fallback, c);
    value = b_.CreateSelect(condition, value, other);
  };
  if (lane_guard != nullptr) select(lane_guard);
  if (guard != nullptr) select(guard);
  return value;
}

/// Lane by lane. Where a mask is off the lane reads memory that is always there.
Value* Emitter::gather(int l, Value* base, Copy, Value* guard, Value* mask, Value* lane_offsets) {
  Type* element = linears_[at(l)].element;
  const llvm::Align align(std::max<std::uint64_t>(1, element->getScalarSizeInBits() / 8));
  Value* result = llvm::PoisonValue::get(wide(element, lanes_));
  for (int lane = 0; lane < lanes_; ++lane) {
    // Where the scalar guard is off, `base` already is such memory, and no lane may step away from it.
    Value* p = advance(l, base, s_.vec_dim, lane);
    if (lane_offsets != nullptr) p = b_.CreateGEP(element, p, b_.CreateExtractElement(lane_offsets, i64(lane)));
    Value* on = mask != nullptr ? b_.CreateExtractElement(mask, i64(lane)) : nullptr;
    on = and_(on, guard);
    if (on != nullptr) p = b_.CreateSelect(on, p, dummy());
    result = b_.CreateInsertElement(result, b_.CreateAlignedLoad(element, p, align), i64(lane));
  }
  return result;
}

/// Loads a block of rows × lanes that is contiguous along the rows, and transposes it: log2(lanes) rounds of pairwise
/// interleaving.
void Emitter::load_transposed(int i) {
  const Inst& inst = inst_at(i);
  const int l = inst.index;
  Type* element = memory_type(inst.dtype);
  const llvm::Align align(static_cast<std::uint64_t>(element_bytes(inst.dtype)));
  std::vector<Value*> block;
  for (int lane = 0; lane < lanes_; ++lane) {
    Value* p = advance(l, place(l, {}), s_.vec_dim, lane);
    block.push_back(b_.CreateAlignedLoad(wide(element, lanes_), p, align));
  }
  std::vector<int> low, high;
  for (int lane = 0; lane < lanes_ / 2; ++lane) {
    low.insert(low.end(), {lane, lanes_ + lane});
    high.insert(high.end(), {lanes_ / 2 + lane, lanes_ + lanes_ / 2 + lane});
  }
  const std::size_t half = block.size() / 2;
  for (int round = 1; round < lanes_; round *= 2) {
    std::vector<Value*> next;
    for (std::size_t v = 0; v < half; ++v) {
      next.push_back(b_.CreateShuffleVector(block[v], block[v + half], low));
      next.push_back(b_.CreateShuffleVector(block[v], block[v + half], high));
    }
    block = std::move(next);
  }
  for (int r = 0; r < rows_; ++r) st_.value[slot(i, {r, 0, 0})] = from_memory(inst.dtype, block[at(r)]);
}

void Emitter::store(const loops::Store& s, int l, Copy c) {
  const DType dtype = k_.buffers[at(s.access.buffer)].dtype;
  const llvm::Align align(static_cast<std::uint64_t>(element_bytes(dtype)));
  Value* p = place(l, c);
  const bool vector = lanes_ > 1 && linear_depends(l, s_.vec_dim);
  if (!vector) {
    Value* v = to_memory(dtype, get(s.inst, c));
    if (v->getType()->isVectorTy()) v = b_.CreateExtractElement(v, i64(0));
    b_.CreateAlignedStore(v, p, align);
    return;
  }
  Value* v = to_memory(dtype, get_wide(s.inst, c));
  if (linears_[at(l)].cls[at(s_.vec_dim)] != 1) {
    for (int lane = 0; lane < lanes_; ++lane) {
      b_.CreateAlignedStore(b_.CreateExtractElement(v, i64(lane)), advance(l, p, s_.vec_dim, lane), align);
    }
  } else if (tail_count_ != nullptr) {
    b_.CreateMaskedStore(v, p, align, tail_mask_);
  } else {
    b_.CreateAlignedStore(v, p, align);
  }
}

/// Leaves a full value in scratch for later sweeps: position by position, a tile's vectors side by side.
void Emitter::keep(int inst) {
  const int slot_index = an_.slot(inst);
  for_copies(deps(inst), [&](Copy c) {
    Value* v = to_memory(inst_at(inst).dtype, get(inst, c));
    b_.CreateAlignedStore(v, kept_place(slot_index, c), llvm::Align(1));
  });
}

Value* Emitter::load_kept(int inst, Copy c) {
  const DType dtype = inst_at(inst).dtype;
  Type* t = wide(memory_type(dtype), varies(inst) ? lanes_ : 1);
  return from_memory(dtype, b_.CreateAlignedLoad(t, kept_place(an_.slot(inst), c), llvm::Align(1)));
}

Value* Emitter::kept_place(int slot_index, Copy c) {
  const int l = kept_linear_[at(slot_index)];
  Value* p = place(l, c);
  if (vec_inner_) return p;
  const int within_tile = (c.r * s_.unroll + c.u) * s_.lanes;
  return b_.CreateGEP(linears_[at(l)].element, p, i64(within_tile));
}

Value* Emitter::from_memory(DType dtype, Value* loaded) {
  if (dtype != DType::boolean) return loaded;
  return b_.CreateICmpNE(loaded, llvm::Constant::getNullValue(loaded->getType()));
}

Value* Emitter::to_memory(DType dtype, Value* value) {
  return dtype == DType::boolean ? b_.CreateZExt(value, like(b_.getInt8Ty(), value)) : value;
}

}  // namespace lathe::jit
