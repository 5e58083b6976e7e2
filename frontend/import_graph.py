"""ModelProto to Graph: scopes, order, names, constants, origins. What a single operator means is `normalise`'s part."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from frontend.attributes import attribute_values
from frontend.inline_functions import stamped_opsets
from frontend.input_dims import input_shapes, value_type
from frontend.load_proto import opsets
from frontend.normalise import PendingNode, normalise
from frontend.tensors import element_type, sparse_to_array, to_array
from graph_opt.ir import Graph, Origin, Value, ops
from graph_opt.ir.core import AttrValue
from graph_opt.ir.infer import infer_node
from tensor_types.dtypes import F32, STR, DType, from_numpy
from tensor_types.errors import InvalidModel

Scope = MutableMapping[str, Value]


def import_graph(model: onnx.ModelProto, folder: Path, input_shape: Mapping[str, Sequence[int | str]]) -> Graph:
    """The graph of a model without local functions. `folder` is where external data lies."""
    return _Importer(model, folder).top(model.graph, input_shape)


class _Importer:
    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self.folder = folder
        self.opsets = {"": 1, **opsets(model.opset_import)}
        self.node_names: set[str] = set()
        self.tensor_names = set(_tensor_names(model.graph))

    def top(self, proto: onnx.GraphProto, input_shape: Mapping[str, Sequence[int | str]]) -> Graph:
        constants = {t.name for t in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
        fed = [i for i in proto.input if i.name not in constants]
        shapes, ranges = input_shapes(fed, input_shape)
        graph = Graph(proto.name or "graph", dims=ranges)
        scope: ChainMap[str, Value] = ChainMap()
        for item in fed:
            self.add_input(graph, scope, item, shapes[item.name])
        self.fill(proto, graph, scope)
        return graph

    def body(self, proto: onnx.GraphProto, outer: Graph, scope: ChainMap[str, Value]) -> Graph:
        """A subgraph. Declared input shapes hold until the control flow node infers them anew."""
        shapes, _ = input_shapes(proto.input, {})
        graph = Graph(proto.name or "body", dims=outer.dims)
        inner = scope.new_child()
        for item in proto.input:
            shape = shapes[item.name]
            static = shape is not None and all(isinstance(d, int) for d in shape)
            self.add_input(graph, inner, item, shape if static else None)
        self.fill(proto, graph, inner)
        return graph

    def add_input(
        self, graph: Graph, scope: ChainMap[str, Value], proto: onnx.ValueInfoProto, shape: tuple | None
    ) -> None:  # type: ignore[type-arg]
        value = self.define(graph, scope, proto.name, "the graph inputs", value_type(proto), shape)
        graph.inputs.append(value)

    def define(
        self, graph: Graph, scope: ChainMap[str, Value], name: str, maker: str, dtype: DType, shape: tuple | None = None
    ) -> Value:  # type: ignore[type-arg]
        """A source tensor. InvalidModel when the name is taken in this graph."""
        if name in scope.maps[0]:
            first = scope.maps[0][name].producer
            before = f"node {first.name}" if first is not None else "an input or a constant"
            raise InvalidModel(
                f"the tensor {name} is made twice: by {before} and by {maker}", code="E13031",
                where={"tensor": name}, remedy="give each output its own name",
            )  # fmt: skip
        value = graph.add_value(name, dtype, shape)
        scope[name] = value
        graph.origins[name] = Origin("same", value.name)
        return value

    def fill(self, proto: onnx.GraphProto, graph: Graph, scope: ChainMap[str, Value]) -> None:
        inputs = {v.name for v in graph.inputs}
        for tensor in proto.initializer:
            if tensor.name not in inputs:
                self.add_constant(graph, scope, tensor.name, to_array(tensor, self.folder))
                tensor.ClearField("raw_data")  # the array holds the only copy from here on
        for sparse in proto.sparse_initializer:
            self.add_constant(graph, scope, sparse.values.name, sparse_to_array(sparse, self.folder))
        declared = {v.name: v for v in (*proto.value_info, *proto.output)}
        for node in _ordered(proto.node, scope):
            self.add_node(node, graph, scope, declared)
        for item in proto.output:
            if item.name not in scope:
                raise InvalidModel(
                    f"the graph output {item.name} is made by no node", code="E13031", where={"tensor": item.name},
                    remedy="remove the output, or the node that made it is missing",
                )  # fmt: skip
            graph.outputs.append(scope[item.name])

    def add_constant(self, graph: Graph, scope: ChainMap[str, Value], name: str, data: np.ndarray) -> Value:
        if name in scope.maps[0]:
            raise InvalidModel(f"the constant {name} is defined twice", code="E13031", where={"tensor": name})
        value = graph.add_constant(name, data, from_numpy(data.dtype))
        scope[name] = value
        return value

    def add_node(
        self, proto: onnx.NodeProto, graph: Graph, scope: ChainMap[str, Value],
        declared: Mapping[str, onnx.ValueInfoProto],
    ) -> None:  # fmt: skip
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        versions = stamped_opsets(proto, self.opsets)
        name = self.unique_name(proto)
        where = {"node": name, "op": proto.op_type}
        if domain not in versions:
            raise InvalidModel(
                f"the model imports no opset of the domain {domain}", where=where, remedy="add it to opset_import"
            )
        attrs, graphs = attribute_values(proto, self.folder)
        if proto.op_type == "Constant" and not domain:
            data = _constant_data(attrs, where)
            value = self.add_constant(graph, scope, proto.output[0], data)
            graph.origins[proto.output[0]] = Origin("folded", value.name)
            return
        inputs = [scope[i] if i else None for i in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        subgraphs = {key: self.body(item, graph, scope) for key, item in graphs.items()}
        wanted = list(proto.output)
        while len(wanted) > 1 and not wanted[-1]:
            wanted.pop()
        pending = PendingNode(
            graph=graph, op=f"{domain}::{proto.op_type}" if domain else proto.op_type, name=name,
            opset=versions[domain], inputs=inputs, attrs=attrs, outputs=wanted, reserved=self.tensor_names,
        )  # fmt: skip
        normalise(pending)
        outputs: list[Value] = []
        for output in pending.outputs:
            if output:
                dtype = _declared_dtype(declared.get(output))
                outputs.append(self.define(graph, scope, output, f"node {name}", dtype))
            else:
                outputs.append(graph.add_value(pending.free_name(f"{name}.unused"), F32, None))
        known = ops.get(pending.op)
        if known is None:
            kept: dict[str, AttrValue] = {**pending.attrs, "opset": versions[domain]}
        else:
            kept = {key: value for key, value in pending.attrs.items() if key in known.attrs}
        node = graph.add_node(pending.op, pending.inputs, outputs, kept, name=name, subgraphs=subgraphs)
        infer_node(graph, node)
        for output, value in pending.replaced.items():
            self.define_alias(graph, scope, output, value, name)

    def define_alias(self, graph: Graph, scope: ChainMap[str, Value], name: str, value: Value, node: str) -> None:
        """A further output that a helper node makes: the helper's value takes the name."""
        graph.values[name] = graph.values.pop(value.name)
        value.name = name
        if name in scope.maps[0]:
            raise InvalidModel(f"the tensor {name} is made twice, also by node {node}", where={"tensor": name})
        scope[name] = value
        graph.origins[name] = Origin("same", name)

    def unique_name(self, proto: onnx.NodeProto) -> str:
        wish = proto.name or proto.op_type
        name, number = wish, 1
        while name in self.node_names:
            name, number = f"{wish}_{number}", number + 1
        self.node_names.add(name)
        return name


