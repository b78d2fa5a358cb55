// How prepared primitives run, and what their makers share.
#include "runtime/backends/onednn/primitive.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "runtime/thread_pool.h"

extern "C" {
// Of the OpenMP runtime that oneDNN itself uses; no other part of Lathe knows OpenMP.
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace lathe::onednn {
namespace {

using dnnl::algorithm;

algorithm algorithm_of(PostOp::Kind kind) {
  switch (kind) {
    case PostOp::Kind::relu:
      return algorithm::eltwise_relu;
    case PostOp::Kind::elu:
      return algorithm::eltwise_elu;
    case PostOp::Kind::sigmoid:
      return algorithm::eltwise_logistic;
    case PostOp::Kind::tanh:
      return algorithm::eltwise_tanh;
    case PostOp::Kind::swish:
      return algorithm::eltwise_swish;
    case PostOp::Kind::hardswish:
      return algorithm::eltwise_hardswish;
    case PostOp::Kind::hardsigmoid:
      return algorithm::eltwise_hardsigmoid;
    case PostOp::Kind::clip:
      return algorithm::eltwise_clip;
    case PostOp::Kind::gelu_erf:
      return algorithm::eltwise_gelu_erf;
    case PostOp::Kind::gelu_tanh:
      return algorithm::eltwise_gelu_tanh;
    case PostOp::Kind::mish:
      return algorithm::eltwise_mish;
    case PostOp::Kind::softplus:
      return algorithm::eltwise_soft_relu;
    case PostOp::Kind::abs:
      return algorithm::eltwise_abs;
    case PostOp::Kind::exp:
      return algorithm::eltwise_exp;
    case PostOp::Kind::sqrt:
      return algorithm::eltwise_sqrt;
    case PostOp::Kind::square:
      return algorithm::eltwise_square;
    case PostOp::Kind::linear:
      return algorithm::eltwise_linear;
    case PostOp::Kind::add:
      return algorithm::binary_add;
    case PostOp::Kind::sub:
      return algorithm::binary_sub;
    case PostOp::Kind::mul:
      return algorithm::binary_mul;
    case PostOp::Kind::div:
      return algorithm::binary_div;
    case PostOp::Kind::min:
      return algorithm::binary_min;
    case PostOp::Kind::max:
      return algorithm::binary_max;
  }
  return algorithm::undef;
}

/// The layout as text: dims, dtype, strides, inner blocks and size say all that decides where a weight lies.
std::string format_key(const Md& md) {
  std::string key = std::to_string(static_cast<int>(md.get_data_type()));
  const auto add = [&key](const char* name, const dnnl::memory::dims& values) {
    key += name;
    for (const auto v : values) key += std::to_string(v) + ',';
  };
  add(" dims ", md.get_dims());
  add(" padded ", md.get_padded_dims());
  add(" strides ", md.get_strides());
  add(" blocks ", md.get_inner_blks());
  add(" of ", md.get_inner_idxs());
  return key + " bytes " + std::to_string(md.get_size());
}

void* at(void* base, std::int64_t offset) { return static_cast<char*>(base) + offset; }
/// oneDNN takes its inputs as mutable pointers too, and writes only to outputs.
void* at(const void* base, std::int64_t offset) { return at(const_cast<void*>(base), offset); }  // NOLINT

}  // namespace

OneOpenMpThread::OneOpenMpThread() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}
OneOpenMpThread::~OneOpenMpThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    dnnl::set_primitive_cache_capacity(0);  // it would keep memory of shapes long gone; primitives live in plans
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

bool exact_int8() {
  constexpr unsigned kVnni = 0x08 | 0x40;  // the bits that avx2_vnni and avx512_core_vnni add to their predecessors
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kVnni) != 0;
}

Shape row_major(const Shape& dims) {
  Shape strides = dims;
  std::int64_t step = 1;
  for (int d = dims.rank() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= std::max<std::int64_t>(dims[d], 1);
  }
  return strides;
}

