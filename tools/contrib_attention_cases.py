"""The attentions among the cases that write_contrib_cases.py writes. Those named `fuzz` draw attributes and shapes at random."""
import numpy as np
from onnx import TensorProto, helper

MS = "com.microsoft"
F16 = {"rtol": 2e-3, "atol": 2e-3}


def half(x):
    return None if x is None else x.astype(np.float16) if x.dtype == np.float32 else x


def in_single(op, inputs, domain=MS, **attributes):
    """Nodes that compute `op` on float16 inputs in float32, for kernels that ONNX Runtime lacks."""

    def nodes(names, results):
        cast = [n + "_single" if n and v.dtype == np.float16 else n for n, v in zip(names, inputs)]
        before = [helper.make_node("Cast", [n], [s], to=TensorProto.FLOAT) for n, s in zip(names, cast) if n != s]
        made = [r + "_single" if r else "" for r in results]
        after = [helper.make_node("Cast", [m], [r], to=TensorProto.FLOAT16) for m, r in zip(made, results) if r]
        return [*before, helper.make_node(op, cast, made, domain=domain, **attributes), *after]

    return nodes


def choose(c, *options):
    return options[c.rng.integers(len(options))]


def rotary(c):
    angles = [c.real(10, 4), c.real(10, 4)]
    base, each = np.array([3]), np.array([[0, 4, 9], [2, 2, 1]])
    x = c.real(2, 3, 16)
    for kind, to, rule in (("f32", lambda v: v, {}), ("f16", half, F16)):
        a = [to(v) for v in angles]
        for interleaved in (0, 1):
            name = f"rotary_embedding_{kind}_{interleaved}"
            c.add(f"{name}_base", "RotaryEmbedding", [to(x), base, *a], interleaved=interleaved, **rule)
            c.add(f"{name}_each", "RotaryEmbedding", [to(x), each, *a], interleaved=interleaved, **rule)
            c.add(f"{name}_heads_apart", "RotaryEmbedding", [to(c.real(2, 2, 3, 8)), each, *a], interleaved=interleaved, **rule)
            c.add(f"{name}_part", "RotaryEmbedding", [to(c.real(2, 3, 24)), each, *a], interleaved=interleaved, num_heads=2,
                  rotary_embedding_dim=8, **rule)
            c.add(f"{name}_part_heads_apart", "RotaryEmbedding", [to(c.real(2, 2, 3, 12)), base, *a], interleaved=interleaved,
                  num_heads=2, rotary_embedding_dim=8, **rule)
    c.add("rotary_embedding_scalar_base", "RotaryEmbedding", [x, np.array(3), *angles])
    c.add("rotary_embedding_scale", "RotaryEmbedding", [x, base, *angles], scale=2.0)
    c.add("rotary_embedding_heads", "RotaryEmbedding", [x, base, *angles], num_heads=2)
    c.add("rotary_embedding_packed", "RotaryEmbedding", [c.real(1, 12, 16), c.rng.integers(0, 10, (1, 12)), *angles],
          is_packed_batching=1)
    c.add("rotary_embedding_constant", "RotaryEmbedding", [x, each, *angles], constants=(2, 3))
    for i in range(8):
        batch, heads, steps, most = c.rng.integers(1, 4, 4)
        turned, more = 2 * c.rng.integers(1, 5), choose(c, 0, 2, 6)
        attributes = {"num_heads": int(heads), "rotary_embedding_dim": int(turned)} if more else {}
        width, most = turned + more, most + steps
        shape = choose(c, (batch, steps, heads * width), (batch, heads, steps, width))
        positions = choose(c, c.rng.integers(0, most - steps + 1, 1), c.rng.integers(0, most, (batch, steps)))
        a = [c.real(most, turned // 2), c.real(most, turned // 2)]
        c.add(f"rotary_embedding_fuzz_{i}", "RotaryEmbedding", [c.real(*shape), positions, *a], interleaved=i % 2, **attributes)


def masks(c, batch, queries, total, padded):
    """The kinds of masks of [batch, queries, total] scores. None masks a query's every key unless total is 1."""
    def seen(*shape):
        m = c.rng.integers(0, 2, shape)
        m[..., 0] = 1
        return m.astype(np.int32)

    ends = c.rng.integers(1, total + 1, batch).astype(np.int32)
    kinds = {"ends": ends, "keys": seen(batch, total), "scores": seen(batch, queries, total),
             "offsets": np.concatenate([ends, np.arange(2 * batch + 2)]).astype(np.int32)}
    if padded:
        kinds["starts"] = np.concatenate([ends, ends - 1]).astype(np.int32)
        if total > 1:
            kinds["dummy"] = np.zeros((choose(c, 1, batch), 1), np.int32)
    return kinds


def multi_head(c):
    op = "MultiHeadAttention"
    qk = {3: TensorProto.FLOAT}
    q, k, v, bias = c.real(2, 3, 8), c.real(2, 5, 8), c.real(2, 5, 12), c.real(28)
    c.add("multi_head_attention", op, [q, k, v], num_heads=2)
    c.add("multi_head_attention_scores", op, [q, k, v], 4, types=qk, num_heads=2)
    c.add("multi_head_attention_bias", op, [q, k, v, bias], num_heads=2)
    c.add("multi_head_attention_constant_bias", op, [q, k, v, bias], constants=(3,), num_heads=2)
    c.add("multi_head_attention_scale", op, [q, k, v, bias], num_heads=2, scale=0.7)
    c.add("multi_head_attention_one_head", op, [q, k, v], num_heads=1)
    c.add("multi_head_attention_unidirectional", op, [q, k[:, :3].copy(), v[:, :3].copy()], 4, types=qk, num_heads=2,
          unidirectional=1)
    c.add("multi_head_attention_unidirectional_step", op, [q[:, :1].copy(), k, v], 4, types=qk, num_heads=2, unidirectional=1)
    for name, mask in masks(c, 2, 3, 5, False).items():
        c.add(f"multi_head_attention_mask_{name}", op, [q, k, v, None, mask], 4, types=qk, num_heads=2)
        c.add(f"multi_head_attention_mask_{name}_filter", op, [q, k, v, None, mask], num_heads=2, mask_filter_value=-1.5)
    for name, mask in masks(c, 2, 5, 5, False).items():
        c.add(f"multi_head_attention_mask_{name}_unidirectional", op, [c.real(2, 5, 8), k, v, None, mask], 4, types=qk,
              num_heads=2, unidirectional=1)
    hidden = np.array([[0, 0, 0, 0, 0], [1, 0, 1, 1, 1]], np.int32)
    c.add("multi_head_attention_mask_all", op, [q, k, v, None, hidden], num_heads=2,
          mask_filter_value=float(np.finfo(np.float32).min))
    for name, shape in (("each", (2, 2, 3, 5)), ("batches", (1, 2, 3, 5)), ("heads", (2, 1, 3, 5)), ("one", (1, 1, 3, 5))):
        c.add(f"multi_head_attention_score_bias_{name}", op, [q, k, v, None, None, c.real(*shape)], 4, types=qk, num_heads=2)
    mask = masks(c, 2, 5, 5, False)["keys"]
    c.add("multi_head_attention_score_bias_mask", op, [c.real(2, 5, 8), k, v, bias, mask, c.real(1, 2, 5, 5)], 4, types=qk,
          num_heads=2, unidirectional=1)
    k, v = c.real(2, 3, 8), c.real(2, 3, 8)
    past = [c.real(2, 2, 4, 4), c.real(2, 2, 4, 4)]
    for one_way in (0, 1):
        c.add(f"multi_head_attention_past_{one_way}", op, [q, k, v, c.real(24), None, None, *past], 4, types=qk, num_heads=2,
              unidirectional=one_way)
    for name, mask in masks(c, 2, 3, 7, False).items():
        c.add(f"multi_head_attention_past_mask_{name}", op, [q, k, v, None, mask, c.real(2, 2, 3, 7), *past], 4, types=qk,
              num_heads=2, unidirectional=1)
    c.add("multi_head_attention_heads_apart", op, [q, c.real(2, 2, 5, 4), c.real(2, 2, 5, 4)], 4, types=qk, num_heads=2)
    c.add("multi_head_attention_heads_apart_mask", op,
          [q, c.real(2, 2, 5, 4), c.real(2, 2, 5, 4), None, np.array([2, 4], np.int32)], num_heads=2)

    def packed(count):
        def nodes(names, results):
            last = [n for n in names[2:] if n]
            parts = [f"part{i}" for i in range(count)]
            split = [helper.make_node("Split", [names[0 if count == 3 else 1]], parts, axis=3, num_outputs=count)]
            shape = helper.make_node("Constant", [], ["merged"], value_ints=[0, 0, -1])
            merged = [helper.make_node("Reshape", [p, "merged"], [p + "_merged"]) for p in parts]
            inputs = ([] if count == 3 else [names[0]]) + [p + "_merged" for p in parts]
            return [*split, shape, *merged, helper.make_node(op, inputs + last, results, domain=MS, num_heads=2)]

        return nodes

    c.add("multi_head_attention_packed_qkv", op, [c.real(2, 5, 2, 3, 4)], oracle=packed(3), num_heads=2)
    c.add("multi_head_attention_packed_qkv_bias", op, [c.real(2, 5, 2, 3, 4), None, None, c.real(24)], oracle=packed(3),
          num_heads=2)
    c.add("multi_head_attention_packed_kv", op, [q, c.real(2, 5, 2, 2, 4)], oracle=packed(2), num_heads=2)
    for i in range(20):
        batch, heads, queries, keys = (int(n) for n in c.rng.integers(1, 5, 4))
        width, value_width, past = int(c.rng.integers(1, 9)), int(c.rng.integers(1, 9)), choose(c, None, 0, 1, 5)
        if past is not None:
            value_width = width
        one_way = choose(c, 0, 1)
        if one_way and queries > 1:
            keys = queries
        total = keys + (past or 0)
        mask = choose(c, None, *masks(c, batch, queries, total, False).values())
        added = choose(c, None, c.real(choose(c, 1, batch), choose(c, 1, heads), queries, total))
        cache = [None, None] if past is None else [c.real(batch, heads, past, width), c.real(batch, heads, past, width)]
        bias = choose(c, None, c.real(heads * (2 * width + value_width)))
        inputs = [c.real(batch, queries, heads * width), c.real(batch, keys, heads * width),
                  c.real(batch, keys, heads * value_width), bias, mask, added, *cache]
        attributes = {"num_heads": heads, "unidirectional": one_way, **choose(c, {}, {"scale": 0.3}),
                      **choose(c, {}, {"mask_filter_value": -2.5})}
        outputs = 4 if past else choose(c, 1, 4)  # without its outputs ONNX Runtime leaves the past out
        types = qk if outputs == 4 else None
        c.add(f"multi_head_attention_fuzz_{i}", op, inputs, outputs, types=types, **attributes)
        if i < 6:
            narrow = [half(x) for x in inputs]
            c.add(f"multi_head_attention_fuzz_f16_{i}", op, narrow, 3 if past else 1,
                  oracle=in_single(op, narrow, **attributes), **F16, **attributes)


def projected(c):
    op = "Attention"
    x, w, bias = c.real(2, 3, 5), c.real(5, 24), c.real(24)
    c.add("attention", op, [x, w, bias], 2, num_heads=2)
    c.add("attention_no_bias", op, [x, w], num_heads=2)
    c.add("attention_constant", op, [x, w, bias], constants=(1, 2), num_heads=2)
    c.add("attention_scale", op, [x, w, bias], num_heads=2, scale=0.4)
    c.add("attention_unidirectional", op, [x, w, bias], 2, num_heads=2, unidirectional=1)
    c.add("attention_value_width", op, [x, c.real(5, 28), c.real(28)], num_heads=2, qkv_hidden_sizes=[8, 8, 12])
    c.add("attention_hidden_sizes", op, [x, w, bias], 2, num_heads=2, qkv_hidden_sizes=[8, 8, 8])
    c.add("attention_share_without_past", op, [x, w, bias], 2, num_heads=2, past_present_share_buffer=1)
    for name, mask in masks(c, 2, 3, 3, True).items():
        for one_way in (0, 1):
            c.add(f"attention_mask_{name}_{one_way}", op, [x, w, bias, mask], 2, num_heads=2, unidirectional=one_way)
        c.add(f"attention_mask_{name}_filter", op, [x, w, bias, mask], num_heads=2, mask_filter_value=-1.5)
    for name, shape in (("each", (2, 2, 3, 3)), ("batches", (1, 2, 3, 3)), ("heads", (2, 1, 3, 3)), ("one", (1, 1, 3, 3))):
        c.add(f"attention_score_bias_{name}", op, [x, w, bias, None, None, c.real(*shape)], num_heads=2)
    past = c.real(2, 2, 2, 4, 4)
    for one_way in (0, 1):
        c.add(f"attention_past_{one_way}", op, [x, w, bias, None, past], 2, num_heads=2, unidirectional=one_way)
    for name, mask in masks(c, 2, 3, 7, True).items():
        c.add(f"attention_past_mask_{name}", op, [x, w, bias, mask, past], 2, num_heads=2, unidirectional=1)

    def rows_of_positions(names, results):
        slices = {"from": [4, 0], "to": [7, 7], "axes": [2, 3], "one": [1]}
        constants = [helper.make_node("Constant", [], [n], value_ints=v) for n, v in slices.items()]
        return [*constants, helper.make_node("Slice", [names[3], "from", "to", "axes"], ["rows"]),
                helper.make_node("Squeeze", ["rows", "one"], ["mask"]),
                helper.make_node(op, [*names[:3], "mask", names[4]], results, domain=MS, num_heads=2)]

    square = (c.rng.random((2, 1, 9, 9)) < 0.7).astype(np.int32)
    square[..., 0] = 1
    c.add("attention_mask_square", op, [x, w, bias, square, past], 2, oracle=rows_of_positions, num_heads=2)
    for i in range(16):
        batch, heads, queries, features = (int(n) for n in c.rng.integers(1, 5, 4))
        width, value_width, past = int(c.rng.integers(1, 9)), int(c.rng.integers(1, 9)), choose(c, None, 0, 1, 5)
        if past is not None or choose(c, True, False):
            value_width = width
        total = queries + (past or 0)
        columns = heads * (2 * width + value_width)
        mask = choose(c, None, *masks(c, batch, queries, total, True).values())
        cache = None if past is None else c.real(2, batch, heads, past, width)
        added = None if past is not None else choose(c, None, c.real(choose(c, 1, batch), choose(c, 1, heads), queries, total))
        inputs = [c.real(batch, queries, features), c.real(features, columns), choose(c, None, c.real(columns)), mask, cache, added]
        attributes = {"num_heads": heads, "unidirectional": choose(c, 0, 1), **choose(c, {}, {"scale": 0.3}),
                      **choose(c, {}, {"mask_filter_value": -2.5})}
        if value_width != width:
            attributes["qkv_hidden_sizes"] = [heads * width, heads * width, heads * value_width]
        outputs = 1 if past is None else 2
        c.add(f"attention_fuzz_{i}", op, inputs, outputs, **attributes)
        if i < 4:
            narrow = [half(x) for x in inputs]
            c.add(f"attention_fuzz_f16_{i}", op, narrow, outputs, oracle=in_single(op, narrow, **attributes), rtol=4e-3,
                  atol=4e-3, **attributes)


def quantized(c):
    op = "QAttention"

    def scalar(v, dtype=np.float32):
        return np.array(v, dtype)

    x, w, bias = c.u8(2, 3, 5), c.weights(5, 24), c.real(24)
    scales = [scalar(0.013), scalar(0.021)]
    c.add("qattention", op, [x, w, bias, *scales], 2, num_heads=2)
    c.add("qattention_u8", op, [x, c.u8(5, 24), bias, *scales, None, scalar(128, np.uint8), scalar(120, np.uint8)], num_heads=2)
    columns = [(np.abs(c.real(24)) * 0.02 + 0.005).astype(np.float32), c.rng.integers(-3, 4, 24).astype(np.int8)]
    c.add("qattention_columns", op, [x, w, bias, scales[0], columns[0], None, scalar(117, np.uint8), columns[1]], num_heads=2)
    c.add("qattention_constant", op, [x, w, bias, *scales, None, scalar(117, np.uint8)], constants=(1, 2, 3, 4, 6), num_heads=2)
    c.add("qattention_scale", op, [x, w, bias, *scales], num_heads=2, scale=0.9)
    for name, mask in masks(c, 2, 3, 3, True).items():
        c.add(f"qattention_mask_{name}", op, [x, w, bias, *scales, mask], num_heads=2, unidirectional=1)
    past = c.real(2, 2, 2, 4, 4)
    c.add("qattention_past", op, [x, w, bias, *scales, None, None, None, past], 2, num_heads=2, unidirectional=1)
    for i in range(10):
        batch, heads, queries, features = (int(n) for n in c.rng.integers(1, 5, 4))
        width, past = int(c.rng.integers(1, 9)), choose(c, None, 0, 1, 5)
        total, count = queries + (past or 0), 3 * heads * width
        signed = choose(c, True, False)
        w = c.weights(features, count) if signed else c.u8(features, count)
        mask = choose(c, None, *masks(c, batch, queries, total, True).values())
        cache = None if past is None else c.real(2, batch, heads, past, width)
        weight_scale = choose(c, scalar(0.02), (np.abs(c.real(count)) * 0.02 + 0.005).astype(np.float32))
        zero = w.dtype.type(0 if signed else 128)
        inputs = [c.u8(batch, queries, features), w, c.real(count), scalar(0.011), weight_scale, mask,
                  choose(c, None, scalar(131, np.uint8)), choose(c, np.array(zero), np.full(count, zero)), cache]
        attributes = {"num_heads": heads, "unidirectional": choose(c, 0, 1), **choose(c, {}, {"mask_filter_value": -2.5})}
        c.add(f"qattention_fuzz_{i}", op, inputs, 1 if past is None else 2, **attributes)


def attention(c):
    rotary(c)
    multi_head(c)
    projected(c)
    quantized(c)
