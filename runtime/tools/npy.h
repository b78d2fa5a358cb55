// NumPy's .npy as bytes; shared by the readers of single files and of archives. Everything here may throw Failure.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <lathe/tensor.h>

namespace lathe::runtime {

/// `where` names the file (and the member) in messages.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view where);
std::vector<std::byte> format_npy(const Tensor& tensor);

}  // namespace lathe::runtime
