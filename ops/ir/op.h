// OpDef: all that Lathe knows of an operator, in a handful of hooks; OpView: a node as its hooks see it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/ir/dtypes.h"
#include "ops/ir/failure.h"
#include "ops/ir/graph.h"

namespace lathe {
struct CustomOperator;
}

namespace lathe::ops {

class OpView;
class Builder;
class LoopBuilder;
class KernelContext;
class Patch;
struct Coords;
struct Scalar;

using Facts = std::vector<Fact>;

enum class AttrKind : std::uint8_t { integer, number, string, tensor, integers, numbers, strings, tensors, type };

/// An attribute of the schema: its name, kind and default. `{"axis", -1}`, `{"alpha", 0.01}`, `{"mode", "constant"}`,
/// `{"perm", AttrKind::integers}` (no default: absent unless stated), `{"to", AttrKind::integer,
/// Attribute::kRequired}`.
struct Attribute {
  static constexpr bool kRequired = true;

  std::string_view name;
  AttrKind kind;
  bool required = false;
  bool has_default = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string_view string;

  constexpr Attribute(std::string_view n, int v) : name(n), kind(AttrKind::integer), has_default(true), integer(v) {}
  /// Files state numbers as float32: the default is the same, stated or not.
  constexpr Attribute(std::string_view n, double v)
      : name(n), kind(AttrKind::number), has_default(true), number(static_cast<double>(static_cast<float>(v))) {}
  constexpr Attribute(std::string_view n, const char* v)
      : name(n), kind(AttrKind::string), has_default(true), string(v) {}
  constexpr Attribute(std::string_view n, AttrKind k, bool is_required = false)
      : name(n), kind(k), required(is_required) {}
};

/// How many inputs or outputs an operator takes: exactly n, or between two bounds.
struct Arity {
  int least = 0;
  int most = 0;
  static constexpr int kMany = 1 << 20;
  constexpr Arity(int n) : least(n), most(n) {}  // NOLINT(google-explicit-constructor)
  constexpr Arity(int l, int m) : least(l), most(m) {}
};

/// The opsets of its domain in which an operator appeared and in which its form changed last: older forms are upgraded
/// to that one at import.
struct Forms {
  int first = 1;
  int newest = 1;
  constexpr Forms(int n) : newest(n) {}  // NOLINT(google-explicit-constructor)
  constexpr Forms(int f, int n) : first(f), newest(n) {}
};

/// Operators whose bodies are graphs; the runtime executes them.
enum class Region : std::uint8_t { none, if_, loop, scan, sequence_map };

/// An operator. Exactly one of lower, expr, kernel and region says how it runs. Definitions are written
/// `extern const OpDef op_xxx;` `constinit const OpDef op_xxx = {.name = …};` in ops/*.cpp and found by that form.
struct OpDef {
  std::string_view name;
  std::string_view domain = "";  ///< "" is ONNX's default domain; our own helpers stand in "lathe"
  Arity inputs = 1;
  Arity outputs = 1;
  std::span<const Attribute> attributes = {};
  std::span<const std::string_view> subgraphs = {};  ///< names of the graph attributes, for region operators
  Forms forms = 1;
  /// The dtypes of tensors that inputs take, checked before `infer`.
  TakesRules takes = {};

  /// Bit i: `infer` reads the value of input i (the target shape of Reshape). While such a value is unknown until run
  /// time, the node runs on its own, between statically planned parts.
  std::uint32_t shape_inputs = 0;
  /// The output's shape depends on data beyond shape_inputs (NonZero): `kernel` allocates its outputs.
  bool dynamic_output = false;
  /// Inputs may be sequences, optionals and maps; without it they are tensors, which `infer` need not check.
  bool any_kind = false;
  /// Not a function of its inputs (random generators): never folded or merged.
  bool impure = false;

  /// Output facts from concrete input facts. Failure, naming the node and the rule, where the inputs are wrong.
  Facts (*infer)(const OpView&) = nullptr;
  /// The operator said in simpler ones, on concrete facts. It may depend on ranks, dtypes, attributes, constants and on
  /// which extents are 0 or 1, never on other extents: take those from Builder::shape_of, so that one lowering serves
  /// every shape.
  std::vector<ValueId> (*lower)(const OpView&, Builder&) = nullptr;
  /// Output `output` at coordinates `at` as an expression: called once per fused use. Numbers that depend on extents
  /// must be `number`s or coordinates, never constants.
  Scalar (*expr)(const OpView&, LoopBuilder&, int output, const Coords& at) = nullptr;
  /// Plain C++ on row-major memory; see KernelContext.
  void (*kernel)(KernelContext&) = nullptr;
  /// `kernel` takes nothing from the heap: what it needs beside its outputs comes from KernelContext::memory(), as much
  /// in every run with the same facts, and is released in the reverse order.
  bool real_time = false;
  Region region = Region::none;

