"""Targets: the published figures hold together, every name resolves, and estimates follow from the figures."""

from __future__ import annotations

import pytest

from codegen.targets import chip_names, host_class_names, target
from codegen.targets.roofline import estimate
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import SCOPES, Program, axis
from tensor_types.dims import ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32, I32

ALL = (*host_class_names(), *chip_names())


@pytest.mark.parametrize("name", ALL)
def test_every_target_is_complete(name: str) -> None:
    t = target(name)
    assert t.name == name
    assert set(t.memories) == set(SCOPES)
    assert t.supports(F32)
    assert t.explicit_memory == (t.kind == "chip") == bool(t.paths)
    assert all(a in (*SCOPES, "GM") and b in (*SCOPES, "GM") for a, b in t.paths)
    assert set(t.path_rates) <= t.paths


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(KeyError, match="Ascend910B2"):
        target("Ascend910Z")


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("Ascend910B2", 353.9), ("Ascend310P3", 69.5), ("Ascend310", 11.1), ("Ascend310B1", 10.0), ("Ascend310B4", 4.1),
        ("Ascend310P1", 86.8), ("Ascend910A", 262), ("Ascend910ProB", 283), ("Ascend910B1", 363.7),
        ("Ascend910B4-1", 245.8), ("Ascend910_9372", 294.9), ("Ascend950PR_9599", 530.8), ("Ascend350_354f", 189),
    ],
)  # fmt: skip
def test_dense_f16_peak_is_the_derived_one(name: str, tera: float) -> None:
    t = target(name)
    assert 2 * t.cube.rate(F16) * t.cube_cores * t.clock_mhz * 1e6 / 1e12 == pytest.approx(tera, rel=5e-3)


def test_chips_differ_where_they_should() -> None:
    b2, p3 = target("Ascend910B2"), target("Ascend310P3")
    assert ("L0C", "GM") in b2.paths and ("L0C", "UB") not in b2.paths
    assert ("L0C", "UB") in p3.paths and ("L0C", "GM") not in p3.paths
    assert b2.supports(BF16) and not p3.supports(BF16)
    assert b2.memories["UB"].bytes == 192 * 1024 and p3.memories["UB"].bytes == 256 * 1024


def _add(size: int) -> Program:
    b = ProgramBuilder("add")
    m = b.dim("m")
    x, y = b.param("x", F32, (m, size)), b.param("y", F32, (m, size), "out")
    t = b.tile("t", F32, (size,))
    i = b.grid("i", m)
    b.load(t, x.view(i, axis(0), shape=(size,)))
    b.add(t, t, 1.0)
    b.store(y.view(i, axis(0), shape=(size,)), t)
    return b.finish()


def test_memory_bound_estimate() -> None:
    t = target("Ascend910B2")
    e = estimate(_add(1024), {"m": 4800}, t)
    assert e.bound == "memory"
    assert e.bytes == 4800 * 1024 * 4 * 2
    assert e.flops == 4800 * 1024
    # 48 vector cores at 32 bytes per cycle.
    assert e.seconds == pytest.approx(e.bytes / (48 * 32 * 1.8e9))
    # One task keeps one core busy.
    assert estimate(_add(1024), {"m": 1}, t).seconds == pytest.approx(8192 / (32 * 1.8e9))
    assert estimate(_add(1024), {"m": 0}, t).seconds == 0


def _matmul(block: int) -> Program:
    b = ProgramBuilder("mm")
    m = b.dim("m", 1)
    a, w, c = b.param("a", F16, (m, 4096)), b.param("w", F16, (4096, 512)), b.param("c", F32, (m, 512), "out")
    a1, w1 = b.tile("a1", F16, (block, 256), "L0A"), b.tile("w1", F16, (256, 512), "L0B")
    acc = b.tile("acc", F32, (block, 512), "L0C")
    mb = b.grid("mb", ceildiv(m, block))
    rows = dmin(block, m - block * mb)
    with b.loop("k", 16) as k:
        b.load(a1.window((0, 0), (rows, 256)), a.window((block * mb, 256 * k), (rows, 256)))
        b.load(w1, w.window((256 * k, 0), (256, 512)))
        part = a1.window((0, 0), (rows, 256))
        with b.when(k, "==", 0):
            b.matmul(acc.window((0, 0), (rows, 512)), part, w1, nm=1, nk=1)
        with b.otherwise():
            b.matmul_acc(acc.window((0, 0), (rows, 512)), part, w1, nm=1, nk=1)
    b.store(c.window((block * mb, 0), (rows, 512)), acc.window((0, 0), (rows, 512)))
    return b.finish()


