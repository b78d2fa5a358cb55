// Every operator, used in any way: random attributes of its schema, random dtypes, shapes and values. It gives results
// of the types that it inferred, or an error that names the node.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "tests/fuzz/random.h"
#include "tests/ops/run_op.h"
#include "tests/support/rounds.h"

namespace lathe::ops {
namespace {

using fuzz::Random;

constexpr const char* kNode = "some node";
constexpr std::int64_t kMostElements = 1 << 16;  ///< of an output; larger ones are only inferred

/// An integer of [least, most].
int between(Random& random, int least, int most) {
  return least + static_cast<int>(random.below(static_cast<std::size_t>(most) - static_cast<std::size_t>(least) + 1));
}

template <class T, std::size_t N>
const T& one_of(Random& random, const T (&list)[N]) {
  return list[random.below(N)];
}

std::int64_t integer(Random& random) {
  constexpr std::int64_t kExtremes[] = {std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int32_t>::max(),
                                        std::numeric_limits<std::int32_t>::min(),
                                        1000000007,
                                        65536};
  if (random.one_in(25)) return one_of(random, kExtremes);
  return static_cast<std::int64_t>(random.below(9)) - 3;
}

double number(Random& random) {
  constexpr double kExtremes[] = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(), 1e300, -1e-300};
  if (random.one_in(20)) return one_of(random, kExtremes);
  return random.one_in(3) ? static_cast<double>(integer(random)) : 4 * random.unit() - 2;
}

/// Words that some attribute or other knows.
std::string word(Random& random) {
  constexpr const char* kWords[] = {"",
                                    "NOTSET",
                                    "SAME_UPPER",
                                    "SAME_LOWER",
                                    "VALID",
                                    "constant",
                                    "reflect",
                                    "edge",
                                    "wrap",
                                    "linear",
                                    "cubic",
                                    "nearest",
                                    "bilinear",
                                    "sum",
                                    "mean",
                                    "none",
                                    "add",
                                    "mul",
                                    "max",
                                    "min",
                                    "forward",
                                    "reverse",
                                    "bidirectional",
                                    "SOFTMAX",
                                    "LOGISTIC",
                                    "MIN",
                                    "RIGHT",
                                    "LEFT",
                                    "BRANCH_LEQ",
                                    "LEAF",
                                    "ij,jk->ik",
                                    "ij->ji",
                                    "...i->i",
                                    "ii",
                                    "DCR",
                                    "CRD",
                                    "output_half_pixel",
                                    "half_pixel",
                                    "align_corners",
                                    "a|b",
                                    "int64",
                                    "zeros",
                                    "\xff"};
  return one_of(random, kWords);
}

Shape shape(Random& random, int most_rank = 5) {
  Shape s;
  for (std::size_t rank = random.below(static_cast<std::size_t>(most_rank)); rank > 0; --rank)
    s.push_back(random.one_in(8) ? 0 : static_cast<std::int64_t>(1 + random.below(4)));
  return s;
}

DType dtype(Random& random) {
  if (random.one_in(2)) return random.one_in(2) ? DType::f32 : DType::i64;
  return static_cast<DType::Code>(1 + random.below(DType::kCount - 1));
}

Tensor tensor(Random& random, DType type, const Shape& s) {
  if (type == DType::string) {
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < s.elements(); ++i) texts.push_back(word(random));
    return Tensor::from(texts, s);
  }
  if (type.is_float() || type.is_complex()) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < s.elements(); ++i) values.push_back(number(random));
    const Tensor doubles = Tensor::from(values, s);
    return type.is_complex() ? Tensor(type, s) : doubles.cast(type);
  }
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < s.elements(); ++i) values.push_back(integer(random));
  return Tensor::from(values, s).cast(type);
}

AttrValue attribute(Random& random, AttrKind kind) {
  const std::size_t count = random.below(5);
  switch (kind) {
    case AttrKind::integer:
    case AttrKind::type:
      return random.one_in(5) ? static_cast<std::int64_t>(random.below(DType::kCount + 1)) : integer(random);
    case AttrKind::number:
      return number(random);
    case AttrKind::string:
      return word(random);
    case AttrKind::tensor:
      return tensor(random, dtype(random), shape(random, 3));
    case AttrKind::integers: {
      std::vector<std::int64_t> list(count);
      for (auto& v : list) v = integer(random);
      return list;
    }
    case AttrKind::numbers: {
      std::vector<double> list(count);
      for (auto& v : list) v = number(random);
      return list;
    }
    case AttrKind::strings: {
      std::vector<std::string> list(count);
      for (auto& v : list) v = word(random);
      return list;
    }
    case AttrKind::tensors: {
      std::vector<Tensor> list;
      for (std::size_t i = 0; i < count; ++i) list.push_back(tensor(random, dtype(random), shape(random, 3)));
      return list;
    }
  }
  return std::int64_t{0};
}

