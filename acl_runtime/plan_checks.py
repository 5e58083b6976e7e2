"""What the parts of a plan say of each other: every tensor that is taken is made, and lies where its taker looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_types.dims import dim, names

if TYPE_CHECKING:
    from acl_runtime.plan_format import ModelPlan, PlanValue, SegmentPlan


def check_model(model: ModelPlan) -> None:
    """Every segment takes tensors as those before it make them, and none but these, and reads none that have no bytes.
    ValueError."""
    for segment in model.segments:
        _check_places(segment)
    if len(set(model.results)) != len(model.results):
        raise ValueError("two outputs of the model are one")
    first = model.segments[0]
    for number, segment in enumerate(model.segments):
        if len(segment.sources) != len(segment.inputs):
            raise ValueError("a segment has not one source per input")
        for position, (row, index) in enumerate(segment.sources):
            taken = segment.values[segment.inputs[position]]
            if number == 0:
                given = taken if (row, index) == (0, position) else None
            elif row > number:
                given = None
            else:
                given = model.output(row, index) if row else first.values[first.inputs[index]]
            if given is None or (taken.dtype, taken.shape, taken.format) != (given.dtype, given.shape, given.format):
                raise ValueError(f"a segment takes {taken.name[:80]}, which is not there")
    kinds: dict[str, PlanValue] = {}
    for segment in model.segments:
        if len({segment.values[n].name for n in segment.states}) != len(segment.states):
            raise ValueError("a segment has a state twice")
        for value in (segment.values[n] for n in segment.states):
            held = kinds.setdefault(value.name, value)
            if (held.dtype, held.shape) != (value.dtype, value.shape):
                raise ValueError(f"the state {value.name[:80]} has two types")
    _check_growing(model)
    for value in (*model.inputs, *model.outputs):
        if not value.format.is_plain:
            raise ValueError(f"{value.name[:80]} has a format of its own")


def _check_growing(model: ModelPlan) -> None:
    """A cache is continued by one of its kind, along dims that the first segment has and no input tells."""
    first = model.segments[0].dims
    told = {name for v in model.inputs for extent in v.shape or () for name in names(extent)}
    dims = [name for g in model.growing for name in (g.held, g.room)]
    if len(set(dims)) != len(dims) or any(first.get(name) != (0, None) or name in told for name in dims):
        raise ValueError("caches grow along dims that are not theirs")
    ends = [pair for g in model.growing for pair in g.pairs]
    if any(len(set(side)) != len(ends) for side in zip(*ends, strict=True)) or any(not g.pairs for g in model.growing):
        raise ValueError("a cache grows twice")
    for group in model.growing:
        rows = set()
        for a, b in group.pairs:
            past, present = model.inputs[a], model.outputs[b]
            if past.shape is None or present.shape is None or group.axis >= len(past.shape):
                raise ValueError(f"{past.name[:80]} has no rows that grow")
            others = [[d for k, d in enumerate(v.shape or ()) if k != group.axis] for v in (past, present)]
            known = all(model.segments[0].is_sized(v) for v in (past, present))
            # The session's memory is as large as this says.
            with_room = [
                d + dim(group.room) if k == group.axis else d for k, d in enumerate(present.shape)
            ] == list(model.output(*model.results[b]).shape or ())  # fmt: skip
            if others[0] != others[1] or past.dtype != present.dtype or not known or not with_room:
                raise ValueError(f"{past.name[:80]} does not continue as {present.name[:80]}")
            rows.add((past.shape[group.axis], present.shape[group.axis]))
        if len(rows) != 1:
            raise ValueError("caches that grow together have other rows")


def _check_places(segment: SegmentPlan) -> None:
    """An input lies in its own buffer; what Python code of a run reads or makes has an array or an object."""
    for index, value in enumerate(segment.values[n] for n in segment.inputs):
        place = value.place
        if place is None or (place.space, place.index, place.offset) != ("input", index, 0):
            raise ValueError(f"the input {value.name[:80]} does not lie in its buffer")
    tasks = [t for t in segment.tasks if t.program is None]
    used = {n for t in tasks for n in t.inputs if n is not None} | {v for _, v in segment.output_copies}
    used |= {n for t in tasks for n in t.outputs if segment.values[n].place is not None}  # without one it is dropped
    for value in (segment.values[n] for n in used.union(segment.outputs)):
        if not _has_content(segment, value):
            raise ValueError(f"{value.name[:80]} is used and is in no memory")


def _has_content(segment: SegmentPlan, value: PlanValue) -> bool:
    """Whether a run has an array or an object for it."""
    space = None if value.place is None else value.place.space
    if space in ("object", "input") or (space == "constant" and value.dtype.kind == "handle"):
        return True
    return space not in (None, "guard") and segment.is_sized(value)
