// The loop description: what a fused group computes, said once for the compiler, the evaluator and every target.
//
// A Kernel is a perfect nest of `outer` parallel dims around `inner` reduced dims. Its body is a list of instructions
// in SSA form, operands before users. An instruction is *full* when it depends on an inner dim, a load that varies
// along one, or a full operand; otherwise it is a *row* instruction. `reduce` turns a full value into a row value, so a
// full instruction may use an earlier reduction (softmax: max, then exp(x - max), then its sum). Such kernels run in
// stages: one sweep over the inner dims per level of reductions, then one sweep that stores the full outputs.
//
//   for each outer index            row instructions of level 0
//     for each inner index          full instructions of level 0, accumulate reductions of level 0
//     row instructions of level 1
//     for each inner index          full instructions of level 1 (level-0 ones recomputed or kept in scratch) …
//     store row outputs; for each inner index store full outputs
//
// **Structure and numbers.** A Kernel holds both. The structure (instructions, dtypes, which strides are 0, 1 or
// anything, the constants) decides the machine code and is the cache key; the numbers (extents, offsets, strides, guard
// bounds, `number` values) reach the compiled code as int64 parameters, so code compiled once serves every shape of its
// structure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lathe/dtype.h>

namespace lathe::loops {

inline constexpr int kMaxDims = 16;
using Dims = std::array<std::int64_t, kMaxDims>;

enum class Op : std::uint8_t {
  // leaves
  constant,    ///< `imm` (floats) or `imm_int` (integers, bool); part of the structure
  number,      ///< numbers[index], a value known when the plan is made; not part of the structure
  loop_index,  ///< the loop variable of dim `index` (outer dims first, then inner), as i64
  load,        ///< loads[index]
  // over the inner dims
  reduce,  ///< `reduction` of operand a over all inner dims; a row operand counts once per inner index
  // conversion: to `dtype` as numeric::convert in ops/ir/numeric.h defines it (ONNX's Cast: float to integer truncates,
  // narrowing floats round to nearest even, float8 saturates, to bool: != 0)
  cast,
  // unary; floor to trunc and sqrt to is_inf take floats only; round takes halves to even; sign of NaN is NaN, of zeros
  // +0
  neg,
  abs,
  sign,
  floor,
  ceil,
  round,
  trunc,
  sqrt,
  reciprocal,
  exp,
  exp2,
  log,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  sigmoid,
  is_nan,
  is_inf,
  logical_not,
  bit_not,
  // binary; integers wrap, divide towards zero (by zero: 0, mod and fmod too); `mod` has the sign of the divisor,
  // `fmod`
  // that of the dividend; an integer to a negative power is 0 unless the base is 1 or -1; shifts by less than 0 or by
  // the
  // width and more give 0, to the right they keep the sign; min and max propagate NaN, of equal operands they give b
  add,
  sub,
  mul,
  div,
  mod,
  fmod,
  pow,
  min,
  max,
  logical_and,
  logical_or,
  logical_xor,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  // ternary
  select,  ///< a (bool) ? b : c
  fma,     ///< a * b + c, rounded once (floats only)
};

/// `sum`, `prod`, `min`, `max` accumulate in the instruction's dtype, which is the operand's, and start from 0, 1 and
/// the largest and smallest value (infinities for floats): what an empty reduction gives. The arg forms give the i64
/// position, counted row-major over the inner dims, of the first or last extremum (NaN counts as the extremum); 0 when
/// empty.
enum class Reduction : std::uint8_t { sum, prod, min, max, argmin_first, argmin_last, argmax_first, argmax_last };

/// One SSA value. `dtype` is the type of the result (comparisons and predicates: boolean). Arithmetic happens on f32,
/// f64 and the integer types of 8 bits and more; f16, bf16, float8 and the packed types appear only as the result of
/// load, constant, number and cast, and as what is stored: whoever builds a kernel casts them to f32 before computing.
/// Booleans are compared, selected, cast and combined by the logical operators.
struct Inst {
  Op op = Op::constant;
  DType dtype;
  int a = -1, b = -1, c = -1;  ///< operands: indices of earlier instructions
  int index = -1;              ///< load: which access; number: which number; loop_index: which dim
  Reduction reduction = Reduction::sum;
  double imm = 0;
  std::int64_t imm_int = 0;
};

/// A bound that decides whether a load happens: 0 <= base + Σ coef[d]·i[d] < extent.
struct Guard {
  std::int64_t base = 0;
  std::int64_t extent = 0;
  Dims coef{};
};

/// An index taken from data: adds value(inst)·stride to the offset. Negative indices count from `extent`; one outside
/// [-extent, extent) ends the kernel with kIndexError in the error slot.
struct Indirect {
  int inst = -1;  ///< an earlier i64 instruction
  std::int64_t extent = 0;
  std::int64_t stride = 0;
};

/// Where an element lies: buffer[offset + Σ strides[d]·i[d] + Σ indirect], all counted in elements of the buffer's
/// dtype. Where a guard fails, a load gives `fallback` instead (an earlier constant or number instruction of the load's
/// dtype), touches no memory and checks no index.
struct Access {
  int buffer = 0;
  std::int64_t offset = 0;
  Dims strides{};
  std::vector<Guard> guards{};
  std::vector<Indirect> indirect{};
  int fallback = -1;
};

/// Writes instruction `inst` through `access` (no guards, no indirection), each element once. A store is *full* when
/// its instruction is full or it has an inner stride that is not 0, else a row store: done once per outer index.
struct Store {
  int inst = -1;
  Access access;
};

/// Memory of the caller. Booleans are bytes 0 and 1; packed types lie one to a byte (i4 and i2 as an i8, the others as
/// their bits). An output may alias an input only where both are accessed with the same offset and strides.
struct Buffer {
  DType dtype;
  bool output = false;
};

/// A value known when the plan is made: an f64 for float dtypes, an i64 otherwise.
struct Number {
  double value = 0;
  std::int64_t integer = 0;
};

struct Kernel {
  std::string name;  ///< for people: shown by explain, perf and gdb; not part of the structure
  int outer = 0;     ///< number of parallel dims
  int inner = 0;     ///< number of reduced dims
  Dims extents{};    ///< outer dims first, then inner dims, both outermost first
  std::vector<Buffer> buffers;
  std::vector<Access> loads;
  std::vector<Inst> insts;
  std::vector<Store> stores;
  std::vector<Number> numbers;

