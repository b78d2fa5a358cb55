// NumPy's .npz: a zip archive of .npy files.
#include <zip.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <lathe/tools.h>

#include "ops/ir/failure.h"
#include "runtime/boundary.h"
#include "runtime/tools/files.h"
#include "runtime/tools/npy.h"

namespace lathe::tools {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::int64_t kMaxMembers = 100'000;

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

std::string text_of(zip_error_t& error) {
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

Archive open_archive(std::span<const std::byte> bytes, std::string_view where) {
  if (bytes.empty()) fail(ErrorCode::invalid_argument, "{} is not a .npz archive: it is empty", where);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  zip_t* archive = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr;
  if (!archive) {
    if (source) zip_source_free(source);
    fail(ErrorCode::invalid_argument, "{} is not a .npz archive: {}", where, text_of(error));
  }
  return Archive(archive);
}

std::vector<std::byte> unpack(zip_t* archive, zip_uint64_t index, std::uint64_t size, const std::string& where) {
  const std::unique_ptr<zip_file_t, Discard> file(zip_fopen_index(archive, index, 0));
  if (!file) fail(ErrorCode::invalid_argument, "{} cannot be unpacked: {}", where, zip_strerror(archive));
  // The size is the archive's word: grow with what really comes.
  constexpr std::uint64_t kChunk = std::uint64_t{16} << 20;
  std::vector<std::byte> bytes;
  while (bytes.size() < size) {
    const std::size_t at = bytes.size();
    bytes.resize(at + std::min(kChunk, size - at));
    const zip_int64_t n = zip_fread(file.get(), bytes.data() + at, bytes.size() - at);
    if (n <= 0) fail(ErrorCode::invalid_argument, "{} cannot be unpacked: it is damaged or cut short", where);
    bytes.resize(at + static_cast<std::size_t>(n));
  }
  std::byte more;
  if (zip_fread(file.get(), &more, 1) != 0) {
    fail(ErrorCode::invalid_argument, "{} is damaged: its checksum or size is wrong", where);
  }
  return bytes;
}

std::vector<NamedTensor> read_archive(std::span<const std::byte> bytes, const std::string& where, std::uint64_t limit) {
  const Archive archive = open_archive(bytes, where);
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  if (count > kMaxMembers)
    fail(ErrorCode::limit_exceeded, "{} has {} members; at most {} are allowed", where, count, kMaxMembers);
  std::vector<NamedTensor> tensors;
  std::set<std::string> names;
  std::uint64_t total = 0;
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    zip_stat_t status;
    if (zip_stat_index(archive.get(), i, 0, &status) != 0 || !(status.valid & ZIP_STAT_NAME) ||
        !(status.valid & ZIP_STAT_SIZE)) {
      fail(ErrorCode::invalid_argument, "member {} of {} is damaged", i, where);
    }
    std::string name = status.name;
    const std::string member = fmt::format("'{}' in {}", shown(name), where);
    if (!name.ends_with(kSuffix)) fail(ErrorCode::invalid_argument, "{} is not a .npy file", member);
    name.resize(name.size() - kSuffix.size());
    if (!names.insert(name).second) fail(ErrorCode::invalid_argument, "{} stands there twice", member);
    if (status.size > limit - total)
      fail(ErrorCode::limit_exceeded, "{} holds more than {} bytes unpacked", where, limit);
    total += status.size;
    tensors.push_back({std::move(name), runtime::parse_npy(unpack(archive.get(), i, status.size, member), member)});
  }
  return tensors;
}

void write_archive(const std::string& path, std::span<const NamedTensor> tensors) {
  if (tensors.empty()) {  // libzip writes no archive without members: this is one
    constexpr std::array<std::byte, 22> kEmpty = {std::byte{'P'}, std::byte{'K'}, std::byte{5}, std::byte{6}};
    return runtime::write_file(path, kEmpty);
  }
  std::error_code unknown;  // then the writing says so
  if (std::filesystem::is_directory(path, unknown))
    fail(ErrorCode::io, "cannot write '{}': it is a directory", shown(path));
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    fail(ErrorCode::io, "cannot write '{}': {}", shown(path), text_of(error));
  }
  std::vector<std::vector<std::byte>> members;  // libzip reads them when the archive is closed
  members.reserve(tensors.size());
  for (const NamedTensor& t : tensors) {
    members.push_back(runtime::format_npy(t.tensor));
    zip_source_t* source = zip_source_buffer(archive.get(), members.back().data(), members.back().size(), 0);
    const std::string name = t.name + std::string(kSuffix);
    const zip_int64_t index = zip_file_add(archive.get(), name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      fail(ErrorCode::invalid_argument, "cannot add '{}' to '{}': {}", shown(t.name), shown(path),
           zip_strerror(archive.get()));
    }
    zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (zip_close(archive.get()) != 0)
    fail(ErrorCode::io, "cannot write '{}': {}", shown(path), zip_strerror(archive.get()));
  [[maybe_unused]] zip_t* const closed = archive.release();
}

}  // namespace

Result<std::vector<NamedTensor>> try_read_npz(const std::string& path, std::uint64_t limit) noexcept {
  return runtime::guarded<std::vector<NamedTensor>>(
      [&] { return read_archive(runtime::read_file(path, limit), fmt::format("'{}'", shown(path)), limit); });
}

Result<std::vector<NamedTensor>> try_parse_npz(std::span<const std::byte> bytes, std::uint64_t limit) noexcept {
  return runtime::guarded<std::vector<NamedTensor>>([&] { return read_archive(bytes, "the archive", limit); });
}

Result<void> try_write_npz(const std::string& path, std::span<const NamedTensor> tensors) noexcept {
  return runtime::guarded<void>([&] { write_archive(path, tensors); });
}

Result<Tensor> try_read_npy(const std::string& path) noexcept {
  return runtime::guarded<Tensor>(
      [&] { return runtime::parse_npy(runtime::read_file(path, kArchiveLimit), fmt::format("'{}'", shown(path))); });
}

Result<Tensor> try_parse_npy(std::span<const std::byte> bytes) noexcept {
  return runtime::guarded<Tensor>([&] { return runtime::parse_npy(bytes, "the array"); });
}

Result<void> try_write_npy(const std::string& path, const Tensor& tensor) noexcept {
  return runtime::guarded<void>([&] { runtime::write_file(path, runtime::format_npy(tensor)); });
}

Result<std::vector<std::byte>> try_format_npy(const Tensor& tensor) noexcept {
  return runtime::guarded<std::vector<std::byte>>([&] { return runtime::format_npy(tensor); });
}

}  // namespace lathe::tools
