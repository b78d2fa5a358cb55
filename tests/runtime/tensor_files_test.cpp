// .npy and .npz: what is written reads back, NumPy's own variants are understood, damaged files are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <lathe/tools.h>

#include "tests/support/temporary_folder.h"

namespace lathe::tools {
namespace {

std::vector<std::byte> bytes_of(std::string_view s) {
  std::vector<std::byte> out(s.size());
  std::transform(s.begin(), s.end(), out.begin(), [](char c) { return static_cast<std::byte>(c); });
  return out;
}

/// A .npy file of version 1 with this header and these elements.
std::vector<std::byte> npy(const std::string& header, std::string_view elements) {
  std::string text = std::string("\x93NUMPY\x01", 7) + '\0' + static_cast<char>(header.size() & 0xFF) +
                     static_cast<char>(header.size() >> 8) + header;
  text += elements;
  return bytes_of(text);
}

std::string message_of(const std::vector<std::byte>& file) {
  const Result<Tensor> result = try_parse_npy(file);
  return result.ok() ? "read" : result.error().message;
}

class TensorFiles : public testing::Test {
 protected:
  tests::TemporaryFolder folder_;
};

TEST_F(TensorFiles, EveryDtypeReadsBackWithItsBits) {
  for (int code = 1; code < DType::kCount; ++code) {
    const DType dtype = static_cast<DType::Code>(code);
    if (dtype == DType::string) continue;
    Tensor tensor(dtype, {3, 5});
    auto* data = static_cast<std::uint8_t*>(tensor.mutable_data());
    for (std::size_t i = 0; i < tensor.bytes(); ++i)
      data[i] = static_cast<std::uint8_t>(dtype == DType::boolean ? i % 2 : i * 7 % 63);
    const auto file = try_format_npy(tensor);
    ASSERT_TRUE(file.ok()) << dtype.name() << ": " << file.error().message;
    const auto back = try_parse_npy(*file);
    ASSERT_TRUE(back.ok()) << dtype.name() << ": " << back.error().message;
    EXPECT_EQ(back->shape(), tensor.shape());
    if (back->dtype() == dtype) {
      EXPECT_EQ(std::memcmp(back->data(), tensor.data(), tensor.bytes()), 0) << dtype.name();
    } else {
      for (std::int64_t i = 0; i < tensor.size(); ++i)
        EXPECT_EQ(back->number(i), tensor.number(i)) << dtype.name() << " " << i;
    }
  }
}

TEST_F(TensorFiles, ShapesReadBack) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{2, 0, 3}, Shape{2, 3, 4, 5}}) {
    const auto back = try_parse_npy(*try_format_npy(Tensor(DType::f32, shape)));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->shape(), shape);
  }
}

TEST_F(TensorFiles, StringsAreUnicode) {
  const std::vector<std::string> words = {"",    "plain", "schön", "\xE6\xBC\xA2\xE5\xAD\x97", "\xF0\x9F\x99\x82!",
                                          "\xFF"};
  const auto back = try_parse_npy(*try_format_npy(Tensor::from(words, {2, 3})));
  ASSERT_TRUE(back.ok()) << back.error().message;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) EXPECT_EQ(back->view<std::string>()[i], words[i]);
  EXPECT_EQ(back->view<std::string>()[5], "\xEF\xBF\xBD");  // not UTF-8
}

TEST_F(TensorFiles, ByteOrderAndMemoryOrderOfNumpy) {
  const auto big =
      try_parse_npy(npy("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }", std::string_view("\0\1\1\0", 4)));
  ASSERT_TRUE(big.ok()) << big.error().message;
  EXPECT_EQ(big->number(0), 1);
  EXPECT_EQ(big->number(1), 256);
  const auto fortran = try_parse_npy(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}\n", "\1\4\2\5\3\6"));
  ASSERT_TRUE(fortran.ok()) << fortran.error().message;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(fortran->number(i), i + 1);
  const auto bytes =
      try_parse_npy(npy("{'descr': '|S3', 'fortran_order': False, 'shape': (2,)}", std::string_view("abcx\0\0", 6)));
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(bytes->view<std::string>()[1], "x");
}

