"""GroupQueryAttention among the cases that write_contrib_cases.py writes."""
import numpy as np
from onnx import helper

from contrib_attention_cases import MS, choose, half

OP = "GroupQueryAttention"
F16 = {"rtol": 4e-3, "atol": 4e-3}
INPUTS = ["query", "key", "value", "past_key", "past_value", "last_keys", "total", "cos", "sin", "position_ids", "bias", "sinks",
          "key_scale", "value_scale", "query_norm", "key_norm", "query_lengths"]


def ints(*values):
    return np.array(values, np.int32)


class Step:
    """Inputs of one run, by name: `past` keys kept (None: no cache), `queries` new ones, `lengths` keys of each batch after it."""

    def __init__(self, c, lengths, queries, past=None, total=None, heads=4, groups=2, width=16, packed=False, keys=None):
        self.c, self.lengths, self.queries, self.past = c, lengths, queries, past
        self.heads, self.groups, self.width, self.batch = heads, groups, width, len(lengths)
        self.total = total or max(lengths)
        keys = queries if keys is None else keys
        self.given = {"last_keys": ints(*lengths) - 1, "total": np.array(self.total, np.int32)}
        if packed:
            self.given["query"] = c.real(self.batch, queries, (heads + 2 * groups) * width)
        else:
            self.given["query"] = c.real(self.batch, queries, heads * width)
            self.given["key"] = c.real(self.batch, keys, groups * width)
            self.given["value"] = c.real(self.batch, keys, groups * width)
        if past is not None:
            self.given["past_key"] = c.real(self.batch, groups, past, width)
            self.given["past_value"] = c.real(self.batch, groups, past, width)
        self.attributes = {"num_heads": heads, "kv_num_heads": groups}

    def rotated(self, angles=None, interleaved=0, positions=None):
        most, count = 2 * self.total + self.queries, angles or self.width // 2
        self.given |= {"cos": self.c.real(most, count), "sin": self.c.real(most, count)}
        if positions is not None:
            self.given["position_ids"] = np.array(positions)
        self.attributes |= {"do_rotary": 1, "rotary_interleaved": interleaved}
        return self

    def biased(self, batch, heads):
        self.given["bias"] = self.c.real(batch, heads, self.queries, self.total)
        return self

    def quantized(self, bits, channels=False):
        kind = "PER_CHANNEL" if channels else "PER_TENSOR"
        self.attributes |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        for name in ("key_scale", "value_scale"):
            scale = self.c.rng.uniform(0.01, 0.03, (1, self.groups, 1, self.width) if channels else 1) * (1 if bits == 8 else 16)
            self.given[name] = scale.astype(np.float32)
        for name in ("past_key", "past_value"):
            shape = (self.batch, self.groups, self.past, self.width * bits // 8)
            self.given[name] = self.c.i8(*shape) if bits == 8 else self.c.u8(*shape)
        return self

    def narrow(self):
        scales = ("key_scale", "value_scale")
        self.given = {name: v if name in scales else half(v) for name, v in self.given.items()}
        return self

    def add(self, name, outputs=3, **more):
        inputs = [self.given.get(i) for i in INPUTS]
        self.c.add(f"group_query_attention_{name}", OP, inputs, outputs, **(F16 if inputs[0].dtype == np.float16 else {}),
                   **self.attributes, **more)


def forms(c):
    prompt, step = ([3, 3], 3), ([5, 5], 1, 4)
    Step(c, *prompt).add("prompt")
    Step(c, *prompt).add("prompt_plain", 1)
    Step(c, *prompt, packed=True).add("prompt_packed")
    Step(c, *prompt, heads=4, groups=4).add("prompt_as_many_groups")
    Step(c, *prompt, heads=3, groups=1, width=8).add("prompt_one_group")
    Step(c, [2, 3], 3).add("prompt_padded")
    Step(c, *prompt, past=0).add("prompt_empty_past")
    Step(c, *prompt, past=8).add("prompt_buffer")
    Step(c, *step).add("step")
    Step(c, *step, packed=True).add("step_packed")
    Step(c, [3, 5], 1, 4).add("step_ragged")
    Step(c, [3, 4], 1, 8).add("step_buffer")
    Step(c, [7], 3, 4).add("steps")
    Step(c, [7], 3, 12).add("steps_buffer")
    Step(c, [4, 3], 1, 4, keys=0).add("step_no_keys")
    Step(c, [4], 2, 4, keys=0).rotated().add("steps_no_keys")
    for name, attributes in (("scale", {"scale": 0.4}), ("softcap", {"softcap": 0.7}), ("smooth", {"smooth_softmax": 1}),
                             ("window_1", {"local_window_size": 1}), ("window_2", {"local_window_size": 2}),
                             ("all", {"causal": 0})):
        for kind, form in (("prompt", prompt), ("step", ([3, 5], 1, 4))):
            Step(c, *form).add(f"{kind}_{name}", **attributes)
            for mode in (1, 2):
                Step(c, *form).add(f"{kind}_{name}_scores_{mode}", 4, qk_output=mode, **attributes)
    Step(c, [7], 3, 4).add("steps_window", local_window_size=3)
    Step(c, *prompt).biased(2, 4).add("prompt_bias_softcap", 4, qk_output=1, softcap=0.5)
    for batch, heads in ((2, 4), (1, 4), (2, 1), (1, 1)):
        Step(c, *prompt).biased(batch, heads).add(f"prompt_bias_{batch}{heads}")
        Step(c, [3, 4], 1, 8).biased(batch, heads).add(f"step_bias_{batch}{heads}")
    for smooth in (0, 1):
        sinks = Step(c, *prompt)
        sinks.given["sinks"] = c.real(4)
        sinks.add(f"prompt_sinks_{smooth}", 4, qk_output=2, smooth_softmax=smooth)
    for interleaved in (0, 1):
        Step(c, *prompt).rotated(interleaved=interleaved).add(f"prompt_rotary_{interleaved}")
        Step(c, *prompt, packed=True).rotated(interleaved=interleaved).add(f"prompt_packed_rotary_{interleaved}")
        Step(c, [3, 5], 1, 4).rotated(interleaved=interleaved).add(f"step_rotary_{interleaved}")
        Step(c, *prompt, width=32).rotated(8, interleaved).add(f"prompt_rotary_part_{interleaved}")
    Step(c, *prompt).rotated(positions=[[2, 3, 4], [5, 6, 7]]).add("prompt_positions")
    Step(c, [3, 5], 1, 4).rotated(positions=[[6], [1]]).add("step_positions")
    Step(c, [7], 3, 4).rotated(positions=[[5, 2, 2]]).add("steps_positions")
    unused = Step(c, *prompt).rotated()
    unused.attributes["do_rotary"] = 0
    unused.add("prompt_rotary_off")


def normalized(c):
    """ONNX Runtime normalizes heads on other devices only: said with its normalization before."""
    for name, epsilons in (("both", {"qk_norm_epsilon": 0.1}), ("each", {"q_norm_epsilon": 0.2, "k_norm_epsilon": 0.05})):
        step = Step(c, [3, 3], 3).rotated()
        step.given |= {"query_norm": c.real(16), "key_norm": c.real(16)}

        def nodes(names, results, step=step, epsilons=epsilons):
            made = [helper.make_node("Constant", [], ["apart"], value_ints=[2, 3, -1, 16]),
                    helper.make_node("Constant", [], ["together"], value_ints=[2, 3, -1])]
            for i, (weight, epsilon) in enumerate(((14, "q_norm_epsilon"), (15, "k_norm_epsilon"))):
                value = epsilons.get(epsilon, epsilons.get("qk_norm_epsilon"))
                made += [helper.make_node("Reshape", [names[i], "apart"], [f"apart{i}"]),
                         helper.make_node("SimplifiedLayerNormalization", [f"apart{i}", names[weight]], [f"normal{i}"], axis=-1,
                                          epsilon=value),
                         helper.make_node("Reshape", [f"normal{i}", "together"], [f"normalized{i}"])]
            inputs = ["normalized0", "normalized1", *names[2:14]]
            return [*made, helper.make_node(OP, inputs, results, domain=MS, **step.attributes)]

        step.add(f"norm_{name}", oracle=nodes, **epsilons)


def quantized(c):
    for bits in (8, 4):
        for channels in (False, True):
            name = f"{bits}_bits_{'channels' if channels else 'tensor'}"
            Step(c, [3, 3], 3, 0).quantized(bits, channels).add(f"prompt_{name}")
            Step(c, [3, 5], 1, 4).quantized(bits, channels).add(f"step_{name}")
            Step(c, [3, 4], 1, 8).quantized(bits, channels).rotated().add(f"step_buffer_{name}", 4, qk_output=1)
        Step(c, [7], 3, 4, packed=True).quantized(bits).add(f"steps_packed_{bits}_bits", local_window_size=2)
        Step(c, [3, 5], 1, 4).quantized(bits).narrow().add(f"step_{bits}_bits_f16")


def partial(c):
    """Fewer queries count than there are: what the others give is not specified."""
    for name, lengths, counts, queries, past in (("some", [5, 6], [2, 3], 3, 8), ("none", [5, 6], [0, 3], 3, 8),
                                                 ("step", [5, 6], [0, 1], 1, 8), ("first", [2, 3], [2, 3], 3, 6)):
        for rotary in (False, True):
            step = Step(c, lengths, queries, past, total=8)
            step.given["query_lengths"] = ints(*counts)
            if rotary:
                step.rotated()
            kept = np.zeros((2, queries, 64), bool)
            cached = np.zeros((2, 2, 8, 16), bool)
            for b in range(2):
                kept[b, :counts[b]], cached[b, :, :lengths[b]] = True, True
            step.add(f"counts_{name}{'_rotary' if rotary else ''}", kept={0: kept, 1: cached, 2: cached})


def resident(total, capacity, window):
    step = capacity - window + 1
    return total if total <= capacity else total - step * -(-(total - capacity) // step)


def windowed(c):
    def add(name, lengths, queries, capacity, window, counts=None, bits=None, **more):
        width = 32 if bits == 4 else 16
        step = Step(c, lengths, queries, capacity, width=width)
        step.attributes |= {"sliding_window_cache": 1, "local_window_size": window}
        kept, cached = np.ones((len(lengths), queries, 4 * width), bool), np.zeros((len(lengths), 2, capacity, width), bool)
        for b, length in enumerate(lengths):
            cached[b, :, :resident(length, capacity, window)] = True
            if counts is not None:
                kept[b, counts[b]:] = False
        if counts is not None:
            step.given["query_lengths"] = ints(*counts)
        if bits:
            step.quantized(bits)
            cached = cached[..., :step.given["past_key"].shape[-1]]
        if more.get("rotary"):
            step.rotated()
        if more.get("bias"):
            step.biased(1, 4)
        step.add(f"windowed_{name}", kept={0: kept, 1: cached, 2: cached})

    add("full", [4, 4], 1, 4, 4)
    add("evict", [5, 9], 1, 4, 3)
    add("tight", [5, 9], 1, 3, 3)
    add("loose", [7, 11], 1, 6, 2)
    add("rotary", [5, 9], 1, 4, 3, rotary=True)
    add("bias", [5, 7], 1, 4, 3, bias=True)
    add("prompt", [3, 3], 3, 4, 3)
    add("long_prompt", [7], 7, 4, 3)
    add("steps", [9], 3, 4, 3)
    add("counts", [2, 6], 3, 4, 3, counts=[2, 1])
    for bits in (8, 4):
        add(f"{bits}_bits", [5, 9], 1, 4, 3, bits=bits)


def fuzz(c):
    for i in range(24):
        groups = int(c.rng.integers(1, 4))
        heads, width = groups * int(c.rng.integers(1, 4)), choose(c, 8, 16, 32)
        prompt, batch = choose(c, True, False), int(c.rng.integers(1, 4))
        if prompt:
            queries = int(c.rng.integers(1, 6))
            lengths, past = [queries] * batch, choose(c, None, 0, 7)
        else:
            queries = int(c.rng.integers(1, 4)) if batch == 1 else 1
            past = int(c.rng.integers(1, 7))
            lengths = [int(c.rng.integers(queries, past + queries + 1)) for _ in range(batch - 1)] + [past + queries]
        step = Step(c, lengths, queries, past, heads=heads, groups=groups, width=width, packed=choose(c, True, False))
        if width % 16 == 0 and choose(c, True, False):
            step.rotated(interleaved=choose(c, 0, 1))
        if choose(c, True, False, False):
            step.biased(choose(c, 1, batch), choose(c, 1, heads))
        if past is not None and width % 16 == 0 and choose(c, True, False, False):
            step.quantized(choose(c, 8, 4), choose(c, True, False))
        if choose(c, True, False, False):
            step.given["sinks"] = c.real(heads)
        attributes = {**choose(c, {}, {"scale": 0.3}), **choose(c, {}, {"softcap": 0.9}), **choose(c, {}, {"smooth_softmax": 1}),
                      **choose(c, {}, {"local_window_size": int(c.rng.integers(1, 6))}, {"causal": 0})}
        mode = choose(c, 0, 1, 2)
        if choose(c, True, False, False):
            step.narrow()
        if mode:
            attributes["qk_output"] = mode
        step.add(f"fuzz_{i}", 4 if mode else 3, **attributes)


def caches(c):
    forms(c)
    for name, form in (("prompt", ([3, 3], 3)), ("step", ([3, 5], 1, 4))):
        Step(c, *form).rotated().biased(1, 4).add(f"{name}_constant_total", 4, qk_output=1, constants=(6, 7, 8))
        Step(c, *form).narrow().add(f"{name}_f16")
        Step(c, *form).rotated().biased(1, 4).narrow().add(f"{name}_rotary_bias_f16")
    normalized(c)
    quantized(c)
    partial(c)
    windowed(c)
    fuzz(c)
