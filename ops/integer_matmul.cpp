// 8-bit matrix products for each level of vector instructions.
#include "ops/integer_matmul.h"

#include <algorithm>
#include <cstring>

#include "ops/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lathe::ops {

IntegerLevel integer_level() {
#if defined(__x86_64__)
  static const IntegerLevel kLevel = __builtin_cpu_supports("avx512vnni") ? IntegerLevel::avx512_vnni
                                     : __builtin_cpu_supports("avx2")     ? IntegerLevel::avx2
                                                                          : IntegerLevel::plain;
  return kLevel;
#else
  return IntegerLevel::plain;
#endif
}

void pack_matrix(const std::uint8_t* matrix, std::uint8_t flip, std::int64_t k, std::int64_t n, std::int8_t* packed,
                 std::int32_t* sums) {
  std::fill_n(packed, packed_bytes(k, n), std::int8_t{0});
  std::fill_n(sums, n, 0);
  const std::int64_t groups = (k + 3) / 4;
  for (std::int64_t r = 0; r < k; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const std::int64_t place =
          ((c / kPackedColumns * groups + r / 4) * kPackedColumns + c % kPackedColumns) * 4 + r % 4;
      packed[place] = static_cast<std::int8_t>(matrix[r * n + c] ^ flip);
      sums[c] += packed[place];
    }
  }
}

namespace {

std::int32_t wrapped(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Sums of one block of columns for some rows.
using Sums = std::int32_t[kPackedColumns];

// ---- Elements of the rows less their zero point, in 16 bits ----

constexpr std::int64_t kWideDepth = 1024;  // elements of a row at a time

/// x[i] - zero, filled up with zeros to a whole group; returns their sum.
LATHE_CLONES std::int32_t widen_row(const std::uint8_t* x, bool is_signed, std::int32_t zero, std::int64_t count,
                                    std::int16_t* wide) {
  std::int32_t total = 0;
  const std::int32_t flip = is_signed ? 0x80 : 0;
  const std::int32_t shift = zero + flip;  // a signed byte is its bits with the highest one flipped, less 128
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = (x[i] ^ flip) - shift;
    wide[i] = static_cast<std::int16_t>(value);
    total += value;
  }
  for (std::int64_t i = count; i % 4 != 0; ++i) wide[i] = 0;
  return total;
}

template <int kRows>
void plain_tile(const std::int16_t* x, const std::int8_t* block, std::int64_t groups, Sums* sums) {
  for (int r = 0; r < kRows; ++r) std::fill_n(sums[r], kPackedColumns, 0);
  for (std::int64_t g = 0; g < groups; ++g, block += kPackedColumns * 4) {
    for (int r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < kPackedColumns; ++c) {
        for (int i = 0; i < 4; ++i)
          sums[r][c] = wrapped(std::int64_t{sums[r][c]} + x[r * kWideDepth + 4 * g + i] * block[4 * c + i]);
      }
    }
  }
}

#if defined(__x86_64__)
/// Eight columns of a block: two partial sums each; a product of 16 bits by 8, and a pair of them, fits 32.
template <int kRows>
__attribute__((target("avx2"))) void avx2_half_tile(const std::int16_t* x, const std::int8_t* block,
                                                    std::int64_t groups, std::int64_t column, Sums* sums) {
  static_assert(kRows <= 4);
  // Single variables, because the compiler keeps an array of them in memory.
  __m256i a0{}, a1{}, a2{}, a3{}, b0{}, b1{}, b2{}, b3{};
  const auto row = [&](int r, __m256i w0, __m256i w1, __m256i& a, __m256i& b) __attribute__((target("avx2"))) {
    const __m256i factors = _mm256_set1_epi64x(read<std::int64_t>(x + r * kWideDepth));
    a = _mm256_add_epi32(a, _mm256_madd_epi16(w0, factors));
    b = _mm256_add_epi32(b, _mm256_madd_epi16(w1, factors));
  };
  for (std::int64_t g = 0; g < groups; ++g, block += kPackedColumns * 4, x += 4) {
    const auto* w = reinterpret_cast<const __m128i*>(block + column * 4);
    const __m256i w0 = _mm256_cvtepi8_epi16(_mm_loadu_si128(w));
    const __m256i w1 = _mm256_cvtepi8_epi16(_mm_loadu_si128(w + 1));
    row(0, w0, w1, a0, b0);
    if constexpr (kRows > 1) row(1, w0, w1, a1, b1);
    if constexpr (kRows > 2) row(2, w0, w1, a2, b2);
    if constexpr (kRows > 3) row(3, w0, w1, a3, b3);
  }
  const auto finish = [&](int r, __m256i a, __m256i b) __attribute__((target("avx2"))) {
    const __m256i pairs = _mm256_hadd_epi32(a, b);  // of columns 0 1 4 5 2 3 6 7
    const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0b11011000);
    std::memcpy(sums[r] + column, &ordered, sizeof(ordered));
  };
  finish(0, a0, b0);
  if constexpr (kRows > 1) finish(1, a1, b1);
  if constexpr (kRows > 2) finish(2, a2, b2);
  if constexpr (kRows > 3) finish(3, a3, b3);
}

