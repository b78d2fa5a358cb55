// Random valid loop kernels, and memory for them in which every buffer ends at an unreadable page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/loops/kernel.h"

namespace lathe::test {

struct RandomKernelOptions {
  /// Exact kernels are made of operators whose every bit is defined, and of float sums that are exact in any order, so
  /// results must be equal (any NaN equals any other, +0 equals -0). The others also use exp, tanh, sums of fractions
  /// …, keep their values moderate, and are compared with a tolerance.
  bool exact = true;
  bool narrow = true;               ///< loads and stores of f16, bf16, float8, the packed types
  bool integers = true;             ///< computes on integer dtypes as well as on f32 and f64
  bool indirect = true;             ///< indices taken from data, all in range
  std::int64_t max_points = 20000;  ///< of the whole iteration space
};

/// What an input buffer holds.
struct Fill {
  enum Kind : std::uint8_t {
    diverse,  ///< every sort of value: extremes, infinities, NaN
    tame,     ///< multiples of 1/4 in [-4, 4]
    index,    ///< integers in [-extent, extent)
  };
  Kind kind = diverse;
  std::int64_t extent = 0;
};

struct RandomKernel {
  loops::Kernel kernel;
  std::vector<std::int64_t> elements;  ///< per buffer
  std::vector<Fill> fills;             ///< per buffer
  bool exact = true;
};

/// The kernel of a seed: the same on every machine.
RandomKernel random_kernel(std::uint64_t seed, const RandomKernelOptions& options = {});

/// Buffers between unreadable pages: touching one byte past the end of a buffer is a fault at once.
class KernelMemory {
 public:
  /// Inputs filled by seed; outputs filled with a pattern.
  KernelMemory(const RandomKernel& kernel, std::uint64_t seed);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// As KernelArgs::buffers takes them.
  [[nodiscard]] void* const* buffers() const { return buffers_.data(); }
  [[nodiscard]] void* buffer(int i) const { return buffers_[static_cast<std::size_t>(i)]; }

 private:
  struct Mapping {
    void* begin;
    std::size_t size;
  };
  void* allocate(std::size_t bytes);

  std::vector<Mapping> mappings_;
  std::vector<void*> buffers_;
};

/// Arguments over the whole of the first outer dim, without parameters, scratch or error slot.
loops::KernelArgs whole_range(const loops::Kernel& kernel, const KernelMemory& memory);

/// Where the outputs differ, in words with the kernel's text; empty where they agree as far as the kernel's kind
/// demands.
std::string difference(const RandomKernel& kernel, const KernelMemory& expected, const KernelMemory& actual);

}  // namespace lathe::test
