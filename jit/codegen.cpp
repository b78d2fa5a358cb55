// The loop nest of a kernel: which loops stand around what, and where each instruction is emitted.
#include "jit/codegen.h"

#include <llvm/IR/Intrinsics.h>

#include <cassert>

namespace lathe::jit {

using llvm::BasicBlock;
using llvm::Value;
using loops::Access;
using loops::Inst;
using loops::Op;

namespace {
std::size_t at(int i) { return static_cast<std::size_t>(i); }
}  // namespace

void emit_kernel(llvm::Module& module, const Analysis& analysis, const Schedule& schedule, const Machine& machine,
                 const std::string& symbol) {
  llvm::Function* narrow = nullptr;
  if (schedule.narrow) {
    narrow = Emitter(module, analysis, *schedule.narrow, machine).run(symbol + "_narrow", nullptr);
    narrow->setLinkage(llvm::Function::InternalLinkage);
  }
  Emitter(module, analysis, schedule, machine).run(symbol, narrow);
}

Emitter::Emitter(llvm::Module& module, const Analysis& analysis, const Schedule& schedule, const Machine& machine)
    : module_(module),
      an_(analysis),
      k_(analysis.kernel),
      s_(schedule),
      machine_(machine),
      b_(module.getContext()),
      vec_inner_(schedule.vec_inner(analysis.kernel)),
      lanes_(schedule.lanes) {
  if (!vec_inner_ && s_.k_unroll > 1) k_dim_ = s_.inner_order.back();
}

llvm::Function* Emitter::run(const std::string& symbol, llvm::Function* narrow) {
  auto* fn_type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy()}, false);
  fn_ = llvm::Function::Create(fn_type, llvm::Function::ExternalLinkage, symbol, module_);
  fn_->addFnAttr(llvm::Attribute::NoUnwind);
  fn_->addFnAttr("prefer-vector-width", std::to_string(machine_.vector_bits));
  fn_->addFnAttr("min-legal-vector-width", std::to_string(machine_.vector_bits));
  fn_->addFnAttr("no-builtins");
  prepare(narrow);
  hoist(an_.live);
  nest(0);
  b_.CreateRet(b_.getInt32(loops::kOk));
  return fn_;
}

void Emitter::prepare(llvm::Function* narrow) {
  auto& context = module_.getContext();
  entry_ = BasicBlock::Create(context, "entry", fn_);
  auto* start = BasicBlock::Create(context, "start", fn_);
  b_.SetInsertPoint(entry_);
  args_ = fn_->getArg(0);
  const auto field = [&](int i, llvm::Type* t) {
    return b_.CreateLoad(t, b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), args_, static_cast<std::uint64_t>(i)));
  };
  params_ = field(1, b_.getPtrTy());
  begin_ = field(2, b_.getInt64Ty());
  end_ = field(3, b_.getInt64Ty());
  scratch_ = field(4, b_.getPtrTy());
  error_ = field(5, b_.getPtrTy());
  b_.CreateBr(start);
  // What scaled() makes of the coefficients later on stands in the entry block too.
  b_.SetInsertPoint(entry_->getTerminator());
  make_linears();
  b_.SetInsertPoint(start);
  if (narrow != nullptr) {
    auto* other = BasicBlock::Create(context, "other", fn_);
    auto* wide = BasicBlock::Create(context, "wide", fn_);
    b_.CreateCondBr(b_.CreateICmpSLT(extent_of(s_.vec_dim), i64(s_.lanes)), other, wide);
    b_.SetInsertPoint(other);
    b_.CreateRet(b_.CreateCall(narrow, {args_}));
    b_.SetInsertPoint(wide);
  }

  Value* empty = b_.CreateICmpSGE(begin_, end_);
  for (int d = 1; d < k_.outer; ++d) empty = b_.CreateOr(empty, b_.CreateICmpSLE(extent_of(d), i64(0)));
  auto* some = BasicBlock::Create(context, "some", fn_);
  auto* none = BasicBlock::Create(context, "none", fn_);
  b_.CreateCondBr(empty, none, some);
  b_.SetInsertPoint(none);
  b_.CreateRet(b_.getInt32(loops::kOk));
  b_.SetInsertPoint(some);

  const std::size_t copies = at(s_.rows * s_.unroll * s_.k_unroll);
  st_.emitted.resize(k_.insts.size());
  st_.value.resize(k_.insts.size() * copies);
  st_.splat.resize(k_.insts.size() * copies);
  splat_wanted_.resize(k_.insts.size());
  for (std::size_t i = 0; i < k_.insts.size(); ++i) {
    if (!an_.live[i] || !varies(static_cast<int>(i))) continue;
    for (int o : {k_.insts[i].a, k_.insts[i].b, k_.insts[i].c}) {
      if (o >= 0 && !varies(o)) splat_wanted_[at(o)] = true;
    }
  }
}

