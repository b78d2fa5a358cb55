// Tensor data in every form that ONNX files hold it, sound and damaged.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "frontends/onnx/tensor_file.h"
#include "tests/frontends/import_text.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

using namespace onnx;
namespace fs = std::filesystem;
using frontends::onnx::read_value_proto;

NamedValue read(const Bytes& bytes, ValueInfo::Kind kind = ValueInfo::Kind::tensor) {
  return read_value_proto({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, kind);
}

Tensor read_tensor(const Bytes& bytes) { return read(bytes).value.tensor(); }

Error read_error(const Bytes& bytes, ValueInfo::Kind kind = ValueInfo::Kind::tensor) {
  try {
    read(bytes, kind);
  } catch (const Failure& failure) {
    return failure.error;
  }
  return {ErrorCode::internal, "no error"};
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.size(); ++i) out.push_back(t.number(i));
  return out;
}

TEST(OnnxTensor, NarrowTypesInInt32Data) {
  using V = std::vector<double>;
  for (bool packed : {true, false}) {
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::i8, {3}, {-1, 127, -128}, packed))), (V{-1, 127, -128}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::u8, {2}, {255, 0}, packed))), (V{255, 0}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::i16, {2}, {-32768, 5}, packed))), (V{-32768, 5}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::u16, {1}, {65535}, packed))), (V{65535}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::i32, {2}, {-7, 1 << 30}, packed))), (V{-7, 1 << 30}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::boolean, {3}, {0, 1, 2}, packed))), (V{0, 1, 1}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::f16, {2}, {0x3c00, 0xc000}, packed))), (V{1, -2}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::bf16, {2}, {0x3f80, 0xc000}, packed))), (V{1, -2}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::f8e4m3fn, {2}, {0x38, 0xc0}, packed))), (V{1, -2}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::f8e5m2, {1}, {0x3c}, packed))), (V{1}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::u4, {3}, {0xf1, 0x02}, packed))), (V{1, 15, 2}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::i4, {3}, {0xf1, 0x08}, packed))), (V{1, -1, -8}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::i2, {5}, {0xe4, 0x03}, packed))), (V{0, 1, -2, -1, -1}));
    EXPECT_EQ(numbers(read_tensor(tensor_int32("t", DType::f4e2m1, {2}, {0x92}, packed))), (V{1, -0.5}));
  }
}

Bytes with_field(DType dtype, const Ints& dims, const std::function<void(protozero::pbf_writer&)>& fill) {
  return message([&](auto& w) {
    w.add_packed_int64(1, dims.begin(), dims.end());
    w.add_int32(2, dtype);
    fill(w);
  });
}

TEST(OnnxTensor, WideTypesInTheirFields) {
  const std::vector<float> floats = {1, -2, 0.5F, 4};
  const std::vector<double> doubles = {1, -2, 0.25, 4};
  const Ints ints = {-1, std::int64_t{1} << 40};
  const std::vector<std::uint64_t> unsigneds = {~std::uint64_t{0}, 7};
  const auto f32 =
      read_tensor(with_field(DType::f32, {4}, [&](auto& w) { w.add_packed_float(4, floats.begin(), floats.end()); }));
  EXPECT_EQ(numbers(f32), (std::vector<double>{1, -2, 0.5, 4}));
  const auto c64 =
      read_tensor(with_field(DType::c64, {2}, [&](auto& w) { w.add_packed_float(4, floats.begin(), floats.end()); }));
  EXPECT_EQ(c64.view<std::complex<float>>()[1], std::complex<float>(0.5F, 4));
  const auto f64 = read_tensor(
      with_field(DType::f64, {4}, [&](auto& w) { w.add_packed_double(10, doubles.begin(), doubles.end()); }));
  EXPECT_EQ(numbers(f64), doubles);
  const auto c128 = read_tensor(
      with_field(DType::c128, {2}, [&](auto& w) { w.add_packed_double(10, doubles.begin(), doubles.end()); }));
  EXPECT_EQ(c128.view<std::complex<double>>()[0], std::complex<double>(1, -2));
  const auto i64 =
      read_tensor(with_field(DType::i64, {2}, [&](auto& w) { w.add_packed_int64(7, ints.begin(), ints.end()); }));
  EXPECT_EQ(i64.view<std::int64_t>()[1], ints[1]);
  const auto u64 = read_tensor(
      with_field(DType::u64, {2}, [&](auto& w) { w.add_packed_uint64(11, unsigneds.begin(), unsigneds.end()); }));
  EXPECT_EQ(u64.view<std::uint64_t>()[0], unsigneds[0]);
  const auto u32 = read_tensor(with_field(DType::u32, {1}, [&](auto& w) { w.add_uint64(11, 0xffffffffU); }));
  EXPECT_EQ(u32.view<std::uint32_t>()[0], 0xffffffffU);
  const auto strings =
      read_tensor(with_field(DType::string, {2}, [&](auto& w) { w.add_bytes(6, "a"), w.add_bytes(6, ""); }));
  EXPECT_EQ(strings.view<std::string>()[0], "a");
}

