// Failure: how loading, inference and passes report inside the library; the `try_` boundary turns it into a Result.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include <lathe/error.h>
#include <lathe/tensor.h>

namespace lathe {

class Failure : public std::exception {
 public:
  explicit Failure(Error what_failed) : error(std::move(what_failed)) {}
  [[nodiscard]] const char* what() const noexcept override { return error.message.c_str(); }
  Error error;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

/// A name out of a file, made safe to show: control characters and invalid UTF-8 become \xNN, long names are cut.
std::string shown(std::string_view name);

}  // namespace lathe

template <>
struct fmt::formatter<lathe::DType> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lathe::DType dtype, Context& ctx) const {
    return fmt::formatter<std::string_view>::format(dtype.name(), ctx);
  }
};
template <>
struct fmt::formatter<lathe::Shape> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const lathe::Shape& shape, Context& ctx) const {
    return fmt::formatter<std::string_view>::format(shape.to_string(), ctx);
  }
};
