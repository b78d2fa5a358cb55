#!/usr/bin/env python3
"""Random uses of every ONNX operator through Lathe, against ONNX's reference evaluator.

Each use (operator_models.py) is a model of one node. Where the evaluator gives an answer, Lathe must give the same or refuse with
an error that names the node, unless ONNX Runtime sides with Lathe; where it gives none, Lathe may do either. It must never crash or hang.

    fuzz_operators.py build/release/bin/lathe                              2,000 uses in a minute or two
    fuzz_operators.py build/release/bin/lathe --count 20000 --seed 3 --table    the long run
    fuzz_operators.py build/release/bin/lathe --only Pad --count 300 --refusals --keep DIR
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import operator_models
from case_files import write, write_data, write_rule
from operator_draw import FLAGS, code_of, is_float

# Uses on which the evaluator departs from the operator's text, and why. What Lathe gives there is held against hand-made values
# or ONNX Runtime in the tests of the operators.
KNOWN_WRONG = []
ORACLE_IS_RUNTIME = {"RNN", "GRU", "LSTM", "LRN", "TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier", "SVMClassifier"}


def known_wrong(reason, *operators):
    def register(holds):
        KNOWN_WRONG.append((set(operators), holds, reason))
        return holds
    return register


def code(use, i=0):
    v = use.inputs[i]
    return None if v is None else operator_models.dtype_of(v)


def numbers(use):
    """All elements of the inputs that are numbers, as float64."""
    arrays = [a for v in use.inputs if v is not None for a in (v if isinstance(v, list) else [v])]
    return np.concatenate([np.abs(a).astype(np.float64).ravel() if a.dtype.kind == "c" else a.astype(np.float64).ravel()
                           for a in arrays if a.dtype != object] or [np.zeros(0)])


@known_wrong("before opset 13 the dims from `axis` on are one", "Softmax", "LogSoftmax", "Hardmax")
def _(use):
    return use.opset < 13


@known_wrong("it takes the logarithm of an exponential that is 0", "LogSoftmax")
def _(use):
    return not np.all(np.abs(numbers(use)) < 80)


@known_wrong("only rank 4 keeps its dims", "GlobalMaxPool")
def _(use):
    return use.inputs[0].ndim != 4


@known_wrong("the order of `axes` does not matter", "Unsqueeze")
def _(use):
    return use.opset < 13


@known_wrong("what a window gives that lies in the padding alone is not said", "MaxPool", "AveragePool", "LpPool")
def _(use):
    pads, kernel = use.attributes.get("pads", []), use.attributes.get("kernel_shape", [])
    return any(p >= k for p, k in zip(pads, [*kernel, *kernel]))


@known_wrong("positions are counted in another order than ONNX Runtime's", "MaxPool")
def _(use):
    return use.outputs > 1 and (use.inputs[0].ndim > 4 or use.attributes.get("storage_order", 0) != 0)


@known_wrong("it trains where `momentum` is stated", "BatchNormalization")
def _(use):
    return use.opset < 14


@known_wrong("statistics have the dtype that `stash_type` says", "LayerNormalization")
def _(use):
    return use.outputs > 1 and code(use) != TensorProto.FLOAT


@known_wrong("the norm of p = 1 lacks the magnitudes, others than 1 and 2 do not exist", "LpNormalization")
def _(use):
    return use.attributes.get("p", 2) != 2


@known_wrong("float8 is cut off to integers", "QLinearMatMul")
def _(use):
    return any(v is not None and "float8" in v.dtype.name for v in use.inputs)


@known_wrong("numbers are compared as integers", "OneHotEncoder")
def _(use):
    return code(use) in (TensorProto.FLOAT, TensorProto.DOUBLE)


@known_wrong("weights are cut off to the data's integers", "GridSample")
def _(use):
    return not is_float(code(use))


@known_wrong("groups share one group's channels", "ConvTranspose")
def _(use):
    return use.attributes.get("group", 1) > 1


@known_wrong("what infinities, NaN and negative numbers are as integers is not said", "Cast", "CastLike", "QuantizeLinear",
             "DynamicQuantizeLinear")
def _(use):
    v = numbers(use)
    return not np.all(np.isfinite(v)) or v.max(initial=0) > 60000 or (use.name.startswith("Cast") and v.min(initial=0) < 0)


@known_wrong("whole numbers may be written with a point or without", "Cast", "CastLike")
def _(use):
    return use.attributes.get("to") == TensorProto.STRING or (use.name == "CastLike" and code(use, 1) == TensorProto.STRING)


@known_wrong("alpha = 0 divides by 0", "Celu")
def _(use):
    return use.attributes.get("alpha", 1.0) == 0


@known_wrong("it knows one direction and takes `clip` and `input_forget` for nothing", "RNN", "GRU", "LSTM")
@known_wrong("the window lacks its last channel", "LRN")
@known_wrong("a score that no leaf reaches is 0; labels of two classes follow ONNX Runtime", "TreeEnsemble", "TreeEnsembleRegressor",
             "TreeEnsembleClassifier", "SVMClassifier")
def _(use):
    return use.name in ORACLE_IS_RUNTIME


@known_wrong("a tensor of zeros has any scale", "DynamicQuantizeLinear")
def _(use):
    return not numbers(use).any()


@known_wrong("it sorts where `sorted` is 0", "Unique")
def _(use):
    return use.attributes.get("sorted", 1) == 0


@known_wrong("a symmetric window of one value divides 0 by 0", "HannWindow", "HammingWindow", "BlackmanWindow")
def _(use):
    return use.attributes.get("periodic", 1) == 0 and numbers(use).max(initial=0) <= 1


@known_wrong("empty strings are dropped", "StringNormalizer")
def _(_use):
    return True


@known_wrong("the largest magnitude stands for the largest value", "Normalizer")
def _(use):
    return use.attributes.get("norm", "MAX") == "MAX"


@known_wrong("auto_pad counts other windows than ONNX Runtime and the text", "MaxPool", "AveragePool", "LpPool", "ConvTranspose")
def _(use):
    return use.attributes.get("auto_pad", "NOTSET") != "NOTSET"


@known_wrong("there is no mean of no integers", "ReduceMean")
def _(use):
    return use.inputs[0].size == 0


@known_wrong("before opset 16 regions are not moved by half a pixel", "RoiAlign")
def _(use):
    return use.opset < 16


@known_wrong("bounds left out are infinite, not the largest float32", "Clip")
def _(use):
    return use.opset < 11 and not np.all(np.isfinite(numbers(use)))


@known_wrong("whole powers beyond the type are whatever a conversion makes of them", "Pow")
def _(use):
    if use.inputs[0].dtype.kind not in "iu" or use.inputs[1].dtype.kind not in "iuf":
        return False
    base, exponent = (v.astype(np.float64) for v in use.inputs[:2])
    return exponent.max(initial=0) * np.log2(np.abs(base).max(initial=1)) > 31


@known_wrong("it divides in float32 where the scale is narrower and no precision is stated", "QuantizeLinear")
def _(use):
    return not use.attributes.get("precision") and code(use, 0) == TensorProto.FLOAT and code(use, 1) != TensorProto.FLOAT


@known_wrong("without intercepts every score is NaN", "LinearClassifier")
def _(use):
    return not use.attributes.get("intercepts")


@known_wrong("what little the elements of a group differ by is lost", "GroupNormalization")
def _(use):
    x = use.inputs[0]
    return x.ndim > 1 and x.size <= 2 * x.shape[0] * use.attributes.get("num_groups", 1)


@known_wrong("imaginary parts are dropped", "Resize", "Upsample")
def _(use):
    return use.inputs[0].dtype.kind == "c"


@known_wrong("the nearest element outside is 0, not the one at the border", "Resize")
def _(use):
    return use.attributes.get("mode", "nearest") == "nearest" and use.attributes.get("exclude_outside", 0) != 0


@known_wrong("one element of pytorch_half_pixel is taken at -0.5, not at 0", "Resize")
def _(use):
    if use.attributes.get("coordinate_transformation_mode") != "pytorch_half_pixel":
        return False
    axes = [a % use.inputs[0].ndim for a in use.attributes.get("axes", range(use.inputs[0].ndim))]
    scales, sizes = (use.inputs[i].ravel() if len(use.inputs) > i and use.inputs[i] is not None else [] for i in (2, 3))
    extents = [*sizes, *(s * use.inputs[0].shape[a] for a, s in zip(axes, scales))]
    return any(int(e) == 1 for e in extents)


def excluded(use):
    """Why the evaluator is not asked."""
    if any(use.attributes.get(flag, 0) not in (0, 1) for flag in FLAGS):
        return "flags are 0 or 1"
    return next((reason for operators, holds, reason in KNOWN_WRONG if use.name in operators and holds(use)), None)


# ---- the evaluator's answer ----

def open_outputs(use):
    return [helper.make_empty_tensor_value_info(f"y{i}") for i in range(use.outputs)]


def runtime_answer(model, given):
    """ONNX Runtime's outputs."""
    import onnxruntime  # noqa: PLC0415  wanted for a few cases only

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def answer(use):
    """The outputs of the evaluator, or of ONNX Runtime where it is the oracle; None where there are none that a file can hold."""
    by_runtime = use.name in ORACLE_IS_RUNTIME
    if use.extreme or (excluded(use) and not by_runtime):
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = use.model(open_outputs(use))
            got = runtime_answer(model, use.given()) if by_runtime else ReferenceEvaluator(model).run(None, use.given())
    except Exception:  # noqa: BLE001  whatever the evaluator stumbles over
        return None
    values = [v if isinstance(v, list) else np.asarray(v) for v in got]
    values = [v.astype(object) if isinstance(v, np.ndarray) and v.dtype.kind == "U" else v for v in values]
    return values if all(map(is_written, values)) and has_schema_types(use, values) else None


