// The code generator: one kernel to one LLVM function of vector IR, following its schedule.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "jit/schedule.h"

namespace lathe::jit {

/// Adds the kernel's function to a module.
void emit_kernel(llvm::Module& module, const Analysis& analysis, const Schedule& schedule, const Machine& machine,
                 const std::string& symbol);

/// Which element of a tile: row, vector along the vector dim, step of the innermost reduced loop.
struct Copy {
  int r = 0, u = 0, k = 0;
};

/// Emits one kernel. Loops are opened from the outside in; what an instruction needs is emitted in the outermost loop
/// where it is known, because no pass hoists it later.
class Emitter {
 public:
  Emitter(llvm::Module& module, const Analysis& analysis, const Schedule& schedule, const Machine& machine);
  /// Emits the function, which leaves a short vector dim to `narrow` (null: to nobody).
  llvm::Function* run(const std::string& symbol, llvm::Function* narrow);

 private:
  using Value = llvm::Value;
  using Values = std::vector<Value*>;

  /// base + Σ coef[d]·i[d]: where an access lies (a pointer), a guard's sum, a position.
  struct Linear {
    Value* base = nullptr;
    llvm::Type* element = nullptr;           ///< of a pointer; null for plain sums
    std::array<int, loops::kMaxDims> cls{};  ///< of each coefficient: 0, 1, or 2 for anything
    std::array<Value*, loops::kMaxDims> coef{};
  };
  /// What is known inside the loops that are open.
  struct State {
    DimSet open = 0;
    std::vector<bool> emitted;
    Values value;   ///< [inst × copies]: scalars where uniform along the vector dim, else vectors
    Values splat;   ///< the same, widened
    Values linear;  ///< [linear × rows]
    std::array<Value*, loops::kMaxDims> index{};
  };
  struct Accumulator {
    int inst = -1;
    Copy copy;
    bool scalar_tail = false;  ///< takes what a scalar tail adds to a vector reduction
    bool has_index = false;
  };
  using Body = std::function<Values(Value* index, const Values& carried)>;

  // codegen.cpp: the loop nest
  void prepare(llvm::Function* narrow);
  void make_linears();
  Linear linear_of(const loops::Access& access, int param);
  void nest(std::size_t level);
  void row_level();
  void vec_level();
  void begin_tail(Value* hi, Value* index);
  void tile();
  void sweep(int s);
  Values inner_level(std::size_t level, const Values& carried);
  Values inner_vectors(int dim, const Values& carried);
  Values inner_steps(int dim, const Values& carried);
  Values inner_body(const Values& carried);
  Values loop(int dim, Value* lo, Value* hi, int step, const Values& carried, const Body& body);
  void open_dim(int dim, Value* index);
  void hoist(const std::vector<bool>& wanted);
  void emit(int inst);
  Value* emit_copy(int inst, Copy c);

  // codegen_access.cpp: memory
  Value* load(int inst, Copy c);
  void load_transposed(int inst);
  Value* gather(int load, Value* base, Copy c, Value* guard, Value* mask, Value* lane_offsets);
  Value* guards(const loops::Access& access, int load, Copy c, bool along_vector);
  Value* indirect_offset(const loops::Access& access, int load, Copy c, Value* guard, Value* mask, bool along_vector);
  Value* checked_index(Value* index, Value* extent, Value* active, int node, Copy c);
  void report_index(Value* index, Value* extent, int node, Value* position);
  Value* position_of(Copy c, Value* lane);
  void store(const loops::Store& s, int linear, Copy c);
  void keep(int inst);
  Value* load_kept(int inst, Copy c);
  Value* kept_place(int slot_index, Copy c);
  Value* from_memory(DType dtype, Value* loaded);
  Value* to_memory(DType dtype, Value* value);
  Value* place(int linear, Copy c);
  Value* scaled(int linear, int dim, std::int64_t factor);
  Value* advance(int linear, Value* from, int dim, std::int64_t factor);

  // codegen_reduce.cpp
  void list_accumulators(int s);
  Values initial_values();
  Values accumulate(const Values& carried);
  void finish_sweep(const Values& carried);
  std::pair<Value*, Value*> combine(const loops::Inst& inst, Value* a, Value* ai, Value* b, Value* bi);
  std::pair<Value*, Value*> fold_lanes(const loops::Inst& inst, Value* v, Value* i);
  Value* position_vector(Copy c, bool as_vector);

