"""Runs a model with onnxruntime in stages: around registered operators, which it lacks, and so many weights at a time.

Each stage is a part of the model that what is known so far decides. Between stages the numpy functions of registered
operators are called; without one, whatever depends on the operator stays unknown. What no later stage and nobody else
wants is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from acl_runtime.aicpu import evaluate
from atc.custom_operators import has_reference, is_registered
from frontend.attributes import attribute_values
from frontend.tensors import to_array

Run = Callable[[onnx.ModelProto, Mapping[str, Any]], Mapping[str, Any]]
"""A model without registered operators and values by name -> its outputs by name."""


@dataclass
class Stages:
    """`values` of the outputs that are known; `stand_ins`: tensors from numpy functions; `unknown`: tensor -> why."""

    values: dict[str, Any] = field(default_factory=dict)
    stand_ins: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)


def operator_of(node: onnx.NodeProto) -> str:
    """'Domain::Name' as in the graph IR."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def has_registered(graph: onnx.GraphProto) -> bool:
    """True if the graph, or a subgraph of it, uses a registered operator."""
    return any(is_registered(operator_of(n)) or any(map(has_registered, _bodies(n))) for n in graph.node)


def run_stages(proto: onnx.ModelProto, inputs: Mapping[str, Any], run: Run, part_bytes: int) -> Stages:
    """The outputs of a model whose external data are loaded; a stage has about `part_bytes` of weights at most."""
    graph = proto.graph
    wanted = {v.name for v in graph.output}
    stored = {t.name: t for t in graph.initializer}
    known: dict[str, Any] = {v.name: inputs[v.name] for v in graph.input if v.name in inputs}

    def value(name: str) -> Any:
        return known[name] if name in known else to_array(stored[name], Path())

    found = Stages()
    pending = list(graph.node)
    sizes = {n: len(t.raw_data) for n, t in stored.items()}
    while pending:
        stage = _ready(pending, known.keys() | stored.keys(), sizes, part_bytes)
        pending = _without(pending, stage)
        if stage:
            later = {name for n in pending for name in free_names(n)}
            part = part_of(proto, stage, known, [o for n in stage for o in n.output if o and o in wanted | later])
            known.update(run(part, {i.name: known[i.name] for i in part.graph.input}))
            known = {name: held for name, held in known.items() if name in wanted | later}
        at_hand = known.keys() | stored.keys()
        calls = [n for n in pending if has_reference(operator_of(n)) and free_names(n) <= at_hand]
        if not calls:
            if stage:
                continue
            break
        for node in calls:
            attrs, _ = attribute_values(node, Path())
            operands = [value(i) if i else None for i in node.input]
            results = evaluate(operator_of(node), attrs, operands, len(node.output))
            named = {name: result for name, result in zip(node.output, results, strict=True) if name}
            known.update(named)
            found.stand_ins.update(named)
        pending = _without(pending, calls)
    found.values = {name: value(name) for name in wanted if name in known or name in stored}
    for node in pending:
        op = operator_of(node)
        why = f"onnxruntime lacks {op}, and it has no numpy function" if is_registered(op) else f"it lies inside {op}"
        before = next((found.unknown[i] for i in sorted(free_names(node)) if i in found.unknown), None)
        found.unknown.update((o, before or why) for o in node.output if o)
    return found


def _ready(
    nodes: Sequence[onnx.NodeProto], known: set[str], sizes: Mapping[str, int], most: int
) -> list[onnx.NodeProto]:
    """The nodes that onnxruntime can run from what is known, in order, until their weights are `most` bytes."""
    at_hand = set(known)
    ready: list[onnx.NodeProto] = []
    weights: set[str] = set()
    held = 0
    for node in nodes:
        fresh = (free_names(node) & sizes.keys()) - weights
        held += sum(sizes[name] for name in fresh)
        weights |= fresh
        if ready and held > most:
            break
        lacks = is_registered(operator_of(node)) or any(map(has_registered, _bodies(node)))
        if not lacks and all(name in at_hand for name in free_names(node)):
            ready.append(node)
            at_hand.update(node.output)
    return ready


def _without(nodes: Sequence[onnx.NodeProto], gone: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """By identity: comparing messages takes long, and says that equal ones are the same."""
    left_out = set(map(id, gone))
    return [n for n in nodes if id(n) not in left_out]


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.HasField("g")]


def free_names(node: onnx.NodeProto) -> set[str]:
    """Names that a node takes, those that its subgraphs take from outside included."""
    return {i for i in node.input if i} | {name for body in _bodies(node) for name in _outer_names(body)}


def _outer_names(graph: onnx.GraphProto) -> Iterator[str]:
    own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
    used = {name for n in graph.node for name in free_names(n)} | {v.name for v in graph.output}
    yield from used - own


def part_of(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], known: Mapping[str, Any], outputs: Sequence[str]
) -> onnx.ModelProto:
    """A model of some nodes, with inputs of the dtypes and shapes at hand."""
    reads = {name for n in nodes for name in free_names(n)}
    constant = {o for n in proto.graph.node if operator_of(n) == "Constant" for o in n.output}
    part = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    part.graph.name = proto.graph.name or "stage"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(t for t in proto.graph.initializer if t.name in reads)
    declared = {v.name: v for v in proto.graph.input}
    for name in sorted(reads & known.keys()):
        if name in constant:  # some operators take constants only
            part.graph.initializer.append(onnx.numpy_helper.from_array(known[name], name))
        else:
            part.graph.input.append(declared[name] if name in declared else _info(name, known[name]))
    for name in outputs:
        part.graph.output.add().name = name
    return part


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        element = np.asarray(value[0]).dtype if value else np.dtype(np.float32)
        return onnx.helper.make_tensor_sequence_value_info(name, _element(element), None)
    return onnx.helper.make_tensor_value_info(name, _element(value.dtype), value.shape)


def _element(dtype: np.dtype) -> int:
    return onnx.TensorProto.STRING if dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(dtype)
