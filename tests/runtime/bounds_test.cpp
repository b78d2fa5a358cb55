// Compiled code stays inside its buffers, which no sanitizer sees: the real models run with canaries between the slots
// of their arenas, and in memory that ends at unreadable pages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "runtime/engine_impl.h"
#include "tests/support/real_models.h"

namespace lathe::tests {
namespace {

/// Gives memory that ends at an unreadable page; before it lie bytes that nobody may change.
class GuardedAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    const std::size_t size = mapped(bytes);
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    std::memset(base, kBefore, size - kPage - bytes);
    mprotect(static_cast<char*>(base) + size - kPage, kPage, PROT_NONE);
    ++held;
    return static_cast<char*>(base) + size - kPage - bytes;
  }
  void release(void* memory, std::size_t bytes, std::size_t alignment) noexcept override {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    const std::size_t size = mapped(bytes);
    const auto* base = static_cast<const unsigned char*>(memory) - (size - kPage - bytes);
    for (const unsigned char* p = base; p != memory; ++p) overrun = overrun || *p != kBefore;
    munmap(const_cast<unsigned char*>(base), size);
    --held;
  }
  std::atomic<bool> overrun = false;
  std::atomic<int> held = 0;

 private:
  static constexpr unsigned char kBefore = 0xC5;
  static inline const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  static std::size_t mapped(std::size_t bytes) { return (bytes + 64 + kPage - 1) / kPage * kPage + kPage; }
};

class Bounds : public testing::TestWithParam<std::string> {};

TEST_P(Bounds, EveryStepStaysInsideItsBuffers) {
  const auto allocator = std::make_shared<GuardedAllocator>();
  {
    const Engine engine = Engine::load(model_path(GetParam()), {.threads = 2, .allocator = allocator});
    engine.impl()->core->build_options().canaries = true;
    const Sample sample = stored_sample(GetParam());
    for (int run = 0; run < 2; ++run) {
      const Result<Outputs> outputs = engine.try_run(inputs_of(sample));
      ASSERT_TRUE(outputs.ok()) << outputs.error().message;
      EXPECT_EQ(difference(GetParam(), *outputs, sample), std::nullopt);
    }
    // The inputs too end at unreadable pages, at whatever alignment that takes.
    std::vector<std::shared_ptr<void>> pages;
    Inputs inputs;
    for (const tools::NamedTensor& in : sample.inputs) {
      const std::size_t bytes = in.tensor.bytes();
      const std::size_t rounded = (bytes + 63) / 64 * 64;
      auto* memory = static_cast<char*>(allocator->allocate(rounded, 64));
      pages.emplace_back(memory, [=](void* p) { allocator->release(p, rounded, 64); });
      std::memcpy(memory + rounded - bytes, in.tensor.data(), bytes);
      inputs.add(in.name, Tensor::borrow(in.tensor.dtype(), in.tensor.shape(), memory + rounded - bytes));
    }
    const Result<Outputs> outputs = engine.try_run(inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.error().message;
    EXPECT_EQ(difference(GetParam(), *outputs, sample), std::nullopt);
  }
  EXPECT_EQ(allocator->held, 0);
  EXPECT_FALSE(allocator->overrun) << "something wrote before its memory";
}

INSTANTIATE_TEST_SUITE_P(Models, Bounds, testing::ValuesIn(model_names()),
                         [](const auto& test) { return test_name(test.param); });

/// Writes `count` bytes at `at` of its one buffer.
class StrayStep final : public runtime::Step {
 public:
  StrayStep(std::ptrdiff_t at, std::size_t count) : at_(at), count_(count) { slots.push_back({.offset = 64}); }
  std::int32_t run(void* const* buffers, runtime::StepContext&) const noexcept override {
    std::memset(static_cast<char*>(buffers[0]) + at_, 1, count_);
    return 0;
  }

 private:
  std::ptrdiff_t at_;
  std::size_t count_;
};

TEST(Canaries, LieInTheArena) {
  const Sample sample = stored_sample("ppocr-cls");
  const auto arena = [&](bool canaries) {
    const Engine engine = Engine::load(model_path("ppocr-cls"), {.threads = 1});
    engine.impl()->core->build_options().canaries = canaries;
    static_cast<void>(engine.run(inputs_of(sample)));
    return engine.memory().arenas;
  };
  EXPECT_GE(arena(true), arena(false) + 2 * runtime::kCanaryBytes);
}

TEST(Canaries, TellWhichStepWroteBesideItsBuffer) {
  constexpr std::size_t kBytes = 100;
  const struct {
    std::ptrdiff_t at;
    std::size_t count;
    int failed;
  } cases[] = {{0, kBytes, -1}, {0, kBytes + 1, 1}, {-1, 1, 1}, {kBytes + 63, 1, 1}, {-64, 1, 1}};
  for (const auto& c : cases) {
    auto plan = std::make_shared<runtime::Plan>();
    plan->steps.push_back(std::make_unique<StrayStep>(0, kBytes));
    plan->steps.push_back(std::make_unique<StrayStep>(c.at, c.count));
    plan->watched.push_back({.offset = 64, .bytes = kBytes, .first = 0, .last = 1});
    std::vector<std::byte> arena(64 + kBytes + 64);
    runtime::PlanInstance instance(plan);
    instance.bind(arena.data());
    runtime::StepContext context;
    std::int32_t status = 0;
    EXPECT_EQ(instance.run(context, nullptr, nullptr, status), c.failed) << c.at << ", " << c.count;
    EXPECT_EQ(status, c.failed < 0 ? 0 : runtime::kStepOverran);
  }
}

}  // namespace
}  // namespace lathe::tests
