"""Blocks for the cube of a chip: they fit L0C, fill the cores, and let large products be bound by the cube."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from codegen.kernels import lower_node
from codegen.kernels.cube_blocks import CubeBlock, best_blocks, powers
from codegen.targets import target
from codegen.targets.roofline import Estimate, estimate
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify
from graph_opt.ir.core import Graph
from graph_opt.plan.records import KernelRecord
from tensor_types.dtypes import DTYPES, F16


def product(chip: str, m: int, k: int, n: int, dtype: str) -> Estimate:
    """The estimate of a product with a constant right operand, whose program has passed the verifier."""
    graph, body = Graph("g"), Graph("b")
    op, result = ("MatMulInteger", "i32") if dtype == "i8" else ("MatMul", dtype)
    weight = np.broadcast_to(np.zeros((), DTYPES[dtype].numpy), (k, n))
    outer, inner = (
        [
            place.add_value("a", DTYPES[dtype], (m, k)),
            place.add_value("b", DTYPES[dtype], (k, n), data=weight),
            place.add_value("y", DTYPES[result], (m, n)),
        ]
        for place in (graph, body)
    )
    body.add_node(op, inner[:2], inner[2:], {}, name="fc")
    body.inputs, body.outputs = inner[:2], inner[2:]
    node = graph.add_node("Fused", outer[:2], outer[2:], {"family": "matmul"}, name="fc", subgraphs={"body": body})
    (record,) = lower_node(node, target(chip))
    assert isinstance(record, KernelRecord)
    program = parse_program(record.program)
    verify(program, target(chip))
    return estimate(program, {}, target(chip))


@pytest.mark.parametrize(
    ("chip", "size", "dtype", "least"),
    [("Ascend310P3", 2048, "f16", 0.95), ("Ascend910B2", 3072, "f16", 0.95), ("Ascend910B2", 4096, "bf16", 0.9)],
)
def test_a_large_product_is_bound_by_the_cube(chip: str, size: int, dtype: str, least: float) -> None:
    t = target(chip)
    found = product(chip, size, size, size, dtype)
    peak = 2 * t.cube.rate(DTYPES[dtype]) * t.cube_cores * t.clock_mhz * 1e6
    assert found.bound == "cube"
    assert least <= found.flops / found.seconds / peak <= 1
    assert found.flops == 2 * size**3


@pytest.mark.parametrize("chip", ["Ascend310P3", "Ascend910B2"])
def test_bytes_are_multiplied_faster_than_halves(chip: str) -> None:
    times = {dtype: product(chip, 2048, 2048, 2048, dtype).seconds for dtype in ("f16", "i8")}
    assert times["i8"] < 0.75 * times["f16"]


def test_few_rows_leave_no_core_without_a_block() -> None:
    t = target("Ascend910B2")
    blocks = [CubeBlock((r,), c, -(-64 // r) * -(-1536 // c), (r + c) * 768)
              for r in powers(64, 16, 512) for c in powers(1536, 32, 512, 32)]  # fmt: skip
    best = best_blocks(blocks, 768, F16, t)[0]
    assert best.blocks % t.cube_cores == 0


def test_sums_fit() -> None:
    blocks = [CubeBlock((r,), c, 1000, (r + c) * 512) for r in powers(None, 16, 512) for c in powers(None, 32, 512)]
    for name in ("Ascend310P3", "Ascend910B2"):
        best = best_blocks(blocks, 512, F16, target(name))
        assert best and all(prod(b.rows) * b.columns * 4 <= target(name).memories["L0C"].bytes for b in best)


def test_powers_end_at_a_static_extent() -> None:
    assert powers(100, 16, 512) == [16, 32, 64, 100]
    assert powers(100, 32, 512, 32) == [32, 64, 128]
    assert powers(5, 16, 64) == [5]
    assert powers(None, 16, 64) == [16, 32, 64]
