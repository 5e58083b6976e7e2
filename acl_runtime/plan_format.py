"""The plan of a package as the runtime uses it, read from JSON values with every number checked.

The schema is documented in `graph_opt.plan.plan_json`. What depends on input shapes (sizes against regions, dims
against the bounds of programs) is checked when a model is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from acl_runtime.expressions import expression
from acl_runtime.om import PackageError
from tensor_types.dims import Dim, names
from tensor_types.dtypes import DTYPES, DType
from tensor_types.formats import Format, parse_format

REGIONS = ("arena", "input", "output", "constant", "guard", "object")
_MAX_ROWS = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """Where bytes are: `index` counts storages, inputs, outputs, constants, guard bytes or objects."""

    region: str
    index: int
    offset: Dim


@dataclass(frozen=True)
class PlanValue:
    """A tensor: logical shape (None while unknown), physical format, place (None if it is never in memory)."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    format: Format
    place: Place | None


@dataclass(frozen=True)
class PlanConstant:
    """A constant in the form that some kernel wants."""

    value: int
    permute: tuple[int, ...] | None
    reshape: tuple[int, ...] | None
    packing: Format

    @property
    def is_stored(self) -> bool:
        """True if the canonical bytes serve as they are."""
        return self.permute is None and self.packing.is_plain


