// Error, Result and Exception: how every fallible call of Lathe reports.
#pragma once

#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <lathe/export.h>

namespace lathe {

enum class ErrorCode {
  invalid_argument,   ///< what the caller passed: a name, dtype, shape, option
  invalid_model,      ///< the file is damaged or contradicts itself
  unsupported,        ///< an operator, format or feature that this build does not have
  out_of_range,       ///< an index found at run time lies outside its tensor
  limit_exceeded,     ///< LoadOptions::limits or EngineOptions::memory_bytes
  out_of_memory,      ///< the system or the application's allocator refused
  cancelled,          ///< RunOptions::stop was requested
  deadline_exceeded,  ///< RunOptions::deadline passed
  not_found,          ///< a file, input or output that does not exist
  io,                 ///< the system refused to read or write
  internal,           ///< a fault of Lathe's own: please report it
};

/// The name of a code as written here.
[[nodiscard]] LATHE_API std::string_view to_string(ErrorCode code);

/// What went wrong: a code for programs, a message for people that names the place, what was expected and what came.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

/// A value or an Error. Returned by every `try_…` function; never empty. Values are reached only after checking.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor,performance-unnecessary-value-param): not every T has a move
  Result(T value) : ok_(true) { new (&value_) T(std::move(value)); }
  Result(Error error) : ok_(false) { new (&error_) Error(std::move(error)); }  // NOLINT(google-explicit-constructor)
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : ok_(other.ok_) {
    if (ok_) {
      new (&value_) T(std::move(other.value_));
    } else {
      new (&error_) Error(std::move(other.error_));
    }
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  Result& operator=(Result&&) = delete;
  ~Result() {
    if (ok_) {
      value_.~T();
    } else {
      error_.~Error();
    }
  }

  [[nodiscard]] bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  /// The value; only when ok().
  T& operator*() & { return value_; }
  const T& operator*() const& { return value_; }
  T&& operator*() && { return std::move(value_); }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }
  /// The error; only when !ok().
  [[nodiscard]] const Error& error() const& { return error_; }
  [[nodiscard]] Error&& error() && { return std::move(error_); }

 private:
  bool ok_;
  union {
    T value_;
    Error error_;
  };
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : ok_(false), error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  [[nodiscard]] const Error& error() const& { return error_; }
  [[nodiscard]] Error&& error() && { return std::move(error_); }

 private:
  bool ok_ = true;
  Error error_;
};

}  // namespace lathe

#if defined(__cpp_exceptions)
#include <exception>

namespace lathe {

/// Thrown by the wrappers without `try_`, in the application's own code.
class LATHE_API Exception : public std::exception {
 public:
  explicit Exception(Error error) : error_(std::move(error)) {}
  [[nodiscard]] const char* what() const noexcept override { return error_.message.c_str(); }
  [[nodiscard]] ErrorCode code() const noexcept { return error_.code; }
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// The value of a result, or an Exception.
template <class T>
T unwrap(Result<T>&& result) {
  if (!result.ok()) throw Exception(std::move(result).error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace lathe
#endif
