"""ModelProto to Graph: scopes, order, names, constants, origins. What a single operator means is `normalise`'s part."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from frontend.attributes import attribute_values, check_attributes
from frontend.declared_outputs import odd_output
from frontend.inline_functions import stamped_opsets
from frontend.input_dims import Shape, Wishes, input_shapes, value_type
from frontend.load_proto import opsets
from frontend.node_order import in_order
from frontend.normalise import APPLIES_BODIES, PendingNode, normalise
from frontend.spliced_bodies import spliced
from frontend.tensors import element_type, sparse_to_array, to_array
from frontend.unsupported import unsupported_error, unsupported_in_file
from graph_opt.ir import Graph, Node, Origin, Value, ops
from graph_opt.ir.core import AttrValue
from graph_opt.ir.infer import infer_graph, infer_node
from graph_opt.ir.ops.registry import content_of
from tensor_types.dims import product
from tensor_types.dtypes import BOOL, F32, HANDLE, I64, STR, DType, from_numpy
from tensor_types.errors import InvalidModel, ResourceLimit

Type = tuple[DType, Shape]


def import_graph(model: onnx.ModelProto, source: Path, input_shape: Wishes) -> Graph:
    """The graph of a model without local functions. `source` is its file, beside which external data lies."""
    return _Importer(model, source).top(model.graph, input_shape)


_BY_NUMBER = ("Split", "If", "Loop", "Scan")
"""Operators whose number of outputs says something: one that nobody reads still takes its share, or is a state."""


class _Importer:
    def __init__(self, model: onnx.ModelProto, source: Path) -> None:
        self.source = source
        self.opsets = {"": 1, **opsets(model.opset_import)}
        self.ir_version = model.ir_version
        self.fed_defaults: set[str] = set()
        """Inputs of the graph whose values in the model are not used."""
        self.node_names: set[str] = set()
        self.tensor_names = set(_tensor_names(model.graph))
        self.producers: dict[Value, str] = {}
        """Who made a tensor, in the words of messages, where it is no node."""
        self.warnings: list[str] = []

    def top(self, proto: onnx.GraphProto, input_shape: Wishes) -> Graph:
        constants = {t.name for t in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
        # Until IR version 3 each initializer had to be listed as an input too; it is a constant here. From then on one
        # that is listed may be fed: it is an input if the user gives it a shape, and a constant otherwise.
        defaults = [item.name for item in proto.input if item.name in constants and self.ir_version > 3]
        self.fed_defaults = {name for name in defaults if name in input_shape}
        fed = [item for item in proto.input if item.name not in constants or item.name in self.fed_defaults]
        kept = [name for name in defaults if name not in self.fed_defaults]
        if kept:
            names = ", ".join(kept[:3]) + (f" and {len(kept) - 3} more" if len(kept) > 3 else "")
            self.warnings.append(
                f"the model has values for its inputs {names}: they are constants, those named in --input_shape are fed"
            )
        shapes, ranges = input_shapes(fed, input_shape)
        graph = Graph(proto.name or "graph", dims=ranges)
        before = dict(ranges)
        scope: ChainMap[str, Value] = ChainMap()
        for item in fed:
            self.add_input(graph, scope, item.name, (value_type(item), shapes[item.name]))
        try:
            self.fill(proto, graph, scope)
        except InvalidModel as error:
            # What an unknown operator makes has no type, so that a valid node behind it seems to break a rule.
            unknown = unsupported_in_file(proto, self.opsets) if error.code == InvalidModel.default_code else []
            if unknown:
                raise unsupported_error(unknown) from None
            raise
        if any(graph.dims[name] != span for name, span in before.items()):
            infer_graph(graph)  # nodes in front of those that raised a range
        for item, value in zip(proto.output, graph.outputs, strict=True):
            self.warnings += odd_output(item, value)
        graph.warnings = self.warnings
        return graph

    def body(self, proto: onnx.GraphProto, outer: Graph, scope: ChainMap[str, Value], fed: Sequence[Type]) -> Graph:
        """A subgraph; `fed` are the types of its first inputs as the control flow node gives them."""
        graph = Graph(proto.name or "body", dims=outer.dims)  # one name space of dims
        inner = scope.new_child()
        for index, item in enumerate(proto.input):
            self.add_input(graph, inner, item.name, fed[index] if index < len(fed) else (value_type(item), None))
        self.fill(proto, graph, inner)
        return graph

    def add_input(self, graph: Graph, scope: ChainMap[str, Value], name: str, type_: Type) -> None:
        self._refuse_second(scope, name, "the graph's inputs")
        value = graph.add_value(name, *type_)
        scope[name] = value
        self.producers[value] = "the graph's inputs"
        graph.inputs.append(value)
        graph.origins[name] = Origin("same", value.name)

    def add_initializers(self, proto: onnx.GraphProto, graph: Graph, scope: ChainMap[str, Value]) -> None:
        for tensor in proto.initializer:
            if tensor.name in self.fed_defaults and scope.get(tensor.name) in graph.inputs:
                continue
            self.add_constant(graph, scope, tensor.name, to_array(tensor, self.source), "an initializer")
        for sparse in proto.sparse_initializer:
            if sparse.values.name in self.fed_defaults and scope.get(sparse.values.name) in graph.inputs:
                continue
            data = sparse_to_array(sparse, self.source)
            self.add_constant(graph, scope, sparse.values.name, data, "an initializer")

    def fill(self, proto: onnx.GraphProto, graph: Graph, scope: ChainMap[str, Value]) -> None:
        self.add_initializers(proto, graph, scope)
        declared = {v.name: v for v in (*proto.value_info, *proto.output)}
        for node in in_order(proto.node, scope):
            try:
                self.add_node(node, graph, scope, declared)
            except InvalidModel as error:  # rules of operators know what is wrong, not where it came from
                error.remedy = error.remedy or "the node breaks a rule of ONNX: export the model again"
                raise
        for item in proto.output:
            if item.name not in scope:
                raise InvalidModel(
                    f"the graph output {item.name} is made by no node", code="E13031", where={"tensor": item.name},
                    remedy="remove the output, or add the node that makes it",
                )  # fmt: skip
            graph.outputs.append(self.public(graph, scope[item.name], item.name))

    def public(self, graph: Graph, value: Value, name: str) -> Value:
        """The output itself; through an Identity when it is an input, a constant, an outer value or listed before."""
        own = graph.values.get(value.name) is value
        if own and value.producer is not None and value not in graph.outputs:
            return value
        if own and value.is_constant and value.name == name:
            # The output keeps its name, the constant gives way.
            del graph.values[name]
            value.name = graph.fresh_name(f"{name}/constant")
            graph.values[value.name] = value
            graph.origins[name] = Origin("folded", value.name)
        free = own and name not in graph.values  # a body never hides a name of the outer graph
        result = graph.add_value(name if free else f"{name}/output", value.dtype, value.shape)
        infer_node(graph, graph.add_node("Identity", [value], [result], name=f"{name}/identity"))
        return result

    def add_constant(
        self, graph: Graph, scope: ChainMap[str, Value], name: str, data: np.ndarray, producer: str
    ) -> Value:
        self._refuse_second(scope, name, producer)
        value = scope[name] = graph.add_constant(name, data, from_numpy(data.dtype))
        self.producers[value] = producer
        return value

    def add_node(
        self, proto: onnx.NodeProto, graph: Graph, scope: ChainMap[str, Value],
        declared: Mapping[str, onnx.ValueInfoProto],
    ) -> None:  # fmt: skip
        if not all(isinstance(t, str) for t in (proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)):
            raise InvalidModel(  # protobuf gives bytes for them
                f"a node's names are no UTF-8 text: {proto.op_type!r} {proto.name!r}",
                where={"op": repr(proto.op_type)},
                remedy="export the model again with names in UTF-8",
            )  # fmt: skip
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        versions = stamped_opsets(proto, self.opsets)
        name = self.unique_name(proto)
        where = {"node": name, "op": proto.op_type}
        if not proto.output:
            raise InvalidModel("the node makes no tensor", where=where, remedy="remove the node")
        if domain not in versions:
            raise InvalidModel(
                f"the model imports no opset of the domain {domain}", code="E16005", where=where,
                remedy="add it to opset_import",
            )  # fmt: skip
        for output in filter(None, proto.output):
            self._refuse_second(scope, output, f"node {name}", where)
        self.warnings += check_attributes(proto, domain, versions[domain], where)
        attrs, graphs = attribute_values(proto, self.source)
        if proto.op_type == "Constant" and not domain:
            value = self.add_constant(graph, scope, proto.output[0], _constant_data(attrs, where), f"node {name}")
            graph.origins[proto.output[0]] = Origin("folded", value.name)
            return
        op = f"{domain}::{proto.op_type}" if domain else proto.op_type
        inputs = [scope[i] if i else None for i in proto.input]
        bodies = {}
        if op in APPLIES_BODIES:
            bodies = {k: partial(self.splice, b, graph, scope, f"{name}/{k}/") for k, b in graphs.items()}
            graphs = {}
        fed = _fed_types(proto.op_type, inputs, attrs)
        taken = _taken_branch(inputs[0]) if proto.op_type == "If" and not domain and inputs else None
        # A branch that cannot run need not even make sense for the shapes at hand, so it is not read.
        subgraphs = {
            key: self.body(item, graph, scope, fed) if taken in (None, key) else Graph("not_taken", dims=graph.dims)
            for key, item in graphs.items()
        }
        pending = PendingNode(
            graph=graph, op=op, name=name, bodies=bodies,
            opset=versions[domain], inputs=inputs, attrs=attrs, outputs=list(proto.output),
            reserved=self.tensor_names,
            declared={o: _declared_shape(declared[o]) for o in proto.output if o in declared},
        )  # fmt: skip
        normalise(pending)
        while pending.inputs and pending.inputs[-1] is None:
            pending.inputs.pop()
        while len(pending.outputs) > 1 and not pending.outputs[-1] and pending.op not in _BY_NUMBER:
            pending.outputs.pop()
        outputs: list[Value] = []
        for output in pending.outputs:
            dtype = _declared_dtype(declared.get(output))
            outputs.append(graph.add_value(output or pending.free_name(f"{name}/unused"), dtype, None))
        known = ops.get(pending.op)
        if known is None or known.custom:
            kept: dict[str, AttrValue] = {**pending.attrs, "opset": versions[domain]}
        else:  # attributes of old opsets that say nothing any more go
            kept = {key: value for key, value in pending.attrs.items() if key in known.attrs}
        node = graph.add_node(pending.op, pending.inputs, outputs, kept, name=name, subgraphs=subgraphs)
        infer_node(graph, node)
        _refuse_too_large(node)
        made = {output: value for output, value in zip(pending.outputs, outputs, strict=True) if output}
        for output, value in pending.replaced.items():
            del graph.values[value.name]
            value.name = output
            graph.values[output] = value
            made[output] = value
        scope.update(made)
        for output, value in made.items():
            graph.origins[output] = Origin("same", value.name)

    def splice(
        self, body: onnx.GraphProto, graph: Graph, scope: ChainMap[str, Value], prefix: str, inputs: Sequence[Value]
    ) -> list[Value]:
        """Adds the nodes of a body to the graph around it, for given inputs; its results."""
        if len(inputs) != len(body.input):
            raise InvalidModel(
                f"the body {prefix} has {len(body.input)} inputs, expected are {len(inputs)}", where={"node": prefix}
            )
        inner = scope.new_child()
        names = {item.name: f"{prefix}{item.name}" for item in body.input}
        inner.update(zip(names.values(), inputs, strict=True))
        copy = spliced(body, prefix, names)
        self.add_initializers(copy, graph, inner)
        for node in in_order(copy.node, inner):
            self.add_node(node, graph, inner, {})
        return [inner[item.name] for item in copy.output]

    def _refuse_second(
        self, scope: ChainMap[str, Value], name: str, producer: str, where: Mapping[str, str] | None = None
    ) -> None:
        if name not in scope.maps[0]:
            return
        first = scope.maps[0][name]
        before = f"node {first.producer.name}" if first.producer is not None else self.producers[first]
        raise InvalidModel(
            f"the tensor {name} is made twice: by {before} and by {producer}", code="E13031",
            where={**(where or {}), "tensor": name}, remedy="give each tensor one producer",
        )  # fmt: skip

    def unique_name(self, proto: onnx.NodeProto) -> str:
        """Node names are optional and may repeat in a file; reports need them apart."""
        wish = proto.name or f"{proto.op_type}_{next(filter(None, proto.output), '')}"
        name, number = wish, 1
        while name in self.node_names:
            name, number = f"{wish}.{number}", number + 1
        self.node_names.add(name)
        return name


def _refuse_too_large(node: Node) -> None:
    """ResourceLimit for a result whose bytes no 64-bit offset counts."""
    for value in node.outputs:
        elements = product(value.shape or ())
        if isinstance(elements, int) and elements * value.dtype.bits >= 1 << 66:
            raise ResourceLimit(
                f"the tensor is too large: {value.dtype}{list(value.shape or ())}",
                where={"node": node.name, "op": node.op, "tensor": value.name}, remedy="use smaller input shapes",
            )  # fmt: skip


def _fed_types(op: str, inputs: Sequence[Value | None], attrs: Mapping[str, AttrValue]) -> list[Type]:
    """Types that a Loop or Scan gives to its body's inputs at first; what the file declares is not trusted."""
    types: list[Type] = [(F32, None) if v is None else (v.dtype, v.shape) for v in inputs]
    if op == "Loop":
        return [(I64, ()), (BOOL, ()), *types[2:]]
    if op != "Scan":
        return []
    scans = int(str(attrs.get("num_scan_inputs", 0)))
    states = len(types) - scans
    axes = attrs.get("scan_input_axes")
    for index in range(scans):
        dtype, shape = types[states + index]
        if shape:
            axis = int(axes[index]) % len(shape) if isinstance(axes, Sequence) else 0
            shape = (*shape[:axis], *shape[axis + 1 :])
        types[states + index] = (dtype, shape)
    return types


