// EngineImpl and SessionImpl: what stands behind the public handles.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <lathe/engine.h>
#include <lathe/session.h>

#include "runtime/execution.h"

namespace lathe::runtime {

class EngineImpl {
 public:
  /// Takes an imported graph. Failure where it cannot be prepared, or `check` ends the load by throwing.
  EngineImpl(std::shared_ptr<EngineCore> core, ops::Graph graph, const std::function<void()>& check);

  /// An engine of the same model, which shares the constants of `other` and what was packed and folded of them.
  EngineImpl(std::shared_ptr<EngineCore> core, const EngineImpl& other);

  /// The values for the module's inputs, in its order, checked against what the model declares. `also` fills what
  /// `inputs` leaves out (a session's bound inputs; may be empty).
  [[nodiscard]] std::vector<Value> gather(std::span<const NamedValue> inputs, std::span<const Value> also = {}) const;
  /// Failure (invalid_argument) where a value is not what the model declares of that input.
  void check_input(std::size_t index, const Value& value) const;
  /// Failure (invalid_model) where an output came out as something else than the model declares; another shape than
  /// declared is only worth a warning, once.
  void check_output(std::size_t index, const ops::Fact& fact);
  /// Zeros of these shapes, for planning.
  [[nodiscard]] std::vector<Value> placeholders(const Shapes& shapes, std::span<const Value> also = {}) const;
  [[nodiscard]] int input_index(std::string_view name) const;   ///< Failure (not_found)
  [[nodiscard]] int output_index(std::string_view name) const;  ///< Failure (not_found)
  /// Makes the plan of the first segment for these inputs, as far as shapes decide it.
  void prepare(std::span<const Value> inputs);

  std::unique_ptr<Execution> lease();
  void give_back(std::unique_ptr<Execution> execution);
  void drop_idle();
  void trim();
  [[nodiscard]] MemoryUse memory() const;

  std::shared_ptr<EngineCore> core;
  std::unique_ptr<Module> module;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<Value> defaults;  ///< per input; an undefined tensor where it has none
  std::vector<passes::Record> load_records;
  std::size_t weight_bytes = 0;  ///< of constants, when they were loaded

 private:
  void finish(ops::Graph graph);

  std::shared_ptr<void> shared_weights_;  ///< the charge for what another engine allocated
  std::vector<std::atomic_flag> warned_;  ///< per output
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Execution>> idle_;
};

class SessionImpl {
 public:
  explicit SessionImpl(std::shared_ptr<EngineImpl> e)
      : engine(std::move(e)),
        execution(engine->core),
        bound_inputs(engine->inputs.size()),
        bound_outputs(engine->outputs.size()) {}

  void bind_input(std::string_view name, Tensor tensor);
  void bind_output(std::string_view name, Tensor tensor);
  void prepare(const PrepareOptions& options);
  void run(std::span<const NamedValue> inputs, const RunOptions& options);

  std::shared_ptr<EngineImpl> engine;
  Execution execution;
  std::vector<Value> bound_inputs;
  std::vector<Tensor> bound_outputs;
  std::vector<NamedValue> results;

 private:
  [[nodiscard]] bool outputs_overlap(std::span<const Value> inputs) const;
  void run_fast(const RunControl& control);
  void make_fast(std::span<const Value> inputs, const RunControl& control = {});

  // The plan to run with bound buffers when nothing has changed since the last run.
  PlanInstance* fast_ = nullptr;
  std::vector<void*> fast_inputs_;
  std::vector<void*> fast_outputs_;
};

/// The names that RunOptions::outputs asks for, as positions; all of them where it is empty.
std::vector<std::size_t> wanted_outputs(const EngineImpl& engine, const RunOptions& options);
RunControl control_of(const RunOptions& options);

}  // namespace lathe::runtime
