// Chooses the vector dim, tile and unrolling of a kernel by estimating what its memory accesses cost along each dim.
#include "jit/schedule.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace lathe::jit {
namespace {

using loops::Access;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Reduction;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// What a schedule takes every extent for. It never looks at the real ones, which reach the code as arguments: so one
/// compilation serves every shape of a structure, and the order of a sum does not depend on the shapes that came
/// before.
constexpr std::int64_t kTypicalExtent = 64;

class Chooser {
 public:
  /// `narrow`: a dim that holds less than a vector; -1: none is known.
  Chooser(const Analysis& analysis, const Machine& machine, int narrow = -1)
      : an_(analysis), k_(analysis.kernel), machine_(machine), narrow_(narrow) {}

  Schedule run() {
    s_.lanes = lanes();
    for (int d = 0; d < k_.outer; ++d) s_.outer_order.push_back(d);
    for (int d = k_.outer; d < k_.rank(); ++d) s_.inner_order.push_back(d);
    choose_vec_dim();
    if (s_.vec_dim < 0) {
      s_.lanes = 1;
      return s_;
    }
    auto& order = s_.vec_inner(k_) ? s_.inner_order : s_.outer_order;
    order.erase(std::find(order.begin(), order.end(), s_.vec_dim));
    if (s_.vec_inner(k_)) {
      s_.inner_order.push_back(s_.vec_dim);
      s_.unroll = std::min<std::int64_t>(body_cost() > 40 ? 2 : 4, vectors());
    } else if (an_.sweeps > 0) {
      choose_reduction_tile();
    } else if (!s_.transpose) {
      s_.unroll = std::min<std::int64_t>(body_cost() > 60 ? 1 : body_cost() > 12 ? 2 : 4, vectors());
    }
    if (s_.row_dim >= 0) s_.outer_order.erase(std::find(s_.outer_order.begin(), s_.outer_order.end(), s_.row_dim));
    s_.masked_tail = masked_tail();
    s_.whole_vectors = s_.unroll > 1 && !(s_.masked_tail && machine_.narrow_masks);
    if (worth_narrow_code()) {
      auto narrow = std::make_shared<Schedule>(Chooser(an_, machine_, s_.vec_dim).run());
      if (narrow->vec_dim >= 0) s_.narrow = std::move(narrow);
    }
    return s_;
  }

 private:
  /// Whether another vector dim may serve where the chosen one is short. The order of a sum may depend on the extents
  /// that it runs over, not on others.
  bool worth_narrow_code() const {
    if (narrow_ >= 0 || k_.rank() < 2 || s_.lanes == 1 || body_cost() > 12) return false;
    return an_.kept.empty() && (an_.sweeps == 0 || k_.inner == 0 || s_.vec_inner(k_));
  }

  std::int64_t vectors() const { return std::max<std::int64_t>(1, kTypicalExtent / s_.lanes); }

  template <class F>
  void for_live_loads(F&& f) const {
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      if (an_.live[i] && k_.insts[i].op == Op::load) f(static_cast<int>(i), k_.loads[at(k_.insts[i].index)]);
    }
  }

