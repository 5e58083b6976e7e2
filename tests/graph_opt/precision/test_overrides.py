"""What a user says of single operators goes before the lists of a mode."""

from __future__ import annotations

import pytest

from graph_opt.ir.verifier import verify
from graph_opt.precision.choose_precision import ChoosePrecision
from graph_opt.precision.decisions import narrow_nodes
from graph_opt.precision.lists import POLICIES
from graph_opt.precision.overrides import Overrides
from graph_opt.precision.retyped import has_kernel
from tensor_types.dtypes import BF16, F16
from tensor_types.errors import InvalidModel
from tests.graph_opt.precision.test_choose_precision import KERNELS, build

BODY = "%m = MatMul(%x, %w)\n%s = Sigmoid(%m)\n%e = Exp(%s)\n%y = MatMul(%e, %v)"
ORIGINS = "\n".join(f'origin "{name}" = same %{name}' for name in "msey")
MIXED, ORIGIN = "allow_mix_precision", "must_keep_origin_dtype"


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        (MIXED, {}, "my"),
        (MIXED, {"tensors": {"m": "keep"}}, "y"),
        (MIXED, {"tensors": {"s": "white"}}, "msy"),
        (MIXED, {"operators": {"Exp": "gray"}}, "msey"),
        (MIXED, {"operators": {"Exp": "gray", "Sigmoid": "black"}}, "my"),
        (MIXED, {"operators": {"MatMul": "gray", "Exp": "white"}}, "e"),
        (MIXED, {"operators": {"MatMul": "keep"}, "tensors": {"y": "white"}}, "y"),
        ("force_fp16", {"tensors": {"e": "keep", "y": "black"}}, "ms"),
        ("allow_fp32_to_fp16", {"tensors": {"e": "gray"}}, "my"),
    ],
)
def test_classes_go_before_the_lists_of_the_mode(mode, given, expected):
    graph = build(BODY, "%x: f32[4, 8]", "%y", ORIGINS)
    classes = Overrides(**given).classes(graph)
    chosen = narrow_nodes(graph, POLICIES[mode], lambda n: has_kernel(graph, n, BF16, KERNELS), classes)
    assert "".join(n.output.name for n in graph.nodes if n in chosen) == expected


@pytest.mark.parametrize(
    ("tensors", "narrow", "expected"),
    [
        ({"y": "narrow"}, BF16, ["m:f32", "s:f32", "e:f32", "e/bf16:bf16", "y:f32"]),
        ({"e": "narrow"}, F16, ["m:f32", "s:f32", "s/f16:f16", "e:f16", "e/f32:f32", "y:f32"]),
        ({"y": "keep"}, None, ["m:f32", "s:f32", "e:f32", "y:f32"]),
    ],
)
def test_a_mode_without_narrow_dtype_gets_one_for_single_operators(tensors, narrow, expected):
    graph = build(BODY, "%x: f32[4, 8]", "%y", ORIGINS)
    ChoosePrecision(KERNELS, ORIGIN, Overrides(tensors, {}, narrow)).apply(graph)
    verify(graph)
    assert [f"{n.output.name}:{n.output.dtype}" for n in graph.nodes] == expected


def test_of_several_sources_in_one_node_the_strongest_class_holds():
    graph = build(BODY, "%x: f32[4, 8]", "%y", 'origin "a" = interior %m\norigin "m" = same %m\norigin "gone" = dead')
    classes = Overrides({"a": "keep", "m": "white", "gone": "keep", "nowhere": "keep"}).classes(graph)
    assert {n.output.name: c for n, c in classes.items()} == {"m": "keep"}


@pytest.mark.parametrize(
    ("mode", "body", "narrow", "code", "said"),
    [
        (MIXED, BODY, BF16, "E10001", "bf16"),
        (ORIGIN, "%m = Erf(%x)\n%y = MatMul(%m, %w)", F16, "E10055", "Erf"),
    ],
)
def test_dtypes_that_cannot_be(mode, body, narrow, code, said):
    graph = build(body, "%x: f32[4, 8]", "%y", 'origin "m" = same %m')
    with pytest.raises(InvalidModel) as caught:
        ChoosePrecision(KERNELS, mode, Overrides({"m": "narrow"}, {}, narrow)).apply(graph)
    assert caught.value.code == code and said in caught.value.message and caught.value.remedy
