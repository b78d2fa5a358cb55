// Session: one thread's repeated runs of an engine, in memory of its own, with inputs and outputs bound to buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include <lathe/engine.h>

namespace lathe {

namespace runtime {
class SessionImpl;
}

/// Runs an engine again and again in one arena. Used by one thread at a time; any number of sessions may run at once. A
/// session keeps alive what it needs of its engine. One that was moved from only returns errors.
///
///   auto session = engine.session();
///   session.bind_input("observation", observation);   // the same memory is read at every run
///   session.bind_output("action", action);            // and written
///   session.prepare({.real_time = true});
///   while (running) { sense(observation); session.run(); act(action); }
class LATHE_API Session {
 public:
  /// From now on runs read this input from the tensor's memory, as it is at the time of the run. The tensor's shape is
  /// the input's shape; binding again replaces it, and an undefined tensor unbinds. not_found: there is no such input;
  /// invalid_argument: it has another dtype or shape.
  Result<void> try_bind_input(std::string_view name, Tensor tensor) noexcept;
  /// From now on runs write this output to the tensor's memory. A run whose output has another dtype or shape fails.
  /// Bound inputs and outputs may be the same memory or apart; overlapping in part is an error. Strings cannot be
  /// bound. not_found: there is no such output; invalid_argument: all else.
  Result<void> try_bind_output(std::string_view name, Tensor tensor) noexcept;

  /// Compiles and allocates all that a run with the bound inputs (and PrepareOptions::shapes) needs. Errors as
  /// Engine::try_run's; unsupported: the session cannot run in real time, and the message says why.
  Result<void> try_prepare(const PrepareOptions& options = {}) noexcept;

  /// Runs with the bound inputs. Errors as Engine::try_run's; invalid_argument also where an output does not fit the
  /// memory that it is bound to, or the session was moved from.
  Result<void> try_run(const RunOptions& options = {}) noexcept;
  /// Runs with these inputs in addition to the bound ones (a name in both: these).
  Result<void> try_run(const Inputs& inputs, const RunOptions& options = {}) noexcept;

  /// An output of the last run that succeeded; null where there is none of that name. Its memory is the session's: it
  /// holds until the next run, and a copy must be `clone()`d to keep it. An index counts the outputs that the run
  /// wanted.
  [[nodiscard]] const Value* find_output(std::string_view name) const noexcept;
  [[nodiscard]] const Value* find_output(std::size_t index) const noexcept;

#if defined(__cpp_exceptions)
  void bind_input(std::string_view name, Tensor tensor) { unwrap(try_bind_input(name, std::move(tensor))); }
  void bind_output(std::string_view name, Tensor tensor) { unwrap(try_bind_output(name, std::move(tensor))); }
  void prepare(const PrepareOptions& options = {}) { unwrap(try_prepare(options)); }
  void run(const RunOptions& options = {}) { unwrap(try_run(options)); }
  void run(const Inputs& inputs, const RunOptions& options = {}) { unwrap(try_run(inputs, options)); }
  /// The same as find_output; throws where there is none.
  [[nodiscard]] const Value& output(std::string_view name) const {
    if (const Value* value = find_output(name)) return *value;
    throw Exception({ErrorCode::not_found, "the session has no output named '" + std::string(name) + "'"});
  }
#endif

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// For Lathe's own use.
  explicit Session(std::unique_ptr<runtime::SessionImpl> impl);
  [[nodiscard]] runtime::SessionImpl* impl() const { return impl_.get(); }

 private:
  std::unique_ptr<runtime::SessionImpl> impl_;
};

#if defined(__cpp_exceptions)
inline Session Engine::session() const { return unwrap(try_session()); }
#endif

}  // namespace lathe
