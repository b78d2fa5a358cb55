// What a kernel's instructions depend on, in which sweep they are evaluated, and which values are worth keeping.
#include <algorithm>

#include "jit/schedule.h"

namespace lathe::jit {
namespace {

using loops::Access;
using loops::Inst;
using loops::Op;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

DimSet nonzero(const loops::Dims& dims, int rank) {
  DimSet set = 0;
  for (int d = 0; d < rank; ++d) {
    if (dims[at(d)] != 0) set |= bit(d);
  }
  return set;
}

bool is_transcendental(Op op) {
  return (op >= Op::exp && op <= Op::sigmoid) || op == Op::pow || op == Op::fmod || op == Op::mod;
}

template <class F>
void for_operands(const loops::Kernel& kernel, const Inst& inst, F&& f) {
  for (int operand : {inst.a, inst.b, inst.c}) {
    if (operand >= 0) f(operand);
  }
  if (inst.op != Op::load) return;
  const Access& access = kernel.loads[at(inst.index)];
  for (const loops::Indirect& indirect : access.indirect) f(indirect.inst);
  if (access.fallback >= 0) f(access.fallback);
}

}  // namespace

Analysis::Analysis(const loops::Kernel& k) : kernel(k) {
  for (int d = k.outer; d < k.rank(); ++d) inner_dims |= bit(d);
  find_deps();
  find_live();
  find_fused();
  find_sweeps();
}

void Analysis::find_deps() {
  const int rank = kernel.rank();
  deps.resize(kernel.insts.size());
  stage.resize(kernel.insts.size());
  costly.resize(kernel.insts.size());
  for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    for_operands(kernel, inst, [&](int operand) {
      deps[i] |= deps[at(operand)];
      stage[i] = std::max(stage[i], stage[at(operand)]);
    });
    if (inst.op == Op::loop_index) deps[i] |= bit(inst.index);
    if (inst.op == Op::load) {
      const Access& access = kernel.loads[at(inst.index)];
      deps[i] |= nonzero(access.strides, rank);
      for (const loops::Guard& guard : access.guards) deps[i] |= nonzero(guard.coef, rank);
    }
    if (inst.op == Op::reduce) {
      deps[i] &= ~inner_dims;
      ++stage[i];
    }
    costly[i] = full(static_cast<int>(i)) && is_transcendental(inst.op);
    for_operands(kernel, inst, [&](int operand) {
      if (full(static_cast<int>(i)) && costly[at(operand)]) costly[i] = true;
    });
  }
}

void Analysis::find_live() {
  live.resize(kernel.insts.size());
  for (const loops::Store& store : kernel.stores) live[at(store.inst)] = true;
  for (std::size_t i = kernel.insts.size(); i-- > 0;) {
    if (live[i]) for_operands(kernel, kernel.insts[i], [&](int operand) { live[at(operand)] = true; });
  }
}

void Analysis::find_fused() {
  fused.resize(kernel.insts.size());
  for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
    const DType dtype = kernel.insts[i].dtype;
    fused[i] =
        kernel.insts[i].op == Op::mul && (dtype == DType::f32 || dtype == DType::f64) && full(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
    if (!live[i]) continue;
    const Inst& inst = kernel.insts[i];
    const bool sum = inst.op == Op::reduce && inst.reduction == loops::Reduction::sum;
    if (!sum) for_operands(kernel, inst, [&](int operand) { fused[at(operand)] = false; });
  }
  for (const loops::Store& store : kernel.stores) fused[at(store.inst)] = false;
}

bool Analysis::full_store(const loops::Store& store) const {
  return full(store.inst) || (nonzero(store.access.strides, kernel.rank()) & inner_dims) != 0;
}

int Analysis::slot(int inst) const {
  const auto found = std::find(kept.begin(), kept.end(), inst);
  return found == kept.end() ? -1 : static_cast<int>(found - kept.begin());
}

/// Marks a full instruction, and what it needs, for evaluation in a sweep. A costly value of an earlier sweep is kept
/// in scratch there instead of being computed again.
void Analysis::want(int sweep, int inst) {
  if (!full(inst) || sweep_insts[at(sweep)][at(inst)]) return;
  sweep_insts[at(sweep)][at(inst)] = true;
  if (stage[at(inst)] < sweep && !fused[at(inst)] && costly[at(inst)]) {
    if (slot(inst) < 0) kept.push_back(inst);
    return;
  }
  for_operands(kernel, kernel.insts[at(inst)], [&](int operand) { want(sweep, operand); });
}

void Analysis::find_sweeps() {
  for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
    if (live[i] && kernel.insts[i].op == Op::reduce) sweeps = std::max(sweeps, stage[i]);
  }
  for (const loops::Store& store : kernel.stores) {
    if (full_store(store)) sweeps = std::max(sweeps, stage[at(store.inst)] + 1);
  }
  sweep_insts.assign(at(sweeps), std::vector<bool>(kernel.insts.size()));
  for (const loops::Store& store : kernel.stores) {
    if (full_store(store)) want(sweeps - 1, store.inst);
  }
  for (int sweep = sweeps; sweep-- > 0;) {
    for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
      if (live[i] && kernel.insts[i].op == Op::reduce && stage[i] == sweep + 1) want(sweep, kernel.insts[i].a);
    }
    // What later sweeps keep is evaluated in its own.
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (stage[at(kept[i])] == sweep) want(sweep, kept[i]);
    }
  }
}

}  // namespace lathe::jit
