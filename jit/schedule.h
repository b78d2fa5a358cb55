// How a kernel is walked: what each instruction depends on, which dim becomes vectors, and how much is unrolled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jit/jit.h"
#include "ops/loops/kernel.h"

namespace lathe::jit {

/// What of the machine decides a schedule.
struct Machine {
  int vector_bits = 128;
  int vector_registers = 16;
  bool narrow_masks = false;  ///< masked memory access for 8 and 16 bit elements; where it is missing, masks are slow
};

using DimSet = std::uint32_t;
constexpr DimSet bit(int dim) { return DimSet{1} << dim; }

/// Facts about a kernel's instructions that follow from its structure alone.
struct Analysis {
  explicit Analysis(const loops::Kernel& kernel);

  const loops::Kernel& kernel;
  DimSet inner_dims = 0;
  std::vector<bool> live;                      ///< reaches a store
  std::vector<DimSet> deps;                    ///< dims along which the value varies
  std::vector<int> stage;                      ///< how many sweeps over the inner dims come before it
  std::vector<bool> costly;                    ///< full, and a transcendental function is among what it is made of
  std::vector<bool> fused;                     ///< a product whose only users are sums: accumulated by fma
  std::vector<int> kept;                       ///< full values that go to scratch, in slot order
  int sweeps = 0;                              ///< the last one also stores the full outputs
  std::vector<std::vector<bool>> sweep_insts;  ///< per sweep, the full instructions evaluated in it

  [[nodiscard]] bool full(int inst) const { return (deps[static_cast<std::size_t>(inst)] & inner_dims) != 0; }
  [[nodiscard]] bool full_store(const loops::Store& store) const;
  /// The slot of a kept value; -1 for others.
  [[nodiscard]] int slot(int inst) const;

 private:
  void find_deps();
  void find_live();
  void find_fused();
  void find_sweeps();
  void want(int sweep, int inst);
};

/// The choices that, with the structure, decide the code.
struct Schedule {
  int lanes = 1;
  int vec_dim = -1;  ///< -1: scalar code
  int unroll = 1;    ///< vectors along vec_dim in a tile
  int row_dim = -1;  ///< an outer dim of which a tile has `rows`
  int rows = 1;
  int k_unroll = 1;            ///< steps of the innermost reduced loop in one iteration, where vec_dim is an outer dim
  bool k_split = false;        ///< each of these steps has an accumulator of its own
  bool transpose = false;      ///< loads that are contiguous along row_dim are transposed in registers
  bool whole_vectors = false;  ///< what whole tiles leave is first done in whole vectors
  bool masked_tail = false;    ///< the rest of vec_dim is one masked vector; otherwise it is done one by one
  std::vector<int> outer_order;            ///< outer dims, outermost first, without row_dim and vec_dim
  std::vector<int> inner_order;            ///< inner dims, outermost first
  std::shared_ptr<const Schedule> narrow;  ///< code of its own for a vec_dim shorter than a vector; null: none

  [[nodiscard]] bool vec_inner(const loops::Kernel& kernel) const { return vec_dim >= kernel.outer; }
  /// The choices as bytes, a part of the cache key.
  [[nodiscard]] std::string key() const;
};

[[nodiscard]] Schedule choose_schedule(const Analysis& analysis, const Machine& machine);
[[nodiscard]] std::vector<CompiledKernel::ScratchSlot> scratch_slots(const Analysis& analysis,
                                                                     const Schedule& schedule);
[[nodiscard]] std::int64_t grain(const loops::Kernel& kernel, const Schedule& schedule);
/// Bytes of one element in memory: packed types lie one to a byte.
[[nodiscard]] constexpr int element_bytes(DType dtype) { return dtype.bits() <= 8 ? 1 : dtype.bits() / 8; }

}  // namespace lathe::jit
