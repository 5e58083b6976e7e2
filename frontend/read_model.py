"""From a path to a graph: parse, inline functions, import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from frontend.import_graph import import_graph
from frontend.inline_functions import inline_functions
from frontend.load_proto import load_proto
from graph_opt.ir import Graph


def read_model(path: str | Path, input_shape: Mapping[str, Sequence[int | str]] | None = None) -> Graph:
    """Reads an ONNX file of opset 1 to the newest into the IR, typed by inference.

    `input_shape` overrides dims per input name: an int fixes an extent, -1 keeps the model's, a string names the dim,
    or bounds it ("1~8"). Fixing one dim fixes every dim of that name. Operators that nothing implements are kept:
    `frontend.unsupported(graph)` lists them. InvalidModel says what is wrong with the file, or with `input_shape`.
    """
    location = Path(path)
    model = inline_functions(load_proto(location))
    return import_graph(model, location.parent, input_shape or {})
