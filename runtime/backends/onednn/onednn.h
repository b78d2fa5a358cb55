// oneDNN matmul, convolution, transposed convolution and average pooling as prepared primitives; no oneDNN header is
// needed to use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lathe/dtype.h>
#include <lathe/shape.h>
#include <lathe/thread_pool.h>

namespace lathe::onednn {

/// A tensor's element type, logical extents and strides (in elements). Channels-last is a matter of strides.
struct Operand {
  DType dtype = DType::f32;
  Shape dims;
  Shape strides;
};

/// Row-major, and channels-last ([N, C, spatial…] with C innermost) strides.
[[nodiscard]] Shape row_major(const Shape& dims);
[[nodiscard]] Shape channels_last(const Shape& dims);

/// One step applied to each element x of the result, in f32, before it is stored.
struct PostOp {
  enum class Kind : std::uint8_t {
    relu,         ///< x > 0 ? x : alpha·x
    elu,          ///< x > 0 ? x : alpha·(eˣ − 1)
    sigmoid,      ///< 1 / (1 + e⁻ˣ)
    tanh,         ///< tanh x
    swish,        ///< x · sigmoid(alpha·x)
    hardswish,    ///< x · clip(alpha·x + beta, 0, 1)
    hardsigmoid,  ///< clip(alpha·x + beta, 0, 1)
    clip,         ///< clip(x, alpha, beta)
    gelu_erf,     ///< 0.5·x·(1 + erf(x / √2))
    gelu_tanh,    ///< the tanh approximation of the same
    mish,         ///< x · tanh(log(1 + eˣ))
    softplus,     ///< log(1 + e^(alpha·x)) / alpha
    abs,
    exp,
    sqrt,
    square,
    linear,  ///< alpha·x + beta
    add,     ///< x + operand; each dim of the operand equals the result's, or is 1
    sub,     ///< x − operand
    mul,     ///< x · operand
    div,     ///< x / operand
    min,
    max,
  };
  Kind kind = Kind::relu;
  float alpha = 0;
  float beta = 0;
  Operand operand{};  ///< of the kinds with two inputs; of the result's rank
};
[[nodiscard]] constexpr bool has_operand(PostOp::Kind kind) { return kind >= PostOp::Kind::add; }

/// dst[…, M, N] = post_ops(a[…, M, K] × b[…, K, N] + bias[N]). The three have one rank of at least 2; batch dims of a
/// and b equal dst's, or are 1. f32 × f32 → f32; u8 or i8 × i8 → i32 or f32 where the CPU adds them without saturation.
struct MatMulSpec {
  Operand a;
  Operand b;
  Operand dst;
  bool constant_b = false;  ///< b is packed once, see Primitive::weights_format
  bool bias = false;        ///< f32
  std::vector<PostOp> post_ops;
  int parts = 1;  ///< into how many pieces to cut the work, at most
};

/// dst = post_ops(conv(src, weights) + bias), ONNX's Conv, or ConvTranspose where `transposed`. src is [N, C, spatial…]
/// and dst [N, OC, spatial…] with 1 to 3 spatial dims; weights are [OC, C / groups, kernel…], of ConvTranspose
/// [C, OC / groups, kernel…]. Weights are constant. dst's extents decide how much of pads_end counts (ceil modes,
/// output_padding). f32 throughout; Conv also u8 or i8 × i8 → i32 or f32, as above.
struct ConvSpec {
  Operand src;
  Operand weights;
  Operand dst;
  bool transposed = false;
  std::int64_t groups = 1;
  Shape strides;
  Shape dilations;  ///< 1 = dense
  Shape pads_begin;
  bool bias = false;  ///< f32 [OC]
  std::vector<PostOp> post_ops;
  int parts = 1;
};

/// dst = post_ops(averages of src under a window), ONNX's AveragePool; extents, strides and pads as of ConvSpec, f32.
/// oneDNN's maxima are not offered: they skip NaN, and are the lowest finite number where all of a window is −∞.
struct PoolSpec {
  Operand src;
  Operand dst;
  Shape kernel;
  Shape strides;
  Shape dilations;  ///< 1 = dense
  Shape pads_begin;
  Shape pads_end;
  bool counts_padding = false;  ///< as zeros
  std::vector<PostOp> post_ops;
  int parts = 1;
};

/// The memory of one execution. `weights` points to packed weights unless weights_format() is empty; pools have none.
struct Buffers {
  const void* src = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;
  void* dst = nullptr;
  const void* const* operands = nullptr;  ///< one per post-op that has an operand, in their order
};

/// A primitive of one set of shapes, already compiled. Immutable: any number of threads may run it at once.
/// The calling thread's OpenMP settings are as before after every function here.
class Primitive {
 public:
  struct Impl;
  explicit Primitive(std::unique_ptr<Impl> impl);
  ~Primitive();
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  /// What oneDNN calls the implementation, for people.
  [[nodiscard]] const std::string& name() const;
  /// Bytes of scratch that each running part needs for itself; any alignment. 0 is common.
  [[nodiscard]] std::size_t scratch_bytes() const;

  /// The layouts that weights are packed from and to: where they are equal, primitives can share packed weights.
  /// Empty: weights are used as they are, nothing is to be packed.
  [[nodiscard]] const std::string& weights_format() const;
  [[nodiscard]] std::size_t weights_bytes() const;
  /// Packs `weights` (laid out as the spec says) to weights_bytes() at `packed`; false where memory ran out.
  [[nodiscard]] bool pack_weights(const void* weights, void* packed) const noexcept;

  /// The pieces the work is cut into: independent of each other, their bits do not depend on who runs them.
  [[nodiscard]] int parts() const;
  /// Runs parts [begin, end) on the calling thread. Non-zero: oneDNN ran out of memory.
  [[nodiscard]] std::int32_t run(const Buffers& buffers, int begin, int end, void* scratch) const noexcept;
  /// Runs all parts on the pool; `scratch` holds one pointer per worker of the pool (null where scratch_bytes() is 0).
  [[nodiscard]] std::int32_t execute(const Buffers& buffers, void* const* scratch, ThreadPool& pool) const noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

/// A primitive, or the reason why oneDNN does not take the work (it has no fast implementation of it).
struct Made {
  std::unique_ptr<Primitive> primitive;
  std::string declined;
};
[[nodiscard]] Made make_matmul(const MatMulSpec& spec);
[[nodiscard]] Made make_convolution(const ConvSpec& spec);
[[nodiscard]] Made make_pooling(const PoolSpec& spec);

}  // namespace lathe::onednn
