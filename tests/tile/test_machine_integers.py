"""What is proven over the integers holds in the machine's: programs that count on the difference are refused.

Each attack was accepted once, and native code then wrote or read where it liked.
"""

from __future__ import annotations

import random

import pytest

from codegen.targets import target
from codegen.tile.arithmetic import LARGEST, magnitude, parts, trips
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from tensor_types import dims
from tensor_types.dims import Dim, ceildiv, dim, dmax, dmin, evaluate

HOST = target("x86-64-v3")


def _program(body: str, dims_: str = "n in [1, inf]", declarations: str = "", grid: str = "") -> str:
    return f"""program p ({dims_}) {{
      param in x: f32[n]
      param in lengths: i64[4]
      param out y: f32[16]
      param out z: i64[16]
      {declarations}
      {"grid " + grid if grid else ""}
      body {{ {body} }}
    }}"""


REFUSED = {
    "a factor of 2^64 - 1": "TEXPANDS y[min(5, max(0, 18446744073709551615*n))]{}, 1.0",
    "a constant beyond 64 bits": "TEXPANDS y[min(5, n + 18446744073709551616)]{}, 1.0",
    "a read number times 2^64 - 1": "read v = lengths[0]{} in [1, 4611686018427387904] "
                                    "TEXPANDS y[min(5, 18446744073709551615*v)]{}, 1.0",
    "a read number up to 2^62, doubled twice": "read v = lengths[0]{} in [1, 4611686018427387904] "
                                               "if 4*v < 5 { } else { TEXPANDS y[min(5, v)]{}, 1.0 }",
    "a condition": "if 9223372036854775807*n*n < 1 { TEXPANDS y[3]{}, 1.0 }",
    "a trip count": "for i < 4611686018427387904 { TEXPANDS y[i%16]{}, 1.0 }",
    "a loop of loops": "for i < 1099511627776 { for j < 1099511627776 { TEXPANDS y[3]{}, 1.0 } }",
    "an extent": "TROWSUM y[0]{4611686018427387904}, x[0]{4611686018427387904} axes=(0)",
    "a divisor that may be 0": "TEXPANDS y[min(5, (n + 7)//(n*n - n))]{}, 1.0",
    "a divisor that a read number makes 0": "read v = lengths[0]{} in [0, 4] TEXPANDS y[min(5, 7//v)]{}, 1.0",
    "a size as a number beyond 64 bits": "TEXPANDS z[0]{}, size(9223372036854775808*n)",
    "a size as a number that divides by zero": "TEXPANDS z[0]{}, size(7//(n - 1))",
    "a loop's variable as a number": "for i < 4 { TEXPANDS z[i]{}, size(i + 1) }",
    "a read number as a number": "read v = lengths[0]{} in [1, 4] TEXPANDS z[0]{}, size(v + 1)",
    "a size as a float": "TEXPANDS y[0]{}, size(n)",
    "a size added": "TADDS z[0]{}, lengths[0]{}, size(n)",
    "a negative size from a tensor": "read v = lengths[0]{} in [-4, 4] TEXPANDS y[max(v, 0)]{}, 1.0",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arithmetic_that_wraps_is_refused(name: str) -> None:
    with pytest.raises(VerifyError) as refused:
        verify(parse_program(_program(REFUSED[name])), HOST)
    assert refused.value.code == "E17001"


def test_a_grid_that_divides_by_zero_is_refused() -> None:
    with pytest.raises(VerifyError, match="below 1"):
        verify(parse_program(_program("TEXPANDS y[0]{}, 1.0", "n in [0, inf]", grid="g < 1//n")), HOST)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(VerifyError, match="not negative"):
        verify(parse_program(_program("TEXPANDS y[0]{}, 1.0", "n in [-1, 5]")), HOST)


def test_what_depends_on_the_dims_is_asked_when_they_are_bound() -> None:
    """n*n is an int64 for n = 2^20 and none for n = 2^32: the verifier says which."""
    bounds = verify(parse_program(_program("TEXPANDS y[min(5, n*n)]{}, 1.0")), HOST)
    assert evaluate(bounds.size, {"n": 1 << 20}) <= LARGEST < evaluate(bounds.size, {"n": 1 << 32})
    bounds = verify(parse_program(_program("TEXPANDS y[min(5, n*n)]{}, 1.0", "n in [1, 1024]")), HOST)
    assert bounds.size == 0  # nothing is left to ask


def _random_value(draw: random.Random, depth: int) -> Dim:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([dim("m"), dim("n"), dim("k"), draw.randint(-9, 9), 1 << draw.randint(0, 40)])
    a, b = _random_value(draw, depth - 1), _random_value(draw, depth - 1)
    positive = dmax(1, b)
    kind = draw.choice(["+", "-", "*", "//", "%", "min", "max", "ceil"])
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: dims.floordiv(a, positive),
        "%": lambda: dims.mod(a, positive),
        "min": lambda: dmin(a, b),
        "max": lambda: dmax(a, b),
        "ceil": lambda: ceildiv(a, draw.randint(1, 64)),
    }[kind]()


def test_magnitudes_bound_every_part_of_random_expressions() -> None:
    draw = random.Random(1)
    for _ in range(1500):
        value = _random_value(draw, draw.randint(1, 5))
        names = {name: dim(name) for name in ("m", "n", "k")}
        at = {name: draw.choice([0, 1, 2, 7, 64, 1 << 20, 1 << 31, 1 << 45]) for name in names}
        for part in parts(value):
            for divided in (False, True):
                assert abs(evaluate(part, at)) <= evaluate(magnitude(part, names, divided), at)
        if evaluate(value, at) >= 0:
            assert evaluate(value, at) <= evaluate(trips(value, names), at), str(value)


def _machine(value: Dim, at: dict[str, int]) -> int:
    """The value as 64-bit code computes it: every operation wraps, division rounds towards minus infinity."""

    def wrap(number: int) -> int:
        return (number + (1 << 63)) % (1 << 64) - (1 << 63)

    if isinstance(value, int):
        return wrap(value)
    total = 0
    for monomial, factor in value.terms:
        part = wrap(factor)
        for atom in monomial:
            args = [_machine(a, at) for a in atom.args]
            if atom.kind in ("floordiv", "mod") and args[1] == 0:
                return 1 << 70  # a trap
            done = {
                "dim": lambda atom=atom: at[atom.name],
                "floordiv": lambda a=args: a[0] // a[1],
                "mod": lambda a=args: a[0] % a[1],
                "min": lambda a=args: min(a),
                "max": lambda a=args: max(a),
            }[atom.kind]()
            part = wrap(part * wrap(done))
        total = wrap(total + part)
    return total


def test_within_the_bounds_the_machine_is_exact() -> None:
    """The page of docs/security.md in one test: size <= LARGEST makes wrapping arithmetic exact arithmetic."""
    draw = random.Random(2)
    exact = wrapped = 0
    for _ in range(4000):
        value = _random_value(draw, draw.randint(1, 5))
        names = {name: dim(name) for name in ("m", "n", "k")}
        at = {name: draw.choice([1, 3, 1000, 1 << 16, 1 << 31, 1 << 45, 1 << 59]) for name in names}
        size = sum(evaluate(magnitude(part, names), at) for part in parts(value))
        if size <= LARGEST:
            exact += 1
            assert _machine(value, at) == evaluate(value, at), (str(value), at)
        else:
            wrapped += _machine(value, at) != evaluate(value, at)
    assert exact > 500 and wrapped > 100
