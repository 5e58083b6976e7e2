"""One bad program for each rule of the tile verifier that tests/tile/test_verifier.py does not break already.

A case is the body of a program over `x: f32[m, 64]`, `idx: i32[m]` and `y: f32[m, 64]`, more declarations, a grid, and
the reason of the refusal. What the text form cannot say is built by changing a program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from codegen.targets import target
from codegen.tile import verifier
from codegen.tile.ir import For, If, Imm, Instr, Program, View
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from tensor_types.dims import dim
from tensor_types.dtypes import dtype

HOST = target("x86-64-v3")
SQUARE = "tile a: f32[16, 16] UB tile b: f32[16, 16] UB tile h: f16[16, 16] UB tile i: i32[16, 16] UB"
ALL = "[_0, _1]{16, 16}"

DECLARATIONS = {
    "negative extent": ("", "param in w: f32[m - 2]", "", "m - 2 may be negative"),
    "empty tile": ("", "tile t: f32[0] UB", "", "extents are positive"),
    "no buffer": ("", "tile t: f32[64] UB depth 0", "", "depth is at least 1"),
    "strings": ("", "param in w: str[m]", "", "str has no tile instructions"),
    "tile of complex numbers": ("", "tile t: c64[8] UB", "", "c64 has no tile instructions"),
    "grid extent names a grid variable": ("", "", "i < m, j < i + 1", "depends on the program's dims only"),
    "negative grid extent": ("", "", "i < m - 2", "extent may be negative"),
    "reserved word": ("", "param in inf: f32[m]", "", "'inf' is not a name"),
    "axis variable": ("for _0 < 3 { }", "", "", "_0 is an axis variable"),
    "two dots": ("for a..b < 3 { }", "", "", "contains two dots"),
    "divisor may be 0": ("TEXP y[0, _0]{64}, x[0, _0]{64//(m - 1)}", "", "", "may be below 1"),
}

STATEMENTS = {
    "dim read from no axis": ("read r = idx[0]{1} in [0, m]", "", "", "view of rank 0"),
    "dim read from floats": ("read r = x[0, 0]{} in [0, m]", "", "", "read from integers"),
    "workspace read first": ("TLOAD t[_0]{64}, w[_0]{64}", "param workspace w: f32[64] tile t: f32[64] UB", "",
                             "workspace parameter w is read before"),
    "sum into what nobody wrote": ("TROWSUM z[0]{64}, x[0, _0]{64} axes=(0) acc=1", "param out z: f32[1]", "",
                                   "read before it is written"),
    # In place is for instructions that read an element before they write it, and no other.
    "matmul in place": (f"TMATMUL a{ALL}, a{ALL}, b{ALL}", SQUARE, "", "overlaps the source a"),
    "accumulating matmul in place": (f"TMATMUL_ACC a{ALL}, b{ALL}, a{ALL}", SQUARE, "", "overlaps the source a"),
    "gather in place": (f"TGATHER a{ALL}, a{ALL}, i{ALL} axis=0", SQUARE, "", "overlaps the source a"),
    "scatter in place": (f"TSCATTER a{ALL}, a{ALL}, i{ALL} axis=0", SQUARE, "", "overlaps the source a"),
    "reduction of what it repeats, in place": ("TROWSUM a[_0, 0]{16, 16}, a[_0, 0]{16, 16} axes=(1)", SQUARE, "",
                                               "overlaps the source a"),
    "reduction in place": ("TROWSUM a[_0, 0]{16, 16}, a[_0, _1]{16, 16} axes=(1)", SQUARE, "", "overlaps the source a"),
}  # fmt: skip

OPERANDS = {
    "bits of a float": (f"TAND a{ALL}, a{ALL}, a{ALL}", "takes bits operands"),
    "shift of a float": (f"TSHL a{ALL}, a{ALL}, a{ALL}", "takes integer operands"),
    "sum of bools": ("TADD f[_0]{64}, f[_0]{64}, f[_0]{64}", "takes number operands"),
    "fill with a view": (f"TEXPANDS a{ALL}, b{ALL}", "TEXPANDS takes an immediate"),
    "move of an immediate": (f"TMOV a{ALL}, 1.0", "other moves a view"),
    "converting load": (f"TLOAD h{ALL}, x[0, _0 + _1]{{16, 16}}", "only TCVT, TSTORE, TMOV convert"),
    "selection by numbers": (f"TSEL a{ALL}, a{ALL}, a{ALL}, b{ALL}", "first source is a bool view"),
    "comparison of no mode": ("TCMP f[_0]{64}, x[0, _0]{64}, x[0, _0]{64} mode=less", "mode is one of"),
    "flag of a conversion": (f"TCVT h{ALL}, a{ALL} round=2", "round is 0 or 1"),
    "reduction of an immediate": ("TROWSUM a[0, 0]{16}, 1.0 axes=(0)", "reduces a view"),
    "no axes": ("TROWSUM a[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=()", "axes are distinct numbers below 2"),
    "axis beyond the rank": ("TROWSUM a[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(2)", "distinct numbers below 2"),
    "axis twice": ("TROWSUM a[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(1, 1)", "distinct numbers below 2"),
    "arg max over two": ("TROWARGMAX i[0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(0, 1)", "takes one axis"),
    "index as a float": ("TROWARGMAX a[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(1)", "gives integers"),
    "reduction converts": ("TROWSUM h[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(1)", "reduces f32 into f16"),
    "flag of a reduction": ("TROWMAX a[_0, 0]{16, 16}, b[_0, _1]{16, 16} axes=(1) nan=2", "nan is 0 or 1"),
    "scan of an immediate": ("TCUMSUM a[_0, _1]{16, 16}, 1.0 axis=0", "scans a view"),
    "scan converts": (f"TCUMSUM h{ALL}, a{ALL} axis=0", "disagree in dtype"),
    "scan along no axis": (f"TCUMSUM b{ALL}, a{ALL} axis=2", "axis is a number below 2"),
    "flag of a scan": (f"TCUMSUM b{ALL}, a{ALL} axis=1 reverse=2", "reverse is 0 or 1"),
    "product with an immediate": (f"TMATMUL a{ALL}, b{ALL}, 1.0", "multiplies views"),
    "product of no axes": (f"TMATMUL a{ALL}, b{ALL}, b{ALL} nk=0", "nm and nk count axes"),
    "ranks of a product": (f"TMATMUL a{ALL}, b{ALL}, b{ALL} nm=2", "ranks of dst, a and b are not 3, 3 and 2"),
    "product of two dtypes": (f"TMATMUL a{ALL}, h{ALL}, b{ALL}", "multiplies f16 by f32"),
    "product of codes in no words": (f"TMATMUL a{ALL}, b[_0, _2]{{16, 1, 8}}, b[0, _0]{{16}} nk=2 bits=4", "ranks of dst, a and b"),
    "product of codes of three bits": (f"TMATMUL a{ALL}, b{ALL}, b{ALL} bits=3", "bits is one of"),
    "product narrows": (f"TMATMUL h{ALL}, b{ALL}, a{ALL}", "accumulates f32 in f32, the destination holds f16"),
    "gather of an immediate": (f"TGATHER a{ALL}, 1.0, i{ALL} axis=0", "takes views"),
    "gather along no axis": (f"TGATHER a{ALL}, b{ALL}, i{ALL} axis=2", "axis is a number below 2"),
    "too few indices": (f"TGATHER a{ALL}, b{ALL}, i[_0, _1]{{16, 8}} axis=0", "indices have extents"),
    "gather across": (f"TGATHER a{ALL}, b[_0, _1]{{16, 8}}, i{ALL} axis=0", "may differ from the others on axis 0"),
    "gather converts": (f"TGATHER a{ALL}, h{ALL}, i{ALL} axis=0", "disagree in dtype"),
    "indices are floats": (f"TGATHER a{ALL}, b{ALL}, b{ALL} axis=0", "indices are integers"),
    "unknown combination": (f"TSCATTER a{ALL}, b{ALL}, i{ALL} axis=0 reduce=sub", "reduce is one of"),
    "sum of bools by index": ("TSCATTER f[_0]{16}, g[_0]{16}, i[0, _0]{16} axis=0 reduce=add", "does not combine bool"),
    "flag of a gather": (f"TGATHER a{ALL}, b{ALL}, i{ALL} axis=0 wrap=2", "wrap is 0 or 1"),
    "nothing there to read soon": ("TPREFETCH a[_0 + 1, _1]{16, 8}", "may reach beyond 16"),
    "order of no engines": ("TSYNC a[0, 0]{} from=MTE9 to=V", "from and to are engines"),
}
BOOLS = "tile f: bool[64] UB tile g: bool[64] UB"


def program(body: str, declarations: str = "", grid: str = "") -> Program:
    return parse_program(f"""program p (m in [1, inf]) {{
      param in x: f32[m, 64]
      param in idx: i32[m]
      param out y: f32[m, 64]
      {declarations}
      {"grid " + grid if grid else ""}
      body {{ {body} }}
    }}""")


@pytest.mark.parametrize("case", [*DECLARATIONS, *STATEMENTS])
def test_refuses(case: str) -> None:
    *parts, reason = {**DECLARATIONS, **STATEMENTS}[case]
    with pytest.raises(VerifyError, match=reason):
        verify(program(*parts), HOST)


@pytest.mark.parametrize("case", OPERANDS)
def test_refuses_operands(case: str) -> None:
    body, reason = OPERANDS[case]
    with pytest.raises(VerifyError, match=reason):
        verify(program(body, SQUARE + " " + BOOLS), HOST)


GOOD = program("TEXP y[i, _0]{64}, x[i, _0]{64}", grid="i < m")
EXP = GOOD.body[0]
assert isinstance(EXP, Instr)


def _body(*stmts: object) -> Program:
    return replace(GOOD, body=tuple(stmts))  # type: ignore[arg-type]


def _param(**changes: object) -> Program:
    return replace(GOOD, params=(replace(GOOD.params[0], **changes), *GOOD.params[1:]))  # type: ignore[arg-type]


BUILT: dict[str, tuple[Callable[[], Program], str]] = {
    "name": (lambda: replace(GOOD, name="P-1"), "made of a-z"),
    "instruction": (lambda: _body(replace(EXP, op="TNONE")), "unknown instruction"),
    "role": (lambda: _param(role="both"), "unknown role both"),
    "strides": (lambda: _param(strides=(1,)), "one stride per axis"),
    "negative stride": (lambda: _param(strides=(dim("m") - 2, 1)), "may be negative"),
    "dtype of a parameter": (lambda: _param(dtype=dtype("c64")), "no tile instructions"),
    "relation": (lambda: _body(If(1, ">", 0, ())), "unknown relation >"),
    "attribute twice": (
        lambda: _body(Instr("TCVT", EXP.dst, EXP.srcs, (("sat", 1), ("sat", 0)))), "attribute is given twice"
    ),
    "pad is a word": (lambda: _body(Instr("TLOAD", EXP.dst, EXP.srcs, (("pad", "zero"),))), "pad is a number"),
    "rank of a view": (lambda: _body(replace(EXP, srcs=(View("x", (0,), ()),))), "x has rank 2"),
    "immediate sources": (lambda: _body(replace(EXP, srcs=(Imm(1.0), Imm(2.0)))), "takes 1 sources, has 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BUILT)
def test_refuses_what_no_text_says(case: str) -> None:
    build, reason = BUILT[case]
    verify(GOOD, HOST)
    with pytest.raises(VerifyError, match=reason):
        verify(build(), HOST)


def test_refuses_deep_and_long_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MAX_NESTING", 3)
    nested: tuple[object, ...] = ()
    for depth in range(5):
        nested = (For(f"v{depth}", 2, nested),)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="nested deeper than 3"):
        verify(_body(*nested), HOST)
    monkeypatch.setattr(verifier, "MAX_STATEMENTS", 2)
    verify(_body(EXP, EXP), HOST)
    with pytest.raises(VerifyError, match="more than 2 statements"):
        verify(_body(EXP, EXP, EXP), HOST)


CHIP = {
    "a path for another instruction": ("TMOV t[_0]{64}, x[0, _0]{64}", "tile t: f32[64] UB", "TMOV does not move GM"),
    "cube of f64": ("TMATMUL c[_0, _1]{16, 16}, a[_0, _1]{16, 16}, b[_0, _1]{16, 16}",
                    "tile a: f64[16, 16] L0A tile b: f64[16, 16] L0B tile c: f64[16, 16] L0C", "has no f64"),
    "cube of codes": ("TMATMUL c[_0, _1]{16, 32}, a[_0, _1]{16, 32}, b[_0, _1]{32, 32}",
                      "tile a: f16[16, 32] L0A tile b: i8[32, 32] L0B tile c: f32[16, 32] L0C",
                      "multiplies f16 by f16, not by codes of i8"),
    "gather within L1": ("TGATHER t[_0]{64}, u[_0]{64}, v[_0]{64} axis=0",
                         "tile t: f32[64] UB tile u: f32[64] L1 tile v: i32[64] UB", "does not reach u in L1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHIP)
def test_chip_refuses(case: str) -> None:
    body, declarations, reason = CHIP[case]
    with pytest.raises(VerifyError, match=reason):
        verify(program(body, declarations), target("Ascend910B2"))
