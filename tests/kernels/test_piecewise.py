"""Cuts and joins with arithmetic between them against onnxruntime: one task, on host classes and on chips."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.operands import NotLowerable
from codegen.kernels.piecewise import lower_piecewise
from codegen.targets import target
from tests.kernels.lowered import CHIPS, HOSTS, Case, Op, check

RNG = np.random.default_rng(8)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


class Cuts:
    """Operators under construction, with the constants that their Slices take."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.constants: dict[str, np.ndarray] = {}

    def slice(self, x: str, y: str, start: int, end: int, axis: int, step: int = 1) -> None:
        names = [f"{y}_{part}" for part in ("start", "end", "axis", "step")]
        values = (start, end, axis, step)
        self.constants.update((n, np.array([v], np.int64)) for n, v in zip(names, values, strict=True))
        self.ops.append(("Slice", [x, *names], [y], {}))

    def add(self, op: str, inputs: list[str], output: str, **attrs: object) -> None:
        self.ops.append((op, inputs, [output], attrs))

    def case(self, arrays: dict[str, np.ndarray], symbolic: dict[str, tuple] | None = None, **dims: int) -> Case:
        return Case("piecewise", self.ops, {**arrays, **self.constants}, ["y"], list(self.constants), symbolic or {},
                    dims=dims)  # fmt: skip