template <int kRows>
void avx2_tile(const std::int16_t* x, const std::int8_t* block, std::int64_t groups, Sums* sums) {
  avx2_half_tile<kRows>(x, block, groups, 0, sums);
  avx2_half_tile<kRows>(x, block, groups, 8, sums);
}
#endif

/// The rows are widened, their zero point is gone then.
template <IntegerLevel kLevel>
struct Wide {
  using Element = std::int16_t;
  static constexpr std::int64_t kDepth = kWideDepth;
  static constexpr std::int64_t kTileRows = 4;

  static std::int32_t stage(const IntegerRows& x, const std::uint8_t* row, std::int64_t count, Element* staged) {
    return widen_row(row, x.is_signed, x.zero, count, staged);
  }
  static void tile(std::int64_t rows, const Element* x, const std::int8_t* block, std::int64_t groups, Sums* sums) {
#if defined(__x86_64__)
    constexpr decltype(&avx2_tile<1>) kTiles[] = {avx2_tile<1>, avx2_tile<2>, avx2_tile<3>, avx2_tile<4>};
    if constexpr (kLevel == IntegerLevel::avx2) return kTiles[rows - 1](x, block, groups, sums);
#endif
    constexpr decltype(&plain_tile<1>) kPlain[] = {plain_tile<1>, plain_tile<2>, plain_tile<3>, plain_tile<4>};
    kPlain[rows - 1](x, block, groups, sums);
  }
  static std::int32_t zero_of_staged(const IntegerRows&) { return 0; }
};

// ---- Elements of the rows as u8 ----

#if defined(__x86_64__)
constexpr std::int64_t kByteDepth = 2048;

/// The bytes as u8, a signed one plus 128, filled up to a whole group; returns the sum of x[i] - zero.
LATHE_CLONES std::int32_t stage_bytes(const std::uint8_t* x, std::uint8_t flip, std::int64_t count,
                                      std::uint8_t* bytes) {
  std::int32_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bytes[i] = x[i] ^ flip;
    total += bytes[i];
  }
  for (std::int64_t i = count; i % 4 != 0; ++i) bytes[i] = 0;
  return total;
}

/// With few rows several groups are summed apart, so that no sum waits for the one before it.
template <int kRows>
__attribute__((target("avx512f,avx512vnni"))) void vnni_tile(const std::uint8_t* x, const std::int8_t* block,
                                                             std::int64_t groups, Sums* sums) {
  constexpr int kApart = kRows >= 4 ? 1 : kRows >= 2 ? 2 : 4;
  __m512i s[kApart][kRows] = {};
  std::int64_t g = 0;
  for (; g + kApart <= groups; g += kApart) {
#pragma GCC unroll 8
    for (int a = 0; a < kApart; ++a) {
      const __m512i w = _mm512_loadu_si512(block + (g + a) * kPackedColumns * 4);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i factors = _mm512_set1_epi32(read<std::int32_t>(x + r * kByteDepth + 4 * (g + a)));
        s[a][r] = _mm512_dpbusd_epi32(s[a][r], factors, w);
      }
    }
  }
  for (; g < groups; ++g) {
    const __m512i w = _mm512_loadu_si512(block + g * kPackedColumns * 4);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i factors = _mm512_set1_epi32(read<std::int32_t>(x + r * kByteDepth + 4 * g));
      s[0][r] = _mm512_dpbusd_epi32(s[0][r], factors, w);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i sum = s[0][r];
#pragma GCC unroll 8
    for (int a = 1; a < kApart; ++a) sum = _mm512_add_epi32(sum, s[a][r]);
    _mm512_storeu_si512(sums[r], sum);
  }
}

struct Bytes {
  using Element = std::uint8_t;
  static constexpr std::int64_t kDepth = kByteDepth;
  static constexpr std::int64_t kTileRows = 8;

