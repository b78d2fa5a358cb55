// Engine: a loaded model, ready to run inputs of any shape; Inputs, Outputs, and what an engine tells about itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lathe/error.h>
#include <lathe/export.h>
#include <lathe/info.h>
#include <lathe/options.h>
#include <lathe/tensor.h>

namespace lathe {

namespace runtime {
class EngineImpl;
}
class Session;

/// A value and the name of the input or output it belongs to.
struct NamedValue {
  std::string name;
  Value value;
};

/// The inputs of a run: `{{"tokens", t}, {"mask", m}}` in any order, or just a tensor where the model has one input.
/// Inputs that the model gives a default may be left out. Tensors are read during the run and never written.
class Inputs {
 public:
  Inputs() = default;
  Inputs(std::initializer_list<NamedValue> values) : values_(values) {}
  Inputs(std::vector<NamedValue> values) : values_(std::move(values)) {}  // NOLINT(google-explicit-constructor)
  /// The one input of a model, whatever its name.
  Inputs(Tensor tensor) { values_.push_back({{}, std::move(tensor)}); }  // NOLINT(google-explicit-constructor)

  void add(std::string name, Value value) { values_.push_back({std::move(name), std::move(value)}); }
  [[nodiscard]] std::span<const NamedValue> values() const { return values_; }

 private:
  std::vector<NamedValue> values_;
};

/// The outputs of a run, in the model's order or in that of RunOptions::outputs. They own their memory and outlive the
/// engine.
class Outputs {
 public:
  Outputs() = default;
  explicit Outputs(std::vector<NamedValue> values) : values_(std::move(values)) {}

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }

