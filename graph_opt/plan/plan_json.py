"""The plan of a model as plain JSON values, as the runtime reads it.

    {"segments": [segment], "programs": [text], "outputs": [[row, number]], "bodies": [the same without programs],
     "growing": [{"held": dim, "room": dim, "axis", "pairs": [[input of the model, output of the model]]}]}

Row 0 of tensors are the model's inputs, row s + 1 the outputs of segment s. A segment:

    {"sources": [[row, number]] of its inputs,
     "dims": {name: [low, high or null]},
     "requirements": [[left, right, relation, node, [guard byte, value] or null]],
     "values": [{"name", "dtype", "shape" (list of expressions, or null), "format", "place" (or null)}],
     "inputs": [value number], "outputs": [value number], "states": [value number],
     "constants": [{"value": number, "permute": [..] or null, "reshape": [..] or null, "packing": format}],
     "storages": [[bytes, offset]], "arena": bytes,
     "guards": count, "objects": count,
     "tasks": [{"node", "family", "after": [task], "guard": [byte, value] or null, "operands": [place or null],
                native: "program": number, "dims": [..], "grid", "work"
                AI CPU: "op", "attrs", "inputs": [value number or null], "outputs": [value number],
                        of a loop "body": which of the bodies it repeats}],
     "output_copies": [[output number, value number]]}

An expression is an int or the text form of `tensor_types.dims`; a place is [space, index, offset] with the spaces
arena (index of a storage), input, output, state, constant, guard and object. A state is a buffer of the caller that
tasks read and write; it has the same name in every segment. Tasks of the AI CPU have no operands.
"""

from __future__ import annotations

from typing import Any

from graph_opt.plan.segments import ModelPlan
from graph_opt.plan.task_graph import Place, Plan, Task
from tensor_types.dims import Dim


def model_to_json(model: ModelPlan) -> dict[str, Any]:
    """The plan as dicts, lists, strings and numbers, in a fixed order."""
    shared = {text: n for n, text in enumerate(model.programs)}
    return {**_model(model, shared), "programs": list(shared)}


def _model(model: ModelPlan, shared: dict[str, int]) -> dict[str, Any]:
    segments = [
        {"sources": [list(place) for place in s.sources], **_plan(s.plan, [shared[text] for text in s.plan.programs])}
        for s in model.segments
    ]
    bodies = [_model(body, shared) for body in model.bodies]
    growing = [
        {"held": g.held, "room": g.room, "axis": g.axis, "pairs": [list(pair) for pair in pairs]}
        for g, pairs in model.growing
    ]
    outputs = [list(o) for o in model.outputs]
    return {"segments": segments, "outputs": outputs, "bodies": bodies, "growing": growing}


def _plan(plan: Plan, programs: list[int]) -> dict[str, Any]:
    """A segment's plan; `programs` gives the number in the model of each of its programs."""
    number = {name: n for n, name in enumerate(plan.values)}
    return {
        "dims": {name: list(bounds) for name, bounds in plan.dims.items()},
        "values": [
            {
                "name": v.name,
                "dtype": v.dtype.name,
                "shape": None if v.shape is None else [_dim(d) for d in v.shape],
                "format": str(v.format),
                "place": _place(plan.places[v.name]) if v.name in plan.places else None,
            }
            for v in plan.values.values()
        ],
        "inputs": [number[name] for name in plan.inputs],
        "outputs": [number[name] for name in plan.outputs],
        "states": [number[name] for name in plan.states],
        "constants": [
            {
                "value": number[c.value],
                "permute": None if c.permute is None else list(c.permute),
                "reshape": None if c.reshape is None else list(c.reshape),
                "packing": str(c.packing),
            }
            for c in plan.constants
        ],
        "storages": [[_dim(s.bytes), _dim(s.offset)] for s in plan.storages],
        "arena": _dim(plan.arena),
        "guards": plan.n_guards,
        "objects": plan.n_objects,
        "tasks": [_task(t, number, programs) for t in plan.tasks],
        "requirements": [
            [_dim(d.left), _dim(d.right), d.relation, d.node, None if guard is None else list(guard)]
            for d, guard in plan.requirements
        ],
        "output_copies": [[output, number[name]] for output, name in plan.output_copies],
    }


def _task(task: Task, number: dict[str, int], programs: list[int]) -> dict[str, Any]:
    common = {
        "node": task.node,
        "family": task.family,
        "after": list(task.after),
        "guard": None if task.guard is None else list(task.guard),
    }
    if task.program is None:
        names = [None if o is None or o.value is None else number[o.value] for o in task.operands]
        inputs = [n for n, o in zip(names, task.operands, strict=True) if o is None or o.role == "in"]
        outputs = [n for n, o in zip(names, task.operands, strict=True) if o is not None and o.role == "out"]
        body = {} if task.body is None else {"body": task.body}
        return {**common, "op": task.op, "attrs": dict(task.attrs), "inputs": inputs, "outputs": outputs, **body}
    return {
        **common,
        "program": programs[task.program],
        "operands": [None if o is None else _place(o.place) for o in task.operands],
        "dims": [_dim(d) for d in task.dims],
        "grid": _dim(task.grid),
        "work": _dim(task.work),
        "tiling": task.tiling,
    }


def _place(place: Place) -> list[Any]:
    return [place.space, place.index, _dim(place.offset)]


def _dim(value: Dim) -> int | str:
    return value if isinstance(value, int) else str(value)
