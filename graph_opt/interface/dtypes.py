"""Inputs and outputs of another dtype than the model's, by one Cast each."""

from __future__ import annotations

from graph_opt.ir import Graph, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import DType


def set_input_dtype(graph: Graph, value: Value, dtype: DType) -> None:
    """Lets the graph take `dtype` for an input; what reads the input gets the model's dtype."""
    if value.dtype != dtype:
        own = value.dtype
        given = replace_input(graph, value, dtype, value.shape)
        first = graph.nodes[0] if graph.nodes else None
        rewriter = Rewriter(graph)
        made = rewriter.insert(
            "Cast", [given], {"to": own.onnx}, before=first, guards=(), outputs=[f"{given.name}/{own}"],
            name=f"{given.name}/{own}",
        )  # fmt: skip
        rewriter.replace(value, made.output)
        graph.values.pop(value.name)


def set_output_dtype(graph: Graph, value: Value, dtype: DType) -> None:
    """Lets the graph give an output as `dtype`, under its own name."""
    if value.dtype == dtype:
        return
    rewriter, name = Rewriter(graph), value.name
    rewriter.rename(value, graph.fresh_name(f"{name}/{value.dtype}"))
    made = rewriter.insert("Cast", [value], {"to": dtype.onnx}, before=None, outputs=[name], name=f"{name}/output_type")
    graph.outputs.replace(value, made.output)


def replace_input(graph: Graph, value: Value, dtype: DType, shape: tuple | None) -> Value:  # type: ignore[type-arg]
    """A new graph input of the old one's name and place; the old value is left under another name, without producer."""
    name = value.name
    Rewriter(graph).rename(value, graph.fresh_name(f"{name}/model"))
    given = graph.add_value(name, dtype, shape)
    graph.inputs = [given if v is value else v for v in graph.inputs]
    return given
