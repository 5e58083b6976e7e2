"""Gives operators their dtype by the precision mode: Casts where dtypes meet, constants converted once and for all.

Products take narrow operands and give their f32 accumulators; what follows them element by element stays f32, and one
Cast rounds what goes to memory, so that it fuses into the product's kernel. Every other narrow operator computes in
the narrow dtype. Graph inputs and outputs keep theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_opt.fusion.traits import FamilyTraits
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.rewriter import Rewriter, combine
from graph_opt.precision.decisions import narrow_nodes, stays_wide, wide_nodes
from graph_opt.precision.lists import ACCUMULATES, ATC_DEFAULT, DEFAULT, POLICIES, UNTOUCHED_INPUTS, Policy
from tensor_types.dtypes import F16, F32, DType


@dataclass(frozen=True)
class ChoosePrecision:
    """See the module. `mode` is one of `lists.POLICIES` (KeyError otherwise); `traits` tell which dtypes kernels take.

    `report` counts operators: those with f32 data, those of them that run in `narrow`, and those that ATC's default
    mode would run in f16.
    """

    traits: tuple[FamilyTraits, ...]
    mode: str = DEFAULT
    name: str = "choose-precision"
    report: dict[str, int] = field(default_factory=dict, compare=False)

    def apply(self, graph: Graph) -> bool:
        policy = POLICIES[self.mode]
        chosen = narrow_nodes(graph, policy, self.traits)
        self.report.clear()
        self.report["f32"] = sum(any(v.dtype == F32 for v in n.outputs) for n in graph.nodes)
        self.report["narrow"] = len(chosen)
        self.report[ATC_DEFAULT] = len(narrow_nodes(graph, POLICIES[ATC_DEFAULT], self.traits))
        if chosen:
            _Retyping(graph, policy, chosen).run()
        return bool(chosen)


def narrowed_constant(data: np.ndarray, dtype: DType) -> np.ndarray:
    """`data` rounded to `dtype`; finite numbers stay finite in f16."""
    if dtype == F16:
        limit = np.float32(65504)
        data = np.where(np.isfinite(data), np.clip(data, -limit, limit), data)
    with np.errstate(over="ignore"):
        return np.asarray(data).astype(dtype.numpy)


class _Retyping:
    def __init__(self, graph: Graph, policy: Policy, chosen: set[Node]) -> None:
        assert policy.narrow is not None
        self.graph, self.dtype = graph, policy.narrow
        self.chosen = chosen
        self.wide = wide_nodes(graph, chosen)
        self.inner = {
            v for n in graph.nodes for v in n.outputs if stays_wide(v, graph, chosen, self.wide)
        }  # fmt: skip
        self.rewriter = Rewriter(graph)
        self.narrow_of: dict[Value, Value] = {}
        self.f32_of: dict[Value, Value] = {}
        self.held: dict[str, list[str]] = {}
        for source, origin in graph.origins.items():
            if origin.value is not None:
                self.held.setdefault(origin.value, []).append(source)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if node not in self.chosen or node in self.wide:
                self._take(node, ())
            elif node.op in ACCUMULATES:
                self._take(node, self._data_inputs(node))
                node.attrs["result_dtype"] = F32.name
            else:
                self._take(node, self._data_inputs(node))
                self._retype(node)
                continue
            if node in self.chosen:
                for value in node.outputs:
                    self._store_narrow(node, value)
        for value, narrow in self.narrow_of.items():
            if value.is_constant and not value.uses:
                self.rewriter.replace(value, narrow, "cast")
        self.rewriter.erase_dead()

    def _data_inputs(self, node: Node) -> Sequence[int]:
        """Indices of the inputs that are to be narrow."""
        untouched = UNTOUCHED_INPUTS.get(node.op, ())
        wanted = (F32, self.dtype)
        return [i for i, v in enumerate(node.inputs) if v is not None and v.dtype in wanted and i not in untouched]

    def _take(self, node: Node, narrow: Sequence[int]) -> None:
        """Gives the node narrow operands at these indices, and the original dtype at all others."""
        for index, value in enumerate(node.inputs):
            if value is not None:
                wanted = self._narrow(value, node) if index in narrow else self.f32_of.get(value) or self._f32(value, node)
                if wanted is not value:
                    node.set_input(index, wanted)

    def _narrow(self, value: Value, before: Node) -> Value:
        if value.dtype == self.dtype:
            return value
        if value not in self.narrow_of:
            if value.data is not None:
                data = narrowed_constant(value.data, self.dtype)
                made = self.rewriter.constant(data, f"{value.name}/{self.dtype}", self.dtype)
            else:
                made = self._cast(value, self.dtype, before)
            self.narrow_of[value] = made
        return self.narrow_of[value]

    def _f32(self, value: Value, before: Node) -> Value:
        """The value in the dtype that it had: itself unless this pass has changed it."""
        if value not in self.f32_of and value in self.narrow_of.values() and value.dtype == self.dtype:
            self.f32_of[value] = self._cast(value, F32, before)
        return self.f32_of.get(value, value)

    def _cast(self, value: Value, dtype: DType, before: Node | None) -> Value:
        """A Cast that runs whenever its operand is made."""
        guards = value.producer.attrs.get("guards") if value.producer is not None else None
        attrs = {"to": dtype.onnx, **({"guards": guards} if guards else {})}
        name = f"{value.name}/{dtype}"
        return self.rewriter.insert("Cast", [value], attrs, before=before, outputs=[name], name=name).output

    def _store_narrow(self, node: Node, value: Value) -> None:
        """Puts the rounding of an f32 result that narrow nodes read from memory right behind it."""
        readers = [(n, i) for n, i in value.uses if n in self.chosen]
        if value in self.inner or not readers:
            return
        at = self.graph.nodes.index(node) + 1
        narrow = self._cast(value, self.dtype, self.graph.nodes[at] if at < len(self.graph.nodes) else None)
        self.narrow_of[value] = narrow
        if self.graph.is_output(value):
            self.rewriter.redirect(readers, narrow)
        else:
            self.rewriter.replace(value, narrow, "cast")
            self._swap_names(value, narrow)

    def _swap_names(self, f32: Value, narrow: Value) -> None:
        """What is written to memory has the source tensor's name."""
        name = f32.name
        self.rewriter.rename(f32, self.graph.fresh_name(f"{name}/{F32}"))
        self.rewriter.rename(narrow, name)

    def _retype(self, node: Node) -> None:
        """Lets the results follow the narrow operands; outputs of the graph become f32 Casts of them."""
        for value in node.outputs:
            if self.graph.is_output(value):
                at = self.graph.nodes.index(node) + 1
                after = self.graph.nodes[at] if at < len(self.graph.nodes) else None
                public = self._cast(value, F32, after)
                self.rewriter.replace(value, public)
                self.f32_of[value], self.narrow_of[public] = public, value
        infer_node(self.graph, node)
        for value in node.outputs:
            self.narrow_results.add(value)