Shape channels_last(const Shape& dims) {
  Shape strides = dims;
  strides[1] = 1;
  std::int64_t step = dims[1];
  for (int d = dims.rank() - 1; d >= 2; --d) {
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return strides;
}

std::int64_t offset_of(const Operand& operand, const Slice& slice) {
  std::int64_t offset = 0;
  for (int d = 0; d < operand.dims.rank(); ++d) {
    if (operand.dims[d] != 1) offset += slice.begin[d] * operand.strides[d];
  }
  return offset;
}

Operand part_of(const Operand& operand, const Slice& slice) {
  Operand part = operand;
  for (int d = 0; d < operand.dims.rank(); ++d) {
    if (operand.dims[d] != 1) part.dims[d] = slice.extents[d];
  }
  return part;
}

std::int64_t bytes_of(const Operand& operand, std::int64_t elements) { return elements * operand.dtype.bits() / 8; }

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::u8:
      return dnnl::memory::data_type::u8;
    case DType::i8:
      return dnnl::memory::data_type::s8;
    case DType::i32:
      return dnnl::memory::data_type::s32;
    default:
      throw Declined{"oneDNN is not used for " + std::string(dtype.name())};
  }
}

dnnl::memory::dims to_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

Md describe(const Operand& operand) {
  // A dim of extent 1 may have any stride, yet oneDNN knows a layout only by the strides of a dense tensor.
  Shape strides = operand.strides;
  for (int d = 0; d < strides.rank(); ++d) {
    if (operand.dims[d] != 1) continue;
    std::int64_t dense = 1;
    for (int e = 0; e < strides.rank(); ++e) {
      const bool inside = operand.dims[e] != 1 && operand.strides[e] < operand.strides[d];
      if (inside) dense = std::max(dense, operand.strides[e] * operand.dims[e]);
    }
    strides[d] = dense;
  }
  return Md(to_dims(operand.dims), data_type(operand.dtype), to_dims(strides));
}

Md describe_any(DType dtype, const Shape& dims) {
  return Md(to_dims(dims), data_type(dtype), dnnl::memory::format_tag::any);
}