  /// Vectors hold as many of the elements computed on most widely as fit; f64 takes several vectors in mixed kernels.
  int lanes() const {
    int widest = 8;
    bool has32 = false;
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      if (!an_.live[i]) continue;
      const int bits = std::min(64, std::max(8, k_.insts[i].dtype.bits()));
      has32 = has32 || bits == 32;
      widest = std::max(widest, bits);
    }
    return machine_.vector_bits / (has32 ? 32 : widest);
  }

  double access_cost(const Access& access, int d) const {
    const std::int64_t stride = access.strides[at(d)];
    double cost = stride == 0 ? 0.3 : stride == 1 ? 1 : 1.2 * s_.lanes;
    for (const loops::Guard& guard : access.guards) cost += guard.coef[at(d)] != 0 ? 0.6 : 0.1;
    for (const loops::Indirect& indirect : access.indirect) {
      if ((an_.deps[at(indirect.inst)] & bit(d)) != 0) cost = std::max(cost, 1.5 * s_.lanes);
    }
    return cost;
  }

  /// Estimated cost of an element when dim d becomes vectors; an_.sweeps count the loads of every sweep once.
  double cost_along(int d, int transposed_row) const {
    double cost = 0;
    for_live_loads([&](int, const Access& access) {
      const bool by_rows = transposed_row >= 0 && access.strides[at(d)] > 1 &&
                           access.strides[at(transposed_row)] == 1 && access.guards.empty() && access.indirect.empty();
      cost += by_rows ? 2.5 : access_cost(access, d);
    });
    for (const loops::Store& store : k_.stores) {
      if (d >= k_.outer && !an_.full_store(store)) continue;
      cost += store.access.strides[at(d)] == 1 ? 1 : 1.2 * s_.lanes;
    }
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      if (an_.live[i] && k_.insts[i].op > Op::reduce) cost += 0.3;
      // Each row ends by folding its vectors, log2(lanes) steps.
      if (an_.live[i] && k_.insts[i].op == Op::reduce && d >= k_.outer) cost += 4.0 * s_.lanes / inner_elements();
    }
    return cost;
  }
  double inner_elements() const {
    double n = 1;
    for (int d = k_.outer; d < k_.rank(); ++d) n *= static_cast<double>(kTypicalExtent);
    return n;
  }

  void choose_vec_dim() {
    double best = 0;
    for (int d = k_.rank() - 1; d >= 0; --d) {
      if (d == narrow_) continue;
      const double plain = cost_along(d, -1);
      if (s_.vec_dim < 0 || plain < best * 0.98) {
        s_.vec_dim = d;
        s_.row_dim = -1;
        best = plain;
      }
    }
    if (k_.inner > 0 || s_.lanes < 4 || s_.lanes > 16) return;
    for (int d = k_.outer - 1; d >= 0; --d) {
      for (int row = 0; row < k_.outer; ++row) {
        if (row == d || row == narrow_ || d == narrow_) continue;
        const double cost = cost_along(d, row);
        if (cost < best * 0.98 && cost < cost_along(d, -1)) {
          s_.vec_dim = d;
          s_.row_dim = row;
          s_.rows = s_.lanes;
          s_.transpose = true;
          best = cost;
        }
      }
    }
  }

  /// Rough count of vector instructions for one vector of elements.
  int body_cost() const {
    int cost = 0;
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      if (!an_.live[i] || k_.insts[i].op <= Op::loop_index) continue;
      const Inst& inst = k_.insts[i];
      const int registers = std::max(1, inst.dtype.bits() * s_.lanes / machine_.vector_bits);
      const bool heavy = (inst.op >= Op::exp && inst.op <= Op::sigmoid) || inst.op == Op::pow;
      cost += registers * (heavy ? 20 : inst.op == Op::div || inst.op == Op::sqrt ? 4 : 1);
    }
    return cost;
  }

  /// Accumulators in registers for kernels that reduce along other dims than the vector one: as many as hide the
  /// latency of the adds, in several vectors, rows or steps of the reduced loop.
  void choose_reduction_tile() {
    int accumulators = 0;
    bool sums = true;
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      if (!an_.live[i] || k_.insts[i].op != Op::reduce) continue;
      const bool is_arg = k_.insts[i].reduction >= Reduction::argmin_first;
      sums = sums && k_.insts[i].reduction == Reduction::sum;
      const int bits = k_.insts[at(k_.insts[i].a)].dtype.bits() * s_.lanes;
      accumulators += std::max(1, bits / machine_.vector_bits) * (is_arg ? 3 : 1);
    }
    accumulators = std::max(1, accumulators);
    const bool light = body_cost() <= 8;
    const int budget = machine_.vector_registers / 2 / accumulators;
    s_.unroll = static_cast<int>(std::min<std::int64_t>(std::max(1, std::min(budget, light ? 8 : 2)), vectors()));
    s_.unroll = static_cast<int>(std::bit_floor(static_cast<unsigned>(s_.unroll)));
    if (light) choose_rows(accumulators);
    if (s_.row_dim < 0 && s_.unroll < budget && sums && inner_elements() >= 16) {
      s_.k_unroll = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(4, budget / s_.unroll))));
      s_.k_split = true;
    }
    if (s_.inner_order.empty()) s_.k_unroll = 1;
    if (s_.k_unroll == 1) s_.k_split = false;
  }

  /// Rows of another outer dim share the loads that do not vary along it (matrix products).
  void choose_rows(int accumulators) {
    int best_shared = 0;
    for (int d = 0; d < k_.outer; ++d) {
      if (d == s_.vec_dim) continue;
      int shared = 0;
      bool broadcast = false;
      for_live_loads([&](int inst, const Access&) {
        const DimSet deps = an_.deps[at(inst)];
        if ((deps & an_.inner_dims) == 0) return;
        if ((deps & bit(s_.vec_dim)) != 0 && (deps & bit(d)) == 0) ++shared;
        if ((deps & bit(s_.vec_dim)) == 0 && (deps & bit(d)) != 0) broadcast = true;
      });
      if (broadcast && shared > best_shared) {
        best_shared = shared;
        s_.row_dim = d;
      }
    }
    if (s_.row_dim < 0) return;
    s_.rows = 4;
    const int tile = machine_.vector_registers >= 32 ? 4 : 2;
    s_.unroll = std::min(s_.unroll, std::max(1, tile / accumulators));
  }

  bool masked_tail() const {
    for (const loops::Store& store : k_.stores) {
      const std::int64_t stride = store.access.strides[at(s_.vec_dim)];
      if (s_.vec_inner(k_) && !an_.full_store(store)) continue;
      const DType dtype = k_.buffers[at(store.access.buffer)].dtype;
      if (stride != 1 || (element_bytes(dtype) < 4 && !machine_.narrow_masks)) return false;
    }
    return true;
  }

  const Analysis& an_;
  const Kernel& k_;
  const Machine& machine_;
  const int narrow_;
  Schedule s_;
};

}  // namespace

