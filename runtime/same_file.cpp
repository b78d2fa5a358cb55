// The engines of this process by the file they came from.
#include "runtime/same_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "runtime/engine_impl.h"

namespace lathe::runtime {
namespace {

using frontends::FileIdentity;
using Files = std::vector<std::pair<std::string, FileIdentity>>;

struct Entry {
  std::weak_ptr<EngineImpl> engine;
  Files companions;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, Entry> entries;
};

Registry& registry() {
  static Registry all;
  return all;
}

bool unchanged(const Files& files) {
  return std::all_of(files.begin(), files.end(),
                     [](const auto& file) { return FileIdentity::of(file.first) == file.second; });
}

/// File systems tell the time of a change by a clock that ticks: two changes within a tick look the same.
bool settled(const FileIdentity& file) {
  constexpr std::chrono::milliseconds kTick(20);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(file.changed_ns) + kTick < now;
}

}  // namespace

SameFile::SameFile(const std::string& path, const frontends::ModelSource& source, const EngineOptions& options,
                   const std::string& passes, const LoadOptions& load)
    : path_(path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto file = source.identity();
  const auto in = FileIdentity::of(folder.empty() ? "." : folder.string());
  if (!file || !in || !load.companions.empty()) return;
  key_ = fmt::format("{} {} {} {} {} {}|{} {} {} {}|{}|{}|{}|{}", file->device, file->inode, file->size,
                     file->changed_ns, in->device, in->inode, load.limits.bytes, load.limits.nodes, load.limits.nesting,
                     load.keep_mapped, fmt::join(load.formats, ","), passes, fmt::join(options.backends, ","),
                     static_cast<const void*>(options.allocator.get()));
}

std::shared_ptr<EngineImpl> SameFile::find() const {
  if (key_.empty()) return nullptr;
  Entry entry;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().entries.find(key_);
    if (found == registry().entries.end()) return nullptr;
    entry = found->second;
  }
  return unchanged(entry.companions) ? entry.engine.lock() : nullptr;
}

void SameFile::publish(const std::shared_ptr<EngineImpl>& engine, const frontends::ModelSource& source) const {
  if (key_.empty()) return;
  const Files companions = source.opened();
  const bool all_settled =
      std::all_of(companions.begin(), companions.end(), [](const auto& file) { return settled(file.second); });
  if (!all_settled || !settled(*source.identity()) || !unchanged(companions) ||
      FileIdentity::of(path_) != source.identity())
    return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries, [](const auto& entry) { return entry.second.engine.expired(); });
  all.entries[key_] = {engine, companions};
}

}  // namespace lathe::runtime
