"""The plan of a package as the runtime uses it, read from JSON values with every number checked.

The schema is documented in `graph_opt.plan.plan_json`. What depends on input shapes (sizes against their memory, dims
against the bounds of programs) is checked when a segment is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from acl_runtime.aicpu.attribute_rules import MAX_RANK
from acl_runtime.aicpu.schemas import Operand, check_task, kind_of
from acl_runtime.expressions import expression
from acl_runtime.loop_shape import check_loop
from acl_runtime.om import PackageError
from acl_runtime.plan_checks import check_model
from tensor_types.dims import Dim, names, substitute
from tensor_types.dtypes import DTYPES, DType
from tensor_types.effort import effort
from tensor_types.formats import Format, parse_format
from tensor_types.limits import limit
from tensor_types.relations import RELATIONS, Relation

SPACES = ("arena", "input", "output", "state", "constant", "guard", "object")
_MAX_ROWS = 1 << 20
_DEEPEST = 32
"""Bodies within bodies."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """Where bytes are: `index` counts storages, inputs, outputs, constants, guard bytes or objects."""

    space: str
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


@dataclass(frozen=True)
class PlanTask:
    """A task; `program` is None for an AI CPU task, which has `op`, `attrs`, `inputs` and `outputs` (value numbers)."""

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
    tiling: str = ""
    """How the kernel is cut, for people and tuners."""
    body: int | None = None
    """Of a loop: which of the model's bodies it repeats."""


@dataclass(frozen=True)
class PlanRequirement:
    """How two extents must be to each other whenever the tasks with `guard` run."""

    left: Dim
    right: Dim
    relation: Relation
    node: str
    guard: tuple[int, int] | None


@dataclass(frozen=True)
class SegmentPlan:
    """The checked plan of a segment; its tasks count the programs of the model.

    `sources` tells for each input its (row, number in it): row 0 holds the model's inputs, row s + 1 the outputs of
    segment s.
    """

    sources: tuple[tuple[int, int], ...]
    dims: Mapping[str, tuple[int, int | None]]
    values: tuple[PlanValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...]
    constants: tuple[PlanConstant, ...]
    storages: tuple[tuple[Dim, Dim], ...]
    arena: Dim
    n_guards: int
    n_objects: int
    tasks: tuple[PlanTask, ...]
    output_copies: tuple[tuple[int, int], ...]
    requirements: tuple[PlanRequirement, ...] = ()

    def is_sized(self, value: PlanValue) -> bool:
        """True if the dims of the segment tell the value's shape and it has bytes."""
        known = value.shape is not None and all(names(d) <= self.dims.keys() for d in value.shape)
        return known and value.dtype.kind != "handle"

    def is_late(self, value: PlanValue) -> bool:
        """True if it lives as an object: nobody has bytes for it before the run."""
        return value.place is None or value.place.space == "object" or not self.is_sized(value)


@dataclass(frozen=True)
class Growing:
    """Caches that a run may continue in place: (input, output) of the model and the axis of their rows.

    The dims `held` and `room` are of the session. `held` rows of the outputs are there before the run, and the inputs
    are not read then; the outputs have `room` rows more than the model says.
    """

    held: str
    room: str
    axis: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ModelPlan:
    """Segments, run in order; `results` are the (row, number) of the model's outputs, see `SegmentPlan.sources`.
    `bodies` are what its loops repeat; their tasks count the same programs."""

    programs: tuple[str, ...]
    segments: tuple[SegmentPlan, ...]
    results: tuple[tuple[int, int], ...]
    bodies: tuple[ModelPlan, ...] = ()
    growing: tuple[Growing, ...] = ()

    def all_segments(self) -> Iterator[SegmentPlan]:
        """Its own and those of its bodies."""
        yield from self.segments
        for body in self.bodies:
            yield from body.all_segments()

    @cached_property
    def own_dims(self) -> frozenset[str]:
        """Dims that the session gives, 0 unless it continues caches in place."""
        return frozenset(name for g in self.growing for name in (g.held, g.room))

    @property
    def dims(self) -> Mapping[str, tuple[int, int | None]]:
        """Named dims that the shapes of the model's inputs decide."""
        return {name: bounds for name, bounds in self.segments[0].dims.items() if name not in self.own_dims}

    @property
    def inputs(self) -> tuple[PlanValue, ...]:
        """The model's inputs."""
        return tuple(self.segments[0].values[n] for n in self.segments[0].inputs)

    @property
    def outputs(self) -> tuple[PlanValue, ...]:
        """The model's outputs, without the room that the session may give them."""
        nothing = dict.fromkeys(self.own_dims, 0)
        found = (self.output(row, number) for row, number in self.results)
        return tuple(
            v if v.shape is None else replace(v, shape=tuple(substitute(d, nothing) for d in v.shape)) for v in found
        )

    @property
    def states(self) -> tuple[PlanValue, ...]:
        """What lives from run to run, each once."""
        found = {s.values[n].name: s.values[n] for s in self.segments for n in s.states}
        return tuple(found.values())

    def output(self, row: int, number: int) -> PlanValue:
        """Output `number` of segment row - 1."""
        segment = self.segments[row - 1]
        return segment.values[segment.outputs[number]]