Emitter::Linear Emitter::linear_of(const Access& access, int first_param) {
  Linear linear;
  const DType dtype = k_.buffers[at(access.buffer)].dtype;
  linear.element = memory_type(dtype);
  Value* buffers = b_.CreateLoad(b_.getPtrTy(), args_);
  Value* buffer = b_.CreateLoad(
      b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), buffers, static_cast<std::uint64_t>(access.buffer)));
  linear.base = b_.CreateGEP(linear.element, buffer, param(first_param));
  for (int d = 0; d < k_.rank(); ++d) {
    const std::int64_t stride = access.strides[at(d)];
    linear.cls[at(d)] = stride == 0 ? 0 : stride == 1 ? 1 : 2;
    if (stride != 0) linear.coef[at(d)] = stride == 1 ? i64(1) : param(first_param + 1 + d);
  }
  return linear;
}

void Emitter::make_linears() {
  const int rank = k_.rank();
  linears_.resize(k_.loads.size());
  std::vector<bool> live(k_.loads.size());
  bool positions = false;
  for (std::size_t i = 0; i < k_.insts.size(); ++i) {
    if (!an_.live[i]) continue;
    if (k_.insts[i].op == Op::load) live[at(k_.insts[i].index)] = true;
    positions = positions || (k_.insts[i].op == Op::reduce && k_.insts[i].reduction >= loops::Reduction::argmin_first);
  }
  int at_param = rank;
  int indirects = 0;
  for (std::size_t l = 0; l < k_.loads.size(); ++l) {
    const Access& access = k_.loads[l];
    load_param_.push_back(at_param);
    guard_linear_.push_back(static_cast<int>(linears_.size()));
    indirect_base_.push_back(indirects);
    indirects += static_cast<int>(access.indirect.size());
    if (live[l]) linears_[l] = linear_of(access, at_param);
    at_param += 1 + rank;
    for (const loops::Guard& guard : access.guards) {
      Linear sum;
      if (live[l]) {
        sum.base = param(at_param);
        for (int d = 0; d < rank; ++d) {
          const std::int64_t coef = guard.coef[at(d)];
          sum.cls[at(d)] = coef == 0 ? 0 : coef == 1 ? 1 : 2;
          if (coef != 0) sum.coef[at(d)] = coef == 1 ? i64(1) : param(at_param + 2 + d);
        }
      }
      linears_.push_back(sum);
      at_param += 2 + rank;
    }
    at_param += 2 * static_cast<int>(access.indirect.size());
  }
  for (const loops::Store& store : k_.stores) {
    store_param_.push_back(at_param);
    store_linear_.push_back(static_cast<int>(linears_.size()));
    linears_.push_back(linear_of(store.access, at_param));
    at_param += 1 + rank;
  }
  number_param_ = at_param;

  // Positions inside scratch follow the order of the loops, positions that are counted the order of the dims.
  Value* positions_total = i64(1);
  std::array<Value*, loops::kMaxDims> loop_stride{};
  for (auto d = s_.inner_order.rbegin(); d != s_.inner_order.rend(); ++d) {
    loop_stride[at(*d)] = positions_total;
    positions_total = b_.CreateMul(positions_total, extent_of(*d));
  }
  const auto slots = scratch_slots(an_, s_);
  Value* slot_base = scratch_;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Linear kept;
    const DType dtype = inst_at(an_.kept[i]).dtype;
    kept.element = memory_type(dtype);
    kept.base = slot_base;
    const std::int64_t per_position = slots[i].position_bytes / element_bytes(dtype);
    for (int d : s_.inner_order) {
      const bool contiguous = per_position == 1 && d == s_.inner_order.back();
      kept.cls[at(d)] = contiguous ? 1 : 2;
      kept.coef[at(d)] = b_.CreateMul(loop_stride[at(d)], i64(per_position));
    }
    kept_linear_.push_back(static_cast<int>(linears_.size()));
    linears_.push_back(kept);
    Value* bytes = b_.CreateAdd(b_.CreateMul(positions_total, i64(slots[i].position_bytes)), i64(slots[i].slack_bytes));
    bytes = b_.CreateAnd(b_.CreateAdd(bytes, i64(63)), i64(-64));
    slot_base = b_.CreateGEP(b_.getInt8Ty(), slot_base, bytes);
  }
  if (positions) {
    Linear position;
    position.base = i64(0);
    Value* stride = i64(1);
    for (int d = rank - 1; d >= k_.outer; --d) {
      position.cls[at(d)] = d == rank - 1 ? 1 : 2;
      position.coef[at(d)] = stride;
      stride = b_.CreateMul(stride, extent_of(d));
    }
    position_linear_ = static_cast<int>(linears_.size());
    linears_.push_back(position);
  }
  scaled_.resize(linears_.size() * at(std::max(1, rank)));
  st_.linear.resize(linears_.size() * at(s_.rows));
  for (std::size_t l = 0; l < linears_.size(); ++l) {
    for (int r = 0; r < s_.rows; ++r) st_.linear[l * at(s_.rows) + at(r)] = linears_[l].base;
  }
}