  /// A local rewrite, true where it changed something. Optional.
  bool (*simplify)(const OpView&, Patch&) = nullptr;
  /// For expr operators: their index maps only move data (Transpose, Slice, Expand…), so fusing them costs nothing.
  bool is_view = false;
  /// For expr operators that reduce: the axes of input 0 that they reduce, ascending. Null: no reduction.
  /// Contractions give their reduced loop extents through LoopBuilder instead and set `contraction`.
  std::vector<int> (*reduced_axes)(const OpView&) = nullptr;
  /// Whether it sums products. One without `expr` (ConvTranspose) takes an epilogue where a library runs it.
  bool contraction = false;
  /// What an application registered; null for Lathe's own.
  const CustomOperator* custom = nullptr;
};

/// Every operator, in the order of their definitions' names. Generated at build time.
std::span<const OpDef* const> all_operators();

/// The operator of that name and domain ("ai.onnx" is ""), Lathe's own or registered; or null.
const OpDef* find_operator(std::string_view name, std::string_view domain = "");

/// What "domain::Op" or "Op" (of ONNX's default domain) names.
struct OperatorName {
  std::string_view domain, base;
};
OperatorName split_name(std::string_view name);

/// The operator that an application registered under that name and domain, or null.
const OpDef* find_custom_operator(std::string_view name, std::string_view domain);

/// A node as its hooks see it: attributes with their defaults, input facts, and the input values known so far.
class OpView {
 public:
  OpView(const Node& node, std::span<const Fact* const> inputs, std::span<const Tensor* const> values,
         std::span<const Fact* const> outputs = {})
      : node_(node), inputs_(inputs), values_(values), outputs_(outputs) {}

  [[nodiscard]] const Node& node() const { return node_; }
  [[nodiscard]] const OpDef& op() const { return *node_.op; }

  /// Number of formal inputs stated, trailing omitted ones included.
  [[nodiscard]] int inputs() const { return static_cast<int>(node_.formal_inputs()); }
  [[nodiscard]] int outputs() const { return static_cast<int>(node_.outputs.size()); }
  [[nodiscard]] bool has(int i) const { return i < inputs() && node_.inputs[static_cast<std::size_t>(i)] != kNone; }
  [[nodiscard]] bool wants(int output) const {
    return output < outputs() && node_.outputs[static_cast<std::size_t>(output)] != kNone;
  }
  /// The graph's value of input i (kNone where omitted).
  [[nodiscard]] ValueId id(int i) const { return has(i) ? node_.inputs[static_cast<std::size_t>(i)] : kNone; }

  /// Fact of input i, which must be present.
  [[nodiscard]] const Fact& in(int i) const;
  /// Fact of output i; only in hooks that run after inference (lower, expr, simplify).
  [[nodiscard]] const Fact& out(int i) const { return *outputs_[static_cast<std::size_t>(i)]; }
  /// The value of input i where it is a constant or follows from shapes; null otherwise or where omitted.
  [[nodiscard]] const Tensor* value(int i) const {
    return has(i) && static_cast<std::size_t>(i) < values_.size() ? values_[static_cast<std::size_t>(i)] : nullptr;
  }
  /// The value of input i as integers; Failure where it is not known or not an integer tensor.
  [[nodiscard]] std::vector<std::int64_t> ints(int i) const;
  [[nodiscard]] const Tensor& known_integers(int i) const;

  // Attributes, with the schema's defaults.
  [[nodiscard]] bool has_attr(std::string_view name) const;
  [[nodiscard]] std::int64_t i(std::string_view name) const;
  [[nodiscard]] double f(std::string_view name) const;
  [[nodiscard]] std::string_view s(std::string_view name) const;
  [[nodiscard]] std::span<const std::int64_t> attr_ints(std::string_view name) const;  ///< empty where absent
  [[nodiscard]] std::span<const double> attr_floats(std::string_view name) const;      ///< empty where absent
  [[nodiscard]] std::span<const std::string> attr_strings(std::string_view name) const;
  [[nodiscard]] const Tensor* attr_tensor(std::string_view name) const;  ///< null where absent
  /// An axis attribute made non-negative; Failure where it lies outside [-rank, rank).
  [[nodiscard]] int axis(std::string_view name, int rank) const;
  /// The same for a value; `what` names it in the message.
  [[nodiscard]] int axis(std::int64_t value, int rank, std::string_view what) const;

  /// Failure (invalid_model) with "Softmax 'name': message".
  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    error_text(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) error_text(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Numpy broadcasting of the shapes of all inputs (or of the two given); Failure naming both shapes.
  [[nodiscard]] Shape broadcast_all() const;
  [[nodiscard]] Shape broadcast(const Shape& a, const Shape& b) const;
  /// Failure unless inputs a and b have one dtype.
  void require_same_dtype(int a, int b) const;

 private:
  [[noreturn]] void error_text(std::string text) const;

  const Node& node_;
  std::span<const Fact* const> inputs_;
  std::span<const Tensor* const> values_;
  std::span<const Fact* const> outputs_;
};

/// "Softmax 'name'" for messages.
std::string describe(const Node& node);

/// Checks arity and attributes against the schema; Failure naming the node.
void check_schema(const Node& node);

}  // namespace lathe::ops
