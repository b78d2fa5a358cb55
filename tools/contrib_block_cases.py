"""Weights in blocks of few bits among the cases that write_contrib_cases.py writes."""
import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

from contrib_attention_cases import F16, MS, choose, half


def packed(values, bits):
    """Bytes that hold the values along the last axis, the lowest bits first."""
    per = 8 // bits
    values = np.concatenate([values, np.zeros((*values.shape[:-1], -values.shape[-1] % per), np.int64)], -1)
    values = values.reshape(*values.shape[:-1], -1, per)
    return (values << (np.arange(per) * bits)).sum(-1).astype(np.uint8)


def product(c, bits, rows, k, n, size, zeros=None, groups=None, bias=False):
    """Inputs of MatMulNBits, and its attributes. `zeros`: None, "packed" or "float"."""
    blocks = -(-k // size)
    w, scales = c.rng.integers(0, 2**bits, (n, blocks, size)), c.real(n, blocks, scale=2.0 ** -bits)
    kinds = {None: None, "packed": packed(c.rng.integers(0, 2**bits, (n, blocks)), bits),
             "float": c.real(n, blocks) + np.float32(2 ** (bits - 1))}
    group = None if groups is None else c.rng.integers(0, blocks, groups).astype(np.int32)
    inputs = [c.real(*rows, k), packed(w, bits), scales, kinds[zeros], group, c.real(n) if bias else None]
    return inputs, {"K": k, "N": n, "bits": bits, "block_size": size}


def mat_mul(c):
    op = "MatMulNBits"
    for bits in (2, 4, 8):
        for zeros in (None, "packed", "float"):
            if bits == 8 and zeros == "float":
                continue  # ONNX Runtime has no such kernel
            inputs, attributes = product(c, bits, (2, 3), 40, 6, 16, zeros, bias=bits != 2)
            name = f"mat_mul_nbits_{bits}_{zeros or 'plain'}"
            c.add(name, op, inputs, **attributes)
            c.add(f"{name}_constant", op, inputs, constants=(1, 2, 3, 5), **attributes)
            c.add(f"{name}_f16", op, [half(x) for x in inputs], rtol=4e-3, atol=4e-3, **attributes)
    inputs, attributes = product(c, 4, (2, 3), 40, 6, 16, groups=40)
    c.add("mat_mul_nbits_groups", op, inputs, **attributes)
    c.add("mat_mul_nbits_groups_constant", op, inputs, constants=(1, 2, 4), **attributes)
    inputs, attributes = product(c, 4, (2, 3), 40, 6, 16, "float", groups=48, bias=True)
    c.add("mat_mul_nbits_groups_padded", op, inputs, **attributes)
    zeros = c.rng.integers(0, 16, (6, 3))

    def with_float_zeros(names, results):
        """ONNX Runtime leaves packed zero points out where there are groups."""
        constant = helper.make_node("Constant", [], ["zeros"], value=numpy_helper.from_array(zeros.astype(np.float32)))
        return [constant, helper.make_node(op, [*names[:3], "zeros", *names[4:]], results, domain=MS, **attributes)]

    inputs[3] = packed(zeros, 4)
    c.add("mat_mul_nbits_groups_packed", op, inputs, oracle=with_float_zeros, **attributes)
    inputs, attributes = product(c, 4, (), 32, 5, 32, "packed")
    c.add("mat_mul_nbits_vector", op, inputs, **attributes)
    c.add("mat_mul_nbits_flat", op, [inputs[0], inputs[1], inputs[2].reshape(-1), inputs[3].reshape(-1)], **attributes)
    for level in (1, 2, 3):
        c.add(f"mat_mul_nbits_accuracy_{level}", op, inputs, constants=(1, 2, 3), accuracy_level=level, **attributes)
    # A may be rounded to 8 bits there: the answer lies within what that can change.
    c.add("mat_mul_nbits_accuracy_4", op, inputs, constants=(1, 2, 3), rtol=0.02, atol=0.15, accuracy_level=4, **attributes)
    inputs, attributes = product(c, 4, (2, 3), 40, 6, 16, bias=True)
    for name, shape in (("rows", (0, 3, 8)), ("all", (0, 0, 0))):
        c.add(f"mat_mul_nbits_no_{name}", op, [inputs[0], np.zeros(shape, np.uint8), inputs[2]], **attributes)
        c.add(f"mat_mul_nbits_no_{name}_bias", op, [inputs[0], np.zeros(shape, np.uint8), inputs[2], None, None, inputs[5]],
              **attributes)
    for i in range(12):
        bits = choose(c, 2, 4, 8)
        k, n, size = int(c.rng.integers(1, 90)), int(c.rng.integers(1, 20)), choose(c, 16, 32, 64)
        groups = choose(c, None, k) if bits == 4 else None
        kinds = {"packed": groups is None, "float": bits != 8}  # the others ONNX Runtime lacks
        zeros = choose(c, None, *(kind for kind, there in kinds.items() if there))
        rows = tuple(int(r) for r in c.rng.integers(1, 5, c.rng.integers(0, 4)))
        inputs, attributes = product(c, bits, rows, k, n, size, zeros, groups, choose(c, True, False))
        c.add(f"mat_mul_nbits_fuzz_{i}", op, inputs, constants=choose(c, (), (1, 2, 3, 4, 5)), **attributes)


def gather(c):
    op = "GatherBlockQuantized"
    indices = np.array([[1, -1, 0], [4, 2, -5]])
    for bits in (2, 4, 8):
        per = 8 // bits
        data = packed(c.rng.integers(0, 2**bits, (5, 3, 40)), bits)
        scales, zeros = c.real(5, 3, 3), packed(c.rng.integers(0, 2**bits, (5, 3, 3)), bits)
        form = {"bits": bits, "block_size": 16, "quantize_axis": 2}
        assert data.shape[-1] * per == 40
        c.add(f"gather_block_quantized_u8_{bits}", op, [data, indices, scales], **form)
        c.add(f"gather_block_quantized_u8_{bits}_zeros", op, [data, indices.astype(np.int32), scales, zeros], constants=(0, 2, 3),
              **form)
        c.add(f"gather_block_quantized_u8_{bits}_f16", op, [data, indices, half(scales), zeros], **F16, **form)
        c.add(f"gather_block_quantized_u8_{bits}_out_of_range", op, [data, np.array([5, -6, 2, 1 << 40]), scales], **form)
    c.add("gather_block_quantized_last", op, [data[0], indices % 3, c.real(3, 3)], bits=8, block_size=16, quantize_axis=-1)
    c.add("gather_block_quantized_defaults", op, [packed(c.rng.integers(0, 16, (5, 300)), 4), indices, c.real(5, 3)])
    for kind in ("int4", "uint4"):
        dtype = np.dtype(getattr(ml_dtypes, kind))
        least = -8 if kind == "int4" else 0

        def draw(*shape):
            return c.rng.integers(least, least + 16, shape).astype(dtype)

        for gathered, quantized in ((0, 2), (1, 2), (2, 2), (0, 1), (0, 0), (2, 0)):
            blocks = {0: (1, 3, 20), 1: (5, 1, 20), 2: (5, 3, 2)}[quantized]
            form = {"block_size": 16, "gather_axis": gathered, "quantize_axis": quantized}
            chosen = np.array([[2, -1], [0, 1]])
            name = f"gather_block_quantized_{kind}_{gathered}{quantized}"
            c.add(name, op, [draw(5, 3, 20), chosen, c.real(*blocks)], constants=(0,), **form)
            c.add(f"{name}_zeros", op, [draw(5, 3, 20), chosen, c.real(*blocks), draw(*blocks)], constants=(0, 3), **form)
        c.add(f"gather_block_quantized_{kind}_one", op, [draw(5, 20), np.array(3), half(c.real(5, 2))], constants=(0,),
              block_size=16, **F16)
    for kind in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"):
        data = c.real(5, 3, 40).astype(getattr(ml_dtypes, kind))
        for name, size, shape in (("blocks", 16, (5, 3, 3)), ("row", 0, (5, 3, 1)), ("tensor", 0, (1, 1, 1)),
                                  ("shared", 16, (1, 3, 3))):
            c.add(f"gather_block_quantized_{kind}_{name}", op, [data, indices, c.real(*shape)], constants=(0,), block_size=size,
                  quantize_axis=2)
    for i in range(12):
        rank = int(c.rng.integers(2, 4))
        shape = [int(n) for n in c.rng.integers(1, 6, rank)]
        gathered, quantized = int(c.rng.integers(0, rank)), int(c.rng.integers(0, rank))
        shape[quantized] = int(c.rng.integers(1, 50))
        blocks = list(shape)
        size = choose(c, 16, 32)
        blocks[quantized] = -(-shape[quantized] // size)
        dtype = np.dtype(choose(c, ml_dtypes.int4, ml_dtypes.uint4))
        extent = shape[gathered]
        chosen = c.rng.integers(-extent - 1, extent + 1, tuple(c.rng.integers(1, 4, c.rng.integers(0, 3))))
        zeros = choose(c, None, c.rng.integers(0, 8, blocks).astype(dtype))
        data = c.rng.integers(0, 8, shape).astype(dtype)
        c.add(f"gather_block_quantized_fuzz_{i}", op, [data, np.array(chosen), c.real(*blocks), zeros],
              constants=(0, 3), block_size=size, gather_axis=gathered - choose(c, 0, rank), quantize_axis=quantized)


def blocks(c):
    mat_mul(c)
    gather(c)
