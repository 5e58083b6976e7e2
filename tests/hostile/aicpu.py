"""Tasks of every operator of the AI CPU with changed attributes and operands: refused when read, or they end with a code.

What the schemas accept may fail on extents and values, but not because an attribute is missing or of another type.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.aicpu import evaluate
from acl_runtime.aicpu.schema_table import ROWS
from acl_runtime.aicpu.schemas import Operand, check_task, kind_of
from codegen.lowering.aicpu_tasks import _plain
from tensor_types.deadline import run_deadline
from tensor_types.dtypes import HANDLE, from_numpy
from tensor_types.errors import OpenAtcError
from tests.hostile.packages import change
from tests.runtime.test_aicpu import CASES

_OF_A_WRONG_TYPE = (TypeError, KeyError, AttributeError, NameError, RecursionError, AssertionError)
_IDENTITY = {"op": "Identity", "attrs": {}, "inputs": ["x"], "outputs": ["y"]}
_BODY: dict[str, Any] = {"inputs": ["x"], "outputs": ["y"], "nodes": [_IDENTITY], "constants": {}, "types": [["f32", [2]]]}
_LOOP = {"inputs": ["i", "c", "x"], "outputs": ["c", "y"], "nodes": [_IDENTITY], "constants": {}, "types": []}
_ATTRS: dict[str, Any] = {
    "int": 1, "float": 0.5, "string": "", "ints": [1, 2], "floats": [0.5, 2.0], "strings": ["a"], "type": None,
    "tensor": {"dtype": "i64", "shape": [2], "values": [1, 2]}, "graph": _BODY,
}  # fmt: skip
_ARRAYS = {"f": np.float32, "i": np.int64, "u": np.uint8, "b": np.bool_, "c": np.complex64, "s": object}


def prepare(folder: Path) -> None:
    """Nothing is needed."""


@cache
def seeds() -> dict[str, list[tuple[dict[str, Any], list[Any], int]]]:
    """Tasks by operator: those that are compared with onnxruntime, and for the other operators one by its schema."""
    found: dict[str, list[tuple[dict[str, Any], list[Any], int]]] = {}
    for op, inputs, attrs, n_outputs in CASES:
        plain = {name: _plain(value) for name, value in attrs.items()}
        found.setdefault(op, []).append((plain, [None if i is None else np.asarray(i) for i in inputs], n_outputs))
    for op, (operands, words) in ROWS.items():
        if op not in found:
            attrs = {name: _ATTRS[kind] for name, kind in (word.split("=") for word in words.split())}
            inputs = [_operand(word.partition(":")[2]) for word in operands.split()]
            if op == "Loop":
                attrs["body"], inputs = _LOOP, [np.array(2), np.array(True), np.ones(2, np.float32)]
            if op == "If":
                attrs = dict.fromkeys(attrs, {**_BODY, "inputs": []}) | {"captured": ["x"]}
                inputs.append(np.ones(2, np.float32))
            found[op] = [(attrs, inputs, 1)]
    return found


@cache
def sound_seeds() -> frozenset[tuple[str, int]]:
    """Which of them run as they are."""
    sound = set()
    for op, tasks in seeds().items():
        for number, (attrs, inputs, n_outputs) in enumerate(tasks):
            with contextlib.suppress(ValueError, OpenAtcError):
                check_task(op, attrs, [_known(value) for value in inputs], n_outputs)
                evaluate(op, attrs, inputs, n_outputs)
                sound.add((op, number))
    return frozenset(sound)


def _operand(kinds: str) -> Any:
    kind = next(k for k in "fiubsch" if k in kinds)
    if kind == "h":
        return [np.ones(2, np.float32)]
    return np.full((2, 2), "a", object) if kind == "s" else np.ones((2, 2), _ARRAYS[kind])


def _known(value: Any) -> Operand | None:
    if value is None:
        return None
    if isinstance(value, list):
        return Operand(kind_of(HANDLE))
    return Operand(kind_of(from_numpy(value.dtype)), value.ndim)


class Case:
    def __init__(self, folder: Path) -> None:
        self.ops = sorted(seeds())
        os.environ.setdefault("OPENATC_LIMITS", "tensor_bytes=1e7,run_seconds=1")  # what is within the default takes seconds

    def run(self, draw: random.Random) -> str:
        return self.changed(draw, draw.choice(self.ops))

    def changed(self, draw: random.Random, op: str) -> str:
        """The outcome of one changed task of an operator; AssertionError if the schema let a wrong type pass."""
        number = draw.randrange(len(seeds()[op]))
        attrs, inputs, n_outputs = seeds()[op][number]
        attrs = json.loads(json.dumps(attrs))
        declared = [word.split("=") for word in ROWS[op][1].split()]
        if not attrs or draw.random() < 0.3:
            name, kind = draw.choice([*declared, ["x", "int"]])
            attrs.setdefault(name, json.loads(json.dumps(_ATTRS[kind])))
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            change(draw, attrs)
        operands = list(inputs)
        if operands and draw.random() < 0.3:
            at = draw.randrange(len(operands))
            operands[at] = draw.choice([None, _operand("f"), _operand("i"), _operand("s"), np.zeros((0, 3)), np.array(-7)])
        try:
            check_task(op, attrs, [_known(value) for value in operands], n_outputs)
        except ValueError:
            return "refused"
        try:
            with run_deadline():
                evaluate(op, attrs, operands, n_outputs)
        except OpenAtcError as error:
            same = all(a is b for a, b in zip(inputs, operands, strict=True)) and (op, number) in sound_seeds()
            if isinstance(error.__cause__, _OF_A_WRONG_TYPE) and same:
                raise AssertionError(f"{op} {attrs}: {error.message}") from error
            return error.code
        return "ran"