void Emitter::nest(std::size_t level) {
  if (level == s_.outer_order.size()) return row_level();
  const int dim = s_.outer_order[level];
  loop(dim, dim == 0 ? begin_ : i64(0), dim == 0 ? end_ : extent_of(dim), 1, {}, [&](Value*, const Values&) {
    hoist(an_.live);
    nest(level + 1);
    return Values{};
  });
}

void Emitter::row_level() {
  const int dim = s_.row_dim;
  if (dim < 0) return vec_level();
  Value* lo = dim == 0 ? begin_ : i64(0);
  Value* hi = dim == 0 ? end_ : extent_of(dim);
  Value* whole = b_.CreateAdd(lo, b_.CreateAnd(b_.CreateSub(hi, lo), i64(-s_.rows)));
  const Body body = [&](Value*, const Values&) {
    hoist(an_.live);
    vec_level();
    return Values{};
  };
  rows_ = s_.rows;
  loop(dim, lo, whole, s_.rows, {}, body);
  rows_ = 1;
  loop(dim, whole, hi, 1, {}, body);
}

void Emitter::vec_level() {
  const int dim = s_.vec_dim;
  if (dim < 0 || vec_inner_) return tile();
  Value* lo = dim == 0 ? begin_ : i64(0);
  Value* hi = dim == 0 ? end_ : extent_of(dim);
  Value* extent = b_.CreateSub(hi, lo);
  const auto whole = [&](int step) { return b_.CreateAdd(lo, b_.CreateAnd(extent, i64(-step))); };
  const Body body = [&](Value* index, const Values&) {
    begin_tail(hi, index);
    tile();
    tail_count_ = nullptr;
    return Values{};
  };
  vecs_ = s_.unroll;
  Value* done = whole(s_.lanes * s_.unroll);
  loop(dim, lo, done, s_.lanes * s_.unroll, {}, body);
  vecs_ = 1;
  if (s_.whole_vectors) {
    Value* vectors = whole(s_.lanes);
    loop(dim, done, vectors, s_.lanes, {}, body);
    done = vectors;
  }
  if (s_.masked_tail) {
    mask_tail_ = true;
    loop(dim, done, hi, s_.lanes, {}, body);
    mask_tail_ = false;
    return;
  }
  if (s_.lanes == 1) return;
  lanes_ = 1;
  loop(dim, done, hi, 1, {}, body);
  lanes_ = s_.lanes;
}

/// Inside a masked tail, computes which lanes hold elements; elsewhere all do.
void Emitter::begin_tail(Value* hi, Value* index) {
  tail_count_ = nullptr;
  if (!mask_tail_) return;
  Value* rest = b_.CreateSub(hi, index);
  tail_count_ = b_.CreateSelect(b_.CreateICmpSLT(rest, i64(lanes_)), rest, i64(lanes_));
  if (lanes_ == 1) return;
  std::vector<std::uint32_t> lanes;
  for (int l = 0; l < lanes_; ++l) lanes.push_back(static_cast<std::uint32_t>(l));
  Value* count = splat(b_.CreateTrunc(tail_count_, b_.getInt32Ty()), lanes_);
  tail_mask_ = b_.CreateICmpULT(llvm::ConstantDataVector::get(b_.getContext(), lanes), count);
}

