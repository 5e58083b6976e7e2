"""Interior tensors of kernels: each kernel again, cut as in the package, with stores of what it otherwise keeps inside.

Fusion stays as it is. One kernel is run at a time, on the run's own inputs and on the oracle's, so that no more memory
is taken than the tensors of one kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from acl_runtime.executor import aligned_zeros
from acl_runtime.kernels import load_kernels
from acl_runtime.stored_constants import KernelForm
from atc.comparing.details import detail_of
from atc.comparing.limits import Limits
from atc.comparing.rows import Isolated, Row, difference
from atc.golden import Golden
from atc.judging import measure
from atc.kernel_names import kernel_name
from codegen.kernels import NotLowerable, lower_node, tiling_of
from codegen.targets import target
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.copy_graph import copy_graph
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate, names

if TYPE_CHECKING:
    from atc.comparing.device import Device

_SUFFIX = "/tap"


@dataclass(frozen=True)
class Tapped:
    """A Fused node with further outputs: `taps` gives the value that its kernel stores by the name of a value of the
    body, `sources` that name by source tensor."""

    node: Node
    original: Node
    taps: Mapping[str, Value]
    sources: Mapping[str, str]
    records: Sequence[KernelRecord]
    dims: Mapping[str, int]


def tapped(
    rows: Sequence[Row], device: Device, golden: Golden, limits: Limits
) -> tuple[list[Row], tuple[str, ...]]:  # fmt: skip
    """The rows with those of interior tensors compared, as far as kernels can store them; and what is to be said."""
    wanted = {r.source for r in rows if r.state == "fused" and r.source in golden.values}
    kernels = [made for node in device.graph.nodes if (made := _tap(node, wanted, device)) is not None]
    texts = list(dict.fromkeys(record.program for k in kernels for record in k.records))
    loaded, _ = load_kernels(texts, device.session.host_class)
    codes = dict(zip(texts, loaded, strict=True))
    found: dict[str, Row] = {}
    other_bits = []
    for kernel in kernels:
        run = _Run(kernel, device, codes)
        values = run.on({v.name: device.session.read(v.name) for v in run.reads})
        for value in kernel.original.outputs:
            if value.name in device.in_memory and not _same_bits(values[value.name], device.session.read(value.name)):
                other_bits.append(value.name)
        alone = run.alone()
        for source, inner in kernel.sources.items():
            value = kernel.taps[inner]
            row = _row(source, value, kernel, values[value.name], device, golden)
            if row is not None:
                found[source] = replace(row, alone=alone(inner, golden.values[source], row, limits))
    note = f"{len(found)} of {len(wanted)} tensors inside of kernels were stored by {len(kernels)} kernels"
    same = "their other results are those of the run, bit for bit"
    if other_bits:
        same = f"other results than in the run: {', '.join(other_bits[:3])}"
    return [found.get(r.source, r) for r in rows], (f"{note}; {same}" if kernels else note,)


def _tap(node: Node, wanted: set[str], device: Device) -> Tapped | None:
    """The node with as many of the wanted interiors as its family stores; None if there is none."""
    if node.op != "Fused" or not device.ran(node.outputs[0].name):
        return None
    body = node.subgraphs["body"]
    outputs = {v.name for v in body.outputs}
    sources = {
        s: o.value for s, o in body.origins.items()
        if s in wanted and o.relation in ("same", "cast") and o.value is not None and o.value not in outputs
    }  # fmt: skip
    inner = [v for n in body.nodes for v in n.outputs if v.name in sources.values()]
    facts = device.isolation.task(node)
    if not inner or facts is None:
        return None
    dims, tiling = facts
    chosen = list(inner)
    while chosen:
        try:
            made = _lowered(node, chosen, device, dims, tiling)
            return replace(made, sources={s: v for s, v in sources.items() if v in made.taps})
        except NotLowerable:
            if len(chosen) > 1 and len(chosen) == len(inner):
                chosen = [v for v in inner if _can_store(node, v, device, dims, tiling)]
            else:
                chosen = chosen[1:]
    return None


def _can_store(node: Node, value: Value, device: Device, dims: Mapping[str, int], tiling: str) -> bool:
    try:
        _lowered(node, [value], device, dims, tiling)
    except NotLowerable:
        return False
    return True


def _lowered(node: Node, inner: Sequence[Value], device: Device, dims: Mapping[str, int], tiling: str) -> Tapped:
    """NotLowerable if the family cannot store these."""
    body = copy_graph(node.subgraphs["body"])
    taps = {}
    for value in inner:
        like = next((o for o in node.outputs if o.shape == value.shape), None)
        layout = value.format if like is None else like.format
        taps[value.name] = Value(value.name + _SUFFIX, value.dtype, value.shape, layout)
        body.outputs.append(body.values[value.name])
    made = Node("Fused", node.name, node.inputs, [*node.outputs, *taps.values()], node.attrs, {"body": body})
    machine = target(device.session.host_class)
    records = lower_node(made, machine, tiling_of(tiling) if tiling else None)
    if not records or not all(isinstance(r, KernelRecord) for r in records):
        raise NotLowerable("it is no kernel of its own")
    written = {o.value for r in records if isinstance(r, KernelRecord) for o in r.operands if o.role != "in"}
    if unwritten := [v.name for v in made.outputs if v.name not in written]:
        raise NotLowerable(f"its family stores no {unwritten[0]}")
    if any(names(d) - dims.keys() for r in records if isinstance(r, KernelRecord) for d in (*r.dims, r.grid)):
        raise NotLowerable("its sizes are not known")
    return Tapped(made, node, taps, {}, [r for r in records if isinstance(r, KernelRecord)], dims)


class _Run:
    """A tapped kernel with its constants at hand."""

    def __init__(self, kernel: Tapped, device: Device, codes: Mapping[str, Any]) -> None:
        self.kernel, self.device, self.codes = kernel, device, codes
        self.reads = [v for v in kernel.node.inputs if v is not None and not v.is_constant]
        body: Graph = kernel.node.subgraphs["body"]
        outer = [v for v in kernel.node.inputs if v is not None]
        self._values = {v.name: v for v in (*body.values.values(), *outer, *kernel.node.outputs)}
        self._constants: dict[int, np.ndarray] = {}

    def on(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What the kernel writes, in logical order, by value; `inputs` are in logical order too."""
        held: dict[str, np.ndarray] = {}
        for value in self.reads:
            array = np.asarray(inputs[value.name]).astype(value.dtype.numpy)
            held[value.name] = np.array(value.format.to_physical(array), order="C")
        for value in self.kernel.node.outputs:
            held[value.name] = _room(value, self.kernel.dims)
        for record in self.kernel.records:
            self._call(record, held)
        return {
            v.name: np.array(v.format.to_logical(held[v.name], _shape(v, self.kernel.dims)))
            for v in self.kernel.node.outputs
        }

    def _call(self, record: KernelRecord, held: Mapping[str, np.ndarray]) -> None:
        dims = self.kernel.dims
        arrays = []
        for operand in record.operands:
            if operand.value is None:
                arrays.append(aligned_zeros(max(64, evaluate(operand.bytes, dims))))
            elif operand.value in held:
                arrays.append(held[operand.value])
            else:
                form = KernelForm(operand.permute, operand.reshape, operand.packing)
                if id(operand) not in self._constants:
                    self._constants[id(operand)] = self.device.isolation.constant(self._values[operand.value], form)
                arrays.append(self._constants[id(operand)])
        code = self.codes[record.program]
        args = np.array([a.ctypes.data for a in arrays], np.uint64)
        sizes = np.array([evaluate(d, dims) for d in record.dims] or [0], np.int64)
        scratch = aligned_zeros(max(64, code.facts.scratch_bytes))
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        function = ctypes.CFUNCTYPE(count, pointer, pointer, count, count, pointer)(code.address)
        function(args.ctypes.data, sizes.ctypes.data, 0, evaluate(record.grid, dims), scratch.ctypes.data)

    def alone(self) -> Any:
        """A function that tells what a tap is on the oracle's inputs."""
        isolation = self.device.isolation
        inputs = {v.name: isolation.known(v) for v in self.kernel.original.inputs if v is not None}
        if any(v is None for v in inputs.values()):
            return lambda *_: None
        made = self.on({v.name: inputs[v.name] for v in self.reads})
        floor = isolation.by_numpy(self.kernel.original, inputs, every=True)
        wide: dict[str, Any] = {}

        def of(inner: str, expected: Any, row: Row, limits: Limits) -> Isolated | None:
            def wider() -> Any:
                if not wide:
                    wide.update(isolation.by_numpy(self.kernel.original, inputs, wide=True, every=True))
                return wide.get(inner)

            limit = limits.of(row.compute_dtype, row.source, row.kernel)
            held = made[self.kernel.taps[inner].name]
            return measure(inputs, held, floor.get(inner), wider, expected, limit)

        return of


