// What this build is made of, and what the CPU it runs on offers.
#include <lathe/engine.h>

namespace lathe {
namespace {

std::string cpu_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  std::string features = "x86-64";
  if (__builtin_cpu_supports("avx")) features += " avx";
  if (__builtin_cpu_supports("avx2")) features += " avx2";
  if (__builtin_cpu_supports("fma")) features += " fma";
  if (__builtin_cpu_supports("f16c")) features += " f16c";
  if (__builtin_cpu_supports("avx512f")) features += " avx512f";
  if (__builtin_cpu_supports("avx512vl")) features += " avx512vl";
  if (__builtin_cpu_supports("avx512vnni")) features += " avx512vnni";
  if (__builtin_cpu_supports("avx512bf16")) features += " avx512bf16";
  return features;
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

BuildInfo make() {
  BuildInfo info;
  info.version = LATHE_VERSION;
  info.llvm = LATHE_LLVM_VERSION;
  info.onednn = LATHE_ONEDNN_VERSION;
  info.isa = cpu_features();
#if defined(__clang__)
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "gcc " __VERSION__;
#endif
  info.formats = {"onnx"};
  return info;
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info = make();
  return info;
}

}  // namespace lathe
