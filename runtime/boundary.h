// The boundary of the library: whatever is thrown inside becomes an Error.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include <lathe/error.h>

#include "ops/ir/failure.h"

namespace lathe::runtime {

/// The Error of the exception in flight. Called in a catch block only.
inline Error current_error() noexcept {
  try {
    throw;
  } catch (Failure& failure) {
    return std::move(failure.error);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, error.what()};
  } catch (...) {
    return {ErrorCode::internal, "an exception of unknown type"};
  }
}

/// What `body` returns, or what it threw.
template <class T, class Body>
Result<T> guarded(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<T>) {
      std::forward<Body>(body)();
      return {};
    } else {
      return Result<T>(std::forward<Body>(body)());
    }
  } catch (...) {
    return current_error();
  }
}

}  // namespace lathe::runtime
