// The host's CPU, its vector width and registers as LLVM's target description gives them, and the code generator.
#include "jit/target.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar.h>

#include "ops/ir/failure.h"

namespace lathe::jit {
namespace {

/// Loops are written with the induction variables they should have: reducing their strength again takes a third of all
/// compile time and changes little.
void keep_inductions() {
  auto& options = llvm::cl::getRegisteredOptions();
  const auto found = options.find("disable-lsr");
  if (found != options.end()) static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(true);
}

}  // namespace

Target::Target() : triple_(llvm::sys::getProcessTriple()), cpu_(llvm::sys::getHostCPUName()) {
  keep_inductions();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    features_ += (features_.empty() ? "" : ",") + std::string(feature.second ? "+" : "-") + feature.first().str();
  }
  const auto machine = make_machine(llvm::CodeGenOptLevel::None);
  llvm::LLVMContext context;
  llvm::Module module("probe", context);
  module.setDataLayout(machine->createDataLayout());
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), false);
  auto* probe = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "probe", module);
  probe->addFnAttr("prefer-vector-width", "512");
  const llvm::TargetTransformInfo info = machine->getTargetTransformInfo(*probe);
  const auto bits = info.getRegisterBitWidth(llvm::TargetTransformInfo::RGK_FixedWidthVector).getFixedValue();
  widest_.vector_bits = std::max(128, static_cast<int>(bits));
  widest_.vector_registers = static_cast<int>(info.getNumberOfRegisters(info.getRegisterClassForType(true)));
  auto* bytes = llvm::FixedVectorType::get(llvm::Type::getInt8Ty(context), static_cast<unsigned>(bits / 8));
  widest_.narrow_masks = info.isLegalMaskedStore(bytes, llvm::Align(1), 0);
}

const Target& Target::host() {
  static const Target target;
  return target;
}

Machine Target::machine(int max_vector_bits) const {
  Machine m = widest_;
  if (max_vector_bits > 0) m.vector_bits = std::max(128, std::min(m.vector_bits, max_vector_bits));
  return m;
}

std::unique_ptr<llvm::TargetMachine> Target::make_machine(llvm::CodeGenOptLevel level) const {
  std::string error;
  const llvm::Triple triple(triple_);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) fail(ErrorCode::unsupported, "no code generator for {}: {}", triple_, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  auto* machine = target->createTargetMachine(triple, cpu_, features_, options, llvm::Reloc::PIC_,
                                              llvm::CodeModel::Small, level, true);
  if (machine == nullptr) fail(ErrorCode::unsupported, "no code generator for {} {}", triple_, cpu_);
  return std::unique_ptr<llvm::TargetMachine>(machine);
}

std::unique_ptr<llvm::TargetMachine> Target::take_machine(llvm::CodeGenOptLevel level) const {
  {
    const std::lock_guard lock(mutex_);
    for (auto& machine : idle_) {
      if (machine->getOptLevel() != level) continue;
      std::swap(machine, idle_.back());
      auto taken = std::move(idle_.back());
      idle_.pop_back();
      return taken;
    }
  }
  return make_machine(level);
}

void Target::put_back(std::unique_ptr<llvm::TargetMachine> machine) const {
  constexpr std::size_t kMostIdle = 4;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(machine));
}

std::unique_ptr<llvm::MemoryBuffer> compile_module(llvm::Module& module, llvm::TargetMachine& machine) {
  std::string fault;
  llvm::raw_string_ostream faults(fault);
  if (llvm::verifyModule(module, &faults)) fail(ErrorCode::internal, "invalid code for a kernel: {}", fault);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine.getTargetIRAnalysis()));
  passes.add(llvm::createEarlyCSEPass());
  passes.add(llvm::createInstructionCombiningPass());
  llvm::MCContext* context = nullptr;
  if (machine.addPassesToEmitMC(passes, context, stream, true)) {
    fail(ErrorCode::internal, "the code generator cannot write objects");
  }
  passes.run(module);
  return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), "lathe", false);
}

}  // namespace lathe::jit
