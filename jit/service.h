// The ORC service: objects linked into the process, one resource tracker per module, removed by a thread of its own.
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

  [[nodiscard]] std::int64_t live_modules() const { return live_modules_; }
  [[nodiscard]] std::int64_t code_bytes() const { return code_bytes_; }

 private:
  Service();
  struct Session;
  struct Removable;
  void remove_later(std::unique_ptr<Removable> module);
  void remove_queued();

  std::unique_ptr<Session> session_;
  std::atomic<std::int64_t> live_modules_{0};
  std::atomic<std::int64_t> code_bytes_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Removable>> queue_;
  bool ending_ = false;
  std::thread remover_;

  friend class LinkedModule;
};

}  // namespace lathe::jit
