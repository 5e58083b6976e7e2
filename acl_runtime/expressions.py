"""Evaluates all dim expressions of a plan at once: each distinct one, and each distinct part of one, a single time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensor_types.dim_text import parse
from tensor_types.dims import Atom, Dim
from tensor_types.errors import ResourceLimit

_LIMIT = 1 << 62


class ExpressionTable:
    """Expressions by number. `add` all of them first, then `evaluate` for any dims."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._by_text: dict[str, int] = {}
        self._numbers: dict[Dim, int] = {}
        self._atoms: dict[Atom, int] = {}
        self._steps: list[tuple[str, Any]] = []
        self._constants: list[int] = []
        """What each step gives; 0 for those that dims decide."""
        self._moving: list[int] = []
        """The steps that dims decide."""

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, value: Dim | str) -> int:
        """The number of an expression (text form or Dim). ValueError if the text is none."""
        if isinstance(value, str):
            if value not in self._by_text:
                self._by_text[value] = self.add(parse(value))
            return self._by_text[value]
        if value not in self._numbers:
            if isinstance(value, int):
                self._numbers[value] = self._step("constant", value)
            else:
                sums = [(factor, tuple(self._atom(a) for a in monomial)) for monomial, factor in value.terms]
                self._numbers[value] = self._step("sum", sums)
        return self._numbers[value]

    def _atom(self, atom: Atom) -> int:
        if atom not in self._atoms:
            if atom.kind == "dim":
                self.names.add(atom.name)
                self._atoms[atom] = self._step("dim", atom.name)
            else:
                self._atoms[atom] = self._step(atom.kind, tuple(self.add(a) for a in atom.args))
        return self._atoms[atom]

    def _step(self, kind: str, what: Any) -> int:
        number = len(self._steps)
        self._steps.append((kind, what))
        if kind != "constant":
            self._moving.append(number)
        elif not -_LIMIT < what < _LIMIT:
            raise ResourceLimit("a size of the model is too large")
        self._constants.append(what if kind == "constant" else 0)
        return number

    def evaluate(self, dims: Mapping[str, int]) -> np.ndarray:
        """i64 value of every expression, by number. ResourceLimit where one leaves 62 bits or divides by 0."""
        values, steps = self._constants.copy(), self._steps
        for number in self._moving:
            kind, what = steps[number]
            if kind == "dim":
                value = dims[what]
            elif kind == "sum":
                value = 0
                for factor, atoms in what:
                    for atom in atoms:
                        factor *= values[atom]
                    value += factor
            else:
                args = [values[a] for a in what]
                if kind == "min":
                    value = min(args)
                elif kind == "max":
                    value = max(args)
                elif args[1] <= 0:
                    raise ResourceLimit("a size of the model divides by zero for these input shapes")
                else:
                    value = args[0] // args[1] if kind == "floordiv" else args[0] % args[1]
            if not -_LIMIT < value < _LIMIT:
                raise ResourceLimit("a size of the model is too large for these input shapes")
            values[number] = value
        return np.array(values, np.int64)


def expression(value: object) -> Dim:
    """The expression in a JSON value, an int or a text. ValueError for anything else."""
    if isinstance(value, str) and len(value) < 1 << 16:
        return parse(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LIMIT:
        return value
    raise ValueError(f"not a dim expression: {str(value)[:80]}")
