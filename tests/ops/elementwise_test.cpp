// Pointwise operators: values checked by hand, and what they refuse.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Arithmetic, Broadcasts) {
  const Tensor a = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = floats({10, 20, 30});
  const Tensor column = floats({100, 200}, {2, 1});
  expect_tensor(run("Add", {a, row}), DType::f32, {2, 3}, {11, 22, 33, 14, 25, 36});
  expect_tensor(run("Sub", {column, a}), DType::f32, {2, 3}, {99, 98, 97, 196, 195, 194});
  expect_tensor(run("Mul", {row, column}), DType::f32, {2, 3}, {1000, 2000, 3000, 2000, 4000, 6000});
  expect_tensor(run("Sum", {a, row, column}), DType::f32, {2, 3}, {111, 122, 133, 214, 225, 236});
  expect_tensor(run("Mean", {row, column}), DType::f32, {2, 3}, {55, 60, 65, 105, 110, 115});
  expect_tensor(run("Max", {a}), DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
}

TEST(Arithmetic, KeepsEmptyTensors) {
  expect_tensor(run("Add", {Tensor(DType::f32, {0, 3}), floats({1, 2, 3})}), DType::f32, {0, 3}, {});
  expect_tensor(run("Mul", {Tensor(DType::f32, {0, 1}), Tensor(DType::f32, {1, 3})}), DType::f32, {0, 3}, {});
}

TEST(Arithmetic, DividesIntegersTowardZero) {
  expect_tensor(run("Div", {longs({7, -7, 7, -7}), longs({2, 2, -2, -2})}), DType::i64, {4}, {3, -3, -3, 3});
}

TEST(Arithmetic, ModFollowsTheDivisorAndFmodTheDividend) {
  const Tensor x = longs({-4, 7, 5, 4, -7, 8});
  const Tensor y = longs({2, -3, 8, -2, 3, 5});
  expect_tensor(run("Mod", {x, y}), DType::i64, {6}, {0, -2, 5, 0, 2, 3});
  expect_tensor(run("Mod", {x, y}, {{"fmod", std::int64_t{1}}}), DType::i64, {6}, {0, 1, 5, 0, -1, 3});
  const Tensor fx = floats({-4.3F, 7.2F, 5.0F, -7.2F, 3.0F, -3.0F});
  const Tensor fy = floats({2.1F, -3.4F, 8.0F, 3.4F, INFINITY, INFINITY});
  expect_tensor(run("Mod", {fx, fy}), DType::f32, {6}, {2.0, -3.0, 5.0, 3.0, 3.0, kInf}, 1e-5);
}

TEST(Arithmetic, ModOfZeroHasTheDivisorsSign) {
  const Tensor r = run("Mod", {floats({0.0F, -0.0F, 4.0F}), floats({-2.0F, 2.0F, -2.0F})});
  EXPECT_TRUE(std::signbit(r.number(0)));
  EXPECT_FALSE(std::signbit(r.number(1)));
  EXPECT_TRUE(std::signbit(r.number(2)));
}

TEST(Arithmetic, PowOfIntegersIsExactAndWraps) {
  const Tensor x = longs({3, -2, 0, 1, -1, -1, 2, 0, 5});
  const Tensor e = longs({39, 3, 0, -5, -3, 100, -1, 64, 2});
  const Tensor y = run("Pow", {x, e});
  EXPECT_EQ(y.integer(0), 4052555153018976267);
  expect_tensor(y, DType::i64, {9}, {4052555153018976267.0, -8, 1, 1, -1, 1, 0, 0, 25});
}

TEST(Arithmetic, PowKeepsTheSignOfLargeOddExponents) {
  expect_tensor(run("Pow", {floats({-2, -0.5F, -1, 2, -0.0F, -2}),
                            longs({INT32_MAX, INT32_MAX, -INT32_MAX, INT32_MAX, -INT32_MAX, 1 << 30})}),
                DType::f32, {6}, {-kInf, 0, -1, kInf, -kInf, kInf});
  EXPECT_TRUE(std::signbit(run("Pow", {floats({-0.5F}), longs({INT32_MAX})}).number(0)));
}

