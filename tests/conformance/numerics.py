"""Models of one operator on values that hurt, made from the table of operators and ONNX's schemas."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import onnx.defs
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graph_opt.ir import ops

OPSET = 24
"""The newest that onnxruntime 1.32 knows most operators of."""

NUMBERS = {
    "float": np.dtype(np.float32), "double": np.dtype(np.float64), "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16), "bool": np.dtype(bool),
    **{f"{u}int{bits}": np.dtype(f"{u}int{bits}") for u in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Element types that numbers may have, by ONNX's name."""

REDUCED = ("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax", "CumSum", "LpNormalization")
"""Operators of the class 'reduction', besides Reduce*, that are reductions along one axis of one operand."""

FORMS: dict[str, list[dict[str, object]]] = {
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}], "Mod": [{}, {"fmod": 1}],
    "Cast": [{"to": code} for code in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 16)],
    "Gelu": [{}, {"approximate": "tanh"}], "LeakyRelu": [{}, {"alpha": -2.0}], "Celu": [{}, {"alpha": 0.3}],
    "IsInf": [{}, {"detect_negative": 0}, {"detect_positive": 0}], "Shrink": [{}, {"bias": 0.25, "lambd": 0.5}],
}  # fmt: skip
"""Attributes besides none at all."""

LEFT_OUT = {"CastLike", "BitCast", "AffineGrid", "QuantizeLinear", "DequantizeLinear", "RotaryEmbedding", "SwiGLU"}
"""Operands that are no plain numbers, or operators of functions of others that have tests of their own."""

ANY_ZERO = {"CumSum", "LeakyRelu", "LogSoftmax", "LpNormalization", "PRelu", "Relu", "Softmax", "Sum", "ThresholdedRelu"}
"""Besides Reduce*: operators whose definitions leave open which sign a zero has (LpNormalization: of a row of zeros)."""

CANCELLING = {"Gelu", "LogSoftmax", "ReduceLogSumExp", "Celu"}
"""Operators whose definitions subtract numbers near 1: they are exact up to the tolerance of 1."""

THROUGH_F64 = {"ReduceMean", "Shrink"}
"""Operators of integers that the references compute in f64: the last of more than 53 bits are theirs."""


def _gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    if approximate == "tanh":
        return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))


def _shrink(x: np.ndarray, bias: float = 0.0, lambd: float = 0.5) -> np.ndarray:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


EXACT: dict[str, Callable[..., np.ndarray]] = {
    "Cast": lambda x, to: x,
    "Erf": np.vectorize(math.erf, otypes=[float]),
    "Gelu": _gelu,
    "Mean": lambda *xs: sum(xs) / len(xs),
    "Pow": np.power,
    "ReduceL2": lambda x, axes: np.sqrt(np.sum(np.square(x), axis=1, keepdims=True)),
    "ReduceLogSum": lambda x, axes: np.log(np.sum(x, axis=1, keepdims=True)),
    "ReduceLogSumExp": lambda x, axes: np.logaddexp.reduce(x, axis=1, keepdims=True),
    "ReduceMean": lambda x, axes: np.mean(x, axis=1, keepdims=True),
    "Shrink": _shrink,
}
"""Definitions in f64, of operators that the references lack for some dtypes or compute with overflows or in f32."""


@dataclass(frozen=True)
class Case:
    """One node: its operands by name, and which of them are constants."""

    op: str
    dtype: str
    arrays: tuple[np.ndarray, ...]
    attrs: dict[str, object] = field(default_factory=dict)
    constants: tuple[int, ...] = ()

    def __str__(self) -> str:
        attrs = "".join(f" {k}={v}" for k, v in self.attrs.items())
        shapes = " ".join(str(list(a.shape)) for a in self.arrays)
        return f"{self.op} {self.dtype}{attrs} {shapes}"


