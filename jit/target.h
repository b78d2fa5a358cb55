// This machine as LLVM describes it, and objects compiled for it.
#pragma once

#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/schedule.h"

namespace lathe::jit {

class Target {
 public:
  /// This machine, with its features; throws Failure where LLVM has no back end for it.
  static const Target& host();

  [[nodiscard]] Machine machine(int max_vector_bits) const;
  [[nodiscard]] std::unique_ptr<llvm::TargetMachine> make_machine(llvm::CodeGenOptLevel level) const;
  /// Code generators are costly to make and serve one thread at a time: taken from a pool, and put back.
  [[nodiscard]] std::unique_ptr<llvm::TargetMachine> take_machine(llvm::CodeGenOptLevel level) const;
  void put_back(std::unique_ptr<llvm::TargetMachine> machine) const;
  /// CPU and features, as a part of cache keys.
  [[nodiscard]] std::string description() const { return cpu_ + " " + features_; }

 private:
  Target();
  std::string triple_, cpu_, features_;
  Machine widest_;
  mutable std::mutex mutex_;  ///< guards idle_
  mutable std::vector<std::unique_ptr<llvm::TargetMachine>> idle_;
};

/// Verifies (in debug builds), simplifies and compiles a module to an object in memory. Throws Failure.
std::unique_ptr<llvm::MemoryBuffer> compile_module(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace lathe::jit
