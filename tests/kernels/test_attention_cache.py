"""Attention with past keys and values, and in 16-bit floats, against float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.attention import lower_attention
from tensor_types.dims import dim
from tests.kernels.lowered import HOSTS, Case, Op, check
from tests.kernels.on_chips import check_on_chips

RNG = np.random.default_rng(2)
BF16 = ml_dtypes.bfloat16
TURN = {"perm": [0, 2, 1, 3]}


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


@dataclass
class Exact(Case):
    """The operator in float64, on heads [B, H, S, D]; `heads` as the case was made, whatever the layout."""

    heads: Mapping[str, np.ndarray] = field(default_factory=dict)
    flat: bool = False

    def expected(self) -> dict[str, np.ndarray]:
        attrs = next(a for op, _, _, a in self.ops if op == "Attention")
        made: dict[str, np.ndarray] = {}
        full = {}
        for name in "kv":
            parts = [self.heads[n] for n in (f"p{name}", name) if n in self.heads]
            full[name] = np.concatenate(parts, axis=2)
            made[f"n{name}"] = full[name]
        q = self.heads["q"].astype(np.float64)
        group = q.shape[1] // full["k"].shape[1]
        k, v = (np.repeat(full[n].astype(np.float64), group, axis=1) for n in "kv")
        scores = q @ k.swapaxes(-1, -2) * (attrs.get("scale") or q.shape[-1] ** -0.5)
        cap = attrs.get("softcap", 0.0)
        scores = np.tanh(scores / cap) * cap if cap else scores
        rows, columns = scores.shape[-2:]
        if attrs.get("is_causal"):
            past = self.heads["pk"].shape[2] if "pk" in self.heads else 0
            scores = np.where(np.arange(columns) <= np.arange(rows)[:, None] + past, scores, -np.inf)
        if "m" in self.arrays:
            mask = self.arrays["m"]
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        y = (weights / weights.sum(-1, keepdims=True) @ v).astype(self.heads["q"].dtype)
        made["y"] = y.transpose(0, 2, 1, 3).reshape(*y.shape[::2], -1) if self.flat else y
        made["z"] = y.transpose(0, 2, 1, 3)
        for name in "qkv":
            made[f"t{name}"] = self.heads[name]
        used = {o for _, _, outputs, _ in self.ops for o in outputs}
        return {n: a for n, a in made.items() if n in used}


def cached(
    q_heads: int, heads: int, rows: int, past: int, size: int, values: int = 0, form: str = "bhsd",
    mask: np.ndarray | None = None, dtype: type = np.float32, symbolic: bool = False, batch: int = 2, fresh: int = 0,
    **attrs: Any,
) -> Exact:  # fmt: skip
    """`form`: 'bhsd', 'bshd' (head transposes around the node) or 'flat' (3-D). past -1: there is no cache."""
    fresh, values = fresh or rows, values or size
    held = {"q": normal(batch, q_heads, rows, size, dtype=dtype), "k": normal(batch, heads, fresh, size, dtype=dtype),
            "v": normal(batch, heads, fresh, values, dtype=dtype)}  # fmt: skip
    if past >= 0:
        held["pk"] = normal(batch, heads, past, size, dtype=dtype)
        held["pv"] = normal(batch, heads, past, values, dtype=dtype)
    arrays = dict(held)
    shapes: dict[str, tuple] = {n: ("b", a.shape[1], {"q": "s", "pk": "p", "pv": "p"}.get(n, "s"), a.shape[3])
                                for n, a in held.items()}  # fmt: skip
    total = dim("p") + dim("s") if past >= 0 else "s"
    shapes.update(y=("b", q_heads, "s", values), nk=("b", heads, total, size), nv=("b", heads, total, values))
    names = {n: n for n in "qkv"}
    ops: list[Op] = []
    if form != "bhsd":
        for n in "qkv":
            turned = held[n].transpose(0, 2, 1, 3)
            shapes[f"t{n}"] = shapes[n]
            b, h, s, d = shapes[n]
            shapes[n] = (b, s, h, d) if form == "bshd" else (b, s, h * d)
            arrays[n] = np.ascontiguousarray(turned if form == "bshd" else turned.reshape(*turned.shape[:2], -1))
            if form == "bshd":
                names[n] = f"t{n}"
                ops.append(("Transpose", [n], [f"t{n}"], TURN))
    if form == "flat":
        attrs.update(q_num_heads=q_heads, kv_num_heads=heads)
        shapes["y"] = ("b", "s", q_heads * values)
    shapes["z"] = ("b", "s", q_heads, values)
    inputs = [names["q"], names["k"], names["v"], "m" if mask is not None else ""]
    if mask is not None:
        arrays["m"] = mask
        wide = dict(zip(range(4), ("b", q_heads, "s", total), strict=True))
        shapes["m"] = tuple(d if d == 1 else wide[4 - mask.ndim + i] for i, d in enumerate(mask.shape))
    outputs = ["y"]
    if past >= 0:
        inputs += ["pk", "pv"]
        outputs += ["nk", "nv"]
    ops.append(("Attention", inputs, outputs, attrs))
    if form == "bshd":
        ops.append(("Transpose", ["y"], ["z"], TURN))
        outputs = ["z", *outputs[1:]]
    return Exact("attention", ops, arrays, outputs, (), shapes if symbolic else {}, heads=held, flat=form == "flat",
                 dims={"b": batch, "s": rows, "p": past}, opset=23)  # fmt: skip


@pytest.mark.parametrize("form,rows,past,symbolic,causal", [
    ("bhsd", 1, 1, False, 1), ("bhsd", 1, 700, True, 1), ("bhsd", 70, 600, True, 1), ("bhsd", 3, 0, False, 1), ("bshd", 1, 255, True, 0),
    ("bshd", 5, 3, False, 1), ("flat", 1, 255, False, 1), ("flat", 5, 3, True, 1), ("flat", 3, 0, True, 0),
])  # fmt: skip
def test_present_and_result(form: str, rows: int, past: int, symbolic: bool, causal: int) -> None:
    case = cached(6, 2, rows, past, 16, 8, form, symbolic=symbolic, is_causal=causal, scale=0.3)
    check(case, lower_attention, hosts=HOSTS[-1:], rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("host", HOSTS)
def test_host_classes(host: str) -> None:
    case = cached(4, 2, 65, 7, 17, is_causal=1)
    check(case, lower_attention, hosts=[host], rtol=1e-4, atol=3e-6)


def test_keys_of_another_number_than_queries() -> None:
    """The first query stands behind the past, whatever the number of fresh keys."""
    for fresh in (1, 9):
        case = cached(2, 2, 4, 6, 16, fresh=fresh, is_causal=1)
        check(case, lower_attention, hosts=HOSTS[-1:], rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("shape", [(3, 10), (1, 1, 1, 10), (2, 4, 3, 10)], ids=str)
def test_masks_reach_over_the_past(shape: tuple[int, ...]) -> None:
    mask = normal(*shape)
    allowed = mask > 0
    allowed[..., 0] = True
    for m, symbolic, attrs in ((mask, True, {"softcap": 2.0}), (allowed, False, {"is_causal": 1})):
        case = cached(4, 2, 3, 7, 16, mask=m, symbolic=symbolic, **attrs)
        check(case, lower_attention, hosts=HOSTS[-1:], rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("rows,past,symbolic", [(1, 300, True), (9, 40, False), (70, -1, False), (66, 1100, True)])
def test_16_bit_floats(dtype: type, rows: int, past: int, symbolic: bool) -> None:
    """Products and softmax in f32: results differ from float64 by little more than their own rounding."""
    step = float(ml_dtypes.finfo(dtype).eps)
    case = cached(6, 2, rows, past, 32, 24, "flat" if symbolic else "bhsd", dtype=dtype, symbolic=symbolic, is_causal=1)
    hosts = HOSTS if rows == 9 else HOSTS[-1:]
    check(case, lower_attention, hosts=hosts, rtol=step, atol=step / 8)


@pytest.mark.parametrize("kind", ["same", "f32", "bool"])
@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_masks_of_16_bit_floats(dtype: type, kind: str) -> None:
    mask = normal(1, 1, 9, 49)
    m = mask > 0 if kind == "bool" else mask.astype(np.float32 if kind == "f32" else dtype)
    if kind == "bool":
        m[..., 0] = True
    step = float(ml_dtypes.finfo(dtype).eps)
    check(cached(2, 2, 9, 40, 16, mask=m, dtype=dtype), lower_attention, hosts=HOSTS[-1:], rtol=step, atol=step / 4)


@pytest.mark.parametrize("chip", ["Ascend910B2", "Ascend310P3"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_chips(chip: str, symbolic: bool) -> None:
    case = cached(4, 2, 5, 130, 32, form="flat", dtype=np.float16, symbolic=symbolic, is_causal=1)
    check_on_chips(case, lower_attention, 4e-3, 4e-3, [chip])
