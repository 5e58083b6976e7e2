"""From the shapes of tensors to the named dims of the model, and to those that only a run decides."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensor_types.dims import Atom, Dim, Expr, evaluate, names, substitute
from tensor_types.dtypes import DType
from tensor_types.errors import InvalidModel


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as planned: name, dtype, shape in dims (None: only the run decides)."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None

    def shown(self) -> str:
        return "?" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"


def solve_dims(
    inputs: Sequence[TensorSpec],
    shapes: Sequence[Sequence[int]],
    ranges: Mapping[str, tuple[int, int | None]],
) -> dict[str, int]:
    """The value of every named dim. InvalidModel names the input, what it should be and what it is."""
    try:
        known = _solve_all(inputs, shapes, ranges, {})
    except _WrongShapeError as wrong:
        raise InvalidModel(
            f"the shape of an input is wrong: {wrong}",
            where={"tensor": wrong.tensor},
            remedy="give an array of the expected shape",
        ) from None
    for name in ranges:
        if name not in known:
            for spec, shape in zip(inputs, shapes, strict=True):
                if any(name in names(d) for d in spec.shape or ()):
                    got = f"got [{', '.join(map(str, shape))}], expected {spec.shown()}"
                    raise InvalidModel(
                        f"the shape of an input is wrong: no {name!r} gives it; {got}", where={"tensor": spec.name},
                        remedy="give an array of the expected shape",
                    )  # fmt: skip
            raise InvalidModel(
                f"no input shape determines the dim {name!r}", remedy="convert the model again with a fixed size for it"
            )
    return known


def solve_late_dims(
    tensors: Sequence[TensorSpec],
    shapes: Sequence[Sequence[int] | None],
    ranges: Mapping[str, tuple[int, int | None]],
    known: Mapping[str, int],
) -> dict[str, int]:
    """`known` and the dims that tensors of a run decide. None is the shape of a tensor whose branch did not run.

    Dims that only such tensors have are left out. InvalidModel if a tensor is not as planned.
    """
    made = [(t, s) for t, s in zip(tensors, shapes, strict=True) if s is not None]
    try:
        solved = _solve_all([t for t, _ in made], [s for _, s in made], ranges, known)
        for spec, shape in made:
            wanted = {name for d in spec.shape or () if isinstance(d, Expr) for name in names(d)}
            if wanted <= ranges.keys() and not wanted <= solved.keys():
                raise _WrongShapeError(spec, shape, "nothing determines its dims")
        return solved
    except _WrongShapeError as wrong:
        raise InvalidModel(
            f"the run made a tensor of a shape that was not planned: {wrong}",
            where={"tensor": wrong.tensor},
            remedy="check the values of the model's inputs: they decide this shape",
        ) from None


class _WrongShapeError(Exception):
    def __init__(self, spec: TensorSpec, shape: Sequence[int], why: str) -> None:
        super().__init__(f"{why}; got [{', '.join(map(str, shape))}], expected {spec.shown()}")
        self.tensor = spec.name


def _solve_all(
    specs: Sequence[TensorSpec],
    shapes: Sequence[Sequence[int]],
    ranges: Mapping[str, tuple[int, int | None]],
    given: Mapping[str, int],
) -> dict[str, int]:
    """`given` and the dims that the shapes determine."""
    known = dict(given)
    for spec, shape in zip(specs, shapes, strict=True):
        if spec.shape is not None and len(spec.shape) != len(shape):
            raise _WrongShapeError(spec, shape, f"it has {len(shape)} axes, not {len(spec.shape)}")
    pairs = [
        (spec, shape, axis, dim, size)
        for spec, shape in zip(specs, shapes, strict=True)
        for axis, (dim, size) in enumerate(zip(spec.shape or (), shape, strict=False))
        if dim != size  # static and right: nothing to solve
    ]
    equations = {(dim, size): (spec, shape, axis) for spec, shape, axis, dim, size in reversed(pairs)}
    progress = True
    while progress:
        progress = False
        for dim, size in reversed(equations):
            is_name = isinstance(dim, Expr) and dim.is_name and dim.terms[0][0][0].kind == "dim"
            solved = (str(dim), size) if is_name else _solve(substitute(dim, known), size)
            if solved is not None and solved[0] not in known:
                known[solved[0]] = solved[1]
                progress = True
    for (dim, size), (spec, shape, axis) in reversed(equations.items()):
        if names(dim) <= known.keys() and evaluate(dim, known) != size:
            said = f", which is {evaluate(dim, known)} here" if isinstance(dim, Expr) else ""
            raise _WrongShapeError(spec, shape, f"axis {axis} has size {size}, expected {dim}{said}")
    for name, (low, high) in ranges.items():
        if name not in known or name in given:
            continue
        if known[name] < low or (high is not None and known[name] > high):
            spec, shape = next((s, h) for s, h, _, d, _ in pairs if name in names(d))
            limit = f"at most {high}" if high is not None and known[name] > high else f"at least {low}"
            why = f"the dim {name!r} is {known[name]}, the model was converted for {limit}"
            raise _WrongShapeError(spec, shape, why)
    return known


def _solve(dim: Dim, size: int) -> tuple[str, int] | None:
    """The one dim that an equation dim == size determines, if it is linear in it or grows with it."""
    if isinstance(dim, int):
        return None
    linear = [(m, f) for m, f in dim.terms if m]
    constant = sum(f for m, f in dim.terms if not m)
    if len(linear) != 1 or len(linear[0][0]) != 1 or linear[0][0][0].kind != "dim":
        return _solve_growing(dim, size)
    factor = linear[0][1]
    return (linear[0][0][0].name, (size - constant) // factor) if (size - constant) % factor == 0 else None


def _solve_growing(dim: Expr, size: int) -> tuple[str, int] | None:
    """The same for a sum of one dim and quotients of it, such as h + h//2: no two sizes give the same value."""
    known = names(dim)
    parts = [(atoms, factor) for atoms, factor in dim.terms if atoms]
    if len(known) != 1 or any(len(atoms) != 1 or factor < 1 for atoms, factor in parts):
        return None
    kinds = {atoms[0].kind for atoms, _ in parts}
    if kinds != {"dim", "floordiv"} or any(not _is_quotient(atoms[0]) for atoms, _ in parts):
        return None
    (name,) = known
    room = range(max(size - evaluate(dim, {name: 0}) + 1, 0))  # it grows by 1 at least with each step
    found = bisect_left(room, size, key=lambda n: evaluate(dim, {name: n}))
    return (name, found) if found < len(room) and evaluate(dim, {name: found}) == size else None


def _is_quotient(atom: Atom) -> bool:
    """Whether it is a dim, or a positive part of one."""
    if atom.kind == "dim":
        return True
    above, below = atom.args
    terms = above.terms if isinstance(above, Expr) else ()
    return isinstance(below, int) and all(not m or (len(m) == 1 and m[0].kind == "dim" and f > 0) for m, f in terms)