def special(dtype: np.dtype) -> np.ndarray:
    """Values of a dtype at which operators are told apart."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        some = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.max // 2, info.max // 3, info.min]
        some += [] if dtype.kind == "u" else [-1, -2, -3, -7, -100, info.min + 1, info.min // 2]
        return np.array(sorted(set(some)), dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, least, most = float(info.smallest_normal), float(info.smallest_subnormal), float(info.max)
    some = [0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 88.9, 100.0, 1000.5, float(info.eps), 1e-3, 0.75, 20.0]
    some += [tiny, least, 3 * least, tiny / 2, most, most / 2, most / 4, float(np.sqrt(most)), np.inf]
    return np.array([*some, *(-s for s in some), np.nan]).astype(dtype)


def element_types(op: str) -> list[str]:
    """The types that the first operand may have, of those that are numbers here."""
    schema = onnx.defs.get_schema(op, OPSET)
    word = schema.inputs[0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == word), [word])
    return [name for name in NUMBERS if f"tensor({name})" in allowed]


def elementwise_cases() -> Iterator[Case]:
    for op in ops.declared():
        if op.kind != "elementwise" or "::" in op.name or op.name in LEFT_OUT:
            continue
        for name in element_types(op.name):
            for attrs in FORMS.get(op.name, [{}]):
                if op.name != "Mod" or attrs or NUMBERS[name].kind in "iu":
                    yield Case(op.name, name, _operands(op.name, name), attrs)


def _operands(op: str, name: str) -> tuple[np.ndarray, ...]:
    """Every pair of special values for operators of two operands, of three all with two of them."""
    values = special(NUMBERS[name])
    if op == "Cast" and _is_float(values):
        values = values[np.isfinite(values)]
    if op == "Clip":
        return values, values[len(values) // 4], values[-1 - len(values) // 3]
    if op == "Where":
        return np.array([[True], [False]]), values, values[::-1].copy()
    if op == "PRelu":
        return np.repeat(values[:, None], len(values), 1), values
    if op in ("Div", "Mod") and values.dtype.kind == "i":  # onnxruntime traps at the least number by -1
        return values[:, None], values[(values != 0) & (values != -1)]
    if op == "Pow":
        return values[:, None], values
    if op in ("Div", "Mod") and values.dtype.kind == "u":
        return values[:, None], values[values != 0]
    if op == "BitShift":
        return values[:, None], np.arange(0, values.dtype.itemsize * 8, 3, dtype=values.dtype)
    declared = ops.get(op)
    assert declared is not None
    if declared.variadic or declared.required == 2:
        return values[:, None], values
    return (values,)


def reduction_cases() -> Iterator[Case]:
    for op in ops.declared():
        if op.kind != "reduction" or not (op.name.startswith("Reduce") or op.name in REDUCED):
            continue
        for name in element_types(op.name):
            for array in reduced(NUMBERS[name]):
                if op.name.startswith("Reduce"):
                    yield Case(op.name, name, (array, np.array([1])), {}, (1,))
                elif op.name == "CumSum":
                    yield Case(op.name, name, (array, np.array(1)), {}, (1,))
                elif array.shape[1] or not op.name.startswith("Arg"):
                    yield Case(op.name, name, (array,), {"axis": 1})


def reduced(dtype: np.dtype) -> Iterator[np.ndarray]:
    """Rows that hold a special value among ordinary ones, only special ones, all of one value, one element, nothing."""
    values = special(dtype)
    ordinary = np.array([1, 0, 1, 1, 0, 0, 1]).astype(dtype)
    rows = np.tile(ordinary, (len(values), 1))
    rows[np.arange(len(values)), np.arange(len(values)) % 7] = values
    yield rows
    yield np.tile(values[:, None], (1, 5))
    yield values[:, None]
    yield np.zeros((3, 0), dtype)


def model(cases: list[Case]) -> onnx.ModelProto:
    """The cases side by side; input i of case n is `n_i`, its result `n`."""
    nodes, inputs, outputs, constants = [], [], [], []
    for n, case in enumerate(cases):
        names = []
        for i, array in enumerate(case.arrays):
            names.append(f"{n}_{i}")
            if i in case.constants:
                constants.append(numpy_helper.from_array(array, names[-1]))
            else:
                code = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(names[-1], code, array.shape))
        nodes.append(helper.make_node(case.op, names, [str(n)], name=f"{case.op}_{n}", **case.attrs))
        outputs.append(onnx.ValueInfoProto(name=str(n)))
    graph = helper.make_graph(nodes, "numerics", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def fed(cases: list[Case]) -> dict[str, np.ndarray]:
    return {
        f"{n}_{i}": a
        for n, case in enumerate(cases)
        for i, a in enumerate(case.arrays)
        if i not in case.constants
    }


def references(case: Case) -> list[np.ndarray]:
    """What others say: onnx's reference evaluator and onnxruntime, both in the dtype itself, in f64 and in f32, and the
    definition; those that can."""
    found = []
    wider = [np.float64, np.float32] if any(_is_float(a) for a in case.arrays) else []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for dtype in (None, *wider):
            arrays = tuple(a if dtype is None or not _is_float(a) else a.astype(dtype) for a in case.arrays)
            same = replace(case, arrays=arrays)
            for run in (_evaluated, _run):
                try:
                    found += run(same)
                except Exception:  # each lacks operators or dtypes
                    continue
        if case.op in EXACT and (case.op != "Cast" or wider):  # integers wrap around
            found.append(EXACT[case.op](*(a.astype(np.float64) for a in case.arrays), **case.attrs))
    return found


def _evaluated(case: Case) -> list[np.ndarray]:
    return ReferenceEvaluator(model([case])).run(None, fed([case]))


def _run(case: Case) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model([case]).SerializeToString(), options).run(None, fed([case]))


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


TOLERANCE = {"float32": 2e-6, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}


def undefined(want: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Where a result is not an integer of its dtype: ONNX leaves open what is made of it, but for wrapping sums."""
    if dtype.kind not in "iu" or want.dtype.kind not in "fV":
        return np.zeros(want.shape, bool)
    info = np.iinfo(dtype)
    number = want.astype(np.float64)
    return ~((number > float(info.min) - 1) & (number < float(info.max)))


