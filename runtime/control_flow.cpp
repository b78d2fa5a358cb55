// If, Loop, Scan and SequenceMap: bodies are modules, run as often as the data says.
#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/execution.h"

namespace lathe::runtime {
namespace {

bool truth(const ops::Node& node, const Value& value, std::string_view what) {
  if (!value.is_tensor() || value.dtype() != DType::boolean || value.tensor().size() != 1) {
    fail(ErrorCode::invalid_model, "{}: {} must be one boolean, got {}", ops::describe(node), what,
         value.is_tensor() ? fmt::format("{}[{}]", value.dtype(), value.shape())
                           : std::string("something that is no tensor"));
  }
  return value.view<bool>().front();
}

struct Blocks {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
};

Blocks around(const Shape& shape, int axis) {
  Blocks b;
  for (int d = 0; d < axis; ++d) b.outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) b.inner *= shape[d];
  return b;
}

void copy_elements(DType dtype, const void* from, std::int64_t from_at, void* to, std::int64_t to_at,
                   std::int64_t count) {
  if (dtype == DType::string) {
    std::copy_n(static_cast<const std::string*>(from) + from_at, count, static_cast<std::string*>(to) + to_at);
    return;
  }
  const std::int64_t size = dtype.bits() / 8;
  std::memcpy(static_cast<std::byte*>(to) + to_at * size, static_cast<const std::byte*>(from) + from_at * size,
              static_cast<std::size_t>(count * size));
}

void refuse_packed(const ops::Node& node, const Tensor& t) {
  if (t.dtype().is_packed())
    fail(ErrorCode::unsupported, "{}: scanning over packed {} elements", ops::describe(node), t.dtype());
}

/// The slice of `t` at `index` of `axis`, that axis gone.
Tensor slice_at(const ops::Node& node, const Tensor& t, int axis, std::int64_t index) {
  const ops::OnBehalfOf name(node);
  Shape shape = t.shape();
  const Blocks b = around(shape, axis);
  const std::int64_t extent = shape[axis];
  shape.erase(axis);
  Tensor result(t.dtype(), shape);
  for (std::int64_t o = 0; o < b.outer; ++o) {
    copy_elements(t.dtype(), t.data(), (o * extent + index) * b.inner, result.mutable_data(), o * b.inner, b.inner);
  }
  return result;
}

/// The tensors side by side along a new axis.
Tensor stack(const ops::Node& node, const std::vector<Tensor>& parts, int axis) {
  const ops::OnBehalfOf name(node);
  Shape shape = parts.front().shape();
  shape.insert(axis, static_cast<std::int64_t>(parts.size()));
  Tensor result(parts.front().dtype(), shape);
  const Blocks b = around(shape, axis);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (!(parts[p].shape() == parts.front().shape()) || parts[p].dtype() != parts.front().dtype()) {
      fail(ErrorCode::invalid_model, "{}: a scan output is {} in iteration {}, but {} in the first",
           ops::describe(node), parts[p].shape(), p, parts.front().shape());
    }
    for (std::int64_t o = 0; o < b.outer; ++o) {
      copy_elements(result.dtype(), parts[p].data(), o * b.inner, result.mutable_data(),
                    (o * static_cast<std::int64_t>(parts.size()) + static_cast<std::int64_t>(p)) * b.inner, b.inner);
    }
  }
  return result;
}

/// What a scan output is after no iteration: as the body declares it, open dims 0.
Tensor empty_scan(const ops::Graph& body, ops::ValueId output) {
  const auto& declared = body.value(output).declared;
  Shape shape{0};
  DType dtype = DType::f32;
  if (declared) {
    if (declared->dtype != DType::undefined) dtype = declared->dtype;
    if (declared->dims) {
      for (const Dim& d : *declared->dims) shape.push_back(std::max<std::int64_t>(d.extent, 0));
    }
  }
  return {dtype, shape};
}

}  // namespace

std::vector<Value> Execution::run_if(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                     const RunControl& control) {
  const bool condition = truth(node, inputs[0], "the condition");
  return run(*part.bodies[condition ? 0 : 1], inputs.subspan(1), control);
}

std::vector<Value> Execution::run_loop(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                       const RunControl& control) {
  const Module& body = *part.bodies[0];
  const std::size_t formal = node.formal_inputs();
  const std::size_t carried = formal - 2;
  std::int64_t trips = std::numeric_limits<std::int64_t>::max();
  if (node.inputs[0] != ops::kNone) {
    const Tensor& t = inputs[0].tensor();
    if (t.size() != 1 || !t.dtype().is_integer())
      fail(ErrorCode::invalid_model, "{}: the trip count must be one integer, got {}[{}]", ops::describe(node),
           t.dtype(), t.shape());
    trips = t.integer(0);
  }
  bool condition = node.inputs[1] == ops::kNone || truth(node, inputs[1], "the condition");
  std::vector<Value> arguments(2 + carried + static_cast<std::size_t>(node.captures));
  for (std::size_t i = 2; i < arguments.size(); ++i) arguments[i] = inputs[i];
  const std::size_t results = body.graph().outputs.size();
  if (results < 1 + carried) {
    fail(ErrorCode::invalid_model, "{}: its body has {} outputs for {} carried values", ops::describe(node), results,
         carried);
  }
  std::vector<std::vector<Tensor>> scans(results - 1 - carried);
  for (std::int64_t i = 0; i < trips && condition; ++i) {
    control.check();
    arguments[0] = Tensor::scalar(i);
    arguments[1] = Tensor::scalar(condition);
    std::vector<Value> out = run(body, arguments, control);
    condition = truth(node, out[0], "the body's condition");
    for (std::size_t c = 0; c < carried; ++c) arguments[2 + c] = std::move(out[1 + c]);
    for (std::size_t s = 0; s < scans.size(); ++s) {
      refuse_packed(node, out[1 + carried + s].tensor());
      scans[s].push_back(out[1 + carried + s].tensor());
    }
  }
  std::vector<Value> outputs;
  for (std::size_t c = 0; c < carried; ++c) outputs.push_back(std::move(arguments[2 + c]));
  for (std::size_t s = 0; s < scans.size(); ++s) {
    outputs.emplace_back(scans[s].empty() ? empty_scan(body.graph(), body.graph().outputs[1 + carried + s])
                                          : stack(node, scans[s], 0));
  }
  outputs.resize(std::max(outputs.size(), node.outputs.size()));
  return outputs;
}