def read_plan(plan: object, programs: object) -> ModelPlan:
    """The plan in JSON values and its program texts. PackageError names what is wrong."""
    try:
        with effort(limit("parse_steps")):
            return _read_plan(plan, programs)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise PackageError(
            f"the plan of the package is not valid: {reason}", remedy="the file is damaged: convert the model again"
        ) from error


def _read_plan(plan: object, programs: object) -> ModelPlan:
    texts = tuple(_text(p) for p in _rows(programs))
    return _read_model(_mapping(plan), texts, 0)


def _read_model(source: Mapping[str, Any], texts: tuple[str, ...], depth: int) -> ModelPlan:
    if depth > _DEEPEST:
        raise ValueError(f"bodies are nested deeper than {_DEEPEST}")
    bodies = tuple(_read_model(_mapping(b), texts, depth + 1) for b in _rows(source.get("bodies", [])))
    segments = tuple(_Reader(_mapping(s), len(texts), bodies).plan() for s in _rows(source["segments"]))
    if not segments:
        raise ValueError("it has no segment")
    results = tuple(_link(r, segments, 1) for r in _rows(source["outputs"]))
    growing = tuple(_growing(_mapping(g), segments, results) for g in _rows(source.get("growing", [])))
    model = ModelPlan(texts, segments, results, bodies, growing)
    check_model(model)
    return model


def _growing(
    row: Mapping[str, Any], segments: Sequence[SegmentPlan], results: Sequence[tuple[int, int]]
) -> Growing:
    inputs = len(segments[0].inputs)
    pairs = ((_number(a, inputs - 1), _number(b, len(results) - 1)) for a, b in _rows(row["pairs"]))
    return Growing(_text(row["held"]), _text(row["room"]), _number(row["axis"], MAX_RANK), tuple(pairs))


def _link(row: object, segments: Sequence[SegmentPlan], first: int) -> tuple[int, int]:
    """A (row, number in it) among the model's inputs and the outputs of these segments."""
    at, number = _rows(row)
    at = _number(at, len(segments))
    ends = segments[at - 1].outputs if at else segments[0].inputs
    if at < first:
        raise ValueError("an output of the model is an input")
    return at, _number(number, len(ends) - 1)


