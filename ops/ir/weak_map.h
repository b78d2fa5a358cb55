// WeakMap: what somebody holds, by key; forgotten with its last holder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

namespace lathe::ops {

/// Not thread-safe.
template <class T>
class WeakMap {
 public:
  /// Null where nobody holds it.
  [[nodiscard]] std::shared_ptr<T> find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  void add(const std::string& key, const std::shared_ptr<T>& value) {
    entries_[key] = value;
    if (entries_.size() < swept_at_) return;
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    swept_at_ = std::max(kLeast, 2 * entries_.size());
  }

 private:
  static constexpr std::size_t kLeast = 1024;  // entries that are not worth looking through
  std::unordered_map<std::string, std::weak_ptr<T>> entries_;
  std::size_t swept_at_ = kLeast;
};

}  // namespace lathe::ops