std::vector<Value> Execution::run_scan(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                       const RunControl& control) {
  const Module& body = *part.bodies[0];
  const ops::OpView op(node, {}, {});
  const std::size_t formal = node.formal_inputs();
  const std::int64_t scanned = op.i("num_scan_inputs");
  if (scanned < 1 || static_cast<std::size_t>(scanned) > formal) {
    op.error("num_scan_inputs is {}, expected 1 to {}", scanned, formal);
  }
  const std::size_t states = formal - static_cast<std::size_t>(scanned);
  const auto entry = [](std::span<const std::int64_t> list, std::size_t i) { return i < list.size() ? list[i] : 0; };
  const auto in_axes = op.attr_ints("scan_input_axes");
  const auto in_directions = op.attr_ints("scan_input_directions");
  const auto out_axes = op.attr_ints("scan_output_axes");
  const auto out_directions = op.attr_ints("scan_output_directions");
  std::int64_t trips = -1;
  std::vector<int> axes;
  for (std::size_t s = 0; s < static_cast<std::size_t>(scanned); ++s) {
    const Tensor& t = inputs[states + s].tensor();
    refuse_packed(node, t);
    if (t.shape().rank() == 0) op.error("scan input {} is a scalar", s);
    axes.push_back(op.axis(entry(in_axes, s), t.shape().rank(), "a scan input axis"));
    const std::int64_t extent = t.shape()[axes.back()];
    if (trips >= 0 && extent != trips) op.error("scan inputs have {} and {} elements along their axes", trips, extent);
    trips = extent;
  }
  std::vector<Value> arguments(formal + static_cast<std::size_t>(node.captures));
  for (std::size_t i = 0; i < states; ++i) arguments[i] = inputs[i];
  for (std::size_t i = formal; i < arguments.size(); ++i) arguments[i] = inputs[i];
  const std::size_t results = body.graph().outputs.size();
  if (results < states) op.error("its body has {} outputs for {} states", results, states);
  std::vector<std::vector<Tensor>> scans(results - states);
  for (std::int64_t i = 0; i < trips; ++i) {
    control.check();
    for (std::size_t s = 0; s < static_cast<std::size_t>(scanned); ++s) {
      const std::int64_t at = entry(in_directions, s) != 0 ? trips - 1 - i : i;
      arguments[states + s] = slice_at(node, inputs[states + s].tensor(), axes[s], at);
    }
    std::vector<Value> out = run(body, arguments, control);
    for (std::size_t c = 0; c < states; ++c) arguments[c] = std::move(out[c]);
    for (std::size_t s = 0; s < scans.size(); ++s) {
      refuse_packed(node, out[states + s].tensor());
      scans[s].push_back(out[states + s].tensor());
    }
  }
  std::vector<Value> outputs;
  for (std::size_t c = 0; c < states; ++c) outputs.push_back(std::move(arguments[c]));
  for (std::size_t s = 0; s < scans.size(); ++s) {
    if (entry(out_directions, s) != 0) std::reverse(scans[s].begin(), scans[s].end());
    if (scans[s].empty()) {
      outputs.emplace_back(empty_scan(body.graph(), body.graph().outputs[states + s]));
      continue;
    }
    const int axis = op.axis(entry(out_axes, s), scans[s].front().shape().rank() + 1, "a scan output axis");
    outputs.emplace_back(stack(node, scans[s], axis));
  }
  outputs.resize(std::max(outputs.size(), node.outputs.size()));
  return outputs;
}

std::vector<Value> Execution::run_sequence_map(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                               const RunControl& control) {
  const Module& body = *part.bodies[0];
  const std::size_t formal = node.formal_inputs();
  const auto refuse = [&](std::string_view what) {
    fail(ErrorCode::invalid_model, "{}: {}", ops::describe(node), what);
  };
  if (!inputs[0].is_sequence()) refuse("its first input must be a sequence");
  const std::size_t trips = inputs[0].sequence().size();
  for (std::size_t i = 1; i < formal; ++i) {
    if (inputs[i].is_sequence() && inputs[i].sequence().size() != trips) {
      refuse(fmt::format("input {} has {} elements, the first {}", i, inputs[i].sequence().size(), trips));
    }
  }
  std::vector<Sequence> results(body.graph().outputs.size());
  std::vector<Value> arguments(inputs.begin(), inputs.end());
  for (std::size_t t = 0; t < trips; ++t) {
    control.check();
    for (std::size_t i = 0; i < formal; ++i) {
      if (inputs[i].is_sequence()) arguments[i] = inputs[i].sequence()[t];
    }
    std::vector<Value> out = run(body, arguments, control);
    for (std::size_t o = 0; o < results.size(); ++o) results[o].push_back(std::move(out[o]));
  }
  std::vector<Value> outputs;
  for (Sequence& result : results) outputs.emplace_back(std::move(result));
  return outputs;
}

}  // namespace lathe::runtime
