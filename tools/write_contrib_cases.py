#!/usr/bin/env python3
"""Writes test cases of the com.microsoft operators, their outputs computed by ONNX Runtime.

    write_contrib_cases.py DIR

DIR/<case>/ has the form of write_onnx_cases.py's. Inputs are random with fixed seeds. NhwcConv, which ONNX Runtime has no
CPU kernel for, is compared with a Conv between transposes.
"""
import sys

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from case_files import replaced, write, write_data, write_rule
from contrib_attention_cases import attention
from contrib_block_cases import blocks
from contrib_cache_cases import caches

MS = "com.microsoft"


class Cases:
    def __init__(self, out):
        self.out = out
        self.count = 0
        self.rng = np.random.default_rng(20261202)

    def real(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def u8(self, *shape):
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def weights(self, *shape):
        """Small enough that two products fit 16 bits: beyond that ONNX Runtime saturates where the CPU has no VNNI."""
        return self.rng.integers(-60, 61, shape).astype(np.int8)

    def i8(self, *shape):
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def add(self, name, op, inputs, outputs=1, domain=MS, rtol=1e-4, atol=1e-5, oracle=None, wanted=None, constants=(),
            types=None, kept=None, **attributes):
        """One node. An input of None is left out. `oracle`: nodes that compute the same, where ONNX Runtime lacks the kernel.
        `wanted`: which outputs are stated. `constants`: which inputs the model holds. `types`: of outputs, where ONNX Runtime
        does not infer them. `kept`: by output, which elements are specified and stated, in a row."""
        names = [f"x{i}" if v is not None else "" for i, v in enumerate(inputs)]
        while names and not names[-1]:
            names.pop()
        results = [f"y{i}" if wanted is None or i in wanted else "" for i in range(outputs)]
        given = [(n, v) for n, v in zip(names, inputs) if n]
        held = [numpy_helper.from_array(v, n) for n, v in given if int(n[1:]) in constants]
        given = [(n, v) for n, v in given if int(n[1:]) not in constants]
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]

        def model(nodes, outputs):
            graph = helper.make_graph(nodes, name, infos, outputs, held)
            return helper.make_model(graph, opset_imports=opsets, ir_version=10)

        asked, kept = [r for r in results if r], {f"y{i}": mask for i, mask in (kept or {}).items()}
        raw = [r + "_raw" if r in kept else r for r in results]
        chosen = [n for r, mask in kept.items() for n in (
            helper.make_node("Constant", [], [r + "_flat"], value_ints=[-1]),
            helper.make_node("Constant", [], [r + "_kept"], value_ints=np.flatnonzero(mask)),
            helper.make_node("Reshape", [r + "_raw", r + "_flat"], [r + "_row"]),
            helper.make_node("Gather", [r + "_row", r + "_kept"], [r]))]
        node = helper.make_node(op, names, raw, name=op, domain=domain, **attributes)
        untyped = [helper.make_tensor_value_info(r, types[int(r[1:])], None) if types and int(r[1:]) in types
                   else helper.make_empty_tensor_value_info(r) for r in asked]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        proto = model([*(oracle(names, raw) if oracle else [node]), *chosen], untyped)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = session.run(None, dict(given))
        stated = [
            helper.make_tensor_value_info(r, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for r, v in zip(asked, values)
        ]
        folder = f"{self.out}/{name}"
        write_data(folder, 0, input=[numpy_helper.from_array(v) for _, v in given],
                   output=[numpy_helper.from_array(v) for v in values])
        write(f"{folder}/model.onnx", model([node, *chosen], stated))
        write_rule(folder, rtol=rtol, atol=atol)
        self.count += 1


def scalar(value):
    return np.array(value, np.float32)


def quantized(c):
    for kind, zero in (("u8", np.uint8(120)), ("i8", np.int8(-7))):
        draw = getattr(c, kind)
        z = np.array(zero)
        a, b = draw(2, 3, 5), draw(3, 1)
        tail = [scalar(0.031), z, b, scalar(0.052), z, scalar(0.043), z]
        c.add(f"qlinear_add_{kind}", "QLinearAdd", [a, *tail])
        c.add(f"qlinear_mul_{kind}", "QLinearMul", [a, *tail])
        c.add(f"qlinear_sigmoid_{kind}", "QLinearSigmoid", [a, scalar(0.031), z, scalar(0.0041), z])
        for alpha in (0.01, 0.3):
            c.add(f"qlinear_leaky_relu_{kind}_{alpha}", "QLinearLeakyRelu", [a, scalar(0.031), z, scalar(0.027), z], alpha=alpha)
        x = draw(2, 3, 6, 7)
        for last in (0, 1):
            c.add(f"qlinear_global_average_pool_{kind}_{last}", "QLinearGlobalAveragePool",
                  [x, scalar(0.03), z, scalar(0.0171), z], channels_last=last)
            for ceil, pad in ((0, 0), (1, 0), (0, 1)):
                c.add(f"qlinear_average_pool_{kind}_{last}_{ceil}{pad}", "QLinearAveragePool",
                      [x, scalar(0.03), z, scalar(0.0171), z], channels_last=last, kernel_shape=[3, 2], strides=[2, 1],
                      pads=[1, 0, 1, 1], ceil_mode=ceil, count_include_pad=pad)
        c.add(f"qlinear_concat_{kind}", "QLinearConcat",
              [scalar(0.05), z, draw(2, 3), scalar(0.02), z, draw(2, 1), scalar(0.071), z, draw(2, 4), scalar(0.05), z], axis=-1)
        c.add(f"qlinear_where_{kind}", "QLinearWhere",
              [c.rng.random((2, 1, 5)) < 0.5, a, scalar(0.031), z, b, scalar(0.052), z, scalar(0.061), z])
        for opset, axis in ((13, 1), (13, -1), (11, 1), (11, 2)):
            c.add(f"qlinear_softmax_{kind}_{opset}_{axis}", "QLinearSoftmax",
                  [draw(2, 3, 5), scalar(0.02), z, scalar(1 / 256), np.array(0, z.dtype)], axis=axis, opset=opset)
    a, w = c.u8(4, 9), c.weights(9, 6)
    za, zw = np.array(np.uint8(131)), np.array(np.int8(0))
    bias = c.rng.integers(-4000, 4000, 6).astype(np.int32)
    c.add("qgemm_u8", "QGemm", [a, scalar(0.02), za, w, scalar(0.03), zw, bias, scalar(0.11), np.array(np.uint8(99))])
    c.add("qgemm_float", "QGemm", [a, scalar(0.02), za, w, scalar(0.03), zw, bias])
    c.add("qgemm_no_bias", "QGemm", [a, scalar(0.02), za, w, scalar(0.03), zw, None, scalar(0.11), np.array(np.uint8(99))])
    columns = np.abs(c.real(6)) * 0.03 + 0.001
    c.add("qgemm_columns", "QGemm", [a, scalar(0.02), za, w, columns, np.zeros(6, np.int8), bias, scalar(0.11), np.array(np.uint8(99))])
    c.add("qgemm_transposed", "QGemm", [a.T.copy(), scalar(0.02), za, w.T.copy(), scalar(0.03), zw, bias], transA=1, transB=1, alpha=0.5)
    for name, weights, zero in (("i8", c.weights(9, 6), c.weights(6)), ("u8", c.u8(9, 6), c.u8(6))):
        c.add(f"mat_mul_integer_to_float_{name}", "MatMulIntegerToFloat",
              [c.u8(2, 4, 9), weights, scalar(0.02), columns, np.array(np.uint8(128)), zero, c.real(6)])
        c.add(f"mat_mul_integer_to_float_{name}_plain", "MatMulIntegerToFloat", [c.u8(4, 9), weights, scalar(0.02), scalar(0.03)])
        c.add(f"dynamic_quantize_mat_mul_{name}", "DynamicQuantizeMatMul", [c.real(2, 4, 9), weights, columns, zero, c.real(6)])
        c.add(f"dynamic_quantize_mat_mul_{name}_plain", "DynamicQuantizeMatMul", [c.real(4, 9), weights, scalar(0.03)])


def fused(c):
    a, b = c.real(2, 3, 4, 5), c.real(2, 3, 5, 6)
    c.add("fused_mat_mul", "FusedMatMul", [a, b], alpha=0.25)
    c.add("fused_mat_mul_vectors", "FusedMatMul", [c.real(5), c.real(5)])
    c.add("fused_mat_mul_trans_a", "FusedMatMul", [a.swapaxes(2, 3).copy(), b], transA=1)
    c.add("fused_mat_mul_trans_b", "FusedMatMul", [a, b.swapaxes(2, 3).copy()], transB=1)
    c.add("fused_mat_mul_trans_both", "FusedMatMul", [a.swapaxes(2, 3).copy(), b.swapaxes(2, 3).copy()], transA=1, transB=1, alpha=-2.0)
    front = [np.moveaxis(v, 2, 0).copy() for v in (a, b)]
    c.add("fused_mat_mul_batch_a", "FusedMatMul", [front[0], b], transBatchA=1)
    c.add("fused_mat_mul_batch_b", "FusedMatMul", [a, front[1]], transBatchB=1)
    c.add("fused_mat_mul_batch_both", "FusedMatMul", front, transBatchA=1, transBatchB=1)
    a, b, bias = c.real(4, 5), c.real(5, 6), c.real(6)
    for activation, more in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.2}),
                             ("Elu", {"activation_alpha": 0.7}), ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
                             ("Softplus", {}), ("Softsign", {}), ("ThresholdedRelu", {"activation_alpha": 0.3}),
                             ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1})):
        c.add(f"fused_gemm_{activation.lower()}", "FusedGemm", [a, b, bias], activation=activation, **more)
    c.add("fused_gemm_scaled", "FusedGemm", [a.T.copy(), b.T.copy(), bias], activation="Relu", alpha=0.5, beta=2.0, transA=1, transB=1)
    x, w, bias = c.real(2, 4, 7, 8), c.real(6, 2, 3, 3), c.real(6)
    window = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2]}
    for activation, params in (("Relu", None), ("Sigmoid", None), ("Tanh", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]),
                               ("HardSigmoid", [0.3, 0.4])):
        more = {} if params is None else {"activation_params": params}
        c.add(f"fused_conv_{activation.lower()}", "FusedConv", [x, w, bias], activation=activation, **more, **window)
    c.add("fused_conv_sum", "FusedConv", [x, w, bias, c.real(2, 6, 4, 6)], activation="Relu", **window)
    c.add("fused_conv_sum_no_bias", "FusedConv", [x, w, None, c.real(2, 6, 4, 6)], activation="Relu", **window)

    def transposed_conv(names, results):
        return [helper.make_node("Transpose", [names[0]], ["nchw"], perm=[0, 3, 1, 2]),
                helper.make_node("Conv", ["nchw", *names[1:]], ["made"], **window),
                helper.make_node("Transpose", ["made"], results, perm=[0, 2, 3, 1])]

    c.add("nhwc_conv", "NhwcConv", [c.real(2, 7, 8, 4), w, bias], oracle=transposed_conv, **window)
    c.add("nhwc_conv_no_bias", "NhwcConv", [c.real(2, 7, 8, 4), w], oracle=transposed_conv, **window)
    x = c.real(2, 3, 8, scale=2.0)
    c.add("gelu", "Gelu", [x])
    c.add("bias_gelu", "BiasGelu", [x, c.real(8)])
    c.add("fast_gelu", "FastGelu", [x])
    c.add("fast_gelu_bias", "FastGelu", [x, c.real(8)])
    c.add("quick_gelu", "QuickGelu", [x])
    c.add("quick_gelu_alpha", "QuickGelu", [x], alpha=0.8)
    gamma, beta, bias = c.real(8), c.real(8), c.real(8)
    for name, skip in (("", c.real(2, 3, 8)), ("_broadcast", c.real(1, 3, 8)), ("_shared", c.real(3, 8))):
        c.add(f"skip_layer_normalization{name}", "SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
        c.add(f"skip_simplified_layer_normalization{name}", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-5)
    c.add("skip_layer_normalization_sum", "SkipLayerNormalization", [x, c.real(2, 3, 8), gamma], outputs=4, wanted={0, 3})
    c.add("skip_simplified_layer_normalization_sum", "SkipSimplifiedLayerNormalization", [x, c.real(2, 3, 8), gamma], outputs=4, wanted={0, 3})
    c.add("simplified_layer_normalization", "SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-6)
    c.add("simplified_layer_normalization_axis", "SimplifiedLayerNormalization", [x, c.real(3, 8)], domain="", axis=1)
    ids, segments = c.rng.integers(0, 11, (2, 5)).astype(np.int32), c.rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [c.real(11, 8), c.real(7, 8), c.real(2, 8)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    embed = [ids, segments, *tables, gamma, beta, mask]
    c.add("embed_layer_normalization", "EmbedLayerNormalization", embed, outputs=2, epsilon=1e-5)
    c.add("embed_layer_normalization_sum", "EmbedLayerNormalization", embed, outputs=3, epsilon=1e-5)
    c.add("embed_layer_normalization_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, gamma, beta], outputs=2)
    positions = c.rng.integers(0, 7, (2, 5)).astype(np.int32)
    c.add("embed_layer_normalization_positions", "EmbedLayerNormalization", [*embed, positions], outputs=2)


def main(out):
    with replaced(out) as part:
        cases = Cases(part)
        quantized(cases)
        fused(cases)
        attention(cases)
        blocks(cases)
        caches(cases)
    print(f"  {cases.count} cases in {out}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
