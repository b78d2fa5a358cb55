// Runs a kernel compiled and by its definition on the same data, each buffer ending at an unreadable page, and
// compares.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "jit/jit.h"
#include "jit/schedule.h"
#include "ops/ir/numeric.h"
#include "ops/loops/kernel.h"

namespace lathe::jit::testing {

/// Bytes whose end is the end of a readable page.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ =
        static_cast<std::uint8_t*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + mapped_ - page, page, PROT_NONE), 0);
    data_ = base_ + mapped_ - page - bytes;
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::size_t mapped_ = 0;
  std::uint8_t* base_ = nullptr;
  std::uint8_t* data_ = nullptr;
};

/// The farthest element, plus one, that an access reaches, and the buffer's elements therefore.
inline std::int64_t reach(const loops::Kernel& k, const loops::Access& access) {
  std::int64_t last = access.offset;
  for (int d = 0; d < k.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (k.extents[i] == 0) return 0;
    std::int64_t steps = k.extents[i] - 1;
    // A guard with this dim alone bounds how far it goes; several dims are bounded together by the caller's sizes.
    last += std::max<std::int64_t>(0, access.strides[i]) * steps;
  }
  for (const auto& indirect : access.indirect)
    last += (indirect.extent - 1) * std::max<std::int64_t>(0, indirect.stride);
  return last + 1;
}

using Buffers = std::vector<std::unique_ptr<Guarded>>;

struct Data {
  explicit Data(const loops::Kernel& k, std::uint32_t seed = 1, std::vector<std::int64_t> sizes = {}) {
    if (sizes.empty()) {
      sizes.resize(k.buffers.size());
      const auto take = [&](const loops::Access& a) {
        auto& size = sizes[static_cast<std::size_t>(a.buffer)];
        size = std::max(size, reach(k, a));
      };
      for (const auto& load : k.loads) take(load);
      for (const auto& store : k.stores) take(store.access);
    }
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < k.buffers.size(); ++i) {
      const DType dtype = k.buffers[i].dtype;
      buffers.push_back(std::make_unique<Guarded>(static_cast<std::size_t>(sizes[i] * element_bytes(dtype))));
      fill(dtype, sizes[i], buffers.back()->data(), random);
    }
  }
  static void fill(DType dtype, std::int64_t n, std::uint8_t* out, std::mt19937& random) {
    std::normal_distribution<double> normal;
    const auto width = static_cast<std::size_t>(element_bytes(dtype));
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint64_t bits = 0;
      if (dtype.is_float()) {
        bits = numeric::float_bits(dtype, normal(random));
      } else if (dtype == DType::boolean) {
        bits = random() & 1;
      } else {
        bits = numeric::truncate(dtype,
                                 static_cast<std::uint64_t>(random() % 200) - (dtype.is_signed_integer() ? 100 : 0));
        if (dtype.is_packed()) bits = numeric::byte_of_packed(dtype, bits);
      }
      std::memcpy(out + static_cast<std::size_t>(i) * width, &bits, width);
    }
  }
  [[nodiscard]] std::vector<void*> pointers() const {
    std::vector<void*> p;
    for (const auto& b : buffers) p.push_back(b->data());
    return p;
  }
  Buffers buffers;
};

inline std::shared_ptr<const CompiledKernel> compiled(const loops::Kernel& k, const Options& options = {}) {
  static const std::shared_ptr<Compiler> compiler = Compiler::get();
  const loops::Kernel* one[] = {&k};
  return compiler->compile(one, options)[0];
}

inline std::int32_t run(const CompiledKernel& code, const loops::Kernel& k, const Data& data,
                        std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {},
                        loops::ErrorSlot* error = nullptr) {
  const auto params = loops::pack_params(k);
  const auto pointers = data.pointers();
  Guarded scratch(static_cast<std::size_t>(code.scratch_bytes(k)));
  loops::ErrorSlot unused;
  if (ranges.empty()) ranges = {{0, k.outer > 0 ? k.extents[0] : 1}};
  for (const auto& [begin, end] : ranges) {
    const loops::KernelArgs args{
        pointers.data(), params.data(), begin, end, scratch.data(), error != nullptr ? error : &unused};
    if (const std::int32_t rc = code.fn(&args); rc != loops::kOk) return rc;
  }
  return loops::kOk;
}

