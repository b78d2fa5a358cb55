// The loop description by its definition: one element at a time, each level of reductions in a sweep of its own.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/ir/numeric.h"
#include "ops/loops/kernel.h"
#include "ops/loops/scalar.h"

namespace lathe::loops {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The sweep before which each value is known: one after the sweep that completes its last reduction.
std::vector<int> levels_of(const Kernel& kernel) {
  std::vector<int> level(kernel.insts.size());
  for (std::size_t i = 0; i < level.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    const auto use = [&](int operand) {
      if (operand >= 0) level[i] = std::max(level[i], level[at(operand)]);
    };
    use(inst.a);
    use(inst.b);
    use(inst.c);
    if (inst.op == Op::load) {
      for (const Indirect& indirect : kernel.loads[at(inst.index)].indirect) use(indirect.inst);
    }
    if (inst.op == Op::reduce) ++level[i];
  }
  return level;
}

/// Elements wider than the 64 bits of a value are carried as their address: they are moved, chosen and compared, never
/// computed with.
bool by_address(DType dtype) { return dtype == DType::string || dtype == DType::c128; }
const void* carried(std::uint64_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): it was one
}
const std::string& text(std::uint64_t address) { return *static_cast<const std::string*>(carried(address)); }

/// A constant; of a type that is carried by address it is zero or the empty string.
std::uint64_t constant_bits(DType dtype, double value, std::int64_t integer) {
  static const std::string kEmpty;
  static constexpr double kZero[2] = {0, 0};
  if (dtype == DType::string) return reinterpret_cast<std::uintptr_t>(&kEmpty);
  if (by_address(dtype)) return reinterpret_cast<std::uintptr_t>(&kZero);
  return dtype.is_float() ? numeric::float_bits(dtype, value)
                          : numeric::truncate(dtype, static_cast<std::uint64_t>(integer));
}

class Evaluation {
 public:
  Evaluation(const Kernel& kernel, const KernelArgs& args)
      : k_(kernel),
        args_(args),
        full_(full_instructions(kernel)),
        level_(levels_of(kernel)),
        values_(kernel.insts.size()),
        seen_(kernel.insts.size()),
        best_(kernel.insts.size()) {
    for (const int level : level_) last_level_ = std::max(last_level_, level);
    for (const Store& store : kernel.stores) has_full_stores_ = has_full_stores_ || is_full(store);
  }

  std::int32_t run() {
    const std::int64_t first = k_.outer > 0 ? args_.begin : 0;
    const std::int64_t last = k_.outer > 0 ? args_.end : 1;
    if (first >= last || is_empty(1, k_.outer)) return kOk;
    if (k_.outer > 0) index_[0] = first;
    do {
      if (!row()) return kIndexError;
    } while (advance(1, k_.outer) || (k_.outer > 0 && ++index_[0] < last));
    return kOk;
  }

 private:
  /// One outer index.
  bool row() {
    for (int level = 0; level <= last_level_; ++level) {
      for (std::size_t i = 0; i < k_.insts.size(); ++i) {
        const Inst& inst = k_.insts[i];
        if (inst.op == Op::reduce && level_[i] == level + 1) start(inst, i);
        if (inst.op != Op::reduce && !full_[i] && level_[i] == level && !compute(i)) return false;
      }
      if (level == last_level_) store_all(false);
      if ((level < last_level_ || has_full_stores_) && !sweep(level)) return false;
    }
    return true;
  }

  /// All inner indices: accumulates the reductions of this level, or stores the full outputs at the last.
  bool sweep(int level) {
    if (is_empty(k_.outer, k_.rank())) return true;
    do {
      for (std::size_t i = 0; i < k_.insts.size(); ++i) {
        const Inst& inst = k_.insts[i];
        if (inst.op == Op::reduce && level_[i] == level + 1) accumulate_into(inst, i);
        if (full_[i] && level_[i] <= level && !compute(i)) return false;
      }
      if (level == last_level_) store_all(true);
    } while (advance(k_.outer, k_.rank()));
    return true;
  }

  void start(const Inst& inst, std::size_t i) {
    seen_[i] = 0;
    values_[i] = is_arg(inst) ? 0 : initial(inst.reduction, inst.dtype);
  }

  void accumulate_into(const Inst& inst, std::size_t i) {
    const std::uint64_t value = values_[at(inst.a)];
    if (!is_arg(inst)) {
      values_[i] = accumulate(inst.reduction, inst.dtype, values_[i], value);
      return;
    }
    const DType dtype = k_.insts[at(inst.a)].dtype;
    if (seen_[i] == 0 || replaces(inst.reduction, dtype, value, best_[i])) {
      best_[i] = value;
      values_[i] = seen_[i];
    }
    ++seen_[i];
  }

