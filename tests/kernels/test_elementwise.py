"""Every element-wise operator against onnxruntime, on values that hurt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codegen.kernels.elementwise import ELEMENTWISE
from codegen.kernels.region import lower_region
from tests.kernels.lowered import Case, Op, check

rng = np.random.default_rng(0)
INF = float("inf")
FLOATS = np.concatenate(
    [np.float32([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 88.0, -88.0, 1e-3, 100.0, -100.0, INF, -INF, np.nan]),
     rng.normal(0, 3, 47).astype(np.float32)]
).reshape(4, 16)  # fmt: skip
FINITE = np.nan_to_num(FLOATS, posinf=3.0, neginf=-3.0)
OTHER = np.roll(np.flip(FINITE, 1), 3).copy()
POSITIVE = np.abs(FINITE) + 0.01

UNARY: dict[str, dict[str, Any]] = {
    "Neg": {}, "Abs": {}, "Sign": {}, "Floor": {}, "Ceil": {}, "Round": {}, "Exp": {}, "Reciprocal": {}, "Tanh": {},
    "Sigmoid": {}, "Erf": {}, "IsNaN": {}, "IsInf": {}, "Relu": {}, "LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": 1.5},
    "Selu": {}, "ThresholdedRelu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 0.3}, "Softsign": {},
}  # fmt: skip
ON_FINITE: dict[str, dict[str, Any]] = {
    "Sin": {}, "Cos": {}, "Tan": {}, "Gelu": {}, "Softplus": {}, "Mish": {}, "Celu": {"alpha": 0.7}, "HardSwish": {},
    "Shrink": {"bias": 0.3, "lambd": 0.8}, "Identity": {},
}  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "PRelu", "Min", "Max", "Sum", "Mean")
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def run(ops: list[Op], arrays: dict[str, np.ndarray], constants: tuple[str, ...] = (), rtol: float = 2e-5,
        atol: float = 1e-6) -> None:  # fmt: skip
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    outputs = [o for op in ops for o in op[2]]
    check(Case("region", ops, arrays, outputs, constants, opset=22), lower_region, rtol=rtol, atol=atol)


def test_unary() -> None:
    run([(op, ["x"], [f"y{i}"], attrs) for i, (op, attrs) in enumerate(UNARY.items())], {"x": FLOATS})
    run([(op, ["x"], [f"y{i}"], attrs) for i, (op, attrs) in enumerate(ON_FINITE.items())], {"x": FINITE / 10})
    run(
        [("Gelu", ["x"], ["y0"], {"approximate": "tanh"}), ("IsInf", ["x"], ["y1"], {"detect_negative": 0})],
        {"x": FINITE},
    )
    run([("Log", ["x"], ["y0"], {}), ("Sqrt", ["x"], ["y1"], {}), ("Cosh", ["x"], ["y2"], {})], {"x": POSITIVE})


def test_binary() -> None:
    ops: list[Op] = [(op, ["a", "b"], [f"y{i}"], {}) for i, op in enumerate((*BINARY, *COMPARISONS))]
    run([*ops, ("Mod", ["a", "b"], ["m"], {"fmod": 1})], {"a": FINITE, "b": np.where(OTHER == 0, 1, OTHER)})
    run([("Max", ["a", "b", "c"], ["y0"], {}), ("Mean", ["a", "b", "c"], ["y1"], {})],
        {"a": FINITE, "b": OTHER, "c": POSITIVE})  # fmt: skip


@pytest.mark.parametrize("type_", [np.int8, np.int32, np.int64, np.uint8])
def test_integers(type_: type) -> None:
    low = 0 if type_ is np.uint8 else -100
    a, b = (rng.integers(low, 100, (4, 16)).astype(type_) for _ in range(2))
    b[b == 0] = 1
    names = ("Add", "Sub", "Mul", "Div", "Min", "Max") if type_ in (np.int32, np.int64) else ("Min", "Max")
    ops: list[Op] = [
        (op, ["a", "b"], [f"y{i}"], {}) for i, op in enumerate((*names, "Mod", "BitwiseAnd", "BitwiseXor"))
    ]
    ops += [(op, ["a", "b"], [f"c{i}"], {}) for i, op in enumerate(("Equal", "Less", "GreaterOrEqual"))]
    ops += [("BitwiseNot", ["a"], ["n"], {}), ("Mod", ["a", "b"], ["f"], {"fmod": 1}), ("Abs", ["a"], ["abs"], {})]
    run(ops, {"a": a, "b": b})


def test_logic_and_selection() -> None:
    a, b = FINITE > 0, OTHER > 0
    ops: list[Op] = [(op, ["a", "b"], [f"y{i}"], {}) for i, op in enumerate(("And", "Or", "Xor", "Equal"))]
    run(
        [*ops, ("Not", ["a"], ["n"], {}), ("Where", ["a", "x", "z"], ["w"], {})],
        {"a": a, "b": b, "x": FINITE, "z": OTHER},
    )


def exactly(op: str, x: np.ndarray) -> np.ndarray:
    """The operator in f64, without cancellation."""
    softplus = np.logaddexp(0, x)
    below = {"Elu": 1.0, "Celu": 1.0, "Selu": 1.67326319217681884765625}
    if op in below:
        gamma = 1.05070102214813232421875 if op == "Selu" else 1.0
        return gamma * np.where(x < 0, below[op] * np.expm1(x), x)
    return softplus if op == "Softplus" else x * np.tanh(softplus)


@pytest.mark.parametrize("op", ["Softplus", "Mish", "Elu", "Celu", "Selu"])
def test_tails_keep_their_relative_accuracy(op: str) -> None:
    x = np.concatenate([np.linspace(-80, 30, 991), np.geomspace(1e-30, 1, 33), -np.geomspace(1e-30, 1, 32)])
    x = x.astype(np.float32).reshape(8, 132)
    exact = {"y": exactly(op, x.astype(np.float64)).astype(np.float32)}
    given = Case("region", [(op, ["x"], ["y"], {})], {"x": x}, ["y"], opset=22, exact=exact)
    check(given, lower_region, rtol=1e-6, atol=0)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0, -1.0, 1.7])
def test_powers(power: float) -> None:
    run([("Pow", ["x", "p"], ["y"], {})], {"x": POSITIVE, "p": np.float32(power)}, ("p",))


def test_mixed_powers() -> None:
    run(
        [("Pow", ["x", "p"], ["y"], {})],
        {"x": rng.integers(1, 6, (4, 16)), "p": rng.integers(0, 5, (4, 16)).astype(np.float32)},
    )
    run([("Pow", ["x", "p"], ["y"], {})], {"x": FINITE / 40, "p": rng.integers(0, 5, (4, 16))}, rtol=1e-4)


def test_clip_and_shifts() -> None:
    run(
        [("Clip", ["x", "lo", "hi"], ["y"], {})], {"x": FINITE, "lo": np.float32(-1), "hi": np.float32(6)}, ("lo", "hi")
    )
    run([("Clip", ["x", "", "hi"], ["y"], {})], {"x": FINITE, "hi": np.float32(0.5)}, ("hi",))
    x, s = rng.integers(0, 1 << 16, (4, 16)).astype(np.uint32), rng.integers(0, 32, (4, 16)).astype(np.uint32)
    run([("BitShift", ["x", "s"], [d], {"direction": d}) for d in ("LEFT", "RIGHT")], {"x": x, "s": s})


@pytest.mark.parametrize("to", [1, 2, 3, 6, 7, 9, 10, 11])
def test_casts(to: int) -> None:
    run([("Cast", ["x"], ["y"], {"to": to})], {"x": np.abs(FINITE)})
    run([("Cast", ["x"], ["y"], {"to": to})], {"x": rng.integers(0, 120, (4, 16))})


def test_quantisation() -> None:
    arrays = {"x": FINITE, "s": np.float32(0.11), "z": np.uint8(7)}
    run(
        [("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["y"], {})],
        arrays,
        ("s", "z"),
    )


def test_half_precision_is_rounded_once() -> None:
    x = FINITE.astype(np.float16)
    exact = x.astype(np.float64)
    from math import erf

    expected = (exact * 0.5 * (1 + np.vectorize(erf)(exact / 2**0.5))).astype(np.float16)

    class Known(Case):
        def expected(self) -> dict[str, np.ndarray]:
            return {"y": expected}

    check(Known("region", [("Gelu", ["x"], ["y"], {})], {"x": x}, ["y"]), lower_region, rtol=1e-3, atol=1e-5)


INVERSES = ("Sinh", "Atan", "Asin", "Acos", "Asinh", "Acosh", "Atanh")


@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_circular_and_hyperbolic_functions(type_: type) -> None:
    """To a few units in the last place, over their domains and at their ends, against numpy in a wider type."""
    edges = [0.0, -0.0, 1.0, -1.0, INF, -INF, np.nan, 1e-30, 1e30, 0.5, 88.5, -88.5]
    values = np.concatenate([edges, rng.uniform(-1, 1, 52), rng.normal(0, 9, 40), 1 + 10.0 ** rng.uniform(-6, 8, 24)])
    x = values.astype(type_).reshape(8, 16)

    class Known(Case):
        def expected(self) -> dict[str, np.ndarray]:
            names = [op.lower().replace("a", "arc", 1) if op[0] == "A" else op.lower() for op in INVERSES]
            with np.errstate(all="ignore"):
                found = [getattr(np, name)(x.astype(np.longdouble)).astype(type_) for name in names]
            return {f"y{i}": y for i, y in enumerate(found)}

    ops: list[Op] = [(op, ["x"], [f"y{i}"], {}) for i, op in enumerate(INVERSES)]
    limit = 3e-7 if type_ is np.float32 else 1e-15
    check(Known("region", ops, {"x": x}, [o for op in ops for o in op[2]]), lower_region, rtol=limit, atol=0)


def test_every_operator_is_tested() -> None:
    tested = {*UNARY, *ON_FINITE, *BINARY, *COMPARISONS, "Log", "Sqrt", "Cosh", "Mod", "BitwiseAnd", "BitwiseXor",
              "BitwiseNot", "And", "Or", "Xor", "Not", "Where", "Pow", "Clip", "BitShift", "Cast", "QuantizeLinear",
              "DequantizeLinear", *INVERSES}  # fmt: skip
    assert set(ELEMENTWISE) - tested == {"CastLike", "BitwiseOr", "Swish", "com.microsoft::QuickGelu"}
