"""Element-wise regions against onnxruntime: broadcasts, formats, dtypes, run-time sizes, several results."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.region import lower_region
from tensor_types.dims import dim
from tests.kernels.lowered import CHIPS, Case, check

rng = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


GELU = [
    ("Div", ["x", "root"], ["a"], {}),
    ("Erf", ["a"], ["b"], {}),
    ("Add", ["b", "one"], ["c"], {}),
    ("Mul", ["x", "c"], ["d"], {}),
    ("Mul", ["d", "half"], ["y"], {}),
]
SCALARS = {"root": np.float32(1.4142135), "one": np.float32(1), "half": np.float32(0.5)}


@pytest.mark.parametrize("shape", [(), (1,), (7,), (16,), (17,), (3, 1, 5), (2, 3, 65), (129, 131), (3, 0, 2)], ids=str)
def test_gelu(shape: tuple[int, ...]) -> None:
    constants = {k: np.asarray(v) for k, v in SCALARS.items()}
    check(Case("region", GELU, {"x": f32(*shape), **constants}, ["y"], list(constants)), lower_region, 1e-5, 2e-6)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ((4, 5, 6), (6,), (5, 1)),
        ((4, 5, 6), (4, 1, 6), (1, 5, 1)),
        ((2, 3, 4, 5), (3, 1, 1), (2, 1, 1, 5)),
        ((1, 17), (13, 1), (1,)),
        ((64, 1, 64), (1, 7, 64), ()),
        ((2, 1, 300, 70), (1, 3, 1, 70), (300, 1)),
    ],
    ids=str,
)
def test_broadcasts(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> None:
    ops = [("Add", ["a", "b"], ["s"], {}), ("Mul", ["s", "c"], ["m"], {}), ("Sub", ["m", "a"], ["y"], {})]
    case = Case("region", ops, {"a": f32(*a), "b": f32(*b), "c": f32(*c)}, ["y"])
    if np.broadcast_shapes(a, b) == np.broadcast_shapes(a, b, c):
        check(case, lower_region)


def test_channels_last_with_per_channel_constants_and_two_results() -> None:
    ops = [
        ("Mul", ["x", "scale"], ["s"], {}),
        ("Add", ["s", "shift"], ["t"], {}),
        ("HardSigmoid", ["t"], ["g"], {"alpha": 0.2, "beta": 0.5}),
        ("Mul", ["g", "r"], ["y"], {}),
    ]
    arrays = {"x": f32(2, 19, 5, 7), "scale": f32(19, 1, 1), "shift": f32(1, 19, 1, 1), "r": f32(2, 19, 1, 1)}
    case = Case("region", ops, arrays, ["t", "y"], ["scale", "shift"], last=["x", "t", "y", "s", "g", "r"])
    check(case, lower_region)


def test_mixed_dtypes() -> None:
    ops = [
        ("Equal", ["i", "k"], ["e"], {}),
        ("Cast", ["i"], ["f"], {"to": 1}),
        ("Where", ["e", "f", "x"], ["w"], {}),
        ("Cast", ["w"], ["h"], {"to": 10}),
        ("Not", ["e"], ["n"], {}),
    ]
    arrays = {"i": rng.integers(-3, 3, (33, 9)), "k": rng.integers(-3, 3, (9,)), "x": f32(33, 9)}
    check(Case("region", ops, arrays, ["w", "h", "n"]), lower_region)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (2, 1030), (40, 33)], ids=str)
def test_run_time_sizes(sizes: tuple[int, int]) -> None:
    n, m = sizes
    ops = [("Add", ["x", "bias"], ["s"], {}), ("Mul", ["s", "mask"], ["t"], {}), ("Tanh", ["t"], ["y"], {})]
    arrays = {"x": f32(n, m, 24), "bias": f32(24), "mask": f32(n, m, 1)}
    full = ("n", "m", 24)
    symbolic = {"x": full, "s": full, "t": full, "y": full, "mask": ("n", "m", 1)}
    check(Case("region", ops, arrays, ["y"], ["bias"], symbolic, dims={"n": n, "m": m}), lower_region, atol=1e-5)
    whole = {k: (dim("n") * 2, "m") for k in ("a", "b", "y")}
    arrays = {"a": f32(2 * n, m), "b": f32(2 * n, m)}
    ops = [("Add", ["a", "b"], ["y"], {})]
    check(Case("region", ops, arrays, ["y"], (), whole, dims={"n": n, "m": m}), lower_region)


def test_a_large_region_spans_several_loop_nests() -> None:
    ops, name = [], "x"
    for i in range(70):
        ops.append((("Add", "Mul", "Max")[i % 3], [name, "xa"[i % 2]], [f"t{i}"], {}))
        name = f"t{i}"
    arrays = {"x": f32(40, 50) * 0.1, "a": f32(50) * 0.1}
    check(Case("region", ops, arrays, [name, "t10"]), lower_region, rtol=1e-4)


def test_chips_move_blocks_through_their_vector_memory() -> None:
    constants = {k: np.asarray(v) for k, v in SCALARS.items()}
    for shape in ((7,), (33, 70), (1, 5)):
        case = Case("region", GELU, {"x": f32(*shape), **constants}, ["y"], list(constants))
        check(case, lower_region, 1e-5, 2e-6, CHIPS)
    ops = [("Add", ["a", "b"], ["s"], {}), ("Mul", ["s", "c"], ["y"], {})]
    arrays = {"a": f32(4, 5, 6), "b": f32(4, 1, 6), "c": f32(5, 1)}
    check(Case("region", ops, arrays, ["y"]), lower_region, hosts=CHIPS)
