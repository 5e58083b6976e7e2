"""64-bit integers on chips, whose vector engines have none: numbers of one word, of two, and of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from codegen.kernels.matmul import lower_matmul
from codegen.kernels.reduction import lower_reduction
from codegen.kernels.region import lower_region
from tests.kernels.lowered import Case
from tests.kernels.lowered import check as check_on_hosts
from tests.kernels.on_chips import check_on_chips

EDGES = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**32 - 1, -(2**32), 2**62, -(2**62), 16777217]
NUMBERS = np.array([*EDGES, *np.random.default_rng(2).integers(-(2**62), 2**62, 37)], np.int64).reshape(5, 10)


OTHERS = np.array([*EDGES[::-1], *np.random.default_rng(3).integers(-(2**33), 2**33, 37)], np.int64).reshape(5, 10)
DIVISORS = np.where(OTHERS == 0, 7, OTHERS)
"""onnxruntime divides by zero with a trap."""


def check(ops: list[tuple], arrays: dict[str, np.ndarray], constants: tuple[str, ...] = ()) -> None:  # type: ignore[type-arg]
    check_on_chips(
        Case("region", ops, arrays, ["y"], constants=list(constants)), lower_region, rtol=0, atol=0, exact=True
    )


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Min", "Max", "BitwiseAnd", "BitwiseXor"])
def test_arithmetic_of_two_numbers(op: str) -> None:
    check([(op, ["x", "z"], ["y"], {})], {"x": NUMBERS, "z": OTHERS})


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(op: str) -> None:
    near = np.where(np.arange(50).reshape(5, 10) % 3 == 0, NUMBERS, OTHERS)
    check([(op, ["x", "z"], ["y"], {})], {"x": NUMBERS, "z": near})


@pytest.mark.parametrize("op", ["Neg", "Abs", "Sign"])
def test_arithmetic_of_one_number(op: str) -> None:
    check([(op, ["x"], ["y"], {})], {"x": NUMBERS})


@pytest.mark.parametrize(("op", "attrs"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_division(op: str, attrs: dict[str, int]) -> None:
    check([(op, ["x", "z"], ["y"], attrs)], {"x": NUMBERS, "z": DIVISORS})


@pytest.mark.parametrize("number", [0, 1, -1, 3, 2**32, -(2**40) + 5])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Less", "Max"])
def test_numbers_of_the_model_on_either_side(op: str, number: int) -> None:
    for operands in (["x", "c"], ["c", "x"]):
        check([(op, operands, ["y"], {})], {"x": NUMBERS, "c": np.array(number)}, ("c",))


def test_a_chain_keeps_what_is_read_again() -> None:
    """Casts to and from i32 share words with their operand, which must outlive its own last reader."""
    ops = [
        ("Mul", ["x", "c"], ["m"], {}),
        ("Cast", ["m"], ["low"], {"to": TensorProto.INT32}),
        ("Abs", ["x"], ["a"], {}),
        ("Cast", ["low"], ["wide"], {"to": TensorProto.INT64}),
        ("Greater", ["a", "wide"], ["test"], {}),
        ("Where", ["test", "a", "wide"], ["w"], {}),
        ("Cast", ["low"], ["again"], {"to": TensorProto.INT64}),
        ("Add", ["w", "again"], ["y"], {}),
    ]
    check(ops, {"x": NUMBERS, "c": np.array(-3)}, ("c",))


@pytest.mark.parametrize("source", [np.int32, np.uint32, np.uint8, np.int8, np.bool_])
def test_casts_from_narrow_numbers(source: type) -> None:
    check([("Cast", ["x"], ["y"], {"to": TensorProto.INT64})], {"x": NUMBERS.astype(source)})


def test_casts_from_floats() -> None:
    floats = np.array(
        [0.0, -0.5, 1.5, -1.0, 2.0**31, -(2.0**31), 2.0**32, -(2.0**32) - 512, 3e9, -3e9, 2.0**62, -(2.0**63)]
    )
    check([("Cast", ["x"], ["y"], {"to": TensorProto.INT64})], {"x": floats.astype(np.float32)})


class Beyond(Case):
    """Floats that no 64-bit integer is near: what a cast of them gives is said by TCVT, not by ONNX."""

    def expected(self) -> dict[str, np.ndarray]:
        least, greatest = -(2**63), 2**63 - 1
        return {"y": np.array([0, greatest, least, greatest, least, greatest - 2**39 + 1])}


def test_casts_from_floats_that_are_too_large() -> None:
    floats = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**63 - 2.0**39], np.float32)
    case = Beyond("region", [("Cast", ["x"], ["y"], {"to": TensorProto.INT64})], {"x": floats}, ["y"])
    check_on_chips(case, lower_region, rtol=0, atol=0, exact=True)


def test_a_result_of_a_product_as_wide_integers() -> None:
    ops = [
        ("MatMul", ["a", "b"], ["p"], {}),
        ("Cast", ["p"], ["w"], {"to": TensorProto.INT64}),
        ("Add", ["w", "z"], ["y"], {}),
    ]
    arrays = {
        "a": np.arange(12, dtype=np.float16).reshape(3, 4),
        "b": np.arange(20, dtype=np.float16).reshape(4, 5),
        "z": NUMBERS[:3, :5],
    }
    check_on_chips(Case("matmul", ops, arrays, ["y"]), lower_matmul, rtol=0, atol=0, exact=True)


@pytest.mark.parametrize("to", ["FLOAT", "INT32", "BOOL", "UINT8"])
def test_a_cast_of_wide_integers(to: str) -> None:
    case = Case("region", [("Cast", ["x"], ["y"], {"to": getattr(TensorProto, to)})], {"x": NUMBERS}, ["y"])
    check_on_chips(case, lower_region, rtol=2**-23, atol=0)


def test_a_mask_of_token_ids() -> None:
    ops = [
        ("Cast", ["x"], ["f"], {"to": TensorProto.FLOAT}),
        ("Sub", ["one", "f"], ["s"], {}),
        ("Mul", ["s", "far"], ["y"], {}),
    ]
    arrays = {
        "x": np.random.default_rng(0).integers(0, 2, (2, 1, 1, 70)),
        "one": np.array(1, np.float32),
        "far": np.array(-1e30, np.float32),
    }
    case = Case("region", ops, arrays, ["y", "f"], constants=["one", "far"])
    check_on_chips(case, lower_region, rtol=0, atol=0)


class Sums(Case):
    """onnxruntime rounds sums of 64-bit integers to doubles; numpy's wrap."""

    def expected(self) -> dict[str, np.ndarray]:
        if "z" not in self.arrays:
            return {"y": np.asarray(self.arrays["x"].sum(tuple(self.arrays["axes"])))}
        product = self.arrays["x"] * self.arrays["z"]
        total = product.sum(tuple(self.arrays["axes"]), keepdims=True)
        return {"m": product, "s": total, "y": total - self.arrays["one"]}


