// Sequences, optionals, Einsum and random values.
#include <set>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

using Ints = std::vector<std::int64_t>;

/// The outputs of an operator on values of any kind.
std::vector<Value> run_values(std::string_view name, const std::vector<Value>& inputs, Attributes attributes = {}) {
  Node node;
  node.op = find_operator(name);
  node.name = "n";
  node.attributes = std::move(attributes);
  for (std::size_t i = 0; i < inputs.size(); ++i) node.inputs.push_back(static_cast<ValueId>(i));
  node.outputs = {static_cast<ValueId>(inputs.size())};
  check_schema(node);
  return evaluate_node(node, inputs);
}

TEST(Sequence, GrowsAndShrinks) {
  Value s = run_values("SequenceConstruct", {floats({1}), floats({2, 3})})[0];
  s = run_values("SequenceInsert", {s, floats({9}), longs({-1}, {})})[0];
  ASSERT_EQ(s.sequence().size(), 3U);
  expect_tensor(run_values("SequenceAt", {s, longs({1}, {})})[0], DType::f32, {1}, {9});
  expect_tensor(run_values("SequenceAt", {s, longs({-1}, {})})[0], DType::f32, {2}, {2, 3});
  s = run_values("SequenceErase", {s, longs({0}, {})})[0];
  expect_tensor(run_values("SequenceLength", {s})[0], DType::i64, {}, {2});
  EXPECT_TRUE(run_values("SequenceEmpty", {})[0].sequence().empty());
  EXPECT_THROW(run_values("SequenceAt", {s, longs({2}, {})}), Failure);
}

TEST(Sequence, SplitsAndJoins) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {3, 2});
  const Value rows = run_values("SplitToSequence", {x}, {{"keepdims", std::int64_t{0}}})[0];
  ASSERT_EQ(rows.sequence().size(), 3U);
  expect_tensor(rows.sequence()[1], DType::f32, {2}, {3, 4});
  const Value uneven = run_values("SplitToSequence", {x, longs({2}, {})})[0];
  expect_tensor(uneven.sequence()[1], DType::f32, {1, 2}, {5, 6});
  expect_tensor(run_values("ConcatFromSequence", {uneven}, {{"axis", std::int64_t{0}}})[0], DType::f32, {3, 2},
                {1, 2, 3, 4, 5, 6});
  expect_tensor(run_values("ConcatFromSequence", {rows}, {{"axis", std::int64_t{1}}, {"new_axis", std::int64_t{1}}})[0],
                DType::f32, {2, 3}, {1, 3, 5, 2, 4, 6});
  EXPECT_THROW(run_values("SplitToSequence", {x, longs({1, 1})}), Failure);
}

TEST(Optional, HoldsOrIsEmpty) {
  const Value full = run_values("Optional", {floats({4})})[0];
  expect_tensor(run_values("OptionalHasElement", {full})[0], DType::boolean, {}, {1});
  expect_tensor(run_values("OptionalGetElement", {full})[0], DType::f32, {1}, {4});
  const Value empty = Optional();
  expect_tensor(run_values("OptionalHasElement", {empty})[0], DType::boolean, {}, {0});
  EXPECT_THROW(run_values("OptionalGetElement", {empty}), Failure);
}

Tensor einsum(std::string equation, const std::vector<Tensor>& inputs) {
  return run("Einsum", inputs, {{"equation", std::move(equation)}});
}

TEST(Einsum, SaysTheUsualProducts) {
  const Tensor a = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = floats({1, 0, 0, 1, 1, 1}, {3, 2});
  expect_tensor(einsum("ij,jk->ik", {a, b}), DType::f32, {2, 2}, {4, 5, 10, 11});
  expect_tensor(einsum("ij,jk", {a, b}), DType::f32, {2, 2}, {4, 5, 10, 11});
  expect_tensor(einsum("ij,jk->ki", {a, b}), DType::f32, {2, 2}, {4, 10, 5, 11});
  expect_tensor(einsum("ij->ji", {a}), DType::f32, {3, 2}, {1, 4, 2, 5, 3, 6});
  expect_tensor(einsum("ij->", {a}), DType::f32, {}, {21});
  expect_tensor(einsum("i,j->ij", {floats({1, 2}), floats({3, 4})}), DType::f32, {2, 2}, {3, 4, 6, 8});
  expect_tensor(einsum("ii->i", {floats({1, 2, 3, 4}, {2, 2})}), DType::f32, {2}, {1, 4});
  expect_tensor(einsum("ij,ij->i", {a, a}), DType::f32, {2}, {14, 77});
  expect_tensor(einsum("...ij,...jk->...ik", {run("Unsqueeze", {a, longs({0})}), b}), DType::f32, {1, 2, 2},
                {4, 5, 10, 11});
  expect_tensor(einsum("ij,jk,k->i", {a, b, floats({1, 10})}), DType::f32, {2}, {54, 120});
  expect_tensor(einsum("abc,cbd->ad", {a.reshaped({1, 2, 3}), b.reshaped({3, 2, 1})}), DType::f32, {1, 1},
                {1 + 0 + 3 + 0 + 5 + 6});
  expect_tensor(einsum("ij,jk->ik", {a.cast(DType::i8), b.cast(DType::i8)}), DType::i8, {2, 2}, {4, 5, 10, 11});
}

TEST(Einsum, RefusesWhatDoesNotFit) {
  const Tensor a(DType::f32, {2, 3});
  EXPECT_NE(refusal("Einsum", {a, a}, {{"equation", "ij,jk->ik"}}).find("label 'j' has extents 3 and 2"),
            std::string::npos);
  EXPECT_NE(refusal("Einsum", {a}, {{"equation", "ijk->i"}}).find("does not fit input 0 of rank 2"), std::string::npos);
  EXPECT_NE(refusal("Einsum", {a}, {{"equation", "ij,jk->ik"}}).find("2 terms for 1 inputs"), std::string::npos);
  EXPECT_NE(refusal("Einsum", {a}, {{"equation", "ij->x"}}).find("must appear in a term"), std::string::npos);
}

TEST(Random, FollowsItsSeed) {
  const Attributes a = {{"shape", Ints{1000}}, {"seed", 7.0}, {"low", -1.0}, {"high", 3.0}};
  const Tensor x = run("RandomUniform", {}, a);
  EXPECT_EQ(numbers(x), numbers(run("RandomUniform", {}, a)));
  const std::vector<double> values = numbers(x);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
  EXPECT_NE(numbers(run("RandomUniform", {}, {{"shape", Ints{4}}})),
            numbers(run("RandomUniform", {}, {{"shape", Ints{4}}})));
  double sum = 0, squares = 0;
  for (double v :
       numbers(run("RandomNormal", {}, {{"shape", Ints{10000}}, {"seed", 1.0}, {"mean", 5.0}, {"scale", 2.0}}))) {
    sum += v;
    squares += (v - 5) * (v - 5);
  }
  EXPECT_NEAR(sum / 10000, 5, 0.1);
  EXPECT_NEAR(squares / 10000, 4, 0.2);
}

TEST(Random, DrawsByProbability) {
  const auto draws =
      numbers(run("Multinomial", {floats({0, -100, 0}, {1, 3})}, {{"sample_size", std::int64_t{1000}}, {"seed", 3.0}}));
  EXPECT_EQ(std::set<double>(draws.begin(), draws.end()), (std::set<double>{0, 2}));
  expect_tensor(run("Bernoulli", {floats({0, 1, 1})}), DType::f32, {3}, {0, 1, 1});
}

}  // namespace
}  // namespace lathe::ops
