"""Zero points of ConvInteger: where they go, and which convolutions stay integer ones."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.ir.text import parse
from graph_opt.quantisation import LegaliseIntegerConvolutions
from tests.graph_opt.families import OWN

LEGALISE = LegaliseIntegerConvolutions(OWN)

TEXT = """graph g(%x: {x}[1, {c}, 5, 5], %z: u8[]) -> (%y) {{
  const %w: {w}[6, {each}, 3, 3] = random seed 3 scale 20
  const %xz: u8[] = splat 7
  const %wz: {w}[] = splat {wz}
  %y: i32[1, 6, 5, 5] = ConvInteger(%x, %w, {zero}, %wz) {{group={group}, pads=[1, 1, 1, 1]}} @conv
}}
"""


def graph(c: int = 8, each: int = 8, group: int = 1, w: str = "i8", wz: int = 0, zero: str = "%xz"):  # noqa: ANN201
    return parse(TEXT.format(x="u8", c=c, each=each, group=group, w=w, wz=wz, zero=zero))


def test_a_known_zero_point_is_what_pads_count_as() -> None:
    g = graph()
    weight = g.values["w"].data
    assert weight is not None
    assert LEGALISE.apply(g)
    conv, sub = g.nodes
    assert (conv.op, sub.op) == ("ConvInteger", "Add")
    assert conv.attrs["pad_value"] == 7 and len(conv.inputs) == 2
    shift = sub.inputs[1]
    assert shift is not None and shift.data is not None
    np.testing.assert_array_equal(shift.data.reshape(-1), -7 * weight.astype(np.int64).sum((1, 2, 3)))
    assert not LEGALISE.apply(g)


def test_a_run_time_zero_point_is_what_lies_outside() -> None:
    beyond = graph(zero="%z")
    assert LEGALISE.apply(beyond)
    conv = beyond.nodes[0]
    assert conv.op == "ConvInteger" and conv.inputs[2] is beyond.inputs[1] and conv.attrs["zero_outside"] == 1
    assert not LEGALISE.apply(beyond)
    g = parse(TEXT.replace("pads=[1, 1, 1, 1]", "pads=[0, 0, 0, 0]").replace("i32[1, 6, 5, 5]", "i32[1, 6, 3, 3]").format(
        x="u8", c=8, each=8, group=1, w="i8", wz=0, zero="%z"
    ))  # fmt: skip
    assert LEGALISE.apply(g)
    assert [n.op for n in g.nodes if n.op in ("ConvInteger", "Sub")] == ["ConvInteger", "Sub"]
    assert not LEGALISE.apply(g)


def test_channels_are_filled_up_and_a_weight_of_full_range_keeps_its_zero_point() -> None:
    g = graph(c=6, each=6, w="u8", wz=40)
    g.values["w"].data[0, 0, 0] = [0, 255, 255]  # type: ignore[index]
    assert LEGALISE.apply(g)
    pad, conv = g.nodes[:2]
    assert (pad.op, conv.op, conv.attrs["pad_value"]) == ("Pad", "ConvInteger", 7)
    weight, zero = (conv.inputs[i] for i in (1, 3))
    assert weight is not None and zero is not None and weight.data is not None and zero.data is not None
    assert weight.shape == (6, 8, 3, 3) and zero.data == 40 - 128
    assert (weight.data[:, 6:] == zero.data).all()


@pytest.mark.parametrize("odd", [{"c": 1, "each": 1}, {"c": 16, "each": 8, "group": 2}])
def test_what_no_kernel_multiplies_becomes_a_float_convolution(odd: dict[str, int]) -> None:
    g = graph(**odd)  # type: ignore[arg-type]
    assert LEGALISE.apply(g)
    assert "Conv" in [n.op for n in g.nodes] and "ConvInteger" not in [n.op for n in g.nodes]
