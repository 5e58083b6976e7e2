"""Reference values of a model's tensors from onnxruntime: optimisation off, one thread, every tensor shown, integer
products exact on every CPU.

Takes a path, inputs and the names of tensors; knows ONNX and onnxruntime, nothing of packages.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from atc.exact_products import make_products_exact
from atc.golden_stages import Run, has_registered, run_stages
from frontend import read_model
from frontend.load_proto import load_proto
from graph_opt.ir import Graph
from tensor_types.errors import EnvironmentProblem, InvalidModel

PART_BYTES = 96 << 20
"""Weights that onnxruntime gets at a time: it holds them thrice while it loads."""
_BRANCH = "/of_branch"
_QUANTISERS = ("QuantizeLinear", "DynamicQuantizeLinear")


@dataclass(frozen=True)
class Golden:
    """Values by tensor name (an array, or a list for a sequence), and how the tensors hang together."""

    values: Mapping[str, Any]
    quantised: frozenset[str]
    """Tensors before which activations are rounded to integers: two right implementations agree there up to steps."""
    parents: Mapping[str, tuple[str, ...]]
    """The tensors that a tensor is computed from directly."""
    stand_ins: frozenset[str] = frozenset()
    """Tensors of operators that onnxruntime lacks: their registered numpy functions gave them."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Tensors that nothing can compute, and why."""
    name: str = "onnxruntime"
    """Who gave the values."""
    of_model: bool = False
    """True if they were computed from the model itself, as float64 can be: another package may be compared for what
    it does otherwise."""


def golden_tensors(
    model: Path, inputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.dtype], run: Run | None = None,
    name: str = "onnxruntime",
) -> Golden:  # fmt: skip
    """The wanted tensors (with their dtypes) as far as the oracle can show them, and the model's outputs.

    The oracle is `run`, which computes all outputs of a model; None stands for onnxruntime. `name` is its name.

    Model-local functions are inlined under the names that onnx.inliner gives; tensors of If branches become outputs of
    the If, empty where the branch does not run. Registered operators are computed by their numpy functions.
    InvalidModel if the file is no ONNX model, EnvironmentProblem if onnxruntime cannot run it.
    """
    try:
        proto = source_model(model)
        quantised = frozenset(_behind_quantisers(proto.graph, set()))
        parents = dict(_parents(proto.graph))
        names = {v.name for v in proto.graph.output}
        of_branches = _dtypes_in_branches(model, set(_branch_names(proto.graph, wanted)))
        shown = [*_made(proto.graph), *_expose(proto.graph, of_branches)]
        for tensor in shown:
            if tensor.removesuffix(_BRANCH) in wanted and tensor not in names:
                proto.graph.output.add().name = tensor
        make_products_exact(proto)
    except InvalidModel:
        raise
    except Exception as error:  # onnx's errors have no common base
        raise _cannot_load(error) from error
    run = run or run_onnxruntime
    if has_registered(proto.graph) or _weight_bytes(proto.graph) > PART_BYTES:
        stages = run_stages(proto, inputs, run, PART_BYTES)
        stand_ins, unknown = frozenset(stages.stand_ins), {_plain(n): why for n, why in stages.unknown.items()}
        return Golden(_without_absent(stages.values), quantised, parents, stand_ins, unknown, name, of_model=True)
    return Golden(_without_absent(run(proto, inputs)), quantised, parents, name=name, of_model=True)


def source_model(model: Path) -> onnx.ModelProto:
    """The model with its weights, functions inlined under the names that comparisons show. InvalidModel."""
    load_proto(model)
    proto = _inlined(onnx.load(str(model), load_external_data=True))
    _accepted(proto.graph, set(), set())
    return proto


def structure(model: Path) -> tuple[frozenset[str], dict[str, tuple[str, ...]], dict[str, str]]:
    """Without running it: tensors behind quantised activations, what each tensor is computed from, and the tensors by
    `node:output`, as dumps name them. InvalidModel."""
    load_proto(model)
    graph = _inlined(onnx.load(str(model), load_external_data=False)).graph
    parents = dict(_parents(graph))
    names = [n.name or f"{n.op_type}_{at}" for at, n in enumerate(graph.node)]
    places = {f"{name}:{k}": o for name, n in zip(names, graph.node, strict=True) for k, o in enumerate(n.output)}
    return frozenset(_behind_quantisers(graph, set())), parents, places


def _parents(graph: onnx.GraphProto) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What each tensor is computed from, those of branches before the results of their If."""
    for node in graph.node:
        ends: tuple[str, ...] = ()
        for branch in _branches(node):
            yield from _parents(branch)
            ends += tuple(o.name for o in branch.output)
        for name in filter(None, node.output):
            yield name, (*filter(None, node.input), *ends)


def _weight_bytes(graph: onnx.GraphProto) -> int:
    return sum(len(t.raw_data) for t in graph.initializer)


def run_onnxruntime(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs of a model by name. EnvironmentProblem, or InvalidModel for a missing input."""
    try:
        session = _session(proto)
    except Exception as error:  # onnxruntime's errors have no common base
        raise _cannot_load(error) from error
    outputs = [o.name for o in session.get_outputs()]
    missing = [i.name for i in session.get_inputs() if i.name not in inputs]
    if missing:
        raise InvalidModel("onnxruntime wants an input that the package does not have", where={"tensor": missing[0]},
                           remedy="compare with the model that the package was made from")  # fmt: skip
    try:
        found = session.run(outputs, {i.name: inputs[i.name] for i in session.get_inputs()})
    except Exception as error:
        raise EnvironmentProblem(
            f"onnxruntime {_version()} cannot run the model on these inputs: {error}",
            remedy="give inputs that the model accepts with --input name=file.npy",
        ) from error
    return dict(zip(outputs, found, strict=True))


