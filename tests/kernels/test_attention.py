"""Attention against float64 and onnxruntime: layouts, grouped heads, masks, run-time lengths, several key blocks."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.attention import lower_attention
from codegen.targets import target
from codegen.tile.interpreter import interpret
from codegen.tile.ir import Imm, Instr
from codegen.tile.observer import Observer, Touched
from codegen.tile.text import parse_program
from graph_opt.ir.core import Node
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate
from tests.kernels.lowered import CHIPS, HOSTS, Case, Op, check
from tests.kernels.on_chips import check_on_chips

rng = np.random.default_rng(0)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.normal(0, 1, shape).astype(dtype)


def attention(mask: bool = False, **attrs: object) -> Op:
    return ("Attention", ["q", "k", "v", *(["m"] if mask else [])], ["y"], attrs)


def exact(arrays: dict[str, np.ndarray], scale: float | None = None, window: int = -1, causal: int = 0) -> np.ndarray:
    """Attention in float64 on [B, H, S, D] operands."""
    q, k, v = (arrays[n].astype(np.float64) for n in "qkv")
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if "m" in arrays:
        mask = arrays["m"]
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    distance = np.arange(scores.shape[-1]) - np.arange(scores.shape[-2])[:, None]
    scores = np.where((distance > 0) & bool(causal) | (distance < -window) & (window >= 0), -np.inf, scores)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        result = weights / weights.sum(-1, keepdims=True) @ v
    # The operator's own rule (ONNX node tests *_fullymasked_*): a row that may see nothing gives 0.
    return np.where(np.isneginf(scores).all(-1, keepdims=True), 0.0, result)


class Exact(Case):
    """A case whose expected result is that of float64."""

    def expected(self) -> dict[str, np.ndarray]:
        (attention_,) = [op for op in self.ops if op[0] == "Attention"]
        arrays = dict(self.arrays)
        made = {}
        for op, inputs, outputs, _ in self.ops:
            if op == "Transpose" and inputs[0] in arrays:
                arrays[outputs[0]] = made[outputs[0]] = arrays[inputs[0]].transpose(0, 2, 1, 3)
        named = {n: arrays[i] for n, i in zip("qkvm", attention_[1], strict=False)}
        attrs = attention_[3]
        hides = attrs.get("left_window_size", -1), attrs.get("is_causal", 0)
        made["y"] = exact(named, attrs.get("scale"), *hides).astype(arrays[attention_[1][0]].dtype)
        if "z" in self.outputs:
            made["z"] = made["y"].transpose(0, 2, 1, 3)
        return made


def case(b: int, h: int, s: int, t: int, d: int, hk: int = 0, dv: int = 0, mask: np.ndarray | None = None,
         symbolic: bool = False, dtype: type = np.float32, **attrs: object) -> Exact:  # fmt: skip
    hk, dv = hk or h, dv or d
    arrays = {"q": normal(b, h, s, d, dtype=dtype), "k": normal(b, hk, t, d, dtype=dtype),
              "v": normal(b, hk, t, dv, dtype=dtype)}  # fmt: skip
    shapes = {"q": ("b", h, "s", d), "k": ("b", hk, "t", d), "v": ("b", hk, "t", dv), "y": ("b", h, "s", dv)}
    if mask is not None:
        arrays["m"] = mask
        names = dict(zip(range(4), ("b", h, "s", "t"), strict=True))
        lead = 4 - mask.ndim
        shapes["m"] = tuple(n if n == 1 else names[lead + i] for i, n in enumerate(mask.shape))
    return Exact("attention", [attention(mask is not None, **attrs)], arrays, ["y"], [], shapes if symbolic else {},
                 dims={"b": b, "s": s, "t": t}, opset=23)  # fmt: skip


@pytest.mark.parametrize(
    "s,t,d,dv", [(1, 1, 8, 8), (7, 5, 33, 17), (64, 65, 8, 8), (130, 33, 33, 17), (3, 1025, 8, 8), (66, 1100, 33, 17)]
)
def test_lengths(s: int, t: int, d: int, dv: int) -> None:
    check(case(2, 2, s, t, d, dv=dv), lower_attention, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("s,t", [(1, 1), (5, 600), (130, 33)])
def test_run_time_lengths(s: int, t: int) -> None:
    check(case(2, 3, s, t, 16, symbolic=True), lower_attention, rtol=1e-4, atol=3e-6)
    mask = np.where(rng.random((2, 1, s, t)) < 0.3, -1e9, 0).astype(np.float32)
    mask[..., 0] = 0
    check(case(2, 3, s, t, 16, mask=mask, symbolic=True), lower_attention, rtol=1e-4, atol=3e-6)


def test_grouped_heads() -> None:
    check(case(1, 6, 9, 20, 16, hk=2), lower_attention, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("shape", [(2, 3, 9, 600), (2, 1, 1, 600), (1, 1, 9, 600), (9, 600), (1, 3, 1, 600)], ids=str)
@pytest.mark.parametrize("blocks", [False, True], ids=["one block", "blocks"])
def test_masks(shape: tuple[int, ...], blocks: bool) -> None:
    mask = rng.normal(0, 2, shape).astype(np.float32)
    for m in (mask, mask > 0):
        c = case(2, 3, 9, 600, 16, mask=m, symbolic=blocks)
        check(c, lower_attention, rtol=1e-4, atol=3e-6)


class Softmax(Exact):
    """The attention of primitive operators: a softmax over -inf alone gives NaN."""

    def node(self, results: dict[str, np.ndarray]) -> Node:
        node = super().node(results)
        node.attrs["softmax_of_nothing"] = "nan"
        return node

    def expected(self) -> dict[str, np.ndarray]:
        hidden = np.isneginf(self.arrays["m"]).all(-1)[..., None]
        return {"y": np.where(hidden, np.float32(np.nan), super().expected()["y"])}


@pytest.mark.parametrize("kind", [Exact, Softmax])
@pytest.mark.parametrize("blocks", [False, True], ids=["one block", "blocks"])
def test_rows_masked_everywhere(blocks: bool, kind: type[Exact]) -> None:
    """The least finite number hides everything: weights are uniform. -inf leaves nothing."""
    mask = np.zeros((1, 1, 4, 600), np.float32)
    mask[..., 1, :] = np.finfo(np.float32).min
    mask[..., 2, :] = -np.inf
    mask[..., 3, :599] = -np.inf
    c = case(1, 2, 4, 600, 8, mask=mask, symbolic=blocks)
    c = kind(c.family, c.ops, c.arrays, c.outputs, (), c.symbolic, dims=c.dims, opset=23)
    nothing = c.expected()["y"][:, :, 2]
    assert np.isnan(nothing).all() if kind is Softmax else not nothing.any()
    check(c, lower_attention, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("blocks", [False, True], ids=["one block", "blocks"])
def test_rows_that_a_bool_mask_hides_everywhere_give_0(blocks: bool) -> None:
    mask = np.ones((1, 1, 4, 600), bool)
    mask[..., 1, :] = False
    mask[..., 2, :599] = False
    c = case(1, 2, 4, 600, 8, mask=mask, symbolic=blocks)
    assert not c.expected()["y"][:, :, 1].any()
    check(c, lower_attention, rtol=1e-4, atol=3e-6)


def test_head_transposes_are_strides() -> None:
    arrays = {n: normal(2, 9 if n == "q0" else 20, 3, 16) for n in ("q0", "k0", "v0")}
    turn = {"perm": [0, 2, 1, 3]}
    ops: list[Op] = [("Transpose", [f"{n}0"], [n], turn) for n in "qkv"]
    ops += [attention(), ("Transpose", ["y"], ["z"], turn)]
    check(Exact("attention", ops, arrays, ["z"], opset=23), lower_attention, rtol=1e-4, atol=3e-6)


def test_scale_and_half_precision() -> None:
    for scale in (0.7, 0.0, -0.5):
        check(case(1, 2, 9, 40, 16, scale=scale), lower_attention, rtol=1e-4, atol=3e-6)
    for symbolic in (False, True):
        check(case(1, 2, 9, 600, 16, dtype=np.float16, symbolic=symbolic), lower_attention, rtol=2e-3, atol=1e-3)


def test_three_axes_against_onnxruntime() -> None:
    arrays = {"q": normal(2, 9, 24), "k": normal(2, 20, 24), "v": normal(2, 20, 24)}
    c = Case("attention", [attention(q_num_heads=3, kv_num_heads=3, softcap=2.0)], arrays, ["y"], opset=23)
    check(c, lower_attention, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("s,t", [(1, 1), (70, 70), (9, 20), (600, 600)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_causal(s: int, t: int, symbolic: bool) -> None:
    c = case(1, 2, s, t, 16, symbolic=symbolic, is_causal=1)
    c = Case(c.family, c.ops, c.arrays, c.outputs, (), c.symbolic, dims=c.dims, opset=23)
    check(c, lower_attention, hosts=HOSTS[-1:], rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("s,t,left,causal", [(150, 150, 40, 1), (150, 300, 0, 1), (70, 200, 3, 0), (3, 400, 1, 1), (1, 9, 2, 1)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_windows(s: int, t: int, left: int, causal: int, symbolic: bool) -> None:
    c = case(1, 4, s, t, 16, hk=2, symbolic=symbolic, left_window_size=left, is_causal=causal)
    check(c, lower_attention, hosts=HOSTS[-1:], rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("chip", CHIPS)
def test_windows_on_chips(chip: str) -> None:
    c = case(1, 2, 40, 40, 32, hk=1, dtype=np.float16, left_window_size=7, is_causal=1)
    check_on_chips(c, lower_attention, 4e-3, 4e-3, [chip])


class Products(Observer):
    """Counts products and the elements of K or V that they read."""

    def __init__(self) -> None:
        self.count = self.elements = 0

    def instruction(self, instr: Instr, dst: Touched, srcs: tuple[Touched | Imm, ...]) -> None:
        if instr.op == "TMATMUL":
            assert isinstance(srcs[1], Touched)
            self.count, self.elements = self.count + 1, self.elements + srcs[1].elements


def products(s: int, t: int, past: int, **attrs: object) -> Products:
    """What a call of `s` queries multiplies, with 6 heads on 2 of K and a cache of `past` of t keys."""
    wanted = case(1, 6, s, t, 8, hk=2, symbolic=True, is_causal=1, **attrs)
    arrays = {**wanted.arrays, "n": np.array([past + s])}
    ops = [("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], wanted.ops[0][3])]
    node = Case("attention", ops, arrays, ["y"], [], {**wanted.symbolic, "n": ("b",)}).node({"y": arrays["q"]})
    (record,) = lower_attention(node, target(HOSTS[-1]))
    assert isinstance(record, KernelRecord)
    program, observer = parse_program(record.program), Products()
    dims = {d.name: evaluate(v, {"b": 1, "s": s, "t": t}) for d, v in zip(program.dims, record.dims, strict=True)}
    values = {"q": arrays["q"], "k": arrays["k"], "v": arrays["v"], "n": arrays["n"], "y": np.zeros_like(arrays["q"])}
    tensors = {p.name: values[str(o.value)] for p, o in zip(program.params, record.operands, strict=True)}
    interpret(program, tensors, dims, observer=observer)
    return observer


def test_one_query_reads_keys_and_values_once() -> None:
    """The three query heads of a head of K are rows of the same products, and only the keys that count are read."""
    found = products(1, 4000, 999)
    assert found.count == 2 * 2 * 2 and found.elements == 2 * 2 * 1000 * 8


def test_keys_before_the_window_are_not_read() -> None:
    assert products(1, 4000, 3000, left_window_size=99).elements <= 2 * 2 * 3 * 128 * 8
    assert products(300, 300, 0, left_window_size=0).count < products(300, 300, 0).count


@pytest.mark.parametrize("total", [9, 1])
def test_mask_whose_extent_only_the_run_knows(total: int) -> None:
    mask = rng.normal(0, 2, (2, 1, 4, total)).astype(np.float32)
    c = case(2, 3, 4, 9, 16, mask=mask, symbolic=True)
    c = Exact(c.family, c.ops, c.arrays, c.outputs, (), {**c.symbolic, "m": ("b", 1, "s", "total")},
              dims={**c.dims, "total": total}, opset=23)  # fmt: skip
    check(c, lower_attention, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize(
    "chip,dtype", [("Ascend910B2", np.float32), ("Ascend910B2", np.float16), ("Ascend310P3", np.float16)]
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_chips(chip: str, dtype: type, symbolic: bool) -> None:
    mask = rng.normal(0, 1, (1, 1, 70, 130)).astype(np.float32)
    tolerance = 1e-5 if dtype is np.float32 else 4e-3
    for c in (case(1, 2, 70, 130, 32, hk=1, dtype=dtype, symbolic=symbolic, mask=mask),
              case(2, 2, 5, 7, 16, dv=32, dtype=dtype, symbolic=symbolic)):  # fmt: skip
        check_on_chips(c, lower_attention, tolerance, tolerance, [chip])
