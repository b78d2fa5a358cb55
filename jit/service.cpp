// LLVM's ORC session behind the JIT: linking in pooled memory that is never writable and executable at once.
#include "jit/service.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h>
#include <llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>
#include <llvm/ExecutionEngine/Orc/TaskDispatch.h>

#include "jit/symbols.h"
#include "ops/ir/failure.h"

namespace lathe::jit {

using llvm::orc::ExecutionSession;

namespace {

template <class T>
T taken(llvm::Expected<T> value, const char* what) {
  if (value) return std::move(*value);
  fail(ErrorCode::internal, "{}: {}", what, llvm::toString(value.takeError()));
}

constexpr std::size_t kSlabBytes = std::size_t{4} << 20;

}  // namespace

/// Members are torn down bottom up: layers before the session that they serve.
struct Service::Session {
  std::mutex mutex;  // guards last_error
  std::string last_error;
  std::unique_ptr<ExecutionSession> es;
  llvm::orc::JITDylib* dylib = nullptr;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> plain;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> debuggable;  // with a plugin that costs time for each object

  Session() {
    auto memory =
        taken(llvm::orc::MapperJITLinkMemoryManager::CreateWithMapper<llvm::orc::InProcessMemoryMapper>(kSlabBytes),
              "no memory for code");
    auto control = taken(llvm::orc::SelfExecutorProcessControl::Create(
                             nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>(), std::move(memory)),
                         "no JIT session");
    es = std::make_unique<ExecutionSession>(std::move(control));
    es->setErrorReporter([this](llvm::Error error) {
      const std::lock_guard lock(mutex);
      last_error = llvm::toString(std::move(error));
    });
    dylib = &es->createBareJITDylib("lathe");
    llvm::orc::SymbolMap map;
    for (const Symbol& symbol : symbols()) {
      map[es->intern(symbol.name)] = {llvm::orc::ExecutorAddr::fromPtr(symbol.address),
                                      llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    }
    llvm::cantFail(dylib->define(llvm::orc::absoluteSymbols(std::move(map))));
    plain = std::make_unique<llvm::orc::ObjectLinkingLayer>(*es);
  }
  ~Session() {
    if (auto error = es->endSession()) llvm::consumeError(std::move(error));
  }

  std::string error_text(llvm::Error error) {
    std::string text = llvm::toString(std::move(error));
    const std::lock_guard lock(mutex);
    if (!last_error.empty()) text += " (" + last_error + ")";
    last_error.clear();
    return text;
  }

  llvm::orc::ObjectLinkingLayer& layer(bool gdb) {
    if (!gdb) return *plain;
    const std::lock_guard lock(mutex);
    if (debuggable == nullptr) {
      debuggable = std::make_unique<llvm::orc::ObjectLinkingLayer>(*es);
      llvm::orc::SymbolMap map;
      map[es->intern("llvm_orc_registerJITLoaderGDBAllocAction")] = {
          llvm::orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderGDBAllocAction),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
      auto& process = es->createBareJITDylib("lathe-debug");
      llvm::cantFail(process.define(llvm::orc::absoluteSymbols(std::move(map))));
      auto error = llvm::Error::success();
      auto plugin = std::make_shared<llvm::orc::ELFDebugObjectPlugin>(*es, false, true, error);
      if (error) {
        llvm::consumeError(std::move(error));
      } else {
        debuggable->addPlugin(std::move(plugin));
      }
    }
    return *debuggable;
  }
};

struct Service::Removable {
  llvm::orc::ResourceTrackerSP tracker;
  std::int64_t bytes = 0;
  std::unique_ptr<Removable> next = nullptr;
};

/// Queues its code for removal when the last holder lets go.
class LinkedModule : public CodeModule {
 public:
  LinkedModule(std::shared_ptr<Service> service, std::unique_ptr<Service::Removable> module)
      : service_(std::move(service)), module_(std::move(module)) {}
  ~LinkedModule() override { service_->remove_later(std::move(module_)); }

 private:
  std::shared_ptr<Service> service_;
  std::unique_ptr<Service::Removable> module_;
};

Service::Service() : session_(std::make_unique<Session>()) {}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (remover_.joinable()) remover_.join();
  while (queue_ != nullptr) queue_ = std::move(queue_->next);  // one by one: the list may be long
}

std::shared_ptr<Service> Service::get() {
  static std::mutex mutex;
  static std::weak_ptr<Service> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Service> service = current.lock();
  if (service == nullptr) {
    service = std::shared_ptr<Service>(new Service);
    current = service;
  }
  return service;
}

Service::Linked Service::link(std::unique_ptr<llvm::MemoryBuffer> object, const std::vector<std::string>& names,
                              bool gdb) {
  if (!thread_allowed_) remove_queued();
  ExecutionSession& es = *session_->es;
  auto module = std::make_unique<Removable>();
  module->tracker = session_->dylib->createResourceTracker();
  module->bytes = static_cast<std::int64_t>(object->getBufferSize());
  if (auto error = session_->layer(gdb).add(module->tracker, std::move(object))) {
    fail(ErrorCode::internal, "cannot link compiled kernels: {}", session_->error_text(std::move(error)));
  }
  llvm::orc::SymbolLookupSet wanted;
  for (const std::string& name : names) wanted.add(es.intern(name));
  auto found = es.lookup(llvm::orc::makeJITDylibSearchOrder({session_->dylib}), std::move(wanted));
  if (!found) {
    const std::string text = session_->error_text(found.takeError());
    if (auto error = module->tracker->remove()) llvm::consumeError(std::move(error));
    fail(ErrorCode::internal, "cannot link compiled kernels: {}", text);
  }
  Linked linked;
  for (const std::string& name : names) {
    linked.addresses.push_back((*found)[es.intern(name)].getAddress().toPtr<void*>());
  }
  live_modules_ += 1;
  code_bytes_ += module->bytes;
  linked.module = std::make_shared<LinkedModule>(shared_from_this(), std::move(module));
  return linked;
}

void Service::remove_later(std::unique_ptr<Removable> module) noexcept {
  {
    const std::lock_guard lock(mutex_);
    module->next = std::move(queue_);
    queue_ = std::move(module);
    if (thread_allowed_ && !remover_.joinable()) {
      try {
        remover_ = std::thread([this] { remove_as_queued(); });
      } catch (const std::exception&) {
        thread_allowed_ = false;  // none is to be had: link() removes it
      }
    }
  }
  wake_.notify_one();
}

void Service::remove_queued() noexcept {
  std::unique_lock lock(mutex_);
  std::unique_ptr<Removable> batch = std::move(queue_);
  lock.unlock();
  for (; batch != nullptr; batch = std::move(batch->next)) {
    if (auto error = batch->tracker->remove()) llvm::consumeError(std::move(error));
    live_modules_ -= 1;
    code_bytes_ -= batch->bytes;
  }
}

void Service::remove_as_queued() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return ending_ || queue_ != nullptr; });
    if (ending_) return;
    lock.unlock();
    remove_queued();
    lock.lock();
  }
}

}  // namespace lathe::jit
