// DataMemory: an engine's weights, arenas and values, from the application's allocator or the system, counted and
// capped.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <lathe/options.h>

#include "ops/ir/memory.h"

namespace lathe::runtime {

/// What data memory is for.
enum class Use : std::uint8_t { weights, packed_weights, arenas, values };
inline constexpr std::size_t kUses = 4;

/// Thread-safe. Memory may outlive it.
class DataMemory {
 public:
  /// `limit` 0: no cap.
  DataMemory(std::shared_ptr<Allocator> allocator, std::size_t limit);
  DataMemory(const DataMemory&) = delete;
  DataMemory& operator=(const DataMemory&) = delete;

  /// At least `bytes` bytes aligned to 64, released with the last copy. Failure (limit_exceeded, out_of_memory) in the
  /// name of ops::OnBehalfOf.
  std::shared_ptr<void> allocate(Use use, std::size_t bytes);
  /// Fails as allocate() does where so many bytes could never be had.
  void require(std::size_t bytes) const;
  /// Counts bytes that were allocated elsewhere until the last copy goes. Failure (limit_exceeded).
  std::shared_ptr<void> charge(Use use, std::size_t bytes);
  /// The same for tensors that the library makes: see ops::MemoryScope.
  [[nodiscard]] ops::MemorySource* source(Use use) { return &sources_[static_cast<std::size_t>(use)]; }

  /// Called before an allocation fails at the cap, to give back what is idle. Set once.
  void on_pressure(std::function<void()> reclaim) { reclaim_ = std::move(reclaim); }
  [[nodiscard]] std::size_t used(Use use) const { return counts_->by_use[static_cast<std::size_t>(use)]; }
  /// Whether more than half of what the cap allows is in use.
  [[nodiscard]] bool tight() const { return limit_ != 0 && counts_->all > limit_ / 2; }

 private:
  struct Counts {
    std::array<std::atomic<std::size_t>, kUses> by_use{};
    std::atomic<std::size_t> all{0};
    void give_back(Use use, std::size_t bytes);
  };
  struct Source final : ops::MemorySource {
    DataMemory* memory = nullptr;
    Use use = Use::values;
    std::shared_ptr<void> allocate(std::size_t bytes) override { return memory->allocate(use, bytes); }
    std::shared_ptr<void> charge(std::size_t bytes) override { return memory->charge(use, bytes); }
  };
  [[nodiscard]] bool fits(std::size_t bytes, std::size_t before) const;
  void take(Use use, std::size_t bytes);
  [[noreturn]] void fail_limit(std::size_t bytes, std::size_t before) const;

  std::shared_ptr<Allocator> allocator_;
  std::size_t limit_;
  std::function<void()> reclaim_;
  std::array<Source, kUses> sources_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace lathe::runtime
