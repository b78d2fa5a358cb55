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

TEST(Contrib, AttentionsRefuseWhatDoesNotFit) {
  const Attributes two = {{"num_heads", std::int64_t{2}}};
  const auto with = [](Attributes attributes, const char* name, std::int64_t value) {
    attributes.set(name, value);
    return attributes;
  };
  const auto i32 = [](const Shape& shape) { return Tensor(DType::i32, shape); };
  const Tensor q = f32({2, 3, 8}), k = f32({2, 5, 8}), none;
  expect_refused("MultiHeadAttention", {f32({2, 3, 7}), k, k}, two, "a multiple of 2 heads");
  expect_refused("MultiHeadAttention", {q}, two, "needs a key");
  expect_refused("MultiHeadAttention", {q, k}, two, "needs a value");
  expect_refused("MultiHeadAttention", {q, k, k}, {{"num_heads", std::int64_t{0}}}, "num_heads must be positive");
  expect_refused("MultiHeadAttention", {q, f32({2, 5, 6}), k}, two, "do not fit a query");
  expect_refused("MultiHeadAttention", {q, k, k, f32({23})}, two, "the bias must have shape 24");
  expect_refused("MultiHeadAttention", {q, k, k, none, i32({2, 4})}, two, "the mask, input 4, of shape 2x4");
  expect_refused("MultiHeadAttention", {q, k, k, none, f32({2, 5})}, two, "must be i32, got f32");
  expect_refused("MultiHeadAttention", {q, k, k, none, none, f32({2, 2, 3, 4})}, two, "the attention bias, input 5");
  expect_refused("MultiHeadAttention", {q, k, k, none, none, none, f32({2, 2, 4, 4})}, two, "given together");
  expect_refused("MultiHeadAttention", {q, k, k, none, none, none, f32({2, 2, 4, 4}), f32({2, 2, 4, 5})}, two,
                 "past_key and past_value must be 2x2x(length)x4");
  expect_refused("MultiHeadAttention", {q, k, k, none, none, none, none, none, i32({1})}, two, "past_sequence_length");
  expect_refused("MultiHeadAttention", {q, k, k}, with(two, "unidirectional", 1),
                 "as many keys as queries, got 5 and 3");
  const Tensor x = f32({2, 3, 5}), w = f32({5, 24});
  expect_refused("Attention", {x, f32({4, 24})}, two, "features x columns");
  expect_refused("Attention", {x, f32({5, 25})}, two, "must be q's, k's and v's");
  expect_refused("Attention", {x, w, f32({8})}, two, "one value per column");
  expect_refused("Attention", {x, w}, {{"num_heads", std::int64_t{3}}}, "multiples of 3 heads, got 8");
  expect_refused("Attention", {x, w}, with(two, "do_rotary", 1), "do_rotary is not supported");
  expect_refused("Attention", {x, w, none, none, f32({2, 2, 2, 4, 4})}, with(two, "past_present_share_buffer", 1),
                 "past_present_share_buffer is not supported");
  expect_refused("Attention", {x, w, none, none, f32({2, 2, 3, 4, 4})}, two, "the past must be f32 of shape 2x2x2");
  expect_refused("Attention", {x, w, none, i32({2, 1, 4, 4})}, with(two, "unidirectional", 1), "exclude each other");
  Attributes sizes = two;
  sizes.set("qkv_hidden_sizes", std::vector<std::int64_t>{8, 8, 10});
  expect_refused("Attention", {x, w}, sizes, "24 columns of the weights are not 8 + 8 + 10");
  expect_refused("QAttention", {u8({2, 3, 5}), u8({5, 24}), f32({24}), f32({2}), scale()}, two, "must be one f32");
  expect_refused("QAttention", {u8({2, 3, 5}), u8({5, 24}), f32({24}), scale(), f32({3})}, two, "one per column");
}

