// KernelContext: what a plain C++ kernel works on.
#pragma once

#include <atomic>
#include <exception>
#include <span>
#include <type_traits>
#include <vector>

#include <lathe/thread_pool.h>

#include "ops/ir/op.h"
#include "ops/ir/scratch.h"

namespace lathe::ops {

/// What a kernel runs on: threads, and a block of working memory for each. By default the calling thread and the heap.
struct Workers {
  ThreadPool* pool = nullptr;       ///< null: the calling thread alone
  std::span<void* const> blocks{};  ///< one per worker, aligned to Scratch::kAlignment
  std::size_t block_bytes = 0;
  std::atomic<std::size_t> wanted{0};  ///< the block that would have sufficed the worker that used most

  [[nodiscard]] Scratch scratch(int worker) const {
    return blocks.empty() ? Scratch() : Scratch(blocks[static_cast<std::size_t>(worker)], block_bytes);
  }
  void note(const Scratch& scratch) {
    std::size_t most = wanted.load(std::memory_order_relaxed);
    while (scratch.wanted() > most && !wanted.compare_exchange_weak(most, scratch.wanted())) {
    }
  }
};

/// The inputs and outputs of one node at run time. Memory is row-major, aligned to the element only. Packed dtypes (4
/// and 2 bits) lie packed. A kernel may throw Failure: the runtime turns it into an Error that names the node.
class KernelContext {
 public:
  /// `scratch` is the calling thread's.
  KernelContext(const OpView& op, std::span<const Value> inputs, std::span<Value> outputs, Workers& workers,
                Scratch& scratch)
      : op_(op), inputs_(inputs), outputs_(outputs), workers_(workers), scratch_(scratch) {}

  [[nodiscard]] const OpView& op() const { return op_; }
  [[nodiscard]] bool has(int i) const { return op_.has(i); }
  [[nodiscard]] bool wants(int output) const { return op_.wants(output); }

  /// Input i as a tensor.
  [[nodiscard]] const Tensor& in(int i) const { return inputs_[static_cast<std::size_t>(i)].tensor(); }
  template <class T>
  [[nodiscard]] std::span<const T> in(int i) const {
    return in(i).view<T>();
  }
  /// Output i, allocated with the inferred dtype and shape.
  [[nodiscard]] Tensor out(int i) const { return outputs_[static_cast<std::size_t>(i)].tensor(); }
  template <class T>
  [[nodiscard]] std::span<T> out(int i) const {
    return out(i).mutable_view<T>();
  }
  /// Allocates output i of an operator with `dynamic_output`.
  Tensor allocate(int i, DType dtype, const Shape& shape);

  /// Input and output i whatever their kind: sequences, optionals, maps.
  [[nodiscard]] const Value& value(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  void set(int i, Value value) { outputs_[static_cast<std::size_t>(i)] = std::move(value); }

  /// The calling thread's working memory, for containers of std::pmr. See OpDef::real_time.
  [[nodiscard]] std::pmr::memory_resource* memory() const { return &scratch_; }
  /// A tensor of zeros in that memory.
  [[nodiscard]] Tensor temporary(DType dtype, const Shape& shape) const;

  /// Runs body(begin, end), or body(begin, end, memory) with the thread's own working memory, over parts of [0, count)
  /// on the run's threads; each part has at least `grain` items.
  template <class Body>
  void parallel(std::int64_t count, std::int64_t grain, Body&& body) const {
    if (count <= 0) return;
    const std::int64_t threads = workers_.pool ? workers_.pool->threads() : 1;
    const std::int64_t parts = std::min(threads, count / std::max<std::int64_t>(1, grain));
    if (parts <= 1) return call(body, 0, count, scratch_);
    struct Job {
      const KernelContext& context;
      std::remove_reference_t<Body>& body;
      std::int64_t count, size;
      std::atomic<bool> failed{false};
      std::exception_ptr failure{};
    } job{*this, body, count, (count + parts - 1) / parts};
    workers_.pool->parallel(
        static_cast<int>(parts),
        [](void* raw, int part, int worker) {
          Job& j = *static_cast<Job*>(raw);
          const std::int64_t begin = part * j.size, end = std::min(begin + j.size, j.count);
          if (begin < end) j.context.run_part(j, begin, end, worker);
        },
        &job);
    if (job.failure) std::rethrow_exception(job.failure);
  }

  template <class... Args>
  [[noreturn]] void error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    fail(code, "{}: {}", describe(op_.node()), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  template <class Body>
  static void call(Body& body, std::int64_t begin, std::int64_t end, Scratch& scratch) {
    if constexpr (std::is_invocable_v<Body&, std::int64_t, std::int64_t, std::pmr::memory_resource*>) {
      body(begin, end, &scratch);
    } else {
      body(begin, end);
    }
  }

  template <class Job>
  void run_part(Job& job, std::int64_t begin, std::int64_t end, int worker) const noexcept {
    try {
      if (worker == 0) return call(job.body, begin, end, scratch_);
      Scratch scratch = workers_.scratch(worker);
      call(job.body, begin, end, scratch);
      workers_.note(scratch);
    } catch (...) {
      if (!job.failed.exchange(true)) job.failure = std::current_exception();
    }
  }

  const OpView& op_;
  std::span<const Value> inputs_;
  std::span<Value> outputs_;
  Workers& workers_;
  Scratch& scratch_;
};

/// Runs the plain kernel of the context's node. A Failure that does not begin with the node's name gets it in front.
void run_kernel(KernelContext& context);

/// Calls fn with a null pointer of the C++ type of a dtype (f16 and bf16 as themselves are not among them); Failure for
/// others.
template <class Fn>
auto dispatch_numeric(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f32:
      return fn(static_cast<float*>(nullptr));
    case DType::f64:
      return fn(static_cast<double*>(nullptr));
    case DType::i8:
      return fn(static_cast<std::int8_t*>(nullptr));
    case DType::i16:
      return fn(static_cast<std::int16_t*>(nullptr));
    case DType::i32:
      return fn(static_cast<std::int32_t*>(nullptr));
    case DType::i64:
      return fn(static_cast<std::int64_t*>(nullptr));
    case DType::u8:
      return fn(static_cast<std::uint8_t*>(nullptr));
    case DType::u16:
      return fn(static_cast<std::uint16_t*>(nullptr));
    case DType::u32:
      return fn(static_cast<std::uint32_t*>(nullptr));
    case DType::u64:
      return fn(static_cast<std::uint64_t*>(nullptr));
    case DType::boolean:
      return fn(static_cast<bool*>(nullptr));
    default:
      fail(ErrorCode::unsupported, "dtype {} is not supported here", dtype);
  }
}

}  // namespace lathe::ops
