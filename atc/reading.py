"""The model as a conversion is asked to take it: read, cut, with the inputs, outputs and dtypes that the flags name.

What does not fit the model is told all at once, whichever flag it stands in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atc.interface import apply_interface
from atc.options import Options
from atc.precision_wishes import overrides
from atc.usage import Problems
from frontend import read_model
from graph_opt.ir import Graph
from tensor_types.errors import OpenAtcError


def read(source: Path, options: Options) -> Graph:
    """The graph with the shapes and outputs asked for. InvalidModel; where a flag is at fault, the errors of all."""
    opens = options.dynamic_dims is not None
    try:
        return read_model(source, options.input_shape or None, options.out_nodes, opens, options.cache_capacity)
    except OpenAtcError as error:
        problems, flag = Problems(), error.where.get("flag", "")
        if flag not in ("--input_shape", "--out_nodes"):
            raise
        problems.errors.append(error)
    # What else is wrong is looked for in the model without what that flag asked.
    graph = None
    with problems.gathered():
        if flag == "--out_nodes":
            graph = read_model(source, options.input_shape or None, (), opens)
        else:
            graph = read_model(source, None, options.out_nodes, opens)
    if graph is None:
        graph = read_model(source)
    with problems.gathered():
        overrides(graph, options.operator_wishes)
    if flag == "--out_nodes" and len(problems.errors) == 1 and not any(name for name, _ in options.output_type):
        with problems.gathered():
            apply_interface(graph, options)
    problems.raise_all()
    raise AssertionError("there is a problem")


def apply_wishes(graph: Graph, options: Options) -> tuple[Any, list[str], dict[str, Any]]:
    """Dtypes of single operators and what is said of them (`overrides`), and the header's entries
    (`apply_interface`). UsageError of all that does not fit."""
    problems = Problems()
    classes: Any = None
    matched: list[str] = []
    interface: dict[str, Any] = {}
    with problems.gathered():
        classes, matched = overrides(graph, options.operator_wishes)
    with problems.gathered():
        interface = apply_interface(graph, options)
    problems.raise_all()
    return classes, matched, interface
