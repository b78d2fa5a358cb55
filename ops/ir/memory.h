// MemoryScope: where the tensors that the library makes on a thread get their memory, and in whose name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace lathe::ops {

struct Node;

/// Gives data memory, counted and bounded; supplied by the runtime.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// At least `bytes` bytes aligned to 64, given back with the last copy. Failure (limit_exceeded, out_of_memory).
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Counts bytes that come from elsewhere until the last copy goes. Failure (limit_exceeded).
  virtual std::shared_ptr<void> charge(std::size_t bytes) = 0;
};

/// While one lives, tensors made on this thread take their memory from `source`; null: from the system.
class MemoryScope {
 public:
  explicit MemoryScope(MemorySource* source) noexcept;
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemorySource* current() noexcept;

 private:
  MemorySource* before_;
};

/// While one lives, what fails to get memory on this thread is blamed on a node, or on what has a name of its own. Of
/// several the outermost counts.
class OnBehalfOf {
 public:
  explicit OnBehalfOf(const Node& node) noexcept;
  explicit OnBehalfOf(const std::string& name) noexcept;
  ~OnBehalfOf();
  OnBehalfOf(const OnBehalfOf&) = delete;
  OnBehalfOf& operator=(const OnBehalfOf&) = delete;

  /// "Concat 'double': "; empty where nobody is to blame.
  static std::string blame();

 private:
  bool outermost_;
};

}  // namespace lathe::ops
