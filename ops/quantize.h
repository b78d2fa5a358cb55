// What quantized operators of several families share.
#pragma once

#include "ops/ir/builder.h"

namespace lathe::ops {

constexpr bool is_8bit(DType t) { return t == DType::i8 || t == DType::u8; }

/// The integers that a quantized dtype holds.
struct IntegerRange {
  double least = 0;
  double most = 0;
};
IntegerRange integer_range(DType dtype);

/// The values of `bits` bits that the bytes (u8) of `x` hold along the last axis, the lowest first.
ValueId unpack_bits(Builder& b, ValueId x, std::int64_t bits);

/// product · (scale_a · scale_b / scale_y), rounded and shifted by zero_y, in zero_y's dtype. Scales broadcast to
/// `product` (f32).
ValueId requantize(Builder& b, ValueId product, ValueId scale_a, ValueId scale_b, ValueId scale_y, ValueId zero_y);

}  // namespace lathe::ops
