// What a valid loop description is, checked rule by rule.
#include <fmt/format.h>

#include <string>

#include "ops/ir/failure.h"
#include "ops/loops/kernel.h"

namespace lathe::loops {
namespace {

/// Which dtypes an operator computes on.
enum class Domain : std::uint8_t { numbers, floats, integers, booleans, comparable };

Domain domain(Op op) {
  switch (op) {
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_xor:
      return Domain::booleans;
    case Op::bit_not:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::shift_left:
    case Op::shift_right:
      return Domain::integers;
    case Op::equal:
    case Op::not_equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
      return Domain::comparable;
    case Op::fma:
      return Domain::floats;
    default:
      break;
  }
  return op >= Op::floor && op <= Op::is_inf ? Domain::floats : Domain::numbers;
}

bool in_domain(DType dtype, Domain domain) {
  const bool is_float = dtype == DType::f32 || dtype == DType::f64;
  const bool is_integer = dtype.is_integer() && !dtype.is_packed();
  switch (domain) {
    case Domain::numbers:
      return is_float || is_integer;
    case Domain::floats:
      return is_float;
    case Domain::integers:
      return is_integer;
    case Domain::booleans:
      return dtype == DType::boolean;
    case Domain::comparable:
      return is_float || is_integer || dtype == DType::boolean;
  }
  return false;
}

bool is_element(DType dtype) { return dtype != DType::undefined; }
/// Moved and chosen, but not computed with.
bool is_opaque(DType dtype) { return dtype == DType::string || dtype.is_complex(); }

bool is_predicate(Op op) { return domain(op) == Domain::comparable || op == Op::is_nan || op == Op::is_inf; }

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : k_(kernel) {}

  std::string run() {
    if (k_.outer < 0 || k_.inner < 0 || k_.rank() > kMaxDims) {
      return fmt::format("{} outer and {} inner dims: at most {} together", k_.outer, k_.inner, kMaxDims);
    }
    for (int d = 0; d < k_.rank(); ++d) {
      if (extent(d) < 0) return fmt::format("extent of dim {} is {}", d, extent(d));
    }
    for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
      if (!is_element(k_.buffers[i].dtype)) return fmt::format("buffer {} has dtype {}", i, k_.buffers[i].dtype);
    }
    for (std::size_t i = 0; i < k_.insts.size(); ++i) {
      const std::string fault = inst(k_.insts[i], static_cast<int>(i));
      if (!fault.empty()) return fmt::format("instruction {} ({}): {}", i, name(k_.insts[i].op), fault);
    }
    full_ = full_instructions(k_);
    for (std::size_t i = 0; i < k_.stores.size(); ++i) {
      const std::string fault = store(k_.stores[i]);
      if (!fault.empty()) return fmt::format("store {}: {}", i, fault);
    }
    return {};
  }

 private:
  std::int64_t extent(int d) const { return k_.extents[static_cast<std::size_t>(d)]; }
  DType dtype(int i) const { return k_.insts[static_cast<std::size_t>(i)].dtype; }
  template <class T>
  static bool within(int index, const std::vector<T>& list) {
    return index >= 0 && static_cast<std::size_t>(index) < list.size();
  }

  std::string inst(const Inst& i, int at) const {
    const int operands[] = {i.a, i.b, i.c};
    for (int o = 0; o < 3; ++o) {
      if (o < arity(i.op) ? operands[o] < 0 || operands[o] >= at : operands[o] != -1) {
        return fmt::format("operand {} is {}, of {} taken", o, operands[o], arity(i.op));
      }
    }
    if (!is_element(i.dtype)) return fmt::format("dtype {}", i.dtype);
    if (is_opaque(i.dtype) && i.op != Op::load && i.op != Op::select) return fmt::format("dtype {}", i.dtype);
    switch (i.op) {
      case Op::constant:
        return {};
      case Op::number:
        return within(i.index, k_.numbers) ? "" : fmt::format("no number {}", i.index);
      case Op::loop_index:
        if (i.dtype != DType::i64) return fmt::format("dtype {}, not i64", i.dtype);
        return i.index >= 0 && i.index < k_.rank() ? "" : fmt::format("no dim {}", i.index);
      case Op::load:
        return load(i, at);
      case Op::reduce:
        return reduce(i);
      case Op::cast:
        return is_opaque(dtype(i.a)) ? fmt::format("from {}", dtype(i.a)) : "";
      case Op::select:
        return select(i);
      default:
        return compute(i);
    }
  }

  std::string number(const Inst& i, int at) const {
    if (!within(i.index, k_.numbers)) return fmt::format("no number {}", i.index);
    for (int earlier = 0; earlier < at; ++earlier) {
      const Inst& other = k_.insts[static_cast<std::size_t>(earlier)];
      if (other.op == Op::number && other.index == i.index && other.dtype.is_float() != i.dtype.is_float()) {
        return fmt::format("number {} read as {} and {}", i.index, other.dtype, i.dtype);
      }
    }
    return {};
  }

