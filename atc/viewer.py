"""What viewers of the package show: one node per kernel and AI CPU task, constants where they lie."""

from __future__ import annotations

from collections.abc import Mapping

from acl_runtime.om import ConstDesc, FusedGraph, NodeDesc, TensorDesc
from acl_runtime.stored_constants import StoredConstant
from atc.ascend_types import ascend_type
from codegen.lowering import Lowered
from graph_opt.ir import Graph, Value
from graph_opt.plan.records import AicpuRecord, AliasRecord, KernelRecord


def viewer_graph(
    graph: Graph, lowered: Lowered, table: Mapping[str, StoredConstant], makers: Mapping[str, str],
    about: Mapping[str, str | int],
) -> FusedGraph:  # fmt: skip
    """The graph of tasks, constants as `table` lays them out. `makers` are the model's nodes by the tensors that they
    make, `about` is what is said of the model as a whole.

    A value that several tasks write in parts shows as a chain of its versions.
    """
    shown = _Viewer(graph, makers)
    for record in lowered.records:
        shown.add(record)
    consts = [
        ConstDesc(name, e.dtype, e.stored_shape, e.offset, e.nbytes)
        for name, e in table.items()
        if name in shown.read and e.has_bytes
    ]
    # An output of no elements is made by no task: viewers have nothing to draw it from.
    drawn = {t.name for n in shown.nodes for t in n.outputs} | {v.name for v in graph.inputs} | {c.name for c in consts}
    ends = [_tensor(v, shown.latest.get(v.name, v.name)) for v in graph.outputs]
    return FusedGraph(
        graph.name,
        [_tensor(v, v.name) for v in graph.inputs],
        [t for t in ends if t.name in drawn],
        shown.nodes,
        consts,
        about,
    )


class _Viewer:
    def __init__(self, graph: Graph, makers: Mapping[str, str]) -> None:
        self.values, self.makers = graph.values, makers
        self.sources: dict[str, list[str]] = {}
        for source, origin in graph.origins.items():
            if origin.value is not None and origin.relation != "folded":
                self.sources.setdefault(origin.value, []).append(source)
        self.nodes: list[NodeDesc] = []
        self.latest: dict[str, str] = {}
        """Name under which the newest version of a value is shown."""
        self.versions: dict[str, int] = {}
        self.read: set[str] = set()
        self.names: dict[str, int] = {}

    def add(self, record: KernelRecord | AicpuRecord | AliasRecord) -> None:
        """Shows a record; aliases only rename."""
        if isinstance(record, AliasRecord):
            if source := self._shown(record.input):
                self.latest[record.output] = source
                self.read.add(record.input)
            return
        if isinstance(record, AicpuRecord):
            takes: list[str | None] = list(record.inputs)
            gives = list(record.outputs)
            kind, attrs = record.op.replace("::", "_"), {"engine": "AI CPU" if record.body is None else "AI Core"}
        else:
            takes = [o.value for o in record.operands if o.role in ("in", "inout")]
            gives = [o.value for o in record.operands if o.role in ("out", "inout") and o.value is not None]
            maker = self.values[gives[0]].producer if gives else None
            kind = record.family if maker is None else ascend_type(maker)
            attrs = {"engine": "AI Core", "family": record.family, "tiling": record.tiling}
        # Strings have no bytes in the weights: viewers show such an operand as absent.
        takes = [None if name and _is_string_constant(self.values[name]) else name for name in takes]
        inputs = [self._shown(name) if name else "" for name in takes]
        self.read.update(name for name in inputs if name)
        outputs = []
        for name in dict.fromkeys(gives):
            version = name
            if name in self.latest:
                inputs.append(self.latest[name])
                version = self._next_version(name)
            self.latest[name] = version
            outputs.append(_tensor(self.values[name], version))
        tensors = [s for name in dict.fromkeys(gives) for s in self.sources.get(name, ())]
        nodes = list(dict.fromkeys(self.makers[t] for t in tensors if t in self.makers))
        self.nodes.append(NodeDesc(self._unique(record.node), kind, inputs, outputs, attrs, nodes))

    def _shown(self, name: str) -> str:
        """The name under which a tensor is shown; none for one of no elements, which no task makes."""
        is_source = self.values[name].producer is None  # an input or a constant
        return self.latest.get(name, name if is_source else "")

    def _next_version(self, name: str) -> str:
        """A name that no value has: of a few characters, since a tensor may be written in thousands of parts."""
        number = self.versions[name] = self.versions.get(name, 0) + 1
        version = f"{name}+{number}"
        while version in self.values:
            version += "+"
        return version

    def _unique(self, name: str) -> str:
        """Node names are unique in the file; a node of several tasks gets numbers."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if not count else f"{name}#{count}"


def _is_string_constant(value: Value) -> bool:
    return value.is_constant and value.dtype.kind == "handle"


def _tensor(value: Value, name: str) -> TensorDesc:
    shape = tuple(d if isinstance(d, int) else -1 for d in value.shape or ())
    layout = "ND" if value.format.is_plain else "NHWC"
    return TensorDesc(name, value.dtype.name, shape, layout)
