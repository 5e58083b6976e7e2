"""Reductions and normalisations against onnxruntime: axes, formats, run-time lengths, prologues and epilogues."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from codegen.kernels.reduction import lower_reduction
from tests.kernels.lowered import CHIPS, HOSTS, Case, check

rng = np.random.default_rng(0)
OPS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
       "ReduceSumSquare"]  # fmt: skip


def f32(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def reduce_case(op: str, x: np.ndarray, axes: tuple[int, ...], keepdims: int, names: tuple[Any, ...] | None = None,
                last: bool = False) -> Case:  # fmt: skip
    arrays = {"x": x, "axes": np.array(axes, np.int64)}
    symbolic, dims = {}, {}
    if names is not None:
        out = [1 if i in axes else n for i, n in enumerate(names) if keepdims or i not in axes]
        symbolic = {"x": names, "y": tuple(out)}
        dims = {n: d for n, d in zip(names, x.shape, strict=True) if isinstance(n, str)}
    ops = [(op, ["x", "axes"], ["y"], {"keepdims": keepdims})]
    formats = ["x", *(["y"] if keepdims else [])] if last else []
    return Case("reduction", ops, arrays, ["y"], ["axes"], symbolic, formats, dims)


@pytest.mark.parametrize("op", OPS)
def test_every_choice_of_axes(op: str) -> None:
    for shape in ((3, 17, 5), (2, 1, 33)):
        for count in (1, 2, 3):
            for axes in combinations(range(3), count):
                check(reduce_case(op, f32(*shape), axes, count % 2), lower_reduction, 2e-5, 1e-5, HOSTS[-1:])


@pytest.mark.parametrize("op", OPS)
def test_channels_last_over_pixels(op: str) -> None:
    for keepdims in (0, 1):
        check(reduce_case(op, f32(2, 20, 7, 9) * 0.5, (2, 3), keepdims, last=True), lower_reduction, 2e-5, 1e-5)


@pytest.mark.parametrize("op", OPS)
def test_run_time_sizes(op: str) -> None:
    for sizes in ((1, 1), (3, 70), (2, 5000)):
        x = f32(sizes[0], 6, sizes[1]) * np.float32(0.01 if sizes[1] > 100 else 1)
        if op == "ReduceProd":
            x = 1 + x * np.float32(0.01)
        check(reduce_case(op, x, (2,), 1, ("n", 6, "m")), lower_reduction, 5e-5, 1e-5, HOSTS)
        y = np.ascontiguousarray(x.transpose(0, 2, 1))[..., None]
        y = y.transpose(0, 2, 1, 3)
        case = reduce_case(op, np.ascontiguousarray(y), (2, 3), 1, ("n", 6, "m", 1), last=True)
        check(case, lower_reduction, 5e-5, 1e-5)


def test_integers() -> None:
    x = rng.integers(-9, 9, (4, 33)).astype(np.int32)
    for op in ("ReduceSum", "ReduceMax", "ReduceMin"):
        check(reduce_case(op, x, (1,), 0), lower_reduction)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions(op: str, last: int) -> None:
    x = rng.integers(0, 4, (5, 37, 3)).astype(np.float32)
    for where in range(3):
        for keepdims in (0, 1):
            ops = [(op, ["x"], ["y"], {"axis": where, "keepdims": keepdims, "select_last_index": last})]
            check(Case("reduction", ops, {"x": x}, ["y"]), lower_reduction)
    ops = [(op, ["x"], ["y"], {"axis": 1, "keepdims": 0, "select_last_index": last})]
    check(Case("reduction", ops, {"x": x}, ["y"], (), {"x": ("n", "m", 3), "y": ("n", 3)}, (), {"n": 5, "m": 37}),
          lower_reduction)  # fmt: skip


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (33, 128), (2, 3, 40), (2, 70000)], ids=str)
def test_softmax(op: str, shape: tuple[int, ...]) -> None:
    for where in {0, len(shape) - 1} if shape[-1] < 1000 else {1}:
        ops = [("Mul", ["x", "s"], ["t"], {}), ("Add", ["t", "mask"], ["u"], {}), (op, ["u"], ["y"], {"axis": where})]
        arrays = {"x": f32(*shape) * 5, "s": np.array(0.3, np.float32), "mask": f32(shape[-1])}
        check(Case("reduction", ops, arrays, ["y"], ["s"]), lower_reduction, 1e-5, 1e-6)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 17), (2, 9000)], ids=str)
def test_softmax_of_run_time_rows(op: str, sizes: tuple[int, int]) -> None:
    case = Case("reduction", [(op, ["x"], ["y"], {"axis": -1})], {"x": f32(sizes[0], 2, sizes[1])}, ["y"], (),
                {"x": ("n", 2, "m"), "y": ("n", 2, "m")}, (), {"n": sizes[0], "m": sizes[1]})  # fmt: skip
    check(case, lower_reduction, 2e-5, 1e-6)


@pytest.mark.parametrize("shape", [(9, 5), (2, 9000)], ids=str)
def test_log_softmax_of_a_dominant_element(shape: tuple[int, int]) -> None:
    """Near 0 the logarithm of the sum is that of 1 + little."""
    x = np.round(f32(*shape) * 64) / 64  # differences are exact
    x[:, 3] = np.arange(10, 10 + 6 * shape[0], 6)
    below = x.astype(np.float64) - x[:, 3:4]
    wanted = below - np.log1p(np.exp(np.delete(below, 3, 1)).sum(1, keepdims=True))
    given = Case("reduction", [("LogSoftmax", ["x"], ["y"], {"axis": -1})], {"x": x}, ["y"],
                 exact={"y": wanted.astype(np.float32)})  # fmt: skip
    check(given, lower_reduction, 1e-6, 0)


@pytest.mark.parametrize("shape", [(1, 1, 16), (2, 5, 768), (3, 7, 33)], ids=str)
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_norms_with_residual_and_activation(op: str, shape: tuple[int, ...]) -> None:
    inputs = ["a", "gain", "bias"] if op == "LayerNormalization" else ["a", "gain"]
    norm = (op, inputs, ["n"], {"axis": -1, "epsilon": 1e-6})
    ops: list[Any] = [("Add", ["x", "r"], ["a"], {}), norm, ("Tanh", ["n"], ["y"], {})]
    arrays = {"x": f32(*shape) + 3, "r": f32(*shape), "gain": f32(shape[-1]), "bias": f32(shape[-1])}
    if op == "RMSNormalization":
        del arrays["bias"]
    constants = [c for c in ("gain", "bias") if c in arrays]
    case = Case("reduction", ops, arrays, ["a", "y"], constants, opset=23 if op == "RMSNormalization" else 18)
    check(case, lower_reduction, 1e-4, 2e-5)
    names: tuple[Any, ...] = ("n", "m", shape[-1])
    case.symbolic = {k: names for k in ("x", "r", "a", "n", "y")}
    case.dims = {"n": shape[0], "m": shape[1]}
    check(case, lower_reduction, 1e-4, 2e-5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
def test_instance_norm_and_global_pools(last: bool, symbolic: bool) -> None:
    arrays = {"x": f32(2, 19, 6, 5), "g": f32(19), "b": f32(19)}
    names = {"x": ("n", 19, "h", "w"), "y": ("n", 19, "h", "w")} if symbolic else {}
    dims = {"n": 2, "h": 6, "w": 5} if symbolic else {}
    formats = ["x", "y"] if last else []
    ops: list[Any] = [("InstanceNormalization", ["x", "g", "b"], ["y"], {"epsilon": 1e-5})]
    check(Case("reduction", ops, arrays, ["y"], ["g", "b"], names, formats, dims), lower_reduction, 1e-4, 1e-5)
    names = {"x": ("n", 19, "h", "w"), "y": ("n", 19, 1, 1), "z": ("n", 19, 1, 1)} if symbolic else {}
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        ops = [(op, ["x"], ["y"], {}), ("HardSigmoid", ["y"], ["z"], {})]
        case = Case("pool", ops, {"x": arrays["x"]}, ["z"], (), names, [*formats, *(["z"] if last else [])], dims)
        check(case, lower_reduction, 1e-4, 1e-5)


def test_half_precision_accumulates_in_f32() -> None:
    ops: list[Any] = [("Softmax", ["x"], ["y"], {"axis": -1})]
    case = Case("reduction", ops, {"x": f32(4, 300).astype(np.float16)}, ["y"], wide=True)
    check(case, lower_reduction, 2e-3, 1e-4)


@pytest.mark.parametrize("op", OPS)
def test_chips(op: str) -> None:
    for shape in ((3, 17, 5), (2, 1, 33)):
        for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            check(reduce_case(op, f32(*shape), axes, 1), lower_reduction, 2e-5, 1e-5, CHIPS)
    x = f32(2, 6, 5000) * np.float32(0.01) + np.float32(op == "ReduceProd")
    check(reduce_case(op, x, (2,), 1, ("n", 6, "m")), lower_reduction, 2e-4, 1e-5, CHIPS)
    check(reduce_case(op, f32(2, 20, 7, 9) * 0.5, (2, 3), 0, last=True), lower_reduction, 2e-5, 1e-5, CHIPS)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_on_chips(op: str, last: int) -> None:
    for shape in ((5, 37, 3), (2, 20000)):
        x = rng.integers(0, 4, shape).astype(np.float32)
        for where in range(len(shape)):
            ops = [(op, ["x"], ["y"], {"axis": where, "keepdims": 0, "select_last_index": last})]
            check(Case("reduction", ops, {"x": x}, ["y"]), lower_reduction, hosts=CHIPS)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_on_chips(op: str) -> None:
    for shape in ((1, 1), (5, 7), (2, 3, 40), (2, 20000)):
        ops = [("Mul", ["x", "s"], ["t"], {}), ("Add", ["t", "mask"], ["u"], {}), (op, ["u"], ["y"], {"axis": -1})]
        arrays = {"x": f32(*shape) * 5, "s": np.array(0.3, np.float32), "mask": f32(shape[-1])}
        check(Case("reduction", ops, arrays, ["y"], ["s"]), lower_reduction, 1e-5, 1e-5, CHIPS)
    case = Case("reduction", [(op, ["x"], ["y"], {"axis": -1})], {"x": f32(4, 300).astype(np.float16)}, ["y"], wide=True)
    check(case, lower_reduction, 2e-3, 1e-4, CHIPS)


def test_normalisations_on_chips() -> None:
    ops: list[Any] = [("LayerNormalization", ["x", "g", "b"], ["n"], {"axis": -1}), ("Add", ["n", "r"], ["y"], {})]
    for d in (48, 9000):
        arrays = {"x": f32(3, 5, d), "g": f32(d), "b": f32(d), "r": f32(3, 5, d)}
        check(Case("reduction", ops, arrays, ["y"], ["g", "b"]), lower_reduction, 1e-4, 1e-5, CHIPS)
    ops = [("InstanceNormalization", ["x", "g", "b"], ["y"], {"epsilon": 1e-5})]
    pool: list[Any] = [("GlobalAveragePool", ["x"], ["y"], {}), ("HardSigmoid", ["y"], ["z"], {})]
    arrays = {"x": f32(2, 19, 6, 5), "g": f32(19), "b": f32(19)}
    for last in (False, True):
        case = Case("reduction", ops, arrays, ["y"], ["g", "b"], last=["x", "y"] if last else [])
        check(case, lower_reduction, 1e-4, 1e-5, CHIPS)
        case = Case("pool", pool, {"x": arrays["x"]}, ["z"], last=["x", "z"] if last else [])
        check(case, lower_reduction, 1e-4, 1e-5, CHIPS)


@pytest.mark.parametrize("length", [40, 20000])
def test_arithmetic_on_positions(length: int) -> None:
    """What follows an ArgMax computes with 64 bits, also where the vector engine has 32; long axes go in chunks."""
    arrays = {"x": f32(3, length), "z": np.array([1, -(2**40), 2**33])}
    ops = [("ArgMax", ["x"], ["a"], {"axis": 1, "keepdims": 0}), ("Mul", ["a", "z"], ["m"], {}),
           ("Less", ["m", "z"], ["y"], {})]  # fmt: skip
    for targets in (HOSTS[-1:], CHIPS):
        check(Case("reduction", ops, arrays, ["m", "y"]), lower_reduction, hosts=targets)
