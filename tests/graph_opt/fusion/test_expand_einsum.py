"""Einsum as a product: every order of labels, against numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest

from graph_opt.fusion.expand_einsum import ExpandEinsum, labels_of
from graph_opt.ir.text import parse
from graph_opt.ir.verifier import verify
from tests.graph_opt.simplify.graph_to_onnx import run

SIZES = {"n": 3, "m": 5}
CASES = [
    ("ij->ji", "n3"), ("ij->j", "n3"), ("ij->", "n3"), ("ji", "n3"), ("i->i", "n"),
    ("bij,bjk->bik", "n45 n5m"), ("bij,bik->bjk", "nm4 nm3"), ("bij,bkj->bik", "n34 n54"),
    ("bij,bij->bi", "nm4 nm4"), ("bij,bij->", "n34 n34"), ("bij,bik->bijk", "nm4 nm3"), ("i,j->ij", "n m"),
    ("bqhd,bkhd->bhqk", "nm28 nm28"), ("bhqk,bkhd->bqhd", "n2mm nm28"), ("abc,cd->abd", "nm4 45"),
    ("abc,cde->abde", "nm4 423"), ("abcd,cde->abe", "nm23 235"), ("...ij,...jk->...ik", "n234 n245"),
    ("bnij,bnjk", "2334 2345"), ("ij,j->i", "n4 4"), ("j,ij->i", "4 n4"), ("bhwc,hkc->bhwk", "n355 345"),
    ("bhwc,wkc->bhwk", "n355 545"), ("ij, jk -> ki", "n4 4m"), ("abc,bad->dc", "nm4 mn3"), ("ij,k->i", "n3 4"), ("bmn,bnmk->bk", "2mn 2nm4"),
]  # fmt: skip
KEPT = {
    "a diagonal": ("ii->i", "33"),
    "an axis that broadcasts": ("ij,jk->ik", "n1 4m"),
    "two run-time extents of one axis": ("bmnk,bk->bmn", "2mn4 24"),
    "three operands": ("ij,jk,kl->il", "n3 34 42"),
}


def graph_of(equation: str, shapes: str):  # noqa: ANN201
    names = [f"%x{i}" for i in range(len(shapes.split()))]
    inputs = ", ".join(f"{x}: f32[{', '.join(s)}]" for x, s in zip(names, shapes.split(), strict=True))
    return parse(f"""\
graph g({inputs}) -> (%y) {{
  %y = Einsum({", ".join(names)}) {{equation="{equation}"}} @e
  origin "y" = same %y
}}
""")


@pytest.mark.parametrize(("equation", "shapes"), CASES)
def test_the_product_has_the_numbers_of_numpy(equation: str, shapes: str) -> None:
    graph = graph_of(equation, shapes)
    assert ExpandEinsum().apply(graph)
    verify(graph)
    assert not [n for n in graph.nodes if n.op == "Einsum"]
    rng = np.random.default_rng(len(equation))
    arrays = [rng.standard_normal([SIZES.get(c) or int(c) for c in s], np.float32) for s in shapes.split()]
    expected = np.einsum(equation.replace(" ", ""), *(a.astype(np.float64) for a in arrays))
    found = run(graph, {f"x{i}": a for i, a in enumerate(arrays)})["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", KEPT)
def test_what_no_product_says_stays(case: str) -> None:
    graph = graph_of(*KEPT[case])
    assert not ExpandEinsum().apply(graph)
    assert [n.op for n in graph.nodes] == ["Einsum"]


def test_labels() -> None:
    assert labels_of("...ij,jk", [4, 2]) == (["10ij", "jk"], "10ik")
    assert labels_of(" ba ", [2]) == (["ba"], "ab")
