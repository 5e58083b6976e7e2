"""What planning takes and gives: values and scheduled records in, tasks with operands, edges and storages out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import DType
from tensor_types.formats import PLAIN, Format
from tensor_types.relations import Relation

KINDS = ("input", "output", "constant", "state", "temporary")


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A tensor of the graph: logical shape (None: rank unknown), physical format, and where it comes from.

    `kind` is 'constant' for weights and 'state' for what lives from run to run; 'input', 'output' and 'temporary' tell
    model inputs, model outputs and the rest.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    kind: str = "temporary"
    format: Format = PLAIN

    @property
    def bytes(self) -> Dim:
        """Bytes of the physical tensor; ValueError while the rank is unknown."""
        if self.shape is None:
            raise ValueError(f"the size of {self.name} is not known")
        return product(self.format.physical_shape(self.shape)) * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A record at its place in program order.

    `guards` lists (bool value, 0 or 1), outermost first: the record's tasks run only if all of them hold.
    """

    record: Record
    guards: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GuardedRequirement:
    """How two extents must be to each other; `node` needs it, under its `guards` as a record."""

    left: Dim
    right: Dim
    relation: Relation
    node: str
    guards: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Growing:
    """Caches (input, output) of the model that a run may continue in place, and the axis of their rows.

    With the dim `held` 0 an output is made anew from the input. Else its first `held` rows are taken for granted, and
    the input is not read. The output has `room` rows more than the model says.
    """

    held: str
    room: str
    axis: int
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlanInput:
    """Everything that planning needs. `dims` are the named dims of the model and their inclusive ranges.

    `late_dims` are those that only a run decides: to `plan_model` they end segments, to `plan` they stay unknown.
    """

    values: tuple[ValueInfo, ...]
    records: tuple[Scheduled, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    requirements: tuple[GuardedRequirement, ...] = ()
    """What shape inference took for granted; a run that breaks one is refused."""
    late_dims: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    """Values whose bytes live from run to run. They are neither inputs nor outputs; updates write them in place."""
    bodies: tuple[PlanInput, ...] = ()
    """The bodies of loops, each a model of its own."""
    growing: tuple[Growing, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where bytes are: `index` counts storages (space 'arena'), inputs, outputs, states, constants, guard bytes or
    objects.

    `offset` counts bytes from the start of that thing.
    """

    space: str
    index: int
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a task: `role` is 'in', 'out', 'inout' or 'workspace'; `value` its name, None for scratch."""

    place: Place
    bytes: Dim
    role: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `program` counts `Plan.programs`; an AI CPU task has `program` None and names `op`, `attrs`.

    Operands of a kernel are in the order of its parameters; of an AI CPU task its inputs, then its outputs, and None
    stands for an input that is absent. `after` are the tasks that must end first, transitively reduced.
    `guard` is (guard byte, value that it must have).
    """

    node: str
    family: str
    operands: tuple[Operand | None, ...]
    program: int | None = None
    dims: tuple[Dim, ...] = ()
    grid: Dim = 1
    work: Dim = 0
    op: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[int, ...] = ()
    guard: tuple[int, int] | None = None
    may_alias: tuple[tuple[int, int], ...] = ()
    tiling: str = ""
    body: int | None = None
    """Of a loop: which of the model's bodies it repeats."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as some kernel wants it: permuted, reshaped, then packed. All None and PLAIN: as stored."""

    value: str
    permute: tuple[int, ...] | None = None
    reshape: tuple[int, ...] | None = None
    packing: Format = PLAIN


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes in the arena: how many, where, and the first and last task that touch them."""

    bytes: Dim
    offset: Dim
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned model. `places` tells for each value where it is; `arena` is the bytes of the arena.

    `output_copies` lists (output, value) for outputs that no task writes (views of inputs or constants, duplicates).
    """

    dims: Mapping[str, tuple[int, int | None]]
    values: Mapping[str, ValueInfo]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    programs: tuple[str, ...]
    constants: tuple[Constant, ...]
    tasks: tuple[Task, ...]
    storages: tuple[Storage, ...]
    places: Mapping[str, Place]
    arena: Dim
    n_guards: int
    n_objects: int
    output_copies: tuple[tuple[int, str], ...] = ()
    states: tuple[str, ...] = ()
    """Pinned: a buffer each that the caller gives and that no storage shares."""
    versions: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """For each value in a state: its version (itself, or what it is a view of), and the one that this one overwrote."""
    requirements: tuple[tuple[GuardedRequirement, tuple[int, int] | None], ...] = ()
    """Requirements, each with the guard of the tasks that make it (None: all runs do)."""