TEST(Arithmetic, PowMixesTypes) {
  expect_tensor(run("Pow", {longs({2, 3}), floats({0.5F, 2.0F})}), DType::i64, {2}, {1, 9});
  expect_tensor(run("Pow", {floats({2, 9}), longs({3, -1})}), DType::f32, {2}, {8, 1.0 / 9});
}

TEST(Arithmetic, MinAndMaxPropagateNan) {
  expect_tensor(run("Max", {floats({1, NAN, 3}), floats({NAN, 2, 1})}), DType::f32, {3}, {kNan, kNan, 3});
  expect_tensor(run("Min", {longs({1, 5}), longs({3, 2})}), DType::i64, {2}, {1, 2});
}

TEST(Arithmetic, RoundsNarrowFloatsOnce) {
  const Tensor x = floats({1.0F / 3}).cast(DType::f16);
  const Tensor y = run("Mul", {x, x});
  expect_tensor(y, DType::f16, {1}, numbers(floats({static_cast<float>(x.number(0) * x.number(0))}).cast(DType::f16)),
                0);
}

TEST(Arithmetic, Refuses) {
  EXPECT_NE(refusal("Add", {floats({1, 2}), floats({1, 2, 3})}).find("do not broadcast"), std::string::npos);
  EXPECT_NE(refusal("Add", {floats({1}), longs({1})}).find("one dtype"), std::string::npos);
  EXPECT_NE(refusal("Add", {bools({true}), bools({true})}).find("got bool"), std::string::npos);
  EXPECT_NE(refusal("Add", {floats({1})}).find("1 inputs, expected 2"), std::string::npos);
  EXPECT_NE(refusal("Sum", {longs({1})}).find("input 0 must be f16, bf16, f32 or f64, got i64"), std::string::npos);
  EXPECT_NE(refusal("Mod", {floats({1}), floats({1})}, {{"fmod", std::int64_t{2}}}).find("fmod"), std::string::npos);
}

struct UnaryCase {
  const char* op;
  std::vector<double> inputs;
  std::vector<double> outputs;
};

TEST(Math, MatchesTheFunctionsOfTheStandardLibrary) {
  const UnaryCase cases[] = {
      {"Neg", {1.5, -2}, {-1.5, 2}},
      {"Abs", {-1.5, 2}, {1.5, 2}},
      {"Sign", {-3, 0, 2}, {-1, 0, 1}},
      {"Floor", {-1.5, 1.5}, {-2, 1}},
      {"Ceil", {-1.5, 1.5}, {-1, 2}},
      {"Round", {0.5, 1.5, 2.5, -2.5, -0.9}, {0, 2, 2, -2, -1}},
      {"Sqrt", {4, -1}, {2, kNan}},
      {"Reciprocal", {4, 0}, {0.25, kInf}},
      {"Exp", {0, 1, -kInf}, {1, std::numbers::e, 0}},
      {"Log", {1, 0, -1}, {0, -kInf, kNan}},
      {"Sin", {1}, {std::sin(1)}},
      {"Cos", {1}, {std::cos(1)}},
      {"Tan", {1}, {std::tan(1)}},
      {"Asin", {0.5, 2}, {std::asin(0.5), kNan}},
      {"Acos", {0.5}, {std::acos(0.5)}},
      {"Atan", {0.5}, {std::atan(0.5)}},
      {"Sinh", {0.5}, {std::sinh(0.5)}},
      {"Cosh", {0.5}, {std::cosh(0.5)}},
      {"Tanh", {0.5, 100}, {std::tanh(0.5), 1}},
      {"Asinh", {0.5}, {std::asinh(0.5)}},
      {"Acosh", {1.5}, {std::acosh(1.5)}},
      {"Atanh", {0.5}, {std::atanh(0.5)}},
      {"Erf", {0.5}, {std::erf(0.5)}},
      {"Relu", {-1, 2, kNan}, {0, 2, kNan}},
      {"LeakyRelu", {-1, 2}, {-0.01F, 2}},
      {"Elu", {-1, 2}, {std::exp(-1) - 1, 2}},
      {"Celu", {-1, 2}, {std::exp(-1) - 1, 2}},
      {"Selu",
       {-1, 2},
       {double{1.0507009873554805F} * 1.6732632423543772F * (std::exp(-1) - 1), 2 * 1.0507009873554805F}},
      {"Sigmoid", {0, -1000, 1000}, {0.5, 0, 1}},
      {"HardSigmoid", {-10, 0, 1, 10}, {0, 0.5, double{0.2F} + 0.5, 1}},
      {"HardSwish", {-4, 1, 4}, {0, 4.0 / 6, 4}},
      {"Swish", {1}, {1 / (1 + std::exp(-1))}},
      {"Mish", {1}, {std::tanh(std::log1p(std::exp(1)))}},
      {"Softplus", {0, 1000, -30}, {std::log(2), 1000, std::log1p(std::exp(-30))}},
      {"Softsign", {-3}, {-0.75}},
      {"ThresholdedRelu", {0.5, 1, 1.5}, {0, 0, 1.5}},
      {"Gelu", {1}, {0.5 * (1 + std::erf(1 / std::numbers::sqrt2))}},
      {"Shrink", {-1, 0.25, 1}, {-1, 0, 1}},
  };
  for (const UnaryCase& c : cases) {
    SCOPED_TRACE(c.op);
    const Shape shape{static_cast<std::int64_t>(c.inputs.size())};
    const Tensor x = Tensor::from(c.inputs, shape);
    expect_tensor(run(c.op, {x}), DType::f64, shape, c.outputs, 1e-12);
    expect_tensor(run(c.op, {x.cast(DType::f32)}), DType::f32, shape, c.outputs, 1e-6);
    expect_tensor(run(c.op, {x.cast(DType::bf16)}), DType::bf16, shape, c.outputs, 1e-2);
    EXPECT_NE(refusal(c.op, {bools({true})}).find("got bool"), std::string::npos);
  }
}

