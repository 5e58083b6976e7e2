"""Gives operators their dtype by the precision mode: Casts where dtypes meet, constants converted once and for all.

Products take narrow operands and give their f32 accumulators; what follows them element by element stays f32, and one
Cast rounds what goes to memory, so that it fuses into the product's kernel. Every other narrow operator computes in
the narrow dtype. Graph inputs and outputs keep theirs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.reads import captured_values
from graph_opt.ir.rewriter import Rewriter
from graph_opt.precision.decisions import inside_kernels, narrow_nodes, narrowable_inputs, needs_no_kernel
from graph_opt.precision.lists import ACCUMULATES, ATC_DEFAULT, DEFAULT, POLICIES, Policy
from graph_opt.precision.overrides import Overrides
from graph_opt.precision.retyped import has_kernel
from tensor_types.dtypes import F32, DType
from tensor_types.errors import InvalidModel
from tensor_types.recipes import cast


@dataclass(frozen=True)
class ChoosePrecision:
    """See the module. `mode` is one of `lists.POLICIES` (KeyError otherwise); `overrides` say what holds for single
    operators. InvalidModel where they ask for a dtype without a kernel.

    `report` counts operators with floating-point results: by the name of the dtype that they compute in, and under the
    name of ATC's default mode those that it would run in f16.
    """

    kernels: Kernels
    mode: str = DEFAULT
    overrides: Overrides = Overrides()
    name: str = "choose-precision"
    report: dict[str, int] = field(default_factory=dict, compare=False)

    def apply(self, graph: Graph) -> bool:
        policy = self._policy()
        classes = self.overrides.classes(graph)
        chosen = narrow_nodes(graph, policy, lambda n: self._is_able(graph, n, policy.narrow), classes)
        self._refuse(policy, {n for n, c in classes.items() if c == "narrow" and n.output.dtype == F32} - chosen)
        self.report.clear()
        self.report.update(Counter(n.output.dtype.name for n in graph.nodes if n.output.dtype.is_float))
        if policy.narrow is not None and chosen:
            self.report[F32.name] -= len(chosen)
            self.report[policy.narrow.name] = self.report.get(policy.narrow.name, 0) + len(chosen)
        self.report[ATC_DEFAULT] = len(narrow_nodes(graph, POLICIES[ATC_DEFAULT], self._is_atc_able))
        if policy.narrow is not None and chosen:
            Retyping(graph, policy.narrow, chosen).run()
        return bool(chosen)

    def _is_able(self, graph: Graph, node: Node, dtype: DType | None) -> bool:
        return dtype is not None and has_kernel(graph, node, dtype, self.kernels)

    def _is_atc_able(self, node: Node) -> bool:
        """Of ATC's own kernels we know no limits: it is taken to have one wherever we have a family."""
        family = self.kernels.of_node(node)
        return needs_no_kernel(node) or family is not None and family.retypes


    def _policy(self) -> Policy:
        policy, narrow = POLICIES[self.mode], self.overrides.narrow
        if narrow is not None and policy.narrow is None:
            return Policy(narrow, white=frozenset())
        if narrow not in (None, policy.narrow):
            raise InvalidModel(
                f"single operators are to run in {narrow}, the mode {self.mode} has {policy.narrow}", code="E10001",
                where={"flag": "--customize_dtypes"}, remedy="use one 16-bit float in a model",
            )  # fmt: skip
        return policy

    def _refuse(self, policy: Policy, nodes: set[Node]) -> None:
        if nodes:
            node = min(nodes, key=lambda n: n.name)
            raise InvalidModel(
                f"{len(nodes)} operators cannot run in {policy.narrow}, {node.op} {node.name!r} for one", code="E10055",
                where={"node": node.name, "op": node.op, "flag": "--customize_dtypes"},
                remedy="leave it out: there is no kernel for it, or a branch reads its result",
            )  # fmt: skip


