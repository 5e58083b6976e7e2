"""Dimension expressions: the closed language int, named dim, +, x, floordiv, mod, min, max.

A `Dim` is a Python int or an `Expr`. An `Expr` is kept in a normal form, a polynomial over *atoms*
(named dims and the non-linear terms floordiv, mod, min, max), so equal polynomials compare equal and hash alike.
Division and mod round towards minus infinity, as in Python. Divisors must be positive.

    >>> m = dim("m"); str(ceildiv(m, 64) * 64 - m)
    '64*((m + 63)//64) - m'

`tensor_types.proofs` decides a <= b for every value of the dims in their ranges.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd
from threading import Lock
from typing import TypeAlias
from weakref import WeakValueDictionary

from tensor_types.effort import TooMuchWork, spend

MAX_TERMS = 4096
"""Most terms of an expression."""
MAX_DEGREE = 64
"""Most factors of a term."""
MAX_TEXT = 1 << 14
"""Longest text of one non-linear term, in characters."""


class Atom:
    """A named dim (`kind` 'dim') or a non-linear term ('floordiv', 'mod', 'min', 'max') of two dims.

    There is one object for each: atoms that are equal are the same, so they are compared and hashed as objects.
    """

    __slots__ = ("kind", "name", "args", "_names", "_text", "__weakref__")
    kind: str
    name: str
    args: tuple[Dim, ...]

    def __new__(cls, kind: str, name: str = "", args: tuple[Dim, ...] = ()) -> Atom:
        key = kind, name, args
        found = _atoms.get(key)
        if found is None:
            with _atoms_lock:
                found = _atoms.get(key)
                if found is None:
                    found = object.__new__(cls)
                    found.kind, found.name, found.args = key
                    found._names = found._text = None
                    _atoms[key] = found
        return found

    def __reduce__(self) -> tuple[type[Atom], tuple[str, str, tuple[Dim, ...]]]:
        return Atom, (self.kind, self.name, self.args)

    _names: frozenset[str] | None
    _text: str | None

    @property
    def names(self) -> frozenset[str]:
        """Every dim name that occurs in it."""
        if self._names is None:
            self._names = frozenset({self.name}) if self.kind == "dim" else frozenset().union(*map(names, self.args))
        return self._names

    def __str__(self) -> str:
        if self._text is None:
            self._text = self.name if self.kind == "dim" else self._written()
        return self._text

    def __repr__(self) -> str:
        return str(self)

    def _written(self) -> str:
        if self.kind in ("min", "max"):
            text = f"{self.kind}({', '.join(str(a) for a in self.args)})"
        else:
            left, right = (str(a) if _is_word(a) else f"({a})" for a in self.args)
            text = f"({left}//{right})" if self.kind == "floordiv" else f"({left}%{right})"
        if len(text) > MAX_TEXT:
            raise TooMuchWork("an expression of sizes is too large", remedy="use fewer or simpler symbolic sizes")
        return text


_atoms: WeakValueDictionary[tuple[str, str, tuple[Dim, ...]], Atom] = WeakValueDictionary()
_atoms_lock = Lock()


def _after_fork() -> None:
    """A child has none of the threads, one of which may have held the lock."""
    global _atoms_lock
    _atoms_lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


Monomial: TypeAlias = tuple[Atom, ...]


def _is_word(value: Dim) -> bool:
    """True if the text of a value needs no parentheses around it."""
    return value.is_name if isinstance(value, Expr) else value >= 0


@lru_cache(maxsize=1 << 15)
def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(monomial), tuple(str(a) for a in monomial))


class Expr:
    """A non-constant dimension expression; build it with `dim`, arithmetic and the functions of this module."""

    __slots__ = ("terms", "_hash", "_names")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._names: frozenset[str] | None = None

    @property
    def is_name(self) -> bool:
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self.terms == other.terms)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            body = "*".join(str(a) for a in monomial)
            size = abs(factor)
            part = str(size) if not body else body if size == 1 else f"{size}*{body}"
            sign = "-" if factor < 0 else "+"
            text = (f"-{part}" if factor < 0 else part) if not text else f"{text} {sign} {part}"
        return text

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _sum(self, other, -1)

    def __rsub__(self, other: Dim) -> Dim:
        return _sum(other, self, -1)

    def __neg__(self) -> Dim:
        return _sum(0, self, -1)

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other == 1:
                return self
            return Expr(tuple((m, f * other) for m, f in self.terms)) if other else 0
        product: dict[Monomial, int] = {}
        factor = terms(other)
        degree = max(len(m) for m, _ in self.terms) + max((len(m) for m, _ in factor), default=0)
        spend(len(self.terms) * len(factor) * (1 + degree // 4))
        if len(self.terms) * len(factor) > 4 * MAX_TERMS or degree > MAX_DEGREE:
            raise TooMuchWork("an expression of sizes is too large", remedy="use fewer or simpler symbolic sizes")
        for left, a in self.terms:
            for right, b in factor:
                key = tuple(sorted(left + right, key=str)) if left and right else left or right
                product[key] = product.get(key, 0) + a * b
        return make(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)


Dim: TypeAlias = int | Expr


def terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    """The terms of a value: products of atoms with their factors."""
    if isinstance(value, Expr):
        return value.terms
    return (((), int(value)),) if value else ()


def make(terms: Mapping[Monomial, int]) -> Dim:
    """The sum of products of atoms (sorted by their text) with factors, in normal form."""
    kept = [(m, f) for m, f in terms.items() if f]
    if not kept:
        return 0
    spend(len(kept))
    if len(kept) > MAX_TERMS:
        raise TooMuchWork("an expression of sizes is too large", remedy="use fewer or simpler symbolic sizes")
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return Expr(tuple(sorted(kept, key=lambda t: _order(t[0])) if len(kept) > 1 else kept))


def _sum(left: Dim, right: Dim, sign: int) -> Dim:
    if isinstance(right, int) and isinstance(left, Expr):
        if not right:
            return left
        # The constant is the last term.
        head = left.terms if left.terms[-1][0] else left.terms[:-1]
        constant = sign * right + (0 if left.terms[-1][0] else left.terms[-1][1])
        return Expr((*head, ((), constant))) if constant else Expr(head)
    if isinstance(left, int) and isinstance(right, Expr):
        return _sum(right if sign > 0 else right * -1, left, 1)
    total = dict(terms(left))
    for monomial, factor in terms(right):
        total[monomial] = total.get(monomial, 0) + sign * factor
    return make(total)


def _atom(kind: str, *args: Dim) -> Expr:
    return Expr((((Atom(kind, args=args),), 1),))


@lru_cache(maxsize=4096)
def dim(name: str) -> Expr:
    """The named dim `name`, a run-time size >= 0 unless a range says otherwise."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise ValueError(f"not a dim name: {name!r}")
    return Expr((((Atom("dim", name),), 1),))