  bool compute(std::size_t i) {
    const Inst& inst = k_.insts[i];
    const auto value = [&](int operand) { return operand >= 0 ? values_[at(operand)] : 0; };
    switch (inst.op) {
      case Op::constant:
        values_[i] = constant_bits(inst.dtype, inst.imm, inst.imm_int);
        break;
      case Op::number: {
        const Number& number = k_.numbers[at(inst.index)];
        values_[i] = constant_bits(inst.dtype, number.value, number.integer);
        break;
      }
      case Op::loop_index:
        values_[i] = static_cast<std::uint64_t>(index_[at(inst.index)]);
        break;
      case Op::load:
        return load(inst, i);
      case Op::cast:
        values_[i] = numeric::convert(inst.dtype, k_.insts[at(inst.a)].dtype, value(inst.a));
        break;
      case Op::select:
        values_[i] = value(value(inst.a) != 0 ? inst.b : inst.c);
        break;
      case Op::equal:
      case Op::not_equal:
        if (k_.insts[at(inst.a)].dtype == DType::string) {
          values_[i] = (text(value(inst.a)) == text(value(inst.b))) == (inst.op == Op::equal) ? 1 : 0;
          break;
        }
        [[fallthrough]];
      default:
        values_[i] = apply(inst.op, k_.insts[at(inst.a)].dtype, value(inst.a), value(inst.b), value(inst.c));
    }
    return true;
  }

  bool load(const Inst& inst, std::size_t i) {
    const Access& access = k_.loads[at(inst.index)];
    for (const Guard& guard : access.guards) {
      const std::int64_t position = guard.base + terms(guard.coef);
      if (position < 0 || position >= guard.extent) {
        values_[i] = values_[at(access.fallback)];
        return true;
      }
    }
    std::int64_t offset = access.offset + terms(access.strides);
    for (const Indirect& indirect : access.indirect) {
      const auto index = static_cast<std::int64_t>(values_[at(indirect.inst)]);
      if (index < -indirect.extent || index >= indirect.extent) return report(access, indirect, index);
      offset += (index < 0 ? index + indirect.extent : index) * indirect.stride;
    }
    values_[i] = load_element(inst.dtype, args_.buffers[access.buffer], offset);
    return true;
  }

  static std::uint64_t load_element(DType dtype, const void* buffer, std::int64_t offset) {
    if (by_address(dtype)) {
      const auto width = static_cast<std::int64_t>(dtype.bits() / 8);
      return reinterpret_cast<std::uintptr_t>(static_cast<const std::uint8_t*>(buffer) + offset * width);
    }
    if (!dtype.is_packed()) return numeric::load(dtype, buffer, offset);
    return numeric::truncate(dtype, static_cast<const std::uint8_t*>(buffer)[offset]);
  }

  void store_all(bool full) {
    for (const Store& store : k_.stores) {
      if (is_full(store) != full) continue;
      const DType dtype = k_.insts[at(store.inst)].dtype;
      const std::int64_t offset = store.access.offset + terms(store.access.strides);
      void* const buffer = args_.buffers[store.access.buffer];
      const std::uint64_t bits = values_[at(store.inst)];
      if (dtype == DType::string) {
        static_cast<std::string*>(buffer)[offset] = text(bits);
      } else if (by_address(dtype)) {
        std::memcpy(static_cast<std::uint8_t*>(buffer) + offset * 16, carried(bits), 16);
      } else if (dtype.is_packed()) {
        static_cast<std::uint8_t*>(buffer)[offset] = numeric::byte_of_packed(dtype, bits);
      } else {
        numeric::store(dtype, buffer, offset, bits);
      }
    }
  }

  bool is_full(const Store& store) const {
    bool full = full_[at(store.inst)];
    for (int d = k_.outer; d < k_.rank(); ++d) full = full || store.access.strides[at(d)] != 0;
    return full;
  }

  /// Says which index failed. Returns false.
  bool report(const Access& failed, const Indirect& indirect, std::int64_t index) const {
    std::int32_t node = 0;
    for (const Access& access : k_.loads) {
      if (&access == &failed) break;
      node += static_cast<std::int32_t>(access.indirect.size());
    }
    node += static_cast<std::int32_t>(&indirect - failed.indirect.data());
    std::int64_t position = 0;
    for (int d = 0; d < k_.rank(); ++d) position = position * k_.extents[at(d)] + index_[at(d)];
    if (args_.error != nullptr) *args_.error = {node, position, index, indirect.extent};
    return false;
  }

  static bool is_arg(const Inst& inst) { return inst.reduction >= Reduction::argmin_first; }

  bool is_empty(int first_dim, int last_dim) const {
    for (int d = first_dim; d < last_dim; ++d) {
      if (k_.extents[at(d)] == 0) return true;
    }
    return false;
  }

  /// The next index over these dims, row-major; false, and back at the first, after the last.
  bool advance(int first_dim, int last_dim) {
    for (int d = last_dim - 1; d >= first_dim; --d) {
      if (++index_[at(d)] < k_.extents[at(d)]) return true;
      index_[at(d)] = 0;
    }
    return false;
  }

  std::int64_t terms(const Dims& coefficients) const {
    std::int64_t sum = 0;
    for (int d = 0; d < k_.rank(); ++d) sum += coefficients[at(d)] * index_[at(d)];
    return sum;
  }

  const Kernel& k_;
  const KernelArgs& args_;
  std::vector<bool> full_;
  std::vector<int> level_;
  int last_level_ = 0;
  bool has_full_stores_ = false;
  std::vector<std::uint64_t> values_;  // raw bits
  std::vector<std::uint64_t> seen_;    // arg reductions: elements so far
  std::vector<std::uint64_t> best_;    // arg reductions: the extremum so far
  Dims index_{};
};

}  // namespace

std::int32_t evaluate(const Kernel& kernel, const KernelArgs& args) { return Evaluation(kernel, args).run(); }

}  // namespace lathe::loops