def everywhere(case: Case, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    check(case, lower_piecewise, rtol=rtol, atol=atol)
    check(case, lower_piecewise, rtol=rtol, atol=atol, hosts=CHIPS)


def rotate_half(half: int, width: int, axis: int = -1) -> Cuts:
    """x*c + Concat(-x[h:], x[:h])*s, as exporters write it."""
    cuts = Cuts()
    cuts.slice("x", "a", 0, half, axis)
    cuts.slice("x", "b", half, width, axis)
    cuts.add("Neg", ["b"], "n")
    cuts.add("Concat", ["n", "a"], "t", axis=axis)
    cuts.add("Mul", ["x", "c"], "p")
    cuts.add("Mul", ["t", "s"], "q")
    cuts.add("Add", ["p", "q"], "y")
    return cuts


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 7, 16), (1, 2, 33, 10), (2, 12, 5, 130)], ids=str)
def test_rotate_half(shape: tuple[int, ...]) -> None:
    *_, rows, width = shape
    arrays = {"x": normal(*shape), "c": normal(1, 1, rows, width), "s": normal(1, 1, rows, width)}
    everywhere(rotate_half(width // 2, width).case(arrays))


def test_unequal_parts_and_run_time_rows() -> None:
    for b, s in ((1, 1), (2, 71)):
        arrays = {"x": normal(b, 3, s, 11), "c": normal(b, 1, s, 11), "s": normal(b, 1, s, 11)}
        shapes = {"x": ("b", 3, "s", 11), "c": ("b", 1, "s", 11), "s": ("b", 1, "s", 11), "y": ("b", 3, "s", 11)}
        cuts = rotate_half(4, 11)
        shapes.update(a=("b", 3, "s", 4), b=("b", 3, "s", 7), n=("b", 3, "s", 7))
        shapes.update((name, shapes["y"]) for name in "tpq")
        everywhere(cuts.case(arrays, shapes, b=b, s=s))


def test_a_head_transpose_is_a_view() -> None:
    cuts = rotate_half(8, 16)
    cuts.ops.insert(0, ("Transpose", ["x0"], ["x"], {"perm": [0, 2, 1, 3]}))
    everywhere(cuts.case({"x0": normal(2, 9, 3, 16), "c": normal(9, 16), "s": normal(9, 16)}))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats(dtype: type) -> None:
    arrays = {n: normal(*s, dtype=dtype) for n, s in (("x", (2, 9, 32)), ("c", (9, 32)), ("s", (9, 32)))}
    tolerance = 2e-3 if dtype is np.float16 else 1e-14
    check(rotate_half(16, 32).case(arrays), lower_piecewise, rtol=tolerance, atol=tolerance)


def test_bf16() -> None:
    arrays = {n: normal(*s, dtype=ml_dtypes.bfloat16) for n, s in (("x", (9, 32)), ("c", (9, 32)), ("s", (9, 32)))}
    case = rotate_half(16, 32).case(arrays)
    case.wide = True
    check(case, lower_piecewise, rtol=2**-6, atol=2**-6)


def test_pairs_and_a_rest() -> None:
    """Interleaved rotary embedding of some channels: Concat along the pairs, then along the channels."""
    cuts = Cuts()
    cuts.slice("x", "f", 0, 3, 2)
    cuts.slice("f", "a", 0, 1, 3)
    cuts.slice("f", "b", 1, 2, 3)
    for out, left, right, op in (("u", "c", "s", "Sub"), ("v", "s", "c", "Add")):
        cuts.add("Mul", ["a", left], f"{out}0")
        cuts.add("Mul", ["b", right], f"{out}1")
        cuts.add(op, [f"{out}0", f"{out}1"], out)
    cuts.add("Concat", ["u", "v"], "r", axis=3)
    cuts.slice("x", "g", 3, 5, 2)
    cuts.add("Concat", ["r", "g"], "y", axis=2)
    everywhere(cuts.case({"x": normal(2, 33, 5, 2), "c": normal(2, 33, 3, 1), "s": normal(2, 33, 3, 1)}))


def test_split_steps_and_axes_of_one() -> None:
    """Even and odd channels by steps, joined over a new axis; parts of a Split with unequal sizes."""
    cuts = Cuts()
    cuts.slice("x", "a", 0, 12, -1, step=2)
    cuts.slice("x", "b", 11, -13, -1, step=-2)
    cuts.constants["axes"] = np.array([2], np.int64)
    cuts.add("Exp", ["a"], "e")
    for name in ("e", "b"):
        cuts.add("Unsqueeze", [name, "axes"], f"{name}u")
    cuts.add("Concat", ["eu", "bu"], "y", axis=2)
    everywhere(cuts.case({"x": normal(3, 5, 12)}), rtol=1e-5)
    cuts = Cuts()
    cuts.constants["parts"] = np.array([2, 5], np.int64)
    cuts.ops.append(("Split", ["x", "parts"], ["a", "b"], {"axis": 1}))
    cuts.add("Tanh", ["a"], "h")
    cuts.add("Concat", ["b", "h", "b"], "y", axis=1)
    everywhere(cuts.case({"x": normal(3, 7, 6)}), rtol=1e-5)


@pytest.mark.parametrize("width", [2, 12, 14])
def test_interleaved_channels(width: int) -> None:
    """Pairs joined over a new axis and laid side by side, then arithmetic with all channels and a rest behind them."""
    cuts = Cuts()
    cuts.slice("x", "a", 0, width, -1, step=2)
    cuts.slice("x", "b", 1, width, -1, step=2)
    cuts.constants.update(last=np.array([-1], np.int64), flat=np.array([0, 0, -1], np.int64))
    cuts.add("Neg", ["b"], "n")
    for name in "na":
        cuts.add("Unsqueeze", [name, "last"], f"{name}u")
    cuts.add("Concat", ["nu", "au"], "p", axis=-1)
    cuts.add("Reshape", ["p", "flat"], "t")
    cuts.slice("x", "f", 0, width, -1)
    cuts.add("Mul", ["t", "f"], "m")
    cuts.slice("x", "g", width, 17, -1)
    cuts.add("Concat", ["m", "g"], "y", axis=-1)
    everywhere(cuts.case({"x": normal(3, 5, 17)}))


def test_long_joined_axes_go_in_blocks() -> None:
    arrays = {"x": normal(2, 20001), "c": normal(1, 20001), "s": normal(1, 20001)}
    check(rotate_half(9000, 20001).case(arrays), lower_piecewise, hosts=HOSTS[-1:])


def test_nothing_to_compute_and_forms_without_a_kernel() -> None:
    empty = rotate_half(4, 8).case({n: normal(*s) for n, s in (("x", (0, 8)), ("c", (1, 8)), ("s", (1, 8)))})
    assert lower_piecewise(empty.node(empty.expected()), target(HOSTS[-1])) == []
    case = rotate_half(4, 8).case({n: normal(3, 8) for n in "xcs"})
    case.symbolic = {"b": (3, "h"), "n": (3, "h"), "a": (3, 4)}
    with pytest.raises(NotLowerable, match="run-time"):
        lower_piecewise(case.node(case.expected()), target(HOSTS[-1]))