/// What other inputs look like beside a first of shape `base`: the same, one value per channel, a matrix's other
/// factor.
Shape related(Random& random, const Shape& base) {
  Shape s = base;
  const auto any = [&] {
    return base.rank() == 0 ? 1 : base[static_cast<int>(random.below(static_cast<std::size_t>(base.rank())))];
  };
  switch (random.below(7)) {
    case 0:
      return shape(random);
    case 1:
      return {any()};
    case 2:
      return base.rank() > 1 ? Shape{base[1]} : Shape{};
    case 3:
      if (base.rank() > 1) std::swap(s[base.rank() - 1], s[base.rank() - 2]);
      return s;
    case 4:
      if (base.rank() > 0) s[static_cast<int>(random.below(static_cast<std::size_t>(base.rank())))] = 1;
      return s;
    case 5:
      return {any(), any()};
    default:
      return base;
  }
}

struct Use {
  Node node;
  std::vector<Value> inputs;
};

Use use(Random& random, const OpDef& op) {
  Use made;
  made.node.op = &op;
  made.node.name = kNode;
  for (const Attribute& a : op.attributes) {
    if (a.required ? random.one_in(20) : !random.one_in(3)) continue;
    made.node.attributes.set(std::string(a.name), attribute(random, a.kind));
  }
  const DType common = dtype(random);
  const Shape base = shape(random, random.one_in(2) ? 5 : 7);
  const int most = std::min(op.inputs.most, op.inputs.least + 4);
  const int inputs = between(random, op.inputs.least, most);
  for (int i = 0; i < inputs; ++i) {
    if (i >= op.inputs.least && random.one_in(4)) {
      made.node.inputs.push_back(kNone);
      made.inputs.emplace_back();
      continue;
    }
    made.node.inputs.push_back(i);
    const bool is_shape = (op.shape_inputs >> static_cast<unsigned>(i)) & 1U;
    if (is_shape && !random.one_in(5)) {
      made.inputs.emplace_back(tensor(random, DType::i64, {static_cast<std::int64_t>(random.below(5))}));
    } else if (random.one_in(30)) {
      made.inputs.emplace_back(Sequence{tensor(random, common, base), tensor(random, common, base)});
    } else {
      made.inputs.emplace_back(
          tensor(random, random.one_in(4) ? dtype(random) : common, i == 0 ? base : related(random, base)));
    }
  }
  const int fewest = std::max(op.outputs.least, 1);
  const int outputs = between(random, fewest, std::min(op.outputs.most, fewest + 3));
  for (int o = 0; o < outputs; ++o) made.node.outputs.push_back(inputs + o);
  return made;
}

enum class Outcome { ran, refused, large };

struct Verdict {
  Outcome outcome;
  std::string fault;  ///< empty where nothing is wrong
};

std::string text(const Use& u) {
  std::string t;
  for (const Value& v : u.inputs) t += v.is_tensor() && !v.tensor().defined() ? " none" : " " + fact_of(v).to_string();
  return t;
}

Verdict verdict_of(const Use& u) {
  const Node& node = u.node;
  try {
    check_schema(node);
    Facts facts;
    std::vector<Fact> ins(u.inputs.size());
    std::vector<const Fact*> in_facts(u.inputs.size(), nullptr);
    std::vector<const Tensor*> values(u.inputs.size(), nullptr);
    for (std::size_t i = 0; i < u.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      ins[i] = fact_of(u.inputs[i]);
      in_facts[i] = &ins[i];
      if (u.inputs[i].is_tensor()) values[i] = &u.inputs[i].tensor();
    }
    if (!node.op->dynamic_output && node.op->infer) {
      facts = infer_node(node, in_facts, values);
      for (const Fact& f : facts) {
        if (f.is_tensor() && f.shape.elements() > kMostElements) return {Outcome::large, {}};
      }
    }
    const std::vector<Value> outputs = evaluate_node(node, u.inputs);
    for (std::size_t o = 0; o < facts.size() && o < outputs.size(); ++o) {
      if (!outputs[o].is_tensor() || !outputs[o].tensor().defined() || !facts[o].is_tensor()) continue;
      const Fact made = fact_of(outputs[o]);
      if (!made.same_type(facts[o]))
        return {Outcome::ran, fmt::format("output {} is {}, inferred {}", o, made.to_string(), facts[o].to_string())};
    }
    return {Outcome::ran, {}};
  } catch (const Failure& failure) {
    const Error& error = failure.error;
    if (error.code == ErrorCode::internal) return {Outcome::refused, "internal error: " + error.message};
    if (error.message.find(kNode) == std::string::npos) return {Outcome::refused, "names no node: " + error.message};
    return {Outcome::refused, {}};
  } catch (const std::bad_alloc&) {  // an intermediate result of an extreme size
    return {Outcome::large, {}};
  }
}