@pytest.mark.parametrize(
    ("shape", "axes"), [((5, 10), [1]), ((5, 10), [0]), ((5, 10), [0, 1]), ((3, 9001), [1]), ((5, 1), [1])]
)
def test_sums_wrap_as_64_bits_do(shape: tuple[int, int], axes: list[int]) -> None:
    """Of sums of a few numbers and of several blocks, of words whose halves all carry among them."""
    numbers = np.resize(NUMBERS, shape)
    numbers[::2] = -1 - np.arange(shape[1])  # low words near 2**32
    case = Sums("reduction", [("ReduceSum", ["x", "axes"], ["y"], {"keepdims": 0})],
                {"x": numbers, "axes": np.array(axes)}, ["y"], constants=["axes"])  # fmt: skip
    check_on_chips(case, lower_reduction, rtol=0, atol=0, exact=True)


def test_a_sum_between_other_operators() -> None:
    ops = [
        ("Mul", ["x", "z"], ["m"], {}),
        ("ReduceSum", ["m", "axes"], ["s"], {"keepdims": 1}),
        ("Sub", ["s", "one"], ["y"], {}),
    ]
    arrays = {"x": NUMBERS, "z": OTHERS, "axes": np.array([1]), "one": np.array(1)}
    case = Sums("reduction", ops, arrays, ["y"], constants=["axes", "one"])
    check_on_chips(case, lower_reduction, rtol=0, atol=0, exact=True)


_OF_NUMPY = {
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, axes: np.abs(x).sum(axes),
    "ReduceSumSquare": lambda x, axes: (x * x).sum(axes),
}


class Reduced(Case):
    """numpy's results, which wrap as those of the host do."""

    def expected(self) -> dict[str, np.ndarray]:
        axes = tuple(self.arrays["axes"])
        return {"y": np.asarray(_OF_NUMPY[self.ops[0][0]](self.arrays["x"], axes))}


@pytest.mark.parametrize("op", list(_OF_NUMPY))
@pytest.mark.parametrize(
    ("shape", "axes"), [((5, 10), [1]), ((5, 10), [0]), ((5, 10), [0, 1]), ((3, 9001), [1]), ((5, 1), [1])]
)
def test_reductions_in_words(op: str, shape: tuple[int, int], axes: list[int]) -> None:
    """High words that are equal leave it to the low ones, which count as unsigned numbers."""
    if op == "ReduceProd" and shape[1] > 1000:
        shape = (3, 201)
    numbers = np.resize(NUMBERS, shape)
    numbers[::2] = np.resize([5, 2**31 + 3, 2**32 - 1, 7], shape)[::2]
    if op == "ReduceProd":
        numbers = np.where(numbers % 2 == 0, numbers + 1, numbers)  # even ones would soon make it 0
    case = Reduced("reduction", [(op, ["x", "axes"], ["y"], {"keepdims": 0})],
                   {"x": numbers, "axes": np.array(axes)}, ["y"], constants=["axes"])  # fmt: skip
    check_on_chips(case, lower_reduction, rtol=0, atol=0, exact=True)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((5, 10), 1), ((5, 10), 0), ((2, 9001), 1), ((5, 1), 1)])
def test_positions_of_words(op: str, last: int, shape: tuple[int, int], axis: int) -> None:
    """Of numbers that occur several times, within a block and in several, and whose high words are equal."""
    numbers = np.resize(NUMBERS, shape)
    numbers[::2] = np.resize([5, 2**31 + 3, 2**32 - 1, 7, 0], shape)[::2]
    case = Case("reduction", [(op, ["x"], ["y"], {"axis": axis, "keepdims": 0, "select_last_index": last})],
                {"x": numbers}, ["y"])  # fmt: skip
    check_on_chips(case, lower_reduction, rtol=0, atol=0, exact=True)


def test_a_mean_of_words_is_rounded_towards_zero_as_on_hosts() -> None:
    numbers = np.array([[5, 6, 2**40], [-5, -6, -(2**40)]])
    want = np.array([(11 + 2**40) // 3, -((11 + 2**40) // 3)])
    case = Case("reduction", [("ReduceMean", ["x", "axes"], ["y"], {"keepdims": 0})],
                {"x": numbers, "axes": np.array([1])}, ["y"], constants=["axes"], exact={"y": want})  # fmt: skip
    check_on_chips(case, lower_reduction, rtol=0, atol=0, exact=True)
    check_on_hosts(case, lower_reduction)
