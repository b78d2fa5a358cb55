// Whole files in and out of memory. Everything here may throw Failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::runtime {

/// The bytes of a regular file of at most `limit` bytes.
std::vector<std::byte> read_file(const std::string& path, std::uint64_t limit);
/// Writes a temporary file beside `path` and renames it, so that no one sees half a file.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace lathe::runtime