TEST_F(TensorFiles, DamageIsNamed) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
  EXPECT_NE(message_of(bytes_of("")).find("NumPy's mark"), std::string::npos);
  EXPECT_NE(message_of(bytes_of(std::string("\x93NUMPY\x01\x00\xff\xff", 10))).find("cut short"), std::string::npos);
  EXPECT_NE(message_of(npy(good, "1234567")).find("holds 7 bytes"), std::string::npos);
  EXPECT_NE(message_of(npy(good, "123456789")).find("holds 9 bytes"), std::string::npos);
  EXPECT_NE(message_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", ""))
                .find("holds 0 bytes"),
            std::string::npos);
  EXPECT_NE(
      message_of(npy("{'descr': '<U0', 'fortran_order': False, 'shape': (99999999999,)}", "")).find("holds 0 bytes"),
      std::string::npos);
  EXPECT_NE(message_of(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "x")).find("Python objects"),
            std::string::npos);
  EXPECT_NE(message_of(npy("{'descr': '<f4', 'shape': (1,)}", "1234")).find("lacks"), std::string::npos);
  EXPECT_NE(
      message_of(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")).find("structured"),
      std::string::npos);
}

TEST_F(TensorFiles, CutAndFlippedFilesNeverCrash) {
  const std::vector<std::byte> file = *try_format_npy(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(try_parse_npy(std::span(file).first(n)).ok()) << n;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> mutant = file;
    for (int k = 0; k < 3; ++k) mutant[random() % 100] = static_cast<std::byte>(random());
    const auto result = try_parse_npy(mutant);
    EXPECT_TRUE(!result.ok() || result->bytes() <= 4096U);
  }
}

TEST_F(TensorFiles, ArchivesKeepNamesAndOrder) {
  const std::string path = folder_.path() / "a.npz";
  const std::vector<NamedTensor> tensors = {{"x:0", Tensor::from<float>({1, 2}, {2})},
                                            {"b/c", Tensor::from<std::int64_t>({7}, {})},
                                            {"words", Tensor::from<std::string>({"a", "bc"}, {2})}};
  ASSERT_TRUE(try_write_npz(path, tensors).ok());
  const auto back = try_read_npz(path);
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_EQ(back->size(), 3U);
  EXPECT_EQ((*back)[0].name, "x:0");
  EXPECT_EQ((*back)[1].name, "b/c");
  EXPECT_EQ((*back)[1].tensor.number(0), 7);
  EXPECT_EQ((*back)[2].tensor.view<std::string>()[1], "bc");
  ASSERT_TRUE(try_write_npz(path, {}).ok());
  const auto empty = try_read_npz(path);
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  EXPECT_TRUE(empty->empty());
}

TEST_F(TensorFiles, DamagedArchivesNeverCrash) {
  const std::string path = folder_.path() / "b.npz";
  const std::vector<NamedTensor> tensors = {{"x", Tensor::from<float>({1, 2}, {2})}, {"y", Tensor(DType::u8, {300})}};
  ASSERT_TRUE(try_write_npz(path, tensors).ok());
  std::ifstream in(path, std::ios::binary);
  const std::vector<std::byte> file = bytes_of(std::string(std::istreambuf_iterator<char>(in), {}));
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(try_parse_npz(std::span(file).first(n)).ok()) << n;
  std::mt19937 random(2);
  for (int round = 0; round < 5'000; ++round) {
    std::vector<std::byte> mutant = file;
    for (int k = 0; k < 4; ++k) mutant[random() % mutant.size()] = static_cast<std::byte>(random());
    (void)try_parse_npz(mutant).ok();
  }
  const auto small = try_parse_npz(file, 200);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().code, ErrorCode::limit_exceeded);
}

TEST_F(TensorFiles, AreWrittenToAPathOrNotAtAll) {
  const std::string path = folder_.path() / "a.npy";
  write_npy(path, Tensor::from<std::int64_t>({1, -2, 3}, {3}));
  write_npy(path, Tensor::from<float>({0.5F, -1}, {2, 1}));  // in place of the other
  const Tensor back = read_npy(path);
  EXPECT_EQ(back.shape(), Shape({2, 1}));
  EXPECT_EQ(back.view<float>()[1], -1);
  const Result<void> nothing = try_write_npy(path, Tensor());
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::invalid_argument);
  const Result<void> nowhere = try_write_npy(folder_.path() / "none" / "a.npy", back);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::not_found);
  EXPECT_NE(nowhere.error().message.find("none/a.npy"), std::string::npos) << nowhere.error().message;
  EXPECT_EQ(read_npy(path).view<float>()[0], 0.5F) << "gone with a write that failed";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "left behind";
}

TEST_F(TensorFiles, MissingFilesAreNamed) {
  const auto result = try_read_npy(folder_.path() / "nothing.npy");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::not_found);
  EXPECT_NE(result.error().message.find("nothing.npy"), std::string::npos);
}

}  // namespace
}  // namespace lathe::tools
