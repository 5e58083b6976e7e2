"""Reads a model file: proto, functions, dims, constants, nodes in order, subgraphs, origins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto

from frontend.normalise import Import, import_node
from frontend.tensors import array_of, dtype_of
from graph_opt.ir import Graph, Origin, Value
from graph_opt.ir.core import AttrValue
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import HANDLE, from_numpy
from tensor_types.errors import InvalidModel


def read_model(path: str | Path, input_shape: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """The model as a graph with every type inferred.

    `input_shape` fixes dims of inputs by name; -1 keeps the model's own. Raises InvalidModel with code, place and remedy.
    """
    source = Path(path)
    proto = _load(source)
    opsets = _opsets(proto)
    reader = _Reader(source.parent, opsets, dict(input_shape or {}))
    return reader.read(proto.graph)


def _load(path: Path) -> onnx.ModelProto:
    where = {"flag": "model"}
    if not path.is_file():
        raise InvalidModel(f"there is no file {path}", code="E10003", where=where, remedy="check the path")
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own exception types differ between its implementations
        raise InvalidModel(
            f"{path.name} is not an ONNX file, or is truncated: {error}", code="E16001", where=where,
            remedy="export the model again, or copy it completely",
        ) from error  # fmt: skip
    if not proto.graph.node and not proto.graph.output:
        raise InvalidModel(
            f"{path.name} holds no graph", code="E16001", where=where, remedy="give an ONNX model file"
        )
    if proto.functions:
        from onnx import inliner

        proto = inliner.inline_local_functions(proto)
    return proto


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if found.get(domain, entry.version) != entry.version:
            raise InvalidModel(
                f"opset_import names {domain or 'ai.onnx'} twice, as {found[domain]} and {entry.version}",
                code="E16005", where={"op": domain or "ai.onnx"}, remedy="keep one version per domain",
            )  # fmt: skip
        found[domain] = entry.version
    newest = onnx.defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise InvalidModel(
            f"the model uses opset {found['']}, newer than {newest}", code="E16001",
            remedy="install a newer onnx, or export with an older opset",
        )  # fmt: skip
    return found or {"": 1}


class _Reader:
    def __init__(self, folder: Path, opsets: dict[str, int], input_shape: dict[str, Sequence[int]]) -> None:
        self.folder = folder
        self.opsets = opsets
        self.input_shape = input_shape
        self.names: set[str] = set()

    def read(self, proto: onnx.GraphProto) -> Graph:
        graph = Graph(re.sub(r"\W", "_", proto.name) or "graph")
        unknown = set(self.input_shape) - {v.name for v in proto.input}
        if unknown:
            name = sorted(unknown)[0]
            raise InvalidModel(
                f"the model has no input {name!r}", code="E10016", where={"tensor": name, "flag": "--input_shape"},
                remedy=f"its inputs are {', '.join(v.name for v in proto.input)}",
            )  # fmt: skip
        self._fill(graph, proto, {}, top=True)
        for name in (v.name for v in graph.inputs):
            graph.origins[name] = Origin("same", name)
        return graph

    def _fill(self, graph: Graph, proto: onnx.GraphProto, outer: Mapping[str, Value], *, top: bool) -> None:
        scope: dict[str, Value] = dict(outer)
        own: set[str] = set()
        self._constants(graph, proto, scope, own)
        for info in proto.input:
            if info.name in own:
                continue  # an initializer that is listed as input as well is a constant
            value = self._input(graph, info)
            self._define(info.name, own)
            scope[info.name] = value
            graph.inputs.append(value)
        for node in self._in_order(proto, scope):
            self._node(graph, node, scope, own, top=top)
        for info in proto.output:
            if info.name not in scope:
                raise InvalidModel(
                    f"output {info.name!r} is made by no node", code="E16001", where={"tensor": info.name},
                    remedy="remove the output, or add the node that makes it",
                )  # fmt: skip
            graph.outputs.append(self._public(graph, scope[info.name], info.name))

    def _public(self, graph: Graph, value: Value, name: str) -> Value:
        """The value itself; through an Identity if it is an input, a constant, outer or an output already."""
        own = graph.values.get(value.name) is value
        if own and value.producer is not None and value not in graph.outputs:
            return value
        result = graph.add_value(name if name not in graph.values else f"{name}/output", value.dtype, value.shape)
        Import(graph, {}, 0, "").wire("Identity", [value], [result], {}, f"{name}/identity")
        return result

    def _constants(self, graph: Graph, proto: onnx.GraphProto, scope: dict[str, Value], own: set[str]) -> None:
        for tensor in proto.initializer:
            self._define(tensor.name, own)
            data = array_of(tensor, self.folder)
            scope[tensor.name] = graph.add_constant(tensor.name, data, dtype_of(tensor.data_type, tensor.name))
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            self._define(name, own)
            data = _dense(sparse, self.folder)
            scope[name] = graph.add_constant(name, data, from_numpy(data.dtype))

    def _define(self, name: str, own: set[str]) -> None:
        if name in own:
            raise InvalidModel(
                f"the name {name!r} is made twice", code="E16001", where={"tensor": name},
                remedy="give every tensor one producer",
            )  # fmt: skip
        own.add(name)

    def _input(self, graph: Graph, info: onnx.ValueInfoProto) -> Value:
        if not info.type.HasField("tensor_type"):
            return graph.add_value(info.name, HANDLE, None)
        tensor = info.type.tensor_type
        type_ = dtype_of(tensor.elem_type, info.name)
        given = self.input_shape.get(info.name)
        if not tensor.HasField("shape"):
            return graph.add_value(info.name, type_, None if given is None else self._given(graph, info.name, given))
        declared = list(tensor.shape.dim)
        if given is not None and len(given) != len(declared):
            raise InvalidModel(
                f"--input_shape gives {len(given)} dims, the input has {len(declared)}", code="E10049",
                where={"tensor": info.name, "flag": "--input_shape"}, remedy="give one number per axis",
            )  # fmt: skip
        shape: list[Dim] = []
        for axis, entry in enumerate(declared):
            wanted = given[axis] if given is not None else -1
            fixed = entry.dim_value if entry.HasField("dim_value") and entry.dim_value > 0 else None
            if wanted > 0 and fixed is not None and fixed != wanted:
                raise InvalidModel(
                    f"axis {axis} is {fixed} in the model, --input_shape says {wanted}", code="E10050",
                    where={"tensor": info.name, "flag": "--input_shape"}, remedy="give the model's own number or -1",
                )  # fmt: skip
            if wanted > 0 or fixed is not None:
                shape.append(wanted if wanted > 0 else fixed or 0)
            elif entry.HasField("dim_value") and entry.dim_value == 0:
                shape.append(0)
            else:
                shape.append(self._dim(graph, entry.dim_param, f"{info.name}_{axis}"))
        return graph.add_value(info.name, type_, tuple(shape))

    def _given(self, graph: Graph, name: str, given: Sequence[int]) -> tuple[Dim, ...]:
        return tuple(d if d > 0 else self._dim(graph, "", f"{name}_{axis}") for axis, d in enumerate(given))

    def _dim(self, graph: Graph, param: str, fallback: str) -> Dim:
        """The dim of a declared name (the same name is the same dim), or a fresh one."""
        known = bool(param) and param != "?"
        name = re.sub(r"[^A-Za-z0-9_.]", "_", param if known else fallback)
        if not re.match(r"[A-Za-z]", name) or re.fullmatch(r"u\d+|min|max", name):
            name = f"dim_{name}"
        while not known and name in graph.dims:
            name += "_"
        graph.dims.setdefault(name, (1, None))
        return dim(name)

    def _in_order(self, proto: onnx.GraphProto, scope: Mapping[str, Value]) -> list[onnx.NodeProto]:
        """Nodes with producers before uses; InvalidModel for a cycle or a tensor that nothing makes."""
        made = {name for node in proto.node for name in node.output if name}
        ready = set(scope)
        ordered: list[onnx.NodeProto] = []
        waiting = list(proto.node)
        while waiting:
            rest: list[onnx.NodeProto] = []
            for node in waiting:
                if all(name in ready for name in _reads(node, made)):
                    ordered.append(node)
                    ready.update(node.output)
                else:
                    rest.append(node)
            if len(rest) == len(waiting):
                self._stuck(rest[0], made, ready)
            waiting = rest
        return ordered

    def _stuck(self, node: onnx.NodeProto, made: set[str], ready: set[str]) -> None:
        missing = next(n for n in _reads(node, made) if n not in ready)
        cyclic = missing in made
        raise InvalidModel(
            f"the graph is cyclic through {missing!r}" if cyclic else f"{missing!r} is read and nothing makes it",
            code="E16001", where={"node": node.name, "op": node.op_type, "tensor": missing},
            remedy="break the cycle" if cyclic else "add the initializer, input or node that makes it",
        )  # fmt: skip

    def _node(
        self, graph: Graph, proto: onnx.NodeProto, scope: dict[str, Value], own: set[str], *, top: bool
    ) -> None:
        missing = next((n for n in proto.input if n and n not in scope), None)
        if missing is not None:
            raise InvalidModel(
                f"{missing!r} is read and nothing makes it", code="E16001",
                where={"node": proto.name, "op": proto.op_type, "tensor": missing},
                remedy="add the initializer, input or node that makes it",
            )  # fmt: skip
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attrs, bodies = self._attributes(proto, scope)
        op = f"{domain}::{proto.op_type}" if domain else proto.op_type
        context = Import(graph, scope, self.opsets.get(domain, 1), self._unique(proto), op)
        for name in proto.output:
            if name:
                self._define(name, own)
        inputs = [scope[name] if name else None for name in proto.input]
        import_node(context, inputs, attrs, list(proto.output), bodies)
        if top:
            for name in filter(None, proto.output):
                if name in scope:
                    value = scope[name]
                    graph.origins[name] = Origin("folded" if value.is_constant else "same", value.name)
                else:
                    graph.origins[name] = Origin("dead", None)

    def _unique(self, proto: onnx.NodeProto) -> str:
        base = proto.name or f"{proto.op_type}_{next((o for o in proto.output if o), '')}"
        name, number = base, 1
        while name in self.names:
            name = f"{base}.{number}"
            number += 1
        self.names.add(name)
        return name

    def _attributes(
        self, proto: onnx.NodeProto, scope: Mapping[str, Value]
    ) -> tuple[dict[str, AttrValue], dict[str, Graph]]:
        attrs: dict[str, AttrValue] = {}
        bodies: dict[str, Graph] = {}
        for attribute in proto.attribute:
            if attribute.type == AttributeProto.GRAPH:
                body = Graph(attribute.name)
                self._fill(body, attribute.g, scope, top=False)
                bodies[attribute.name] = body
            elif attribute.type == AttributeProto.TENSOR:
                attrs[attribute.name] = array_of(attribute.t, self.folder)
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                attrs[attribute.name] = _dense(attribute.sparse_tensor, self.folder)
            else:
                attrs[attribute.name] = _plain(onnx.helper.get_attribute_value(attribute))
        return attrs, bodies


def _plain(value: object) -> AttrValue:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Sequence):
        return tuple(v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in value)
    return None


def _reads(node: onnx.NodeProto, made: set[str]) -> list[str]:
    """What the node reads: its inputs, and the tensors of this graph that its subgraphs use."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names.extend(n for n in _free_names(attribute.g) if n in made)
    return names


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a subgraph uses and does not define, in order."""
    defined = {t.name for t in graph.initializer} | {v.name for v in graph.input}
    free: list[str] = []
    for node in graph.node:
        names = [n for n in node.input if n]
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                names.extend(_free_names(attribute.g))
        free.extend(n for n in names if n not in defined)
        defined.update(node.output)
    free.extend(o.name for o in graph.output if o.name not in defined)
    return list(dict.fromkeys(free))


def _dense(sparse: onnx.SparseTensorProto, folder: Path) -> np.ndarray:
    values, indices = array_of(sparse.values, folder), array_of(sparse.indices, folder)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except IndexError as error:
        raise InvalidModel(
            f"a sparse index is out of range: {error}", code="E16001", where={"tensor": sparse.values.name},
            remedy="export the model again",
        ) from error  # fmt: skip
    return dense
