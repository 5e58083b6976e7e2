"""Matrix products against onnxruntime: constant, dynamic and batched operands, tails, epilogues, run-time rows."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels.matmul import lower_matmul
from tests.kernels.lowered import Case, Op, check
from tests.kernels.on_chips import check_on_chips

rng = np.random.default_rng(0)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(dtype)


def matmul() -> Op:
    return ("MatMul", ["a", "b"], ["y"], {})


@pytest.mark.parametrize("m", [1, 2, 7, 25, 97])
@pytest.mark.parametrize("k,n", [(1, 1), (5, 17), (64, 64), (33, 130), (128, 96)])
def test_constant_weight(m: int, k: int, n: int) -> None:
    check(Case("matmul", [matmul()], {"a": normal(m, k), "b": normal(k, n)}, ["y"], ["b"]), lower_matmul, atol=1e-5)


@pytest.mark.parametrize("m", [1, 5, 96, 131])
def test_run_time_rows(m: int) -> None:
    case = Case("matmul", [matmul()], {"a": normal(m, 40), "b": normal(40, 72)}, ["y"], ["b"],
                {"a": ("m", 40), "y": ("m", 72)}, dims={"m": m})  # fmt: skip
    check(case, lower_matmul, atol=1e-5)


@pytest.mark.parametrize("m", [1, 11, 12, 100])
def test_run_time_rows_of_halves(m: int) -> None:
    """A panel is converted to f32 for many rows; few rows, a decoder's token, read it as it lies."""
    case = Case("matmul", [matmul()], {"a": normal(m, 40, dtype=np.float16), "b": normal(40, 72, dtype=np.float16)},
                ["y"], ["b"], {"a": ("m", 40), "y": ("m", 72)}, dims={"m": m}, wide=True)  # fmt: skip
    node = check(case, lower_matmul, rtol=1e-3, atol=1e-3)
    (record,) = lower_matmul(node, _host()) or []
    before, _, behind = record.program.partition("} else {")  # type: ignore[union-attr]
    assert "if min(" in before and "TCVT" not in before and behind.count("TCVT") == 2


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 9), (9, 1)])
def test_batches_of_single_rows_and_columns(m: int, n: int, constant: bool) -> None:
    arrays = {"a": normal(3, 5, m, 4), "b": normal(3, 5, 4, n)}
    for a in (arrays["a"], arrays["a"][:1], arrays["a"][0]):
        case = Case("matmul", [matmul()], {"a": a, "b": arrays["b"]}, ["y"], ["b"] if constant else [])
        check(case, lower_matmul, atol=1e-5)
        check(case, lower_matmul, atol=1e-5, hosts=["Ascend910B2"])


def test_batch_and_sequence_are_one_axis() -> None:
    case = Case("matmul", [matmul()], {"a": normal(3, 11, 40), "b": normal(40, 72)}, ["y"], ["b"],
                {"a": ("b", "s", 40), "y": ("b", "s", 72)}, dims={"b": 3, "s": 11})  # fmt: skip
    node = check(case, lower_matmul, atol=1e-5)
    (record,) = lower_matmul(node, _host()) or []
    assert len(record.dims) == 1 and str(record.dims[0]) == "b*s"  # type: ignore[union-attr]


def _host() -> object:
    from codegen.targets import target

    return target("x86-64-v3")