def has_schema_types(use, values):
    """Whether tensors have the dtypes that the schema says: the evaluator takes NumPy's."""
    for formal, v in zip(use.schema.outputs, values):
        code = code_of(formal.type_str)
        if code is None:
            code = next((operator_models.dtype_of(x) for i, x in zip(use.schema.inputs, use.inputs)
                         if i.type_str == formal.type_str and isinstance(x, np.ndarray)), None)
        allowed = [code_of(t) for c in use.schema.type_constraints if c.type_param_str == formal.type_str for t in c.allowed_type_strs]
        stated_code = operator_models.dtype_of(v) if isinstance(v, np.ndarray) else None
        if stated_code is not None and (stated_code != code if code is not None else allowed and stated_code not in allowed):
            return False
    return True


def is_written(value):
    """Whether a file of a case can hold it: a tensor or a sequence of tensors."""
    if isinstance(value, list):
        return all(isinstance(e, np.ndarray) and is_written(e) for e in value)
    return value.dtype != object or all(isinstance(e, str) for e in value.ravel())


def stated(value, name):
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, operator_models.dtype_of(value[0]) if value else TensorProto.FLOAT, None)
    return helper.make_tensor_value_info(name, operator_models.dtype_of(value), [None] * value.ndim)


def magnitude(values):
    """The largest finite magnitude; what sums may be wrong by grows with it."""
    largest = 1.0
    for v in values:
        for a in v if isinstance(v, list) else [v]:
            if isinstance(a, np.ndarray) and a.size and a.dtype != object:
                n = np.abs(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64))
                n = n[np.isfinite(n)]
                largest = max(largest, float(n.max()) if n.size else 0)
    return largest


