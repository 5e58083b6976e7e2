"""Loops: the body, which was compiled like a model, is run again and again on what its last run made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acl_runtime.fixed_loop import FixedLoop, first_element
from acl_runtime.loop_shape import LoopShape, loop_shape
from acl_runtime.plan_format import PlanTask, PlanValue
from tensor_types.deadline import check_deadline
from tensor_types.dims import Expr, evaluate, names
from tensor_types.dtypes import HANDLE
from tensor_types.errors import InvalidModel
from tensor_types.limits import require_within

if TYPE_CHECKING:
    from acl_runtime.model_runs import ModelRuns

_ROW = 128
"""Bytes that a row takes beside its elements."""


class LoopRuns:
    """What a session holds of the body of a loop. Several threads may repeat it at a time."""

    def __init__(self, runs: ModelRuns) -> None:
        self.runs = runs
        plan = runs.plan
        told = {str(d) for v in plan.inputs for d in v.shape or () if isinstance(d, Expr) and d.is_name}
        self._taken = [name for name in plan.dims if name not in told]
        """Dims of the model around it that no input of the body tells."""

    def repeat(
        self, task: PlanTask, inputs: Sequence[Any], results: Sequence[PlanValue], dims: Mapping[str, int]
    ) -> list[Any]:
        """The `results` of a loop's task, None for those that nobody reads; `dims` are those of the graph around it."""
        shape = loop_shape(task.op, task.attrs or {}, len(inputs), len(results))
        wanted = [v.place is not None for v in results]
        known = {name: dims[name] for name in self._taken if name in dims}
        first = shape.lead + shape.states
        taken = self.runs.plan.inputs
        state = [_given(v, p) for v, p in zip(inputs[shape.lead : first], taken[shape.lead :], strict=False)]
        sequences = [
            np.moveaxis(_given(v, p), axis, 0)
            for v, p, axis in zip(inputs[first:], taken[first:], shape.in_axes, strict=False)
        ]
        behind = first + shape.scans
        captured = [_given(v, p) for v, p in zip(inputs[behind:], taken[behind:], strict=True)]
        rows = [_Rows(is_wanted) for is_wanted in wanted[shape.states :]]
        trips, goes_on = _trips(inputs, shape, sequences)
        if goes_on and trips != 0:
            fixed = FixedLoop.of(self.runs, shape, [*state, *sequences, *captured], known, wanted)
            if fixed is not None:
                return fixed.repeat(trips)
        step = 0
        while goes_on and (trips is None or step < trips):
            check_deadline()
            own = [np.array(step, np.int64), np.array(goes_on)][: shape.lead]
            cut = [
                np.array(s[len(s) - 1 - step if back else step, ...], order="C")
                for s, back in zip(sequences, shape.in_backwards, strict=True)
            ]
            made = self.runs.repeat([*own, *state, *cut, *captured], known)
            if shape.lead:
                goes_on = bool(first_element(made.pop(0)))
            state = [_given(v, p) for v, p in zip(made[: shape.states], taken[shape.lead :], strict=False)]
            for row, result in zip(rows, made[shape.states :], strict=True):
                row.add(result)
            require_within("tensor_bytes", sum(r.nbytes for r in rows), "bytes that a loop stacks")
            step += 1
        ends = [v[()] if p.dtype == HANDLE else v for v, p in zip(state, taken[shape.lead :], strict=False)]
        stacks = [
            row.stacked(axis, back, value, dims) if row.wanted else None
            for row, axis, back, value in zip(
                rows, shape.out_axes, shape.out_backwards, results[shape.states :], strict=True
            )
        ]
        return [*ends, *stacks]


class _Rows:
    """What the runs of a body make for one result."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.nbytes = 0
        self._rows: list[np.ndarray] = []

    def add(self, row: Any) -> None:
        if self.wanted:
            self._rows.append(np.asarray(row))
            self.nbytes += self._rows[-1].nbytes + _ROW

    def stacked(self, axis: int, backwards: bool, value: PlanValue, dims: Mapping[str, int]) -> np.ndarray:
        """The rows along a new axis; of none, an empty tensor of the result `value`, whose unknown extents are 0."""
        if self._rows:
            if len({row.shape for row in self._rows}) > 1:
                raise InvalidModel(
                    "the runs of a loop make rows of different shapes", where={"tensor": value.name},
                    remedy="check the values of the model's inputs: they decide these shapes",
                )  # fmt: skip
            return np.stack(self._rows[::-1] if backwards else self._rows, axis)
        each = [evaluate(d, dims) if names(d) <= dims.keys() else 0 for d in value.shape or (0,)]
        each[axis] = 0
        return np.zeros(each, value.dtype.numpy)


def _trips(inputs: Sequence[Any], shape: LoopShape, sequences: Sequence[np.ndarray]) -> tuple[int | None, bool]:
    """How often the body runs at most, None for any number, and whether it begins at all."""
    if not shape.lead:
        lengths = {len(s) for s in sequences}
        if len(lengths) != 1:
            raise InvalidModel(f"the sequences of a Scan have different lengths: {sorted(lengths)}",
                               remedy="check the shapes of the model's inputs")  # fmt: skip
        return lengths.pop(), True
    limit, condition = inputs[:2]
    return None if limit is None else int(first_element(limit)), condition is None or bool(first_element(condition))


def _given(value: Any, planned: PlanValue) -> np.ndarray:
    """A tensor as a run of the body takes it: in one piece, of the planned dtype; a sequence or optional in a box."""
    if planned.dtype == HANDLE:
        box = np.empty((), object)
        box[()] = value
        return box
    array = np.asarray(value, object if planned.dtype.kind == "handle" else None)
    if array.dtype != planned.dtype.numpy:
        raise InvalidModel(
            f"a loop carries {array.dtype}, planned was {planned.dtype}", where={"tensor": planned.name},
            remedy="this is a fault of the compiler: report it with the model",
        )  # fmt: skip
    return array if array.flags.c_contiguous else np.array(array, order="C")