inline std::int32_t run_reference(const loops::Kernel& k, const Data& data, loops::ErrorSlot* error = nullptr) {
  const auto params = loops::pack_params(k);
  const auto pointers = data.pointers();
  loops::ErrorSlot unused;
  const loops::KernelArgs args{
      pointers.data(), params.data(), 0, k.outer > 0 ? k.extents[0] : 1, nullptr, error != nullptr ? error : &unused};
  return loops::evaluate(k, args);
}

/// Outputs equal: integers exactly, floats within `tolerance` of the larger of 1 and their size.
inline void expect_same(const loops::Kernel& k, const Data& got, const Data& expected, double tolerance,
                        const std::string& what) {
  for (std::size_t b = 0; b < k.buffers.size(); ++b) {
    if (!k.buffers[b].output) continue;
    const DType dtype = k.buffers[b].dtype;
    const auto width = static_cast<std::size_t>(element_bytes(dtype));
    const std::size_t n = got.buffers[b]->size() / width;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t x = 0;
      std::uint64_t y = 0;
      std::memcpy(&x, got.buffers[b]->data() + i * width, width);
      std::memcpy(&y, expected.buffers[b]->data() + i * width, width);
      if (x == y) continue;
      if (dtype.is_float()) {
        const double gx = numeric::float_value(dtype, x);
        const double gy = numeric::float_value(dtype, y);
        if (std::isnan(gx) && std::isnan(gy)) continue;
        double allowed = tolerance;
        if (dtype == DType::f16) allowed = std::max(allowed, 1e-3);
        if (dtype == DType::bf16) allowed = std::max(allowed, 8e-3);
        if (dtype.bits() <= 8) allowed = 0.25;
        if (gx == gy || std::abs(gx - gy) <= allowed * std::max(1.0, std::abs(gy))) continue;
        FAIL() << what << ": buffer " << b << " element " << i << " of " << n << ": " << gx << ", expected " << gy
               << "\n"
               << loops::to_string(k);
      }
      FAIL() << what << ": buffer " << b << " element " << i << " of " << n << ": " << x << ", expected " << y << "\n"
             << loops::to_string(k);
    }
  }
}

/// Compiled at each level and, for ranges, in pieces: all equal to the evaluator, and to each other bit by bit.
inline void check(const loops::Kernel& k, double tolerance = 2e-6, std::uint32_t seed = 1,
                  const std::vector<std::int64_t>& sizes = {}, const std::vector<int>& levels = {-1, 0, 1, 2}) {
  ASSERT_EQ(loops::verify(k), "") << loops::to_string(k);
  const Data expected(k, seed, sizes);
  ASSERT_EQ(run_reference(k, expected), loops::kOk);
  std::unique_ptr<Data> first;
  const auto same_bits = [&](const Data& data, const std::string& what) {
    for (std::size_t b = 0; b < k.buffers.size(); ++b) {
      ASSERT_EQ(std::memcmp(data.buffers[b]->data(), first->buffers[b]->data(), data.buffers[b]->size()), 0)
          << what << " differs in buffer " << b << "\n"
          << loops::to_string(k);
    }
  };
  for (const int level : levels) {
    const auto code = compiled(k, {.code_level = level});
    auto data = std::make_unique<Data>(k, seed, sizes);
    ASSERT_EQ(run(*code, k, *data), loops::kOk);
    const std::string what = "level " + std::to_string(level);
    expect_same(k, *data, expected, tolerance, what);
    if (::testing::Test::HasFatalFailure()) return;
    if (first != nullptr) same_bits(*data, what);
    if (first == nullptr) first = std::move(data);
    if (::testing::Test::HasFatalFailure() || k.outer == 0 || k.extents[0] < 2) continue;
    const Data pieces(k, seed, sizes);
    const std::int64_t n = k.extents[0];
    ASSERT_EQ(run(*code, k, pieces, {{0, 1}, {1, n / 3 + 1}, {n / 3 + 1, n}}), loops::kOk);
    same_bits(pieces, what + " in pieces");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace lathe::jit::testing
