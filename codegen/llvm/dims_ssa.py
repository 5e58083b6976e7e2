"""Dimension expressions as SSA values, each computed once per scope.

A value that was computed in an enclosing block is reused in inner ones; on leaving a loop or branch its values are
forgotten, because they do not dominate what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from codegen.llvm.text import Function, Value
from tensor_types.dims import Atom, Dim, Expr


class DimValues:
    """Evaluates dims over bound names (program dims, grid and loop variables) into `fn`."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self._scopes: list[dict[object, Value]] = [{}]

    def bind(self, name: str, value: Value) -> None:
        """Gives a name its value until the current scope ends."""
        self._scopes[-1][name] = value

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A loop body or branch."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _known(self, key: object) -> Value | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def value(self, dim: Dim) -> Value:
        """The SSA value (or int) of a dim."""
        if isinstance(dim, int):
            return dim
        known = self._known(dim)
        if known is None:
            known = self._sum(dim)
            self._scopes[-1][dim] = known
        return known

    def _sum(self, dim: Expr) -> Value:
        fn = self.fn
        total: Value = 0
        constant = 0
        for monomial, factor in dim.terms:
            if not monomial:
                constant = factor
                continue
            part: Value = self._atom(monomial[0])
            for atom in monomial[1:]:
                part = fn.mul(part, self._atom(atom))
            total = fn.add(total, fn.mul(part, factor))
        return fn.add(total, constant)

    def _atom(self, atom: Atom) -> Value:
        key: object = atom.name if atom.kind == "dim" else atom
        known = self._known(key)
        if known is not None:
            return known
        if atom.kind == "dim":
            raise KeyError(f"dim {atom.name!r} has no value here")
        left, right = (self.value(a) for a in atom.args[:2])
        if atom.kind in ("min", "max"):
            pick = self.fn.minimum if atom.kind == "min" else self.fn.maximum
            result = pick(left, right)
            for arg in atom.args[2:]:
                result = pick(result, self.value(arg))
        else:
            result = self.fn.floordiv(left, right) if atom.kind == "floordiv" else self.fn.mod(left, right)
        self._scopes[-1][atom] = result
        return result
