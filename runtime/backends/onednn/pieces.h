// How a window that slides over an image is cut over batch and output rows: each piece has padding of its own.
#pragma once

#include <functional>
#include <vector>

#include "runtime/backends/onednn/primitive.h"

namespace lathe::onednn {

constexpr int kSpatial = 2;  ///< the first spatial dim of src and dst

/// A convolution or a pool: src and dst are [N, C, spatial…], the rest is per spatial dim.
struct Sliding {
  Operand src;
  Operand dst;
  Shape kernel;
  Shape strides;
  Shape dilations;  ///< 1 = dense
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

/// Cuts the work: `impl` gets a part per piece, and one kernel for all pieces of equal extents and padding.
void add_pieces(Primitive::Impl& impl, const Sliding& sliding, const std::vector<PostOp>& post_ops, Cut way,
                const std::function<Kernel(const Piece&)>& compile_piece);

/// Dilations as oneDNN counts them: the elements between two taps.
dnnl::memory::dims gaps_of(const Shape& dilations);

/// A part of src or dst: every dim is cut as the slice says, extents of 1 included.
Operand exact_part(const Operand& operand, const Slice& slice);

}  // namespace lathe::onednn
