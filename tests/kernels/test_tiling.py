"""Tilings as values: their text form, the first that fits, given ones that are used or refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from codegen.kernels import NotLowerable, lower_node, tiling_of
from codegen.kernels.tiling import DoesNotFit, Tiling, halvings
from codegen.targets import target
from graph_opt.ir.core import Node
from graph_opt.plan.records import KernelRecord
from tests.kernels.lowered import HOSTS, Case, check

RNG = np.random.default_rng(9)
HOST = HOSTS[-1]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


CASES = {
    "region": Case("region", [("Add", ["x", "y"], ["z"], {}), ("Exp", ["z"], ["w"], {})],
                   {"x": normal(7, 30), "y": normal(30)}, ["w"]),
    "matmul": Case("matmul", [("MatMul", ["a", "b"], ["t"], {}), ("Relu", ["t"], ["y"], {})],
                   {"a": normal(70, 33), "b": normal(33, 50)}, ["y"], ["b"]),
    "product of inputs": Case("matmul", [("MatMul", ["a", "b"], ["y"], {})],
                              {"a": normal(2, 70, 33), "b": normal(2, 33, 50)}, ["y"]),
    "reduction": Case("reduction", [("Softmax", ["x"], ["y"], {"axis": 1})], {"x": normal(3, 50, 7)}, ["y"]),
    "conv": Case("conv", [("Conv", ["x", "w"], ["y"], {"pads": [1] * 4})],
                 {"x": normal(1, 8, 13, 17), "w": normal(40, 8, 3, 3)}, ["y"], ["w"], last=["x", "y"]),
    "depthwise": Case("conv", [("Conv", ["x", "w"], ["y"], {"pads": [1] * 4, "group": 24})],
                      {"x": normal(1, 24, 13, 17), "w": normal(24, 1, 3, 3)}, ["y"], ["w"], last=["x", "y"]),
    "transposed": Case("conv", [("ConvTranspose", ["x", "w"], ["y"], {"strides": [2, 2]})],
                       {"x": normal(1, 8, 9, 11), "w": normal(8, 20, 3, 3)}, ["y"], ["w"], last=["x", "y"]),
    "pool": Case("pool", [("MaxPool", ["x"], ["y"], {"kernel_shape": [3, 3], "pads": [1] * 4})],
                 {"x": normal(1, 24, 13, 17)}, ["y"], last=["x", "y"]),
    "attention": Case("attention", [("Attention", ["q", "k", "v"], ["y"], {})],
                      {n: normal(1, 3, 40, 16) for n in "qkv"}, ["y"], opset=23),
    "transpose": Case("movement", [("Transpose", ["x"], ["y"], {"perm": [0, 2, 1]})], {"x": normal(2, 50, 70)}, ["y"]),
    "topk": Case("topk", [("TopK", ["x", "k"], ["y", "i"], {})], {"x": normal(9, 20), "k": np.array([3])}, ["y"],
                 ["k"]),
}  # fmt: skip
GIVEN = [
    ("region", "region elements=17"),
    ("matmul", "matmul rows=7 columns=20 panels_outside=0"),
    ("matmul", "matmul rows=100 columns=16"),
    ("product of inputs", "matmul rows=9 columns=24 pack=1"),
    ("reduction", "reduction elements=100 lanes=3 whole=1 chunk=11"),
    ("conv", "conv block=3x5 panel=24 split=2"),
    ("depthwise", "windows channels=16 positions=23 copy=4096"),
    ("transposed", "conv_transpose block=2x3 panel=16"),
    ("pool", "windows channels=7 positions=11 copy=4096"),
    ("attention", "attention queries=7 keys=64 chunk=13"),
    ("transpose", "movement elements=100 cross=9"),
    ("topk", "topk rows=2"),
]
ON_CHIPS = [
    ("region", "region elements=96"),
    ("matmul", "matmul_cube rows=24 columns=32 vector=200"),
    ("reduction", "reduction elements=128 lanes=3 whole=1 chunk=11"),
    ("conv", "conv_cube block=3x5 panel=32 vector=160"),
    ("depthwise", "windows channels=24 positions=23 copy=8192"),
    ("transposed", "conv_cube block=2x3 panel=32 vector=100"),
    ("attention", "attention queries=16 keys=24 chunk=16"),
]


def node_of(name: str) -> Node:
    return CASES[name].node(CASES[name].expected())


def tiling_used(name: str, place: str, given: Tiling | None = None) -> str:
    record = lower_node(node_of(name), target(place), given)[-1]
    assert isinstance(record, KernelRecord)
    return record.tiling


@pytest.mark.parametrize("place", [HOST, "Ascend910B2"])
@pytest.mark.parametrize("name", CASES)
def test_a_record_tells_a_tiling_that_gives_the_same_program(name: str, place: str) -> None:
    case = CASES[name]
    (*_, record) = lower_node(node_of(name), target(place))
    assert isinstance(record, KernelRecord)
    again = tiling_of(record.tiling)
    assert str(again) == record.tiling
    assert lower_node(case.node(case.expected()), target(place), again)[-1] == record


@pytest.mark.parametrize(("name", "text"), GIVEN)
def test_any_tiling_gives_right_results(name: str, text: str) -> None:
    given = tiling_of(text)
    assert tiling_used(name, HOST, given) == str(given) != tiling_used(name, HOST)
    check(CASES[name], partial(lower_node, tiling=given), 1e-4, 1e-5, [HOST])


@pytest.mark.parametrize(("name", "text"), ON_CHIPS)
def test_any_tiling_gives_right_results_on_a_chip(name: str, text: str) -> None:
    given = tiling_of(text)
    assert tiling_used(name, "Ascend910B2", given) == str(given) != tiling_used(name, "Ascend910B2")
    check(CASES[name], partial(lower_node, tiling=given), 1e-4, 1e-5, ["Ascend910B2"])


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("matmul", "region elements=5", "kind matmul, not region"),
        ("matmul", "matmul rows=8 columns=16 widen=1", "takes halves"),
        ("matmul", "matmul rows=8 columns=16 pack=1", "no constant"),
        ("conv", "conv block=3x3x3 panel=16 split=1", "3 axes, the kernel 2"),
        ("attention", "attention queries=8 keys=9 chunk=8", "no multiple"),
        ("region", f"region elements={1 << 29}", None),
    ],
)
def test_a_tiling_that_the_kernel_cannot_have_is_refused(name: str, text: str, reason: str | None) -> None:
    if reason is None:  # large blocks end where the tensor does
        assert tiling_used(name, HOST, tiling_of(text)) == text
        return
    with pytest.raises(NotLowerable, match=reason):
        lower_node(node_of(name), target(HOST), tiling_of(text))


def test_a_tiling_too_large_for_a_memory_says_which() -> None:
    case = Case("region", CASES["region"].ops, {"x": normal(1000, 300), "y": normal(300)}, ["w"])
    node = case.node(case.expected())
    with pytest.raises(DoesNotFit, match="B in UB, Ascend910B2 has 196608 B"):
        lower_node(node, target("Ascend910B2"), tiling_of("region elements=300000"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is no kind of tiling"),
        ("matmull rows=1", "known: .*matmul"),
        ("matmul rows=1", "needs columns"),
        ("matmul rows=1 columns=2 depth=3", "fields: rows, columns, panels_outside"),
        ("matmul rows=1 rows=1 columns=2", "stands twice"),
        ("matmul rows=0 columns=2", "rows is 0"),
        ("matmul rows=-1 columns=2", "numbers only"),
        ("matmul rows=1x2 columns=2", "one number"),
        ("matmul rows=1 columns=2 pack=2", "0 or 1"),
        ("conv block=8x panel=1 split=1", "numbers only"),
        ("matmul rows=99999999999 columns=2", "not within"),
    ],
)
def test_a_wrong_text_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tiling_of(text)


def test_halvings_give_the_first_in_any_case() -> None:
    assert list(halvings(20, 4)) == [20, 10, 5]
    assert list(halvings(3, 16)) == [3]


LARGE = {
    "a norm over a large map": Case(
        "reduction", [("InstanceNormalization", ["x", "s", "b"], ["y"], {})],
        {"x": normal(1, 16, 256, 256), "s": normal(16), "b": normal(16)}, ["y"], ["s", "b"], last=["x", "y"],
    ),
    "a depthwise convolution of a large map": Case(
        "conv", [("Conv", ["x", "w"], ["t"], {"pads": [1] * 4, "group": 32}), ("HardSwish", ["t"], ["y"], {})],
        {"x": normal(1, 32, 200, 400), "w": normal(32, 1, 3, 3)}, ["y"], ["w"], last=["x", "t", "y"],
    ),
    "a mean over a very long axis": Case(
        "reduction", [("ReduceMean", ["x", "a"], ["y"], {})], {"x": normal(3, 5, 70000), "a": np.array([2])}, ["y"],
        ["a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_what_is_larger_than_the_scratch_of_a_host_is_cut(name: str) -> None:
    check(LARGE[name], lower_node, 1e-4, 1e-4, [HOST])
