// Opens model files and their companions; keeps within the model's folder and the limits of the load.
#include "frontends/source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>

#include "ops/ir/failure.h"

namespace lathe::frontends {
namespace {

namespace fs = std::filesystem;

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail_errno(const std::string& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  fail(missing ? ErrorCode::not_found : ErrorCode::io, "cannot read '{}': {}", shown(path),
       std::generic_category().message(error));
}

/// The path of a companion inside `folder`, with links resolved; Failure where it leaves the folder.
std::string resolve(const std::string& folder, std::string_view name) {
  const fs::path relative(name);
  const bool climbs = std::any_of(relative.begin(), relative.end(), [](const fs::path& part) { return part == ".."; });
  if (name.empty() || name.find('\0') != std::string_view::npos || relative.is_absolute() || climbs) {
    fail(ErrorCode::invalid_model, "external data '{}' lies outside the model's folder", shown(name));
  }
  if (folder.empty()) {
    fail(ErrorCode::not_found, "external data '{}' was not given: the model came as bytes, without a folder",
         shown(name));
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) fail(ErrorCode::io, "cannot read folder '{}': {}", shown(folder), error.message());
  const fs::path full = fs::canonical(root / relative, error);
  if (error) fail(ErrorCode::not_found, "cannot read external data '{}': {}", shown(name), error.message());
  const auto [end, at] = std::mismatch(root.begin(), root.end(), full.begin(), full.end());
  if (end != root.end()) {
    fail(ErrorCode::invalid_model, "external data '{}' links to a file outside the model's folder", shown(name));
  }
  return full.string();
}

FileIdentity identity_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
          info.st_ctim.tv_sec * std::int64_t{1'000'000'000} + info.st_ctim.tv_nsec};
}

bool holds(std::span<const std::byte> file, std::string_view bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return !file.empty() && std::less_equal<>()(file.data(), begin) &&
         std::less_equal<>()(begin + bytes.size(), file.data() + file.size());
}

}  // namespace

std::optional<FileIdentity> FileIdentity::of(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return identity_of(info);
}

MappedFile MappedFile::open(const std::string& path, std::uint64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // O_NONBLOCK: never wait on a pipe
  if (file.fd < 0) fail_errno(path, errno);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) fail_errno(path, errno);
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::io, "cannot read '{}': it is not a regular file", shown(path));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > limit) {
    fail(ErrorCode::limit_exceeded, "'{}' has {} bytes, the limit is {}", shown(path), size, limit);
  }
  MappedFile mapped;
  mapped.identity_ = identity_of(info);
  if (size == 0) return mapped;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (memory == MAP_FAILED) fail_errno(path, errno);
  mapped.mapping_ = std::shared_ptr<const void>(memory, [memory, size](const void*) { ::munmap(memory, size); });
  mapped.bytes_ = {static_cast<const std::byte*>(memory), size};
  return mapped;
}

ModelSource ModelSource::open(const std::string& path, const LoadOptions& options) {
  ModelSource source;
  source.file_ = MappedFile::open(path, options.limits.bytes);
  source.bytes_ = source.file_.bytes();
  const fs::path full(path);
  source.name_ = full.filename().string();
  source.folder_ = full.has_parent_path() ? full.parent_path().string() : ".";
  source.limit_ = options.limits.bytes;
  source.companions_ = options.companions;
  source.keep_mapped_ = options.keep_mapped;
  return source;
}

ModelSource ModelSource::from_bytes(std::span<const std::byte> bytes, const LoadOptions& options, std::string name) {
  if (bytes.size() > options.limits.bytes) {
    fail(ErrorCode::limit_exceeded, "the model has {} bytes, the limit is {}", bytes.size(), options.limits.bytes);
  }
  ModelSource source;
  source.bytes_ = bytes;
  source.name_ = std::move(name);
  source.folder_ = options.folder;
  source.limit_ = options.limits.bytes;
  source.companions_ = options.companions;
  source.keep_mapped_ = options.keep_mapped;
  return source;
}

std::shared_ptr<const void> ModelSource::keeper(std::string_view bytes) const {
  if (!keep_mapped_) return nullptr;
  if (holds(file_.bytes(), bytes)) return file_.mapping();
  for (const auto& [name, companion] : opened_) {
    if (holds(companion.file.bytes(), bytes)) return companion.file.mapping();
  }
  return nullptr;
}

std::vector<std::pair<std::string, FileIdentity>> ModelSource::opened() const {
  std::vector<std::pair<std::string, FileIdentity>> files;
  for (const auto& [name, companion] : opened_) files.emplace_back(companion.path, companion.file.identity());
  return files;
}

std::span<const std::byte> ModelSource::companion(std::string_view name) const {
  const auto given = companions_.find(std::string(name));
  if (given != companions_.end()) return given->second;
  const auto known = opened_.find(name);
  if (known != opened_.end()) return known->second.file.bytes();
  std::string path = resolve(folder_, name);
  MappedFile file = MappedFile::open(path, limit_);
  return opened_.emplace(name, Companion{std::move(path), std::move(file)}).first->second.file.bytes();
}

void LoadClock::check() const {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_);
  if (took < limit_) return;
  fail(ErrorCode::limit_exceeded, "the load took longer than its limit of {} ms", limit_.count());
}

void Budget::take_bytes(std::uint64_t bytes, std::string_view what) {
  if (bytes > limits_.bytes - bytes_) {
    fail(ErrorCode::limit_exceeded, "{}: its {} bytes pass the load's limit of {}", what, bytes, limits_.bytes);
  }
  bytes_ += bytes;
  clock_.check();
}

void Budget::take_node() {
  if (++nodes_ > limits_.nodes) {
    fail(ErrorCode::limit_exceeded, "the model has more than {} nodes, the load's limit", limits_.nodes);
  }
  clock_.check();
}

void Budget::check_nesting(int depth, std::string_view what) const {
  if (depth > limits_.nesting) {
    fail(ErrorCode::limit_exceeded, "{} is nested deeper than the load's limit of {}", what, limits_.nesting);
  }
}

}  // namespace lathe::frontends