@dataclass(frozen=True)
class PlanTask:
    """A task; `program` is None for a host task, which has `op`, `attrs`, `inputs` and `outputs` (value numbers)."""

    node: str
    family: str
    after: tuple[int, ...]
    guard: tuple[int, int] | None
    program: int | None
    operands: tuple[Place, ...] = ()
    dims: tuple[Dim, ...] = ()
    grid: Dim = 1
    work: Dim = 0
    op: str = ""
    attrs: Mapping[str, Any] | None = None
    inputs: tuple[int | None, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class LoadedPlan:
    """A checked plan."""

    dims: Mapping[str, tuple[int, int | None]]
    values: tuple[PlanValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    programs: tuple[str, ...]
    constants: tuple[PlanConstant, ...]
    storages: tuple[tuple[Dim, Dim], ...]
    arena: Dim
    n_guards: int
    n_objects: int
    tasks: tuple[PlanTask, ...]
    output_copies: tuple[tuple[int, int], ...]
    requirements: tuple[tuple[Dim, Dim, bool, str], ...] = ()
    """(left, right, broadcast, node): extents that must agree, or one of them be 1 if they may broadcast."""


def read_plan(plan: object, programs: object) -> LoadedPlan:
    """The plan in JSON values and its program texts. PackageError names what is wrong."""
    try:
        return _Reader(_mapping(plan), [_text(p) for p in _rows(programs)]).plan()
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise PackageError(
            f"the plan of the package is not valid: {reason}", remedy="the file is damaged: convert the model again"
        ) from error


class _Reader:
    def __init__(self, source: Mapping[str, Any], programs: list[str]) -> None:
        self.source = source
        self.programs = programs
        self.n_values = len(_rows(source["values"]))
        self.counts = {
            "arena": len(_rows(source["storages"])),
            "input": len(_rows(source["inputs"])),
            "output": len(_rows(source["outputs"])),
            "constant": len(_rows(source["constants"])),
            "guard": _number(source["guards"], _MAX_ROWS),
            "object": _number(source["objects"], _MAX_ROWS),
        }

    def plan(self) -> LoadedPlan:
        source = self.source
        dims = {_text(n): self.bounds(b) for n, b in _mapping(source["dims"]).items()}
        self.known = frozenset(dims)
        values = tuple(self.value(v) for v in source["values"])
        return LoadedPlan(
            dims=dims,
            values=values,
            inputs=self.value_numbers(source["inputs"]),
            outputs=self.value_numbers(source["outputs"]),
            programs=tuple(self.programs),
            constants=tuple(self.constant(c) for c in source["constants"]),
            storages=tuple((self.size(b), self.size(o)) for b, o in source["storages"]),
            arena=self.size(source["arena"]),
            n_guards=self.counts["guard"],
            n_objects=self.counts["object"],
            tasks=tuple(self.task(n, t) for n, t in enumerate(_rows(source["tasks"]))),
            output_copies=tuple(
                (_number(o, self.counts["output"] - 1), _number(v, self.n_values - 1))
                for o, v in _rows(source["output_copies"])
            ),
            requirements=tuple(
                (self.size(left), self.size(right), bool(broadcast), _text(node))
                for left, right, broadcast, node in _rows(source["requirements"])
            ),
        )

    def bounds(self, pair: object) -> tuple[int, int | None]:
        low, high = _rows(pair)
        return _number(low, 1 << 62), None if high is None else _number(high, 1 << 62)

    def size(self, value: object) -> Dim:
        """An expression over the dims of the model."""
        found = expression(value)
        if unknown := names(found) - self.known:
            raise ValueError(f"unknown dim {min(unknown)}")
        return found

    def value_numbers(self, rows: object) -> tuple[int, ...]:
        return tuple(_number(v, self.n_values - 1) for v in _rows(rows))

    def value(self, row: Mapping[str, Any]) -> PlanValue:
        shape = _optional(row["shape"], lambda s: tuple(expression(d) for d in _rows(s)))
        place = _optional(row["place"], self.place)
        name = _text(row["dtype"])
        if name not in DTYPES:
            raise ValueError(f"unknown dtype {name[:40]}")
        if place is not None and place.region not in ("object", "guard"):
            for extent in shape or ():
                self.size(extent if isinstance(extent, int) else str(extent))
            if shape is None:
                raise ValueError("a tensor in memory has no shape")
        return PlanValue(_text(row["name"]), DTYPES[name], shape, parse_format(_text(row["format"])), place)

    def place(self, row: object) -> Place:
        region, index, offset = _rows(row)
        if region not in REGIONS:
            raise ValueError("unknown region")
        return Place(region, _number(index, self.counts[region] - 1), self.size(offset))

    def constant(self, row: Mapping[str, Any]) -> PlanConstant:
        def integers(values: object) -> tuple[int, ...]:
            return tuple(_number(v, 1 << 40) for v in _rows(values))

        value = _number(row["value"], self.n_values - 1)
        packing = parse_format(_text(row["packing"]))
        return PlanConstant(value, _optional(row["permute"], integers), _optional(row["reshape"], integers), packing)

    def task(self, number: int, row: Mapping[str, Any]) -> PlanTask:
        guard = _optional(row["guard"], lambda g: (_number(g[0], self.counts["guard"] - 1), _number(g[1], 1)))
        after = tuple(_number(a, number - 1) for a in _rows(row["after"]))
        common = (_text(row["node"]), _text(row["family"]), after, guard)
        if "program" not in row:
            inputs = tuple(_optional(v, lambda n: _number(n, self.n_values - 1)) for v in _rows(row["inputs"]))
            outputs = self.value_numbers(row["outputs"])
            return PlanTask(
                *common, None, op=_text(row["op"]), attrs=_mapping(row["attrs"]), inputs=inputs, outputs=outputs
            )
        return PlanTask(
            *common,
            _number(row["program"], len(self.programs) - 1),
            tuple(self.place(o) for o in _rows(row["operands"])),
            tuple(self.size(d) for d in _rows(row["dims"])),
            self.size(row["grid"]),
            self.size(row["work"]),
        )


def _optional(value: Any, read: Callable[[Any], _T]) -> _T | None:
    return None if value is None else read(value)


def _number(value: object, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise ValueError(f"{str(value)[:40]} is not a number in 0..{highest}")
    return value


def _rows(value: object) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > _MAX_ROWS:
        raise ValueError("a list is missing or too long")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is missing")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is missing")
    return value
