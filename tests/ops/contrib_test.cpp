// com.microsoft's operators: what they refuse. Their values are compared with ONNX Runtime's by the suite
// (.cases/contrib).
#include <gtest/gtest.h>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

Tensor f32(const Shape& shape) { return {DType::f32, shape}; }
Tensor u8(const Shape& shape) { return {DType::u8, shape}; }
Tensor scale() { return Tensor::scalar(0.5F); }
Tensor zero() { return Tensor::scalar(std::uint8_t{3}); }

void expect_refused(std::string_view name, const std::vector<Tensor>& inputs, Attributes attributes,
                    std::string_view reason) {
  const std::string said = refusal("com.microsoft::" + std::string(name), inputs, std::move(attributes));
  EXPECT_NE(said.find(std::string(name) + " 'n'"), std::string::npos) << said;
  EXPECT_NE(said.find(reason), std::string::npos) << said;
}

TEST(Contrib, QuantizedOperatorsRefuseWhatDoesNotFit) {
  const Tensor x = u8({2, 3});
  expect_refused("QLinearAdd", {f32({2}), scale(), zero(), x, scale(), zero(), scale(), zero()}, {},
                 "must be i8 or u8, got f32");
  expect_refused("QLinearAdd", {x, f32({2}), zero(), x, scale(), zero(), scale(), zero()}, {},
                 "input 1 is a scale and must be one f32");
  expect_refused("QLinearMul", {x, scale(), zero(), u8({4}), scale(), zero(), scale(), zero()}, {}, "broadcast");
  expect_refused("QLinearSoftmax", {x, scale(), zero(), scale(), zero()},
                 {{"opset", std::int64_t{13}}, {"axis", std::int64_t{2}}}, "axis");
  expect_refused("QLinearConcat", {scale(), zero(), x, scale(), zero(), u8({3, 3}), scale(), zero()},
                 {{"axis", std::int64_t{1}}}, "must agree in all axes but 1");
  expect_refused("QLinearConcat", {scale(), zero(), x, scale(), zero(), x}, {{"axis", std::int64_t{1}}},
                 "three inputs per part, got 6");
  expect_refused("QLinearGlobalAveragePool", {x, scale(), zero(), scale(), zero()}, {}, "a spatial axis");
  expect_refused("QGemm", {x, scale(), zero(), u8({4, 2}), scale(), zero()}, {}, "inner extents differ");
  expect_refused("QGemm", {x, scale(), zero(), u8({3, 2}), f32({3}), zero()}, {}, "one per column");
}

TEST(Contrib, FusedOperatorsRefuseWhatDoesNotFit) {
  expect_refused("FusedGemm", {f32({2, 3}), f32({3, 4})}, {{"activation", "Cosine"}}, "activation Cosine is unknown");
  expect_refused("FusedConv", {f32({1, 1, 4, 4}), f32({1, 1, 3, 3})},
                 {{"activation", "Clip"}, {"activation_params", std::vector<double>{1}}},
                 "takes 2 activation_params, got 1");
  expect_refused("FusedConv", {f32({1, 1, 4, 4}), f32({1, 1, 3, 3}), Tensor(), f32({1, 1, 4, 4})}, {},
                 "Z must have shape");
  expect_refused("BiasGelu", {f32({2, 3}), f32({1, 3})}, {}, "one value per element of the last axis");
  expect_refused("SkipLayerNormalization", {f32({2, 3}), f32({3, 3}), f32({3})}, {},
                 "shapes 2x3 and 3x3 do not broadcast");
  expect_refused("EmbedLayerNormalization",
                 {Tensor(DType::i32, {1, 9}), Tensor(), f32({5, 4}), f32({7, 4}), Tensor(), f32({4}), f32({4})}, {},
                 "9 positions exceed the 7");
}

TEST(Contrib, ProductsNameTheOperatorThatTheyAreSaidThrough) {
  const std::string said = refusal("com.microsoft::FusedMatMul", {f32({2, 3}), f32({4, 2})});
  EXPECT_NE(said.find("'n'"), std::string::npos) << said;
  EXPECT_NE(said.find("inner extents differ"), std::string::npos) << said;
}

}  // namespace
}  // namespace lathe::ops
