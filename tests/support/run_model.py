"""Runs a model at further shapes with ONNX Runtime, for tests to compare with.

    run_model.py MODEL.onnx STORED.in.npz DIR

Writes DIR/<model>.<i>.in.npz and .out.npz, keyed by tensor name, for each shape below, and DIR/<model>.steps.npz for
silero-vad: 20 steps at each sample rate, the state carried. Integer inputs are drawn from the range of the stored ones.
"""
import os
import sys

import numpy as np
import onnxruntime

# Batch 2 where there is a batch, an odd extent, the smallest at which every window still fits its input.
SHAPES = {
    "basic-pitch": [{"n": 2}, {"n": 3}, {"n": 1}],
    "chars2vec": [{"n": 2, "t": 6}, {"n": 3, "t": 11}, {"n": 1, "t": 1}],
    "magika": [{"n": 2}, {"n": 7}, {"n": 1}],
    "minilm-int8": [{"n": 2, "t": 16}, {"n": 3, "t": 37}, {"n": 1, "t": 1}],
    "name-encoder": [{"n": 2, "t": 12}, {"n": 3, "t": 17}, {"n": 1, "t": 1}],
    "nmr-gnn": [{"atoms": 24, "edges": 40, "residues": 6}, {"atoms": 13, "edges": 31, "residues": 5}, {"atoms": 1, "edges": 1, "residues": 1}],
    "oww-embedding": [{"n": 2}, {"n": 5}, {"n": 1}],
    "ppocr-cls": [{"n": 2, "h": 48, "w": 192}, {"n": 1, "h": 37, "w": 51}, {"n": 1, "h": 33, "w": 3}],
    "ppocr-det": [{"n": 2, "h": 64, "w": 96}, {"n": 1, "h": 160, "w": 224}, {"n": 1, "h": 1, "w": 1}],
    "ppocr-rec": [{"n": 2, "h": 48, "w": 160}, {"n": 1, "h": 48, "w": 117}, {"n": 1, "h": 33, "w": 5}],
    "silero-vad": [{"n": 2, "t": 576, "rate": 16000}, {"n": 3, "t": 288, "rate": 8000}, {"n": 1, "t": 288, "rate": 8000}],
    "surface-mlp": [{"n": 2}, {"n": 33}, {"n": 1}],
    "surface-tree": [{"n": 2}, {"n": 33}, {"n": 1}],
    "tashkeel-int8": [{"n": 2, "t": 20}, {"n": 3, "t": 41}, {"n": 1, "t": 1}],
    "yolo-isbn": [{"n": 2, "h": 160, "w": 160}, {"n": 1, "h": 224, "w": 352}, {"n": 1, "h": 96, "w": 160}],
}


def shape_of(name, stored, s):
    """The shape of input `name` for the extents `s`."""
    if "atoms" in s:
        by_extent = {12: s["atoms"], 20: s["edges"], 3: s["residues"]}
        return [by_extent[stored[0]] if name != "edge_index" else 2, *([s["edges"]] if name == "edge_index" else stored[1:])]
    if "rate" in s:
        return {"input": [s["n"], s["t"]], "state": [2, s["n"], 128], "sr": []}[name]
    if "h" in s:
        return [s["n"], 3, s["h"], s["w"]]
    if "t" in s:
        return [s["n"], s["t"], *stored[2:]]
    return [s["n"], *stored[1:]]


def draw(rng, name, stored, shape, s):
    if name == "sr":
        return np.array(s["rate"], stored.dtype)
    if stored.dtype == bool:
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True
        return mask
    if stored.dtype.kind in "iu":
        low, high = int(stored.min()), int(stored.max())
        if name in ("edge_index", "target_indices"):
            low, high = 0, s["atoms"] - 1
        return rng.integers(low, high + 1, shape).astype(stored.dtype)
    if stored.min() >= 0:
        return rng.uniform(0, 1, shape).astype(stored.dtype)
    return rng.standard_normal(shape).astype(stored.dtype)


def write(session, path, inputs):
    outputs = session.run(None, inputs)
    np.savez(path + ".in.npz", **inputs)
    np.savez(path + ".out.npz", **{o.name: v for o, v in zip(session.get_outputs(), outputs)})


def main():
    model, stored_path, folder = sys.argv[1:]
    name = os.path.basename(model)[:-5]
    stored = np.load(stored_path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Without VNNI its fast 8-bit products saturate; these are exact everywhere.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    os.makedirs(folder, exist_ok=True)
    for i, s in enumerate(SHAPES.get(name, [])):
        rng = np.random.default_rng(i)
        inputs = {k: draw(rng, k, v, shape_of(k, list(v.shape), s), s) for k, v in stored.items()}
        write(session, f"{folder}/{name}.{i}", inputs)
    if name == "silero-vad":
        steps = {}
        for rate, length in ((16000, 576), (8000, 288)):
            rng = np.random.default_rng(rate)
            state = np.zeros((2, 1, 128), np.float32)
            samples = rng.standard_normal((20, 1, length)).astype(np.float32)
            outputs = []
            for chunk in samples:
                output, state = session.run(None, {"input": chunk, "state": state, "sr": np.array(rate, np.int64)})
                outputs.append(output)
            steps |= {f"{rate}.samples": samples, f"{rate}.outputs": np.stack(outputs), f"{rate}.state": state}
        np.savez(f"{folder}/{name}.steps.npz", **steps)


main()