  [[nodiscard]] int rank() const { return outer + inner; }
};

/// The name as written above.
[[nodiscard]] std::string_view name(Op op);
[[nodiscard]] std::string_view name(Reduction reduction);
/// How many of a, b, c an operator takes.
[[nodiscard]] int arity(Op op);

/// Checks what the comments above demand; returns an empty string, or the first fault. For assertions and tests.
[[nodiscard]] std::string verify(const Kernel& kernel);

/// Whether each instruction is full (varies along an inner dim). A stride or guard coefficient of 0 does not vary, any
/// other does, whatever the extent.
[[nodiscard]] std::vector<bool> full_instructions(const Kernel& kernel);

/// The same computation in fewer dims: drops dims of extent 1, merges neighbours that every access walks as one, and
/// orders the outer dims so that the stores (then the loads) walk memory forward. Inner dims keep their order, and one
/// stays where there is a reduction. Never changes a result bit.
void canonicalize(Kernel& kernel);

/// The structure as bytes: equal keys mean that code compiled for one serves the other.
[[nodiscard]] std::string structure_key(const Kernel& kernel);

/// The numbers in the order compiled code reads them: extents[0..rank); then per load, then per store: offset,
/// strides[0..rank), per guard {base, extent, coef[0..rank)}, per indirect {extent, stride}; then the numbers (floats
/// as the bits of a double).
[[nodiscard]] std::vector<std::int64_t> pack_params(const Kernel& kernel);

/// Readable text, one line per instruction.
[[nodiscard]] std::string to_string(const Kernel& kernel);

// ---- how kernels are called: one ABI for all, whoever made them ----

inline constexpr std::int32_t kOk = 0;
inline constexpr std::int32_t kIndexError = 1;  ///< an index out of range: value is the index, extent the bound

/// Filled by a kernel that returns non-zero.
struct ErrorSlot {
  std::int32_t node = -1;     ///< which indirect access, counted over the loads
  std::int64_t position = 0;  ///< of the iteration, row-major over all dims
  std::int64_t value = 0;
  std::int64_t extent = 0;
};

struct KernelArgs {
  void* const* buffers;        ///< one per Kernel::buffers, aligned to the element only
  const std::int64_t* params;  ///< pack_params()
  std::int64_t begin;          ///< this worker's range of the first outer dim; [0, 1) where there is none
  std::int64_t end;
  void* scratch;  ///< scratch_bytes of this worker's own
  ErrorSlot* error;
};

using KernelFn = std::int32_t (*)(const KernelArgs*);

/// Runs the kernel by its definition, one element at a time: the reference that compiled code is tested against. Floats
/// accumulate in plain order; f32 functions are computed in f64 and rounded. Reads the kernel's own numbers, not
/// args.params, and needs no scratch.
std::int32_t evaluate(const Kernel& kernel, const KernelArgs& args);

}  // namespace lathe::loops