def _content(value: Dim) -> int:
    common = 0
    for _, factor in terms(value):
        common = gcd(common, factor)
    return common


def _split(value: Dim, divisor: int) -> tuple[Dim, Dim]:
    """(q, r) with value = divisor*q + r, where r holds what the divisor does not divide term by term."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in terms(value):
        q, r = divmod(factor, divisor)
        quotient[monomial] = q
        rest[monomial] = r
    return make(quotient), make(rest)


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b); b must be positive."""
    if isinstance(b, int):
        if b <= 0:
            raise ValueError("the divisor of a dim must be positive")
        if b == 1 or a == 0:
            return a
        if isinstance(a, int):
            return a // b
        whole, rest = _split(a, b)
        if isinstance(rest, int):
            return whole + rest // b
        common = gcd(b, _content(rest))
        if common > 1:
            rest, b = _split(rest, common)[0], b // common
        if b == 1:
            return whole + rest
        nested = _shifted_floordiv(rest)
        if nested is not None:
            # floor((floor(x/a) + c) / b) is floor((x + a*c) / (a*b))
            return whole + floordiv(nested[0] + nested[1] * nested[2], nested[1] * b)
        if isinstance(rest, Expr) and rest.is_name:
            inner = rest.terms[0][0][0]
            if inner.kind == "floordiv" and isinstance(inner.args[1], int):
                return whole + floordiv(inner.args[0], inner.args[1] * b)
            if inner.kind == "mod" and isinstance(inner.args[1], int) and inner.args[1] <= b:
                return whole
        return whole + _atom("floordiv", rest, b)
    if a == 0:
        return 0
    if a == b:
        return 1
    ratio = _exact_ratio(a, b)
    return ratio if ratio is not None else _atom("floordiv", a, b)


def _shifted_floordiv(value: Dim) -> tuple[Dim, int, int] | None:
    """(x, a, c) when the value is x//a + c with a positive int a."""
    found: Atom | None = None
    constant = 0
    for monomial, factor in terms(value):
        if not monomial:
            constant = factor
        elif found is None and factor == 1 and len(monomial) == 1 and monomial[0].kind == "floordiv":
            found = monomial[0]
        else:
            return None
    if found is None or not isinstance(found.args[1], int):
        return None
    return found.args[0], found.args[1], constant


def _exact_ratio(a: Dim, b: Expr) -> Dim | None:
    """a / b when b is a single monomial that divides every term of a."""
    if len(b.terms) != 1:
        return None
    (monomial, factor), out = b.terms[0], {}
    for candidate, value in terms(a):
        rest = list(candidate)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if value % factor:
            return None
        out[tuple(rest)] = value // factor
    return make(out)