def _declared_dtype(proto: onnx.ValueInfoProto | None) -> DType:
    """What the file says of an output: kept only where no rule knows better."""
    if proto is None or not proto.type.tensor_type.elem_type:
        return F32
    return element_type(proto.type.tensor_type.elem_type, proto.name)


def _constant_data(attrs: Mapping[str, AttrValue], where: Mapping[str, str]) -> np.ndarray:
    for key, value in attrs.items():
        if key in ("value", "sparse_value"):
            return np.asarray(value) if not isinstance(value, np.memmap) else value
        if key in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.array(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.array(value, STR.numpy)
    raise InvalidModel("a Constant without a value", code="E14002", where=where)


def _tensor_names(proto: onnx.GraphProto) -> Iterable[str]:
    yield from (i.name for i in (*proto.input, *proto.initializer))
    for node in proto.node:
        yield from node.output
        for item in node.attribute:
            if item.HasField("g"):
                yield from _tensor_names(item.g)


def _needed(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those that its subgraphs take from outside included."""
    found = {i for i in node.input if i}
    for item in node.attribute:
        if item.HasField("g"):
            body = item.g
            own = {i.name for i in (*body.input, *body.initializer)} | {o for n in body.node for o in n.output}
            own |= {t.values.name for t in body.sparse_initializer}
            found |= {name for n in body.node for name in _needed(n)} - own
            found |= {o.name for o in body.output} - own
    return found


def _ordered(nodes: Iterable[onnx.NodeProto], scope: Mapping[str, Value]) -> list[onnx.NodeProto]:
    """Nodes so that producers precede uses, otherwise in the file's order. InvalidModel: dangling input or cycle."""
    ordered: list[onnx.NodeProto] = []
    waiting = [(node, _needed(node)) for node in nodes]
    made: set[str] = set()
    while waiting:
        late = []
        for node, needed in waiting:
            if all(name in made or name in scope for name in needed):
                ordered.append(node)
                made.update(o for o in node.output if o)
            else:
                late.append((node, needed))
        if len(late) == len(waiting):
            _explain_stuck(late, made, scope)
        waiting = late
    return ordered


def _explain_stuck(
    waiting: Sequence[tuple[onnx.NodeProto, set[str]]], made: set[str], scope: Mapping[str, Value]
) -> None:
    coming = {o for node, _ in waiting for o in node.output if o}
    for node, needed in waiting:
        for name in sorted(needed):
            if name not in made and name not in scope and name not in coming:
                inputs = list(node.input)
                index = f"input {inputs.index(name)}" if name in inputs else "a subgraph"
                raise InvalidModel(
                    f"{index} reads the tensor {name}, which nothing makes", code="E13025",
                    where={"node": node.name or node.op_type, "op": node.op_type, "tensor": name},
                    remedy="the model lost a node or an initializer: export it again",
                )  # fmt: skip
    names = ", ".join(node.name or node.op_type for node, _ in waiting[:8])
    raise InvalidModel(
        f"the graph has a cycle among the nodes {names}", code="E13025", remedy="the order of nodes cannot be resolved"
    )