  // codegen_ops.cpp, codegen_cast.cpp: arithmetic
  Value* compute(const loops::Inst& inst, Value* a, Value* b, Value* c);
  Value* compute_float(const loops::Inst& inst, Value* a, Value* b);
  Value* compute_integer(const loops::Inst& inst, DType dtype, Value* a, Value* b);
  Value* divide(loops::Op op, bool is_signed, Value* a, Value* b);
  Value* compare(loops::Op op, DType dtype, Value* a, Value* b);
  Value* min_max(bool is_min, DType dtype, Value* a, Value* b);
  Value* convert(DType to, DType from, Value* v);
  Value* narrow_to_f32(DType from, Value* v);
  Value* float_to_narrow(DType to, Value* v);
  Value* float_to_integer(DType to, Value* v);
  Value* call_per_lane(const std::string& name, llvm::Type* result, std::initializer_list<Value*> args);

  // small things
  llvm::Type* type(DType dtype);         ///< of a scalar in registers
  llvm::Type* memory_type(DType dtype);  ///< of a scalar in memory
  llvm::Type* wide(llvm::Type* t, int lanes) const;
  llvm::Type* like(llvm::Type* element, Value* shape);
  Value* splat(Value* v, int lanes);
  Value* constant(DType dtype, double number, std::int64_t integer);
  Value* param(int index);
  Value* i64(std::int64_t v) { return b_.getInt64(static_cast<std::uint64_t>(v)); }
  Value* in_entry(const std::function<Value*()>& make);
  Value* dummy();
  Value* extent_of(int dim);
  Value* and_(Value* a, Value* b) { return a == nullptr ? b : b == nullptr ? a : b_.CreateAnd(a, b); }

  [[nodiscard]] const loops::Inst& inst_at(int i) const { return k_.insts[static_cast<std::size_t>(i)]; }
  [[nodiscard]] DimSet deps(int i) const { return an_.deps[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool has(DimSet set, int dim) const { return dim >= 0 && (set & bit(dim)) != 0; }
  [[nodiscard]] bool varies(int inst) const { return has(deps(inst), s_.vec_dim); }
  [[nodiscard]] bool linear_depends(int linear, int dim) const {
    return dim >= 0 && linears_[static_cast<std::size_t>(linear)].cls[static_cast<std::size_t>(dim)] != 0;
  }
  [[nodiscard]] Copy canonical(DimSet set, Copy c) const;
  [[nodiscard]] std::size_t slot(int inst, Copy c) const;
  Value* get(int inst, Copy c);  ///< a vector where the current code is vector code and the value varies or `widen`
  Value* get_wide(int inst, Copy c);
  template <class F>
  void for_copies(DimSet set, F&& f) {
    for (int r = 0; r < (has(set, s_.row_dim) ? rows_ : 1); ++r) {
      for (int u = 0; u < (has(set, s_.vec_dim) ? vecs_ : 1); ++u) {
        for (int k = 0; k < (has(set, k_dim_) ? steps_ : 1); ++k) f(Copy{r, u, k});
      }
    }
  }

  llvm::Module& module_;
  const Analysis& an_;
  const loops::Kernel& k_;
  const Schedule& s_;
  const Machine& machine_;
  llvm::IRBuilder<> b_;
  llvm::Function* fn_ = nullptr;
  Value* args_ = nullptr;
  Value* params_ = nullptr;
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
  Value* error_ = nullptr;
  Value* scratch_ = nullptr;
  Value* dummy_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  Values param_values_;
  std::vector<std::vector<std::pair<std::int64_t, Value*>>> scaled_;  ///< [linear × dims]: memoized factor · coef

  std::vector<Linear> linears_;    ///< loads, stores, guards, kept slots, position
  std::vector<int> guard_linear_;  ///< per load: its first guard's
  std::vector<int> store_linear_;
  std::vector<int> kept_linear_;
  std::vector<int> indirect_base_;  ///< per load: number of indirect accesses before it
  std::vector<int> load_param_, store_param_;
  int number_param_ = 0;
  int position_linear_ = -1;
  std::vector<bool> splat_wanted_;

  bool vec_inner_ = false;
  int k_dim_ = -1;                       ///< the reduced dim whose steps are unrolled
  int sweep_ = -1;                       ///< the sweep being emitted; -1 outside
  int lanes_ = 1;                        ///< of the code being emitted
  int rows_ = 1, vecs_ = 1, steps_ = 1;  ///< of the tile being emitted
  bool mask_tail_ = false;               ///< the rest of the vector dim is being emitted, as masked vectors
  Value* tail_count_ = nullptr;          ///< then: valid elements from the vector dim's index on; null elsewhere
  Value* tail_mask_ = nullptr;           ///< the same as a vector of bits
  State st_;
  std::vector<Accumulator> accs_;
};

}  // namespace lathe::jit
