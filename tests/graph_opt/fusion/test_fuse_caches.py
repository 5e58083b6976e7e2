"""Caches that grow get room: which nodes become an append kernel, and what keeps a cache as it is."""

from __future__ import annotations

import pytest

from codegen.kernels import kernels
from codegen.llvm.detect import detect_host_class
from codegen.targets import target
from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.fusion.fuse_caches import FuseCaches
from graph_opt.ir.passes import run_passes
from graph_opt.ir.text import parse, to_text
from tensor_types.dims import dim

JOINED = """
graph g(%past: f32[b, 2, p, 16], %rows: f32[b, 2, n, 16], %q: f32[b, 4, n, 16]) -> (%present, %y) {
  dim p in [0, inf]
  dim n in [1, inf]
  dim b in [1, inf]
  %present: f32[b, 2, p + n, 16] = Concat(%past, %rows) {axis=2} @join
  %y: f32[b, 4, n, 16] = Attention(%q, %present, %present) @attention
}
"""
WRITTEN = """
graph g(%past: f32[1, 2, p, 16], %rows: f32[1, 2, 1, 16], %at: i64[1], %q: f32[1, 2, 1, 16]) -> (%present, %y) {
  dim p in [0, inf]
  const %pads: i64[8] = dense [0, 0, 0, 0, 0, 0, 3, 0]
  %longer: f32[1, 2, p + 3, 16] = Pad(%past, %pads)
  %present: f32[1, 2, p + 3, 16] = TensorScatter(%longer, %rows, %at) {axis=-2} @write
  %y: f32[1, 2, 1, 16] = Attention(%q, %present, %present) @attention
}
"""


def fused(text: str) -> tuple[str, str]:
    """The graph after the passes, and why a cache was left as it is."""
    graph, asked = parse(text), kernels([target(detect_host_class())])
    step = FuseCaches(asked)
    run_passes(graph, [FuseAttention(asked), step], verify=True)
    return to_text(graph), " ".join(note.reason for note in step.notes)


@pytest.mark.parametrize("text", [JOINED, WRITTEN])
def test_a_cache_gets_room(text: str) -> None:
    printed, reason = fused(text)
    assert not reason
    graph = parse(printed)
    present = next(v for v in graph.outputs if v.name == "present")
    assert present.shape is not None and present.producer is not None
    assert present.shape[2] - dim("rows_room0") == parse(text).values["present"].shape[2]  # type: ignore[index]
    assert present.producer.attrs["family"] == "append" and present.producer.attrs["held"] == "rows_held0"
    reader = next(iter(present.uses))[0]
    assert reader.attrs["family"] == "attention" and reader.attrs["room"] == "rows_room0"
    assert graph.dims["rows_held0"] == (0, None)


LEFT = [
    # Another reader of the present, of the past, a past that is no input, rows that data decide, zeros in front.
    (JOINED.replace("(%present, %y)", "(%present, %y, %z)").replace("@attention", "@attention\n  %z = Neg(%present) @neg"),
     "neg reads it"),
    (JOINED.replace("(%present, %y)", "(%present, %y, %z)").replace("@attention", "@attention\n  %z = Neg(%past)"), ""),
    (JOINED.replace("Concat(%past", "Concat(%held").replace("  %present", "  %held = Neg(%past)\n  %present", 1), ""),
    (WRITTEN.replace("p + 3", "u7").replace("dim p", "dim u7 in [0, inf]\n  dim p"), ""),
    (WRITTEN.replace("0, 0, 3, 0]", "0, 0, 2, 0]").replace("dense [0, 0, 0,", "dense [0, 0, 1,"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), LEFT)
def test_what_stays_as_it_is(text: str, reason: str) -> None:
    printed, told = fused(text)
    assert "append" not in printed and "rows_room" not in printed and reason in told