def _row(
    source: str, value: Value, kernel: Tapped, made: np.ndarray, device: Device, golden: Golden
) -> Row | None:  # fmt: skip
    """None if the tensor of that name is another one inside of the kernel."""
    expected = golden.values[source]
    if np.shape(expected) != made.shape:
        return None
    holder = kernel.original.outputs[0].name
    found = difference(made, expected, golden.name)
    detail = detail_of(made, expected, value.dtype.name) if device.details else None
    note = "; ".join(filter(None, ("inside of the kernel", found.note)))
    return Row(
        source, "compared", kernel_name(kernel.records[-1].program), value.dtype.name, found, "", note, holder,
        detail=detail, narrow=device.narrow.get(holder, ""), quantised=source in golden.quantised,
    )  # fmt: skip


def _shape(value: Value, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(d, dims) for d in value.shape or ())


def _room(value: Value, dims: Mapping[str, int]) -> np.ndarray:
    shape = tuple(int(evaluate(d, dims)) for d in value.format.physical_shape(value.shape or ()))
    return aligned_zeros(max(1, prod(shape) * value.dtype.bytes))[: prod(shape) * value.dtype.bytes].view(
        value.dtype.numpy
    ).reshape(shape)  # fmt: skip


def _same_bits(one: np.ndarray, other: Any) -> bool:
    return isinstance(other, np.ndarray) and one.shape == other.shape and one.tobytes() == other.tobytes()