void Emitter::tile() {
  hoist(an_.live);
  for (int s = 0; s < an_.sweeps; ++s) {
    sweep(s);
    hoist(an_.live);
  }
  for (std::size_t i = 0; i < k_.stores.size(); ++i) {
    const loops::Store& s = k_.stores[i];
    if (an_.full_store(s)) continue;
    DimSet set = deps(s.inst);
    for (int d = 0; d < k_.outer; ++d) {
      if (s.access.strides[at(d)] != 0) set |= bit(d);
    }
    for_copies(set, [&](Copy c) { store(s, store_linear_[i], c); });
  }
}

void Emitter::sweep(int s) {
  sweep_ = s;
  list_accumulators(s);
  finish_sweep(inner_level(0, initial_values()));
  sweep_ = -1;
}

Emitter::Values Emitter::inner_level(std::size_t level, const Values& carried) {
  if (level == s_.inner_order.size()) return inner_body(carried);
  const int dim = s_.inner_order[level];
  if (dim == s_.vec_dim) return inner_vectors(dim, carried);
  if (level + 1 == s_.inner_order.size()) return inner_steps(dim, carried);
  return loop(dim, i64(0), extent_of(dim), 1, carried, [&](Value*, const Values& values) {
    hoist(an_.sweep_insts[at(sweep_)]);
    return inner_level(level + 1, values);
  });
}

Emitter::Values Emitter::inner_vectors(int dim, const Values& carried) {
  Value* extent = extent_of(dim);
  const auto whole = [&](int step) { return b_.CreateAnd(extent, i64(-step)); };
  const Body body = [&](Value* index, const Values& values) {
    begin_tail(extent, index);
    Values result = inner_body(values);
    tail_count_ = nullptr;
    return result;
  };
  vecs_ = s_.unroll;
  Value* done = whole(s_.lanes * s_.unroll);
  Values values = loop(dim, i64(0), done, s_.lanes * s_.unroll, carried, body);
  vecs_ = 1;
  if (s_.whole_vectors) {
    Value* vectors = whole(s_.lanes);
    values = loop(dim, done, vectors, s_.lanes, values, body);
    done = vectors;
  }
  if (s_.masked_tail) {
    mask_tail_ = true;
    values = loop(dim, done, extent, s_.lanes, values, body);
    mask_tail_ = false;
    return values;
  }
  if (s_.lanes == 1) return values;
  lanes_ = 1;
  values = loop(dim, done, extent, 1, values, body);
  lanes_ = s_.lanes;
  return values;
}

Emitter::Values Emitter::inner_steps(int dim, const Values& carried) {
  Value* extent = extent_of(dim);
  const Body body = [&](Value*, const Values& values) { return inner_body(values); };
  if (s_.k_unroll == 1) return loop(dim, i64(0), extent, 1, carried, body);
  Value* whole = b_.CreateAnd(extent, i64(-s_.k_unroll));
  steps_ = s_.k_unroll;
  const Values values = loop(dim, i64(0), whole, s_.k_unroll, carried, body);
  steps_ = 1;
  return loop(dim, whole, extent, 1, values, body);
}

Emitter::Values Emitter::inner_body(const Values& carried) {
  hoist(an_.sweep_insts[at(sweep_)]);
  for (const int inst : an_.kept) {
    if (an_.stage[at(inst)] == sweep_) keep(inst);
  }
  Values result = accumulate(carried);
  if (sweep_ + 1 < an_.sweeps) return result;
  for (std::size_t i = 0; i < k_.stores.size(); ++i) {
    if (!an_.full_store(k_.stores[i])) continue;
    DimSet set = deps(k_.stores[i].inst);
    for (int d = 0; d < k_.rank(); ++d) {
      if (k_.stores[i].access.strides[at(d)] != 0) set |= bit(d);
    }
    for_copies(set, [&](Copy c) { store(k_.stores[i], store_linear_[i], c); });
  }
  return result;
}

