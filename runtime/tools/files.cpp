// Whole files in and out of memory.
#include "runtime/tools/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ops/ir/failure.h"

namespace lathe::runtime {
namespace {

[[noreturn]] void io_failure(const char* what, const std::string& path) {
  const int error = errno;
  fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot {} '{}': {}", what, shown(path),
       std::strerror(error));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, std::uint64_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) io_failure("open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) io_failure("read", path);
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::io, "'{}' is not a regular file", shown(path));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > limit)
    fail(ErrorCode::limit_exceeded, "'{}' has {} bytes; at most {} are allowed", shown(path), size, limit);
  std::vector<std::byte> bytes(size);
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) io_failure("read", path);
    if (n == 0) break;
    at += static_cast<std::size_t>(n);
  }
  bytes.resize(at);
  return bytes;
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::string temporary = path + ".XXXXXX";
  Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) io_failure("write", path);
  ::fchmod(file.get(), 0644);
  if (!write_all(file.get(), bytes) || file.close() != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    io_failure("write", path);
  }
}

}  // namespace lathe::runtime
