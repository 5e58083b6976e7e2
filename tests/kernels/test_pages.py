"""Kernels of caches in pages on every host class, against numpy token by token; rows written at slots on chips too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from codegen.kernels.operands import NotLowerable
from codegen.kernels.paged_attention import lower_paged_attention
from codegen.kernels.scatter_pages import lower_scatter_pages
from codegen.targets import target
from tensor_types.dims import dim
from tests.kernels.lowered import CHIPS, HOSTS, Case, aligned, check, execute

RNG = np.random.default_rng(6)


@dataclass
class Known(Case):
    """A case whose results numpy has."""

    results: dict[str, np.ndarray] = field(default_factory=dict)

    def expected(self) -> dict[str, np.ndarray]:
        return self.results


def attention(new: list[int], past: list[int], dtype: Any = np.float32, page: int = 8, heads: int = 6, kv_heads: int = 2,
              size: int = 16) -> Known:  # fmt: skip
    starts, lengths = np.cumsum([0, *new]), np.add(new, past)
    most = int(-(-lengths.max() // page)) + 1
    table = np.full((len(new), most), -1)
    free = list(RNG.permutation(len(new) * most))
    q = RNG.normal(size=(starts[-1], heads, size)).astype(dtype)
    k, v = (RNG.normal(size=(len(free), page, kv_heads, size)).astype(dtype) for _ in range(2))
    y = np.zeros_like(q)
    for b, length in enumerate(lengths):
        used = -(-int(length) // page)
        table[b, :used] = [free.pop() for _ in range(used)]
        rows = [a[table[b, :used]].reshape(-1, kv_heads, size)[:length].astype(np.float64) for a in (k, v)]
        for t in range(starts[b], starts[b + 1]):
            last = length - (starts[b + 1] - t) + 1
            for h in range(heads):
                keys, values = (a[:last, h * kv_heads // heads] for a in rows)
                scores = keys @ q[t, h].astype(np.float64) * size**-0.5
                weights = np.exp(scores - scores.max())
                y[t, h] = weights @ values / weights.sum()
    arrays = {"q": q, "k": k, "v": v, "table": table, "starts": starts, "lengths": lengths}
    symbolic = {"q": ("t", heads, size), "y": ("t", heads, size), "k": ("p", page, kv_heads, size),
                "v": ("p", page, kv_heads, size), "table": ("b", "m"), "starts": (dim("b") + 1,), "lengths": ("b",)}  # fmt: skip
    dims = {"t": len(q), "b": len(new), "m": most, "p": len(k)}
    return Known("paged_attention", [("PagedAttention", list(arrays), ["y"], {})], arrays, ["y"], (), symbolic, (), dims,
                 results={"y": y})  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_attention(host: str) -> None:
    check(attention([1, 40, 0, 3], [21, 0, 5, 300]), lower_paged_attention, rtol=1e-4, atol=1e-5, hosts=[host])


@pytest.mark.parametrize("page", [1, 48])
def test_pages_of_other_sizes(page: int) -> None:
    check(attention([1, 20], [50, 3], np.float16, page), lower_paged_attention, rtol=2e-3, atol=1e-3, hosts=HOSTS[-1:])


def test_chips_have_no_kernel_that_reads_pages() -> None:
    case = attention([1], [3])
    with pytest.raises(NotLowerable, match="on hosts only"):
        lower_paged_attention(case.node(case.expected()), target(CHIPS[0]))


@pytest.mark.parametrize("shape", [(5, 4, 2, 24), (3, 8, 70), (2, 3, 1, 4100)], ids=str)
def test_rows_at_slots(shape: tuple[int, ...]) -> None:
    """Of equal slots the last stays; the slot behind all pages takes no row; the other rows stay."""
    count, page = shape[:2]
    slots = np.array([3, count * page, 0, count * page - 1, 3], np.int64)
    rows = RNG.normal(size=(len(slots), *shape[2:])).astype(np.float32)
    result = np.full(shape, 77, np.float32)  # what `check` puts into results
    for row, slot in zip(rows, slots, strict=True):
        if slot < count * page:
            result[slot // page, slot % page] = row
    arrays = {"x": np.full(shape, 77, np.float32), "u": rows, "i": slots}
    symbolic = {"x": ("p", *shape[1:]), "y": ("p", *shape[1:]), "u": ("t", *shape[2:]), "i": ("t",)}
    case = Known("scatter_pages", [("ScatterPages", ["x", "u", "i"], ["y"], {})], arrays, ["y"], (), symbolic, (),
                 {"p": count, "t": len(slots)}, results={"y": result})  # fmt: skip
    check(case, lower_scatter_pages)
    check(case, lower_scatter_pages, hosts=CHIPS)
    values = {k: aligned(v) for k, v in {**arrays, "i": slots + 1, "y": result}.items()}
    with pytest.raises(RuntimeError, match="status 2"):
        execute(lower_scatter_pages(case.node(case.expected()), target(HOSTS[-1])), values, case.dims, HOSTS[-1])
