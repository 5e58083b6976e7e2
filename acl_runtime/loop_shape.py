"""What a loop of a plan says of its operands and of its body, checked when the plan is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tensor_types.dtypes import BOOL, DTYPES

if TYPE_CHECKING:
    from acl_runtime.plan_format import ModelPlan, PlanValue

_LEAD = (DTYPES["i64"], BOOL)
"""Trip count and condition of a Loop; what its body gets for them is the number of the run and the condition."""


class LoopShape(NamedTuple):
    """How the operands and results of a loop are divided: operands before the states (trip count and condition of a
    Loop), states, sequences of a Scan, values from outside; axes and directions of what is cut and stacked."""

    lead: int
    states: int
    scans: int
    captured: int
    in_axes: tuple[int, ...]
    in_backwards: tuple[bool, ...]
    out_axes: tuple[int, ...]
    out_backwards: tuple[bool, ...]

    @property
    def operands(self) -> int:
        return self.lead + self.states + self.scans + self.captured


def loop_shape(op: str, attrs: Mapping[str, Any], n_inputs: int, n_outputs: int) -> LoopShape:
    """That of a task with so many operands and results. ValueError if there is none."""
    if op not in ("Loop", "Scan"):
        raise ValueError(f"{op[:80]} has no body that is repeated")
    lead = 2 if op == "Loop" else 0
    captured = _count(attrs.get("captured"), n_inputs)
    scans = _count(attrs.get("num_scan_inputs"), n_inputs) if op == "Scan" else 0
    states = n_inputs - lead - scans - captured
    stacked = n_outputs - states
    if states < 0 or stacked < 0 or (op == "Scan" and not scans):
        raise ValueError(f"a {op} has {n_inputs} operands and {n_outputs} results")

    def numbers(name: str, count: int) -> tuple[int, ...]:
        given = attrs.get(name) or [0] * count
        if not isinstance(given, list) or len(given) != count or not all(type(n) is int for n in given):
            raise ValueError(f"{op}: attribute {name} has not {count} numbers")
        return tuple(given)

    return LoopShape(
        lead, states, scans, captured, numbers("scan_input_axes", scans),
        tuple(map(bool, numbers("scan_input_directions", scans))), numbers("scan_output_axes", stacked),
        tuple(map(bool, numbers("scan_output_directions", stacked))),
    )  # fmt: skip


def check_loop(
    body: ModelPlan, op: str, attrs: Mapping[str, Any], inputs: Sequence[PlanValue | None], outputs: Sequence[PlanValue]
) -> None:
    """The body takes and gives what the task repeats it with; shapes are compared when it runs. ValueError."""
    shape = loop_shape(op, attrs, len(inputs), len(outputs))
    if body.states:
        raise ValueError("the body of a loop keeps a state from run to run")
    given = [v.dtype for v in body.inputs]
    lead = list(_LEAD[: shape.lead])
    made = [v.dtype for v in body.outputs]
    wanted = [*lead, *(None if v is None else v.dtype for v in inputs[shape.lead :])]
    results = [*lead[1:], *(v.dtype for v in outputs)]
    carried = slice(shape.lead, shape.lead + shape.states)
    if wanted != given or results != made or given[carried] != results[len(lead[1:]) :][: shape.states]:
        raise ValueError(f"the body of a {op} takes or gives other tensors than its task")
    for value, dtype in zip(inputs[: shape.lead], lead, strict=True):
        if value is not None and value.dtype != dtype:
            raise ValueError(f"the trip count or condition of a {op} is of the dtype {value.dtype}")
    cut, stacked = inputs[shape.lead + shape.states :][: shape.scans], outputs[shape.states :]
    for value, axis in [*zip(cut, shape.in_axes, strict=True), *zip(stacked, shape.out_axes, strict=True)]:
        rank = None if value is None or value.shape is None else len(value.shape)
        if rank is not None and not -rank <= axis < rank:
            raise ValueError(f"axis {axis} of a {op} is none of its tensor")


def _count(value: object, highest: int) -> int:
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError("a loop does not tell how many operands it has of a kind")
    return value