STEPS = {"float64": 1e-9, "float16": 4e-3, "bfloat16": 3e-2, "float8_e8m0fnu": 0.0, "complex128": 1e-9}


# The evaluator or the operator's text computes these in float32, whatever the dtype.
IN_FLOAT32 = {"Erf", "Gelu", "HardSwish", "DeformConv", "Celu", "Selu", "SVMRegressor", "SVMClassifier", "HardSigmoid", "Attention",
              "Resize"}


def tolerance(use, expected):
    """rtol and atol by the coarsest dtype among inputs and outputs."""
    arrays = [a for v in [*use.inputs, *expected] if v is not None for a in (v if isinstance(v, list) else [v])]
    kinds = {a.dtype.name for a in arrays}
    if any(k.startswith(("float8", "float4")) for k in (a.dtype.name for v in expected for a in (v if isinstance(v, list) else [v]))):
        return 0.0, 0.0
    if use.name.startswith("QLinear"):
        return 0.0, 1.0  # products of floats next to a half
    if use.name == "Resize" and expected[0].dtype.kind in "iu" and use.attributes.get("mode", "nearest") != "nearest":
        return 0.0, 1.0  # sums next to a half
    narrow = {"float32"} if use.name in IN_FLOAT32 or "stash_type" in use.schema.attributes else set()
    kinds |= narrow
    step = max((STEPS.get(k, 1e-5 if k in ("float32", "complex64") else 0.0) for k in kinds), default=0)
    return 3 * step, step * min(magnitude([v for v in use.inputs if v is not None] + expected), 1e6)


