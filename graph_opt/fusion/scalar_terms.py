"""Reads products and sums of a graph without regard to order, commuted operands or the spelling of constants."""

from __future__ import annotations

from graph_opt.ir import Graph, Node, Value


def scalar(value: Value | None) -> float | None:
    """The number of a constant of one element, else None."""
    if value is None or value.data is None or value.data.size != 1 or not value.dtype.is_float:
        return None
    return float(value.data.reshape(()))


def only_used_by(graph: Graph, value: Value, nodes: set[Node]) -> bool:
    """True if nothing outside `nodes` uses the value."""
    return not graph.is_output(value) and all(user in nodes for user, _ in value.uses)


def factors(value: Value) -> tuple[float, list[Value], list[Node]]:
    """(number, values, nodes): value == number * product of values, through Mul and division by a number.

    Products inside are followed while nothing else uses them.
    """
    number, values, nodes = 1.0, [], []
    stack = [value]
    while stack:
        current = stack.pop()
        node = current.producer
        if node is None or node.op not in ("Mul", "Div") or (nodes and len(current.uses) != 1):
            known = scalar(current)
            if known is not None:
                number *= known
            else:
                values.append(current)
            continue
        left, right = node.inputs[0], node.inputs[1]
        assert left is not None and right is not None
        if node.op == "Div":
            divisor = scalar(right)
            if divisor is None or divisor == 0.0:
                values.append(current)
                continue
            number /= divisor
            stack.append(left)
        else:
            stack.extend((left, right))
        nodes.append(node)
    return number, values, nodes


def plus_number(value: Value) -> tuple[Value, float, Node] | None:
    """(term, number, node) of an Add of a number and a term."""
    node = value.producer
    if node is None or node.op != "Add":
        return None
    for term, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        known = scalar(other)
        if known is not None and term is not None:
            return term, known, node
    return None


def close(a: float, b: float) -> bool:
    """Equal up to the rounding of a constant to f32 or f16."""
    return abs(a - b) <= 2e-3 * abs(b)


def square_of(value: Value) -> tuple[Value, Node] | None:
    """(x, node) when the value is x*x or x**2."""
    node = value.producer
    if node is None or node.inputs[0] is None:
        return None
    if node.op == "Mul" and node.inputs[0] is node.inputs[1]:
        return node.inputs[0], node
    if node.op == "Pow" and scalar_or_int(node.inputs[1]) == 2.0:
        return node.inputs[0], node
    return None


def scalar_or_int(value: Value | None) -> float | None:
    """As `scalar`, integers included."""
    if value is None or value.data is None or value.data.size != 1:
        return None
    return float(value.data.reshape(()))