EPILOGUES: dict[str, tuple[list[Op], dict[str, np.ndarray]]] = {
    "bias": ([("Add", ["y", "c"], ["z"], {})], {"c": normal(72)}),
    "bias gelu": (
        [("Add", ["y", "c"], ["t"], {}), ("Gelu", ["t"], ["z"], {})],
        {"c": normal(72)},
    ),
    "residual": ([("Add", ["y", "c"], ["t"], {}), ("Add", ["r", "t"], ["z"], {})],
                 {"c": normal(72), "r": normal(2, 9, 72)}),  # fmt: skip
    "row": ([("Mul", ["y", "c"], ["z"], {})], {"c": normal(2, 9, 1)}),
    "batch": ([("Add", ["y", "c"], ["z"], {})], {"c": normal(2, 1, 1)}),
    "positions": ([("Add", ["y", "c"], ["z"], {})], {"c": normal(9, 72)}),
    "scalar": ([("Div", ["y", "c"], ["t"], {}), ("Relu", ["t"], ["z"], {})], {"c": np.array(8, np.float32)}),
    "silu": ([("Sigmoid", ["y"], ["t"], {}), ("Mul", ["y", "t"], ["z"], {})], {}),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue(name: str) -> None:
    ops, extra = EPILOGUES[name]
    arrays = {"a": normal(2, 9, 40), "b": normal(40, 72), **extra}
    constants = ["b", *(["c"] if "c" in extra and extra["c"].ndim < 2 else [])]
    check(Case("matmul", [matmul(), *ops], arrays, ["z"], constants, opset=20), lower_matmul, atol=1e-5)


def test_product_and_epilogue_are_both_results() -> None:
    case = Case("matmul", [matmul(), ("Tanh", ["y"], ["z"], {})], {"a": normal(9, 40), "b": normal(40, 72)},
                ["y", "z"], ["b"])  # fmt: skip
    check(case, lower_matmul, atol=1e-5)


BATCHED = [((2, 3, 5, 7), (2, 3, 7, 9)), ((2, 3, 5, 7), (3, 7, 9)), ((4, 1, 5, 7), (1, 3, 7, 9)), ((5, 7), (2, 7, 9)),
           ((2, 3, 40, 64), (2, 3, 64, 100)), ((2, 1, 7), (2, 7, 30)), ((6, 50, 33), (33, 65))]  # fmt: skip


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("a,b", BATCHED, ids=str)
def test_batched(a: tuple[int, ...], b: tuple[int, ...], constant: bool) -> None:
    case = Case("matmul", [matmul()], {"a": normal(*a), "b": normal(*b)}, ["y"], ["b"] if constant else [])
    check(case, lower_matmul, atol=1e-5)


@pytest.mark.parametrize("s,t", [(1, 1), (5, 130), (40, 33)])
def test_run_time_attention_products(s: int, t: int) -> None:
    arrays = {"a": normal(2, 3, s, 16), "b": normal(2, 3, 16, t)}
    symbolic = {"a": (2, 3, "s", 16), "b": (2, 3, 16, "t"), "y": (2, 3, "s", "t")}
    check(Case("matmul", [matmul()], arrays, ["y"], [], symbolic, dims={"s": s, "t": t}), lower_matmul, atol=1e-5)
    arrays = {"a": normal(2, 3, s, t), "b": normal(2, 3, t, 16)}
    symbolic = {"a": (2, 3, "s", "t"), "b": (2, 3, "t", 16), "y": (2, 3, "s", 16)}
    check(Case("matmul", [matmul()], arrays, ["y"], [], symbolic, dims={"s": s, "t": t}), lower_matmul, atol=1e-5)


@pytest.mark.parametrize("m", [1, 9, 61])
@pytest.mark.parametrize("dtype,atol", [(np.float64, 1e-12), (np.float16, 2e-2)])
def test_other_floats(m: int, dtype: type, atol: float) -> None:
    case = Case("matmul", [matmul()], {"a": normal(m, 40, dtype=dtype), "b": normal(40, 72, dtype=dtype)}, ["y"], ["b"])
    check(case, lower_matmul, rtol=2e-3 if dtype == np.float16 else 1e-12, atol=atol)


@pytest.mark.parametrize("left", [np.int8, np.uint8])
def test_integers(left: type) -> None:
    info = np.iinfo(left)
    arrays = {"a": rng.integers(info.min, info.max + 1, (9, 44)).astype(left),
              "b": rng.integers(-128, 128, (44, 72)).astype(np.int8)}  # fmt: skip
    check(Case("matmul", [("MatMulInteger", ["a", "b"], ["y"], {})], arrays, ["y"], ["b"]), lower_matmul)


@pytest.mark.parametrize("k", [65, 130])
def test_a_long_row_of_bytes_is_filled_up_to_quads(k: int) -> None:
    """By the kernel, in a copy of a block and in the packing of the weight."""
    arrays = {"a": rng.integers(0, 256, (9, k)).astype(np.uint8), "b": rng.integers(-128, 128, (k, 24)).astype(np.int8)}
    node = check(Case("matmul", [("MatMulInteger", ["a", "b"], ["y"], {})], arrays, ["y"], ["b"]), lower_matmul)
    (record,) = lower_matmul(node, _host()) or []
    assert f"{-(-k // 4)}, 24, 4]" in record.program and "pad=0" in record.program  # type: ignore[union-attr]


@pytest.mark.parametrize("m,k,n", [(40, 64, 70), (35, 68, 16), (33, 45, 40), (3, 64, 20)])
@pytest.mark.parametrize("left,right", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_bytes_that_the_run_makes(m: int, k: int, n: int, left: type, right: type) -> None:
    """With many rows a panel of b is copied into groups of four k first."""
    arrays = {name: rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)
              for name, t, shape in (("a", left, (2, m, k)), ("b", right, (2, k, n)))}  # fmt: skip
    arrays["s"] = np.array([0.01], np.float32)
    ops: list[Op] = [("MatMulInteger", ["a", "b"], ["y"], {}), ("Cast", ["y"], ["f"], {"to": 1}), ("Mul", ["f", "s"], ["z"], {})]
    check(Integers("matmul", ops, arrays, ["z"], []), lower_matmul)


@pytest.mark.parametrize("name", ["bias gelu", "residual", "row"])
@pytest.mark.parametrize("chip,dtype,atol", [("Ascend910B2", np.float32, 1e-5), ("Ascend910B2", np.float16, 5e-3),
                                             ("Ascend310P3", np.float16, 5e-3)])  # fmt: skip
def test_chips(name: str, chip: str, dtype: type, atol: float) -> None:
    ops, extra = EPILOGUES[name]
    arrays = {"a": normal(2, 9, 200), "b": normal(200, 72), **extra}
    arrays = {key: value.astype(dtype) for key, value in arrays.items()}
    case = Case("matmul", [matmul(), *ops], arrays, ["z"], ["b"], opset=20)
    check_on_chips(case, lower_matmul, rtol=2e-3, atol=atol, chips=[chip])


def test_chips_with_run_time_rows() -> None:
    case = Case("matmul", [matmul()], {"a": normal(131, 40), "b": normal(40, 300)}, ["y"], ["b"],
                {"a": ("m", 40), "y": ("m", 300)}, dims={"m": 131})  # fmt: skip
    check_on_chips(case, lower_matmul, 1e-5, 1e-5, ["Ascend910B2"])


class Integers(Case):
    """A product of bytes in i64, times a scale in f32."""

    def expected(self) -> dict[str, np.ndarray]:
        left, right = (self.arrays[n].astype(np.int64) for n in "ab")
        zeros = [self.arrays[n].astype(np.int64) if n in self.arrays else 0 for n in ("za", "zb")]
        total = ((left - zeros[0]) @ (right - zeros[1])).astype(np.int32)
        wide = total.astype(np.float32)
        return {"y": total, "f": wide, "z": wide * self.arrays["s"]}


@pytest.mark.parametrize("k", [44, 45])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("zeros", ["a", "b", "ab"])
def test_zero_points(k: int, right: type, zeros: str) -> None:
    low = np.iinfo(right).min
    arrays = {"a": rng.integers(0, 256, (2, 9, k)).astype(np.uint8)}
    arrays["b"] = rng.integers(low, low + 256, (k, 72)).astype(right)
    inputs = ["a", "b", "", ""]
    if "a" in zeros:
        arrays["za"], inputs[2] = np.array(117, np.uint8), "za"
    if "b" in zeros:
        arrays["zb"], inputs[3] = np.array(13, right), "zb"
    inputs = inputs[: 3 if zeros == "a" else 4]
    if not inputs[2]:
        arrays["za"], inputs[2] = np.array(0, np.uint8), "za"
    arrays["s"] = np.array([0.01], np.float32)
    ops: list[Op] = [("MatMulInteger", inputs, ["y"], {}), ("Cast", ["y"], ["f"], {"to": 1})]
    ops.append(("Mul", ["f", "s"], ["z"], {}))
    check(Integers("matmul", ops, arrays, ["z"], [n for n in ("b", "zb") if n in arrays]), lower_matmul)
