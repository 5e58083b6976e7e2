"""Each node of a package alone, on what the reference has: what its kernel makes, and what numpy makes of its body.

The kernel's distance from the reference is the isolated error. The same body in numpy, in the same dtypes and with
another order of summation, gives the noise floor; in float64 it tells how much of both is rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.aicpu import evaluate, has_implementation
from acl_runtime.om import open_package
from acl_runtime.package_layout import CONSTANTS, json_section
from acl_runtime.stored_constants import ConstantTable, KernelForm
from atc.kernel_names import kernel_name
from graph_opt.ir import Graph, Node, Value
from tensor_types.dtypes import from_onnx
from tensor_types.errors import OpenAtcError

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


@dataclass(frozen=True)
class Alone:
    """A value on the oracle's inputs, which `inputs` holds.

    kernel: what its kernel made; floor: numpy in the same dtypes; wide: numpy in float64, a function because it is
    seldom wanted. None where it cannot be had. native: a program made it.
    """

    inputs: Mapping[str, Any]
    kernel: Any
    floor: Any
    wide: Callable[[], Any]
    native: bool


class Isolation:
    """Walks the nodes of a package in order and tells of each value what it is alone.

    Values that only the compiler made (casts, parts, changes of layout) have no counterpart in the reference: what
    their kernels make of the oracle's inputs stands for it.
    """

    def __init__(
        self, graph: Graph, session: InferSession, package: Any, golden: Mapping[str, Any], chip: str | None = None
    ) -> None:
        self._graph = graph
        self._of_chip = "" if chip is None else f"@{chip}"
        self._names: dict[int, str] = {}
        self._programs = session.plan.programs
        self._tasks = session.isolated_tasks()
        opened = open_package(package)
        self._table = ConstantTable(opened, json_section(opened, CONSTANTS))
        self._stored = set(self._table.names())
        self._known: dict[str, Any] = {name: golden[name] for name in golden if name in graph.values}

    def walk(self, ran: Callable[[str], bool], visit: Callable[[str, Alone], None]) -> None:
        """Calls `visit(value name, alone)` for the outputs of each node that ran and whose inputs are known."""
        for node in self._graph.nodes:
            if not ran(node.outputs[0].name):
                continue
            # Of the results of two branches only one was made, and only that one counts.
            reads = [v for v in node.inputs if v is not None and (v.producer is None or ran(v.name))]
            inputs = {v.name: self.known(v) for v in reads}
            if any(v is None for v in inputs.values()):
                continue
            names = [v.name for v in node.outputs]
            memory = {v.name: inputs[v.name] for v in reads if not v.is_constant}
            by_numpy = self.by_numpy(node, inputs, wide=False)
            if self._tasks.has(node.name):
                by_kernel = self._tasks.run(node.name, memory, names) or {}
                native = self._tasks.program(node.name) is not None
            else:
                by_kernel, native = by_numpy, False
            for name in names:
                if by_kernel.get(name) is None:
                    continue
                floor = by_numpy.get(name) if native else by_kernel[name]
                visit(name, Alone(inputs, by_kernel[name], floor, _later(self.by_numpy, node, inputs, name), native))
                self._known.setdefault(name, by_kernel[name])

    def kernel(self, node: Node) -> str:
        """Name of the kernel that computes a node, the operator where the AI CPU does.

        A node without a task is another name of its input: the kernel is the one that makes that.
        """
        while not self._tasks.has(node.name) and node.inputs and node.inputs[0] and node.inputs[0].producer:
            node = node.inputs[0].producer
        program = self._tasks.program(node.name)
        if program is None:
            return str(node.attrs.get("family", node.op))
        if program not in self._names:
            self._names[program] = kernel_name(self._programs[program])
        return self._names[program]

    def known(self, value: Value) -> Any:
        """What the oracle has, or the constant; in the dtype of the graph. None if neither is known."""
        if value.name in self._known:
            found = self._known[value.name]
            if not isinstance(found, np.ndarray) or found.dtype == value.dtype.numpy or value.dtype.kind == "handle":
                return found
            with np.errstate(all="ignore"):
                return found.astype(value.dtype.numpy)
        if not value.is_constant:
            return None
        for name in (value.name + self._of_chip, value.name):
            if name in self._stored:
                return self._table.canonical(name)
        data = value.data
        return None if data is None or _is_elided(value) else data

    def task(self, node: Node) -> tuple[Mapping[str, int], str] | None:
        """The dims and the tiling that the native task of a node ran with; None if it has none, or several."""
        return self._tasks.facts(node.name)

    def constant(self, value: Value, form: KernelForm) -> np.ndarray:
        """A constant of the graph or of a body in the form that a kernel takes."""
        for name in (value.name + self._of_chip, value.name):
            if name in self._stored:
                return self._table.in_form(name, form)
        assert value.recipe is not None
        return np.asarray(form.of(value.recipe).array(), order="C")

    def by_numpy(
        self, node: Node, inputs: Mapping[str, Any], wide: bool = False, every: bool = False
    ) -> dict[str, Any]:
        """A node's outputs by its operators on the AI CPU; empty if one has no implementation or keeps subgraphs.

        With `every`, all values of its body by their names there. `wide` computes in float64.
        """
        body = node.subgraphs["body"] if node.op == "Fused" else None
        nodes = [node] if body is None else body.nodes
        if any(n.subgraphs for n in nodes if n.op != "Fused") or not all(map(_has_numpy, nodes)):
            return {}
        values: dict[str, Any] = dict(inputs)
        if body is not None:
            values = {i.name: inputs[o.name] for i, o in zip(body.inputs, node.inputs, strict=True) if o is not None}
            for value in body.values.values():
                if value.is_constant:
                    values[value.name] = self.known(value)
        if any(v is None for v in values.values()):
            return {}
        if wide:
            values = {name: _widened(value) for name, value in values.items()}
        try:
            for inner in nodes:
                arguments = [None if v is None else values[v.name] for v in inner.inputs]
                if inner.op == "Relayout":
                    results = [arguments[0]]
                elif wide and inner.op in ("Cast", "CastLike") and _to_float(inner):
                    results = [np.asarray(arguments[0]).astype(np.float64)]
                else:
                    results = evaluate(inner.op, inner.attrs, arguments, len(inner.outputs))
                values.update(zip((v.name for v in inner.outputs), results, strict=True))
        except (OpenAtcError, KeyError, ValueError):
            return {}
        if every:
            return values
        if body is None:
            return {v.name: values[v.name] for v in node.outputs}
        return {o.name: values[i.name] for o, i in zip(node.outputs, body.outputs, strict=True)}


def _later(
    compute: Callable[..., dict[str, Any]], node: Node, inputs: Mapping[str, Any], name: str
) -> Callable[[], Any]:
    return lambda: compute(node, inputs, wide=True).get(name)


def _has_numpy(node: Node) -> bool:
    """A Relayout changes memory, not what a tensor is in logical order."""
    return node.op == "Relayout" or has_implementation(node.op)


def _is_elided(value: Value) -> bool:
    """True if the graph's text left the content of a constant out."""
    words = getattr(getattr(value.recipe, "content", None), "words", None)
    return words is not None and words.startswith("elided")


def _widened(value: Any) -> Any:
    is_narrow = isinstance(value, np.ndarray) and value.dtype.kind in "fV" and value.dtype.itemsize < 8
    return value.astype(np.float64) if is_narrow else value


def _to_float(node: Node) -> bool:
    to = node.attrs.get("to")
    return isinstance(to, int) and from_onnx(to).name in _FLOATS