def _taken_branch(condition: Value | None) -> str | None:
    """Which branch of an If runs, when that is known."""
    content = None if condition is None else content_of(condition)
    if not content or not isinstance(content[0], int):
        return None
    return "then_branch" if content[0] else "else_branch"


def _declared_shape(proto: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in proto.type.tensor_type.shape.dim)


def _declared_dtype(proto: onnx.ValueInfoProto | None) -> DType:
    """What the file says of an output: kept only where no rule knows better."""
    if proto is not None and proto.type.WhichOneof("value") in ("sequence_type", "optional_type", "map_type"):
        return HANDLE
    if proto is None or not proto.type.tensor_type.elem_type:
        return F32
    return element_type(proto.type.tensor_type.elem_type, proto.name)


def _constant_data(attrs: Mapping[str, AttrValue], where: Mapping[str, str]) -> np.ndarray:
    for key, value in attrs.items():
        if key in ("value", "sparse_value"):
            return np.asarray(value)
        if key in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.array(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.array(value, STR.numpy)
    raise InvalidModel(
        "a Constant without a value", code="E14002", where=where, remedy="the model is damaged: export it again"
    )


def _tensor_names(proto: onnx.GraphProto) -> Iterable[str]:
    yield from (i.name for i in (*proto.input, *proto.initializer))
    yield from (s.values.name for s in proto.sparse_initializer)
    for node in proto.node:
        yield from node.output
        for item in node.attribute:
            if item.HasField("g"):
                yield from _tensor_names(item.g)
