// The loop description: names, which instructions vary along inner dims, and the text form.
#include "ops/loops/kernel.h"

#include <fmt/format.h>

#include "ops/ir/failure.h"

namespace lathe::loops {
namespace {

constexpr std::string_view kOpNames[] = {
    "constant",   "number",  "loop_index",    "load",       "reduce",      "cast",        "neg",        "abs",
    "sign",       "floor",   "ceil",          "round",      "trunc",       "sqrt",        "reciprocal", "exp",
    "exp2",       "log",     "sin",           "cos",        "tan",         "asin",        "acos",       "atan",
    "sinh",       "cosh",    "tanh",          "asinh",      "acosh",       "atanh",       "erf",        "sigmoid",
    "is_nan",     "is_inf",  "logical_not",   "bit_not",    "add",         "sub",         "mul",        "div",
    "mod",        "fmod",    "pow",           "min",        "max",         "logical_and", "logical_or", "logical_xor",
    "bit_and",    "bit_or",  "bit_xor",       "shift_left", "shift_right", "equal",       "not_equal",  "less",
    "less_equal", "greater", "greater_equal", "select",     "fma"};
static_assert(std::size(kOpNames) == static_cast<std::size_t>(Op::fma) + 1);

constexpr std::string_view kReductionNames[] = {"sum",          "prod",        "min",          "max",
                                                "argmin_first", "argmin_last", "argmax_first", "argmax_last"};
static_assert(std::size(kReductionNames) == static_cast<std::size_t>(Reduction::argmax_last) + 1);

bool varies_along_inner(const Kernel& kernel, const Dims& coefficients) {
  for (int d = kernel.outer; d < kernel.rank(); ++d) {
    if (coefficients[static_cast<std::size_t>(d)] != 0) return true;
  }
  return false;
}

bool load_is_full(const Kernel& kernel, const Access& access, const std::vector<bool>& full) {
  if (varies_along_inner(kernel, access.strides)) return true;
  for (const Guard& guard : access.guards) {
    if (varies_along_inner(kernel, guard.coef)) return true;
  }
  for (const Indirect& indirect : access.indirect) {
    if (full[static_cast<std::size_t>(indirect.inst)]) return true;
  }
  return false;
}

std::string text_of_terms(const Kernel& kernel, std::int64_t base, const Dims& coefficients) {
  std::string text = std::to_string(base);
  for (int d = 0; d < kernel.rank(); ++d) {
    const std::int64_t c = coefficients[static_cast<std::size_t>(d)];
    if (c != 0) text += fmt::format(" + {}*d{}", c, d);
  }
  return text;
}

std::string text_of_access(const Kernel& kernel, const Access& access) {
  std::string text = fmt::format("b{}[{}", access.buffer, text_of_terms(kernel, access.offset, access.strides));
  for (const Indirect& indirect : access.indirect) {
    text += fmt::format(" + {}*index(%{} < {})", indirect.stride, indirect.inst, indirect.extent);
  }
  text += ']';
  for (const Guard& guard : access.guards) {
    text += fmt::format(" if 0 <= {} < {}", text_of_terms(kernel, guard.base, guard.coef), guard.extent);
  }
  if (access.fallback >= 0) text += fmt::format(" else %{}", access.fallback);
  return text;
}

std::string text_of_inst(const Kernel& kernel, const Inst& inst) {
  const auto index = static_cast<std::size_t>(inst.index);
  std::string text = fmt::format("{} {}", inst.dtype, name(inst.op));
  switch (inst.op) {
    case Op::constant:
      return text + (inst.dtype.is_float() ? fmt::format(" {}", inst.imm) : fmt::format(" {}", inst.imm_int));
    case Op::number:
      return text + (inst.dtype.is_float() ? fmt::format(" n{} = {}", inst.index, kernel.numbers[index].value)
                                           : fmt::format(" n{} = {}", inst.index, kernel.numbers[index].integer));
    case Op::loop_index:
      return text + fmt::format(" d{}", inst.index);
    case Op::load:
      return text + ' ' + text_of_access(kernel, kernel.loads[index]);
    case Op::reduce:
      text += fmt::format(" {}", name(inst.reduction));
      break;
    default:
      break;
  }
  for (const int operand : {inst.a, inst.b, inst.c}) {
    if (operand >= 0) text += fmt::format(" %{}", operand);
  }
  return text;
}

}  // namespace

std::string_view name(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

std::string_view name(Reduction reduction) { return kReductionNames[static_cast<std::size_t>(reduction)]; }

int arity(Op op) {
  if (op >= Op::select) return 3;
  if (op >= Op::add) return 2;
  return op >= Op::reduce ? 1 : 0;
}

std::vector<bool> full_instructions(const Kernel& kernel) {
  std::vector<bool> full(kernel.insts.size());
  for (std::size_t i = 0; i < full.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    if (inst.op == Op::load) {
      full[i] = load_is_full(kernel, kernel.loads[static_cast<std::size_t>(inst.index)], full);
    } else if (inst.op == Op::loop_index) {
      full[i] = inst.index >= kernel.outer;
    } else if (inst.op != Op::reduce) {
      for (const int operand : {inst.a, inst.b, inst.c}) {
        full[i] = full[i] || (operand >= 0 && full[static_cast<std::size_t>(operand)]);
      }
    }
  }
  return full;
}

std::string to_string(const Kernel& kernel) {
  const auto extents = [&](int first, int last) {
    return fmt::format("{}", fmt::join(kernel.extents.begin() + first, kernel.extents.begin() + last, "x"));
  };
  std::string text = fmt::format("kernel {} outer [{}] inner [{}]\n", shown(kernel.name), extents(0, kernel.outer),
                                 extents(kernel.outer, kernel.rank()));
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    text += fmt::format("  b{}: {} {}\n", i, kernel.buffers[i].dtype, kernel.buffers[i].output ? "out" : "in");
  }
  for (std::size_t i = 0; i < kernel.insts.size(); ++i) {
    text += fmt::format("  %{} = {}\n", i, text_of_inst(kernel, kernel.insts[i]));
  }
  for (const Store& store : kernel.stores) {
    text += fmt::format("  {} = %{}\n", text_of_access(kernel, store.access), store.inst);
  }
  return text;
}

}  // namespace lathe::loops