  static std::uint8_t flip(const IntegerRows& x) { return x.is_signed ? 0x80 : 0; }
  static std::int32_t zero_of_staged(const IntegerRows& x) { return x.zero + flip(x); }
  static std::int32_t stage(const IntegerRows& x, const std::uint8_t* row, std::int64_t count, Element* staged) {
    return wrapped(stage_bytes(row, flip(x), count, staged) - std::int64_t{zero_of_staged(x)} * count);
  }
  static void tile(std::int64_t rows, const Element* x, const std::int8_t* block, std::int64_t groups, Sums* sums) {
    constexpr decltype(&vnni_tile<1>) kTiles[] = {vnni_tile<1>, vnni_tile<2>, vnni_tile<3>, vnni_tile<4>,
                                                  vnni_tile<5>, vnni_tile<6>, vnni_tile<7>, vnni_tile<8>};
    kTiles[rows - 1](x, block, groups, sums);
  }
};
#endif

// ---- The product ----

/// y[i] -= factor · x[i] modulo 2^32
LATHE_CLONES void subtract_multiple(std::int32_t factor, const std::int32_t* x, std::int64_t count, std::int32_t* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(y[i]) -
                                     static_cast<std::uint32_t>(factor) * static_cast<std::uint32_t>(x[i]));
  }
}

/// `Way` says how rows are staged and multiplied. Where it leaves their zero point in them, Σ (s - z) · w is
/// Σ s · w - z · Σ w.
template <class Way>
void multiply(const IntegerRows& x, std::int64_t row, std::int64_t count, const PackedMatrix& matrix,
              std::int64_t first, std::int64_t last, std::int32_t* y) {
  alignas(64) typename Way::Element staged[kPackedRows * Way::kDepth];
  std::int32_t totals[kPackedRows] = {};
  const std::int64_t n = matrix.n;
  const std::int64_t block_bytes = (x.k + 3) / 4 * 4 * kPackedColumns;
  std::int64_t depth = 0;
  do {
    const std::int64_t part = std::min(Way::kDepth, x.k - depth);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::uint8_t* from = x.data + (row + r) * x.k + depth;
      totals[r] = wrapped(std::int64_t{totals[r]} + Way::stage(x, from, part, staged + r * Way::kDepth));
    }
    for (std::int64_t b = first; b < last; ++b) {
      const std::int8_t* block = matrix.data + b * block_bytes + depth * kPackedColumns;
      const std::int64_t column = b * kPackedColumns;
      const std::int64_t width = std::min(kPackedColumns, n - column);
      for (std::int64_t r = 0; r < count; r += Way::kTileRows) {
        const std::int64_t rows = std::min(Way::kTileRows, count - r);
        Sums sums[Way::kTileRows];
        Way::tile(rows, staged + r * Way::kDepth, block, (part + 3) / 4, sums);
        for (std::int64_t i = 0; i < rows; ++i) {
          std::int32_t* out = y + (row + r + i) * n + column;
          if (depth == 0) {
            std::copy_n(sums[i], width, out);
          } else {
            for (std::int64_t c = 0; c < width; ++c) out[c] = wrapped(std::int64_t{out[c]} + sums[i][c]);
          }
        }
      }
    }
    depth += part;
  } while (depth < x.k);
  const std::int32_t zero = Way::zero_of_staged(x);
  const std::int64_t begin = first * kPackedColumns;
  const std::int64_t width = std::min(n, last * kPackedColumns) - begin;
  for (std::int64_t r = 0; r < count; ++r) {
    std::int32_t* out = y + (row + r) * n + begin;
    if (zero != 0) subtract_multiple(zero, matrix.sums + begin, width, out);
    if (matrix.zeros != nullptr) subtract_multiple(totals[r], matrix.zeros + begin, width, out);
  }
}

}  // namespace

void integer_matmul(const IntegerRows& x, std::int64_t row, std::int64_t count, const PackedMatrix& matrix,
                    std::int64_t first, std::int64_t last, std::int32_t* y, IntegerLevel level) {
#if defined(__x86_64__)
  if (level == IntegerLevel::avx512_vnni) return multiply<Bytes>(x, row, count, matrix, first, last, y);
  if (level == IntegerLevel::avx2) return multiply<Wide<IntegerLevel::avx2>>(x, row, count, matrix, first, last, y);
#endif
  multiply<Wide<IntegerLevel::plain>>(x, row, count, matrix, first, last, y);
}

}  // namespace lathe::ops
