"""Loop fusion, rule by rule: text before, bodies of the kernels after. Families are small, their answers the test's."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from graph_opt.fusion.families import Kernels
from graph_opt.fusion.fuse_regions import FuseRegions
from graph_opt.ir import Graph, Node
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.families import family, of

ELEMENTWISE = ["Add", "Sub", "Mul", "Relu", "Exp", "Neg", "Cast"]
Refusal = Callable[[list[str]], str | None]


def families(*, matmul: Refusal | None = None, softmax: Refusal | None = None, region: Refusal | None = None) -> Kernels:
    """A product with an epilogue, a reduction with both, pooling with none; each refuses bodies by their operators."""

    def asked(refusal: Refusal | None) -> Callable[[Node], str | None]:
        return lambda node: refusal([n.op for n in node.subgraphs["body"].nodes]) if refusal else None

    return of(
        family("matmul", ["MatMul"], dtypes=["f32", "u8"], after=ELEMENTWISE, refuses=asked(matmul)),
        family("reduction", ["Softmax", "ReduceMean"], before=ELEMENTWISE, after=ELEMENTWISE, refuses=asked(softmax)),
        family("pool", ["MaxPool"]),
        family("region", dtypes=["f32", "u8"], after=ELEMENTWISE, refuses=asked(region)),
    )


def fused(body: str, inputs: str = "%x: f32[4, 4]", outputs: str = "%y", *, kernels: Kernels | None = None,
          most: int = 128, tail: str = "") -> tuple[Graph, FuseRegions]:  # fmt: skip
    text = f"graph g({inputs}) -> ({outputs}) {{\n  const %w: f32[4, 4] = random seed 1 scale 1\n"
    graph = parse(f"{text}{textwrap.indent(textwrap.dedent(body), '  ')}\n{tail}}}\n")
    step = FuseRegions(kernels or families(), most)
    step.apply(graph)
    verify(graph)
    return graph, step


def kernels_of(graph: Graph) -> list[str]:
    """'family: Op Op', or the operator of a node that stays alone, in order."""
    return [
        f"{n.attrs['family']}: {' '.join(m.op for m in n.subgraphs['body'].nodes)}" if n.op == "Fused" else n.op
        for n in graph.nodes
    ]


def test_an_epilogue_joins_its_anchor() -> None:
    graph, _ = fused("%a = MatMul(%x, %w)\n%b = Relu(%a)\n%y = Add(%b, %x)")
    assert kernels_of(graph) == ["matmul: MatMul Relu Add"]


def test_an_epilogue_may_use_the_result_twice() -> None:
    graph, _ = fused("%a = MatMul(%x, %w)\n%b = Exp(%a)\n%c = Neg(%a)\n%y = Mul(%b, %c)")
    assert kernels_of(graph) == ["matmul: MatMul Exp Neg Mul"]


def test_an_epilogue_ends_while_there_is_one_result() -> None:
    graph, step = fused("%a = MatMul(%x, %w)\n%b = Relu(%a)\n%y = Exp(%b)\n%z = Neg(%b)", outputs="%y, %z")
    assert kernels_of(graph) == ["matmul: MatMul Relu", "region: Exp", "region: Neg"]
    assert any("two results" in n.reason for n in step.notes)


def test_an_intermediate_that_is_an_output_ends_the_epilogue() -> None:
    graph, _ = fused("%a = MatMul(%x, %w)\n%y = Relu(%a)", outputs="%y, %a")
    assert kernels_of(graph) == ["matmul: MatMul", "region: Relu"]


def test_what_changes_the_shape_is_no_epilogue() -> None:
    graph, step = fused("%a = MatMul(%x, %w)\n%y = Add(%a, %z)", "%x: f32[1, 4], %z: f32[4, 4]")
    assert kernels_of(graph) == ["matmul: MatMul", "region: Add"]
    assert any("another shape" in n.reason for n in step.notes)


def test_a_region_holds_neighbours_of_one_shape_and_several_results() -> None:
    graph, _ = fused("%a = Relu(%x)\n%b = Exp(%a)\n%y = Add(%b, %x)\n%z = Neg(%b)", outputs="%y, %z")
    assert kernels_of(graph) == ["region: Relu Exp Add Neg"]
    assert [v.name for v in graph.nodes[0].outputs] == ["y", "z"]


def test_shapes_part_regions() -> None:
    graph, _ = fused("%a = Relu(%x)\n%y = Add(%a, %z)", "%x: f32[4, 1], %z: f32[4, 4]")
    assert kernels_of(graph) == ["region: Relu", "region: Add"]


def test_formats_part_regions() -> None:
    graph, _ = fused("%a: f32[1, 2, 3, 4] {perm(0,2,3,1)} = Relu(%x)\n%y: f32[1, 2, 3, 4] = Exp(%a)",
                     "%x: f32[1, 2, 3, 4]")  # fmt: skip
    assert kernels_of(graph) == ["region: Relu", "region: Exp"]


@pytest.mark.parametrize("after", ["MatMul(%x, %w)", "Relu(%x)"])
def test_no_group_closes_a_circle(after: str) -> None:
    graph, step = fused(f"%a = {after}\n%b = MaxPool(%a) {{kernel_shape=[1, 1]}}\n%y = Add(%b, %a)",
                        "%x: f32[1, 1, 4, 4]")  # fmt: skip
    assert kernels_of(graph) == [f"{'matmul: MatMul' if 'Mat' in after else 'region: Relu'}", "pool: MaxPool",
                                 "region: Add"]  # fmt: skip
    assert any("depends on this kernel" in n.reason for n in step.notes)


def test_circles_by_way_of_groups_are_seen() -> None:
    """Neither path from a to y leaves its group twice by nodes; over groups it does: a -> p -> (b c) -> y."""
    graph, _ = fused(
        """
        %a = Relu(%x)
        %p = MaxPool(%a) {kernel_shape=[1, 1]}
        %b = MatMul(%p, %w)
        %c = Add(%b, %x)
        %y = Mul(%a, %c)
        """,
        "%x: f32[1, 1, 4, 4]",
    )
    assert kernels_of(graph) == ["region: Relu", "pool: MaxPool", "matmul: MatMul Add Mul"]


def test_a_skip_around_a_kernel_is_no_circle_for_the_later_one() -> None:
    graph, _ = fused("%a = Relu(%x)\n%b = MatMul(%a, %w)\n%y = Add(%a, %b)")
    assert kernels_of(graph) == ["region: Relu", "matmul: MatMul Add"]


def test_nodes_that_a_join_needs_come_first() -> None:
    """y joins the region of a although the product, which it reads too, stands between them."""
    graph, _ = fused("%a = Relu(%x)\n%b = MaxPool(%x) {kernel_shape=[1, 1]}\n%y = Add(%a, %b)", "%x: f32[1, 1, 4, 4]")
    assert kernels_of(graph) == ["pool: MaxPool", "region: Relu Add"]


def test_circles_over_what_a_join_has_moved_are_seen() -> None:
    """The sum of a and b makes the region of a depend on b, which stands behind it in the graph."""
    graph, _ = fused(
        """
        %a = Relu(%x)
        %b = Exp(%v)
        %s = Add(%a, %b)
        %p = MaxPool(%s) {kernel_shape=[1, 4]}
        %y = Add(%b, %p)
        """,
        "%x: f32[1, 1, 4, 4], %v: f32[1, 1, 4, 1]",
    )
    assert kernels_of(graph) == ["region: Exp", "region: Relu Add", "pool: MaxPool", "region: Add"]


def test_a_prologue_joins_the_anchor_that_alone_reads_it() -> None:
    graph, _ = fused("%a = Relu(%x)\n%b = Mul(%a, %x)\n%s = Softmax(%b)\n%y = Exp(%s)")
    assert kernels_of(graph) == ["reduction: Relu Mul Softmax Exp"]


@pytest.mark.parametrize(
    "body,outputs,reason",
    [
        ("%a = Relu(%x)\n%y = Softmax(%a)", "%y, %a", "other uses"),
        ("%a = Relu(%x)\n%b = ReduceMean(%a)\n%c = MaxPool(%a) {kernel_shape=[1, 1]}\n%y = Add(%b, %c)", "%y", ""),
        ("%a = Relu(%x)\n%s = Softmax(%a)\n%y = Add(%s, %a)", "%y", "other uses|comes from there too"),
        ("%a = Relu(%x)\n%y = MaxPool(%a) {kernel_shape=[1, 1]}", "%y", "no such prologue"),
    ],
)
def test_what_stays_before_its_reader(body: str, outputs: str, reason: str) -> None:
    graph, step = fused(body, "%x: f32[1, 1, 4, 4]", outputs)
    assert kernels_of(graph)[0] == "region: Relu"
    assert any(word in n.reason for n in step.notes for word in reason.split("|")), step.notes


def test_nodes_under_different_guards_stay_apart() -> None:
    graph, _ = fused(
        """
        %c = Relu(%x)
        %a = Exp(%c) if %p
        %b = Neg(%a) if %p
        %d = MatMul(%b, %w) if %p
        %e = Relu(%d) if %p, %q
        %f = Relu(%d) if %p, !%q
        %g = IfMerge(%q, %e, %f) if %p
        %h = Neg(%c) if !%p
        %y = IfMerge(%p, %g, %h)
        """,
        "%x: f32[4, 4], %p: bool[], %q: bool[]",
    )
    assert kernels_of(graph) == [
        "region: Relu", "region: Exp Neg", "matmul: MatMul", "region: Relu", "region: Relu", "IfMerge", "region: Neg",
        "IfMerge",
    ]  # fmt: skip
    conditions = [[(c.name, expected) for c, expected in n.guards] for n in graph.nodes]
    yes, no = ("p", True), ("p", False)
    assert conditions == [[], [yes], [yes], [yes, ("q", True)], [yes, ("q", False)], [yes], [no], []]


def test_a_prologue_under_another_condition_stays() -> None:
    graph, _ = fused("%a = Relu(%x)\n%s = Softmax(%a) if %p\n%t = Neg(%x) if !%p\n%y = IfMerge(%p, %s, %t)",
                     "%x: f32[4, 4], %p: bool[]")  # fmt: skip
    assert kernels_of(graph) == ["region: Relu", "reduction: Softmax", "region: Neg", "IfMerge"]


def test_an_epilogue_is_cut_where_its_kernel_ends() -> None:
    kernels = families(matmul=lambda ops: "no Exp after a product" if "Exp" in ops else None)
    graph, step = fused("%a = MatMul(%x, %w)\n%b = Relu(%a)\n%c = Exp(%b)\n%y = Neg(%c)", kernels=kernels)
    assert kernels_of(graph) == ["matmul: MatMul Relu", "region: Exp Neg"]
    assert any("no Exp after a product" in n.reason for n in step.notes)


def test_an_anchor_without_a_kernel_stays_alone() -> None:
    kernels = families(matmul=lambda ops: "no product")
    graph, step = fused("%c = Exp(%x)\n%a = MatMul(%c, %w)\n%b = Relu(%a)\n%y = Neg(%b)", kernels=kernels)
    assert kernels_of(graph) == ["region: Exp", "MatMul", "region: Relu Neg"]
    assert any("no product" in n.reason for n in step.notes)


def test_an_operator_without_a_kernel_leaves_its_region() -> None:
    kernels = families(region=lambda ops: "no Exp" if "Exp" in ops else None)
    graph, step = fused("%a = Relu(%x)\n%b = Neg(%a)\n%c = Exp(%b)\n%d = Neg(%c)\n%y = Add(%d, %a)", kernels=kernels)
    assert kernels_of(graph) == ["region: Relu Neg", "Exp", "region: Neg Add"]
    assert any("no Exp" in n.reason for n in step.notes)


def test_a_region_that_is_too_much_is_cut_where_the_most_is_taken() -> None:
    kernels = families(region=lambda ops: "too much" if len(ops) > 5 else None)
    graph, step = fused("\n".join(f"%{b} = Neg(%{a})" for a, b in zip("xabcdefghijk", "abcdefghijky", strict=True)),
                        kernels=kernels)  # fmt: skip
    assert [len(n.subgraphs["body"].nodes) for n in graph.nodes] == [5, 5, 2]
    assert any("too much" in n.reason for n in step.notes)


def test_a_prologue_that_is_not_taken_stays_a_region() -> None:
    kernels = families(softmax=lambda ops: "no Relu before" if ops[0] == "Relu" else None)
    graph, step = fused("%a = Relu(%x)\n%y = Softmax(%a)", kernels=kernels)
    assert kernels_of(graph) == ["region: Relu", "reduction: Softmax"]
    assert any("no Relu before" in n.reason for n in step.notes)


def test_every_target_is_asked() -> None:
    kernels = families()
    asked: list[object] = []
    matmul = kernels.families[0]

    def claims(node: Node, target: object) -> str | None:
        asked.append(target)
        return "not on b" if target == "b" and len(node.subgraphs["body"].nodes) > 1 else None

    both = Kernels((type(matmul)("matmul", matmul.anchors, claims, after := frozenset(), matmul.epilogue),
                    *kernels.families[1:]), ("a", "b"))  # fmt: skip
    assert not after
    graph, _ = fused("%a = MatMul(%x, %w)\n%y = Relu(%a)", kernels=both)
    assert kernels_of(graph) == ["matmul: MatMul", "region: Relu"] and set(asked) == {"a", "b"}


def test_a_kernel_of_an_earlier_pass_falls_apart_if_there_is_none() -> None:
    body = """
    %y: f32[4, 4] = Fused(%x, %w) {family="matmul"}
      body = graph matmul(%x: f32[4, 4], %w: f32[4, 4]) -> (%y) {
        %a: f32[4, 4] = MatMul(%x, %w)
        %y: f32[4, 4] = Exp(%a)
      }
    """
    graph, step = fused(body, kernels=families(matmul=lambda ops: "no Exp" if "Exp" in ops else None))
    assert kernels_of(graph) == ["matmul: MatMul", "region: Exp"]
    assert any("no Exp" in n.reason for n in step.notes)
    graph, _ = fused(body)
    assert kernels_of(graph) == ["matmul: MatMul Exp"]


def test_sizes_that_nothing_tells_stay_alone() -> None:
    """Only the run decides what Expand makes, and its result tells: what follows is a kernel again."""
    graph, _ = fused("%n = NonZero(%x)\n%e = Expand(%z, %s)\n%a = Exp(%e)\n%b = Neg(%a)\n%y = Neg(%b)",
                     "%x: f32[4, 4], %z: f32[1, 4], %s: i64[2]", "%y, %n",
                     kernels=of(family("movement", ["Expand"]), *families().families))  # fmt: skip
    assert kernels_of(graph) == ["NonZero", "Expand", "region: Exp Neg Neg"]


def test_a_region_is_cut_at_its_size_where_the_fewest_results_cross() -> None:
    """Two values are alive everywhere but after the fifth node."""
    lines = ["%a = Neg(%x)", "%b = Exp(%a)", "%c = Add(%a, %b)", "%d = Mul(%c, %a)", "%e = Add(%d, %c)", "%f = Exp(%e)",
             "%g = Neg(%e)", "%h = Add(%f, %g)", "%y = Sub(%h, %f)"]  # fmt: skip
    graph, _ = fused("\n".join(lines), most=6)
    assert [len(n.subgraphs["body"].nodes) for n in graph.nodes] == [5, 4]
    assert [v.name for v in graph.nodes[0].outputs] == ["e"]


def test_an_epilogue_has_a_size() -> None:
    chain = "\n".join(f"%{b} = Neg(%{a})" for a, b in zip("abcdefgh", "bcdefghy", strict=True))
    graph, _ = fused(f"%a = MatMul(%x, %w)\n{chain}", most=5)
    assert [len(n.subgraphs["body"].nodes) for n in graph.nodes] == [5, 4]


def test_a_value_that_a_nested_body_gives_is_a_result() -> None:
    graph = parse(
        "graph g(%x: f32[4, 4], %p: bool[]) -> (%y) {\n"
        "  %a = Relu(%x)\n  %b = Neg(%a)\n"
        "  %y: f32[4, 4] = If(%p)\n"
        "    then_branch = graph t() -> (%a) {\n    }\n"
        "    else_branch = graph e() -> (%b) {\n    }\n"
        "}\n"
    )
    FuseRegions(families()).apply(graph)
    verify(graph)
    assert [v.name for v in graph.nodes[0].outputs] == ["a", "b"]


WIDENED = """
const %s: f32[] = splat 0.5
%c: f32[4, 4] = Cast(%q) {to=1}
%d = Mul(%c, %s)
%a = MatMul(%x, %w)
"""
"""The codes q as numbers, made before the product."""


def test_bytes_are_widened_by_the_kernel_that_reads_them() -> None:
    graph, _ = fused(WIDENED + "%y = Add(%a, %d)", "%x: f32[4, 4], %q: u8[4, 4]")
    assert kernels_of(graph) == ["matmul: MatMul Cast Mul Add"]
    assert [v.name for v in graph.nodes[0].inputs if v is not None] == ["x", "w", "q"]


@pytest.mark.parametrize("other", ["%z = Exp(%d)", "%z = MatMul(%d, %w)"])
def test_what_two_kernels_read_is_widened_once(other: str) -> None:
    graph, _ = fused(WIDENED + f"%y = Add(%a, %d)\n{other}", "%x: f32[4, 4], %q: u8[4, 4]", "%y, %z")
    assert "matmul: MatMul Add" in kernels_of(graph)
    assert sum("Cast" in k for k in kernels_of(graph)) == 1


def test_a_producer_without_operands_widens_nothing() -> None:
    graph, _ = fused("%a: f32[4, 4] = RandomNormal() {shape=[4, 4], dtype=1}\n%y = Add(%a, %x)")
    assert kernels_of(graph) == ["RandomNormal", "region: Add"]
