"""Inputs and attributes of operators that fit each other, drawn at random: a function for each family."""
import numpy as np
from onnx import TensorProto, defs, helper, numpy_helper

from operator_draw import POOLS, attributes, is_float, is_small_float, window

RECIPES = {}


def recipe(*names):
    def register(make):
        RECIPES.update(dict.fromkeys(names, make))
        return make
    return register


def elementwise(d):
    """Shapes that broadcast; every optional input one time in two."""
    single, optional = defs.OpSchema.FormalParameterOption.Single, defs.OpSchema.FormalParameterOption.Optional
    d.special = 0.15 if d.chance(0.3) else 0.0
    base = d.shape()
    inputs = []
    for i, formal in enumerate(d.schema.inputs):
        if formal.option == optional and d.chance(0.5):
            inputs.append(None)
            continue
        count = 1 if formal.option in (single, optional) else d.whole(1, 3)
        inputs += [d.input(i, base if not inputs else d.broadcast(base)) for _ in range(count)]
    return inputs, attributes(d, len(base))


@recipe("Conv", "ConvInteger", "QLinearConv", "DeformConv", "ConvTranspose")
def convolution(d):
    name, rank = d.schema.name, d.pick([1, 2, 2, 2, 3])
    if name == "DeformConv":
        rank = 2
    group, c, m = d.pick([1, 1, 2, 3]), d.whole(1, 3), d.whole(1, 3)
    kernel = d.wholes(rank, 1, 3)
    size = [d.whole(k, 7) for k in kernel]
    a = window(d, rank) | {"group": group}
    if d.chance(0.5):
        a["kernel_shape"] = kernel
    x = [d.whole(1, 2), group * c, *size]
    w = [group * c, m, *kernel] if name == "ConvTranspose" else [group * m, c, *kernel]
    if name == "ConvTranspose" and d.chance(0.4):
        a["output_padding"] = [d.whole(0, max(0, s - 1)) for s in a.get("strides", [1] * rank)]
    channels = group * m
    if name == "ConvInteger":
        return [d.input(0, x), d.input(1, w), d.maybe(0.5, lambda: d.input(2, [])), d.maybe(0.4, lambda: d.input(3, []))], a
    if name == "QLinearConv":
        scale = lambda: np.float32(abs(d.rng.standard_normal()) * 0.1 + 0.01)  # noqa: E731
        return [d.input(0, x), np.array(scale()), d.input(2, []), d.input(3, w), np.array(scale()), d.input(5, []), np.array(scale()),
                d.input(7, []), d.maybe(0.5, lambda: d.values(TensorProto.INT32, [channels]))], a
    if name == "DeformConv":
        strides, dilations, pads = a.get("strides", [1, 1]), a.get("dilations", [1, 1]), a.get("pads", [0] * 4)
        a.pop("auto_pad", None)
        out = [(size[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
        taps = int(np.prod(kernel))
        return [d.input(0, x), d.input(1, w), d.input(2, [x[0], 2 * taps, *[max(o, 0) for o in out]]), d.maybe(0.5, lambda: d.input(3, [channels])),
                d.maybe(0.5, lambda: d.input(4, [x[0], taps, *[max(o, 0) for o in out]]))], a
    return [d.input(0, x), d.input(1, w), d.maybe(0.5, lambda: d.input(2, [channels]))], a


@recipe("MaxPool", "AveragePool", "LpPool")
def pool(d):
    rank = d.pick([1, 2, 2, 3])
    kernel = d.wholes(rank, 1, 3)
    shape = [d.whole(1, 2), d.whole(1, 3), *[d.whole(k, 7) for k in kernel]]
    rest = {k: None for k in ("strides", "dilations", "pads", "auto_pad")}
    return [d.input(0, shape)], attributes(d, len(shape), kernel_shape=kernel, **rest) | window(d, rank)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "InstanceNormalization", "BatchNormalization", "GroupNormalization", "LRN",
        "MeanVarianceNormalization", "PRelu")
def channels(d):
    name, groups = d.schema.name, d.whole(1, 3)
    c = groups * d.whole(1, 2)
    least = 3 if name == "InstanceNormalization" else 2
    shape = [d.whole(1, 2), c, *d.shape(least - 2, 3)]
    if name == "MeanVarianceNormalization":
        shape = [d.whole(1, 3) for _ in range(4)]
    per = groups if name == "GroupNormalization" and d.schema.since_version < 21 else c
    inputs = [d.input(0, shape)] + [d.input(i, [per]) for i in range(1, len(d.schema.inputs))]
    if name == "PRelu":
        inputs[1] = d.input(1, [c] + [1] * (len(shape) - 2))
    if name == "BatchNormalization":
        inputs[4] = np.abs(inputs[4].astype(np.float64)).astype(inputs[4].dtype)
    fixed = {"size": d.whole(1, 4)} if name == "LRN" else {"num_groups": groups, "axes": None}
    return inputs, attributes(d, len(shape), **fixed)


@recipe("LayerNormalization", "RMSNormalization")
def layer(d):
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    inner = shape[axis:]
    return [d.input(0, shape), d.input(1, inner), *[d.maybe(0.5, lambda: d.input(2, inner)) for _ in d.schema.inputs[2:]]], attributes(
        d, len(shape), axis=axis)


@recipe("MatMul", "MatMulInteger", "QLinearMatMul")
def matmul(d):
    m, k, n = d.wholes(3, 1, 4)
    batch = d.shape(0, 2)
    a, b = [*d.broadcast(batch), m, k], [*d.broadcast(batch), k, n]
    if d.chance(0.1):
        a = [k]
    if d.chance(0.1):
        b = [k]
    if d.schema.name == "MatMul":
        return [d.input(0, a), d.input(1, b)], {}
    if d.schema.name == "MatMulInteger":
        return [d.input(0, a), d.input(1, b), d.maybe(0.5, lambda: d.input(2, [])), d.maybe(0.5, lambda: d.input(3, []))], {}
    scale = lambda i: np.abs(d.input(i, []).astype(np.float32) * 0.1 + 0.01).astype(d.input(i, []).dtype)  # noqa: E731
    return [d.input(0, a), scale(1), d.input(2, []), d.input(3, b), scale(4), d.input(5, []), scale(6), d.input(7, [])], {}


@recipe("Gemm")
def gemm(d):
    m, k, n = d.wholes(3, 1, 4)
    a = attributes(d, 2)
    shapes = [[k, m] if a.get("transA") else [m, k], [n, k] if a.get("transB") else [k, n]]
    if is_float(d.code(0)) is False:
        a |= {"alpha": 1.0, "beta": 1.0}
    c = d.maybe(0.6, lambda: d.input(2, d.broadcast([m, n])))
    if c is None and len(d.schema.inputs) > 2 and d.schema.since_version < 11:
        c = d.input(2, [m, n])
    return [d.input(0, shapes[0]), d.input(1, shapes[1]), c], a


@recipe("Concat")
def concat(d):
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    pieces = []
    for _ in range(d.whole(1, 3)):
        s = list(shape)
        s[axis] = d.whole(0, 3)
        pieces.append(d.input(0, s))
    return pieces, {"axis": axis}


@recipe("Split", "SplitToSequence")
def split(d):
    shape = d.shape(1, 3)
    axis = d.axis(len(shape))
    extent = shape[axis]
    sizes, rest = [], extent
    while rest > 0 and len(sizes) < 3:
        sizes.append(d.whole(0, rest))
        rest -= sizes[-1]
    sizes.append(rest)
    fixed = {"axis": axis, "num_outputs": None}
    inputs = [d.input(0, shape)]
    d.outputs = len(sizes)
    if d.schema.name == "SplitToSequence":
        d.outputs = 1
        inputs.append(d.pick([None, d.input(1, [len(sizes)], 1, 1) * 0 + np.array(sizes, d.input(1, []).dtype), d.input(1, [], 1, 3)]))
        return inputs, attributes(d, len(shape), axis=axis)
    if "split" in d.schema.attributes:
        return inputs, {"axis": axis, "split": sizes}
    if d.chance(0.6) or d.schema.since_version < 18:
        return [*inputs, np.array(sizes, np.int64)], {"axis": axis}
    d.outputs = d.whole(1, 3)
    return inputs, attributes(d, len(shape), **(fixed | {"num_outputs": d.outputs}))


@recipe("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Compress", "TensorScatter", "ArrayFeatureExtractor")
def indexed(d):
    name, shape = d.schema.name, [d.whole(1, 4) for _ in range(d.whole(1, 4))]
    axis = d.axis(len(shape))
    extent = shape[axis]
    data = d.input(0, shape)
    fixed = {"axis": axis} if "axis" in d.schema.attributes else {}
    if "reduction" in d.schema.attributes:
        fixed["reduction"] = d.pick(["none", "add", "mul", "max", "min"] if d.schema.since_version >= 18 else ["none", "add", "mul"])
    if name == "ArrayFeatureExtractor":
        return [data, d.input(1, [1, d.whole(1, 3)], 0, shape[-1] - 1)], {}
    if name == "Gather":
        return [data, d.input(1, d.shape(0, 2), -extent, extent - 1)], fixed
    if name == "Compress":
        fixed = {"axis": axis} if d.chance(0.6) else {}
        return [data, d.input(1, [d.whole(0, extent if fixed else int(np.prod(shape)))])], fixed
    if name == "TensorScatter":
        shape = [d.whole(1, 3) for _ in range(4)]
        update = list(shape)
        update[2] = d.whole(1, shape[2])
        mode = d.pick(["linear", "circular"])
        return [d.input(0, shape), d.input(1, update), d.input(2, [shape[0]], 0, shape[2] - update[2])], {"axis": 2, "mode": mode}
    if name in ("GatherElements", "ScatterElements"):
        s = [d.whole(0, e) for e in shape]
        indices = d.input(1, s, -extent, extent - 1)
        if fixed.get("reduction", "none") == "none" and name == "ScatterElements":  # twice the same place is not specified
            s = list(shape)
            s[axis] = d.whole(0, extent)
            indices = np.moveaxis(d.rng.permuted(np.broadcast_to(np.arange(extent), [*np.delete(shape, axis), extent]), axis=-1), -1, axis)
            indices = np.take(indices, range(s[axis]), axis).astype(d.input(1, []).dtype)
        return [data, indices, *([d.input(2, s)] if name == "ScatterElements" else [])], fixed
    batch = d.whole(0, max(0, len(shape) - 1)) if name == "GatherND" and "batch_dims" in d.schema.attributes else 0
    depth = d.whole(1, len(shape) - batch)
    outer = shape[:batch] + [d.whole(0, 3) for _ in range(d.whole(0, 1))]
    if not outer:
        outer = [d.whole(1, 3)]
    count = int(np.prod(outer))
    rows = [[d.whole(-e, e - 1) for e in shape[batch:batch + depth]] for _ in range(count)]
    if name == "ScatterND" and fixed.get("reduction", "none") == "none":
        places = d.rng.permutation(int(np.prod(shape[:depth])))[:count]
        rows, outer = [list(map(int, np.unravel_index(p, shape[:depth]))) for p in places], [len(places)]
    indices = np.array(rows, np.int64).reshape(*outer, depth)
    if name == "GatherND":
        return [data, indices], {"batch_dims": batch} if "batch_dims" in d.schema.attributes else {}
    return [data, indices, d.input(2, [*outer, *shape[depth:]])], {k: v for k, v in fixed.items() if k in d.schema.attributes}


@recipe("Reshape", "Expand", "Tile", "Squeeze", "Unsqueeze", "CenterCropPad", "ConstantOfShape", "Pad", "Slice", "Trilu", "Flatten",
        "AffineGrid", "EyeLike")
def shapes(d):
    name, shape = d.schema.name, d.shape(0 if d.chance(0.1) else 1, 4)
    if name in ("Trilu", "EyeLike"):
        shape = d.shape(2, 2 if name == "EyeLike" else 4)
    rank, int64 = len(shape), lambda v: np.array(v, np.int64)
    a = attributes(d, rank)
    x = d.input(0, shape)
    if name == "Trilu":
        return [x, d.maybe(0.6, lambda: int64(d.whole(-4, 4)))], a
    if name in ("Flatten", "EyeLike"):
        return [x], a
    if name == "Reshape":
        total, dims = int(np.prod(shape)), []
        for f in (2, 3, 5, 2):
            if total and total % f == 0 and d.chance(0.6):
                dims.append(f)
                total //= f
        dims.append(-1 if d.chance(0.5) and total else total)
        dims = [int(v) for v in d.rng.permutation(dims)]
        if d.chance(0.2) and rank:
            dims = [0 if d.chance(0.4) else e for e in shape]
        return ([x], {"shape": dims}) if "shape" in d.schema.attributes else ([x, int64(dims)], a)
    if name == "Expand":
        return [d.input(0, d.broadcast(shape)), int64(d.broadcast(shape) if d.chance(0.5) else shape)], a
    if name == "Tile":
        return [x, int64(d.wholes(rank, 0 if d.chance(0.2) else 1, 3))], a
    if name == "ConstantOfShape":
        return [int64(shape)], a
    if name == "AffineGrid":
        n, spatial = d.whole(1, 2), d.whole(2, 3)
        return [d.input(0, [n, spatial, spatial + 1]), int64([n, 1, *d.wholes(spatial, 1, 4)])], a
    axes = POOLS["axes"](d, rank)
    if name in ("Squeeze", "Unsqueeze"):
        shape = [1 if d.chance(0.6) else e for e in shape]
        axes = [i - rank * d.whole(0, 1) for i, e in enumerate(shape) if e == 1 and d.chance(0.6)]
        if name == "Unsqueeze":
            k = d.whole(1, 2)
            axes = [int(v) - (rank + k) * d.whole(0, 1) for v in d.rng.permutation(rank + k)[:k]]
        x = d.input(0, shape)
        if "axes" in d.schema.attributes:
            return [x], {"axes": axes} if axes else {}
        return [x, int64(axes) if axes or name == "Unsqueeze" or d.chance(0.5) else None], {}
    if name == "CenterCropPad":
        a = {"axes": axes} if axes and d.chance(0.6) else {}
        return [x, d.input(1, [len(axes) if a else rank], 0, 6)], a
    if name == "Pad":
        mode = d.pick(["constant", "reflect", "edge", *(["wrap"] if d.schema.since_version >= 19 else [])])
        if "pads" in d.schema.attributes:
            return [x], {"pads": d.wholes(2 * rank, 0 if d.chance(0.8) else -1, 2), "mode": mode}
        given = d.schema.since_version >= 18 and d.chance(0.4)
        pads = d.wholes(2 * (len(axes) if given else rank), 0 if d.chance(0.8) else -1, 2)
        return [x, int64(pads), d.maybe(0.5, lambda: d.input(2, [])), int64(axes) if given else None], {"mode": mode}
    axes = axes or list(range(rank))
    starts, ends = d.wholes(len(axes), -6, 6), d.wholes(len(axes), -6, 6)
    if "starts" in d.schema.attributes:
        return [x], {"starts": starts, "ends": ends, "axes": axes}
    steps = [d.pick([1, 1, 2, -1, -2, 3]) for _ in axes]
    ends = [2**31 - 1 if d.chance(0.1) else -(2**31) if d.chance(0.05) else e for e in ends]
    kind = np.int64 if d.code(1) == TensorProto.INT64 else np.int32
    given = len(axes) != rank or axes != list(range(rank)) or d.chance(0.5)
    arrays = [np.array(v, kind) for v in (starts, ends, axes, steps)]
    return [x, arrays[0], arrays[1], arrays[2] if given else None, arrays[3] if d.chance(0.6) else None], {}


@recipe("TopK", "OneHot", "Range", "CumSum", "CumProd", "ReverseSequence", "NonMaxSuppression", "Det", "Dropout", "BitShift", "Clip", "Where")
def mixed(d):
    name, shape = d.schema.name, d.shape(1, 3)
    a = attributes(d, len(shape))
    if name == "TopK":
        axis = d.axis(len(shape))
        k = d.whole(0, shape[axis])
        d.outputs = 2
        a |= {"axis": axis}
        return ([d.input(0, shape)], a | {"k": k}) if "k" in d.schema.attributes else ([d.input(0, shape), np.array([k], np.int64)], a)
    if name == "OneHot":
        d.fix(1, TensorProto.INT64, TensorProto.FLOAT, TensorProto.INT32)
        depth = d.pick([d.input(1, [], 1, 5), d.input(1, [1], 1, 5)])
        return [d.input(0, shape, -6, 6), depth, d.input(2, [2])], {"axis": d.whole(-len(shape) - 1, len(shape))} if d.chance(0.6) else {}
    if name == "Range":
        step = d.input(2, [], 1, 2)
        return [d.input(0, [], -2, 3), d.input(1, [], -3, 9), -step if d.chance(0.2) and is_float(d.code(0)) else step], a
    if name in ("CumSum", "CumProd"):
        return [d.input(0, shape), d.input(1, [], -len(shape), len(shape) - 1)], a
    if name == "ReverseSequence":
        shape = [d.whole(1, 4), d.whole(1, 4), *d.shape(0, 2)]
        batch = d.whole(0, 1)
        return [d.input(0, shape), np.array(d.wholes(shape[batch], 0 if d.chance(0.3) else 1, shape[1 - batch]), np.int64)], {
            "batch_axis": batch, "time_axis": 1 - batch}
    if name == "NonMaxSuppression":
        n, boxes, classes = d.whole(1, 2), d.whole(1, 5), d.whole(1, 2)
        f = np.float32
        return [d.rng.random((n, boxes, 4)).astype(f), d.rng.random((n, classes, boxes)).astype(f), np.array([d.whole(0, 4)], np.int64),
                d.maybe(0.6, lambda: np.array([d.rng.random()], f)), d.maybe(0.6, lambda: np.array([d.rng.random()], f))], a
    if name == "Det":
        n = d.whole(1, 4)
        return [d.input(0, [*d.shape(0, 2), n, n])], a
    if name == "Dropout":
        return [d.input(0, shape)] + ([d.maybe(0.5, lambda: d.input(1, [])), d.maybe(0.5, lambda: np.array(False))] if len(
            d.schema.inputs) > 1 else []), a
    if name == "BitShift":
        return [d.input(0, shape), d.input(1, d.broadcast(shape), 0, 7)], a
    if name == "Clip":
        d.special = 0.1 if d.chance(0.3) else 0.0
        if len(d.schema.inputs) == 1:
            return [d.input(0, shape)], a
        return [d.input(0, shape), d.maybe(0.6, lambda: d.input(1, [])), d.maybe(0.6, lambda: d.input(2, []))], a
    return [d.values(TensorProto.BOOL, d.broadcast(shape)), d.input(1, shape), d.input(2, d.broadcast(shape))], a


@recipe("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare")
def reduction(d):
    d.special = 0.1 if d.chance(0.15) and is_float(d.code(0)) else 0.0
    shape = d.shape(0, 4)
    axes = POOLS["axes"](d, len(shape))
    if "axes" in d.schema.attributes:
        return [d.input(0, shape)], attributes(d, len(shape), axes=axes if axes and d.chance(0.7) else None)
    return [d.input(0, shape), d.maybe(0.7, lambda: np.array(axes, np.int64))], attributes(d, len(shape))


@recipe("QuantizeLinear", "DequantizeLinear")
def quantization(d):
    shape = d.shape(1, 3)
    a = attributes(d, len(shape), block_size=None, output_dtype=None, precision=None)
    axis = d.axis(len(shape))
    how = d.whole(0, 2 if "block_size" in d.schema.attributes else 1 if "axis" in d.schema.attributes else 0)
    a.pop("axis", None)
    form = [[]]
    if how >= 1:
        a["axis"] = axis
        form = [[shape[axis]]]
    if how == 2:
        a["block_size"] = d.whole(1, 3)
        form = [[-(-e // a["block_size"]) if i == axis % len(shape) else e for i, e in enumerate(shape)]]
    code = d.code(1)
    scale = d.input(1, form[0]) if not is_float(code) else (np.abs(d.rng.standard_normal(form[0])) + 0.05).astype(
        helper.tensor_dtype_to_np_dtype(code))
    if not is_float(code):
        scale = np.maximum(scale, 1)
    zero = d.maybe(0.7, lambda: d.input(2, form[0]))
    if zero is not None and is_small_float(d.code(2)):
        zero = np.zeros_like(zero)
    d.special = 0.1 if d.chance(0.2) else 0.0
    x = d.input(0, shape)
    if d.schema.name == "QuantizeLinear" and is_float(d.code(0)) and d.chance(0.3):
        x = (x.astype(np.float32) * 100).astype(x.dtype)
    return [x, np.asarray(scale), zero], a


@recipe("DepthToSpace", "SpaceToDepth", "Col2Im", "GridSample", "Resize", "Upsample", "RoiAlign", "MaxRoiPool", "MaxUnpool")
def images(d):
    name, n, c, block = d.schema.name, d.whole(1, 2), d.whole(1, 3), d.whole(1, 3)
    h, w = d.wholes(2, 1, 5)
    if name == "DepthToSpace":
        return [d.input(0, [n, c * block * block, h, w])], attributes(d, 4, blocksize=block, mode=d.pick([None, "DCR", "CRD"]))
    if name == "SpaceToDepth":
        return [d.input(0, [n, c, h * block, w * block])], attributes(d, 4, blocksize=block, mode=d.pick([None, "DCR", "CRD"]))
    if name == "Col2Im":
        a = window(d, 2)
        a.pop("auto_pad", None)
        kernel, image = d.wholes(2, 1, 2), d.wholes(2, 3, 5)
        pads = a.get("pads", [0] * 4)
        blocks = [(image[i] + pads[i] + pads[i + 2] - a.get("dilations", [1, 1])[i] * (kernel[i] - 1) - 1) // a.get("strides", [1, 1])[i] + 1
                  for i in range(2)]
        return [d.input(0, [n, c * kernel[0] * kernel[1], max(0, blocks[0] * blocks[1])]), np.array(image, np.int64), np.array(kernel, np.int64)], a
    if name == "GridSample":
        modes = ["linear", "nearest", "cubic"] if d.schema.since_version >= 20 else ["bilinear", "nearest", "bicubic"]
        spatial = d.pick([1, 2, 2, 3]) if d.schema.since_version >= 20 else 2
        mode = d.pick(modes)
        return [d.input(0, [n, c, *d.wholes(spatial, 1, 4)]), d.input(1, [n, *d.wholes(spatial, 1, 3), spatial])], attributes(
            d, 4, mode=mode, padding_mode=d.pick([None, "zeros", "border", "reflection"]))
    if name == "RoiAlign":
        rois = d.whole(0, 3)
        corners = np.sort(d.rng.random((rois, 2, 2)) * 6, axis=1).reshape(rois, 4)
        return [d.input(0, [n, c, h, w]), corners.astype(d.input(1, []).dtype), d.input(2, [rois], 0, n - 1)], {
            "output_height": d.whole(1, 3), "output_width": d.whole(1, 3), "sampling_ratio": d.whole(0, 2), "mode": d.pick(["avg", "max"]),
            "spatial_scale": d.pick([0.5, 1.0])}
    if name == "MaxRoiPool":
        rois = np.concatenate([d.rng.integers(0, n, (2, 1)), np.sort(d.rng.integers(0, 5, (2, 2, 2)), axis=1).reshape(2, 4)], 1)
        return [d.input(0, [n, c, h, w]), rois.astype(d.input(1, []).dtype)], {"pooled_shape": d.wholes(2, 1, 3), "spatial_scale": 1.0}
    if name == "MaxUnpool":
        total = n * c * h * w * 4
        indices = d.rng.permutation(total)[: n * c * h * w].reshape(n, c, h, w).astype(np.int64)
        return [d.input(0, [n, c, h, w]), indices], {"kernel_shape": [2, 2], "strides": [2, 2]}
    shape = [n, c, h, w] if d.chance(0.7) else d.shape(1, 4)
    rank = len(shape)
    scales = np.array([1.0 if d.chance(0.4) else d.pick([2.0, 0.5, 1.5, 3.0, 0.7]) for _ in range(rank)], np.float32)
    if d.schema.name == "Upsample":
        return [d.input(0, shape), np.maximum(scales, 1)], {"mode": d.pick(["nearest", "linear"])}
    if d.schema.since_version < 11:
        return [d.input(0, shape), scales], {"mode": d.pick(["nearest", "linear"])}
    modes = {"mode": d.pick(["nearest", "linear", "cubic"]),
             "coordinate_transformation_mode": d.pick(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
                                                       "half_pixel_symmetric"]),
             "nearest_mode": d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
             "exclude_outside": d.whole(0, 1), "cubic_coeff_a": d.pick([-0.75, -0.5]), "extrapolation_value": 0.5,
             "antialias": d.whole(0, 1) if d.schema.since_version >= 18 else None}
    a = {k: v for k, v in modes.items() if v is not None and k in d.schema.attributes and (d.chance(0.6) or k == "mode")}
    if d.schema.since_version < 19 and a.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        a.pop("coordinate_transformation_mode")
    roi = None
    if a.get("coordinate_transformation_mode") == "tf_crop_and_resize" or d.schema.since_version < 13:
        roi = np.concatenate([d.rng.random(rank) * 0.4, 0.5 + d.rng.random(rank) * 0.7])
        kind = d.code(1)
        roi = roi.astype(helper.tensor_dtype_to_np_dtype(kind))
    if d.chance(0.5) or d.schema.since_version < 13:
        return [d.input(0, shape), roi, scales], a
    return [d.input(0, shape), roi, None, np.array([d.whole(1, 7) for _ in shape], np.int64)], a


@recipe("Einsum")
def einsum(d):
    equations = [("ij,jk->ik", "ij jk"), ("bij,bjk->bik", "bij bjk"), ("ij->ji", "ij"), ("ij->", "ij"), ("ii->i", "ii"), ("i,i", "i i"),
                 ("...ij,...jk->...ik", "bij bjk"), ("ij,kj->ik", "ij kj"), ("i,j->ij", "i j"), ("ijk,k,i->j", "ijk k i"), ("...i->i...", "bai"),
                 ("ij,ij->i", "ij ij"), ("abcd,abde->abce", "abcd abde"), ("bhwc,hkc->bhwk", "bhwc hkc"), (" i j , j -> i ", "ij j"),
                 ("iij->j", "iij")]
    equation, terms = d.pick(equations)
    extent = {letter: d.whole(1, 4) for letter in "abcdehijkw"}
    return [d.input(0, [extent[letter] for letter in term]) for term in terms.split()], {"equation": equation}


@recipe("RNN", "GRU", "LSTM")
def recurrent(d):
    name, layout = d.schema.name, d.whole(0, 1) if "layout" in d.schema.attributes else 0
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    direction = d.pick(["forward", "reverse", "bidirectional"])
    dirs, t, n, i, h = 2 if direction == "bidirectional" else 1, d.whole(1, 4), d.whole(1, 3), d.whole(1, 4), d.whole(1, 4)
    state = [n, dirs, h] if layout else [dirs, n, h]
    inputs = [d.input(0, [n, t, i] if layout else [t, n, i]), d.input(1, [dirs, gates * h, i]), d.input(2, [dirs, gates * h, h]),
              d.maybe(0.6, lambda: d.input(3, [dirs, 2 * gates * h])), d.maybe(0.3, lambda: np.array(d.wholes(n, 1, t), np.int32)),
              d.maybe(0.5, lambda: d.input(5, state))]
    a = {"hidden_size": h, "direction": direction}
    if layout:
        a["layout"] = 1
    if name == "LSTM":
        inputs += [d.maybe(0.5, lambda: d.input(6, state)), d.maybe(0.3, lambda: d.input(7, [dirs, 3 * h]))]
        if d.chance(0.2):
            a["input_forget"] = 1
    if name == "GRU" and d.chance(0.5):
        a["linear_before_reset"] = 1
    if d.chance(0.2):
        a["clip"] = 0.5
    d.outputs = d.whole(1, 3 if name == "LSTM" else 2)
    return inputs, a


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d):
    n, c, rest = d.whole(1, 3), d.whole(1, 4), [d.whole(1, 3) for _ in range(d.whole(0, 2))]
    return [d.input(0, [n, c, *rest]), d.input(1, [n, *rest], 0, c - 1), d.maybe(0.5, lambda: d.input(2, [c]))], attributes(
        d, 2, reduction=d.pick([None, "none", "sum", "mean"]), ignore_index=d.pick([None, 0, -1]))


@recipe("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")
def signal(d):
    name, n, length = d.schema.name, d.whole(1, 2), d.whole(1, 8)
    if name.endswith("Window"):
        return [d.input(0, [], 0, 9)], attributes(d, 1)
    if name == "MelWeightMatrix":
        return [d.input(0, [], 1, 4), d.input(1, [], 8, 16), np.array(d.pick([8000, 100])).astype(d.input(2, []).dtype), d.input(3, [], 0, 10),
                d.input(4, [], 20, 50)], attributes(d, 1)
    if name == "DFT":
        one_sided, inverse = d.whole(0, 1), d.whole(0, 1)
        x = d.input(0, [n, length, *d.shape(0, 1), d.pick([1, 2]) if not one_sided else 1])
        a = {"onesided": one_sided} | ({"inverse": inverse} if not one_sided else {})
        if "axis" in d.schema.attributes:
            return [x, d.maybe(0.4, lambda: np.array(d.whole(1, 9), np.int64))], a | {"axis": 1}
        return [x, d.maybe(0.4, lambda: np.array(d.whole(1, 9), np.int64)), np.array(1, np.int64)], a
    frame = d.whole(1, length)
    return [d.input(0, [n, length, 1]), d.input(1, [], 1, 3), d.maybe(0.5, lambda: d.input(2, [frame])), d.input(3, [], frame, frame)], attributes(d, 1)


@recipe("Attention", "RotaryEmbedding", "LinearAttention", "CausalConvWithState")
def attention(d):
    name, b, heads, groups, t, size = d.schema.name, d.whole(1, 2), d.whole(1, 2), d.whole(1, 2), d.whole(1, 4), 2 * d.whole(1, 3)
    if name == "CausalConvWithState":
        c, k = d.whole(1, 3), d.whole(1, 3)
        return [d.input(0, [b, c, t]), d.input(1, [c, 1, k]), d.maybe(0.5, lambda: d.input(2, [c])), d.maybe(0.5, lambda: d.input(3, [b, c, k - 1]))], (
            {"activation": d.pick(["none", "silu", "swish"])} if d.chance(0.6) else {})
    if name == "RotaryEmbedding":
        x = d.input(0, [b, heads, t, size])
        return [x, d.input(1, [7, size // 2]), d.input(2, [7, size // 2]), d.values(TensorProto.INT64, [b, t], 0, 6)], {"interleaved": d.whole(0, 1)}
    kv = t if name == "LinearAttention" else d.whole(1, 4)
    wide, vsize = d.chance(0.3) or name == "LinearAttention", d.whole(1, 4)
    qh = heads * groups
    if name == "LinearAttention":
        return [d.input(0, [b, t, qh * size]), d.input(1, [b, t, heads * size]), d.input(2, [b, t, heads * vsize])], {
            "q_num_heads": qh, "kv_num_heads": heads, "update_rule": "linear"}
    a = {k: v for k, v in {"is_causal": d.whole(0, 1), "softcap": d.pick([0.0, 2.0]), "scale": d.pick([0.3, 1.0])}.items() if d.chance(0.4)
         and k in d.schema.attributes}
    if wide:
        a |= {"q_num_heads": qh, "kv_num_heads": heads}
        x = [d.input(0, [b, t, qh * size]), d.input(1, [b, kv, heads * size]), d.input(2, [b, kv, heads * vsize])]
    else:
        x = [d.input(0, [b, qh, t, size]), d.input(1, [b, heads, kv, size]), d.input(2, [b, heads, kv, vsize])]
    past = d.whole(1, 3) if d.chance(0.3) else 0
    mask = d.maybe(0.5, lambda: d.values(d.pick([TensorProto.BOOL, d.code(0)]), d.pick([[t, kv + past], [b, 1, t, kv + past]])))
    if past:
        d.outputs = 3
        return [*x, mask, d.input(4, [b, heads, past, size]), d.input(5, [b, heads, past, vsize])], a
    return [*x, mask], a


@recipe("SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength", "ConcatFromSequence", "SequenceConstruct", "SequenceEmpty")
def sequences(d):
    name, code, shape = d.schema.name, d.pick([TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL]), d.shape(1, 3)
    items = [d.values(code, shape) for _ in range(d.whole(1, 3))]
    n = len(items)
    where = d.values(TensorProto.INT64, [], -n, n - 1)
    if name == "SequenceConstruct":
        return items, {}
    if name == "SequenceEmpty":
        return [], {"dtype": code}
    if name == "ConcatFromSequence":
        return [items], {"axis": d.axis(len(shape)), "new_axis": d.whole(0, 1)}
    return {"SequenceAt": [items, where], "SequenceErase": [items, d.maybe(0.6, lambda: where)], "SequenceLength": [items],
            "SequenceInsert": [items, d.values(code, shape), d.maybe(0.6, lambda: where)]}[name], {}


@recipe("LabelEncoder", "CategoryMapper", "OneHotEncoder", "Imputer", "Scaler", "Normalizer", "FeatureVectorizer", "LinearRegressor",
        "LinearClassifier", "SVMRegressor", "SVMClassifier", "ZipMap", "TfIdfVectorizer", "TreeEnsemble", "TreeEnsembleRegressor",
        "TreeEnsembleClassifier")
def classical(d):
    name, n, f, k = d.schema.name, d.whole(1, 3), d.whole(1, 3), d.whole(1, 3)
    reals = lambda count: [float(np.float32(v)) for v in d.rng.standard_normal(count)]  # noqa: E731
    x = d.input(0, [n, f])
    words, text = ["a", "b", "ab"][:k], d.code(0) == TensorProto.STRING
    if name == "FeatureVectorizer":
        widths = d.wholes(k, 1, 3)
        return [d.input(0, [n, w]) for w in widths], {"inputdimensions": widths}
    if name == "LabelEncoder":
        if "classes_strings" in d.schema.attributes:
            return [x], {"classes_strings": words}
        d.fix(0, TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT)
        kind = {TensorProto.STRING: "strings", TensorProto.INT64: "int64s", TensorProto.FLOAT: "floats"}
        source = kind[d.code(0)]
        lists = {"strings": words, "int64s": [1, 2, 3][:k], "floats": [0.5, 1.0, -1.0][:k]}
        target = d.pick(["strings", "int64s", "floats"])
        return [d.input(0, [n, f])], {f"keys_{source}": lists[source], f"values_{target}": lists[target]}
    if name == "CategoryMapper":
        return [x], {"cats_strings": words, "cats_int64s": [1, 2, 3][:k]} | ({"default_int64": 7} if d.chance(0.5) else {})
    if name == "OneHotEncoder":
        return [x], {"cats_strings" if text else "cats_int64s": words if text else [1, 2, 3][:k], "zeros": 1}
    if name == "Imputer":
        whole = d.code(0) in (TensorProto.INT64, TensorProto.INT32)
        many = f if d.chance(0.5) else 1
        return [x], {"imputed_value_int64s": [5] * many, "replaced_value_int64": 1} if whole else {"imputed_value_floats": reals(many),
                                                                                                  "replaced_value_float": 0.5}
    if name == "Scaler":
        many = f if d.chance(0.5) else 1
        return [x], {"scale": reals(many), "offset": reals(many)}
    if name == "Normalizer":
        return [x], {"norm": d.pick(["MAX", "L1", "L2"])}
    post = d.pick(["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
    if name == "LinearRegressor":
        return [x], {"coefficients": reals(k * f), "intercepts": reals(k), "targets": k, "post_transform": "NONE" if post == "PROBIT" else post}
    if name == "LinearClassifier":
        d.outputs, k = 2, max(k, 2)
        labels = {"classlabels_ints": list(range(k))} if d.chance(0.5) else {"classlabels_strings": ["a", "b", "c"][:k]}
        return [x], {"coefficients": reals(k * f), "intercepts": reals(k), "post_transform": "NONE" if post == "PROBIT" else post} | labels
    kernel = {"kernel_type": d.pick(["LINEAR", "POLY", "RBF", "SIGMOID"]), "kernel_params": [0.5, 0.1, 2.0]}
    if name == "SVMRegressor":
        return [x], kernel | {"n_supports": k, "support_vectors": reals(k * f), "coefficients": reals(k), "rho": reals(1)}
    if name == "SVMClassifier":
        d.outputs = 2
        return [x], kernel | {"vectors_per_class": [1, k], "support_vectors": reals((k + 1) * f), "coefficients": reals(k + 1), "rho": reals(1),
                              "classlabels_ints": [0, 1]}
    if name == "ZipMap":
        return [np.abs(x)], {"classlabels_int64s": list(range(f))}
    if name == "TfIdfVectorizer":
        pool = [1, 2, 3, 4, 5, 6, 7]
        a = {"mode": d.pick(["TF", "IDF", "TFIDF"]), "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": d.whole(0, 2),
             "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4], "weights": reals(5)}
        if text:
            return [d.input(0, [n, f + 2])], a | {"pool_strings": ["a", "b", "ab", "a", "b", "ab", "a"]}
        return [d.input(0, [n, f + 2], 0, 8)], a | {"pool_int64s": pool}
    thresholds = reals(2)
    tree = {"nodes_treeids": [0] * 5, "nodes_nodeids": list(range(5)), "nodes_featureids": [d.whole(0, f - 1) for _ in range(2)] + [0] * 3,
            "nodes_values": thresholds + [0.0] * 3,
            "nodes_modes": [d.pick(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"]) for _ in range(2)] + ["LEAF"] * 3,
            "nodes_truenodeids": [1, 2, 0, 0, 0], "nodes_falsenodeids": [4, 3, 0, 0, 0]}
    side = {"_treeids": [0] * 3, "_nodeids": [2, 3, 4], "_ids": [d.whole(0, k - 1) for _ in range(3)], "_weights": reals(3)}
    if name == "TreeEnsembleRegressor":
        return [x], tree | {f"target{key}": v for key, v in side.items()} | {"n_targets": k, "aggregate_function": d.pick(["SUM", "AVERAGE", "MIN", "MAX"])}
    if name == "TreeEnsembleClassifier":
        d.outputs, k = 2, 3  # two classes may share one score, in ways of ONNX Runtime's own
        return [x], tree | {f"class{key}": v for key, v in side.items()} | {"classlabels_int64s": list(range(k)),
                                                                            "post_transform": "NONE" if post == "PROBIT" else post}
    t = numpy_helper.from_array
    kind = x.dtype
    return [x], {"tree_roots": [0], "n_targets": k, "nodes_featureids": [d.whole(0, f - 1)], "nodes_splits": t(np.array([0.3], kind)),
                 "nodes_modes": t(np.array([d.whole(0, 5)], np.uint8)), "nodes_truenodeids": [0], "nodes_falsenodeids": [1], "nodes_trueleafs": [1],
                 "nodes_falseleafs": [1], "leaf_targetids": d.wholes(2, 0, k - 1), "leaf_weights": t(np.array(reals(2), kind)),
                 "aggregate_function": d.whole(0, 3)}
