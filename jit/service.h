// The ORC service: objects linked into the process, one resource tracker per module, removed after the last holder let
// go.
#pragma once

#include <llvm/Support/MemoryBuffer.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lathe::jit {

/// A module's code while anyone holds it.
class CodeModule {
 public:
  virtual ~CodeModule() = default;
};

class Service : public std::enable_shared_from_this<Service> {
 public:
  /// The process's service; made anew after its last holder let go.
  static std::shared_ptr<Service> get();
  ~Service();

  struct Linked {
    std::shared_ptr<const CodeModule> module;  ///< holds the service too
    std::vector<void*> addresses;
  };
  /// Links an object and finds its symbols. Throws Failure. `gdb` also shows it to a debugger.
  Linked link(std::unique_ptr<llvm::MemoryBuffer> object, const std::vector<std::string>& names, bool gdb);

  /// Lets a thread of the service's own remove code as soon as its last holder lets go. Until then it is queued for the
  /// next link() or remove_queued().
  void allow_thread() { thread_allowed_ = true; }
  void remove_queued() noexcept;

  [[nodiscard]] std::int64_t live_modules() const { return live_modules_; }
  [[nodiscard]] std::int64_t code_bytes() const { return code_bytes_; }

 private:
  Service();
  struct Session;
  struct Removable;
  void remove_later(std::unique_ptr<Removable> module) noexcept;
  void remove_as_queued();

  std::unique_ptr<Session> session_;
  std::atomic<std::int64_t> live_modules_{0};
  std::atomic<std::int64_t> code_bytes_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::unique_ptr<Removable> queue_;  // a list through Removable::next: letting go of code takes no memory
  std::atomic<bool> thread_allowed_{false};
  bool ending_ = false;
  std::thread remover_;

  friend class LinkedModule;
};

}  // namespace lathe::jit
