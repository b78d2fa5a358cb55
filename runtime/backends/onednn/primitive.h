// What a prepared primitive is made of; shared by the files of this folder that make one.
#pragma once

#include <atomic>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backends/onednn/onednn.h"

namespace lathe::onednn {

using Md = dnnl::memory::desc;

/// While one lives, oneDNN sees one OpenMP thread on this thread: a primitive keeps the count it was created with, and
/// Lathe's workers are the only parallelism.
class OneOpenMpThread {
 public:
  OneOpenMpThread();
  ~OneOpenMpThread();
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

/// The process's CPU engine; its first use turns oneDNN's own primitive cache off.
const dnnl::engine& engine();

/// Whether u8 × i8 products are summed in 32 bits; without VNNI oneDNN sums pairs in saturating 16 bits.
bool exact_int8();

/// The part of the result that one piece computes.
struct Slice {
  Shape begin;
  Shape extents;
};

/// Elements between an operand's start and the start of its part of a slice; dims of extent 1 are broadcast.
std::int64_t offset_of(const Operand& operand, const Slice& slice);
/// `operand` cut down to its part of a slice.
Operand part_of(const Operand& operand, const Slice& slice);
std::int64_t bytes_of(const Operand& operand, std::int64_t elements);

dnnl::memory::data_type data_type(DType dtype);
Md describe(const Operand& operand);
/// Any layout oneDNN likes best.
Md describe_any(DType dtype, const Shape& dims);
dnnl::memory::dims to_dims(const Shape& shape);

/// One compiled oneDNN primitive with the layouts of what it takes. Parts of equal extents share one.
struct Kernel {
  dnnl::primitive primitive;
  Md src, weights, bias, dst, scratchpad;  // weights and bias are zero where there are none
  std::vector<Md> operands;
  std::string name;
};

/// Byte offsets of one part's buffers, and the kernel that runs it.
struct Part {
  int kernel = 0;
  std::int64_t src = 0;
  std::int64_t weights = 0;
  std::int64_t bias = 0;
  std::int64_t dst = 0;
  std::vector<std::int64_t> operands;
};

/// Thrown while a primitive is made, and turned into Made::declined.
struct Declined {
  std::string reason;
};

/// What a primitive is created with: the post-ops over one slice, scratchpad by the user, strict arithmetic.
dnnl::primitive_attr attributes(const std::vector<PostOp>& post_ops, const Slice& slice);
std::vector<std::int64_t> operand_offsets(const std::vector<PostOp>& post_ops, const Slice& slice);

/// A kernel from a primitive descriptor; declines where oneDNN has only its reference implementation or plain C++.
template <class PrimitiveDesc, class Primitive>
Kernel compile(const PrimitiveDesc& desc, bool bias, const std::vector<PostOp>& post_ops, const Slice& slice) {
  if (!desc) throw Declined{"oneDNN has no implementation"};
  Kernel kernel;
  kernel.name = desc.impl_info_str();
  for (const char* slow : {"ref", "simple"}) {
    if (kernel.name.find(slow) != std::string::npos) throw Declined{"oneDNN has only its reference implementation"};
  }
  kernel.primitive = Primitive(desc);
  kernel.src = desc.src_desc();
  if constexpr (requires { desc.bias_desc(); }) {
    kernel.weights = desc.weights_desc();
    if (bias) kernel.bias = desc.bias_desc();
  }
  kernel.dst = desc.dst_desc();
  kernel.scratchpad = desc.scratchpad_desc();
  for (const PostOp& op : post_ops) {
    if (has_operand(op.kind)) kernel.operands.push_back(describe(part_of(op.operand, slice)));
  }
  return kernel;
}

struct Primitive::Impl {
  std::vector<Kernel> kernels;
  std::vector<Part> parts;
  std::vector<int> operand_args;    // the oneDNN argument of each operand
  std::optional<Md> plain_weights;  // set where weights are to be packed
  Md packed_weights;
  std::string weights_format;
  std::string name;
  std::size_t scratch_bytes = 0;

  /// The handles of one run of one part. A part keeps one for its next run; a second thread in the same part makes its
  /// own.
  struct Handles;
  std::vector<std::atomic<Handles*>> idle;

  Impl() = default;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Completes what follows from kernels and parts; `plain` are the weights as the caller has them.
  void finish(const std::vector<PostOp>& post_ops, const std::optional<Md>& plain);
  bool run_part(const Part& part, std::atomic<Handles*>& slot, const Buffers& buffers, void* scratch) const;
};

/// How the work is cut into pieces; the next way is tried where oneDNN has no fast implementation of these pieces.
enum class Cut : std::uint8_t {
  preferred,  ///< matmul: batch and columns; windows: batch and output rows
  other,      ///< matmul: batch and rows; windows: batch
  none,
};

/// `make(spec, cut)` with its ways to fail turned into a reason.
template <class Spec, class Make>
Made make_or_decline(const Spec& spec, Make make) {
  std::string reason;
  for (const Cut way : {Cut::preferred, Cut::other, Cut::none}) {
    if (spec.parts == 1 && way != Cut::none) continue;
    try {
      const OneOpenMpThread scope;
      return {std::make_unique<Primitive>(make(spec, way)), ""};
    } catch (const Declined& declined) {
      reason = declined.reason;
    } catch (const dnnl::error& error) {
      reason = std::string("oneDNN: ") + error.what();
    }
  }
  return {nullptr, reason};
}

}  // namespace lathe::onednn
