// Running one operator on given tensors by its definition: what the tests of operators are written with.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "ops/ir/evaluate.h"

namespace lathe::ops {

/// The outputs of operator `name` ("Op" or "domain::Op"); undefined tensors are inputs left out.
inline std::vector<Value> run_op(std::string_view name, const std::vector<Tensor>& inputs, Attributes attributes = {},
                                 int outputs = 1) {
  const auto [domain, base] = split_name(name);
  const OpDef* op = find_operator(base, domain);
  if (!op) fail(ErrorCode::unsupported, "operator {} does not exist", name);
  Node node;
  node.op = op;
  node.name = "n";
  node.attributes = std::move(attributes);
  std::vector<Value> values;
  for (const Tensor& t : inputs) {
    node.inputs.push_back(t.defined() ? static_cast<ValueId>(node.inputs.size()) : kNone);
    values.emplace_back(t);
  }
  for (int i = 0; i < outputs; ++i) node.outputs.push_back(static_cast<ValueId>(inputs.size()) + i);
  check_schema(node);
  return evaluate_node(node, values);
}

/// The only output of an operator.
inline Tensor run(std::string_view name, const std::vector<Tensor>& inputs, Attributes attributes = {}) {
  return run_op(name, inputs, std::move(attributes)).front().tensor();
}

/// The message with which an operator refuses its inputs; empty where it does not.
inline std::string refusal(std::string_view name, const std::vector<Tensor>& inputs, Attributes attributes = {},
                           int outputs = 1) {
  try {
    run_op(name, inputs, std::move(attributes), outputs);
  } catch (const Failure& failure) {
    return failure.error.message;
  }
  return {};
}

inline Tensor floats(std::initializer_list<float> values, const Shape& shape) { return Tensor::from(values, shape); }
inline Tensor floats(std::initializer_list<float> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor longs(std::initializer_list<std::int64_t> values, const Shape& shape) {
  return Tensor::from(values, shape);
}
inline Tensor longs(std::initializer_list<std::int64_t> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor bools(std::initializer_list<bool> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor texts(std::initializer_list<std::string> values, const Shape& shape) {
  return Tensor::from(values, shape);
}

/// The elements as doubles, whatever the dtype.
inline std::vector<double> numbers(const Tensor& t) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < t.size(); ++i) result.push_back(t.number(i));
  return result;
}

/// Expects a tensor's dtype, shape and elements, these to a relative and absolute tolerance; NaN equals NaN.
inline void expect_tensor(const Tensor& t, DType dtype, const Shape& shape, const std::vector<double>& expected,
                          double tolerance = 1e-6) {
  EXPECT_EQ(t.dtype().name(), dtype.name());
  EXPECT_EQ(t.shape().to_string(), shape.to_string());
  const std::vector<double> actual = numbers(t);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
    }
  }
}

}  // namespace lathe::ops
