// How a window that slides over an image is cut over batch and output rows: each piece has padding of its own.
#pragma once

#include <vector>

#include "runtime/backends/onednn/primitive.h"

namespace lathe::onednn {

constexpr int kSpatial = 2;  ///< the first spatial dim of src and dst

/// A convolution or a pool: src and dst are [N, C, spatial…], the rest is per spatial dim.
struct Sliding {
  Shape src;
  Shape dst;
  Shape kernel;
  Shape strides;
  Shape dilations;
  Shape pads_begin;
  bool transposed = false;
  int parts = 1;
};

/// One piece: its part of dst and of src, and its padding.
struct Piece {
  Slice dst;
  Slice src;
  Shape pads_begin;
  Shape pads_end;
};

/// The padding at the end of spatial dim `s` that makes oneDNN's arithmetic give dst's extent.
std::int64_t end_padding(const Sliding& sliding, int s);

std::vector<Piece> pieces_of(const Sliding& sliding, Cut way);

/// What two pieces must share to run the same kernel.
std::vector<std::int64_t> extents_of(const Piece& piece);

/// A part of src or dst: every dim is cut as the slice says, extents of 1 included.
Operand exact_part(const Operand& operand, const Slice& slice);

}  // namespace lathe::onednn
