"""Where the time differs: our kernels beside onnxruntime's, by the nodes of the model that both compute.

Either side fuses as it likes. What a kernel covers is found in the model itself: from the tensors that it writes back
to tensors that another kernel of the same side writes. Kernels of both sides that share a node are one group.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.diffing import Group, Kernel, grouped
from atc.golden_stages import free_names
from atc.package_texts import graph_of
from graph_opt.ir import Graph

_LAYOUT = re.compile(r"(?P<tensor>.+)_nchwc(?:_token_\d+|_\d+)?")
"""onnxruntime names a node that it moves to blocked channels after the tensor that it made before."""
_MOVES = frozenset({"ReorderInput", "ReorderOutput"})


class SourceModel:
    """The nodes of a model's main graph, by what they make."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        nodes = list(proto.graph.node)
        self.names = [n.name or f"{n.op_type}_{at}" for at, n in enumerate(nodes)]
        self.makers = {o: at for at, n in enumerate(nodes) for o in n.output if o}
        self._reads = [sorted(free_names(n)) for n in nodes]

    def covered(self, written: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """By kernel the source nodes that it computes; `written` are the model's tensors that each makes."""
        owner: dict[str, str] = {}
        for kernel, tensors in written.items():
            for tensor in tensors:
                owner.setdefault(tensor, kernel)
        found = {}
        for kernel, tensors in written.items():
            own: dict[int, None] = {}
            left = [t for t in tensors if t in self.makers]
            while left:
                at = self.makers[left.pop()]
                if at in own:
                    continue
                own[at] = None
                left += [t for t in self._reads[at] if t in self.makers and owner.get(t, kernel) == kernel]
            found[kernel] = tuple(self.names[at] for at in sorted(own))
        return found


def time_by_node(model: Path, package: Path, feeds: Mapping[str, np.ndarray], threads: int, runs: int) -> list[Group]:
    """Groups of kernels, side a ours, side b onnxruntime's, each with its least time over the runs."""
    source = SourceModel(onnx.load(str(model), load_external_data=False))
    return grouped(_ours(source, package, feeds, threads, runs), _theirs(source, model, feeds, threads, runs))


def _ours(
    source: SourceModel, package: Path, feeds: Mapping[str, np.ndarray], threads: int, runs: int
) -> list[Kernel]:  # fmt: skip
    session = InferSession(0, package, threads=threads)
    found = [session.profile(feeds, 1).tasks for _ in range(runs)]
    graph = graph_of(open_package(package))
    seconds: dict[str, float] = {}
    family: dict[str, str] = {}
    for same in zip(*found, strict=True):  # the least of each task: the machine may have disturbed any run
        task = same[0]
        seconds[task.node] = seconds.get(task.node, 0.0) + min(t.seconds for t in same)
        family[task.node] = task.family
    covered = source.covered(_written(graph, seconds.keys()))
    return [
        Kernel(name, family[name], family[name], covered.get(name) or (f"ours alone: {family[name]}",), ms * 1e3)
        for name, ms in seconds.items()
    ]


def _written(graph: Graph, tasks: Any) -> dict[str, list[str]]:
    """Tensors of the model by the task that computes them, whatever became of them."""
    found: dict[str, list[str]] = {}
    for tensor, origin in graph.origins.items():
        value = graph.values.get(origin.value or "")
        node = value.producer if value is not None else None
        while node is not None and node.name not in tasks:  # another name of its input
            first = node.inputs[0] if node.inputs else None
            node = first.producer if first is not None else None
        if node is not None and origin.relation not in ("folded", "dead"):
            found.setdefault(node.name, []).append(tensor)
    return found


def _theirs(
    source: SourceModel, model: Path, feeds: Mapping[str, np.ndarray], threads: int, runs: int
) -> list[Kernel]:  # fmt: skip
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        named = {i.name: feeds[i.name] for i in session.get_inputs()}
        for _ in range(runs + 1):
            session.run(None, named)
        events = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
    least: dict[str, float] = {}
    ops: dict[str, str] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            name = name.removesuffix("_kernel_time")
            least[name] = min(least.get(name, np.inf), event["dur"] / 1e3)
            ops[name] = event["args"]["op_name"]
    covered = source.covered(_of_optimised(source, graph))
    return [
        Kernel(name, ops[name], ops[name], covered.get(name) or (_alone(name, ops[name]),), ms)
        for name, ms in least.items()
    ]


def _of_optimised(source: SourceModel, graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Tensors of the model that onnxruntime's own nodes make, under the model's names of them."""
    written: dict[str, list[str]] = {}
    for node in graph.node:
        tensors = [o for o in node.output if o in source.makers]
        if not tensors and (moved := _LAYOUT.fullmatch(node.name)) and moved["tensor"] in source.makers:
            tensors = [moved["tensor"]]
        if node.op_type not in _MOVES:
            written.setdefault(node.name, []).extend(tensors)
    return written


def _alone(name: str, op: str) -> str:
    return f"onnxruntime alone: {'changes of layout' if op in _MOVES else op}"