  /// The output of that name, or null.
  [[nodiscard]] const Value* find(std::string_view name) const {
    for (const NamedValue& output : values_) {
      if (output.name == name) return &output.value;
    }
    return nullptr;
  }
  /// The output at that position or of that name; where there is none, a value whose tensor is not defined().
  [[nodiscard]] const Value& operator[](std::size_t index) const {
    return index < values_.size() ? values_[index].value : none();
  }
  [[nodiscard]] const Value& operator[](int index) const { return (*this)[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Value& operator[](std::string_view name) const {
    const Value* value = find(name);
    return value ? *value : none();
  }

#if defined(__cpp_exceptions)
  /// The same; throws where there is none.
  [[nodiscard]] const Value& at(std::string_view name) const {
    if (const Value* value = find(name)) return *value;
    throw Exception({ErrorCode::not_found, "there is no output named '" + std::string(name) + "'"});
  }
#endif

 private:
  static const Value& none() {
    static const Value value;
    return value;
  }
  std::vector<NamedValue> values_;
};

/// Bytes that an engine holds at the moment, by what they are for.
struct MemoryUse {
  std::size_t weights = 0;         ///< constants of the model, and what was folded of them
  std::size_t packed_weights = 0;  ///< the same in the order that kernels want; shared by all plans
  std::size_t arenas = 0;          ///< intermediate results, one arena per session
  std::size_t values = 0;          ///< results not yet released, and what flows between nodes that run on their own
  std::size_t plans = 0;           ///< what the cache holds: plans, programs, primitives
  std::size_t code = 0;            ///< compiled kernels
  [[nodiscard]] std::size_t total() const { return data() + plans + code; }
  /// What EngineOptions::memory_bytes caps.
  [[nodiscard]] std::size_t data() const { return weights + packed_weights + arenas + values; }
};

/// What an engine has specialized so far. The counters only grow; `structures`, `plans` and `bytes` are of the moment.
struct CacheStats {
  std::size_t structures = 0;          ///< programs in the cache: one per structure of shapes
  std::size_t plans = 0;               ///< plans in the cache: one per set of shapes
  std::size_t bytes = 0;               ///< charged against EngineOptions::cache_bytes
  std::uint64_t plan_hits = 0;         ///< runs that found their plan
  std::uint64_t plan_misses = 0;       ///< runs that had to make it
  std::uint64_t structure_hits = 0;    ///< plans made from a program that was there: no pass ran, nothing compiled
  std::uint64_t evictions = 0;         ///< plans and programs that had to leave
  std::uint64_t passes_run = 0;        ///< executions of a pass, at load and per structure
  std::uint64_t kernels_compiled = 0;  ///< by the JIT, for this engine
  double pass_seconds = 0;             ///< spent in passes
  double compile_seconds = 0;          ///< spent compiling
};

/// What this build of Lathe is.
struct BuildInfo {
  std::string version;               ///< "0.1.0"
  std::string llvm;                  ///< "22.1.0"
  std::string onednn;                ///< "3.2.0"
  std::string isa;                   ///< what the CPU it runs on offers: "x86-64 avx2 fma", …
  std::string compiler;              ///< what built it
  std::vector<std::string> formats;  ///< the model formats it reads
};
[[nodiscard]] LATHE_API const BuildInfo& build_info();

/// A loaded model. Cheap to copy: copies are handles to one engine. Every function may be called from any number of
/// threads at the same time.
///
/// The first run with new input shapes makes a plan for them (and compiles kernels, where their structure is new too);
/// later runs find it. `prepare` does so beforehand.
///
/// Each fallible call has two forms: `try_…` never throws and returns a Result; the one without `try_` throws
/// lathe::Exception, and does not exist where exceptions are switched off.
class LATHE_API Engine {
 public:
  /// Loads a model from a file. Its format is found by content. Engines of the same file, unchanged, and of the same
  /// options share its weights. not_found or io: a file cannot be read; invalid_model or unsupported: what it says;
  /// limit_exceeded: LoadOptions::limits or memory_bytes; out_of_memory; invalid_argument: the options.
  static Result<Engine> try_load(const std::string& path, const EngineOptions& options = {},
                                 const LoadOptions& load = {}) noexcept;
  /// Loads a model from memory, which is borrowed only until the call returns. The same errors; not_found and io are of
  /// companion files.
  static Result<Engine> try_load(std::span<const std::byte> bytes, const EngineOptions& options = {},
                                 const LoadOptions& load = {}) noexcept;

  /// Runs the model. An error leaves the engine as usable as before. not_found: an input or output of no such name;
  /// invalid_argument: an input's dtype or shape, or one that is missing; out_of_range: an index; cancelled,
  /// deadline_exceeded; limit_exceeded: memory_bytes; out_of_memory; invalid_model or unsupported: what shows only once
  /// shapes are known.
  Result<Outputs> try_run(const Inputs& inputs, const RunOptions& options = {}) const noexcept;

  /// Makes everything that a run with these shapes needs, as far as shapes alone decide it. Errors as try_run's.
  Result<void> try_prepare(const Shapes& shapes) const noexcept;

  /// A session: memory of its own for one thread's repeated runs. Fails with out_of_memory only.
  Result<Session> try_session() const noexcept;

  /// What the model declares, in its order. The references live as long as the engine.
  [[nodiscard]] const std::vector<ValueInfo>& inputs() const noexcept;
  [[nodiscard]] const std::vector<ValueInfo>& outputs() const noexcept;

  /// Of the moment, while other threads run: each number is right by itself, not their sum.
  [[nodiscard]] MemoryUse memory() const noexcept;
  /// Of this engine alone, though engines share compiled kernels. Read it before and after a run to see what it cost.
  [[nodiscard]] CacheStats cache_stats() const noexcept;
  /// Gives back what is idle: cached plans and programs that no run is using, and arenas that ended runs of the engine
  /// left. A session keeps its own until it is destroyed.
  void trim() const noexcept;

#if defined(__cpp_exceptions)
  static Engine load(const std::string& path, const EngineOptions& options = {}, const LoadOptions& load = {}) {
    return unwrap(try_load(path, options, load));
  }
  static Engine load(std::span<const std::byte> bytes, const EngineOptions& options = {},
                     const LoadOptions& load = {}) {
    return unwrap(try_load(bytes, options, load));
  }
  [[nodiscard]] Outputs run(const Inputs& inputs, const RunOptions& options = {}) const {
    return unwrap(try_run(inputs, options));
  }
  void prepare(const Shapes& shapes) const { unwrap(try_prepare(shapes)); }
  [[nodiscard]] Session session() const;
#endif

  // No move: an engine moved from is a handle still.
  Engine(const Engine&) noexcept = default;
  Engine& operator=(const Engine&) noexcept = default;
  ~Engine() = default;

  /// For Lathe's own use.
  explicit Engine(std::shared_ptr<runtime::EngineImpl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const std::shared_ptr<runtime::EngineImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<runtime::EngineImpl> impl_;
};

}  // namespace lathe

#include <lathe/session.h>  // NOLINT: Engine::session returns one by value
