// Operators of an application's own: what its models use beside the operators that Lathe has.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <lathe/error.h>
#include <lathe/export.h>
#include <lathe/tensor.h>

namespace lathe {

namespace ops {
class Builder;
class OpView;
}  // namespace ops

/// A tensor but for its elements.
struct TensorType {
  DType dtype;
  Shape shape;
};

/// What an attribute holds.
using AttributeValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                                    std::vector<std::string>, Tensor>;

/// An attribute that nodes of an operator may state, of the kind of its default: `{"width", 1.0}`,
/// `{"axes", std::vector<std::int64_t>{}}`.
struct OperatorAttribute {
  std::string name;
  AttributeValue otherwise;  ///< its value where a node leaves it out
  bool required = false;     ///< a node that leaves it out is refused
};

/// A node of a custom operator as the operator's functions see it. Good during the call only.
class LATHE_API OperatorNode {
 public:
  [[nodiscard]] std::string_view name() const;
  /// Numbers of inputs and outputs, left-out ones before the last included.
  [[nodiscard]] int inputs() const;
  [[nodiscard]] int outputs() const;
  [[nodiscard]] bool has_input(int i) const;
  [[nodiscard]] bool wants_output(int i) const;
  /// The type of input i; its dtype is undefined where the input is left out.
  [[nodiscard]] TensorType input(int i) const;
  /// The elements of input i, which CustomOperator::shape_inputs must list; for `infer`. Null where it is left out.
  [[nodiscard]] const Tensor* value(int i) const;

  // An attribute, or its default; zero, empty or null where the operator has none of that name and kind.
  [[nodiscard]] std::int64_t integer(std::string_view attribute) const;
  [[nodiscard]] double number(std::string_view attribute) const;
  [[nodiscard]] std::string_view text(std::string_view attribute) const;
  [[nodiscard]] std::span<const std::int64_t> integers(std::string_view attribute) const;
  [[nodiscard]] std::span<const double> numbers(std::string_view attribute) const;
  [[nodiscard]] std::span<const std::string> texts(std::string_view attribute) const;
  [[nodiscard]] const Tensor* tensor(std::string_view attribute) const;

  /// For Lathe's own use.
  explicit OperatorNode(const ops::OpView& view) : view_(&view) {}

 private:
  template <class T>
  [[nodiscard]] const T* find(std::string_view attribute) const;

  const ops::OpView* view_;
};

/// A value of the graph that a GraphBuilder extends; false where there is none.
struct GraphValue {
  std::int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
};

/// Says a node in operators that Lathe has, or that were registered before. What is wrong (an operator that does not
/// exist, a dtype that it does not take, outputs whose shape depends on data) ends the load, or the first run of a
/// shape where the model leaves shapes open, with the place; the values given from then on are none, and need no check.
class LATHE_API GraphBuilder {
 public:
  /// Input i of the node; none where it is left out.
  [[nodiscard]] GraphValue input(int i) const;
  /// What is known of a value; its dtype is undefined where nothing is.
  [[nodiscard]] TensorType type(GraphValue value) const;
  GraphValue constant(Tensor tensor);
  /// A scalar constant of the dtype of `like`.
  GraphValue scalar(double number, GraphValue like);
  /// A node of one output in the newest form of its operator, as ONNX's documentation has it. `name` is "Add", or
  /// "com.microsoft::Gelu"; an input that is none is left out.
  GraphValue op(std::string_view name, std::span<const GraphValue> inputs,
                std::span<const std::pair<std::string, AttributeValue>> attributes = {});
  GraphValue op(std::string_view name, std::initializer_list<GraphValue> inputs,
                std::initializer_list<std::pair<std::string, AttributeValue>> attributes = {}) {
    return op(name, std::span(inputs.begin(), inputs.size()), std::span(attributes.begin(), attributes.size()));
  }
  /// The same with `outputs` outputs.
  std::vector<GraphValue> op_with_outputs(int outputs, std::string_view name, std::span<const GraphValue> inputs,
                                          std::span<const std::pair<std::string, AttributeValue>> attributes = {});

  /// For Lathe's own use.
  GraphBuilder(const ops::OpView& view, ops::Builder& builder, Result<void>& status)
      : view_(&view), builder_(&builder), status_(&status) {}

 private:
  const ops::OpView* view_;
  ops::Builder* builder_;
  Result<void>* status_;
};

/// An operator that an application supplies: how its outputs look, and either a function that computes them or what it
/// is in other operators. Its functions may be called from any thread, several at a time; `infer` and `lower` must not
/// run the engine that calls them. An Error that they return, or an exception that they throw, ends the load or the run
/// with the node's name in front.
struct CustomOperator {
  std::string name;
  std::string domain;  ///< "com.example"; "" is ONNX's own
  int min_inputs = 1;
  int max_inputs = 1;
  int min_outputs = 1;
  int max_outputs = 1;
  std::vector<OperatorAttribute> attributes = {};

  /// The types of the outputs from those of the inputs; at least as many as the node has. Left empty where output
  /// shapes depend on data: then `run` makes the outputs, and the node runs on its own, apart from the plans.
  std::function<Result<std::vector<TensorType>>(const OperatorNode&)> infer = {};
  /// Inputs whose elements `infer` reads, each below 32.
  std::vector<int> shape_inputs = {};

  /// Computes the outputs. Inputs that are left out are undefined, and so are outputs that nobody wants. Outputs have
  /// the types that `infer` said, and memory to write to; without `infer` they are to be assigned, and are copied
  /// after the call. Tensors are row-major; they hold during the call only.
  std::function<Result<void>(const OperatorNode&, std::span<const Tensor> inputs, std::span<Tensor> outputs)> run = {};

  /// In place of `run`: builds the node out of others and gives what stands for its outputs, which must have the types
  /// that `infer` says. The nodes are optimized, fused and compiled like the model's own. It may depend on dtypes,
  /// ranks, attributes and on which extents are 0 or 1, not on other extents, for which it asks with a Shape node: one
  /// lowering serves every shape.
  std::function<Result<std::vector<GraphValue>>(const OperatorNode&, GraphBuilder&)> lower = {};

  /// Whether the same inputs always give the same outputs. Where they do not, it is not folded or merged.
  bool pure = true;
  /// `run` takes nothing from the heap, no lock, and makes no system call: sessions prepared for real time accept it.
  bool real_time = false;
};

/// Adds an operator to those that models loaded from now on may use, in the whole process and for good. A function of
/// the same name in a model wins over it. Thread-safe. invalid_argument: it lacks a name, has not one of `run` and
/// `lower`, contradicts itself, or there is an operator of that name and domain already.
LATHE_API Result<void> try_register_operator(CustomOperator op) noexcept;

#if defined(__cpp_exceptions)
inline void register_operator(CustomOperator op) { unwrap(try_register_operator(std::move(op))); }
#endif

}  // namespace lathe
