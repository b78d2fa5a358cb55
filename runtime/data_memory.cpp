// Counting, capping and handing out data memory.
#include "runtime/data_memory.h"

#include <algorithm>
#include <cstdlib>

#include "ops/ir/failure.h"

namespace lathe::runtime {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kAddressSpace = std::size_t{1} << 47;  // sanitizers end a process that asks for more

[[noreturn]] void fail_no_memory(std::size_t bytes) {
  fail(ErrorCode::out_of_memory, "{}no memory for {} bytes", ops::OnBehalfOf::blame(), bytes);
}

}  // namespace

DataMemory::DataMemory(std::shared_ptr<Allocator> allocator, std::size_t limit)
    : allocator_(std::move(allocator)), limit_(limit) {
  for (std::size_t u = 0; u < kUses; ++u) {
    sources_[u].memory = this;
    sources_[u].use = static_cast<Use>(u);
  }
}

void DataMemory::Counts::give_back(Use use, std::size_t bytes) {
  by_use[static_cast<std::size_t>(use)] -= bytes;
  all -= bytes;
}

bool DataMemory::fits(std::size_t bytes, std::size_t before) const {
  return limit_ == 0 || (before <= limit_ && bytes <= limit_ - before);
}

void DataMemory::take(Use use, std::size_t bytes) {
  for (const bool last_try : {false, true}) {
    std::size_t before = counts_->all;
    while (fits(bytes, before)) {
      if (!counts_->all.compare_exchange_weak(before, before + bytes)) continue;
      counts_->by_use[static_cast<std::size_t>(use)] += bytes;
      return;
    }
    if (last_try) fail_limit(bytes, before);
    if (reclaim_) reclaim_();
  }
}

void DataMemory::fail_limit(std::size_t bytes, std::size_t before) const {
  fail(ErrorCode::limit_exceeded, "{}{} bytes more would exceed memory_bytes: {} of {} bytes are in use",
       ops::OnBehalfOf::blame(), bytes, before, limit_);
}

void DataMemory::require(std::size_t bytes) const {
  if (!fits(bytes, 0)) fail_limit(bytes, counts_->all);
  if (bytes > kAddressSpace) fail_no_memory(bytes);
}

std::shared_ptr<void> DataMemory::charge(Use use, std::size_t bytes) {
  take(use, bytes);
  return {nullptr, [counts = counts_, use, bytes](void*) { counts->give_back(use, bytes); }};
}

std::shared_ptr<void> DataMemory::allocate(Use use, std::size_t bytes) {
  if (bytes > kAddressSpace && limit_ == 0) fail_no_memory(bytes);
  const std::size_t rounded =
      bytes > kAddressSpace ? bytes : (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  take(use, rounded);
  void* memory = nullptr;
  if (bytes <= kAddressSpace) {
    memory = allocator_ ? allocator_->allocate(rounded, kAlignment) : std::aligned_alloc(kAlignment, rounded);
  }
  if (!memory) {
    counts_->give_back(use, rounded);
    fail_no_memory(bytes);
  }
  return {memory, [allocator = allocator_, counts = counts_, use, rounded](void* p) {
            counts->give_back(use, rounded);
            if (allocator) {
              allocator->release(p, rounded, kAlignment);
            } else {
              std::free(p);
            }
          }};
}

}  // namespace lathe::runtime