dnnl::primitive_attr attributes(const std::vector<PostOp>& post_ops, const Slice& slice) {
  dnnl::post_ops chain;
  for (const PostOp& op : post_ops) {
    if (has_operand(op.kind)) {
      chain.append_binary(algorithm_of(op.kind), describe(part_of(op.operand, slice)));
    } else {
      chain.append_eltwise(algorithm_of(op.kind), op.alpha, op.beta);
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(chain);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

std::vector<std::int64_t> operand_offsets(const std::vector<PostOp>& post_ops, const Slice& slice) {
  std::vector<std::int64_t> offsets;
  for (const PostOp& op : post_ops) {
    if (has_operand(op.kind)) offsets.push_back(bytes_of(op.operand, offset_of(op.operand, slice)));
  }
  return offsets;
}

struct Primitive::Impl::Handles {
  dnnl::stream stream;
  std::vector<dnnl::memory> memory;  // as `args`, in order
  std::vector<dnnl_exec_arg_t> args;

  Handles(const Impl& impl, const Kernel& kernel) : stream(engine()) {
    const auto add = [this](int arg, const Md& md) {
      memory.emplace_back(md, engine(), nullptr);
      args.push_back({arg, memory.back().get()});
    };
    add(DNNL_ARG_SRC, kernel.src);
    add(DNNL_ARG_DST, kernel.dst);
    add(DNNL_ARG_SCRATCHPAD, kernel.scratchpad);
    if (!kernel.weights.is_zero()) add(DNNL_ARG_WEIGHTS, kernel.weights);
    if (!kernel.bias.is_zero()) add(DNNL_ARG_BIAS, kernel.bias);
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) add(impl.operand_args[i], kernel.operands[i]);
  }

  void set(std::size_t i, void* data) { memory[i].set_data_handle(data); }
};

Primitive::Impl::~Impl() {
  for (std::atomic<Handles*>& slot : idle) delete slot.load();
}

void Primitive::Impl::finish(const std::vector<PostOp>& post_ops, const std::optional<Md>& plain) {
  for (std::size_t i = 0; i < post_ops.size(); ++i) {
    if (has_operand(post_ops[i].kind)) {
      operand_args.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
  }
  if (plain && *plain != packed_weights) {
    plain_weights = plain;
    weights_format = format_key(*plain) + " packed to " + format_key(packed_weights);
  }
  for (const Kernel& kernel : kernels) scratch_bytes = std::max(scratch_bytes, kernel.scratchpad.get_size());
  name = kernels[0].name;
  idle = std::vector<std::atomic<Handles*>>(parts.size());
}

bool Primitive::Impl::run_part(const Part& part, std::atomic<Handles*>& slot, const Buffers& buffers,
                               void* scratch) const {
  const Kernel& kernel = kernels[static_cast<std::size_t>(part.kernel)];
  std::unique_ptr<Handles> handles(slot.exchange(nullptr));
  if (!handles) handles = std::make_unique<Handles>(*this, kernel);
  handles->set(0, at(buffers.src, part.src));
  handles->set(1, at(buffers.dst, part.dst));
  handles->set(2, scratch);
  std::size_t next = 3;
  if (!kernel.weights.is_zero()) handles->set(next++, at(buffers.weights, part.weights));
  if (!kernel.bias.is_zero()) handles->set(next++, at(buffers.bias, part.bias));
  for (std::size_t i = 0; i < part.operands.size(); ++i) {
    handles->set(next++, at(buffers.operands[i], part.operands[i]));
  }
  const dnnl_status_t status = dnnl_primitive_execute(kernel.primitive.get(), handles->stream.get(),
                                                      static_cast<int>(handles->args.size()), handles->args.data());
  delete slot.exchange(handles.release());
  return status == dnnl_success;
}

Primitive::Primitive(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Primitive::~Primitive() = default;

const std::string& Primitive::name() const { return impl_->name; }
std::size_t Primitive::scratch_bytes() const { return impl_->scratch_bytes; }
const std::string& Primitive::weights_format() const { return impl_->weights_format; }
std::size_t Primitive::weights_bytes() const { return impl_->plain_weights ? impl_->packed_weights.get_size() : 0; }
int Primitive::parts() const { return static_cast<int>(impl_->parts.size()); }

bool Primitive::pack_weights(const void* weights, void* packed) const noexcept {
  assert(impl_->plain_weights);
  try {
    const OneOpenMpThread scope;
    dnnl::stream stream(engine());
    dnnl::memory from(*impl_->plain_weights, engine(), at(weights, 0));
    dnnl::memory to(impl_->packed_weights, engine(), packed);
    dnnl::reorder(from, to).execute(stream, from, to);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::int32_t Primitive::run(const Buffers& buffers, int begin, int end, void* scratch) const noexcept {
  try {
    const OneOpenMpThread scope;
    for (int p = begin; p < end; ++p) {
      const auto i = static_cast<std::size_t>(p);
      if (!impl_->run_part(impl_->parts[i], impl_->idle[i], buffers, scratch)) return 1;
    }
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

std::int32_t Primitive::execute(const Buffers& buffers, void* const* scratch, ThreadPool& pool) const noexcept {
  std::atomic<std::int32_t> status{0};
  parallel_for(pool, parts(), [&](int part, int worker) {
    void* own = scratch == nullptr ? nullptr : scratch[worker];
    if (run(buffers, part, part + 1, own) != 0) status.store(1, std::memory_order_relaxed);
  });
  return status.load(std::memory_order_relaxed);
}

}  // namespace lathe::onednn