def write_case(folder, use):
    """One case; without outputs where the evaluator gives no answer. Whether it does."""
    expected = answer(use)
    try:
        model = use.model([stated(v, f"y{i}") for i, v in enumerate(expected)] if expected is not None else open_outputs(use))
        outputs = [operator_models.proto(v, f"y{i}") for i, v in enumerate(expected or [])]
    except Exception:  # noqa: BLE001  a type that no file can state
        model, outputs, expected = use.model(open_outputs(use)), [], None
    write_data(folder, 0, input=[operator_models.proto(v, n) for n, v in use.given().items()], output=outputs)
    write(f"{folder}/model.onnx", model)
    if expected is not None:
        rtol, atol = tolerance(use, expected)
        write_rule(folder, rtol=rtol, atol=atol)
    return expected is not None


# ---- what Lathe makes of it ----

AGREES, RAN, REFUSED, REJECTED, OUTVOTED, DIFFERS, UNCLEAR, CRASHED = (
    "agree", "ran", "refused", "rejected", "outvoted", "differ", "unclear", "crashed")


def verdict(passed, reason, has_answer):
    """`ran` and `rejected` are what may happen where the evaluator gives no answer."""
    if re.match(r"crashed:|ended the process|no answer in", reason):
        return CRASHED
    if passed or reason == "no output files":
        return AGREES if has_answer else RAN
    if reason.startswith("output '"):  # without an answer: it is declared to be a tensor, but is a sequence or map
        return DIFFERS if has_answer else RAN
    if operator_models.NODE not in reason or "internal" in reason:
        return UNCLEAR
    return REFUSED if has_answer else REJECTED


def run(lathe, folder, jobs, arguments):
    """By case: whether it passed, and the reason given."""
    done = subprocess.run([lathe, "test", folder, "--verbose", "--timeout", "30", "--jobs", str(jobs), *arguments], capture_output=True,
                          text=True, errors="replace", check=False)
    found = {}
    for line in done.stdout.splitlines():
        if at := re.match(r"(passed|FAILED|skipped) \S*/(\d+)_\w+(?:: (.*))?$", line):
            found[int(at[2])] = (at[1] == "passed", at[3] or "")
    return found