def difference(case: Case, ours: np.ndarray, theirs: list[np.ndarray]) -> str:
    """The first element that nobody else gives, empty when there is none."""
    right = np.zeros(ours.shape, bool)
    for want in map(np.asarray, theirs):
        if want.shape != ours.shape:
            continue
        with np.errstate(all="ignore"):
            right |= undefined(want, ours.dtype)
            want = want.astype(ours.dtype)
            if not _is_float(ours):
                near = np.isclose(ours, want, rtol=1e-15, atol=0) if case.op in THROUGH_F64 else False
                right |= (ours == want) | near
                continue
            a, b = ours.astype(np.float64), want.astype(np.float64)
            step = TOLERANCE[ours.dtype.name]
            least = 4 * float(ml_dtypes.finfo(ours.dtype).smallest_normal)
            close = np.isclose(a, b, rtol=step, atol=step if case.op in CANCELLING else least, equal_nan=True)
            right |= close & (_any_zero(case) | (a != 0) | (b != 0) | (np.signbit(a) == np.signbit(b)))
    if right.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    operands = []
    for a in case.arrays:
        try:
            operands.append(str(np.broadcast_to(a, ours.shape)[at]))
        except ValueError:
            operands.append(str(a[at[0] % len(a)].tolist()))
    said = [str(np.asarray(t)[at]) if np.shape(t) == ours.shape else f"shape {np.shape(t)}" for t in theirs]
    return f"{case}: {int((~right).sum())} of {ours.size}, ({', '.join(operands)}) gives {ours[at]}, others {said}"


def _any_zero(case: Case) -> bool:
    return case.op in ANY_ZERO or case.op.startswith("Reduce")
