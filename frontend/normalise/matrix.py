"""Matrix operators: Gemm in terms of MatMul, vectors as matrices of one row or column."""

from __future__ import annotations

from typing import Any, cast

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.recipes import permute


@form("Gemm")
def _as_matmul(node: PendingNode) -> None:
    """alpha * A' B' + beta * C as MatMul, Mul and Add. Integers with factors keep Gemm: their rounding is its own."""
    attrs = cast("dict[str, Any]", node.attrs)
    attrs.pop("broadcast", None)
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))
    a, b, c = node.value(0), node.value(1), node.input(2)
    dtype = a.dtype
    if not dtype.is_float and not (alpha == 1.0 and (c is None or beta == 1.0)):
        return
    operands = [
        _transposed(node, a) if attrs.get("transA") else a,
        _transposed(node, b) if attrs.get("transB") else b,
    ]
    steps: list[tuple[str, list[Value]]] = [("MatMul", operands)]
    if alpha != 1.0:
        steps.append(("Mul", [node.constant(alpha, dtype, "alpha")]))
    if c is not None and beta != 0.0:
        if beta != 1.0 and c.data is not None:
            c = node.constant(c.data * dtype.numpy.type(beta), dtype, "bias")
        elif beta != 1.0:
            c = node.emit("Mul", [c, node.constant(beta, dtype, "beta")])
        steps.append(("Add", [c]))
    (op, inputs), *rest = steps
    for following in rest:
        inputs, op = [node.emit(op, inputs), *following[1]], following[0]
    node.become(op, inputs)


@form("MatMul MatMulInteger")
def _vectors_as_matrices(node: PendingNode) -> None:
    """A vector on the left is a row, on the right a column, and the axis of 1 goes from the result (numpy.matmul)."""
    ranks = [None if v.shape is None else len(v.shape) for v in (node.value(0), node.value(1))]
    if None in ranks or 1 not in ranks:
        return
    units = []
    for index, (rank, axis) in enumerate(zip(ranks, (0, 1), strict=True)):
        if rank == 1:
            node.set_input(index, node.emit("Unsqueeze", [node.value(index), node.ints([axis], "axes")]))
            units.append(axis - 2)
    product = node.emit(node.op, node.inputs, node.attrs)
    node.become("Squeeze", [product, node.ints(units, "axes")])


def _transposed(node: PendingNode, value: Value) -> Value:
    """The transposed matrix: a view of a constant, shared by all its users, or a node."""
    if value.recipe is None or value.rank != 2:
        return node.emit("Transpose", [value], {"perm": (1, 0)})
    name = f"{value.name}.transposed"
    known = node.graph.values.get(name)
    turned = permute(value.recipe, (1, 0))
    if known is not None and known.recipe == turned:
        return known
    return node.graph.add_constant(node.free_name(name), turned, value.dtype)