def _cannot_load(error: Exception) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"onnxruntime {_version()} cannot load the model, so there is nothing to compare with: {error}",
        remedy="install a newer onnxruntime, or run the package without comparing",
    )


def _without_absent(values: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the source tensors; an optional without an element is left out."""
    return {_plain(name): value for name, value in values.items() if value is not None}


def _plain(name: str) -> str:
    return name.removesuffix(_BRANCH)


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    if not proto.functions:
        return proto
    own = {o.domain: o.version for o in proto.opset_import}
    mixed = any(own.get(o.domain, o.version) != o.version for f in proto.functions for o in f.opset_import)
    return onnx.inliner.inline_local_functions(proto, convert_version=mixed)


def _accepted(graph: onnx.GraphProto, tensors: set[str], nodes: set[str]) -> None:
    """Mends what is valid, and which onnxruntime refuses: equal names of nodes, outer values as outputs of a body.

    `tensors` are those of the outer graphs; `nodes`, the names of nodes seen so far, is added to.
    """
    own = {v.name for v in (*graph.input, *graph.initializer)} | {t.values.name for t in graph.sparse_initializer}
    own |= set(_made(graph))
    for node in graph.node:
        if node.name:
            node.name = _free(node.name, nodes)
            nodes.add(node.name)
        for body in _branches(node):
            _accepted(body, tensors | own, nodes)
    for output in graph.output:
        if output.name in tensors and output.name not in own:
            outer, output.name = output.name, _free(f"{output.name}/returned", tensors | own)
            graph.node.add(op_type="Identity", input=[outer], output=[output.name])


def _free(wish: str, taken: Collection[str]) -> str:
    """`wish`, or with the first free suffix."""
    name, number = wish, 1
    while name in taken:
        name, number = f"{wish}.{number}", number + 1
    return name


def _made(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from filter(None, node.output)


def _branches(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.HasField("g")]


def _branch_names(graph: onnx.GraphProto, wanted: Iterable[str]) -> list[str]:
    """The wanted names that If branches make. One that two graphs make is left out: it says not which is meant."""
    counts: Counter[str] = Counter()

    def count(inner: onnx.GraphProto) -> None:
        counts.update(_made(inner))
        for node in inner.node:
            for branch in _branches(node):
                count(branch)

    count(graph)
    top = set(_made(graph))
    return [name for name in wanted if counts[name] == 1 and name not in top]


def _dtypes_in_branches(model: Path, names: Collection[str]) -> dict[str, np.dtype]:
    """Dtypes of tensors of branches in the model itself: a package may hold them in others."""
    found: dict[str, np.dtype] = {}

    def look(graph: Graph) -> None:
        for node in graph.nodes:
            for body in node.subgraphs.values():
                found.update((n, v.dtype.numpy) for n, v in body.values.items() if n in names)
                look(body)

    if names:
        look(read_model(model))
    return found


def _expose(graph: onnx.GraphProto, wanted: Mapping[str, np.dtype]) -> list[str]:
    """Makes the wanted tensors of branches, nested ones too, outputs of the If nodes of `graph`; gives their names."""
    shown = []
    for node in graph.node:
        if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
            continue
        first, second = _branches(node)
        inside = [[*(n for n in _made(b) if n in wanted), *_expose(b, wanted)] for b in (first, second)]
        for names, branch, other in zip(inside, (first, second), (second, first), strict=True):
            for inner in names:
                source = inner.removesuffix(_BRANCH)
                element = onnx.helper.np_dtype_to_tensor_dtype(wanted[source])
                absent = onnx.helper.make_tensor(f"{source}/absent", element, [0], b"", raw=True)
                while any(absent.name == o.name for o in other.output):
                    absent.name += "+"  # the name of an outer If's placeholder
                other.node.append(onnx.helper.make_node("Constant", [], [absent.name], value=absent))
                # An Identity, since a graph must not list the same tensor as an output twice.
                branch.node.append(onnx.helper.make_node("Identity", [inner], [f"{inner}/shown"]))
                for graph_, name in ((branch, f"{inner}/shown"), (other, absent.name)):
                    graph_.output.append(onnx.helper.make_tensor_value_info(name, element, None))
                node.output.append(source + _BRANCH)
                shown.append(source + _BRANCH)
    return shown


def _behind_quantisers(graph: onnx.GraphProto, tainted: set[str]) -> set[str]:
    """Names that depend on a quantised activation; `tainted` comes from outer graphs and is added to."""
    constants = {t.name for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            constants.update(node.output)
            continue
        fresh = node.op_type in _QUANTISERS and node.input[0] not in constants
        for branch in _branches(node):
            inside = _behind_quantisers(branch, set(tainted))
            fresh |= any(o.name in inside for o in branch.output)
            tainted |= inside
        if fresh or any(name in tainted for name in node.input):
            tainted.update(filter(None, node.output))
    return tainted


def _session(proto: onnx.ModelProto) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if proto.ByteSize() < (1 << 31) - (1 << 20):
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.onnx"
        onnx.save(proto, str(path), save_as_external_data=True, location="golden.data")
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)