class Retyping:
    """Lets the `chosen` f32 nodes of a graph compute in a narrow dtype.

    With `rounds`, what narrow nodes read from memory is rounded once, for all its readers; without, only products and
    what keeps its dtype with them see rounded numbers, and every accumulator stays as it is.
    """

    def __init__(self, graph: Graph, dtype: DType, chosen: set[Node], *, rounds: bool = True) -> None:
        self.graph, self.dtype, self.chosen, self.rounds = graph, dtype, chosen, rounds
        self.inside = inside_kernels(graph, chosen)
        self.rewriter = Rewriter(graph)
        self.narrow_of: dict[Value, Value] = {}
        self.f32_of: dict[Value, Value] = {}
        self.rounded: set[Value] = set()
        """Values that stand for one that was f32."""

    def run(self) -> None:
        for node in list(self.graph.nodes):
            computes_narrow = node in self.chosen and node not in self.inside.nodes
            takes_narrow = set(narrowable_inputs(node)) if computes_narrow else set()
            for index, value in enumerate(node.inputs):
                if value is None or computes_narrow and value in self.rounded:
                    continue
                wanted = self._narrow(value, node) if index in takes_narrow else self._f32(value, node)
                if wanted is not value:
                    node.set_input(index, wanted)
            if computes_narrow and node.op not in ACCUMULATES:
                self._retype(node)
            elif node in self.chosen:
                if node.op in ACCUMULATES:
                    node.attrs["result_dtype"] = F32.name
                self._round_result(node)
        public = {*self.graph.outputs, *(v for n in self.graph.nodes for v in captured_values(n))}
        for value, narrow in self.narrow_of.items():
            if value.is_constant and not value.uses and value not in public:
                self.rewriter.replace(value, narrow, "cast", retype=True)
        self.rewriter.erase_dead()

    def _narrow(self, value: Value, before: Node) -> Value:
        """The value in the narrow dtype, for `before`."""
        if value in self.rounded:
            return value
        if value not in self.narrow_of:
            if value.recipe is not None:
                narrow = cast(value.recipe, self.dtype)
                self.narrow_of[value] = self.rewriter.constant(narrow, f"{value.name}/{self.dtype}")
            else:
                self.narrow_of[value] = self._cast(value, self.dtype, before)
        return self.narrow_of[value]

    def _f32(self, value: Value, before: Node) -> Value:
        """The value in the dtype that it had, for `before`."""
        if value not in self.rounded:
            return value
        if value not in self.f32_of:
            self.f32_of[value] = self._cast(value, F32, before)
        return self.f32_of[value]

    def _cast(self, value: Value, dtype: DType, before: Node | None) -> Value:
        """A Cast that runs whenever its operand is made."""
        guards = () if value.producer is None else value.producer.guards
        name = f"{value.name}/{dtype}"
        return self.rewriter.insert(
            "Cast", [value], {"to": dtype.onnx}, before=before, outputs=[name], name=name, guards=guards
        ).output

    def _after(self, node: Node) -> Node | None:
        return next(self.graph.nodes.following(node), None)

    def _round_result(self, node: Node) -> None:
        """Puts the rounding of an f32 result that narrow nodes read from memory right behind it."""
        value = node.output
        readers = [(n, i) for n, i in value.uses if n in self.chosen]
        if not self.rounds or value in self.inside.values or not readers:
            return
        narrow = self._cast(value, self.dtype, self._after(node))
        if self.graph.is_output(value):
            self.narrow_of[value] = narrow
            return
        self.rewriter.replace(value, narrow, "cast", retype=True)
        name = value.name
        self.rewriter.rename(value, self.graph.fresh_name(f"{name}/{F32}"))
        self.rewriter.rename(narrow, name)
        self.rounded.add(narrow)

    def _retype(self, node: Node) -> None:
        """Lets the results follow the narrow operands; outputs of the graph become f32 Casts of them."""
        for value in node.outputs:
            if self.graph.is_output(value):
                public = self._cast(value, F32, self._after(node))
                self.rewriter.replace(value, public)
                self.f32_of[value], self.narrow_of[public] = public, value
        for body in node.subgraphs.values():
            for outer, inner in zip(node.inputs, body.inputs, strict=True):
                inner.recipe = None if outer is None else outer.recipe
        infer_node(self.graph, node)
        for value in node.outputs:
            if value.dtype == self.dtype:
                self.rounded.add(value)
                self.rewriter.weaken(value, "cast")
