// Options of loading, of an engine, of preparing and of a single run. Every default is what most applications want.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <lathe/export.h>
#include <lathe/shape.h>

namespace lathe {

class ThreadPool;

/// Where an application wants Lathe's data memory (weights, arenas, results and all else that flows between operators)
/// to come from. Called from any thread.
class LATHE_API Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes aligned to `alignment` (a power of two), or null: then the call that needed them fails with
  /// ErrorCode::out_of_memory.
  virtual void* allocate(std::size_t bytes, std::size_t alignment) noexcept = 0;
  /// Takes back what `allocate` gave, with the same `bytes` and `alignment`.
  virtual void release(void* memory, std::size_t bytes, std::size_t alignment) noexcept = 0;

 protected:
  Allocator() = default;
  Allocator(const Allocator&) = default;
  Allocator& operator=(const Allocator&) = default;
};

/// What a model file may ask for. A model that exceeds a limit fails with ErrorCode::limit_exceeded; the limits hold
/// for everything that loading does, constant folding included.
struct LoadLimits {
  std::uint64_t bytes = std::uint64_t{16} << 30;  ///< of the file, its companion files, and what folding makes of them
  std::uint64_t nodes = 1'000'000;                ///< operator nodes, functions expanded, subgraphs included
  int nesting = 64;                               ///< of subgraphs, functions and messages
  /// Wall time of one load: looked at for each node, tensor and pass, and while constants are folded, where only an
  /// operator in plain C++ or a sum over everything is not interrupted.
  std::chrono::milliseconds time{60'000};
};

/// How a model is read.
struct LoadOptions {
  LoadLimits limits = {};
  /// The formats allowed ("onnx", …); empty allows all that this build reads. The format is found by content.
  std::vector<std::string> formats = {};
  /// Files that the model refers to, given in memory, by the name it uses. Looked up before the folder; borrowed until
  /// the load returns.
  std::map<std::string, std::span<const std::byte>> companions = {};
  /// For a model given as bytes: the folder that its companion files lie in. Empty: it may only use `companions`. A
  /// model given as a path uses its own folder. Nothing outside that folder is ever opened.
  std::string folder = {};
  /// Read weights from the mapped file when they are needed instead of copying them at load; they do not count as data
  /// memory then. What lies unaligned in the file, as typed data or in `companions`, is copied all the same. The file
  /// must stay as it is while the engine lives: one that is rewritten in place changes the results, and one that is
  /// truncated in place kills the process.
  bool keep_mapped = false;
};

/// How hard compiled code is optimized. The results are the same to the bit.
enum class CodeLevel : std::uint8_t {
  automatic,  ///< chosen per kernel
  none,       ///< compiles fastest
  less,
  standard,  ///< compiles slowest
};

enum class LogLevel : std::uint8_t { debug, info, warning };

/// How an engine works.
struct EngineOptions {
  static constexpr int kMaxThreads = 4096;
  /// Threads that one run may use, the caller's included, up to kMaxThreads; 0: one per core. Ignored where `pool` is
  /// given.
  int threads = 0;
  /// Plans, kernels and primitives for shapes that were seen are kept up to this size; the least recently used leave.
  /// The newest stays whatever its size, and so does what a session or a running call works with (a session keeps the
  /// plans of its last eight shapes, and so does, until Engine::trim, what each ended Engine::run that overlapped
  /// others left). Kernels are shared by the process, which keeps the last 256 beyond that.
  std::size_t cache_bytes = std::size_t{256} << 20;
  /// The most data memory that the engine may hold at a time, in bytes; 0: no cap. What would exceed it fails with
  /// ErrorCode::limit_exceeded and leaves the engine usable. Results count until they are released.
  std::size_t memory_bytes = 0;
  /// Where data memory comes from; null: the system. Kept alive until the last tensor and engine that used it is gone.
  std::shared_ptr<Allocator> allocator = {};
  /// The application's threads; null: a pool of Lathe's own. With one given Lathe creates no thread.
  std::shared_ptr<ThreadPool> pool = {};
  /// Passes switched off, separated by commas: "-graph_fuse,-alter_op_layout". "-all" leaves only those that always
  /// run. The environment variable LATHE_PASSES takes its place where this is empty.
  std::string passes = {};
  /// Backends that may run nodes, of "jit", "onednn" and "plain"; empty: all. A node that none of them takes is an
  /// error when its shapes are first seen.
  std::vector<std::string> backends = {};
  /// Trades the time of the first runs for that of the later ones.
  CodeLevel code_level = CodeLevel::automatic;
  /// Names compiled kernels for `perf`, in /tmp/perf-PID.map. The environment variable LATHE_PERF_MAP=1 does the same.
  bool perf_map = false;
  /// Registers compiled kernels with an attached gdb. The environment variable LATHE_GDB=1 does the same.
  bool gdb = false;
  /// Receives what Lathe has to say; it never prints by itself. Called from any thread, one call at a time; it
  /// must not call into the engine that speaks.
  std::function<void(LogLevel, std::string_view)> log = {};
};

/// How one run behaves.
struct RunOptions {
  /// Ends the run with ErrorCode::cancelled at its next step or loop iteration once a stop is requested.
  std::stop_token stop = {};
  /// Ends the run with ErrorCode::deadline_exceeded at its next step or loop iteration once this time has passed.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// The outputs wanted, in this order; empty: all of them.
  std::vector<std::string> outputs = {};
};

/// The shape that an input will have.
struct NamedShape {
  std::string name;
  Shape shape;
};
/// `{{"input", {1, 3, 224, 224}}, {"scale", {1}}}`. Inputs whose declared dims are all fixed may be left out.
using Shapes = std::vector<NamedShape>;

/// What a session is made ready for.
struct PrepareOptions {
  /// Compile, allocate and touch all that a run needs, so that Session::run with bound inputs and outputs allocates
  /// nothing, takes no lock, makes no system call and faults no page at one thread; or fail, naming each node that
  /// cannot comply. oneDNN's calls allocate, so such a session runs convolutions and matrix products in compiled loops:
  /// the last bits of results may differ from those of other sessions, and models made of large convolutions take
  /// several times as long (docs/architecture.md has figures). It keeps to that until it is prepared otherwise.
  bool real_time = false;
  /// The shapes of the inputs that are not bound yet.
  Shapes shapes = {};
};

}  // namespace lathe
