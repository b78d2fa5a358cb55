"""Random uses of ONNX's operators: models of one node with its inputs, drawn from the operators' schemas.

Dtypes come from the schemas' type constraints, attributes from their kinds and from what their names mean. Operators whose
inputs must fit each other have a recipe; the others get shapes that broadcast. One use in twelve is then spoilt.
"""
import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from operator_draw import Draw, any_code
from operator_recipes import RECIPES, elementwise

NODE = "fuzzed"
# Bodies, images and chance are tested elsewhere; Constant has no inputs and is read with the model.
LEFT_OUT = {"If", "Loop", "Scan", "SequenceMap", "ImageDecoder", "Constant", "RandomNormal", "RandomUniform", "RandomNormalLike",
            "RandomUniformLike", "Multinomial", "Bernoulli", "Optional", "OptionalGetElement", "OptionalHasElement", "CastMap",
            "DictVectorizer"}


@dataclasses.dataclass
class Use:
    """A node and what it is given: arrays, lists of arrays (sequences), None where an input is left out."""
    schema: object
    opset: int
    inputs: list
    attributes: dict
    outputs: int
    spoilt: bool = False
    extreme: bool = False
    constants: set = dataclasses.field(default_factory=set)
    open_dims: bool = False

    @property
    def name(self):
        return self.schema.name

    def model(self, outputs):
        """With the graph outputs given as ValueInfoProtos."""
        names = [f"x{i}" if v is not None else "" for i, v in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        infos, held = [], []
        for i, v in enumerate(self.inputs):
            if v is None:
                continue
            if i in self.constants:
                held.append(proto(v, names[i]))
            elif isinstance(v, list):
                infos.append(helper.make_tensor_sequence_value_info(names[i], dtype_of(v[0]), None))
            else:
                infos.append(helper.make_tensor_value_info(names[i], dtype_of(v), [None] * v.ndim if self.open_dims else v.shape))
        node = helper.make_node(self.name, names, [o.name for o in outputs], name=NODE, domain=self.schema.domain)
        for name, v in self.attributes.items():
            kind = int(self.schema.attributes[name].type.value) if name in self.schema.attributes and isinstance(v, list) else None
            node.attribute.append(helper.make_attribute(name, v, attr_type=kind))
        graph = helper.make_graph([node], "fuzz", infos, outputs, held)
        opsets = [helper.make_opsetid("", self.opset if not self.schema.domain else 21)]
        if self.schema.domain:
            opsets.append(helper.make_opsetid(self.schema.domain, self.opset))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def given(self):
        return {f"x{i}": v for i, v in enumerate(self.inputs) if v is not None and i not in self.constants}


def dtype_of(array):
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def proto(value, name):
    return numpy_helper.from_list(value, name) if isinstance(value, list) else numpy_helper.from_array(value, name)


# ---- uses ----

def spoil(d, inputs, made):
    """Something that no longer fits."""
    arrays = [i for i, v in enumerate(inputs) if isinstance(v, np.ndarray)]
    whole = [k for k, v in made.items() if isinstance(v, int)]
    how = d.whole(0, 4)
    if how == 0 and whole:
        made[d.pick(whole)] = d.pick([-7, 9, 100])
    elif how == 1 and made:
        made.pop(d.pick(sorted(made)))
    elif how == 2 and arrays:
        i = d.pick(arrays)
        inputs[i] = d.values(any_code(d), inputs[i].shape)
    elif how == 3 and arrays:
        i = d.pick(arrays)
        inputs[i] = d.values(dtype_of(inputs[i]), d.shape())
    elif arrays:
        i = d.pick(arrays)
        inputs[i] = inputs[i][..., :0] if inputs[i].ndim else inputs[i].reshape(1)


def make_extreme(d, inputs, made):
    """A number beyond all bounds, in an attribute or an integer input."""
    huge = d.pick([2**62, -(2**62), 2**63 - 1, -(2**63), 2**40])
    whole = [k for k, v in made.items() if isinstance(v, int)]
    lists = [k for k, v in made.items() if isinstance(v, list) and v and isinstance(v[0], int)]
    arrays = [i for i, v in enumerate(inputs) if isinstance(v, np.ndarray) and v.dtype == np.int64 and v.size]
    options = [("whole", k) for k in whole] + [("list", k) for k in lists] + [("array", i) for i in arrays]
    if not options:
        return False
    kind, where = d.pick(options)
    if kind == "whole":
        made[where] = huge
    elif kind == "list":
        made[where] = [huge, *made[where][1:]]
    else:
        inputs[where] = inputs[where].copy()
        inputs[where].reshape(-1)[0] = huge
    return True


def schemas():
    """By operator, its schemas since opset 7 (of ai.onnx.ml all), newest first."""
    found = {}
    for s in defs.get_all_schemas_with_history():
        if s.domain in ("", "ai.onnx.ml") and s.name not in LEFT_OUT and s.support_level == defs.OpSchema.SupportType.COMMON:
            found.setdefault((s.domain, s.name), []).append(s)
    for key, versions in found.items():
        versions.sort(key=lambda s: -s.since_version)
        kept = [s for i, s in enumerate(versions) if (i == 0 or key[0] or versions[i - 1].since_version > 7) and not s.deprecated]
        found[key] = kept
    return {key: kept for key, kept in sorted(found.items()) if kept}


def uses(count, seed, only=None):
    """`count` uses, the operators in turn; the same for the same seed."""
    table = [versions for key, versions in schemas().items() if only is None or key[1] in only]
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        versions = table[i % len(table)]
        schema = versions[0] if rng.random() < 0.6 else versions[int(rng.integers(len(versions)))]
        d = Draw(rng, schema)
        d.outputs = 0
        inputs, made = RECIPES.get(schema.name, elementwise)(d)
        use = Use(schema, max(schema.since_version, 7) if not schema.domain else schema.since_version, inputs, made,
                  max(d.outputs or d.whole(max(1, schema.min_output), min(schema.max_output, 3)), 1))
        if d.chance(1 / 12):
            use.spoilt = True
            spoil(d, use.inputs, use.attributes)
        elif d.chance(1 / 30):
            use.extreme = make_extreme(d, use.inputs, use.attributes)
        use.constants = {j for j, v in enumerate(use.inputs) if isinstance(v, np.ndarray) and d.chance(0.3)}
        use.open_dims = d.chance(0.3)
        yield use


assert onnx.defs.onnx_opset_version() >= 28, "the schemas of ONNX 1.23 or newer are wanted"
