"""Another batch for a model that was exported with a fixed one, where its graph allows it.

1. Inputs for which the user wants another first extent get an open one; they must have been exported with one batch.
2. Constant targets of Reshape and Expand that begin with the old batch, behind such an input, let it follow: -1, or 0
   (the extent of the operand) beside another -1; 1, which broadcasts, in an Expand.
3. The shapes of the outputs must then be those of before with the batch in its place: `check_outputs`. What a rule of
   an operator refuses on the way is told with the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from frontend.input_dims import DimWish, Wishes
from graph_opt.ir import Graph
from tensor_types.errors import InvalidModel

_NAME = "batch"


def opened_batch(model: onnx.ModelProto, wishes: Wishes, opens: bool) -> tuple[int, list[str]]:
    """Changes the model; the batch that it had and the inputs that were opened, none of them where nothing has to be.

    `opens` says that -1 asks for an open extent rather than for the model's own.
    """
    initializers = {t.name for t in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in initializers]
    by_name = {v.name: v for v in inputs}
    chosen: dict[str, int] = {}
    for key, wish in wishes.items():
        proto = (inputs[key] if key < len(inputs) else None) if isinstance(key, int) else by_name.get(key)
        dims = proto.type.tensor_type.shape.dim if proto is not None else ()
        if proto is not None and len(dims) == len(wish) > 0 and dims[0].HasField("dim_value"):
            own = int(dims[0].dim_value)
            if own > 0 and _differs(wish[0], own, opens):
                chosen[proto.name] = own
    if len(set(chosen.values())) != 1:
        return 0, []
    batch = next(iter(chosen.values()))
    taken = {d.dim_param for v in inputs for d in v.type.tensor_type.shape.dim}
    name = next(n for n in (_NAME, *(f"{_NAME}_{i}" for i in range(len(taken) + 1))) if n not in taken)
    for proto in inputs:
        if proto.name in chosen:
            proto.type.tensor_type.shape.dim[0].dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    _follow(model.graph, set(chosen), batch)
    return batch, list(chosen)


def check_outputs(before: Graph, after: Graph, batch: int, opened: Iterable[str]) -> None:
    """InvalidModel (E10050) unless every output is as before, but for the batch in the first extent."""
    first = next(iter(opened))
    new = next(v.shape for v in after.inputs if v.name == first)
    assert new is not None
    for old_value, value in zip(before.outputs, after.outputs, strict=True):
        old, now = old_value.shape, value.shape
        if old == now:
            continue
        whole = old and isinstance(old[0], int) and old[0] % batch == 0
        if old is None or now is None or not whole or now[0] != old[0] // batch * new[0] or now[1:] != old[1:]:
            raise _refused(first, f"the output {value.name} does not follow it", value.name)


def refused_at(error: InvalidModel, opened: Iterable[str]) -> InvalidModel:
    """The error of a node that holds on to the old batch, in these terms; one of the wishes themselves as it is."""
    if error.where.get("flag") == "--input_shape":
        return error
    place = error.where.get("node") or error.where.get("tensor") or ""
    return _refused(next(iter(opened)), f"{place}: {error.message}", place)


def _refused(name: str, why: str, place: str) -> InvalidModel:
    return InvalidModel(
        f"{name} was exported with a fixed batch, and the graph holds on to it: {why}", code="E10050",
        where={"tensor": name, "node": place, "flag": "--input_shape"}, remedy="export the model with an open batch",
    )  # fmt: skip


def _differs(wish: DimWish, own: int, opens: bool) -> bool:
    if isinstance(wish, tuple):
        return True
    return opens if wish == -1 else wish != own


def _follow(graph: onnx.GraphProto, reached: set[str], batch: int) -> None:
    weights = {t.name: t for t in graph.initializer}
    constants = {n.output[0]: n for n in graph.node if n.op_type == "Constant"}
    for node in list(graph.node):
        if reached.isdisjoint(node.input):
            continue
        reached.update(node.output)
        if node.op_type not in ("Reshape", "Expand") or len(node.input) < 2 or node.input[0] not in reached:
            continue
        target = _numbers(node.input[1], weights, constants)
        if target is None or not target.size or target[0] != batch or (node.op_type == "Expand" and batch == 1):
            continue
        moved = target.copy()
        moved[0] = 1 if node.op_type == "Expand" else 0 if -1 in target else -1
        name = f"{node.input[1]}/{node.output[0]}"
        graph.initializer.append(numpy_helper.from_array(moved, name))
        node.input[1] = name


def _numbers(
    name: str, weights: dict[str, onnx.TensorProto], constants: dict[str, onnx.NodeProto]
) -> np.ndarray | None:
    tensors: Iterator[onnx.TensorProto] = iter(
        [weights[name]] if name in weights else
        [a.t for a in constants[name].attribute if a.name == "value"] if name in constants else []
    )  # fmt: skip
    tensor = next(tensors, None)
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    return numpy_helper.to_array(tensor)
