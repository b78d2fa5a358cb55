#!/usr/bin/env python3
"""Writes the backend test cases of the installed `onnx` package to a folder, all in one form.

    write_onnx_cases.py DIR

DIR/<kind>/<case>/ holds model.onnx, test_data_set_<i>/{input,output}_<j>.pb and, for all but the PyTorch kinds, case.json
with rtol and atol. Where the expected values came out of NumPy's random stream, case.json also has "compare": "shape":
only dtype and shape can be compared.
"""
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import model as model_cases
from onnx.backend.test.case.node import collect_testcases

from case_files import replaced, write, write_data, write_rule

RANDOM_OPERATORS = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def to_proto(value, info):
    """`value` as the protobuf message that the type of `info` asks for."""
    if isinstance(value, TensorProto):
        return value
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    if info.type.HasField("map_type"):
        return numpy_helper.from_dict(value, info.name)
    return numpy_helper.from_array(value, info.name)


def all_nodes(nodes):
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from all_nodes(graph.node)


def is_random(case):
    """Whether a case's values depend on a random stream: a generator somewhere, or Dropout in training mode."""
    nodes = list(all_nodes(case.model.graph.node))
    for function in case.model.functions:
        nodes += all_nodes(function.node)
    if any(node.op_type in RANDOM_OPERATORS for node in nodes):
        return True
    if not any(node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] for node in nodes):
        return False
    inputs = case.data_sets[0][0]  # x, ratio, training_mode
    return len(inputs) > 2 and bool(inputs[2]) and float(inputs[1]) > 0


def write_case(case, out):
    folder = f"{out}/{case.kind}/{case.name}"
    os.makedirs(folder)
    write(f"{folder}/model.onnx", case.model)
    write_rule(folder, rtol=case.rtol, atol=case.atol, **({"compare": "shape"} if is_random(case) else {}))
    graph = case.model.graph
    for i, (inputs, outputs) in enumerate(case.data_sets or []):
        write_data(folder, i, input=[to_proto(v, graph.input[j]) for j, v in enumerate(inputs)],
                   output=[to_proto(v, graph.output[j]) for j, v in enumerate(outputs)])


def write_light(source, name, out):
    """A light model stands as a flat file without inputs: the suite's own runner feeds i / size over an input's elements."""
    data = f"{out}/light/{name}/test_data_set_0"
    os.makedirs(data)
    shutil.copy(f"{source}/{name}.onnx", f"{out}/light/{name}/model.onnx")
    shutil.copy(f"{source}/{name}_output_0.pb", f"{data}/output_0.pb")
    graph = onnx.load(f"{source}/{name}.onnx").graph
    weights = {initializer.name for initializer in graph.initializer}
    for j, info in enumerate(i for i in graph.input if i.name not in weights):
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        size = int(np.prod(shape))
        values = (np.arange(size, dtype=np.float32) / np.float32(size)).reshape(shape)
        write(f"{data}/input_{j}.pb", numpy_helper.from_array(values, info.name))
    write_rule(f"{out}/light/{name}", rtol=1e-3, atol=1e-7)


def main(out):
    warnings.filterwarnings("ignore")
    with replaced(out) as part:
        cases = [c for c in collect_testcases() if c.model is not None]
        cases += [c for c in model_cases.collect_testcases() if c.kind == "simple"]
        for case in cases:
            write_case(case, part)
        data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
        count = len(cases)
        for kind in ("pytorch-converted", "pytorch-operator"):
            shutil.copytree(f"{data}/{kind}", f"{part}/{kind}")
            count += len(os.listdir(f"{part}/{kind}"))
        for name in sorted(f[:-5] for f in os.listdir(f"{data}/light") if f.endswith(".onnx")):
            write_light(f"{data}/light", name, part)
            count += 1
    print(f"  {count} cases in {out}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
