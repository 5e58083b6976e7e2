"""Moving operators against onnxruntime, in plain and channels-last order, with static and run-time sizes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from codegen.kernels.movement import lower_movement
from codegen.kernels.operands import NotLowerable
from codegen.targets import target
from tensor_types.dims import dim, dmax, dmin, floordiv
from tests.kernels.lowered import CHIPS, Case, check

rng = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def run(op: str, arrays: dict[str, np.ndarray], outputs: list[str] | None = None, dynamic: tuple[str, ...] = ("x",),
        symbolic: dict[str, Any] | None = None, dims: dict[str, int] | None = None, last: tuple[str, ...] = (),
        **attrs: Any) -> None:  # fmt: skip
    """Runs the operator on the host classes and on chips."""
    outputs = outputs or ["y"]
    constants = [k for k in arrays if k not in dynamic]
    ops = [(op, list(arrays), outputs, attrs)]
    case = Case("movement", ops, arrays, outputs, constants, symbolic or {}, last, dims or {})
    check(case, lower_movement)
    check(case, lower_movement, hosts=CHIPS)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (2, 33, 1, 18), (1, 64, 80)], ids=str)
def test_transposes(shape: tuple[int, ...]) -> None:
    for perm in permutations(range(len(shape))):
        if perm != tuple(range(len(shape))):
            run("Transpose", {"x": f32(*shape)}, perm=list(perm))


def test_run_time_transposes() -> None:
    for n, m in ((1, 1), (5, 70)):
        symbolic = {"x": ("n", "m", 12, 64), "y": ("n", 12, "m", 64)}
        run("Transpose", {"x": f32(n, m, 12, 64)}, symbolic=symbolic, dims={"n": n, "m": m}, perm=[0, 2, 1, 3])
        symbolic = {"x": ("n", 12, "m"), "y": ("n", "m", 12)}
        run("Transpose", {"x": f32(n, 12, m)}, symbolic=symbolic, dims={"n": n, "m": m}, perm=[0, 2, 1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((1,), (4,), (0,), (1,)),
        ((-3, 2), (1000, 5), (2, 1), (1, 1)),
        ((-1,), (-1000,), (1,), (-1,)),
        ((8, 0), (0, 7), (2, 1), (-3, 2)),
        ((0,), (0,), (0,), (1,)),
    ],
    ids=str,
)
def test_slices(starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    arrays = {"x": f32(6, 7, 9), "s": i64(*starts), "e": i64(*ends), "a": i64(*axes), "t": i64(*steps)}
    run("Slice", arrays)
    arrays["x"] = f32(6, 7, 9, 5)
    run("Slice", arrays, last=("x", "y"))


def test_run_time_slices() -> None:
    arrays = {"x": f32(3, 50, 8), "s": i64(5), "e": i64(1 << 40), "a": i64(1), "t": i64(1)}
    run("Slice", arrays, symbolic={"x": ("n", "m", 8), "y": ("n", dim("m") - 5, 8)}, dims={"n": 3, "m": 50})


@pytest.mark.parametrize("where", [0, 1, 2, -1])
def test_concat_and_split(where: int) -> None:
    shapes = [[3, 8, 5], [3, 8, 5], [3, 8, 5]]
    for i, shape in enumerate(shapes):
        shape[where] += 2 * i
    arrays = {f"x{i}": f32(*s) for i, s in enumerate(shapes)}
    run("Concat", arrays, dynamic=("x0", "x1", "x2"), axis=where)
    arrays = {"x": f32(7, 6, 9), "s": i64(2, *([4] if where == 1 else [7] if where in (2, -1) else [5]))}
    run("Split", arrays, ["a", "b"], axis=where)


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("sizes", ["static", "run-time"])
def test_many_parts_share_programs(where: int, sizes: str) -> None:
    """Where a part lies is data of its task, so what is compiled does not grow with the parts."""
    shapes = [tuple(2 + n % 3 if k == where else 5 for k in (0, 1)) for n in range(36)]
    parts = {f"x{n}": f32(*shape) for n, shape in enumerate(shapes)}
    whole = np.concatenate(list(parts.values()), where)
    counts = np.array([s[where] for s in shapes])
    symbolic: dict[str, Any] = {}
    if sizes == "run-time":
        other = [("n", shape[1]) if where else (shape[0], "n") for shape in shapes]
        named = dict(zip([*parts, "y", "x"], [*other, *[("n", 108) if where else (108, "n")] * 2], strict=True))
        symbolic = {**named, **{f"y{n}": shape for n, shape in enumerate(other)}}
    for op, arrays, outputs, constants in (
        ("Concat", parts, ["y"], []),
        ("Split", {"x": whole, "s": counts}, [f"y{n}" for n in range(36)], ["s"]),
    ):
        shown = {k: v for k, v in symbolic.items() if k in arrays or k in outputs}
        dims = {"n": 5} if shown else {}
        case = Case("movement", [(op, list(arrays), outputs, {"axis": where})], arrays, outputs, constants, shown, (), dims)
        node = check(case, lower_movement)
        check(case, lower_movement, hosts=CHIPS)
        records = lower_movement(node, target("x86-64-v3"))
        assert len(records) == 36 and len({r.program for r in records}) == 3  # type: ignore[union-attr]


def test_run_time_concat_and_slices_of_a_table() -> None:
    n, m = dim("n"), dim("m")
    arrays = {"a": f32(3, 5, 8), "b": f32(3, 70, 8)}
    symbolic = {"a": (3, n, 8), "b": (3, m, 8), "y": (3, n + m, 8)}
    run("Concat", arrays, dynamic=("a", "b"), symbolic=symbolic, dims={"n": 5, "m": 70}, axis=1)
    arrays = {"x": f32(90, 8), "s": i64(0), "e": i64(70), "a": i64(0), "t": i64(1)}
    run("Slice", arrays, symbolic={"y": (m, 8)}, dims={"m": 70})


def test_channels_last_concat() -> None:
    arrays = {"a": f32(2, 5, 6, 7), "b": f32(2, 9, 6, 7)}
    symbolic = {"a": (2, 5, "h", "w"), "b": (2, 9, "h", "w"), "y": (2, 14, "h", "w")}
    run("Concat", arrays, dynamic=("a", "b"), last=("a", "b", "y"), axis=1)
    run("Concat", arrays, dynamic=("a", "b"), last=("a", "b", "y"), axis=1, symbolic=symbolic, dims={"h": 6, "w": 7})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pads(mode: str) -> None:
    run("Pad", {"x": f32(3, 4, 6), "p": i64(0, 2, 3, 1, 0, 4)}, mode=mode)
    run("Pad", {"x": f32(2, 3, 5, 6), "p": i64(0, 0, 1, 2, 0, 0, 2, 0)}, mode=mode, last=("x", "y"))
    symbolic = {"x": ("n", "m"), "y": ("n", dim("m") + 6)}
    run("Pad", {"x": f32(2, 20), "p": i64(0, 2, 0, 4)}, mode=mode, symbolic=symbolic, dims={"n": 2, "m": 20})
    if mode == "constant":
        run("Pad", {"x": rng.integers(0, 9, (3, 4)), "p": i64(1, -1, 0, 2), "v": np.array(7)}, mode=mode)


def test_expand_and_tile() -> None:
    run("Expand", {"x": f32(3, 1, 5), "s": i64(2, 3, 4, 5)})
    run("Expand", {"x": f32(1), "s": i64(3, 300)})
    run("Tile", {"x": f32(3, 4, 5), "r": i64(2, 1, 3)})


def test_space_and_depth() -> None:
    run("DepthToSpace", {"x": f32(2, 12, 3, 5)}, blocksize=2)
    run("DepthToSpace", {"x": f32(2, 12, 3, 5)}, blocksize=2, mode="CRD")
    run("SpaceToDepth", {"x": f32(2, 3, 4, 6)}, blocksize=2)


def test_relayout() -> None:
    for shape in ((2, 3, 7, 5), (1, 64, 14, 14), (1, 130, 3, 33), (1, 1, 5, 6), (4, 8, 1, 1)):
        for source, result in ((("x",), ("y",)), (("y",), ("x",))):
            case = Case("movement", [("Identity", ["x"], ["y"], {})], {"x": f32(*shape)}, ["y"], last=source)
            check(case, lower_movement)
            case.last = result
            case.symbolic = {k: ("n", shape[1], "h", "w") for k in ("x", "y")}
            case.dims = {"n": shape[0], "h": shape[2], "w": shape[3]}
            check(case, lower_movement)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_gather(where: int) -> None:
    for index in (np.array(1), np.array([-1]), rng.integers(-3, 3, (4,)), rng.integers(-3, 3, (2, 5))):
        run("Gather", {"x": f32(3, 4, 5), "i": index}, axis=where)
        run("Gather", {"x": f32(3, 4, 5), "i": index}, dynamic=("x", "i"), axis=where)
    run("GatherElements", {"x": f32(3, 4, 5), "i": rng.integers(-3, 3, (3, 4, 5))}, dynamic=("x", "i"), axis=where)


def test_gather_nd_of_whole_slices() -> None:
    for index in (rng.integers(-3, 3, (7, 1)), rng.integers(-3, 3, (2, 5, 1))):
        run("GatherND", {"x": f32(3, 4, 5), "i": index}, dynamic=("x", "i"))
    for n, m in ((1, 3), (70, 0), (70, 40)):
        symbolic = {"x": ("n", 9), "i": ("m", 1), "y": ("m", 9)}
        index = rng.integers(-n, n, (m, 1))
        case = Case("movement", [("GatherND", ["x", "i"], ["y"], {})], {"x": f32(n, 9), "i": index}, ["y"])
        case.symbolic, case.dims = symbolic, {"n": n, "m": m}
        check(case, lower_movement)
    for arrays in (
        {"x": f32(3, 4), "i": np.zeros((2, 2), np.int64)},
        {"x": f32(2, 4), "i": np.zeros((2, 1), np.int64)},
    ):
        attrs = {"batch_dims": 1} if arrays["i"].shape[-1] == 1 else {}
        case = Case("movement", [("GatherND", ["x", "i"], ["y"], attrs)], arrays, ["y"])
        with pytest.raises(NotLowerable, match="several axes"):
            lower_movement(case.node(case.expected()), target("x86-64-v3"))


def test_embedding_rows() -> None:
    ids = rng.integers(0, 30, (2, 9))
    symbolic = {"i": ("n", "m"), "y": ("n", "m", 48)}
    run("Gather", {"x": f32(30, 48), "i": ids}, dynamic=("i",), symbolic=symbolic, dims={"n": 2, "m": 9}, axis=0)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_running_sums(where: int) -> None:
    for attrs in ({}, {"exclusive": 1}, {"reverse": 1}):
        x = rng.integers(0, 9, (4, 5, 6)).astype(np.float32)
        run("CumSum", {"x": x, "a": np.array(where)}, **attrs)


def test_running_sums_longer_than_a_block() -> None:
    x = rng.integers(0, 9, (2, 900, 70)).astype(np.float32)
    for attrs in ({}, {"exclusive": 1}, {"reverse": 1}, {"reverse": 1, "exclusive": 1}):
        run("CumSum", {"x": x, "a": np.array(1)}, **attrs)
    symbolic = {"x": ("n", "m"), "y": ("n", "m")}
    run("CumSum", {"x": x[0], "a": np.array(1)}, symbolic=symbolic, dims={"n": 900, "m": 70}, reverse=1)


def test_nearest_resize_by_whole_factors() -> None:
    empty = np.zeros(0, np.float32)
    for shape, scale in (((1, 3, 4, 5), (1, 1, 2, 2)), ((2, 16, 7, 3), (1, 1, 3, 1)), ((1, 20, 5, 5), (1, 1, 4, 4))):
        arrays = {"x": f32(*shape), "r": empty, "s": np.array(scale, np.float32)}
        for attrs in (
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"coordinate_transformation_mode": "half_pixel"},
        ):
            run("Resize", arrays, mode="nearest", **attrs)
            run("Resize", arrays, mode="nearest", last=("x", "y"), **attrs)
            h, w = dim("h"), dim("w")
            symbolic = {"x": ("n", shape[1], h, w), "y": ("n", shape[1], scale[2] * h, scale[3] * w)}
            dims = {"n": shape[0], "h": shape[2], "w": shape[3]}
            run("Resize", arrays, mode="nearest", last=("x", "y"), symbolic=symbolic, dims=dims, **attrs)


def test_chips_copy_through_their_vector_memory() -> None:
    ops: list[Any] = [("Transpose", ["x"], ["y"], {"perm": [0, 2, 1]})]
    check(Case("movement", ops, {"x": f32(2, 9, 33)}, ["y"]), lower_movement, hosts=CHIPS)
    ops = [("Concat", ["a", "b"], ["y"], {"axis": 1})]
    check(Case("movement", ops, {"a": f32(3, 5), "b": f32(3, 9)}, ["y"]), lower_movement, hosts=CHIPS)


@pytest.mark.parametrize(
    ("start", "limit", "delta", "dtype"),
    [(0, 24, 1, np.int64), (-3, 20000, 7, np.int64), (5, -9, -2, np.int32), (3, 4, 1, np.int64),
     (0, 37, 1, np.float32), (0.5, 9000.25, 0.25, np.float32), (1, 0, -0.125, np.float32)],
)  # fmt: skip
def test_ranges(start: float, limit: float, delta: float, dtype: Any) -> None:
    arrays = {k: np.array(v, dtype) for k, v in (("s", start), ("l", limit), ("d", delta))}
    n = len(np.arange(start, limit, delta))
    for dynamic in (("l",), ("s", "l")):
        run("Range", arrays, dynamic=dynamic, symbolic={"y": ("n",)}, dims={"n": n})
    run("Range", arrays, dynamic=("l",), symbolic={"y": (n,)})


def test_ranges_that_a_kernel_leaves_alone() -> None:
    arrays = {"s": np.array(0), "l": np.array(9), "d": np.array(1)}
    with pytest.raises(NotLowerable, match="delta"):
        run("Range", arrays, dynamic=("s", "l", "d"), symbolic={"y": ("n",)}, dims={"n": 9})


def test_shapes_and_sizes() -> None:
    x, symbolic = f32(3, 5, 7), {"x": ("n", 5, "m")}
    for dims in ({}, {"n": 3, "m": 7}):
        run("Shape", {"x": x}, symbolic=symbolic if dims else None, dims=dims)
        run("Shape", {"x": x}, symbolic=symbolic if dims else None, dims=dims, start=-2, end=3)
        run("Size", {"x": x}, symbolic=symbolic if dims else None, dims=dims)


def test_sizes_that_are_quotients_and_extrema() -> None:
    """Nothing is to be proven of them: the binder has their values."""
    n, m, k = dim("n"), dim("m"), dim("k")
    run("Shape", {"x": f32(6, 5)}, symbolic={"x": (floordiv(n * m, k), 5)}, dims={"n": 3, "m": 4, "k": 2})
    numbers = {"s": np.array(0), "l": np.array(8), "d": np.array(1)}
    run("Range", numbers, dynamic=("s", "l"), symbolic={"y": (dmax(n, m) + 1,)}, dims={"n": 7, "m": 4})
    once = dmin(n, n * dmin(1, n))
    again = dmin(n, n * dmin(n, n * once))
    count = 2 * dmin(dmax(once, again), once * again)
    symbolic = {"x": ("k", 5), "i": (count,), "y": (count, 5)}
    run("Gather", {"x": f32(9, 5), "i": i64(3, -1, 0, 8)}, dynamic=("x", "i"), symbolic=symbolic,
        dims={"n": 2, "k": 9}, axis=0)  # fmt: skip


def test_gathers_of_64_bit_numbers() -> None:
    """Chips move them as words."""
    x = rng.integers(-(2**62), 2**62, (4, 9, 5))
    run("Gather", {"x": x, "i": i64(3, -1, 0, 3)}, dynamic=("x", "i"), axis=1)
    run("GatherElements", {"x": x, "i": rng.integers(-9, 9, (4, 7, 5))}, dynamic=("x", "i"), axis=1)