Emitter::Values Emitter::loop(int dim, Value* lo, Value* hi, int step, const Values& carried, const Body& body) {
  auto& context = module_.getContext();
  const State saved = st_;
  struct Induction {
    std::size_t slot;
    int linear;
    llvm::PHINode* phi;
    Value* start;
  };
  std::vector<Induction> inductions;
  for (int l = 0; l < static_cast<int>(linears_.size()); ++l) {
    const Linear& linear = linears_[at(l)];
    if (linear.base == nullptr || linear.cls[at(dim)] != 2) continue;
    const bool by_row = linear_depends(l, s_.row_dim) && (st_.open & bit(s_.row_dim)) != 0;
    for (int r = 0; r < (by_row ? rows_ : 1); ++r) {
      const std::size_t slot = at(l * s_.rows + r);
      Value* start = st_.linear[slot];
      Value* offset = b_.CreateMul(lo, linear.coef[at(dim)]);
      start = linear.element != nullptr ? b_.CreateGEP(linear.element, start, offset) : b_.CreateAdd(start, offset);
      inductions.push_back({slot, l, nullptr, start});
    }
  }
  BasicBlock* before = b_.GetInsertBlock();
  auto* body_block = BasicBlock::Create(context, "loop", fn_);
  auto* exit_block = BasicBlock::Create(context, "done", fn_);
  b_.CreateCondBr(b_.CreateICmpSLT(lo, hi), body_block, exit_block);

  b_.SetInsertPoint(body_block);
  auto* index = b_.CreatePHI(b_.getInt64Ty(), 2);
  index->addIncoming(lo, before);
  std::vector<llvm::PHINode*> phis;
  Values inside;
  for (Value* v : carried) {
    phis.push_back(b_.CreatePHI(v->getType(), 2));
    phis.back()->addIncoming(v, before);
    inside.push_back(phis.back());
  }
  for (Induction& i : inductions) {
    i.phi = b_.CreatePHI(i.start->getType(), 2);
    i.phi->addIncoming(i.start, before);
    st_.linear[i.slot] = i.phi;
    if (linear_depends(i.linear, s_.row_dim) && (st_.open & bit(s_.row_dim)) != 0) continue;
    for (int r = 1; r < s_.rows; ++r) st_.linear[i.slot + at(r)] = i.phi;
  }
  open_dim(dim, index);
  const Values results = body(index, inside);

  BasicBlock* latch = b_.GetInsertBlock();
  Value* next = b_.CreateNSWAdd(index, i64(step));
  index->addIncoming(next, latch);
  for (const Induction& i : inductions) i.phi->addIncoming(advance(i.linear, i.phi, dim, step), latch);
  for (std::size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(results[i], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, hi), body_block, exit_block);

  b_.SetInsertPoint(exit_block);
  Values after;
  for (std::size_t i = 0; i < phis.size(); ++i) {
    auto* phi = b_.CreatePHI(phis[i]->getType(), 2);
    phi->addIncoming(carried[i], before);
    phi->addIncoming(results[i], latch);
    after.push_back(phi);
  }
  st_ = saved;
  return after;
}

void Emitter::open_dim(int dim, Value* index) {
  st_.open |= bit(dim);
  st_.index[at(dim)] = index;
  for (int l = 0; l < static_cast<int>(linears_.size()); ++l) {
    const Linear& linear = linears_[at(l)];
    if (linear.base == nullptr || linear.cls[at(dim)] == 0) continue;
    for (int r = 0; r < s_.rows; ++r) {
      Value*& v = st_.linear[at(l * s_.rows + r)];
      if (linear.cls[at(dim)] == 1) {
        // Rows that are equal stay one value.
        v = linear.element != nullptr ? b_.CreateGEP(linear.element, v, index) : b_.CreateAdd(v, index);
      }
      if (dim == s_.row_dim && r < rows_) v = advance(l, v, dim, r);
    }
  }
}

