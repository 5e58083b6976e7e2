"""A kernel task while it is written: parameters for values of the graph, dims for run-time extents, the record."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.built_programs import text_of
from codegen.kernels.tiling import DoesNotFit
from codegen.targets.target import Target
from codegen.tile.build import Buffer, ProgramBuilder
from codegen.tile.chip_rules import check_tiles
from codegen.tile.ir import View
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import KernelRecord, TaskOperand
from tensor_types.dims import Dim, substitute
from tensor_types.dtypes import DType
from tensor_types.formats import PLAIN, Format


def physical(value: Value) -> tuple[Dim, ...]:
    """Physical extents of a value; its shape must be known."""
    assert value.shape is not None
    return value.format.physical_shape(value.shape)


class KernelTask(ProgramBuilder):
    """A program builder whose parameters are values of the graph.

    Parameters are called p0, p1... and dims d0, d1... in order of first use, so equal kernels have equal text. Static
    extents are baked; each distinct run-time extent is a dim unless `relate` has given it as an expression of others.
    """

    def __init__(self, node: Node, family: str, target: Target) -> None:
        super().__init__(family)
        self.node, self.target = node, target
        self.family = family
        self._operands: list[TaskOperand] = []
        self._known: dict[object, Buffer] = {}
        self._extents: dict[Dim, Dim] = {}
        self._values: list[tuple[str, Dim]] = []

    def extent(self, value: Dim, low: int = 0) -> Dim:
        """A graph dim as a dim of the program; `low` is the least value that the kernel takes."""
        if isinstance(value, int):
            return value
        if value not in self._extents:
            name = f"d{len(self._values)}"
            self._values.append((name, value))
            self._extents[value] = self.dim(name, low)
        return self._extents[value]

    def datum(self, value: Dim) -> Dim:
        """The same of a value that is a dim of its own even if it is a number: programs that differ in it are one."""
        name = f"d{len(self._values)}"
        self._values.append((name, value))
        return self.dim(name)

    def extents(self, values: Sequence[Dim]) -> tuple[Dim, ...]:
        """Several graph dims as program dims."""
        return tuple(self.extent(v) for v in values)

    def relate(self, value: Dim, expression: Dim) -> Dim:
        """States that a graph dim is this expression over the program's dims, unless it already has one."""
        if isinstance(value, int):
            return value
        return self._extents.setdefault(value, expression)

    def operand(
        self, value: Value, role: str = "in", shape: Sequence[Dim] | None = None, *, packing: Format = PLAIN,
        permute: tuple[int, ...] | None = None, reshape: tuple[int, ...] | None = None, dtype: DType | None = None,
    ) -> Buffer:  # fmt: skip
        """The parameter of a value; `shape` are program dims of as many elements (None: its physical shape).

        A constant may ask for another form, see `TaskOperand`. The same request gives the same parameter. With `dtype`
        the same bytes are seen as elements of that dtype, and `shape` counts those.
        """
        dims = tuple(shape) if shape is not None else self.extents(physical(value))
        key = (value.name, dims, packing, permute, reshape, dtype)
        if key not in self._known:
            self._operands.append(TaskOperand(value.name, role, packing, 0, permute, reshape))
            self._known[key] = self.param(f"p{len(self._operands) - 1}", dtype or value.dtype, dims, role)
        return self._known[key]

    def tile_shape(self, name: str) -> tuple[int, ...]:
        """The static shape of a tile declared before."""
        return next(t.shape for t in self._tiles if t.name == name)

    def element_type(self, view: View) -> DType:
        """The dtype of the elements that a view sees."""
        return next(base.dtype for base in (*self._tiles, *self._params) if base.name == view.base)

    def scope(self, name: str) -> str:
        """The memory of a tile declared before."""
        return next(t.scope for t in self._tiles if t.name == name)

    def workspace(self, dtype: DType, shape: Sequence[Dim]) -> Buffer:
        """Scratch in global memory that lives during the task."""
        size: Dim = dtype.bytes
        for extent in shape:
            size = size * extent
        self._operands.append(TaskOperand(None, "workspace", bytes=self._graph(size)))
        return self.param(f"p{len(self._operands) - 1}", dtype, tuple(shape), "workspace")

    def _graph(self, value: Dim) -> Dim:
        return substitute(value, dict(self._values))

    def record(self, work: Dim = 0, may_alias: tuple[tuple[int, int], ...] = ()) -> KernelRecord:
        """The finished task; `work` counts scalar operations in program dims. DoesNotFit if its tiles do not."""
        program = self.finish()
        if misfit := check_tiles(program.tiles, self.target):
            raise DoesNotFit(misfit[1])
        return KernelRecord(
            text_of(program), tuple(self._operands), tuple(v for _, v in self._values),
            self._graph(program.grid_size()), self.node.name, self.family, self._graph(work), may_alias,
        )  # fmt: skip
