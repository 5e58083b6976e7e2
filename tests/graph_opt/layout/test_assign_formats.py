"""Format assignment, as text before and after."""

from __future__ import annotations

import textwrap

from graph_opt.ir import Graph, Node
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from graph_opt.layout.assign_formats import AssignFormats
from tensor_types.formats import PLAIN, channels_last
from tests.graph_opt.families import family, of

KERNELS = of(family("conv", ["Conv"], prefers="channels_last"), family("reduction", ["ReduceMean"]))


def assigned(body: str, inputs: str = "%x: f32[n, 8, h, w]", outputs: str = "%y") -> Graph:
    text = f"graph g({inputs}) -> ({outputs}) {{\n  const %w: f32[4, 8, 1, 1] = splat 0.5\n{textwrap.indent(body, '  ')}\n}}\n"
    graph = parse(text)
    AssignFormats(KERNELS).apply(graph)
    verify(graph)
    return graph


def formats(graph: Graph) -> dict[str, str]:
    return {n.op: "nhwc" if n.output.format == channels_last(4) else "plain" for n in graph.nodes if n.op != "Relayout"}


def relayouts(graph: Graph) -> int:
    return sum(n.op == "Relayout" for n in graph.nodes)


def test_a_chain_is_converted_once_at_each_end() -> None:
    graph = assigned("%c = Conv(%x, %w)\n%r = Relu(%c)\n%y = Add(%r, %c)")
    assert formats(graph) == {"Conv": "nhwc", "Relu": "nhwc", "Add": "nhwc"}
    assert relayouts(graph) == 2
    assert graph.outputs[0].name == "y" and graph.outputs[0].format == PLAIN


def test_a_value_that_is_output_and_used_inside_keeps_both_forms() -> None:
    graph = assigned("%c = Conv(%x, %w)\n%y = Relu(%c)\n%z = Sigmoid(%y)", outputs="%y, %z")
    assert formats(graph) == {"Conv": "nhwc", "Relu": "nhwc", "Sigmoid": "nhwc"}
    assert [v.name for v in graph.outputs] == ["y", "z"]
    assert relayouts(graph) == 3


def test_plain_operators_get_plain_data() -> None:
    graph = assigned("const %p: f32[1, 1, 1, 1] = splat 1.0\n%c = Conv(%x, %w)\n%t = Transpose(%c) {perm=[0, 2, 3, 1]}\n%y = Add(%t, %p)")
    assert formats(graph) == {"Conv": "nhwc", "Transpose": "plain", "Add": "plain"}


def test_a_mixed_sum_becomes_channels_last() -> None:
    graph = assigned("%c = Conv(%x, %w)\n%y = Add(%z, %c)", inputs="%x: f32[n, 8, h, w], %z: f32[n, 4, h, w]")
    assert formats(graph) == {"Conv": "nhwc", "Add": "nhwc"}
    assert relayouts(graph) == 3


def test_means_that_keep_dims_follow() -> None:
    graph = assigned("const %a: i64[2] = dense [2, 3]\n%c = Conv(%x, %w)\n%y = ReduceMean(%c, %a)")
    assert formats(graph) == {"Conv": "nhwc", "ReduceMean": "nhwc"}


def test_regrouped_spatial_axes_stay_channels_last() -> None:
    graph = assigned("const %s: i64[3] = dense [0, 4, -1]\n%c = Conv(%x, %w)\n%y = Reshape(%c, %s)", inputs="%x: f32[2, 8, 5, 7]")
    reshape = next(n for n in graph.nodes if n.op == "Reshape")
    assert reshape.inputs[0] is not None and reshape.inputs[0].format == channels_last(4)
    assert reshape.output.format == channels_last(3)


def test_a_convolution_of_few_channels_reads_plain_data() -> None:
    text = "graph g(%x: f32[n, 3, h, w]) -> (%y) {\n  const %w: f32[4, 3, 1, 1] = splat 0.5\n  %y = Conv(%x, %w)\n}\n"
    graph = parse(text)
    AssignFormats(KERNELS).apply(graph)
    verify(graph)
    conv = next(n for n in graph.nodes if n.op == "Conv")
    assert conv.inputs[0] is graph.inputs[0]
    assert conv.output.format == channels_last(4)
    assert relayouts(graph) == 1


def test_an_operator_without_a_kernel_in_that_order_gets_plain_data() -> None:
    def plain_only(node: Node) -> str | None:
        return "plain only" if any(v.format != PLAIN for v in node.inputs if v is not None) else None

    text = """graph g(%x: f32[n, 8, h, w]) -> (%y) {
  const %w: f32[4, 8, 1, 1] = splat 0.5
  %c = Conv(%x, %w)
  %y = Concat(%c, %c) {axis=1}
}
"""
    for refuses, expected in ((lambda _: None, "nhwc"), (plain_only, "plain")):
        graph = parse(text)
        conv, movement = KERNELS.families[0], family("movement", ["Concat"], refuses=refuses)
        AssignFormats(of(conv, movement)).apply(graph)
        verify(graph)
        assert formats(graph) == {"Conv": "nhwc", "Concat": expected}