  std::string load(const Inst& i, int at) const {
    if (!within(i.index, k_.loads)) return fmt::format("no load {}", i.index);
    const Access& access = k_.loads[static_cast<std::size_t>(i.index)];
    if (!within(access.buffer, k_.buffers)) return fmt::format("no buffer {}", access.buffer);
    const Buffer& buffer = k_.buffers[static_cast<std::size_t>(access.buffer)];
    if (buffer.output) return fmt::format("reads output buffer {}", access.buffer);
    if (buffer.dtype != i.dtype) return fmt::format("dtype {} from a buffer of {}", i.dtype, buffer.dtype);
    for (const Guard& guard : access.guards) {
      if (guard.extent < 0) return fmt::format("guard extent {}", guard.extent);
    }
    for (const Indirect& indirect : access.indirect) {
      if (indirect.inst < 0 || indirect.inst >= at) return fmt::format("index from instruction {}", indirect.inst);
      if (dtype(indirect.inst) != DType::i64) return fmt::format("index of dtype {}, not i64", dtype(indirect.inst));
      if (indirect.extent < 0) return fmt::format("index extent {}", indirect.extent);
    }
    if (access.guards.empty()) return access.fallback == -1 ? "" : "a fallback without guards";
    if (access.fallback < 0 || access.fallback >= at) return fmt::format("fallback is {}", access.fallback);
    const Op source = k_.insts[static_cast<std::size_t>(access.fallback)].op;
    if (source != Op::constant && source != Op::number) return fmt::format("fallback is a {}", name(source));
    if (dtype(access.fallback) != i.dtype) {
      return fmt::format("fallback of {} for a load of {}", dtype(access.fallback), i.dtype);
    }
    return {};
  }

  std::string reduce(const Inst& i) const {
    if (!in_domain(dtype(i.a), Domain::numbers)) return fmt::format("over {}", dtype(i.a));
    const DType result = i.reduction >= Reduction::argmin_first ? DType(DType::i64) : dtype(i.a);
    return i.dtype == result ? "" : fmt::format("dtype {}, not {}", i.dtype, result);
  }

  std::string select(const Inst& i) const {
    if (dtype(i.a) != DType::boolean) return fmt::format("condition of {}", dtype(i.a));
    if (!in_domain(i.dtype, Domain::comparable) && !is_opaque(i.dtype)) return fmt::format("dtype {}", i.dtype);
    if (dtype(i.b) != i.dtype || dtype(i.c) != i.dtype) {
      return fmt::format("{} and {} to {}", dtype(i.b), dtype(i.c), i.dtype);
    }
    return {};
  }

  std::string compute(const Inst& i) const {
    const DType operand = dtype(i.a);
    const bool compares_text = operand == DType::string && (i.op == Op::equal || i.op == Op::not_equal);
    if (!in_domain(operand, domain(i.op)) && !compares_text) return fmt::format("not defined on {}", operand);
    for (const int other : {i.b, i.c}) {
      if (other >= 0 && dtype(other) != operand) return fmt::format("operands of {} and {}", operand, dtype(other));
    }
    const DType result = is_predicate(i.op) ? DType(DType::boolean) : operand;
    return i.dtype == result ? "" : fmt::format("dtype {}, not {}", i.dtype, result);
  }

  std::string store(const Store& s) const {
    if (!within(s.inst, k_.insts)) return fmt::format("no instruction {}", s.inst);
    const Access& access = s.access;
    if (!within(access.buffer, k_.buffers)) return fmt::format("no buffer {}", access.buffer);
    const Buffer& buffer = k_.buffers[static_cast<std::size_t>(access.buffer)];
    if (!buffer.output) return fmt::format("writes input buffer {}", access.buffer);
    if (buffer.dtype != dtype(s.inst)) return fmt::format("{} to a buffer of {}", dtype(s.inst), buffer.dtype);
    if (!access.guards.empty() || !access.indirect.empty() || access.fallback != -1) return "guards or indices";
    bool full = full_[static_cast<std::size_t>(s.inst)];
    for (int d = k_.outer; d < k_.rank(); ++d) full = full || access.strides[static_cast<std::size_t>(d)] != 0;
    for (int d = 0; d < (full ? k_.rank() : k_.outer); ++d) {
      if (extent(d) > 1 && access.strides[static_cast<std::size_t>(d)] == 0) {
        return fmt::format("writes the same element {} times along dim {}", extent(d), d);
      }
    }
    return {};
  }

  const Kernel& k_;
  std::vector<bool> full_;
};

}  // namespace

std::string verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace lathe::loops
