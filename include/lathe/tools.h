// Tools for programs about models: graphs as text and pictures, how each node runs, the operator table, tensor files.
//
// Every function may be called from any number of threads at once, on the same engine too. What is not `try_…` may
// throw std::bad_alloc; the others return it as out_of_memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lathe/engine.h>
#include <lathe/error.h>
#include <lathe/export.h>
#include <lathe/tensor.h>

namespace lathe::tools {

// ---- graphs ----

/// Which graph: as the file says it, as the engine keeps it after the passes that need no shapes, or as it is for the
/// given shapes after all passes.
enum class Stage : std::uint8_t { imported, frozen, specialized };

/// `text` parses back to the same graph (large constants aside); `dot` is for Graphviz; `html` is one page that needs
/// nothing beside it.
enum class GraphFormat : std::uint8_t { text, dot, html };

/// The graph of a file before any pass. Errors as Engine::try_load's.
LATHE_API Result<std::string> try_imported_graph(const std::string& path, GraphFormat format,
                                                 const LoadOptions& load = {}) noexcept;
/// The graph of an engine. Stage::specialized needs the shapes of all inputs that are not fixed. Where the model's data
/// decides some of its shapes, it is run once, on zeros, and fails where that does; bodies of If, Loop, Scan and
/// SequenceMap that this run does not enter are as in Stage::frozen, and so are parts that run node by node (strings,
/// sequences, complex and packed numbers). invalid_argument: a shape that the model does not admit or that is missing,
/// or Stage::imported, which an engine does not keep; not_found: an input of no such name.
LATHE_API Result<std::string> try_graph(const Engine& engine, Stage stage, GraphFormat format,
                                        const Shapes& shapes = {}) noexcept;

/// One execution of a pass.
struct PassRecord {
  std::string name;
  std::string stage;  ///< "load" or "specialize"
  double seconds = 0;
  std::size_t nodes_before = 0;
  std::size_t nodes_after = 0;
  std::size_t changes = 0;  ///< rewrites made
  bool switched_off = false;
};
/// The passes of the load and, with shapes, of specializing to them what Stage::specialized shows so; in the order they
/// ran. Errors as Engine::try_prepare's, and those of the run that Stage::specialized takes.
LATHE_API Result<std::vector<PassRecord>> try_passes(const Engine& engine, const Shapes& shapes = {}) noexcept;

/// What EngineOptions::passes may list: "-all" and, with a '-' before its name, each pass that can be switched off.
[[nodiscard]] LATHE_API std::vector<std::string> pass_switches();

// ---- how a plan runs ----

/// A backend that did not take a step, and why.
struct Decline {
  std::string backend;
  std::string reason;
};

/// One step of a plan, or a node that runs on its own. `backend` is one of these, with the kinds of `kernel` it has:
/// - "jit", compiled loops: "pointwise", "row" (which reduces), "contraction", or "copy" (of one input of a Concat);
/// - "onednn": "matmul", "convolution", "deconvolution" or "pooling", and in parentheses oneDNN's name for its way;
/// - "plain", C++: the operator or "copy"; of loops that are not compiled, because the backend "jit" is switched off or
///   they are over a few elements, "pointwise, evaluated element by element" and the like;
/// - "region", control flow, which the steps of its bodies follow: the operator;
/// - "view", where nothing runs: "alias" (the memory of its input), "known" (computed with the shapes), "empty" (there
///   are no elements);
/// - "not run": nothing is known of how it would run, and `kernel` is empty.
struct StepRecord {
  std::string name;                    ///< of the node that the step is named after
  std::string inside;                  ///< which graph: "then_branch of If 'x'"; empty for the model's own
  std::vector<std::string> nodes;      ///< names of all the nodes it runs
  std::vector<std::string> operators;  ///< their operators, in the same order
  std::string backend;
  std::string kernel;
  std::vector<std::string> outputs;  ///< the facts of what it writes: "f32[1,64,56,56]{0,2,3,1}"
  std::vector<Decline> declines;     ///< backends asked before the one that took it
  bool allocates = false;            ///< takes memory at run time
  std::string why_not_real_time;     ///< empty where it can run in a real-time session
  std::size_t scratch_bytes = 0;
};

/// A plan, for people to read.
struct PlanRecord {
  std::vector<StepRecord> steps;
  std::size_t arena_bytes = 0;  ///< of the part that needs most
  std::size_t kernels = 0;      ///< compiled kernels among the steps
  std::string run_ended_by;     ///< the error that ended the run of try_explain_run early; empty where none did
};

/// The plan for these shapes, made where it is not there yet: the usual one, or the one of a session that is prepared
/// for real time. Nothing is run, so parts whose shapes depend on data are listed node by node as "not run".
/// Errors as Engine::try_prepare's; so with the next.
LATHE_API Result<PlanRecord> try_explain(const Engine& engine, const Shapes& shapes, bool real_time = false) noexcept;
/// The same for these inputs, after one run of the model on them: also for what its shapes depend on data, and inside
/// the bodies of If, Loop, Scan and SequenceMap as they were run last. What the run did not come to is "not run"; a run
/// that fails is no error here, but PlanRecord::run_ended_by.
LATHE_API Result<PlanRecord> try_explain_run(const Engine& engine, const Inputs& inputs,
                                             bool real_time = false) noexcept;

// ---- operators ----

/// The dtypes of tensors that some inputs of an operator take.
struct InputDTypes {
  std::vector<int> inputs;    ///< ascending; empty: every input
  bool and_behind = false;    ///< those behind the last of `inputs`, too
  std::vector<DType> dtypes;  ///< in the order of their codes
  bool alike = true;          ///< the inputs must share one of them
};

struct OperatorInfo {
  std::string name;
  std::string domain;              ///< "" is ONNX's default domain
  int first = 1;                   ///< the opset that introduced it
  int since = 1;                   ///< the newest opset that changed it; older forms are upgraded
  std::vector<InputDTypes> takes;  ///< inputs that are not named take what the operator's text says
  /// "lower": said in other operators; "expr": compiled loops; "kernel": plain C++; "region": a graph that is run.
  std::string how;
  bool onednn = false;  ///< offered to oneDNN first, which takes it for some dtypes and layouts
};
/// Every operator of this build, by domain and name.
[[nodiscard]] LATHE_API std::vector<OperatorInfo> operators();

// ---- tensor files ----

/// A tensor and its name in an archive.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// NumPy's .npy, either byte order and memory order. Types that NumPy lacks are written wider, without loss: bfloat16,
/// float8 and float4 as float32, 4- and 2-bit integers as int8 or uint8. Strings are written as fixed-width unicode
/// ("<U"). not_found or io: the path; invalid_argument: bytes that are damaged, or a tensor that is not defined();
/// unsupported: a dtype of NumPy's without counterpart. A file is written whole or left as it was.
LATHE_API Result<Tensor> try_read_npy(const std::string& path) noexcept;
LATHE_API Result<Tensor> try_parse_npy(std::span<const std::byte> bytes) noexcept;
LATHE_API Result<void> try_write_npy(const std::string& path, const Tensor& tensor) noexcept;
LATHE_API Result<std::vector<std::byte>> try_format_npy(const Tensor& tensor) noexcept;

/// NumPy's .npz: a zip archive of .npy files, in its order. A file may hold up to `limit` bytes once unpacked
/// (limit_exceeded). Other errors as with .npy.
inline constexpr std::uint64_t kArchiveLimit = std::uint64_t{8} << 30;
LATHE_API Result<std::vector<NamedTensor>> try_read_npz(const std::string& path,
                                                        std::uint64_t limit = kArchiveLimit) noexcept;
LATHE_API Result<std::vector<NamedTensor>> try_parse_npz(std::span<const std::byte> bytes,
                                                         std::uint64_t limit = kArchiveLimit) noexcept;
LATHE_API Result<void> try_write_npz(const std::string& path, std::span<const NamedTensor> tensors) noexcept;

/// A value in ONNX's test-data form (`input_0.pb`): a tensor, sequence, optional or map message. The kind is not
/// written in the file: it is that of the model's input or output. not_found or io: the path; invalid_model or
/// unsupported: what it holds; limit_exceeded: its size (kArchiveLimit) or nesting.
LATHE_API Result<NamedValue> try_read_onnx_value(const std::string& path, ValueInfo::Kind kind) noexcept;

#if defined(__cpp_exceptions)
[[nodiscard]] inline std::string graph(const Engine& engine, Stage stage, GraphFormat format,
                                       const Shapes& shapes = {}) {
  return unwrap(try_graph(engine, stage, format, shapes));
}
[[nodiscard]] inline PlanRecord explain(const Engine& engine, const Shapes& shapes, bool real_time = false) {
  return unwrap(try_explain(engine, shapes, real_time));
}
[[nodiscard]] inline PlanRecord explain_run(const Engine& engine, const Inputs& inputs, bool real_time = false) {
  return unwrap(try_explain_run(engine, inputs, real_time));
}
[[nodiscard]] inline Tensor read_npy(const std::string& path) { return unwrap(try_read_npy(path)); }
inline void write_npy(const std::string& path, const Tensor& tensor) { unwrap(try_write_npy(path, tensor)); }
[[nodiscard]] inline std::vector<NamedTensor> read_npz(const std::string& path) { return unwrap(try_read_npz(path)); }
inline void write_npz(const std::string& path, std::span<const NamedTensor> tensors) {
  unwrap(try_write_npz(path, tensors));
}
#endif

}  // namespace lathe::tools
