// ImageDecoder: formats small enough to write by hand, and damaged files of every other.
#include <fstream>
#include <iterator>
#include <random>

#include "tests/ops/run_op.h"
#include "tests/support/paths.h"

namespace lathe::ops {
namespace {

using namespace std::string_literals;

Tensor decoded(const std::string& bytes, const char* format = "RGB") {
  const std::vector<std::uint8_t> stream(bytes.begin(), bytes.end());
  return run("ImageDecoder", {Tensor::from(stream, {static_cast<std::int64_t>(stream.size())})},
             {{"pixel_format", std::string(format)}});
}

class Images : public testing::Test {
 protected:
  void SetUp() override {
    if (find_operator("ImageDecoder") == nullptr) GTEST_SKIP() << "built without images";
  }
};

TEST_F(Images, PortableFormats) {
  const std::vector<double> black_white = {0, 0, 0, 255, 255, 255};
  expect_tensor(decoded("P1 # a comment\n2 1\n10"), DType::u8, {1, 2, 3}, black_white);
  expect_tensor(decoded("P4\n2 1\n\x80"s), DType::u8, {1, 2, 3}, black_white);
  expect_tensor(decoded("P2\n2 1 15\n0 15\n"), DType::u8, {1, 2, 3}, black_white);
  expect_tensor(decoded("P5 2 1 65535\n\x00\x00\xFF\xFF"s), DType::u8, {1, 2, 3}, black_white);
  expect_tensor(decoded("P3\n1 2 255\n1 2 3 4 5 6"), DType::u8, {2, 1, 3}, {1, 2, 3, 4, 5, 6});
  expect_tensor(decoded("P6\n1 2\n255\n\x01\x02\x03\x04\x05\x06"s), DType::u8, {2, 1, 3}, {1, 2, 3, 4, 5, 6});
}

TEST_F(Images, BitmapsStandOnTheirHeads) {
  std::string bitmap = "BM\x3E\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\x18\0"s;
  bitmap.append(24, '\0').append("\x03\x02\x01\0\x06\x05\x04\0"s);
  expect_tensor(decoded(bitmap), DType::u8, {2, 1, 3}, {4, 5, 6, 1, 2, 3});
}

TEST_F(Images, PixelFormats) {
  const std::string pixel = "P6 1 1 255\n\xC8\x64\x32"s;
  expect_tensor(decoded(pixel, "BGR"), DType::u8, {1, 1, 3}, {50, 100, 200});
  expect_tensor(decoded(pixel, "Grayscale"), DType::u8, {1, 1, 1}, {124});
}

TEST_F(Images, WhatIsNoImageIsEmpty) {
  for (const std::string& bytes :
       {""s, "P"s, "P6"s, "P6 -1 1 255\n"s, "P6 99999999 99999999 255\n"s, "P6 2 1 255\n\x01"s, "P7 1 1 255\n\x01"s,
        "BM"s, "II*\0"s, "\x89PNG"s, "\xFF\xD8"s, "RIFF....WEBP"s, "\xFF\x4F\xFF\x51"s, "text"s}) {
    expect_tensor(decoded(bytes), DType::u8, {0, 0, 3}, {});
  }
  expect_tensor(decoded("text", "Grayscale"), DType::u8, {0, 0, 1}, {});
}

/// Files of ONNX's cases: the image lies at the end of a tensor message.
TEST_F(Images, DamagedFilesDecodeToSomethingOrNothing) {
  const std::pair<const char*, std::string> kFiles[] = {
      {"bmp_rgb", "BM"},      {"jpeg_rgb", "\xFF\xD8\xFF"}, {"jpeg2k_rgb", "\0\0\0\x0CjP  "s},
      {"png_rgb", "\x89PNG"}, {"tiff_rgb", "II*\0"s},       {"webp_rgb", "RIFF"},
      {"pnm_rgb", "P6"}};
  std::mt19937 random(1);
  for (const auto& [name, magic] : kFiles) {
    const std::string path =
        tests::cases_dir() + "/node/test_image_decoder_decode_" + name + "/test_data_set_0/input_0.pb";
    std::ifstream file(path, std::ios::binary);
    const std::string message{std::istreambuf_iterator<char>(file), {}};
    const std::size_t begin = message.find(magic);
    ASSERT_NE(begin, std::string::npos) << path;
    const std::string image = message.substr(begin);
    EXPECT_GT(decoded(image).size(), 0) << path;
    for (int i = 0; i < 40; ++i) {
      std::string damaged = image.substr(0, i % 4 == 0 ? random() % image.size() : image.size());
      for (int flips = i % 5; flips > 0 && !damaged.empty(); --flips) {
        damaged[random() % std::min<std::size_t>(damaged.size(), i % 2 == 0 ? 64 : damaged.size())] ^=
            static_cast<char>(1U << random() % 8);
      }
      const Tensor t = decoded(damaged);
      EXPECT_EQ(t.shape().rank(), 3);
    }
  }
}

}  // namespace
}  // namespace lathe::ops