TEST(Activation, SoftplusKeepsTinyResults) {
  EXPECT_NEAR(run("Softplus", {floats({-20})}).number(0) / std::exp(-20), 1, 1e-6);
}

TEST(Activation, GeluByTanh) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 0.044715);
  expect_tensor(run("Gelu", {floats({1})}, {{"approximate", "tanh"}}), DType::f32, {1}, {0.5 * (1 + std::tanh(inner))});
  EXPECT_NE(refusal("Gelu", {floats({1})}, {{"approximate", "fast"}}).find("none or tanh"), std::string::npos);
}

TEST(Activation, PReluBroadcastsItsSlopeOneWay) {
  expect_tensor(run("PRelu", {floats({-1, 2, -3, 4}, {2, 2}), floats({0.5F, 0.1F})}), DType::f32, {2, 2},
                {-0.5, 2, -1.5, 4});
  EXPECT_NE(refusal("PRelu", {floats({1, 2}), floats({1, 2}, {2, 1})}).find("broadcast"), std::string::npos);
}

TEST(Activation, ShrinkTakesIntegers) {
  expect_tensor(run("Shrink", {longs({-3, 0, 3})}, {{"bias", 1.0}, {"lambd", 1.5}}), DType::i64, {3}, {-2, 0, 2});
}

TEST(Logic, ComparesEveryNumericType) {
  for (DType dtype : {DType::f64, DType::f16, DType::i8, DType::u8, DType::u64, DType::i32}) {
    const Tensor a = longs({1, 2, 3}).cast(dtype);
    const Tensor b = longs({2, 2, 2}).cast(dtype);
    expect_tensor(run("Less", {a, b}), DType::boolean, {3}, {1, 0, 0});
    expect_tensor(run("LessOrEqual", {a, b}), DType::boolean, {3}, {1, 1, 0});
    expect_tensor(run("Greater", {a, b}), DType::boolean, {3}, {0, 0, 1});
    expect_tensor(run("GreaterOrEqual", {a, b}), DType::boolean, {3}, {0, 1, 1});
    expect_tensor(run("Equal", {a, b}), DType::boolean, {3}, {0, 1, 0});
  }
  expect_tensor(run("Equal", {floats({NAN}), floats({NAN})}), DType::boolean, {1}, {0});
}

