"""Bodies of nodes: fused nodes and control flow, op by op.

A body is JSON: {"inputs": [name], "outputs": [name], "nodes": [{"op", "attrs", "inputs": [name or null],
"outputs": [name]}], "constants": {name: tensor}, "types": [[dtype, [int or null]] of each output]}. A tensor in
attributes is {"dtype", "shape", "values"}; it reaches implementations as an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acl_runtime.aicpu.registry import Attrs, Inputs, evaluate, get, implementation, tensor
from tensor_types.deadline import check_deadline
from tensor_types.dtypes import DTYPES
from tensor_types.limits import require_within

_ROW = 128
"""Bytes that a row takes beside its elements."""


def run_body(body: Mapping[str, Any], inputs: Sequence[Any], outer: Mapping[str, Any] | None = None) -> list[Any]:
    """Outputs of a body for its inputs. `outer` holds values of the surrounding graph that the body uses by name.

    ResourceLimit once the run has used up its time.
    """
    check_deadline()
    values: dict[str, Any] = dict(outer or {})
    values.update({name: tensor(t) for name, t in body.get("constants", {}).items()})
    values.update(zip(body["inputs"], inputs, strict=True))
    for node in body["nodes"]:
        arguments = [None if n is None else values[n] for n in node["inputs"]]
        attrs = node.get("attrs", {})
        if "captured" in attrs:  # a nested body uses outer values by name
            arguments += [values[n] for n in attrs["captured"]]
        results = evaluate(node["op"], attrs, arguments, len(node["outputs"]))
        values.update(zip(node["outputs"], results, strict=True))
    return [values[n] for n in body["outputs"]]


def _own_and_captured(inputs: Inputs, attrs: Attrs) -> tuple[list[Any], dict[str, Any]]:
    """Inputs of the op itself, and the captured outer values, which follow them in the order of attr `captured`."""
    names = list(attrs.get("captured", ()))
    count = len(inputs) - len(names)
    return list(inputs[:count]), dict(zip(names, inputs[count:], strict=True))


@implementation("Fused")
def _fused(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Any, ...]:
    return tuple(run_body(attrs["body"], inputs))


@implementation("If")
def _if(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Any, ...]:
    own, captured = _own_and_captured(inputs, attrs)
    chosen = attrs["then_branch"] if bool(np.asarray(own[0]).reshape(-1)[0]) else attrs["else_branch"]
    return tuple(run_body(chosen, [], captured))


@implementation("Loop")
def _loop(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Any, ...]:
    own, captured = _own_and_captured(inputs, attrs)
    body, state = attrs["body"], own[2:]
    limit, condition = get(own, 0), get(own, 1)
    count = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
    goes_on = True if condition is None else bool(np.asarray(condition).reshape(-1)[0])
    scanned: list[list[Any]] = [[] for _ in range(len(body["outputs"]) - 1 - len(state))]
    step = stacked = 0
    while goes_on and (count is None or step < count):
        results = run_body(body, [np.array(step, np.int64), np.array(goes_on), *state], captured)
        goes_on, step = bool(np.asarray(results[0]).reshape(-1)[0]), step + 1
        state = results[1 : 1 + len(state)]
        for rows, row in zip(scanned, results[1 + len(state) :], strict=True):
            rows.append(row)
            stacked += np.asarray(row).nbytes + _ROW
        require_within("tensor_bytes", stacked, "bytes that a loop stacks")
    first = 1 + len(state)
    return (*state, *(_stacked(rows, 0, body, first + i) for i, rows in enumerate(scanned)))


def _stacked(rows: Sequence[Any], axis: int, body: Mapping[str, Any], output: int) -> np.ndarray:
    """The rows along a new axis; of none, an empty tensor of the output's own dtype and shape, unknown extents 0."""
    if rows:
        return np.stack(rows, axis)
    dtype, shape = body["types"][output]
    each = [d or 0 for d in shape or ()]
    axis %= len(each) + 1
    return np.zeros((*each[:axis], 0, *each[axis:]), DTYPES[dtype].numpy)


@implementation("Scan")
def _scan(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Any, ...]:
    own, captured = _own_and_captured(inputs, attrs)
    body, count = attrs["body"], attrs["num_scan_inputs"]
    state, sequences = own[: len(own) - count], [np.asarray(a) for a in own[len(own) - count :]]
    axes = attrs.get("scan_input_axes") or [0] * count
    backwards = attrs.get("scan_input_directions") or [0] * count
    made = len(body["outputs"]) - len(state)
    out_axes = attrs.get("scan_output_axes") or [0] * made
    out_backwards = attrs.get("scan_output_directions") or [0] * made
    scanned: list[list[Any]] = [[] for _ in range(made)]
    length = sequences[0].shape[axes[0]]
    for step in range(length):
        rows = [
            np.take(s, length - 1 - step if back else step, a)
            for s, a, back in zip(sequences, axes, backwards, strict=True)
        ]
        results = run_body(body, [*state, *rows], captured)
        state = results[: len(state)]
        for collected, row in zip(scanned, results[len(state) :], strict=True):
            collected.append(row)
    stacked = [
        _stacked(rows[::-1] if back else rows, axis, body, len(state) + i)
        for i, (rows, axis, back) in enumerate(zip(scanned, out_axes, out_backwards, strict=True))
    ]
    return (*state, *stacked)


@implementation("SequenceMap")
def _sequence_map(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Any, ...]:
    own, captured = _own_and_captured(inputs, attrs)
    rows = [
        run_body(attrs["body"], [i[n] if isinstance(i, list) else i for i in own], captured) for n in range(len(own[0]))
    ]
    return tuple([row[k] for row in rows] for k in range(len(attrs["body"]["outputs"])))
