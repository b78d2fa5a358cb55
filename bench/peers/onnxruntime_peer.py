"""ONNX Runtime as bench/peers.py drives it: one model in one process, commands on standard input, a JSON line for each.

    onnxruntime_peer.py MODEL INPUTS.npz THREADS

Inputs and outputs are bound to buffers made once. `call_ms` is what a call costs through Python: the median of a network
of one Identity node, run in turns with a model that is as small as to make it matter.
"""
import json
import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort

CALL_LIMIT_MS = 0.05  # below this a call's cost matters


def session_of(model, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bind(session, inputs):
    """Binds the inputs; runs once; binds the outputs to buffers of the shapes that came. Returns the first run's time too."""
    binding = session.io_binding()
    for value in session.get_inputs():
        if value.name in inputs:
            binding.bind_ortvalue_input(value.name, ort.OrtValue.ortvalue_from_numpy(inputs[value.name]))
    for value in session.get_outputs():
        binding.bind_output(value.name, "cpu")
    begin = time.perf_counter()
    session.run_with_iobinding(binding)
    first_ms = (time.perf_counter() - begin) * 1e3
    outputs = binding.get_outputs()
    if all(value.is_tensor() for value in outputs):
        binding.clear_binding_outputs()
        for info, value in zip(session.get_outputs(), outputs):
            binding.bind_ortvalue_output(info.name, ort.OrtValue.ortvalue_from_numpy(value.numpy().copy()))
    return binding, first_ms


def timed(session, binding):
    begin = time.perf_counter()
    session.run_with_iobinding(binding)
    return (time.perf_counter() - begin) * 1e3


def run_for(network, identity, seconds):
    """The times of the network's runs and, where a call matters beside one, the median of the Identity network's."""
    end = time.perf_counter() + seconds
    times, calls = [timed(*network)], []
    small = statistics.median(timed(*network) for _ in range(5)) < CALL_LIMIT_MS
    while time.perf_counter() < end:
        times.append(timed(*network))
        if small:
            calls.append(timed(*identity))
    return {"times_ms": times, "call_ms": statistics.median(calls) if calls else 0.0}


def identity_network(threads):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    session = session_of(model.SerializeToString(), threads)
    binding, _ = bind(session, {"x": np.zeros(1, np.float32)})
    return session, binding


def main(model, archive, threads):
    threads = int(threads)
    begin = time.perf_counter()
    session = session_of(model, threads)
    load_ms = (time.perf_counter() - begin) * 1e3
    with np.load(archive) as file:
        inputs = {name: file[name] for name in file.files}
    binding, first_ms = bind(session, inputs)
    identity = identity_network(threads)
    print(json.dumps({"load_ms": load_ms, "first_ms": first_ms}), flush=True)
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "run":
            print(json.dumps(run_for((session, binding), identity, float(argument))), flush=True)
        elif verb == "outputs":
            values = zip(session.get_outputs(), binding.get_outputs())
            np.savez(argument, **{info.name: value.numpy() for info, value in values if value.is_tensor()})
            print("{}", flush=True)
        else:
            sys.exit(f"unknown command: {line}")


main(*sys.argv[1:])
