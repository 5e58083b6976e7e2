"""Recognises layer and RMS normalisation written in primitive operators.

    d = x - mean(x);  y = d / sqrt(mean(d*d) + eps)  [* gamma] [+ beta]     -> LayerNormalization
    y = x / sqrt(mean(x*x) + eps)  [* gamma]                                -> RMSNormalization

Rules
1. The mean runs over trailing axes of static extent and keeps dims; squares may be x*x or x**2; the division may be a
   product with a reciprocal.
2. gamma and beta are constants of the shape of the normalised axes (leading ones allowed); without gamma, ones stand
   in.
3. Interior values have no other use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.fusion.scalar_terms import only_used_by, plus_number, square_of
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter


@dataclass(frozen=True)
class FuseNorms:
    """See the module."""

    name: str = "fuse-norms"

    def apply(self, graph: Graph) -> bool:
        changed = False
        for node in list(graph.nodes):
            if node.op in ("Div", "Mul") and graph.values.get(node.output.name) is node.output:
                changed |= _match(graph, node)
        return changed


def _match(graph: Graph, root: Node) -> bool:
    for numerator, denominator in _fractions(root):
        sqrt, extra = denominator
        if sqrt is None or sqrt.op != "Sqrt" or sqrt.inputs[0] is None:
            continue
        shifted = plus_number(sqrt.inputs[0])
        mean = shifted[0].producer if shifted else None
        axes = _mean_axes(mean)
        if shifted is None or mean is None or axes is None or mean.inputs[0] is None:
            continue
        square = square_of(mean.inputs[0])
        if square is None or square[0] is not numerator:
            continue
        members = [root, *extra, sqrt, shifted[2], mean, square[1]]
        centred = _centred(numerator, axes)
        if centred is not None:
            return _rewrite(graph, root, centred[0], axes, shifted[1], [*members, *centred[1]], layer=True)
        return _rewrite(graph, root, numerator, axes, shifted[1], members, layer=False)
    return False


def _fractions(root: Node) -> list[tuple[Value, tuple[Node | None, list[Node]]]]:
    """(numerator, (sqrt node, nodes on the way)) for a/sqrt and a * reciprocal(sqrt) in either order."""
    left, right = root.inputs[0], root.inputs[1]
    assert left is not None and right is not None
    if root.op == "Div":
        return [(left, (right.producer, []))]
    found: list[tuple[Value, tuple[Node | None, list[Node]]]] = []
    for value, inverse in ((left, right), (right, left)):
        node = inverse.producer
        if node is not None and node.op == "Reciprocal" and node.inputs[0] is not None:
            found.append((value, (node.inputs[0].producer, [node])))
    return found


def _mean_axes(node: Node | None) -> tuple[int, ...] | None:
    """The trailing axes over which the node takes a mean, keeping dims."""
    if node is None or node.op != "ReduceMean" or not node.attrs.get("keepdims", 1):
        return None
    source, axes = node.input(0), node.input(1)
    if source is None or source.shape is None or axes is None or axes.data is None:
        return None
    rank = source.rank
    found = tuple(sorted(int(a) % rank for a in axes.data.reshape(-1)))
    trailing = found == tuple(range(rank - len(found), rank)) and bool(found)
    return found if trailing and all(isinstance(source.shape[a], int) for a in found) else None


def _centred(value: Value, axes: tuple[int, ...]) -> tuple[Value, list[Node]] | None:
    """(x, nodes) when value == x - mean(x) over the axes."""
    node = value.producer
    if node is None or node.op != "Sub" or node.inputs[1] is None:
        return None
    mean = node.inputs[1].producer
    if mean is None or _mean_axes(mean) != axes or mean.inputs[0] is not node.inputs[0] or node.inputs[0] is None:
        return None
    return node.inputs[0], [node, mean]


def _parameter(value: Value | None, extents: tuple[int, ...]) -> np.ndarray | None:
    """A constant that holds one number per normalised element."""
    if value is None or value.data is None:
        return None
    shape = value.data.shape
    lead, own = shape[: max(0, len(shape) - len(extents))], shape[max(0, len(shape) - len(extents)) :]
    if any(d != 1 for d in lead) or (own != extents and value.data.size != 1):
        return None
    return np.ascontiguousarray(np.broadcast_to(value.data.reshape(own if own == extents else ()), extents))


def _following(graph: Graph, value: Value, op: str, extents: tuple[int, ...]) -> tuple[Node, np.ndarray] | None:
    """The only user, if it combines the value with a parameter by `op`."""
    if len(value.uses) != 1 or graph.is_output(value) or value.uses[0][0].op != op:
        return None
    node, index = value.uses[0]
    data = _parameter(node.inputs[1 - index], extents)
    return None if data is None else (node, data)


def _rewrite(
    graph: Graph, root: Node, x: Value, axes: tuple[int, ...], epsilon: float, members: list[Node], *, layer: bool
) -> bool:
    inside = set(members)
    interior = [v for n in members for v in n.outputs if v is not root.output]
    if x.shape is None or not all(only_used_by(graph, v, inside) for v in interior):
        return False
    extents = tuple(d for a in axes if isinstance(d := x.shape[a], int))
    last, gamma, beta = root, None, None
    scaled = _following(graph, root.output, "Mul", extents)
    if scaled:
        interior.append(last.output)
        last, gamma = scaled
        offset = _following(graph, last.output, "Add", extents) if layer else None
        if offset:
            interior.append(last.output)
            last, beta = offset
    rewriter = Rewriter(graph)
    type_ = x.dtype.numpy
    operands = [
        x,
        rewriter.constant((np.ones(extents) if gamma is None else gamma).astype(type_), f"{root.name}/gamma"),
    ]
    if beta is not None:
        operands.append(rewriter.constant(beta.astype(type_), f"{root.name}/beta"))
    attrs = {"axis": axes[0] - x.rank, "epsilon": epsilon}
    if "guards" in root.attrs:
        attrs["guards"] = root.attrs["guards"]  # type: ignore[assignment]
    op = "LayerNormalization" if layer else "RMSNormalization"
    norm = rewriter.insert(op, operands, attrs, before=last, name=root.name)
    rewriter.absorb(interior, norm.output)
    rewriter.replace(last.output, norm.output)
    rewriter.erase_dead([last])
    return True
