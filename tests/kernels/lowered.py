"""Fused nodes for tests: built from ONNX operators, lowered, run natively, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from atc.exact_products import make_products_exact
from codegen.targets import target
from codegen.tile.interpreter import interpret
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.plan.records import AliasRecord, KernelRecord, Record
from tensor_types.dims import Dim, dim, evaluate
from tensor_types.dtypes import from_numpy
from tensor_types.formats import PLAIN, Format, channels_last
from tests.llvm.native import HOSTS, Kernel

CHIPS = ["Ascend910B2", "Ascend310P3"]
"""Their programs are verified and interpreted."""

Op = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]
"""(operator, inputs, outputs, attributes); an empty input name is an absent one."""


def reference(ops: Sequence[Op], arrays: Mapping[str, np.ndarray], outputs: Sequence[str], opset: int = 18):  # noqa: ANN201
    """What onnxruntime computes, by output name."""
    nodes = [helper.make_node(op, list(i), list(o), **dict(a)) for op, i, o, a in ops]
    types = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
    wire = [helper.make_tensor_value_info(n, types[n], a.shape) for n, a in arrays.items()]
    outs = [onnx.ValueInfoProto(name=n) for n in outputs]
    graph = helper.make_graph(nodes, "g", wire, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    make_products_exact(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(list(outputs), dict(arrays)), strict=True))


@dataclass
class Case:
    """One Fused node of `ops`. `constants` are known at convert time, the other arrays are run-time inputs.

    `symbolic` maps value names to shapes with names or dims in place of numbers; `last` lists values in channels-last.
    """

    family: str
    ops: Sequence[Op]
    arrays: Mapping[str, np.ndarray]
    outputs: Sequence[str]
    constants: Sequence[str] = ()
    symbolic: Mapping[str, Sequence[int | str | Dim]] = field(default_factory=dict)
    last: Sequence[str] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    opset: int = 18
    wide: bool = False
    """The reference computes in f32, where onnxruntime has no kernel for the dtype."""
    exact: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Results that are known better than onnxruntime has them."""

    def expected(self) -> dict[str, np.ndarray]:
        made = [o for op in self.ops for o in op[2] if o]
        if not self.wide:
            return {**reference(self.ops, self.arrays, made, self.opset), **self.exact}
        (dtype,) = {a.dtype for a in self.arrays.values() if a.dtype.kind in "fV"}
        arrays = {k: a.astype(np.float32) if a.dtype == dtype else a for k, a in self.arrays.items()}
        results = reference(self.ops, arrays, made, self.opset)
        return {k: a.astype(dtype) if a.dtype == np.float32 else a for k, a in results.items()}

    def node(self, results: Mapping[str, np.ndarray]) -> Node:
        """The Fused node inside a graph of its own."""
        graph, body = Graph("test"), Graph(self.family)
        outer: dict[str, Value] = {}
        inner: dict[str, Value] = {}
        for name, array in {**self.arrays, **results}.items():
            shape = tuple(dim(d) if isinstance(d, str) else d for d in self.symbolic.get(name, array.shape))
            format_: Format = channels_last(array.ndim) if name in self.last else PLAIN
            data = array if name in self.constants else None
            for where, values in ((graph, outer), (body, inner)):
                values[name] = where.add_value(name, from_numpy(array.dtype), shape, data=data, format=format_)
        for number, (op, inputs, outputs, attrs) in enumerate(self.ops):
            body.add_node(
                op, [inner[i] if i else None for i in inputs], [inner[o] for o in outputs], attrs, name=f"n{number}"
            )
        taken = [n for n in self.arrays if not (n in self.constants and self.arrays[n].size == 1)]
        body.inputs = [inner[n] for n in taken]
        body.outputs = [inner[n] for n in self.outputs]
        return graph.add_node(
            "Fused", [outer[n] for n in taken], [outer[n] for n in self.outputs], {"family": self.family},
            name="fused", subgraphs={"body": body},
        )  # fmt: skip


