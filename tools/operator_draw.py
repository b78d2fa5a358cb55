"""Random choices for a use of an operator: dtypes from its schema, shapes, elements, and attributes by what their names mean."""
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

WORDS = ["", "a", "b", "ab", "B", "é", "a b  c", "1", "-2.5", "nan", "x,y,,z"]


def code_of(type_text):
    """"tensor(float16)" → TensorProto.FLOAT16; None for other kinds of types."""
    names = {"float": "FLOAT", "double": "DOUBLE"}
    if "float6" in type_text:  # 6 bits: not in Lathe
        return None
    inner = type_text.removeprefix("tensor(").removesuffix(")")
    return getattr(TensorProto, names.get(inner, inner.upper()), None) if type_text.startswith("tensor(") else None


class Draw:
    """Random choices for one use of one operator."""

    def __init__(self, rng, schema):
        self.rng, self.schema = rng, schema
        self.types = {}
        for c in schema.type_constraints:
            codes = [code for code in map(code_of, c.allowed_type_strs) if code is not None]
            if codes:
                liked = [code for code in (TensorProto.FLOAT, TensorProto.INT64) if code in codes]
                self.types[c.type_param_str] = self.pick(liked) if liked and self.chance(0.45) else self.pick(codes)
        self.special = 0.0

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def whole(self, least, most):
        return int(self.rng.integers(least, most + 1))

    def wholes(self, count, least, most):
        return [self.whole(least, most) for _ in range(count)]

    def shape(self, least=0, most=4, largest=5):
        return [0 if self.chance(0.03) else self.whole(1, largest) for _ in range(self.whole(least, most))]

    def code(self, i):
        """The dtype of input i."""
        i = min(i, len(self.schema.inputs) - 1)
        text = self.schema.inputs[i].type_str
        return self.types.get(text) or code_of(text) or TensorProto.FLOAT

    def fix(self, i, *codes):
        """Input i gets one of these dtypes, where it is none of them and its constraint allows one."""
        text = self.schema.inputs[min(i, len(self.schema.inputs) - 1)].type_str
        allowed = [c for t in self.schema.type_constraints if t.type_param_str == text for c in map(code_of, t.allowed_type_strs)]
        codes = [c for c in codes if c in allowed]
        if codes and self.types.get(text) not in codes:
            self.types[text] = self.pick(codes)

    def values(self, code, shape, least=None, most=None):
        """Random elements; integers of [least, most] where these are given."""
        shape = tuple(int(e) for e in shape)
        if code == TensorProto.STRING:
            return np.array([self.pick(WORDS) for _ in range(int(np.prod(shape)))], object).reshape(shape)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
        if code == TensorProto.BOOL:
            return self.rng.random(shape) < 0.5
        if dtype.kind == "c":
            return (self.rng.standard_normal(shape) + 1j * self.rng.standard_normal(shape)).astype(dtype)
        special = self.rng.random(shape) < self.special
        if is_float(code):
            if least is not None:
                return np.asarray(self.rng.integers(least, most + 1, shape), np.float64).astype(dtype)
            v = np.asarray(self.rng.standard_normal(shape) * 2)
            v = np.where(self.rng.random(shape) < 0.2, np.round(v * 2) / 2, v)
            pool = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40, 3e-8, 127.5, 1e4, -88.0])
            with np.errstate(over="ignore"):
                return np.where(special, self.rng.choice(pool, shape), v).astype(dtype)
        try:
            info = np.iinfo(dtype)
        except ValueError:
            info = ml_dtypes.iinfo(dtype)
        lo, hi = max(int(info.min), -4 if least is None else least), min(int(info.max), 9 if most is None else most)
        v = self.rng.integers(lo, max(hi, lo) + 1, shape)
        if least is None:
            v = np.where(special, self.rng.choice(np.array([int(info.min), min(int(info.max), 2**63 - 1)], np.int64), shape), v)
        return np.asarray(v).astype(dtype)

    def input(self, i, shape, least=None, most=None):
        return self.values(self.code(i), shape, least, most)

    def maybe(self, p, make):
        return make() if self.chance(p) else None

    def axis(self, rank):
        return self.whole(-rank, rank - 1) if rank else 0

    def broadcast(self, shape):
        """A shape that broadcasts with `shape`."""
        s = [1 if self.chance(0.25) else e for e in shape]
        return s[self.whole(0, len(s)):] if self.chance(0.4) else s


def is_float(code):
    return code in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16) or is_small_float(code)


def is_small_float(code):
    name = TensorProto.DataType.Name(code)
    return name.startswith(("FLOAT8", "FLOAT6", "FLOAT4"))


# ---- what attributes mean, by name, or by operator and name ----

