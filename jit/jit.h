// The JIT compiler: loop kernels to machine code, cached by structure for the whole process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <lathe/thread_pool.h>

#include "ops/loops/kernel.h"

namespace lathe::jit {

/// Machine code of one kernel structure. It serves every loops::Kernel whose compile() gave it, and stays callable
/// while any copy of it lives.
struct CompiledKernel {
  /// A full value that one sweep leaves in scratch for later ones.
  struct ScratchSlot {
    std::int64_t position_bytes = 0;  ///< for each position of the inner dims
    std::int64_t slack_bytes = 0;     ///< read and written past the last position
  };

  loops::KernelFn fn = nullptr;
  int lanes = 1;           ///< elements per vector; 1 where the code is scalar
  std::int64_t grain = 1;  ///< ranges of the first outer dim are best split at multiples of this
  std::vector<ScratchSlot> scratch;
  std::shared_ptr<const void> code;  ///< keeps the machine code mapped
  std::size_t code_bytes = 0;        ///< its share of the module's size

  /// Scratch that each worker needs for the kernel's extents, aligned to 64 bytes.
  [[nodiscard]] std::int64_t scratch_bytes(const loops::Kernel& kernel) const;
};

struct Options {
  int code_level = -1;         ///< instruction selection: 0 fastest to compile, 1, 2 best code; -1 chooses per kernel
  int max_vector_bits = 0;     ///< narrower vectors than the machine has, for tests; 0 for no limit
  ThreadPool* pool = nullptr;  ///< compiles several modules at the same time; null: one after the other
  bool may_start_thread = false;  ///< one of the process, which removes code that nobody holds any more
  bool perf_map = false;          ///< name the code in /tmp/perf-<pid>.map
  bool gdb = false;               ///< register the code with an attached debugger
  /// Called now and then while another thread compiles what is wanted; ends the wait by throwing.
  std::function<void()> check = {};
};

/// What one call of compile() cost; what it found compiled, or another thread compiled for it, costs nothing.
struct Spent {
  std::int64_t kernels = 0;
  double ms = 0;  ///< summed over threads
};

struct Stats {
  std::int64_t kernels_compiled = 0;
  std::int64_t cache_hits = 0;
  double compile_ms = 0;          ///< spent compiling, summed over threads
  std::int64_t live_modules = 0;  ///< modules whose code is mapped
  std::int64_t code_bytes = 0;    ///< their objects' size
};

/// The process's compiler. One cache and one service stand behind all of them; both end when the last Compiler and the
/// last kernel that compile() gave do.
class Compiler {
 public:
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// A handle on the shared compiler, made on first use. Thread-safe.
  static std::shared_ptr<Compiler> get();

  /// Code for each kernel, in order; compiles those whose structure is not cached, many to a module. Thread-safe; a
  /// structure that another thread is compiling is waited for. Kernels must be valid and canonical. Throws Failure.
  /// Adds to `spent`, where given, also then.
  std::vector<std::shared_ptr<const CompiledKernel>> compile(std::span<const loops::Kernel* const> kernels,
                                                             const Options& options = {}, Spent* spent = nullptr);

  /// Unmaps code that nobody holds any more, where no thread of the process's own does.
  void remove_unused() noexcept;

  [[nodiscard]] Stats stats() const;

 private:
  struct State;
  explicit Compiler(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace lathe::jit
