"""What the verifier accepts on which target, and what it refuses, each with the statement and the reason."""

from __future__ import annotations

import pytest

from codegen.targets import chip_names, host_class_names, target
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from tests.tile import programs

HOST = target("x86-64-v3")
CHIP = target("Ascend910B2")


@pytest.mark.parametrize("name", programs.ALL)
@pytest.mark.parametrize("host", host_class_names())
def test_shared_programs_are_safe_on_every_host(name: str, host: str) -> None:
    verify(programs.ALL[name], target(host))


def test_explicit_matmul_on_chips() -> None:
    verify(programs.chip_matmul(), CHIP)
    with pytest.raises(VerifyError, match="no path L0C -> GM"):
        verify(programs.chip_matmul(), target("Ascend310P3"))


def _program(body: str, declarations: str = "", grid: str = "", dims: str = "m in [1, inf]") -> str:
    return f"""program p ({dims}) {{
      param in x: f32[m, 64]
      param in idx: i32[m]
      param out y: f32[m, 64]
      {declarations}
      {"grid " + grid if grid else ""}
      body {{ {body} }}
    }}"""


GOOD = {
    "tail block": ("TMULS y[64*b + _0, _1]{min(64, m - 64*b), 64}, x[64*b + _0, _1]{min(64, m - 64*b), 64}, 2.0", "",
                   "b < ((m + 63)//64)"),
    "condition bounds an index": ("for i < m { if i < m - 1 { TEXP y[i, _0]{64}, x[i + 1, _0]{64} } }", "", ""),
    "else branch bounds an index": ("for i < m { if i == 0 { } else { TEXP y[i, _0]{64}, x[i - 1, _0]{64} } }", "", ""),
    "negated order": ("for i < m { if m - 1 <= i { } else { TEXP y[i, _0]{64}, x[i + 1, _0]{64} } }", "", ""),
    "dim from a tensor": ("read r = idx[0]{} in [0, m] TEXP y[_0, _1]{r, 64}, x[_0, _1]{r, 64}", "", ""),
    "reversed axis": ("TEXP y[_0, _1]{m, 64}, x[m - 1 - _0, 63 - _1]{m, 64}", "", ""),
    "grid by division": ("TEXP y[g//2, 32*(g%2) + _0]{32}, x[g//2, 32*(g%2) + _0]{32}", "", "g < 2*m"),
    "grid of three by division": ("TEXP y[g//8, 32*(g//4%2) + 8*(g%4) + _0]{8}, x[0, _0]{8}", "", "g < 8*m"),
    "grid by a run-time divisor": ("TEXP z[g//k, g%k, _0]{64}, x[0, _0]{64}", "param out z: f32[m, k, 64]", "g < k*m"),
    "flat output": ("TEXP z[64*i + _0]{64}, x[i, _0]{64}", "param out z: f32[64*m]", "i < m"),
    "symbolic step": ("TEXP z[k*i + _0]{k}, z[k*i + _0]{k}", "param inout z: f32[k*m]", "i < m"),
    "two parts of one row": ("TEXP y[i, _0]{32}, x[i, _0]{32} TEXP y[i, 32 + _0]{32}, x[i, _0]{32}", "", "i < m"),
    "halves of one tile": ("TLOAD t[_0]{64}, x[0, _0]{64} TADD t[_0]{32}, t[_0]{32}, t[32 + _0]{32}",
                           "tile t: f32[64] UB", ""),
    "broadcast over units": ("TLOAD t[_0, _1]{4, 1}, x[0, 4*_1 + _0]{4, 1} TEXP t[_0, _1]{4, 1}, t[_0, 0]{4, 1}",
                             "tile t: f32[4, 1] UB", ""),
    "the first and the last write more": (
        "TEXPANDS z[10*i + _0 + 10, _1]{10, 64}, 1.0 if i == 0 { TEXPANDS z[_0, _1]{10, 64}, 0.0 } "
        "if i == 3 { TEXPANDS z[_0 + 50, _1]{10, 64}, 0.0 }", "param out z: f32[60, 64]", "i < 4"),
    "each of two writes its part": (
        "if i < 1 { for t < m { TEXPANDS z[t, i, _0]{4}, 1.0 } } else { for t < m { TEXPANDS z[m - 1 - t, i, _0]{4}, 2.0 } }",
        "param out z: f32[m, 2, 4]", "i < 2"),
    "one grid index writes": ("if i == 0 { TEXPANDS z[_0]{4}, 1.0 }", "param out z: f32[4]", "i < m"),
    "scattered rows": ("TSCATTER y[_0, _1]{m, 64}, x[i, _1]{1, 64}, idx[i]{1, 64} axis=0", "", "i < m"),
    "immediates only": ("TADDS y[0, _0]{64}, 1.0, 2.0", "", ""),
    "padded load": ("TLOAD t[_0]{64}, x[0, 3*_0 - 60]{64} pad=0.0", "tile t: f32[64] UB", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_accepts(case: str) -> None:
    body, declarations, grid = GOOD[case]
    dims = "m in [1, inf], k in [1, inf]" if "k" in body else "m in [1, inf]"
    verify(parse_program(_program(body, declarations, grid, dims)), HOST)


BAD = {
    "beyond the end": ("TEXP y[_0, _1]{m, 64}, x[_0 + 1, _1]{m, 64}", "", "", "may reach beyond m"),
    "before the start": ("TEXP y[_0, _1]{m, 64}, x[_0, _1 - 1]{m, 64}", "", "", "may be negative"),
    "tail forgotten": ("TEXP y[64*b + _0, _1]{64, 64}, x[64*b + _0, _1]{64, 64}", "", "b < ((m + 63)//64)",
                       "may reach beyond m"),
    "negative extent": ("TEXP y[_0, _1]{m - 2, 64}, x[_0, _1]{m - 2, 64}", "", "", "may be negative"),
    "negative trip count": ("for i < m - 2 { }", "", "", "may be negative"),
    "condition says less": ("for i < m { if i <= m - 1 { TEXP y[i, _0]{64}, x[i + 1, _0]{64} } }", "", "",
                            "may reach beyond m"),
    "fact holds in its branch only": ("for i < m { if i == 0 { TEXP y[i, _0]{64}, x[i + m, _0]{64} } }", "", "",
                                      "may reach beyond m"),
    "dim from a tensor": ("read r = idx[0]{} in [0, m + 1] TEXP y[_0, _1]{r, 64}, x[_0, _1]{r, 64}", "", "",
                          "may reach beyond m"),
    "undefined dim": ("TEXP y[_0, _1]{q, 64}, x[_0, _1]{q, 64}", "", "", "q is not defined"),
    "loop variable outside": ("for i < m { } TEXP y[i, _0]{64}, x[i, _0]{64}", "", "", "i is not defined"),
    "axis variable beyond the rank": ("TEXP y[0, _1]{64}, x[0, _0]{64}", "", "", "_1 is not defined"),
    "undefined base": ("TEXP y[0, _0]{64}, w[0, _0]{64}", "", "", "w is not defined"),
    "defined twice": ("for m < 3 { }", "", "", "m is defined already"),
    "divisor may be zero": ("TEXP y[0, _0]{64}, x[0, _0%n]{64}", "", "", "n is not defined"),
    "wrong rank": ("TEXP y[_0]{64}, x[0, _0]{64}", "", "", "rank 2"),
    "not linear": ("TEXP y[0, _0]{64}, x[0, (_0//2)]{64}", "", "", "not linear"),
    "extents differ": ("TEXP y[0, _0]{64}, x[0, _0]{63}", "", "", "extents"),
    "dtype differs": ("TADD y[_0, 0]{m}, x[_0, 0]{m}, idx[_0]{m}", "", "", "disagree in dtype"),
    "float operation on integers": ("TEXP z[_0]{m}, idx[_0]{m}", "param out z: i32[m]", "", "float operands"),
    "result dtype": ("TCMPS y[0, _0]{64}, x[0, _0]{64}, 0.0 mode=lt", "", "", "gives bool"),
    "source count": ("TADD y[0, _0]{64}, x[0, _0]{64}", "", "", "takes 2 sources"),
    "comparison of immediates": ("TCMPS f[_0]{64}, 1.0, 0.0 mode=lt", "tile f: bool[64] UB", "", "needs a view"),
    "unknown attribute": ("TEXP y[0, _0]{64}, x[0, _0]{64} fast=1", "", "", "no attribute fast"),
    "reduced axis in dst": ("TROWSUM y[_0, _1]{m, 64}, x[_0, _1]{m, 64} axes=(1)", "", "", "occurs in the destination"),
    "matmul extents": ("TMATMUL y[_0, _1]{m, 64}, x[_0, _1]{m, 64}, w[_0, _1]{65, 64} nm=1 nk=1",
                       "param in w: f32[65, 64]", "", "do not give"),
    "input written": ("TEXP x[0, _0]{64}, x[0, _0]{64}", "", "", "is an input"),
    "output read": ("TEXP y[0, _0]{64}, y[0, _0]{64}", "", "", "read before it is written"),
    "overlap": ("TLOAD t[_0]{64}, x[0, _0]{64} TADD t[_0]{32}, t[_0]{32}, t[16 + _0]{32}", "tile t: f32[64] UB", "",
                "overlaps"),
    "in-place broadcast": ("TLOAD t[_0]{64}, x[0, _0]{64} TADD t[_0]{64}, t[_0]{64}, t[0]{64}", "tile t: f32[64] UB",
                           "", "overlaps"),
    "destination repeats": ("TEXP y[0, _0]{64, 2}, x[0, _0]{64, 2}", "", "", "one element twice"),
    "destination folds": ("TEXP y[0, _0 + _1]{32, 33}, x[0, _0 + _1]{32, 33}", "", "", "one element twice"),
    "race": ("TEXP y[0, _0]{64}, x[i, _0]{64}", "", "i < m", "differ in i"),
    "race after division": ("TEXP y[g//4, 32*(g%2) + _0]{32}, x[0, _0]{32}", "", "g < 4*m", "differ in g"),
    "race of blocks": ("TEXP y[63*i + _0, _1]{64, 64}, x[63*i + _0, _1]{64, 64}", "", "i < ((m - 1)//63)",
                       "differ in i"),
    "race of the first": ("TEXPANDS z[10*i + _0, _1]{10, 64}, 1.0 if i == 0 { TEXPANDS z[_0 + 5, _1]{10, 64}, 0.0 }",
                          "param out z: f32[40, 64]", "i < 4", "differ in i"),
    "race of the last": ("TEXPANDS z[10*i + _0, _1]{10, 64}, 1.0 if i == 3 { TEXPANDS z[_0 + 25, _1]{10, 64}, 0.0 }",
                         "param out z: f32[40, 64]", "i < 4", "differ in i"),
    "race of the first, downwards": (
        "TEXPANDS z[_0 + 30 - 10*i, _1]{10, 64}, 1.0 if i == 0 { TEXPANDS z[_0 + 10, _1]{10, 64}, 0.0 }",
        "param out z: f32[40, 64]", "i < 4", "differ in i"),
    "race of one of two": ("TEXP y[i, _0]{64}, x[i, _0]{64} TEXP y[0, _0]{64}, x[i, _0]{64}", "", "i < m",
                           "differ in i"),
    "neighbour is read": ("TLOAD t[0]{}, z[m - 1 - i]{} TSTORE z[i]{}, t[0]{}",
                          "param inout z: f32[m] tile t: f32[1] UB", "i < m", "differ in i"),
    "combining scatter races": ("TSCATTER z[_0, _1]{m, 64}, x[i, _1]{1, 64}, idx[i]{1, 64} axis=0 reduce=add",
                                "param inout z: f32[m, 64]", "i < m", "differ in i"),
    "empty range": ("", "", "", "range is empty"),
    "scratch too large": ("", "tile t: f32[8192, 8192] UB", "", "268435456 B in UB"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refuses(case: str) -> None:
    body, declarations, grid, reason = BAD[case]
    dims = "m in [2, 1]" if case == "empty range" else "m in [1, inf]"
    with pytest.raises(VerifyError, match=reason):
        verify(parse_program(_program(body, declarations, grid, dims)), HOST)


def test_the_error_names_the_statement() -> None:
    text = _program("TEXP y[_0, _1]{m, 64}, x[_0, _1]{m, 64} TEXP y[_0, _1]{m, 64}, x[_0, _1 + 1]{m, 64}")
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(text), HOST)
    assert caught.value.statement == "TEXP y[_0, _1]{m, 64}, x[_0, _1 + 1]{m, 64}"


CHIP_BAD = {
    "vector on global memory": ("TEXP y[0, _0]{64}, x[0, _0]{64}", "", "does not reach y in GM"),
    "vector on L1": ("TLOAD t[_0]{64}, x[0, _0]{64} TEXP t[_0]{64}, t[_0]{64}", "tile t: f32[64] L1", "in L1"),
    "cube to vector": ("TMOV u[_0]{64}, t[_0]{64}", "tile t: f32[64] L0C tile u: f32[64] UB", "no path L0C -> UB"),
    "straight to L0A": ("TLOAD t[_0]{64}, x[0, _0]{64}", "tile t: f32[64] L0A", "no path GM -> L0A"),
    "rows not aligned": ("", "tile t: f32[64, 7] UB", "28 B"),
    "double buffers too large": ("", "tile t: f32[128, 256] UB depth 2", "262144 B in UB"),
    "cube operands": ("TMATMUL c[_0, _1]{16, 16}, a[_0, _1]{16, 16}, a[_0, _1]{16, 16}",
                      "tile a: f32[16, 16] L0A tile c: f32[16, 16] L0C", "instead of L0A, L0B, L0C"),
    "no such dtype": ("TADDS t[_0]{64}, t[_0]{64}, 1", "tile t: i64[64] UB", "no i64"),
    "conversion on a move": ("TLOAD t[_0]{64}, x[0, _0]{64} TSTORE z[_0]{64}, t[_0]{64}",
                             "param out z: f16[64] tile t: f32[64] UB", "out of L0C convert"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHIP_BAD)
def test_chip_refuses(case: str) -> None:
    body, declarations, reason = CHIP_BAD[case]
    with pytest.raises(VerifyError, match=reason):
        verify(parse_program(_program(body, declarations)), CHIP)


@pytest.mark.parametrize("chip", chip_names())
def test_vector_program_on_chips(chip: str) -> None:
    body = """TLOAD t[_0]{64}, x[i, _0]{64} TROWMAX s[0]{64}, t[_0]{64} axes=(0) TSUB t[_0]{64}, t[_0]{64}, s[0]{64}
              TSTORE y[i, _0]{64}, t[_0]{64}"""
    verify(parse_program(_program(body, "tile t: f32[64] UB tile s: f32[8] UB", "i < m")), target(chip))
