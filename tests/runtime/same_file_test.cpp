// Weights read where they lie in the mapped file, and engines of one file that share them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/engine_of.h"
#include "tests/support/real_models.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 128;
constexpr std::size_t kWeightBytes = kSide * kSide * sizeof(float);

/// y = x @ w, where w lies in a file beside the model: kSide × kSide floats, all `value`, at an offset of 64 bytes.
class ModelFile {
 public:
  ModelFile() {
    const auto entry = [](const std::string& key, const std::string& value) {
      return onnx::message([&](auto& w) {
        w.add_string(1, key);
        w.add_string(2, value);
      });
    };
    const onnx::Bytes weight = onnx::message([&](auto& w) {
      w.add_int64(1, kSide);
      w.add_int64(1, kSide);
      w.add_int32(2, DType::f32);
      w.add_string(8, "w");
      w.add_message(13, entry("location", "w.bin"));
      w.add_message(13, entry("offset", "64"));
      w.add_int32(14, 1);
    });
    write(path(), onnx::model({.graph = {.nodes = {{"MatMul", {"x", "w"}, {"y"}, {}, "product"}},
                                         .inputs = {onnx::value("x", DType::f32, {"n", kSide})},
                                         .outputs = {onnx::value("y", DType::f32, {"n", kSide})},
                                         .initializers = {weight}}}));
    set_weights(1);
  }

  [[nodiscard]] std::string path() const { return (folder_.path() / "m.onnx").string(); }
  /// Rewrites the weights in place; size and time of modification stay.
  void set_weights(float value) const {
    const fs::path file = folder_.path() / "w.bin";
    struct stat before = {};
    const bool there = ::stat(file.c_str(), &before) == 0;
    std::string bytes(64, '\0');
    for (std::int64_t i = 0; i < kSide * kSide; ++i) bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    std::fstream(file, std::ios::binary | std::ios::out | (there ? std::ios::in : std::ios::trunc)) << bytes;
    const timespec times[] = {before.st_atim, before.st_mtim};
    if (there) {
      ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the time of change tells from here on
  }

 private:
  static void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  TemporaryFolder folder_;
};

Tensor ones(std::int64_t rows) {
  Tensor t(DType::f32, {rows, kSide});
  for (float& v : t.mutable_view<float>()) v = 1;
  return t;
}

void expect_product(const Engine& engine, std::int64_t rows, float weight) {
  const Outputs out = engine.run(ones(rows));
  for (float v : out[0].view<float>()) ASSERT_EQ(v, weight * static_cast<float>(kSide));
}

TEST(KeepMapped, WeightsStayInTheFile) {
  const ModelFile file;
  const Engine copied = Engine::load(file.path(), {.threads = 1});
  EXPECT_GE(copied.memory().weights, kWeightBytes);
  expect_product(copied, 3, 1);
  const Engine mapped = Engine::load(file.path(), {.threads = 1}, {.keep_mapped = true});
  EXPECT_LT(mapped.memory().weights, kWeightBytes / 16);
  for (std::int64_t rows : {1, 3, 200}) expect_product(mapped, rows, 1);
  EXPECT_LT(mapped.memory().weights, kWeightBytes / 16);
}

TEST(KeepMapped, WithoutItNothingIsReadFromTheFileAfterTheLoad) {
  const ModelFile file;
  const Engine engine = Engine::load(file.path(), {.threads = 1});
  file.set_weights(2);
  expect_product(engine, 3, 1);
}

TEST(KeepMapped, GivesWhatRealModelsGive) {
  for (const char* name : {"ppocr-cls", "tashkeel-int8", "surface-mlp"}) {
    const Engine engine = Engine::load(model_path(name), {.threads = 1}, {.keep_mapped = true});
    const Sample sample = stored_sample(name);
    EXPECT_EQ(difference(name, engine.run(inputs_of(sample)), sample), std::nullopt) << name;
  }
}

/// Counts what is held.
class CountingAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    held += bytes;
    return std::aligned_alloc(alignment, bytes);
  }
  void release(void* memory, std::size_t bytes, std::size_t) noexcept override {
    held -= bytes;
    std::free(memory);
  }
  std::atomic<std::size_t> held = 0;
};

TEST(SameFile, EnginesShareConstantsAndWhatIsPackedOfThem) {
  const ModelFile file;
  const auto allocator = std::make_shared<CountingAllocator>();
  const EngineOptions options = {.threads = 1, .allocator = allocator};
  std::optional<Engine> first = Engine::load(file.path(), options);
  expect_product(*first, 200, 1);
  first->trim();
  ASSERT_EQ(first->memory().packed_weights, 0U) << "packed weights leave with the last plan";
  expect_product(*first, 200, 1);
  const std::size_t packed = first->memory().packed_weights;
  EXPECT_GE(packed, kWeightBytes) << "200 rows are a library product";
  const std::size_t held = allocator->held;
  std::optional<Engine> second = Engine::load(file.path(), options);
  EXPECT_EQ(allocator->held, held) << "nothing is loaded again";
  EXPECT_GE(second->memory().weights, kWeightBytes) << "but each engine counts it";
  expect_product(*second, 200, 1);
  EXPECT_LT(allocator->held, held + kWeightBytes) << "nothing is packed again";
  first.reset();
  expect_product(*second, 200, 1);
  expect_product(*second, 7, 1);
  second.reset();
  EXPECT_EQ(allocator->held, 0U);
}

TEST(SameFile, ACapHoldsForSharedWeightsToo) {
  const ModelFile file;
  const Engine first = Engine::load(file.path(), {.threads = 1});
  const Result<Engine> second = Engine::try_load(file.path(), {.threads = 1, .memory_bytes = kWeightBytes / 2});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::limit_exceeded) << second.error().message;
}

TEST(SameFile, OtherContentOrOtherOptionsAreAnotherModel) {
  const ModelFile file;
  const auto allocator = std::make_shared<CountingAllocator>();
  const Engine first = Engine::load(file.path(), {.threads = 1, .allocator = allocator});
  const std::size_t held = allocator->held;
  const Engine unfused = Engine::load(file.path(), {.threads = 1, .allocator = allocator, .passes = "-fold_constant"});
  EXPECT_GE(allocator->held, held + kWeightBytes);
  file.set_weights(2);
  const Engine changed = Engine::load(file.path(), {.threads = 1, .allocator = allocator});
  expect_product(changed, 3, 2);
  expect_product(first, 3, 1);
}

}  // namespace
}  // namespace lathe::tests
