// The C functions that compiled code may call: one table, so that code links against nothing else.
#pragma once

#include <span>

namespace lathe::jit {

struct Symbol {
  const char* name;
  void* address;
};

std::span<const Symbol> symbols();

}  // namespace lathe::jit