def window(d, rank):
    made = {}
    if d.chance(0.6):
        made["strides"] = d.wholes(rank, 1, 3)
    if d.chance(0.4):
        made["dilations"] = d.wholes(rank, 1, 2)
    if d.chance(0.6):
        made["pads"] = d.wholes(2 * rank, 0, 2)
    elif d.chance(0.5):
        made["auto_pad"] = d.pick(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    return {k: v for k, v in made.items() if k in d.schema.attributes}


POOLS = {
    "alpha": lambda d, r: float(np.float32(d.pick([0.01, 0.5, 1.0, 2.0, -0.5, 0.0]))),
    "beta": lambda d, r: float(np.float32(d.pick([0.5, 1.0, 0.0, -1.0]))),
    "gamma": lambda d, r: float(np.float32(d.pick([1.0, 1.05, 0.5]))),
    "lambd": lambda d, r: float(np.float32(d.pick([0.5, 1.5, 0.0]))),
    "bias": lambda d, r: float(np.float32(d.pick([0.5, 1.5, 0.0]))),
    "threshold": lambda d, r: float(np.float32(d.pick([0.0, 0.5, -1.0]))),
    "epsilon": lambda d, r: float(np.float32(d.pick([1e-5, 1e-3, 0.5]))),
    "momentum": lambda d, r: float(np.float32(d.pick([0.9, 0.5, 0.0]))),
    "axis": lambda d, r: d.axis(r),
    "axes": lambda d, r: [int(a) - r * d.whole(0, 1) for a in d.rng.permutation(r)[: d.whole(0, r)]],
    "perm": lambda d, r: [int(a) for a in d.rng.permutation(r)],
    "start": lambda d, r: d.whole(-r - 1, r + 1),
    "end": lambda d, r: d.whole(-r - 1, r + 1),
    "p": lambda d, r: d.whole(1, 3),
    "direction": lambda d, r: d.pick(["LEFT", "RIGHT"]),
    "norm": lambda d, r: d.pick(["MAX", "L1", "L2"]),
    "approximate": lambda d, r: d.pick(["none", "tanh"]),
    "locale": lambda d, r: "en_US",
    "case_change_action": lambda d, r: d.pick(["LOWER", "UPPER", "NONE"]),
    "stopwords": lambda d, r: [d.pick(WORDS) for _ in range(d.whole(0, 2))],
    "delimiter": lambda d, r: d.pick(["", ",", " "]),
    "maxsplit": lambda d, r: d.whole(0, 2),
    "pattern": lambda d, r: d.pick(["a", "[a-c]*", ".*", "(a|b)+", r"-?\d+\.\d*"]),
    "k": lambda d, r: d.whole(-3, 3),
    "round_mode": lambda d, r: d.pick(["up", "down", "nearest"]),
    "seed": lambda d, r: 1,
    "stash_type": lambda d, r: TensorProto.FLOAT,
    "post_transform": lambda d, r: d.pick(["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]),
}
FLAGS = {"keepdims", "select_last_index", "noop_with_empty_axes", "exclusive", "reverse", "inverse", "onesided", "detect_negative",
         "detect_positive", "saturate", "upper", "storage_order", "fmod", "sorted", "largest", "periodic", "align_corners", "is_case_sensitive", "allowzero",
         "zeros", "new_axis", "training_mode", "count_include_pad", "ceil_mode", "transA", "transB"}


def any_code(d):
    names = [n for n in TensorProto.DataType.keys() if n != "UNDEFINED" and not n.startswith("FLOAT6")]  # 6 bits: not in Lathe
    return TensorProto.DataType.Value(d.pick(names))


def attribute(d, a, rank):
    kind = str(a.type).rsplit(".", maxsplit=1)[-1]
    if a.name in POOLS:
        return POOLS[a.name](d, rank)
    if a.name in FLAGS:
        return d.whole(0, 1)
    if a.name in ("to", "dtype", "output_dtype", "output_datatype"):
        outputs = [c for t in d.schema.type_constraints if t.type_param_str == d.schema.outputs[0].type_str
                   for c in map(code_of, t.allowed_type_strs) if c]
        return d.pick(outputs) if outputs else any_code(d)
    return {"INT": lambda: d.whole(-1, 3), "FLOAT": lambda: float(np.float32(d.rng.standard_normal())), "STRING": lambda: d.pick(WORDS[1:]),
            "INTS": lambda: d.wholes(d.whole(0, 3), -1, 3), "FLOATS": lambda: [float(np.float32(v)) for v in d.rng.standard_normal(d.whole(0, 3))],
            "STRINGS": lambda: [d.pick(WORDS) for _ in range(d.whole(0, 3))],
            "TENSOR": lambda: numpy_helper.from_array(d.values(d.pick([TensorProto.FLOAT, TensorProto.INT64, any_code(d)]), [1]))}[kind]()


def attributes(d, rank, **fixed):
    """Stated attributes: the required ones, `fixed`, and some of the others."""
    made = {}
    for a in d.schema.attributes.values():
        if a.name in fixed:
            if fixed[a.name] is not None:
                made[a.name] = fixed[a.name]
        elif a.required or d.chance(0.4):
            made[a.name] = attribute(d, a, rank)
    return made
