"""The verifier finds each kind of broken invariant."""

from collections.abc import Callable

import numpy as np
import pytest

from graph_opt.ir.core import Graph, Origin
from graph_opt.ir.order import Order
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import InvalidGraph, verify
from tensor_types.recipes import Source

TEXT = """graph g(%x: f32[n, 3]) -> (%y) {
  const %w: f32[3, 4] = random seed 1 scale 1.0
  %m: f32[n, 4] = MatMul(%x, %w) @mm
  %s: i64[2] <n, 4> = Shape(%m)
  %y: f32[n, 4] = Relu(%m) @relu
  origin "m" = same %m
}"""


def test_a_sound_graph_passes() -> None:
    verify(parse(TEXT))


def _swap(graph: Graph) -> None:
    graph.nodes = Order(reversed(graph.nodes))


def _lost_use(graph: Graph) -> None:
    graph.values["m"].uses.popitem()


def _ghost_use(graph: Graph) -> None:
    graph.values["w"].uses[graph.nodes[1], 0] = None


def _renamed(graph: Graph) -> None:
    graph.values["m"].name = "other"


def _producer(graph: Graph) -> None:
    graph.values["y"].producer = graph.nodes[0]


def _origin(graph: Graph) -> None:
    graph.origins["m"] = Origin("same", "nowhere")


def _no_state(graph: Graph) -> None:
    graph.origins["m"] = Origin("interior", None)


def _constant_shape(graph: Graph) -> None:
    graph.values["w"].recipe = Source(np.zeros((4, 3), np.float32))


def _constant_dtype(graph: Graph) -> None:
    graph.values["w"].recipe = Source(np.zeros((3, 4), np.float64))


def _content(graph: Graph) -> None:
    graph.values["s"].content = (1, 2, 3)


def _arity(graph: Graph) -> None:
    graph.nodes[0].set_input(1, None)


def _orphan(graph: Graph) -> None:
    graph.add_value("z", graph.values["x"].dtype, ())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_swap, "before it is made"),
        (_lost_use, "uses but lists"),
        (_ghost_use, "that is not there"),
        (_renamed, "is registered as m"),
        (_producer, "but its producer is"),
        (_origin, "does not exist"),
        (_no_state, "but of no value"),
        (_constant_shape, r"holds data of shape \(4, 3\)"),
        (_constant_dtype, "holds data of dtype f64"),
        (_content, "content of 3 elements"),
        (_arity, "lacks its input B"),
        (_orphan, "nor made by a node"),
    ],
)
def test_damage_is_found(damage: Callable[[Graph], None], message: str) -> None:
    graph = parse(TEXT)
    damage(graph)
    with pytest.raises(InvalidGraph, match=message):
        verify(graph)


GUARDED = """graph g(%x: f32[n], %c: bool[], %d: bool[1], %v: bool[2]) -> (%y) {
  %t: f32[n] = Exp(%x) if %c, !%d @exp
  %u: f32[n] = Neg(%t) if %c, !%d @neg
  %m: f32[n] = IfMerge(%d, %x, %u) if %c @inner
  %y: f32[n] = IfMerge(%c, %m, %x) @outer
}"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Neg(%t) if %c, !%d", "Neg(%t) if %c, !%d, !%v", r"neg' has the guard %v: bool\[2\]"),
        ("Neg(%t) if %c, !%d", "Neg(%t) if %c, !%d, !%x", "no bool of one element"),
        ("Neg(%t) if %c, !%d", "Neg(%t) if %c", "made under a guard of %d"),
        ("Neg(%t) if %c, !%d", "Neg(%t) if %c, %d", "made under a guard of %d"),
        ("IfMerge(%d, %x, %u)", "IfMerge(%d, %u, %x)", "made under a guard of %d"),
        ("IfMerge(%d, %x, %u) if %c", "IfMerge(%d, %x, %u)", "made under a guard of %c"),
        ("-> (%y)", "-> (%m)", "graph output %m is made under a guard"),
    ],
)
def test_what_a_node_reads_is_made_whenever_it_runs(old: str, new: str, message: str) -> None:
    verify(parse(GUARDED))
    with pytest.raises(InvalidGraph, match=message):
        verify(parse(GUARDED.replace(old, new)))


def test_guards_are_in_the_use_lists() -> None:
    graph = parse(GUARDED)
    graph.values["c"].uses.popitem()
    with pytest.raises(InvalidGraph, match="uses but lists"):
        verify(graph)


def test_a_fused_body_has_no_guards() -> None:
    graph = parse("""graph g(%x: f32[n], %c: bool[]) -> (%y) {
      %y: f32[n] = Fused(%x, %c) {family="region"}
        body = graph region(%x: f32[n], %c: bool[]) -> (%y) {
          %y: f32[n] = Exp(%x) if %c
        }
    }""")
    with pytest.raises(InvalidGraph, match="guards in its body"):
        verify(graph)


def test_a_fused_body_must_agree_with_its_node() -> None:
    graph = parse("""graph g(%x: f32[n]) -> (%y) {
      %y: f32[n] = Fused(%x) {family="region"}
        body = graph region(%x: f32[n]) -> (%y) {
          %y: f32[n] = Exp(%x)
        }
    }""")
    verify(graph)
    graph.nodes[0].subgraphs["body"].inputs[0].shape = (4,)
    with pytest.raises(InvalidGraph, match="in its body"):
        verify(graph)
