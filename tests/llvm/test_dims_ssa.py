"""Expressions of dims in native code give what exact arithmetic gives, for all dims within the verifier's bounds."""

from __future__ import annotations

import random

import numpy as np

from codegen.llvm.compile import compile_text
from codegen.llvm.detect import detect_host_class
from codegen.llvm.dims_ssa import DimValues
from codegen.llvm.text import Function, module_text
from codegen.tile.arithmetic import LARGEST, magnitude, parts
from tensor_types.dims import Dim, ceildiv, dim, dmax, dmin, evaluate, floordiv, mod
from tests.llvm.native import call_kernel, load

NAMES = ("m", "n", "k")


def _value(draw: random.Random, depth: int) -> Dim:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([dim("m"), dim("n"), dim("k"), draw.randint(-9, 9), 1 << draw.randint(0, 40)])
    a, b = _value(draw, depth - 1), _value(draw, depth - 1)
    positive = dmax(1, b)
    return draw.choice(
        [a + b, a - b, a * b, floordiv(a, positive), mod(a, positive), dmin(a, b), dmax(a, b), ceildiv(a, 48)]
    )


def test_native_values_are_exact_within_the_bounds() -> None:
    draw = random.Random(3)
    bounds = {name: dim(name) for name in NAMES}
    for round_ in range(8):
        at = {name: draw.choice([1, 3, 1000, 65537, 1 << 31, (1 << 45) + 7, (1 << 59) - 1]) for name in NAMES}
        values = [_value(draw, draw.randint(1, 5)) for _ in range(120)]
        values = [v for v in values if sum(evaluate(magnitude(p, bounds), at) for p in parts(v)) <= LARGEST]
        fn = Function(f"k{round_}", ["ptr %args", "ptr %dims", "i64 %begin", "i64 %end", "ptr %scratch"])
        ssa = DimValues(fn)
        for number, name in enumerate(NAMES):
            ssa.bind(name, fn.load("i64", fn.offset("%dims", number, "i64"), 8))
        for number, value in enumerate(values):
            fn.store("i64", ssa.value(value), fn.offset("%args", number, "i64"), 8)
        fn.do("ret i64 0")
        keep, address = load(compile_text(module_text([fn]), detect_host_class()), fn.name)
        found = np.zeros(len(values), np.int64)
        given = np.array([at[name] for name in NAMES], np.int64)
        assert call_kernel(address, found, given) == 0
        assert found.tolist() == [evaluate(v, at) for v in values]
        assert len(values) > 20
        del keep