class _Reader:
    def __init__(self, source: Mapping[str, Any], programs: int, bodies: Sequence[ModelPlan]) -> None:
        self.source = source
        self.bodies = bodies
        self.programs = programs
        self._expressions: dict[str, Dim] = {}
        self.n_values = len(_rows(source["values"]))
        self.counts = {
            "arena": len(_rows(source["storages"])),
            "input": len(_rows(source["inputs"])),
            "output": len(_rows(source["outputs"])),
            "state": len(_rows(source["states"])),
            "constant": len(_rows(source["constants"])),
            "guard": _number(source["guards"], _MAX_ROWS),
            "object": _number(source["objects"], _MAX_ROWS),
        }

    def plan(self) -> SegmentPlan:
        source = self.source
        dims = {_text(n): self.bounds(b) for n, b in _mapping(source["dims"]).items()}
        self.known = frozenset(dims)
        self.values = values = tuple(self.value(v) for v in source["values"])
        return SegmentPlan(
            sources=tuple((_number(r, _MAX_ROWS), _number(n, _MAX_ROWS)) for r, n in _rows(source["sources"])),
            dims=dims,
            values=values,
            inputs=self.value_numbers(source["inputs"]),
            outputs=self.value_numbers(source["outputs"]),
            states=self.states(source["states"]),
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
                PlanRequirement(self.size(left), self.size(right), _relation(relation), _text(node), self.guard(guard))
                for left, right, relation, node, guard in _rows(source["requirements"])
            ),
        )

    def bounds(self, pair: object) -> tuple[int, int | None]:
        low, high = _rows(pair)
        return _number(low, 1 << 62), None if high is None else _number(high, 1 << 62)

    def size(self, value: object) -> Dim:
        """An expression over the dims of the model."""
        found = self.expression(value)
        self.require_known(found)
        return found

    def require_known(self, size: Dim) -> None:
        """ValueError for an expression over other dims than those of the model."""
        if not isinstance(size, int) and (unknown := names(size) - self.known):
            raise ValueError(f"unknown dim {min(unknown)}")

    def expression(self, value: object) -> Dim:
        """An expression; the same text, which stands in many tasks, is read once."""
        if not isinstance(value, str):
            return expression(value)
        found = self._expressions.get(value)
        if found is None:
            found = self._expressions[value] = expression(value)
        return found

    def value_numbers(self, rows: object) -> tuple[int, ...]:
        return tuple(_number(v, self.n_values - 1) for v in _rows(rows))

    def states(self, rows: object) -> tuple[int, ...]:
        """States are static tensors in plain order, at the beginning of their buffer."""
        numbers = self.value_numbers(rows)
        for index, value in enumerate(self.values[n] for n in numbers):
            static = value.shape is not None and all(isinstance(d, int) and d >= 0 for d in value.shape)
            if not static or not value.format.is_plain or value.dtype.kind == "handle":
                raise ValueError(f"the state {value.name[:80]} is no static tensor in plain order")
            if value.place != Place("state", index, 0):
                raise ValueError(f"the state {value.name[:80]} does not lie in its buffer")
        return numbers

    def value(self, row: Mapping[str, Any]) -> PlanValue:
        shape = _optional(row["shape"], lambda s: tuple(self.expression(d) for d in _rows(s)))
        if shape is not None and len(shape) > MAX_RANK:
            raise ValueError(f"a tensor has {len(shape)} axes, at most {MAX_RANK} are possible")
        place = _optional(row["place"], self.place)
        name = _text(row["dtype"])
        if name not in DTYPES:
            raise ValueError(f"unknown dtype {name[:40]}")
        if place is not None and place.space not in ("object", "guard", "input"):
            for extent in shape or ():
                self.require_known(extent)
            if shape is None:
                raise ValueError("a tensor in memory has no shape")
        if any(isinstance(extent, int) and extent < 0 for extent in shape or ()):
            raise ValueError("a tensor has a negative extent")
        format_ = parse_format(_text(row["format"]))
        if not format_.is_invertible:
            raise ValueError(f"a tensor lies in the format {format_}, from which it cannot be read")
        if shape is not None:
            format_.physical_shape(shape)  # it is one of this rank
        return PlanValue(_text(row["name"]), DTYPES[name], shape, format_, place)

    def operand(self, number: int) -> Operand:
        value = self.values[number]
        return Operand(kind_of(value.dtype), None if value.shape is None else len(value.shape))

    def place(self, row: object) -> Place:
        space, index, offset = _rows(row)
        if space not in SPACES:
            raise ValueError("unknown space")
        return Place(space, _number(index, self.counts[space] - 1), self.size(offset))

    def constant(self, row: Mapping[str, Any]) -> PlanConstant:
        def integers(values: object) -> tuple[int, ...]:
            return tuple(_number(v, 1 << 40) for v in _rows(values))

        value = _number(row["value"], self.n_values - 1)
        packing = parse_format(_text(row["packing"]))
        return PlanConstant(value, _optional(row["permute"], integers), _optional(row["reshape"], integers), packing)

    def guard(self, pair: object) -> tuple[int, int] | None:
        return _optional(pair, lambda g: (_number(g[0], self.counts["guard"] - 1), _number(g[1], 1)))

    def task(self, number: int, row: Mapping[str, Any]) -> PlanTask:
        after = tuple(_number(a, number - 1) for a in _rows(row["after"]))
        common = (_text(row["node"]), _text(row["family"]), after, self.guard(row["guard"]))
        if "program" not in row:
            inputs = tuple(_optional(v, lambda n: _number(n, self.n_values - 1)) for v in _rows(row["inputs"]))
            outputs = self.value_numbers(row["outputs"])
            places = (self.values[n].place for n in outputs)
            if any(p is not None and p.space in ("input", "constant") for p in places):
                raise ValueError("a task writes to an input or a constant")
            op, attrs = _text(row["op"]), _mapping(row["attrs"])
            if "body" in row:
                body = _number(row["body"], len(self.bodies) - 1)
                check_loop(self.bodies[body], op, attrs, [None if n is None else self.values[n] for n in inputs],
                           [self.values[n] for n in outputs])  # fmt: skip
                return PlanTask(*common, None, op=op, attrs=attrs, inputs=inputs, outputs=outputs, body=body)
            try:
                check_task(op, attrs, [None if n is None else self.operand(n) for n in inputs], len(outputs))
            except ValueError as error:
                raise PackageError(
                    f"a task of the AI CPU is not valid: {error}",
                    where={"node": common[0]},
                    remedy="the file is damaged: convert the model again",
                ) from None
            return PlanTask(*common, None, op=op, attrs=attrs, inputs=inputs, outputs=outputs)
        return PlanTask(
            *common,
            _number(row["program"], self.programs - 1),
            tuple(self.place(o) for o in _rows(row["operands"])),
            tuple(self.size(d) for d in _rows(row["dims"])),
            self.size(row["grid"]),
            self.size(row["work"]),
            tiling=_text(row["tiling"]),
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


def _relation(value: object) -> Relation:
    if value not in RELATIONS:
        raise ValueError(f"unknown relation of extents {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is missing")
    if not value.isascii():
        value.encode()  # ValueError for half a character, which no file and no terminal takes
    return value
