"""What planning needs to know of the work that a node was lowered to: neutral records, no kernel code.

A node becomes one or more `KernelRecord`s (native code, one task each) or one `AicpuRecord` (the AI CPU: numpy code of
the runtime, by name).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensor_types.dims import Dim
from tensor_types.formats import PLAIN, Format


@dataclass(frozen=True, slots=True)
class TaskOperand:
    """One pointer argument: a value of the graph by name, or scratch of `bytes` that lives during the task alone.

    `packing` is the format in which a constant is wanted, on top of the value's own format. `reshape` is the shape the
    constant takes before packing (None: its own), for instance a convolution's weight seen as a matrix; `permute`
    applies before the reshape.
    """

    value: str | None
    role: str
    """'in', 'out', 'inout' or 'workspace'."""
    packing: Format = PLAIN
    bytes: Dim = 0
    permute: tuple[int, ...] | None = None
    reshape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A native task: program text, operands in the order of its parameters, values of its dims in its order."""

    program: str
    operands: tuple[TaskOperand, ...]
    dims: tuple[Dim, ...]
    grid: Dim
    node: str
    """Name of the graph node that it computes (part of)."""
    family: str
    work: Dim = 0
    """Rough number of scalar operations, for the choice of chunk sizes; 0 when trivial."""
    may_alias: tuple[tuple[int, int], ...] = ()
    """(output operand, input operand) pairs that may share bytes element for element."""
    tiling: str = ""
    """How the kernel is cut, in the text form of `codegen.kernels.tiling`; "" where there is nothing to choose."""


@dataclass(frozen=True, slots=True)
class AicpuRecord:
    """A task for the AI CPU: `op` names an implementation in the runtime, `attrs` are JSON values."""

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    node: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    body: int | None = None
    """Of a loop: number of the body that the runtime repeats, among those of the model."""


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """`output` is `input` seen with another shape (Reshape, Squeeze, a leading slice): no task, shared bytes.

    With `update`, it is what a state becomes: the record behind it writes some of the bytes, and nothing behind that
    reads `input`.
    """

    output: str
    input: str
    node: str
    byte_offset: Dim = 0
    update: bool = False


Record = KernelRecord | AicpuRecord | AliasRecord
