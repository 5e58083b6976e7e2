"""The precision pass as text before and after, with small families."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from graph_opt.ir import Graph, Node
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from graph_opt.precision.choose_precision import ChoosePrecision
from graph_opt.precision.lists import POLICIES, VERSION_2
from tensor_types.dtypes import BF16, F16, F32
from tensor_types.recipes import converted
from tests.graph_opt.families import family, of

HALVES = frozenset({"f32", "f16", "bf16"})
ELEMENTWISE = frozenset({"Add", "Mul", "Relu", "Sigmoid", "Exp", "Cast", "Less"})


def _grouped(node: Node) -> str | None:
    """Of small families, one that has no narrow kernel for some of its operators."""
    (conv,) = node.subgraphs["body"].nodes
    return "no narrow groups" if "group" in conv.attrs and conv.input(0).dtype != F32 else None


KERNELS = of(
    family("conv", ["Conv"], after=ELEMENTWISE, dtypes=HALVES, refuses=_grouped),
    family("matmul", ["MatMul"], after=ELEMENTWISE, dtypes=HALVES),
    family("attention", ["Attention"], dtypes=HALVES),
    family("reduction", ["Softmax", "LayerNormalization", "ArgMax"], dtypes=HALVES),
    family("lstm", ["LSTM"]),
    family("movement", ["Transpose", "Concat"], dtypes=HALVES),
    family("region", after=ELEMENTWISE, dtypes=HALVES),
)
BF, FP = "allow_mix_precision_bf16", "force_fp16"


def build(body: str, inputs: str, outputs: str, origins: str = "") -> Graph:
    text = f"""graph g({inputs}) -> ({outputs}) {{
  const %w: f32[8, 8] = random seed 1 scale 0.3
  const %v: f32[8, 8] = random seed 2 scale 0.3
  const %b: f32[8] = random seed 3 scale 0.3
{textwrap.indent(textwrap.dedent(body).strip(), "  ")}
{textwrap.indent(textwrap.dedent(origins).strip(), "  ")}
}}
"""
    return parse(text)


def chosen(mode: str, body: str, inputs: str = "%x: f32[4, 8]", outputs: str = "%y", origins: str = "") -> Graph:
    graph = build(body, inputs, outputs, origins)
    ChoosePrecision(KERNELS, mode).apply(graph)
    verify(graph)
    assert to_text(parse(to_text(graph))) == to_text(graph)  # inference agrees with every dtype
    return graph


def nodes(graph: Graph) -> list[str]:
    """'y:bf16 = Op(x:bf16, w/bf16:bf16)' for each node."""
    return [
        f"{', '.join(f'{v.name}:{v.dtype}' for v in n.outputs)} = {n.op}"
        f"({', '.join('_' if v is None else f'{v.name}:{v.dtype}' for v in n.inputs)})"
        for n in graph.nodes
    ]


def test_the_default_changes_nothing() -> None:
    graph = build("%y = MatMul(%x, %w)", "%x: f32[4, 8]", "%y")
    before = to_text(graph)
    assert not ChoosePrecision(KERNELS).apply(graph)
    assert to_text(graph) == before


def test_products_take_narrow_operands_and_one_cast_rounds_what_is_written() -> None:
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%a = Add(%m, %b)\n%r = Relu(%a)\n%y = MatMul(%r, %v)")
    assert nodes(graph) == [
        "x/bf16:bf16 = Cast(x:f32)",
        "m:f32 = MatMul(x/bf16:bf16, w/bf16:bf16)",
        "a:f32 = Add(m:f32, b:f32)",
        "r/f32:f32 = Relu(a:f32)",
        "r:bf16 = Cast(r/f32:f32)",
        "y:f32 = MatMul(r:bf16, v/bf16:bf16)",
    ]


def test_a_product_feeds_the_next_without_f32_in_memory() -> None:
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%t = Transpose(%m) {perm=[1, 0]}\n%y = MatMul(%v, %t)")
    assert nodes(graph)[2:4] == ["m:bf16 = Cast(m/f32:f32)", "t:bf16 = Transpose(m:bf16)"]
    assert nodes(graph)[4] == "y:f32 = MatMul(v/bf16:bf16, t:bf16)"


def test_gray_operators_follow_all_their_producers() -> None:
    body = "%m = MatMul(%x, %w)\n%a = Add(%m, %x)\n%y = MatMul(%a, %v)"
    assert nodes(chosen(BF, body))[2:4] == ["a:f32 = Add(m:f32, x:f32)", "a/bf16:bf16 = Cast(a:f32)"]
    both = "%m = MatMul(%x, %w)\n%r = Relu(%m)\n%n = MatMul(%r, %v)\n%a = Add(%n, %r)\n%y = MatMul(%a, %w)"
    lines = nodes(chosen(BF, both))
    assert "a:bf16 = Add(n/bf16:bf16, r:bf16)" in lines


def test_black_operators_keep_f32_and_gray_ones_before_them_too() -> None:
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%r = Relu(%m)\n%s = Softmax(%r) {axis=-1}\n%y = MatMul(%s, %v)")
    assert nodes(graph)[1:] == [
        "m:f32 = MatMul(x/bf16:bf16, w/bf16:bf16)",
        "r:f32 = Relu(m:f32)",
        "s:f32 = Softmax(r:f32)",
        "s/bf16:bf16 = Cast(s:f32)",
        "y:f32 = MatMul(s/bf16:bf16, v/bf16:bf16)",
    ]


def test_a_black_reader_beside_a_narrow_one_gets_the_rounded_value() -> None:
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%e = Exp(%m)\n%n = MatMul(%m, %v)\n%y = Add(%e, %n)")
    assert "m/f32.1:f32 = Cast(m:bf16)" in nodes(graph)
    assert "e:f32 = Exp(m/f32.1:f32)" in nodes(graph)


def test_graph_outputs_keep_their_dtype_also_when_a_narrow_operator_reads_them() -> None:
    graph = chosen(
        BF, "%m = MatMul(%x, %w)\n%t = Transpose(%m) {perm=[1, 0]}\n%y = MatMul(%v, %t)", outputs="%m, %t, %y"
    )
    assert [f"{v.name}:{v.dtype}" for v in graph.outputs] == ["m:f32", "t:f32", "y:f32"]
    y = graph.outputs[2].producer
    assert y is not None and [str(v.dtype) for v in y.inputs if v is not None] == ["bf16", "bf16"]


@pytest.mark.parametrize("choice", ["%y = ArgMax(%m) {axis=-1}", "%y = Cast(%m) {to=7}"])
def test_what_feeds_a_choice_keeps_its_dtype(choice: str) -> None:
    graph = chosen(BF, f"%h = MatMul(%x, %w)\n%r = Relu(%h)\n%m = MatMul(%r, %v)\n{choice}")
    assert "m:f32 = MatMul(r:f32, v:f32)" in nodes(graph)
    assert "h:f32 = MatMul(x/bf16:bf16, w/bf16:bf16)" in nodes(graph)


def test_a_bank_of_filters_before_a_logarithm_keeps_its_dtype() -> None:
    graph = chosen(
        BF, "%h = MatMul(%x, %w)\n%t = Transpose(%h) {perm=[1, 0]}\n%m = MatMul(%v, %t)\n%s = Mul(%m, %m)\n%y = Log(%s)"
    )
    assert all(v.dtype.name == "f32" for v in graph.values.values())


def test_operators_without_a_narrow_kernel_keep_f32() -> None:
    inputs = "%x: f32[1, 8, 5, 5]"
    body = """
        const %k: f32[8, 1, 3, 3] = splat 0.5
        const %p: f32[8, 8, 1, 1] = splat 0.5
        %d = Conv(%x, %k) {group=8, pads=[1, 1, 1, 1]}
        %y = Conv(%d, %p)
    """
    for mode in (BF, FP):
        lines = nodes(chosen(mode, body, inputs))
        assert lines[0] == "d:f32 = Conv(x:f32, k:f32)" and "= Cast(d:f32)" in lines[1]


def test_attention_keeps_the_dtype_of_its_mask() -> None:
    inputs = "%q: f32[1, 2, 4, 8], %m: f32[4, 4]"
    lines = nodes(chosen(BF, "%y = Attention(%q, %q, %q, %m)", inputs))
    assert (
        lines[1].endswith("Attention(q/bf16:bf16, q/bf16:bf16, q/bf16:bf16, m:f32)")
        and lines[2] == "y:f32 = Cast(y.old:bf16)"
    )


def test_values_that_a_body_captures_keep_their_dtype() -> None:
    body = """
        %m = MatMul(%x, %w)
        %r = Relu(%m)
        %y = If(%c) then_branch = graph t() -> (%s) { %s = Add(%r, %r) } else_branch = graph e() -> (%t) { %t = Mul(%r, %r) }
    """
    graph = chosen(BF, body, "%x: f32[4, 8], %c: bool[]")
    assert graph.values["r"].dtype.name == "f32"


def test_origins_of_changed_values_are_casts() -> None:
    origins = 'origin "m" = same %m\norigin "t" = same %t\norigin "y" = same %y\norigin "w" = same %w'
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%t = Transpose(%m) {perm=[1, 0]}\n%y = MatMul(%v, %t)", origins=origins)
    found = {s: (o.relation, o.value) for s, o in graph.origins.items()}
    assert found == {"m": ("cast", "m"), "t": ("cast", "t"), "y": ("same", "y"), "w": ("cast", "w/bf16")}
    assert "w" not in graph.values


def test_a_constant_that_an_f32_operator_reads_as_well_is_kept() -> None:
    graph = chosen(BF, "%m = MatMul(%x, %w)\n%y = Add(%m, %w)", "%x: f32[8, 8]")
    assert {"w", "w/bf16"} <= graph.values.keys()


def test_force_fp16_takes_every_operator_with_a_kernel() -> None:
    graph = chosen(FP, "%e = Exp(%x)\n%s = Softmax(%e) {axis=-1}\n%y = Add(%s, %x)")
    assert nodes(graph) == [
        "x/f16:f16 = Cast(x:f32)",
        "e:f16 = Exp(x/f16:f16)",
        "s:f16 = Softmax(e:f16)",
        "y.old:f16 = Add(s:f16, x/f16:f16)",
        "y:f32 = Cast(y.old:f16)",
    ]


@pytest.mark.parametrize("mode", ["allow_fp32_to_fp16", "force_fp32", "cube_fp16in_fp32out"])
def test_modes_for_cubes_alone_leave_the_others_in_f32(mode: str) -> None:
    lines = nodes(chosen(mode, "%m = MatMul(%x, %w)\n%r = Relu(%m)\n%y = MatMul(%r, %v)"))
    assert lines[1:4] == ["m:f32 = MatMul(x/f16:f16, w/f16:f16)", "r:f32 = Relu(m:f32)", "r/f16:f16 = Cast(r:f32)"]


def test_only_the_steps_of_one_kernel_stay_f32() -> None:
    graph = chosen(
        BF, "%m = MatMul(%x, %w)\n%g = Sigmoid(%m)\n%n = MatMul(%x, %v)\n%p = Mul(%g, %n)\n%y = MatMul(%p, %w)"
    )
    assert "g:f32 = Sigmoid(m:f32)" in nodes(graph)
    assert "p:bf16 = Mul(g/bf16:bf16, n/bf16:bf16)" in nodes(graph)


def test_guards_go_to_the_casts() -> None:
    body = """
        %m = MatMul(%x, %w) if %c
        %r = Relu(%m) if %c
        %p = MatMul(%r, %v) if %c
        %y = IfMerge(%c, %p, %z)
    """
    graph = chosen(BF, body, "%x: f32[4, 8], %c: bool[], %z: f32[4, 8]")
    casts = {n.output.name: [(v.name, wanted) for v, wanted in n.guards] for n in graph.nodes if n.op == "Cast"}
    assert casts["x/bf16"] == [] and casts["r"] == [("c", True)]


def test_finite_constants_stay_finite_in_f16() -> None:
    data = np.array([1e6, -1e6, np.inf, -np.inf, 1.0], np.float32)
    assert converted(data, F16).tolist() == [65504.0, -65504.0, np.inf, -np.inf, 1.0]
    assert np.isnan(converted(np.array([np.nan], np.float32), F16)).all()
    assert converted(data, BF16).astype(np.float32)[0] == 999424.0  # the nearest of 8 significant bits


def test_the_report_counts_operators_by_dtype() -> None:
    graph = build("%m = MatMul(%x, %w)\n%s = Softmax(%m) {axis=-1}\n%y = MatMul(%s, %v)", "%x: f32[4, 8]", "%y")
    step = ChoosePrecision(KERNELS, BF)
    step.apply(graph)
    assert step.report == {"bf16": 2, "f32": 1, "force_fp16": 3}


def test_version_2_names_stand_for_modes() -> None:
    assert set(VERSION_2.values()) <= POLICIES.keys()


def test_a_constant_that_is_an_output_keeps_its_dtype() -> None:
    graph = chosen(BF, "%y = MatMul(%x, %w)", outputs="%y, %w")
    assert [str(v.dtype) for v in graph.outputs] == ["f32", "f32"]


def test_sizes_that_only_the_run_decides_stay_f32() -> None:
    body = "%i = NonZero(%x)\n%t = Transpose(%i) {perm=[1, 0]}\n%r = GatherND(%x, %t)\n%u = Unsqueeze(%r, %a)\n%y = MatMul(%u, %o)"
    graph = chosen(BF, "const %a: i64[1] = dense [1]\nconst %o: f32[1, 8] = splat 0.5\n" + body)
    assert nodes(graph)[-1] == "y:f32 = MatMul(u:f32, o:f32)"