def mod(a: Dim, b: Dim) -> Dim:
    """a - b*floor(a / b); b must be positive."""
    if isinstance(b, int):
        if b <= 0:
            raise ValueError("the divisor of a dim must be positive")
        if b == 1:
            return 0
        if isinstance(a, int):
            return a % b
        rest = _split(a, b)[1]
        if isinstance(rest, int):
            return rest % b
        return _atom("mod", rest, b)
    if a == 0 or a == b or (_exact_ratio(a, b) is not None):
        return 0
    return _atom("mod", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for positive b."""
    return floordiv(a + b - 1, b)


def _extremum(kind: str, values: tuple[Dim, ...]) -> Dim:
    pick: Callable[..., int] = min if kind == "min" else max
    flat: list[Dim] = []
    for value in values:
        if isinstance(value, Expr) and value.is_name and value.terms[0][0][0].kind == kind:
            flat.extend(value.terms[0][0][0].args)
        else:
            flat.append(value)
    # Values that differ by a constant are decided here: min(m, m + 3) is m.
    groups: dict[Dim, int] = {}
    for value in flat:
        constant = next((f for m, f in terms(value) if m == ()), 0)
        base = value - constant
        groups[base] = pick(groups[base], constant) if base in groups else constant
    kept = [base + constant for base, constant in groups.items()]
    kept = _absorbed(kind, kept)
    if len(kept) == 1:
        return kept[0]
    return _atom(kind, *sorted(kept, key=lambda v: (isinstance(v, Expr), str(v))))


def _absorbed(kind: str, values: list[Dim]) -> list[Dim]:
    """Absorption: max(min(a, b), b) is b, and min(max(a, b), b) is b."""
    other = "max" if kind == "min" else "min"

    def idle(value: Dim) -> bool:
        if not (isinstance(value, Expr) and value.is_name and value.terms[0][0][0].kind == other):
            return False
        return any(arg in values for arg in value.terms[0][0][0].args)

    return [v for v in values if not idle(v)] or values


def dmin(*values: Dim) -> Dim:
    """The smallest of the values."""
    return _extremum("min", values)


def dmax(*values: Dim) -> Dim:
    """The largest of the values."""
    return _extremum("max", values)


def product(values: object) -> Dim:
    """The product of an iterable of dims; 1 when empty."""
    total: Dim = 1
    for value in values:  # type: ignore[attr-defined]
        total = total * value
    return total


_NO_NAMES: frozenset[str] = frozenset()


def names(value: Dim) -> frozenset[str]:
    """Every dim name that occurs in the value."""
    if isinstance(value, int):
        return _NO_NAMES
    if value._names is None:
        value._names = frozenset().union(*(atom.names for monomial, _ in value.terms for atom in monomial))
    return value._names


OPERATIONS: dict[str, Callable[..., Dim]] = {"floordiv": floordiv, "mod": mod, "min": dmin, "max": dmax}
"""What the kinds of non-linear atoms compute."""


def has_extrema(value: Dim) -> bool:
    """True if a minimum or maximum is a factor of one of its terms."""
    return isinstance(value, Expr) and any(a.kind in ("min", "max") for monomial, _ in value.terms for a in monomial)


def substitute(value: Dim, env: Mapping[str, Dim]) -> Dim:
    """The value with dims replaced; names that `env` lacks stay."""
    if isinstance(value, int) or not env or names(value).isdisjoint(env):
        return value
    spend(len(value.terms))
    total: Dim = 0
    kept: dict[Monomial, int] = {}
    for monomial, factor in value.terms:
        if all(atom.names.isdisjoint(env) for atom in monomial):
            kept[monomial] = factor
            continue
        part: Dim = factor
        for atom in monomial:
            if atom.kind == "dim":
                part = part * env.get(atom.name, named(atom))
            else:
                part = part * OPERATIONS[atom.kind](*(substitute(a, env) for a in atom.args))
        total = total + part
    return make(kept) + total


def replace(value: Dim, env: Mapping[Expr, Dim]) -> Dim:
    """The value with expressions replaced: itself, or its factors and what they are made of, where `env` has them."""
    if isinstance(value, int) or not env:
        return value
    if value in env:
        return env[value]
    spend(len(value.terms))
    total: Dim = 0
    for monomial, factor in value.terms:
        part: Dim = factor
        for atom in monomial:
            if (known := env.get(named(atom))) is not None:
                part = part * known
            elif atom.kind == "dim":
                part = part * named(atom)
            else:
                part = part * OPERATIONS[atom.kind](*(replace(a, env) for a in atom.args))
        total = total + part
    return total


def named(atom: Atom) -> Expr:
    """The atom as an expression."""
    return Expr((((atom,), 1),))


def evaluate(value: Dim, env: Mapping[str, int]) -> int:
    """The number that the value has under `env`; KeyError names a missing dim."""
    if isinstance(value, int):
        return value
    total = 0
    for monomial, factor in value.terms:
        part = factor
        for atom in monomial:
            if atom.kind == "dim":
                part *= env[atom.name]
                continue
            args = [evaluate(a, env) for a in atom.args]
            if atom.kind == "floordiv":
                part *= args[0] // args[1]
            elif atom.kind == "mod":
                part *= args[0] % args[1]
            else:
                part *= min(args) if atom.kind == "min" else max(args)
        total += part
    return total