void Emitter::hoist(const std::vector<bool>& wanted) {
  for (int i = 0; i < static_cast<int>(k_.insts.size()); ++i) {
    if (!wanted[at(i)] || st_.emitted[at(i)] || an_.fused[at(i)] || (deps(i) & ~st_.open) != 0) continue;
    if (sweep_ < 0 && an_.full(i)) continue;
    const Inst& inst = inst_at(i);
    if (inst.op == Op::reduce) continue;
    const bool from_scratch = sweep_ > an_.stage[at(i)] && an_.slot(i) >= 0;
    bool ready = true;
    if (!from_scratch) {
      for (int o : {inst.a, inst.b, inst.c}) ready = ready && (o < 0 || st_.emitted[at(o)]);
      if (inst.op == Op::load) {
        const Access& access = k_.loads[at(inst.index)];
        for (const loops::Indirect& indirect : access.indirect) ready = ready && st_.emitted[at(indirect.inst)];
        ready = ready && (access.fallback < 0 || st_.emitted[at(access.fallback)]);
      }
    }
    if (ready) emit(i);
  }
}

void Emitter::emit(int i) {
  st_.emitted[at(i)] = true;
  const Inst& inst = inst_at(i);
  const bool from_scratch = sweep_ > an_.stage[at(i)] && an_.slot(i) >= 0;
  if (from_scratch) {
    return for_copies(deps(i), [&](Copy c) { st_.value[slot(i, c)] = load_kept(i, c); });
  }
  if (inst.op == Op::load && s_.transpose && rows_ == s_.rows && lanes_ == s_.lanes && tail_count_ == nullptr) {
    const Access& access = k_.loads[at(inst.index)];
    const Linear& linear = linears_[at(inst.index)];
    if (linear.cls[at(s_.row_dim)] == 1 && linear.cls[at(s_.vec_dim)] == 2 && access.guards.empty() &&
        access.indirect.empty()) {
      return load_transposed(i);
    }
  }
  for_copies(deps(i), [&](Copy c) {
    st_.value[slot(i, c)] = emit_copy(i, c);
    if (splat_wanted_[at(i)] && lanes_ > 1 && !llvm::isa<llvm::Constant>(st_.value[slot(i, c)])) get_wide(i, c);
  });
}

Value* Emitter::emit_copy(int i, Copy c) {
  const Inst& inst = inst_at(i);
  switch (inst.op) {
    case Op::constant:
      return constant(inst.dtype, inst.imm, inst.imm_int);
    case Op::number: {
      Value* bits = param(number_param_ + inst.index);
      if (inst.dtype.is_float()) return convert(inst.dtype, DType::f64, b_.CreateBitCast(bits, b_.getDoubleTy()));
      return convert(inst.dtype, DType::i64, bits);
    }
    case Op::loop_index: {
      Value* index = st_.index[at(inst.index)];
      if (inst.index == s_.row_dim) index = b_.CreateAdd(index, i64(c.r));
      if (inst.index == k_dim_) index = b_.CreateAdd(index, i64(c.k));
      if (inst.index != s_.vec_dim || lanes_ == 1) return index;
      std::vector<std::uint64_t> steps;
      for (int l = 0; l < lanes_; ++l) steps.push_back(static_cast<std::uint64_t>(c.u * lanes_ + l));
      return b_.CreateAdd(splat(index, lanes_), llvm::ConstantDataVector::get(b_.getContext(), steps));
    }
    case Op::load:
      return load(i, c);
    default:
      break;
  }
  const bool vector = varies(i) && lanes_ > 1;
  const auto operand = [&](int o) { return o < 0 ? nullptr : vector ? get_wide(o, c) : get(o, c); };
  return compute(inst, operand(inst.a), operand(inst.b), operand(inst.c));
}

Copy Emitter::canonical(DimSet set, Copy c) const {
  return {has(set, s_.row_dim) ? c.r : 0, has(set, s_.vec_dim) ? c.u : 0, has(set, k_dim_) ? c.k : 0};
}

std::size_t Emitter::slot(int inst, Copy c) const {
  c = canonical(deps(inst), c);
  return at(((inst * s_.rows + c.r) * s_.unroll + c.u) * s_.k_unroll + c.k);
}

Value* Emitter::get(int inst, Copy c) {
  Value* v = st_.value[slot(inst, c)];
  assert(v != nullptr);
  return v;
}

Value* Emitter::get_wide(int inst, Copy c) {
  Value* v = get(inst, c);
  if (lanes_ == 1 || v->getType()->isVectorTy()) return v;
  Value*& wide = st_.splat[slot(inst, c)];
  if (wide == nullptr) wide = splat(v, lanes_);
  return wide;
}

}  // namespace lathe::jit