def second_opinion(lathe, folder, use):
    """Whether Lathe gives what ONNX Runtime gives, on a case where it differs from the evaluator, and else why not."""
    try:
        got = [np.asarray(v) for v in runtime_answer(use.model(open_outputs(use)), use.given())]
        data = f"{folder}/test_data_set_0"
        for i, v in enumerate(got):
            write(f"{data}/output_{i}.pb", operator_models.proto(v.astype(object) if v.dtype.kind == "U" else v, f"y{i}"))
    except Exception:  # noqa: BLE001  not every dtype is there
        return False, "ONNX Runtime does not run it"
    passed, reason = next(iter(run(lathe, folder, 1, []).values()), (False, ""))
    return passed, f"Lathe differs from ONNX Runtime: {reason}"


def shown(use):
    def value(v):
        return "none" if v is None else f"[{len(v)}]" if isinstance(v, list) else f"{v.dtype}{list(v.shape)}"
    listed = {k: v if not isinstance(v, onnx.TensorProto) else "tensor" for k, v in use.attributes.items()}
    return f"{use.name}-{use.opset}({', '.join(map(value, use.inputs))}) {listed}{' spoilt' if use.spoilt else ''}{' extreme' if use.extreme else ''}"


def fuzz(lathe, count, seed, folder, only=None, jobs=2, arguments=(), refusals=False):
    """Counts by operator and verdict; faults are printed."""
    drawn, answered = [], []
    for i, use in enumerate(operator_models.uses(count, seed, only)):
        drawn.append(use)
        answered.append(write_case(f"{folder}/{i}_{use.name}", use))
    results = run(lathe, folder, jobs, arguments)
    counts = collections.defaultdict(collections.Counter)
    for i, use in enumerate(drawn):
        passed, reason = results.get(i, (False, "crashed: no line about it"))
        kind = verdict(passed, reason, answered[i])
        if kind == DIFFERS:
            outvoted, opinion = second_opinion(lathe, f"{folder}/{i}_{use.name}", use)
            kind = OUTVOTED if outvoted else DIFFERS
        counts[use.name][kind] += 1
        if kind in (DIFFERS, UNCLEAR, CRASHED) or (refusals and kind == REFUSED):
            print(f"{kind} {i}: {shown(use)}: {reason}")
            if kind == DIFFERS:
                print(f"    {opinion}")
    return counts


def summary(counts, table):
    kinds = [AGREES, REFUSED, RAN, REJECTED, OUTVOTED, DIFFERS, UNCLEAR, CRASHED]
    if table:
        print("\n| operator |", " | ".join(kinds), "|\n|---" * 1 + "|---" * len(kinds) + "|")
        for name, row in sorted(counts.items()):
            print(f"| {name} |", " | ".join(str(row[k]) for k in kinds), "|")
    total = sum(counts.values(), collections.Counter())
    print(f"{sum(total.values())} uses of {len(counts)} operators: with an answer of the evaluator {total[AGREES]} agree, {total[REFUSED]} are "
          f"refused by name, {total[OUTVOTED]} differ as ONNX Runtime does, {total[DIFFERS]} differ; without one {total[RAN]} ran, {total[REJECTED]} are refused by name; "
          f"{total[UNCLEAR]} errors are unclear, {total[CRASHED]} crashed or hung")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lathe", help="the command")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="names of operators")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="counts by operator")
    parser.add_argument("--refusals", action="store_true", help="say also what Lathe refuses though the evaluator has an answer")
    parser.add_argument("--keep", help="a new folder for the cases")
    parser.add_argument("--arguments", default="", help="more for lathe test: '--passes=-all'")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = a.keep or own
        os.makedirs(folder, exist_ok=True)
        counts = fuzz(a.lathe, a.count, a.seed, folder, a.only and set(a.only), a.jobs, a.arguments.split(), a.refusals)
    total = summary(counts, a.table)
    sys.exit(1 if total[DIFFERS] or total[UNCLEAR] or total[CRASHED] else 0)


if __name__ == "__main__":
    main()
