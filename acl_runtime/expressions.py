"""Evaluates all dim expressions of a plan at once: each distinct one, and each distinct part of one, a single time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tensor_types.dim_text import parse
from tensor_types.dims import Atom, Dim
from tensor_types.errors import ResourceLimit

BEYOND = 1 << 62
"""All values are smaller."""


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
        self._last: tuple[Mapping[str, int], list[int]] | None = None
        """The latest dims and their values."""
        self._following: dict[frozenset[str], list[int]] = {}
        """The steps that follow from some of the dims."""

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
                degree = max(len(atoms) for _, atoms in sums)
                constant = sum(factor for factor, atoms in sums if not atoms)
                linear = [(factor, atoms[0]) for factor, atoms in sums if atoms] if degree == 1 else []
                if len(linear) == 1:
                    self._numbers[value] = self._step("multiple", (*linear[0], constant))
                else:
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
        elif not -BEYOND < what < BEYOND:
            raise ResourceLimit("a size of the model is too large")
        self._constants.append(what if kind == "constant" else 0)
        return number

    def evaluate(self, dims: Mapping[str, int]) -> np.ndarray:
        """i64 value of every expression, by number. ResourceLimit where one leaves 62 bits or divides by 0."""
        last, moving, steps = self._last, self._moving, self._steps
        if last is not None and last[0].keys() == dims.keys() and len(last[1]) == len(steps):
            values = last[1].copy()
            moving = self._steps_of(frozenset([n for n, size in dims.items() if size != last[0][n]]))
        else:
            values = self._constants.copy()
        for number in moving:
            kind, what = steps[number]
            if kind == "multiple":
                factor, atom, constant = what
                value = factor * values[atom] + constant
            elif kind == "dim":
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
            if not -BEYOND < value < BEYOND:
                raise ResourceLimit("a size of the model is too large for these input shapes")
            values[number] = value
        self._last = dict(dims), values
        return np.array(values, np.int64)

    def _steps_of(self, changed: frozenset[str]) -> list[int]:
        """The steps that some dims decide, in order: from one token to the next few do."""
        found = self._following.get(changed)
        if found is None:
            follow: set[int] = set()
            for number in self._moving:
                kind, what = self._steps[number]
                atoms = [what[1]] if kind == "multiple" else [a for _, m in what for a in m] if kind == "sum" else what
                if what in changed if kind == "dim" else any(a in follow for a in atoms):
                    follow.add(number)
            found = self._following[changed] = sorted(follow)
        return found


class DistinctRows:
    """Rows of numbers, each once: most tasks of a model are like others. `of` gives the one of each row."""

    def __init__(self, rows: Iterable[tuple[int, ...]], width: int) -> None:
        known: dict[tuple[int, ...], int] = {}
        self.of = np.array([known.setdefault(row, len(known)) for row in rows], np.int64)
        self.columns = np.array(list(known), np.int64).reshape(-1, width).T
        self.counts = np.bincount(self.of, minlength=len(known)).astype(np.float64)

    def where(self, marked: np.ndarray) -> list[int]:
        """The rows whose distinct one is marked."""
        return np.flatnonzero(marked[self.of]).tolist() if marked.any() else []


def expression(value: object) -> Dim:
    """The expression in a JSON value, an int or a text. ValueError for anything else."""
    if isinstance(value, str) and len(value) < 1 << 16:
        return parse(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < BEYOND:
        return value
    raise ValueError(f"not a dim expression: {str(value)[:80]}")
