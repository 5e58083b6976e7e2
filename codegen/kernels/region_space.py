"""The index space of a kernel's result, and how values that broadcast to it are seen from it.

The axes of the space are those of the result in physical order. Neighbouring axes that are one run in every value are
merged, so that most kernels see one to three axes whatever the rank, and equal work has equal programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.kernels.operands import NotLowerable
from codegen.kernels.region_task import KernelTask
from codegen.kernels.wide_integers import in_words
from codegen.tile.ir import View
from graph_opt.ir.core import Value
from tensor_types.dims import Dim, product
from tensor_types.dtypes import I32
from tensor_types.formats import Format


def order(format_: Format, rank: int) -> tuple[int, ...]:
    """The logical axis at each physical position."""
    return format_.permutation or tuple(range(rank))


class Space:
    """Axis groups of a result and views of values over them.

    `values` are all values that will be viewed. Physical axes in `apart` are not merged with others; with `merge=False`
    no axes are. Axes of different `kinds` (one per logical axis) do not merge. `logical` gives, for values that do not
    broadcast from the right, the logical axis of the space behind each of their axes.
    """

    def __init__(
        self, task: KernelTask, shape: Sequence[Dim], format_: Format, values: Sequence[Value],
        apart: Sequence[int] = (), merge: bool = True, kinds: Sequence[int] | None = None,
        logical: Mapping[str, Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        self._logical = logical or {}
        self.task = task
        self.rank = len(shape)
        self._order = order(format_, self.rank)
        physical = [shape[a] for a in self._order]
        axes = [k for k in range(self.rank) if not merge or physical[k] != 1 or k in apart]
        for value in values:
            self._check(value, shape)
        places = [self._places(v) for v in values]
        groups: list[list[int]] = []
        for k in axes:
            if merge and groups and k not in apart and groups[-1][-1] not in apart:
                before = groups[-1][-1]
                alike = kinds is None or kinds[self._order[before]] == kinds[self._order[k]]
                if alike and all(_one_run(p, before, k) for p in places):
                    groups[-1].append(k)
                    continue
            groups.append([k])
        self.groups = tuple(map(tuple, groups))
        """Physical axes of the result in each group, outermost first."""
        self.graph_extents = tuple(product(physical[k] for k in g) for g in self.groups)
        self.extents = task.extents(self.graph_extents)
        """Program dims of the groups."""

    def _check(self, value: Value, shape: Sequence[Dim]) -> None:
        """NotLowerable if an axis is either as long as the space's or 1, as the run decides."""
        assert value.shape is not None
        mine = self._logical.get(value.name, range(self.rank - len(value.shape), self.rank))
        for axis, size in zip(mine, value.shape, strict=True):
            if size not in (1, shape[axis]):
                raise NotLowerable(f"{value.name}: extent {size} against {shape[axis]} may or may not broadcast")

    def _places(self, value: Value) -> list[int]:
        """The space's axis behind each physical axis of the value, axes of extent 1 left out."""
        assert value.shape is not None
        position = {logical: k for k, logical in enumerate(self._order)}
        shift = self.rank - len(value.shape)
        mine = self._logical.get(value.name, range(shift, self.rank))
        return [position[mine[a]] for a in order(value.format, len(value.shape)) if value.shape[a] != 1]

    def view(
        self, value: Value, index: Sequence[Dim], extents: Sequence[Dim], role: str = "in", words: bool = False
    ) -> View:
        """The value at `index` (one expression per group) for a block of these extents.

        An i64 value that the target sees in words is seen by its low words, as i32, and with `words` in any case; those
        above are at 1 along the last index.
        """
        places = self._places(value)
        chosen = [g for k in places for g, axes in enumerate(self.groups) if axes[0] == k or k in axes[:1]]
        chosen = list(dict.fromkeys(chosen))
        shape = [self.extents[g] for g in chosen]
        if words or in_words(value.dtype, self.task.target):
            buffer = self.task.operand(value, role, [*shape, 2], dtype=I32)
            return buffer.view(*(index[g] for g in chosen), 0, shape=extents)
        buffer = self.task.operand(value, role, shape)
        return buffer.view(*(index[g] for g in chosen), shape=extents)


def _one_run(places: list[int], a: int, b: int) -> bool:
    """True if two axes of the space are one run in a value, or neither occurs."""
    if a not in places and b not in places:
        return True
    return a in places and b in places and places.index(b) == places.index(a) + 1
