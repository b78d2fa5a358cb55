// rounds(): how often a test repeats itself on random cases.
#pragma once

namespace lathe::test {

/// `n`, or an eighth where sanitizers make each round many times slower.
constexpr int rounds(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (n + 7) / 8;
#else
  return n;
#endif
}

}  // namespace lathe::test