std::string Schedule::key() const {
  std::string key;
  for (int v : {lanes, vec_dim, unroll, row_dim, rows, k_unroll}) key += static_cast<char>(v);
  key += static_cast<char>((k_split ? 1 : 0) | (transpose ? 2 : 0) | (masked_tail ? 4 : 0) | (whole_vectors ? 8 : 0) |
                           (narrow ? 16 : 0));
  return narrow ? key + narrow->key() : key;
}

Schedule choose_schedule(const Analysis& analysis, const Machine& machine) { return Chooser(analysis, machine).run(); }

std::vector<CompiledKernel::ScratchSlot> scratch_slots(const Analysis& analysis, const Schedule& schedule) {
  std::vector<CompiledKernel::ScratchSlot> slots;
  for (const int inst : analysis.kept) {
    const std::int64_t element = element_bytes(analysis.kernel.insts[at(inst)].dtype);
    const std::int64_t vector = element * schedule.lanes;
    if (schedule.vec_inner(analysis.kernel)) {
      slots.push_back({element, vector});
    } else {
      const std::int64_t tile = vector * schedule.unroll * schedule.rows;
      slots.push_back({tile, tile * schedule.k_unroll});
    }
  }
  return slots;
}

std::int64_t grain(const Kernel& kernel, const Schedule& schedule) {
  if (kernel.outer == 0) return 1;
  if (schedule.vec_dim == 0) return static_cast<std::int64_t>(schedule.lanes) * schedule.unroll;
  return schedule.row_dim == 0 ? schedule.rows : 1;
}

std::int64_t CompiledKernel::scratch_bytes(const Kernel& kernel) const {
  std::int64_t positions = 1;
  for (int d = kernel.outer; d < kernel.rank(); ++d) positions *= kernel.extents[at(d)];
  std::int64_t bytes = 0;
  for (const ScratchSlot& slot : scratch) {
    bytes += (positions * slot.position_bytes + slot.slack_bytes + 63) / 64 * 64;
  }
  return bytes;
}

}  // namespace lathe::jit
