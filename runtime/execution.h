// Execution: runs a module for one session, in memory of its own. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/core.h"
#include "runtime/module.h"
#include "runtime/run_control.h"

namespace lathe::runtime {

/// What runs came by, for tools: of what ran more than once, the last time.
struct Visits {
  /// A node that no plan runs, control flow included.
  struct Alone {
    std::vector<ops::Fact> outputs;
    std::size_t compiled = 0;     ///< its loops that ran as compiled code
    std::size_t interpreted = 0;  ///< those that did not: too little work to look code up, or the JIT is switched off
    bool reduces = false;         ///< whether one of them does
  };
  std::unordered_map<const Segment*, std::vector<Value>> inputs;
  std::unordered_map<const ops::Node*, Alone> alone;
};

class Execution {
 public:
  explicit Execution(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {}

  /// Runs a module. `bound` holds, per output, memory to write to (undefined where the output is to be allocated).
  std::vector<Value> run(const Module& module, std::span<const Value> inputs, const RunControl& control,
                         std::span<const Tensor> bound = {});

  /// Whether plans are those for real time, from now on.
  void set_real_time(bool real_time);
  /// The instance for these inputs, ready to run: plan made, arena and scratch allocated. Null for eager segments.
  PlanInstance* prepare(Segment& segment, std::span<const Value> inputs, const RunControl& control);
  /// Runs a prepared instance on raw memory. Failure where a step fails.
  void run_instance(PlanInstance& instance, std::span<void* const> inputs, std::span<void* const> outputs,
                    const RunControl& control);

  /// A step of the last run for which the scratch memory was too small, so that it took some from the heap; null where
  /// there was none. The next run has more.
  [[nodiscard]] const Step* overflowed() const { return overflowed_; }

  /// Notes what the runs from now on come by; `visits` outlives them.
  void observe(Visits& visits) { visits_ = &visits; }

  /// Releases arena, scratch and instances.
  void trim();
  [[nodiscard]] std::size_t arena_bytes() const { return arena_bytes_; }
  [[nodiscard]] EngineCore& core() { return *core_; }

 private:
  struct Cached {
    std::vector<Segment::MadeFor> made_for;
    std::unique_ptr<PlanInstance> instance;
  };

  std::vector<Value> run_part(const Part& part, const Module& module, std::vector<Value>& values,
                              const RunControl& control, std::span<const Tensor> bound);
  std::vector<Value> run_segment(Segment& segment, std::span<const Value> inputs, const RunControl& control,
                                 std::span<const Tensor> bound);
  std::vector<Value> run_eager(const ops::Graph& graph, std::span<const Value> inputs, const RunControl& control);
  std::vector<Value> run_region(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                const RunControl& control);
  std::vector<Value> evaluate(const ops::Node& node, std::span<const Value> inputs);
  std::vector<Value> run_if(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                            const RunControl& control);
  std::vector<Value> run_loop(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                              const RunControl& control);
  std::vector<Value> run_scan(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                              const RunControl& control);
  std::vector<Value> run_sequence_map(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                      const RunControl& control);
  void reserve(const Plan& plan);
  void reserve_scratch(std::size_t bytes);
  Tensor allocate(DType dtype, const Shape& shape);

  std::shared_ptr<EngineCore> core_;
  bool real_time_ = false;
  std::unordered_map<int, std::vector<Cached>> instances_;  // by segment, most recent first
  std::shared_ptr<void> arena_;
  std::size_t arena_bytes_ = 0;
  std::shared_ptr<void> scratch_memory_;
  std::size_t scratch_bytes_ = 0;
  std::size_t scratch_wanted_ = 0;  // by the kernels run so far
  const Step* overflowed_ = nullptr;
  Visits* visits_ = nullptr;
  std::vector<void*> scratch_;
};

}  // namespace lathe::runtime