def test_matmul_counts_by_engine_and_tail() -> None:
    e = estimate(_matmul(1024), {"m": 1100}, target("Ascend910B2"))
    assert e.flops == 2 * 1100 * 4096 * 512
    assert e.bytes == 1100 * 4096 * 2 + 2 * 4096 * 512 * 2 + 1100 * 512 * 4


def test_large_grids_are_sampled() -> None:
    exact = 2 * 51200 * 4096 * 512
    assert estimate(_matmul(64), {"m": 51200}, target("Ascend910B2")).flops == pytest.approx(exact, rel=1e-9)
    assert estimate(_matmul(1024), {"m": 24 * 1024 * 20}, target("Ascend910B2")).bound == "cube"


def test_a_dtype_without_engine_runs_on_the_scalar_unit() -> None:
    b = ProgramBuilder("mm")
    x, y = b.param("x", I32, (64, 64)), b.param("y", I32, (64, 64), "out")
    b.matmul(y, x, x, nm=1, nk=1)
    chip = target("Ascend310P3")
    cycles = estimate(b.finish(), {}, chip).seconds * chip.clock_mhz * 1e6
    assert cycles >= 64**3  # one multiply-add a cycle, on one core: the grid has one index


def test_memory_gives_a_tensor_once_that_the_cache_holds() -> None:
    t = target("Ascend910B2")
    b = ProgramBuilder("rows")
    n = b.dim("n", 1)
    x, y = b.param("x", F32, (n,)), b.param("y", F32, (48, 64), "out")
    held = b.tile("t", F32, (64,))
    i = b.grid("i", 48)
    with b.loop("j", n // 64) as j:
        b.load(held, x.view(64 * j + axis(0), shape=(64,)))
    b.store(y.view(i, axis(0), shape=(64,)), held)
    program = b.finish()
    small, large = t.l2_bytes // 4, t.l2_bytes // 2  # elements: a whole cache, and twice as much
    e = estimate(program, {"n": small}, t)
    assert e.bound == "cache"
    assert e.seconds == pytest.approx((48 * 4 * small / 110 + 48 * 256 / 86) / 48 / 1.8e9)
    e = estimate(program, {"n": large}, t)
    assert e.bound == "memory"
    moved = 4 * large + 47 * 4 * large / 2 + 48 * 256
    assert e.seconds == pytest.approx(moved / (48 * 32 * 1.8e9))


@pytest.mark.parametrize(("n", "measured_us"), [(3072, 206.7), (6144, 1501)])
def test_a_product_takes_about_what_a_board_takes(n: int, measured_us: float) -> None:
    """Published measurements of f16 products on a 910B2 board."""
    block = 128
    b = ProgramBuilder("mm")
    a, w, c = b.param("a", F16, (n, n)), b.param("w", F16, (n, n)), b.param("c", F16, (n, n), "out")
    a1, w1 = b.tile("a1", F16, (block, 128), "L0A"), b.tile("w1", F16, (128, block), "L0B")
    acc = b.tile("acc", F32, (block, block), "L0C")
    i, j = b.grid("i", n // block), b.grid("j", n // block)
    with b.loop("k", n // 128) as k:
        b.load(a1, a.window((block * i, 128 * k), (block, 128)))
        b.load(w1, w.window((128 * k, block * j), (128, block)))
        b.matmul_acc(acc, a1, w1, nm=1, nk=1)
    b.store(c.window((block * i, block * j), (block, block)), acc)
    assert estimate(b.finish(), {}, target("Ascend910B2")).seconds * 1e6 == pytest.approx(measured_us, rel=0.1)
