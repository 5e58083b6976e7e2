"""`--verify_ir` and `--dump_ir`: what is looked at between the passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from acl_runtime.om.replace_file import replace_file
from atc.fusion_switches import FUSIONS
from atc.writing import make_folder, writing
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.passes import Pass, run_passes
from graph_opt.ir.text import to_text
from graph_opt.plan import ModelPlan

LARGEST = 1024
"""Elements up to which a constant is written into the ONNX file of a dump."""
DOMAIN = "openatc"
"""Domain of what ONNX has no operator for: fused kernels, merges of branches, changes of layout."""


COUNTED = frozenset(FUSIONS)
"""Passes whose effects are counted."""


@dataclass(frozen=True)
class _Counted:
    """A pass that adds the nodes that it puts into the graph to the count under its name."""

    step: Pass
    made: Counter[str]

    @property
    def name(self) -> str:
        return self.step.name

    def apply(self, graph: Graph) -> bool:
        before = {id(node): node for node in graph.nodes}  # holds them, so that their ids are nobody else's
        changed = self.step.apply(graph)
        if changed:
            self.made[self.name] += sum(id(node) not in before for node in graph.nodes)
        return changed


@dataclass
class PassWatch:
    """Runs passes and looks at the graph after each of them.

    `verify` runs the verifier of the graph. `folder` gets two files a pass, numbered in the order in which they ran:
    `NNN-NAME.txt`, which parses back, and `NNN-NAME.onnx` for viewers, in which constants of more than `LARGEST`
    elements have a shape but no content.
    """

    verify: bool = False
    folder: Path | None = None
    count: int = field(default=0, init=False)
    made: Counter[str] = field(default_factory=Counter, init=False)
    """By pass: nodes that it put into the graph, for those of `COUNTED`."""

    def run(self, graph: Graph, steps: Iterable[Pass], label: str = "") -> None:
        """Runs the steps; `label` tells the graph of one target from those of others. InvalidGraph names the pass."""
        if self.folder is not None:
            make_folder(self.folder, "--dump_ir")
            if not self.count:
                self._write("read", graph)
        counted = steps if label else [_Counted(s, self.made) if s.name in COUNTED else s for s in steps]
        run_passes(
            graph, counted, verify=self.verify, observer=lambda step, g, _: self._write(f"{step.name}{label}", g)
        )

    def check(self, plan: ModelPlan) -> None:
        """PlanError if a plan is unsound for the least sizes, or for each dim twice as long and longer by one."""
        if not self.verify:
            return
        from graph_opt.plan.check_plan import check_plan  # its library of graphs takes a quarter of a second to load

        for segment in plan.segments:
            for extra in (0, 1):
                check_plan(segment.plan, {n: _sample(low, high, extra) for n, (low, high) in segment.plan.dims.items()})

    def _write(self, name: str, graph: Graph) -> None:
        if self.folder is None:
            return
        stem = f"{self.count:03d}-{name}"
        self.count += 1
        with writing("--dump_ir"):
            for suffix, content in (("txt", to_text(graph).encode()), ("onnx", to_onnx(graph).SerializeToString())):
                with replace_file(self.folder / f"{stem}.{suffix}") as file:
                    file.write(content)


def _sample(low: int, high: int | None, extra: int) -> int:
    size = low + extra * (low + 1)
    return size if high is None else min(size, high)


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """The graph for viewers: nodes, names, types and small constants; bodies of fused nodes as their subgraphs."""
    imports = [helper.make_opsetid("", onnx.defs.onnx_opset_version()), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(_graph(graph), opset_imports=imports, producer_name="openatc")


def _graph(graph: Graph) -> onnx.GraphProto:
    constants = [_constant(v) for v in graph.constants()]
    made = [v for v in graph.values.values() if v.producer is not None]
    return helper.make_graph(
        [_node(n) for n in graph.nodes], graph.name or "graph",
        [_info(v) for v in graph.inputs if not v.is_constant], [_info(v) for v in graph.outputs],
        constants, value_info=[_info(v) for v in made if not graph.is_output(v)],
    )  # fmt: skip


def _node(node: Node) -> onnx.NodeProto:
    domain, _, op = node.op.rpartition("::")
    if not domain and not onnx.defs.has(op):
        domain = DOMAIN
    names = ["" if v is None else v.name for v in node.inputs]
    proto = helper.make_node(
        str(node.attrs.get("family", op)) if op == "Fused" else op, names, [v.name for v in node.outputs],
        name=node.name, domain=domain,
    )  # fmt: skip
    attrs: Mapping[str, object] = {k: v for k, v in node.attrs.items() if v is not None}
    for name, value in attrs.items():
        given = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        empty = isinstance(given, (list, tuple)) and not given
        proto.attribute.append(
            helper.make_attribute(name, list(given) if isinstance(given, (list, tuple)) else given,
                                  attr_type=onnx.AttributeProto.INTS if empty else None)  # type: ignore[call-overload]
        )  # fmt: skip
    if node.guards:
        proto.attribute.append(helper.make_attribute("guards", [("" if w else "!") + v.name for v, w in node.guards]))
    for name, body in node.subgraphs.items():
        proto.attribute.append(helper.make_attribute(name, _graph(body)))
    return proto


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.dtype.kind == "handle":
        return onnx.ValueInfoProto(name=value.name)
    shape = None if value.shape is None else [d if isinstance(d, int) else str(d) for d in value.shape]
    return helper.make_tensor_value_info(value.name, value.dtype.onnx, shape)


def _constant(value: Value) -> TensorProto:
    shape = [int(d) for d in value.shape or () if isinstance(d, int)]
    data = value.data if int(np.prod(shape)) <= LARGEST else None
    if data is not None:
        return numpy_helper.from_array(np.asarray(data), value.name)
    proto = TensorProto(name=value.name, data_type=value.dtype.onnx, dims=shape, data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="left out of the dump")
    return proto