TEST(OnnxTensor, RawDataAndEmptyTensors) {
  EXPECT_EQ(numbers(read_tensor(tensor("t", {2}, std::vector<float>{1, 2}))), (std::vector<double>{1, 2}));
  EXPECT_EQ(read(tensor("name", {1}, Ints{1})).name, "name");
  EXPECT_EQ(numbers(read_tensor(tensor_raw("t", DType::boolean, {3}, std::string("\x00\x01\xff", 3)))),
            (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(numbers(read_tensor(tensor_raw("t", DType::u4, {3}, "\x21\x03"))), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read_tensor(tensor_raw("t", DType::f32, {0, 3}, "")).shape(), (Shape{0, 3}));
  EXPECT_EQ(read_tensor(tensor_int32("t", DType::i8, {0}, {})).shape(), (Shape{0}));
}

TEST(OnnxTensor, DimsAndDataThatDoNotFit) {
  const auto message_of = [](const Bytes& bytes) {
    const Error error = read_error(bytes);
    EXPECT_EQ(error.code, ErrorCode::invalid_model) << error.message;
    return error.message;
  };
  EXPECT_EQ(message_of(tensor_raw("t", DType::f32, {2}, "123")), "tensor 't': holds 3 bytes, but its shape needs 8");
  EXPECT_EQ(message_of(tensor_int32("t", DType::i8, {4}, {1, 2})),
            "tensor 't': holds 2 numbers, but its shape needs 4");
  EXPECT_EQ(message_of(tensor_int32("t", DType::f16, {1}, {1, 2})),
            "tensor 't': holds 2 numbers, but its shape needs 1");
  EXPECT_EQ(message_of(tensor_raw("t", DType::f32, {-1}, "")), "tensor 't': has a dim of -1");
  EXPECT_NE(
      message_of(tensor_raw("t", DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "")).find("overflows"),
      std::string::npos);
  EXPECT_NE(message_of(tensor_raw("t", DType::undefined, {1}, "")).find("data type 0"), std::string::npos);
  EXPECT_EQ(read_error(tensor_raw("t", static_cast<DType::Code>(27), {1}, "a")).code, ErrorCode::unsupported);
  EXPECT_EQ(read_error(tensor_raw("t", DType::f32, Ints(17, 1), "1234")).code, ErrorCode::unsupported);
  // A tebibyte that is not there: refused before anything is allocated.
  EXPECT_EQ(read_error(tensor_raw("t", DType::f32, {std::int64_t{1} << 38}, "")).code, ErrorCode::limit_exceeded);
  EXPECT_EQ(read_error(tensor_int32("t", DType::i32, {std::int64_t{1} << 30}, {1})).code, ErrorCode::invalid_model);
}

TEST(OnnxTensor, SparseInitializers) {
  const auto sparse = [](const Bytes& indices, const Ints& dims) {
    return message([&](auto& w) {
      w.add_message(1, tensor("w", {2}, std::vector<float>{5, 7}));
      w.add_message(2, indices);
      w.add_packed_int64(3, dims.begin(), dims.end());
    });
  };
  const auto spec = [&](const Bytes& s) {
    return ModelSpec{.graph = {.nodes = {{"Relu", {"w"}, {"y"}}},
                               .outputs = {value("y", DType::f32, {2, 3})},
                               .sparse_initializers = {s}}};
  };
  EXPECT_NE(
      import_text(spec(sparse(tensor("", {2}, Ints{1, 5}), {2, 3}))).find("f32[2,3] [0.0, 5.0, 0.0, 0.0, 0.0, 7.0]"),
      std::string::npos);
  EXPECT_EQ(import_error(spec(sparse(tensor("", {2}, Ints{1, 6}), {2, 3}))).message,
            "'model': tensor 'w': index 6 lies outside shape 2x3");
  EXPECT_EQ(import_error(spec(sparse(tensor("", {2, 2}, Ints{0, 0, 0, 3}), {2, 3}))).message,
            "'model': tensor 'w': index 3 lies outside dim 1 of shape 2x3");
  EXPECT_EQ(import_error(spec(sparse(tensor("", {3}, Ints{0, 1, 2}), {2, 3}))).code, ErrorCode::invalid_model);
  EXPECT_EQ(import_error(spec(sparse(tensor("", {2}, Ints{0, 1}), {std::int64_t{1} << 36}))).code,
            ErrorCode::limit_exceeded);
}

/// A model's folder, and a file outside it.
class OnnxExternalData : public testing::Test {
 protected:
  OnnxExternalData() {
    fs::create_directories(folder_ / "sub");
    write(folder_ / "data.bin", std::string("\0\0\x80\x3f\0\0\0\x40", 8));  // 1, 2
    write(outside_, "12345678");
  }
  static void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

  Bytes model_of(const std::string& location, const std::string& offset = "", const std::string& length = "") const {
    const Bytes external = message([&](auto& w) {
      w.add_int64(1, 2);
      w.add_int32(2, DType::f32);
      w.add_string(8, "w");
      w.add_int32(14, 1);
      const auto entry = [&](const char* key, const std::string& text) {
        if (!text.empty()) w.add_message(13, message([&](auto& e) { e.add_string(1, key), e.add_string(2, text); }));
      };
      entry("location", location);
      entry("offset", offset);
      entry("length", length);
    });
    return model(
        {.graph = {
             .nodes = {{"Relu", {"w"}, {"y"}}}, .outputs = {value("y", DType::f32, {2})}, .initializers = {external}}});
  }
  /// "ok", or the message.
  std::string load(const Bytes& bytes, const LoadOptions& options = {}) const {
    write(folder_ / "model.onnx", bytes);
    try {
      const auto source = frontends::ModelSource::open((folder_ / "model.onnx").string(), options);
      const ops::Graph graph = frontends::import_model(source, options);
      const Tensor& w = graph.value(graph.node(0).inputs[0]).constant;
      return w.number(0) == 1 && w.number(1) == 2 ? "ok" : "wrong data";
    } catch (const Failure& failure) {
      return failure.error.message;
    }
  }

  TemporaryFolder all_;
  fs::path folder_ = all_.path() / "model";
  fs::path outside_ = all_.path() / "outside";
};

TEST_F(OnnxExternalData, InTheModelsFolder) {
  EXPECT_EQ(load(model_of("data.bin")), "ok");
  EXPECT_EQ(load(model_of("./data.bin", "0", "8")), "ok");
  write(folder_ / "sub" / "more.bin", std::string("xx\0\0\x80\x3f\0\0\0\x40yy", 12));
  EXPECT_EQ(load(model_of("sub/more.bin", "2", "8")), "ok");
}

TEST_F(OnnxExternalData, PartsThatAreNotThere) {
  EXPECT_NE(load(model_of("data.bin", "4", "8")).find("has 8 bytes, but offset 4 and length 8"), std::string::npos);
  EXPECT_NE(load(model_of("data.bin", "18446744073709551615")).find("has 8 bytes"), std::string::npos);
  EXPECT_NE(load(model_of("data.bin", "-1")).find("offset '-1' is not a size"), std::string::npos);
  EXPECT_NE(load(model_of("data.bin", "0", "4")).find("holds 4 bytes, but its shape needs 8"), std::string::npos);
  EXPECT_NE(load(model_of("missing.bin")).find("missing.bin"), std::string::npos);
  EXPECT_NE(load(model_of("")).find("outside the model's folder"), std::string::npos);
}

TEST_F(OnnxExternalData, NothingOutsideTheFolder) {
  const std::string name = outside_.filename().string();
  fs::create_symlink(outside_, folder_ / "link.bin");
  fs::create_symlink(folder_.parent_path(), folder_ / "linked");
  fs::create_symlink(folder_ / "data.bin", folder_ / "inside.bin");
  for (const std::string& location :
       {outside_.string(), "../" + name, "sub/../../" + name, std::string("link.bin"), "linked/" + name}) {
    EXPECT_NE(load(model_of(location)).find("outside the model's folder"), std::string::npos) << location;
  }
  EXPECT_EQ(load(model_of("inside.bin")), "ok");
}

TEST_F(OnnxExternalData, CompanionsInMemory) {
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  LoadOptions options;
  options.companions["../anywhere"] = {reinterpret_cast<const std::byte*>(data.data()), data.size()};
  EXPECT_EQ(load(model_of("../anywhere"), options), "ok");
  EXPECT_EQ(import_error(model_of("data.bin")).code, ErrorCode::not_found);  // bytes, without a folder
  options.folder = folder_.string();
  EXPECT_EQ(import_error(model_of("data.bin"), options).message, "no error");
}

TEST_F(OnnxExternalData, LimitsHold) {
  LoadOptions options;
  options.limits.bytes = 4;
  EXPECT_NE(load(model_of("data.bin"), options).find("the limit is 4"), std::string::npos);
}

TEST(OnnxValue, SequencesOptionalsAndMaps) {
  const Bytes one = tensor("a", {1}, std::vector<float>{1});
  const Bytes two = tensor("b", {2}, std::vector<float>{1, 2});
  const Bytes sequence = message([&](auto& w) {
    w.add_string(1, "s");
    w.add_int32(2, 1);
    w.add_message(3, one);
    w.add_message(3, two);
  });
  const NamedValue s = read(sequence, ValueInfo::Kind::sequence);
  EXPECT_EQ(s.name, "s");
  ASSERT_EQ(s.value.sequence().size(), 2U);
  EXPECT_EQ(s.value.sequence()[1].shape(), (Shape{2}));

  const Bytes optional = message([&](auto& w) { w.add_int32(2, 3), w.add_message(5, sequence); });
  ASSERT_NE(read(optional, ValueInfo::Kind::optional_sequence).value.optional().value, nullptr);
  EXPECT_EQ(read(optional, ValueInfo::Kind::optional).value.optional().value->sequence().size(), 2U);
  EXPECT_EQ(read("", ValueInfo::Kind::optional).value.optional().value, nullptr);

  const Bytes map = message([&](auto& w) {
    w.add_string(1, "m");
    w.add_bytes(4, "k1");
    w.add_bytes(4, "k2");
    w.add_message(5, sequence);
  });
  const NamedValue m = read(map, ValueInfo::Kind::map);
  EXPECT_EQ(m.value.map().at("k2").shape(), (Shape{2}));
  const Bytes short_map = message([&](auto& w) { w.add_int64(3, 1), w.add_message(5, sequence); });
  EXPECT_EQ(read_error(short_map, ValueInfo::Kind::map).message, "a map has 1 keys and 2 values");
}

TEST(OnnxValue, WrittenTensorsReadBack) {
  const Tensor t = Tensor::from<double>({1, -2, 3}, {3, 1});
  for (const DType dtype :
       {DType(DType::f32), DType(DType::f16), DType(DType::i4), DType(DType::boolean), DType(DType::u64)}) {
    const Tensor narrow = t.cast(dtype);
    const NamedValue again =
        read_value_proto(frontends::onnx::write_tensor_proto(narrow, "n"), ValueInfo::Kind::tensor);
    EXPECT_EQ(again.name, "n");
    EXPECT_EQ(again.value.dtype(), dtype);
    EXPECT_EQ(again.value.shape(), narrow.shape());
    EXPECT_EQ(numbers(again.value.tensor()), numbers(narrow));
  }
  const Tensor strings = Tensor::from<std::string>({"a", "b"}, {2});
  EXPECT_EQ(read_value_proto(frontends::onnx::write_tensor_proto(strings), ValueInfo::Kind::tensor)
                .value.view<std::string>()[1],
            "b");
}

}  // namespace
}  // namespace lathe::tests
