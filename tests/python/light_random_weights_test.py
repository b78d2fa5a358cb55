"""ONNX's light models with seeded random weights give what ONNX Runtime gives. Their own weights are all 0.02, which hides
channels that change places."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

LATHE = f"{sys.argv[1]}/bin/lathe"
CASES = os.environ.get("LATHE_CASES") or ".cases"
TOLERANCE = 1e-4  # of the largest magnitude: 50 to 120 layers of float32 sums in another order


def weight(rng, shape, op, place):
    """He-scaled where inputs are summed, statistics of a plausible size for batch normalization."""
    if op in ("Conv", "Gemm") and len(shape) > 1:
        return rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
    if (op, place) in (("BatchNormalization", 1), ("BatchNormalization", 4)) or op == "Mul":
        return rng.uniform(0.5, 1.5, shape)
    return rng.standard_normal(shape) * 0.1


def randomized(model, rng):
    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    uses = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            uses.setdefault(name, (node, place))
    nodes = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        user, place = uses[node.output[0]]
        if user.op_type == "Unsqueeze":
            user, place = uses[user.output[0]]
        value = weight(rng, tuple(int(d) for d in shapes[node.input[0]]), user.op_type, place)
        graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [i for i in graph.initializer if i.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    inputs = [i for i in graph.input if i.name in used and i.name not in {k.name for k in kept}]
    del graph.input[:]
    graph.input.extend(inputs)
    # A softmax hides small differences: what goes into it is compared, too.
    scores = [n.input[0] for n in nodes if n.op_type == "Softmax"]
    graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in scores)
    model.ir_version = max(model.ir_version, 8)
    return model


def compare(name, folder):
    rng = np.random.default_rng(7)
    path, given, made = (f"{folder}/{part}" for part in ("model.onnx", "in.npz", "out.npz"))
    model = randomized(onnx.load(f"{CASES}/light/{name}/model.onnx"), rng)
    onnx.save(model, path)
    x = {i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
         for i in model.graph.input}
    np.savez(given, **x)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, x)
    subprocess.run([LATHE, "run", path, "--inputs", given, "--outputs", made], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    got = np.load(made)
    worst = 0.0
    for info, want in zip(model.graph.output, expected):
        have = got[info.name]
        assert have.shape == want.shape, f"{name} {info.name}: {have.shape}, expected {want.shape}"
        assert np.ptp(want) > 0, f"{name} {info.name}: the weights say nothing"
        worst = max(worst, float(np.abs(have - want).max() / np.abs(want).max()))
    print(f"{name}: largest difference {worst:.1e} of the largest value")
    assert worst <= TOLERANCE, name


names = sorted(os.listdir(f"{CASES}/light"))
assert len(names) == 9, names
for light in names:
    with tempfile.TemporaryDirectory() as own:
        compare(light, own)