TEST(Contrib, GroupQueryAttentionRefusesWhatDoesNotFit) {
  const auto refused = [](const std::vector<std::pair<std::size_t, Tensor>>& changed, const Attributes& more,
                          std::string_view reason, int outputs = 3) {
    std::vector<Tensor> inputs(17);
    for (const auto& [i, t] : std::vector<std::pair<std::size_t, Tensor>>{{0, f32({2, 3, 32})},
                                                                          {1, f32({2, 3, 16})},
                                                                          {2, f32({2, 3, 16})},
                                                                          {5, Tensor(DType::i32, {2})},
                                                                          {6, Tensor::scalar(std::int32_t{3})}}) {
      inputs[i] = t;
    }
    for (const auto& [i, t] : changed) inputs[i] = t;
    while (!inputs.back().defined()) inputs.pop_back();
    Attributes attributes = {{"num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}};
    for (const auto& [name, value] : more) attributes.set(name, value);
    const std::string said = refusal("com.microsoft::GroupQueryAttention", inputs, attributes, outputs);
    EXPECT_NE(said.find("GroupQueryAttention 'n': "), std::string::npos) << said;
    EXPECT_NE(said.find(reason), std::string::npos) << said;
  };
  const Tensor past = f32({2, 2, 4, 8});
  refused({}, {{"kv_num_heads", std::int64_t{3}}}, "a multiple of kv_num_heads, got 4 and 3");
  refused({{5, Tensor()}}, {}, "input 5 is required");
  refused({{2, Tensor()}}, {}, "key and value must be given together");
  refused({{0, f32({2, 3, 30})}}, {}, "a multiple of 4 heads");
  refused({{1, f32({2, 3, 8})}}, {}, "key and value must have shape 2x3x16");
  refused({{1, f32({2, 2, 16})}, {2, f32({2, 2, 16})}}, {},
          "as many keys as queries, or none beside a past, got 2 and 3");
  refused({{3, past}}, {}, "past_key and past_value must be given together");
  refused({{3, past}, {4, f32({2, 2, 4, 6})}}, {}, "past_key and past_value must be f32[2,2,4,8]");
  refused({{5, Tensor(DType::i32, {3})}}, {}, "input 5 must be 2 i32");
  refused({{6, Tensor(DType::i32, {2})}}, {}, "total_sequence_length must be one value");
  refused({}, {{"do_rotary", std::int64_t{1}}}, "do_rotary needs cos_cache and sin_cache");
  refused({{7, f32({9, 5})}, {8, f32({9, 5})}}, {}, "up to 4 columns");
  refused({{9, Tensor(DType::i64, {1, 3})}}, {}, "position_ids must be i64 of shape 2x3");
  refused({{10, f32({2, 4, 3, 4})}}, {}, "attention_bias of shape 2x4x3x4");
  refused({{11, f32({2})}}, {}, "head_sink must have shape 4");
  refused({{14, f32({8})}}, {}, "q_norm_weight and k_norm_weight must be given together");
  refused({{16, Tensor(DType::i32, {2})}}, {}, "query_seqlens needs causal, keys and a past");
  refused({}, {{"causal", std::int64_t{0}}, {"local_window_size", std::int64_t{2}}}, "positive with causal");
  refused({}, {{"qk_output", std::int64_t{1}}}, "qk_output 1 and output_qk do not go together");
  refused({}, {{"sliding_window_cache", std::int64_t{1}}, {"local_window_size", std::int64_t{2}}},
          "needs keys and a past");
  refused({}, {{"k_quant_type", "PER_TENSOR"}}, "k_quant_type PER_TENSOR and v_quant_type NONE");
  const Attributes tensor = {{"k_quant_type", "PER_TENSOR"}, {"v_quant_type", "PER_TENSOR"}};
  refused({}, tensor, "kv_cache_bit_width must be 8");
  Attributes bits = tensor;
  bits.set("kv_cache_bit_width", std::int64_t{8});
  refused({}, bits, "input 12, the scale of a PER_TENSOR cache, must be 1 f32, got none");
  const std::string said = refusal("com.microsoft::GroupQueryAttention",
                                   {f32({2, 3, 32}), f32({2, 3, 16}), f32({2, 3, 16}), past, past,
                                    Tensor::from<std::int32_t>({9, 9}, {2}), Tensor::scalar(std::int32_t{10})},
                                   {{"num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}}, 3);
  EXPECT_NE(said.find("out of range"), std::string::npos) << "keys that the past does not hold: " << said;
}

TEST(Contrib, RotaryEmbeddingRefusesWhatDoesNotFit) {
  const Tensor x = f32({2, 3, 16}), angles = f32({10, 4}), base(DType::i64, {1});
  expect_refused("RotaryEmbedding", {x, base, angles, f32({10, 3})}, {}, "matrices of one shape");
  expect_refused("RotaryEmbedding", {x, base, angles, angles}, {{"rotary_embedding_dim", std::int64_t{8}}},
                 "num_heads must be stated");
  expect_refused("RotaryEmbedding", {x, base, angles, angles}, {{"num_heads", std::int64_t{4}}}, "do not fit 4 heads");
  expect_refused("RotaryEmbedding", {x, Tensor(DType::i64, {2, 2}), angles, angles}, {}, "position_ids must be i64");
}

TEST(Contrib, BlocksOfFewBitsAreRefusedWhereTheyDoNotFit) {
  const auto form = [](std::int64_t bits, std::int64_t size, std::int64_t prepacked = 0) {
    return Attributes{{"K", std::int64_t{20}},
                      {"N", std::int64_t{3}},
                      {"bits", bits},
                      {"block_size", size},
                      {"weight_prepacked", prepacked}};
  };
  const Tensor a = f32({2, 20}), w = u8({3, 2, 8}), scales = f32({3, 2}), none;
  expect_refused("MatMulNBits", {a, w, scales}, form(3, 16), "bits must be 2, 4 or 8, got 3");
  expect_refused("MatMulNBits", {a, w, scales}, form(4, 8), "block_size must be a power of 2 from 16 to 2^30, got 8");
  expect_refused("MatMulNBits", {a, w, scales}, form(4, 16, 1), "weight_prepacked 1 is not supported");
  expect_refused("MatMulNBits", {f32({2, 19}), w, scales}, form(4, 16), "A must have 20 columns");
  expect_refused("MatMulNBits", {a, u8({3, 2, 9}), scales}, form(4, 16), "B must be u8 of shape 3x2x8");
  expect_refused("MatMulNBits", {a, w, f32({3, 3})}, form(4, 16), "input 2 must have shape 3x2");
  expect_refused("MatMulNBits", {a, w, scales, u8({3, 2})}, form(4, 16), "input 3 must have shape 3x1");
  expect_refused("MatMulNBits", {a, w, scales, none, Tensor(DType::i32, {19})}, form(4, 16), "g_idx must be i32");
  expect_refused("MatMulNBits", {a, w, scales, none, none, f32({2})}, form(4, 16), "the bias must have shape 3");
  const auto gather = [](std::int64_t bits, std::int64_t size, std::int64_t gathered, std::int64_t quantized) {
    return Attributes{{"bits", bits}, {"block_size", size}, {"gather_axis", gathered}, {"quantize_axis", quantized}};
  };
  const Tensor data = u8({5, 16}), rows(DType::i64, {2});
  expect_refused("GatherBlockQuantized", {data, rows, f32({5, 1})}, gather(3, 16, 0, 1), "bits must be 2, 4 or 8");
  expect_refused("GatherBlockQuantized", {data, rows, f32({5, 1})}, gather(8, 0, 0, 1), "block_size must be a power");
  expect_refused("GatherBlockQuantized", {data, rows, f32({5, 1})}, gather(8, 16, 1, 1), "along its first axis");
  expect_refused("GatherBlockQuantized", {data, rows, f32({5, 1})}, gather(4, 16, 0, 1), "does not fit blocks of 16");
  expect_refused("GatherBlockQuantized", {data, rows, f32({5, 1}), u8({5, 2})}, gather(8, 16, 0, 1),
                 "input 3 of shape");
  expect_refused("GatherBlockQuantized", {f32({5, 16}), rows, f32({5, 1})}, gather(8, 16, 0, 1),
                 "input 0 must be f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1, i4, u8 or u4");
}

TEST(Contrib, ProductsNameTheOperatorThatTheyAreSaidThrough) {
  const std::string said = refusal("com.microsoft::FusedMatMul", {f32({2, 3}), f32({4, 2})});
  EXPECT_NE(said.find("'n'"), std::string::npos) << said;
  EXPECT_NE(said.find("inner extents differ"), std::string::npos) << said;
}

}  // namespace
}  // namespace lathe::ops