TEST(Logic, CombinesBooleans) {
  const Tensor a = bools({true, true, false, false});
  const Tensor b = bools({true, false, true, false});
  expect_tensor(run("And", {a, b}), DType::boolean, {4}, {1, 0, 0, 0});
  expect_tensor(run("Or", {a, b}), DType::boolean, {4}, {1, 1, 1, 0});
  expect_tensor(run("Xor", {a, b}), DType::boolean, {4}, {0, 1, 1, 0});
  expect_tensor(run("Not", {a}), DType::boolean, {4}, {0, 0, 1, 1});
  EXPECT_NE(refusal("And", {floats({1}), floats({1})}).find("must be bool"), std::string::npos);
}

TEST(Logic, WorksOnBits) {
  const Tensor a = longs({12, -1}).cast(DType::i32);
  const Tensor b = longs({10, 5}).cast(DType::i32);
  expect_tensor(run("BitwiseAnd", {a, b}), DType::i32, {2}, {8, 5});
  expect_tensor(run("BitwiseOr", {a, b}), DType::i32, {2}, {14, -1});
  expect_tensor(run("BitwiseXor", {a, b}), DType::i32, {2}, {6, -6});
  expect_tensor(run("BitwiseNot", {a}), DType::i32, {2}, {-13, 0});
}

TEST(Logic, ShiftsBeyondTheWidthLeaveTheFill) {
  const Tensor x = longs({-8, 8, 1, -1}).cast(DType::i8);
  const Tensor y = longs({1, -1, 9, 8}).cast(DType::i8);
  expect_tensor(run("BitShift", {x, y}, {{"direction", "RIGHT"}}), DType::i8, {4}, {-4, 0, 0, -1});
  expect_tensor(run("BitShift", {x, y}, {{"direction", "LEFT"}}), DType::i8, {4}, {-16, 0, 0, 0});
  const Tensor u = longs({200, 200}).cast(DType::u8);
  expect_tensor(run("BitShift", {u, longs({1, 8}).cast(DType::u8)}, {{"direction", "LEFT"}}), DType::u8, {2}, {144, 0});
  EXPECT_NE(refusal("BitShift", {x, y}, {{"direction", "UP"}}).find("LEFT or RIGHT"), std::string::npos);
}

TEST(Logic, FindsInfinitiesBySign) {
  const Tensor x = floats({-INFINITY, 1, INFINITY, NAN});
  expect_tensor(run("IsInf", {x}), DType::boolean, {4}, {1, 0, 1, 0});
  expect_tensor(run("IsInf", {x}, {{"detect_negative", std::int64_t{0}}}), DType::boolean, {4}, {0, 0, 1, 0});
  expect_tensor(run("IsInf", {x}, {{"detect_positive", std::int64_t{0}}}), DType::boolean, {4}, {1, 0, 0, 0});
  expect_tensor(run("IsNaN", {x}), DType::boolean, {4}, {0, 0, 0, 1});
}

TEST(Logic, WhereBroadcastsAllThree) {
  expect_tensor(run("Where", {bools({true, false}), floats({1, 2}, {2, 1}), floats({9})}), DType::f32, {2, 2},
                {1, 9, 2, 9});
  EXPECT_NE(refusal("Where", {bools({true}), floats({1}), longs({1})}).find("one dtype"), std::string::npos);
}

TEST(Logic, ClipTakesEitherBound) {
  const Tensor x = floats({-2, 0, 2, NAN});
  expect_tensor(run("Clip", {x, Tensor::scalar(-1.0F), Tensor::scalar(1.0F)}), DType::f32, {4}, {-1, 0, 1, kNan});
  expect_tensor(run("Clip", {x, Tensor(), Tensor::scalar(1.0F)}), DType::f32, {4}, {-2, 0, 1, kNan});
  expect_tensor(run("Clip", {x}), DType::f32, {4}, {-2, 0, 2, kNan});
  expect_tensor(run("Clip", {x, Tensor::scalar(2.0F), Tensor::scalar(1.0F)}), DType::f32, {4}, {1, 1, 1, kNan});
  EXPECT_NE(refusal("Clip", {x, floats({1, 2})}).find("must be a scalar"), std::string::npos);
}