def packed(operand: Any, array: np.ndarray) -> np.ndarray:
    """A constant in the form that an operand asks for."""
    if operand.permute is not None:
        array = array.transpose(operand.permute)
    if operand.reshape is not None:
        array = array.reshape(operand.reshape)
    return operand.packing.to_physical(array)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 64 bytes, as the runtime's arena has it, with room for whole vectors behind it."""
    raw = np.zeros(array.nbytes + 192, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def execute(records: Sequence[Record], values: dict[str, np.ndarray], dims: Mapping[str, int], host: str,
            timed: list[Callable[[], Any]] | None = None) -> None:  # fmt: skip
    """Runs records on physical arrays; results are written in place. Statuses other than 0 raise."""
    for record in records:
        if isinstance(record, AliasRecord):
            values[record.output][...] = values[record.input].reshape(values[record.output].shape)
            continue
        assert isinstance(record, KernelRecord)
        program = parse_program(record.program)
        verify(program, target(host))
        named = {}
        for param, operand in zip(program.params, record.operands, strict=True):
            if operand.value is None:
                named[param.name] = aligned(np.full(evaluate(operand.bytes, dims), 0xA5, np.uint8))
            elif operand.packing != PLAIN or operand.permute is not None or operand.reshape is not None:
                named[param.name] = aligned(packed(operand, values[operand.value]))
            else:
                named[param.name] = values[operand.value]
        names = {d.name: evaluate(v, dims) for d, v in zip(program.dims, record.dims, strict=True)}
        for d in program.dims:
            assert names[d.name] >= d.low, f"{d.name} = {names[d.name]} below {d.low}"
        assert evaluate(record.grid, dims) == evaluate(program.grid_size(), names)
        if target(host).kind == "chip":
            shapes = {p.name: tuple(evaluate(d, names) for d in p.shape) for p in program.params}
            dtypes = {p.name: p.dtype.numpy for p in program.params}
            interpret(program, {k: np.atleast_1d(v).view(dtypes[k]).reshape(shapes[k]) for k, v in named.items()}, names)
            continue
        kernel = Kernel(program, host)
        arguments = kernel.arguments(named, names)
        status = kernel.call(*arguments)
        if status:
            raise RuntimeError(f"status {status & 255} index {status >> 8}")
        if timed is not None:
            timed.append(partial(_call, kernel, arguments, named))


def _call(kernel: Kernel, arguments: tuple[Any, ...], keep: object) -> int:
    return int(kernel.call(*arguments))


def check(case: Case, lower: Callable[..., list[Record] | None], rtol: float = 1e-5, atol: float = 1e-5,
          hosts: Sequence[str] = HOSTS, timed: list[Callable[[], Any]] | None = None) -> Node:  # fmt: skip
    """Lowers and runs the case on every host class of this machine; all outputs must agree with onnxruntime."""
    results = case.expected()
    node = case.node(results)
    for host in hosts:
        records = lower(node, target(host))
        assert records is not None, "the family refuses the node"
        values = {}
        for v in node.inputs + node.outputs:
            assert v is not None
            result = results.get(v.name)
            source = case.arrays[v.name] if result is None else np.full(result.shape, 77).astype(result.dtype)
            values[v.name] = aligned(v.format.to_physical(source).reshape(v.format.physical_shape(source.shape)))
        for name in case.constants:
            values.setdefault(name, aligned(case.arrays[name]))
        execute(records, values, case.dims, host, timed)
        for v in node.outputs:
            got, want = v.format.to_logical(values[v.name], results[v.name].shape), results[v.name]
            if want.dtype.kind in "fV":
                got, want = got.astype(np.float64), want.astype(np.float64)
                np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"{host} {v.name}")
            else:
                np.testing.assert_array_equal(got, want, err_msg=f"{host} {v.name}")
    return node


__all__ = ["CHIPS", "HOSTS", "Case", "check", "numpy_helper", "reference"]
