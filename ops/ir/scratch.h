// Scratch: working memory of a plain kernel, as a standard memory resource.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <new>

namespace lathe::ops {

/// Hands out a block of memory as a stack does: what is released in the reverse order is there again, what is released
/// otherwise only once the kernel has ended. What the block has no room for comes from the heap, and `wanted` tells how
/// large a block would have sufficed. One thread at a time.
class Scratch final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t kAlignment = 64;

  Scratch() = default;
  /// `block` is aligned to kAlignment.
  Scratch(void* block, std::size_t bytes) : block_(static_cast<std::byte*>(block)), bytes_(bytes) {}

  [[nodiscard]] std::size_t wanted() const { return wanted_; }

 private:
  static constexpr std::align_val_t kAligned{kAlignment};
  static std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  void* do_allocate(std::size_t bytes, std::size_t) override {
    const std::size_t size = rounded(bytes);
    const std::size_t offset = used_;
    std::byte* memory = nullptr;
    if (offset + size <= bytes_) {
      memory = block_ + offset;
    } else {  // its place in a larger block stands in front of it
      memory = static_cast<std::byte*>(::operator new(size + kAlignment, kAligned)) + kAlignment;
      std::memcpy(memory - kAlignment, &offset, sizeof(offset));
    }
    used_ += size;
    wanted_ = std::max(wanted_, used_);
    return memory;
  }

  void do_deallocate(void* p, std::size_t bytes, std::size_t) override {
    auto* memory = static_cast<std::byte*>(p);
    std::size_t offset = 0;
    if (std::less_equal<>()(block_, memory) && std::less<>()(memory, block_ + bytes_)) {
      offset = static_cast<std::size_t>(memory - block_);
    } else {
      std::memcpy(&offset, memory - kAlignment, sizeof(offset));
      ::operator delete(memory - kAlignment, kAligned);
    }
    if (offset + rounded(bytes) == used_) used_ = offset;
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::byte* block_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
  std::size_t wanted_ = 0;
};

}  // namespace lathe::ops