TEST(Cast, ConvertsNumbers) {
  const auto to = [](DType dtype) { return Attributes{{"to", static_cast<std::int64_t>(dtype)}}; };
  expect_tensor(run("Cast", {floats({1.9F, -1.9F, 0})}, to(DType::i32)), DType::i32, {3}, {1, -1, 0});
  expect_tensor(run("Cast", {floats({0.5F, 0, NAN})}, to(DType::boolean)), DType::boolean, {3}, {1, 0, 1});
  expect_tensor(run("Cast", {longs({200, -1})}, to(DType::i8)), DType::i8, {2}, {-56, -1});
  expect_tensor(run("Cast", {floats({1e6F})}, to(DType::f16)), DType::f16, {1}, {kInf});
  expect_tensor(run("Cast", {floats({1e6F})}, to(DType::f8e4m3fn)), DType::f8e4m3fn, {1}, {448});
  expect_tensor(run("CastLike", {floats({2.5F}), longs({0})}), DType::i64, {1}, {2});
  EXPECT_NE(refusal("Cast", {floats({1})}, {{"to", std::int64_t{99}}}).find("no dtype"), std::string::npos);
}

TEST(Cast, Float8WithoutSaturation) {
  const Attributes attributes{{"to", static_cast<std::int64_t>(DType::f8e5m2)}, {"saturate", std::int64_t{0}}};
  expect_tensor(run("Cast", {floats({1e9F, -1e9F, 1})}, attributes), DType::f8e5m2, {3}, {kInf, -kInf, 1});
}

TEST(Cast, ReadsAndWritesText) {
  const Attributes to_f32{{"to", static_cast<std::int64_t>(DType::f32)}};
  const Attributes to_text{{"to", static_cast<std::int64_t>(DType::string)}};
  expect_tensor(run("Cast", {texts({"3.14", "1e-5", "+INF", "-inf", "NaN"}, {5})}, to_f32), DType::f32, {5},
                {3.14, 1e-5, kInf, -kInf, kNan});
  const Tensor text = run("Cast", {floats({0.1F, 2, -INFINITY})}, to_text);
  EXPECT_EQ(text.view<std::string>()[0], "0.1");
  EXPECT_EQ(text.view<std::string>()[1], "2");
  EXPECT_EQ(text.view<std::string>()[2], "-INF");
  EXPECT_NE(refusal("Cast", {texts({"word"}, {1})}, to_f32).find("is not a number"), std::string::npos);
}

TEST(Cast, BitCastKeepsTheBits) {
  expect_tensor(run("BitCast", {floats({1})}, {{"to", static_cast<std::int64_t>(DType::i32)}}), DType::i32, {1},
                {0x3F800000});
  EXPECT_NE(refusal("BitCast", {floats({1})}, {{"to", static_cast<std::int64_t>(DType::i64)}}).find("bits"),
            std::string::npos);
}

TEST(Dropout, IsIdentityOutsideTraining) {
  const std::vector<Value> out = run_op("Dropout", {floats({1, 2})}, {}, 2);
  expect_tensor(out[0].tensor(), DType::f32, {2}, {1, 2});
  expect_tensor(out[1].tensor(), DType::boolean, {2}, {1, 1});
}

TEST(Dropout, TrainingDropsAndScales) {
  const Tensor x = Tensor::from(std::vector<float>(1000, 1.0F), {1000});
  const std::vector<Value> out = run_op("Dropout", {x, Tensor::scalar(0.5F), Tensor::scalar(true)}, {}, 2);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const bool keep = out[1].tensor().integer(i) != 0;
    kept += keep ? 1 : 0;
    EXPECT_EQ(out[0].tensor().number(i), keep ? 2.0 : 0.0);
  }
  EXPECT_GT(kept, 300);
  EXPECT_LT(kept, 700);
}

}  // namespace
}  // namespace lathe::ops