TEST(AnyUse, RunsOrNamesTheNode) {
  constexpr int kUses = test::rounds(1000);  // of each operator
  int uses = 0, ran = 0;
  std::string never;
  for (const OpDef* op : all_operators()) {
    if (op->region != Region::none || op->domain == "lathe") continue;  // helpers take what lowerings give them
    int good = 0;
    std::string faults;
    for (int i = 0; i < kUses; ++i, ++uses) {
      Random random(static_cast<std::uint64_t>(uses));
      const Use u = use(random, *op);
      const Verdict result = verdict_of(u);
      good += result.outcome == Outcome::ran ? 1 : 0;
      if (!result.fault.empty() && faults.size() < 1000) faults += fmt::format("\n  {} with{}", result.fault, text(u));
    }
    EXPECT_EQ(faults, "") << op->domain << "::" << op->name;
    if (good == 0) never += fmt::format(" {}", op->name);
    ran += good;
  }
  std::printf("%d uses, %d ran; no use ran of:%s\n", uses, ran, never.c_str());
  EXPECT_GT(ran, uses / 20);
}

// What random uses found.

TEST(AnyUse, PaddingOfWideElements) {
  const Tensor y = run("CenterCropPad", {texts({"a"}, {1}), longs({3})});
  EXPECT_EQ(y.view<std::string>()[0], "");
  EXPECT_EQ(y.view<std::string>()[1], "a");
  const double x[] = {1, 2};
  Tensor complex(DType::c128, {1});
  std::memcpy(complex.mutable_data(), x, sizeof(x));
  const Tensor z = run("CenterCropPad", {complex, longs({3})});
  ASSERT_EQ(z.shape(), Shape{3});
  const auto* parts = static_cast<const double*>(z.data());
  EXPECT_EQ(std::vector<double>(parts, parts + 6), (std::vector<double>{0, 0, 1, 2, 0, 0}));
}

TEST(AnyUse, WrongKindsAndDtypesAreNamed) {
  const auto expect_says = [](const std::string& said, std::string_view part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  expect_says(refusal("Bernoulli", {floats({0.5F})}, {{"dtype", std::int64_t{DType::string}}}),
              "Bernoulli 'n': dtype must be of real numbers or bool, got string");
  expect_says(refusal("ai.onnx.ml::TreeEnsembleRegressor", {floats({1}, {1, 1})},
                      {{"base_values_as_tensor", texts({"a"}, {1})}}),
              "base_values_as_tensor must be of floats, got string");
  expect_says(refusal("Compress", {Tensor(DType::u2, {1}), bools({true})}),
              "Compress 'n': input 0 must be anything but f4e2m1, i4, i2, u4 or u2, got u2");
  const Tensor byte = Tensor(DType::u8, {1, 1}), zero = Tensor::scalar(std::uint8_t{0}), one = Tensor::scalar(1.0F);
  expect_says(refusal("QLinearMatMul", {byte, floats({1, 1}), zero, byte, one, zero, one, zero}),
              "input 1 of shape 2 does not fit 1x1");
  Node node;
  node.op = find_operator("Relu");
  node.name = "n";
  node.inputs = {0}, node.outputs = {1};
  const Value sequence = Sequence{floats({1})};
  try {
    evaluate_node(node, {&sequence, 1});
    FAIL() << "a sequence was taken for a tensor";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.message, "Relu 'n': input 0 must be a tensor, got seq(f32)");
  }
}

TEST(AnyUse, OneImputedValueKeepsAScalarAScalar) {
  const Tensor y =
      run("ai.onnx.ml::Imputer", {Tensor::scalar(0.0F)}, {{"imputed_value_floats", std::vector<double>{5}}});
  expect_tensor(y, DType::f32, {}, {5});
}

}  // namespace
}  // namespace lathe::ops
