// ModelSource: the bytes of a model and bounded access to the files beside it; Budget: what is left of a load's limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lathe/options.h>

namespace lathe::frontends {

/// Which file it is and when it was changed last; equal only where its bytes are.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;  ///< since the epoch
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  /// Of the file at `path` now; nothing where there is none.
  static std::optional<FileIdentity> of(const std::string& path);
};

/// A file mapped for reading; unmapped with the last copy.
class MappedFile {
 public:
  MappedFile() = default;
  /// Failure (not_found, io) where `path` is no readable regular file, limit_exceeded where it is larger than `limit`.
  static MappedFile open(const std::string& path, std::uint64_t limit);
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::shared_ptr<const void>& mapping() const { return mapping_; }
  /// As it was when it was opened.
  [[nodiscard]] const FileIdentity& identity() const { return identity_; }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
  FileIdentity identity_;
};

/// Where a model comes from. Files beside the main one are found in memory first, then in the model's folder; nothing
/// outside that folder is opened: no absolute path, no "..", no symbolic link that leaves it.
class ModelSource {
 public:
  /// A file; companions lie in its folder.
  static ModelSource open(const std::string& path, const LoadOptions& options);
  /// Bytes in memory, borrowed; companions lie in `options.companions` and, where given, `options.folder`.
  static ModelSource from_bytes(std::span<const std::byte> bytes, const LoadOptions& options,
                                std::string name = "model");

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// Of the main file, where there is one.
  [[nodiscard]] std::optional<FileIdentity> identity() const {
    return file_.mapping() ? std::optional(file_.identity()) : std::nullopt;
  }
  /// For messages: the file's name, not escaped.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// The bytes of a file beside the model, valid as long as this source. Failure naming it where it may not be read.
  [[nodiscard]] std::span<const std::byte> companion(std::string_view name) const;
  /// What keeps `bytes` readable when this source is gone, where they may be used in place (LoadOptions::keep_mapped);
  /// null: they must be copied.
  [[nodiscard]] std::shared_ptr<const void> keeper(std::string_view bytes) const;
  /// The companions opened so far, by path.
  [[nodiscard]] std::vector<std::pair<std::string, FileIdentity>> opened() const;

 private:
  std::span<const std::byte> bytes_;
  MappedFile file_;
  std::string name_;
  std::string folder_;
  std::uint64_t limit_ = 0;
  std::map<std::string, std::span<const std::byte>> companions_;
  struct Companion {
    std::string path;
    MappedFile file;
  };
  mutable std::map<std::string, Companion, std::less<>> opened_;
  bool keep_mapped_ = false;
};

/// The time that one load may take, from construction on.
class LoadClock {
 public:
  explicit LoadClock(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Failure (limit_exceeded) once it has passed.
  void check() const;

 private:
  std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Counts what one load has used; Failure (limit_exceeded) where a limit is passed.
class Budget {
 public:
  explicit Budget(const LoadLimits& limits) : limits_(limits), clock_(limits.time) {}

  void take_bytes(std::uint64_t bytes, std::string_view what);
  void take_node();
  void check_nesting(int depth, std::string_view what) const;
  [[nodiscard]] int nesting() const { return limits_.nesting; }

 private:
  LoadLimits limits_;
  LoadClock clock_;
  std::uint64_t bytes_ = 0;
  std::uint64_t nodes_ = 0;
};

}  // namespace lathe::frontends
