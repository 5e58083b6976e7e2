"""From a path to a graph: parse, inline functions, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from frontend.cut_outputs import cut_outputs
from frontend.import_graph import import_graph
from frontend.inline_functions import inline_functions
from frontend.input_dims import Wishes
from frontend.load_proto import load_proto
from graph_opt.ir import Graph


def read_model(path: str | Path, input_shape: Wishes | None = None, outputs: Sequence[str] = ()) -> Graph:
    """Reads an ONNX file of opset 1 to the newest into the IR, with every type inferred.

    `input_shape` gives dims per input, by its name or number: a size, -1 for the model's own, or a range. What is said
    of one dim holds for every dim of that name. `outputs`, 'node:index' or names of tensors, take the place of the
    model's own.
    Operators that are not known are kept: `frontend.unsupported(graph)` lists them. Raises InvalidModel with code,
    place and remedy when the file or `input_shape` is wrong.
    """
    source = Path(path)
    model = inline_functions(load_proto(source))
    if outputs:
        cut_outputs(model, outputs)
    return import_graph(model, source, input_shape or {})
