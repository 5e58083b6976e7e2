"""From a path to a graph: parse, inline functions, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from frontend.cut_outputs import cut_outputs
from frontend.fixed_caches import declare_caches, mark_states
from frontend.import_graph import import_graph
from frontend.inline_functions import inline_functions
from frontend.input_dims import Wishes
from frontend.load_proto import load_proto
from frontend.rebatch import check_outputs, opened_batch, refused_at
from graph_opt.ir import Graph
from tensor_types.errors import InvalidModel


def read_model(
    path: str | Path, input_shape: Wishes | None = None, outputs: Sequence[str] = (), opens: bool = False,
    cache_capacity: int = 0,
) -> Graph:  # fmt: skip
    """Reads an ONNX file of opset 1 to the newest into the IR, with every type inferred.

    `input_shape` gives dims per input, by its name or number: a size, -1 for the model's own, or a range. What is said
    of one dim holds for every dim of that name. `outputs`, 'node:index' or names of tensors, take the place of the
    model's own. With `opens`, -1 opens a batch that the model fixes; another batch than the model's does so in any
    case, where the graph allows it.
    With a `cache_capacity` the caches of a decoder become states of so many rows (`frontend.fixed_caches`).
    Operators that are not known are kept: `frontend.unsupported(graph)` lists them. Raises InvalidModel with code,
    place and remedy when the file or `input_shape` is wrong.
    """
    source = Path(path)
    model = _proto(source, outputs)
    if cache_capacity:
        pairs = declare_caches(model, cache_capacity)
        graph = import_graph(model, source, input_shape or {})
        mark_states(graph, pairs)
        return graph
    batch, opened = opened_batch(model, input_shape or {}, opens)
    if not opened:
        return import_graph(model, source, input_shape or {})
    try:
        graph = import_graph(model, source, input_shape or {})
    except InvalidModel as error:
        raise refused_at(error, opened) from error
    check_outputs(import_graph(_proto(source, outputs), source, {}), graph, batch, opened)
    graph.warnings.append(f"the batch of {', '.join(opened)} was {batch} in the model and was opened")
    return graph


def _proto(source: Path, outputs: Sequence[str]) -> onnx.ModelProto:
    model = inline_functions(load_proto(source))
    if outputs:
        cut_outputs(model, outputs)
    return model
