// The same loops in fewer dims: extent-1 dims dropped, outer dims ordered as memory lies, neighbours walked as one
// merged.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "ops/loops/kernel.h"

namespace lathe::loops {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The dims that stay, by their old numbers, in their new order.
struct DimList {
  std::array<int, kMaxDims> old{};
  int outer = 0;
  int rank = 0;
};

/// Calls `f` with every row of coefficients over the dims.
template <class F>
void each_row(Kernel& k, F f) {
  for (Access& load : k.loads) {
    f(load.strides);
    for (Guard& guard : load.guards) f(guard.coef);
  }
  for (Store& store : k.stores) f(store.access.strides);
}

bool has_reduction(const Kernel& k) {
  for (const Inst& inst : k.insts) {
    if (inst.op == Op::reduce) return true;
  }
  return false;
}

DimList dims_to_keep(const Kernel& k) {
  DimList dims;
  for (int d = 0; d < k.rank(); ++d) {
    if (d == k.outer) dims.outer = dims.rank;
    if (k.extents[at(d)] != 1) dims.old[at(dims.rank++)] = d;
  }
  if (k.inner == 0) dims.outer = dims.rank;
  if (dims.rank == dims.outer && k.inner > 0 && has_reduction(k)) dims.old[at(dims.rank++)] = k.rank() - 1;
  return dims;
}

std::int64_t magnitude(std::int64_t stride) {
  if (stride == std::numeric_limits<std::int64_t>::min()) return std::numeric_limits<std::int64_t>::max();
  return stride < 0 ? -stride : stride;
}

/// Whether dim `a` should go around dim `b`: by the first store that tells them apart, then the first load.
bool walks_farther(const Kernel& k, int a, int b) {
  for (const Store& store : k.stores) {
    const std::int64_t x = magnitude(store.access.strides[at(a)]);
    const std::int64_t y = magnitude(store.access.strides[at(b)]);
    if (x != y) return x > y;
  }
  for (const Access& load : k.loads) {
    const std::int64_t x = magnitude(load.strides[at(a)]);
    const std::int64_t y = magnitude(load.strides[at(b)]);
    if (x != y) return x > y;
  }
  return false;
}

void sort_outer(const Kernel& k, DimList& dims) {
  for (int i = 1; i < dims.outer; ++i) {
    for (int j = i; j > 0 && walks_farther(k, dims.old[at(j)], dims.old[at(j - 1)]); --j) {
      std::swap(dims.old[at(j)], dims.old[at(j - 1)]);
    }
  }
}

/// Moves every row of coefficients and the extents to the new order, and loop indices with them. A dropped dim's index
/// is 0.
void reorder(Kernel& k, const DimList& dims) {
  const auto move = [&](Dims& row) {
    Dims moved{};
    for (int d = 0; d < dims.rank; ++d) moved[at(d)] = row[at(dims.old[at(d)])];
    row = moved;
  };
  each_row(k, move);
  move(k.extents);
  std::array<int, kMaxDims> new_of_old{};
  new_of_old.fill(-1);
  for (int d = 0; d < dims.rank; ++d) new_of_old[at(dims.old[at(d)])] = d;
  for (Inst& inst : k.insts) {
    if (inst.op != Op::loop_index) continue;
    inst.index = new_of_old[at(inst.index)];
    if (inst.index < 0) inst = {.op = Op::constant, .dtype = DType::i64};
  }
  k.outer = dims.outer;
  k.inner = dims.rank - dims.outer;
}

/// Whether stepping along dim `d` once is stepping along `d + 1` its whole extent, in every row of coefficients.
bool walked_as_one(Kernel& k, int d) {
  const std::int64_t extent = k.extents[at(d + 1)];
  std::int64_t product = 0;
  if (__builtin_mul_overflow(k.extents[at(d)], extent, &product)) return false;
  bool one = true;
  each_row(k, [&](const Dims& row) {
    std::int64_t whole = 0;
    one = one && !__builtin_mul_overflow(row[at(d + 1)], extent, &whole) && row[at(d)] == whole;
  });
  return one;
}

/// Merges dim `d` into `d + 1`.
void merge(Kernel& k, int d) {
  k.extents[at(d + 1)] *= k.extents[at(d)];
  const auto close_gap = [&](Dims& row) {
    for (int i = d; i + 1 < k.rank(); ++i) row[at(i)] = row[at(i + 1)];
    row[at(k.rank() - 1)] = 0;
  };
  each_row(k, close_gap);
  close_gap(k.extents);
  for (Inst& inst : k.insts) {
    if (inst.op == Op::loop_index && inst.index > d) --inst.index;
  }
  (d < k.outer ? k.outer : k.inner) -= 1;
}

void merge_neighbours(Kernel& k) {
  unsigned indexed = 0;  // dims whose loop variable is a value
  for (const Inst& inst : k.insts) {
    if (inst.op == Op::loop_index) indexed |= 1U << inst.index;
  }
  for (int d = k.rank() - 2; d >= 0; --d) {
    if (d + 1 == k.outer || (indexed & (3U << d)) != 0 || !walked_as_one(k, d)) continue;
    merge(k, d);
    indexed = (indexed & ((1U << d) - 1)) | ((indexed >> (d + 1)) << d);
  }
}

}  // namespace

void canonicalize(Kernel& kernel) {
  DimList dims = dims_to_keep(kernel);
  sort_outer(kernel, dims);
  reorder(kernel, dims);
  merge_neighbours(kernel);
}

}  // namespace lathe::loops
