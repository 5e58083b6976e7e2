"""The text form: round trips, exact numbers, and a TileSyntaxError with a line for everything malformed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import Imm, Instr, Program
from codegen.tile.text import TileSyntaxError, parse_program, program_to_text
from tensor_types.dtypes import F32, I32
from tests.tile import programs

SAMPLE = """program sample (m in [1, inf], n in [0, 64]) {
  param in a: f32[m, 768]
  param out c: f32[m, 768] strides [1024, 1]
  param in counts: i32[12]
  tile acc: f32[64, 64] L0C depth 2
  tile flag: bool[64]
  grid np < 12, mb < ((m + 63)//64)
  body {
    TLOAD acc[_0, _1]{min(64, m - 64*mb), 64}, a[_0 + 64*mb, _1]{min(64, m - 64*mb), 64} pad=-inf
    for t < 4 {
      if t == 0 {
        TADDS acc[_0, _1]{64, 64}, acc[_0, _1]{64, 64}, 1.5
      } else {
        TEXP acc[_0, _1]{64, 64}, acc[_0, _1]{64, 64}
      }
      if t <= 2 {
      }
    }
    read rows = counts[np]{} in [0, 64]
    TROWMAX acc[_0, 0]{64, 64}, acc[_0, _1]{64, 64} axes=(1) nan=1
    TCMPS flag[_0]{64}, acc[_0, 0]{64}, nan mode=lt
    TSYNC acc[0, 0]{} from=MTE2 to=V
  }
}
""".replace("bool[64]\n", "bool[64] UB\n")


def test_prints_what_it_reads() -> None:
    assert program_to_text(parse_program(SAMPLE)) == SAMPLE


def test_line_breaks_and_spaces_carry_no_meaning() -> None:
    assert program_to_text(parse_program(" ".join(SAMPLE.split()))) == SAMPLE


@pytest.mark.parametrize("name", programs.ALL)
def test_built_programs_round_trip(name: str) -> None:
    program = programs.ALL[name]
    assert parse_program(program_to_text(program)) == program


def _fill(value: float | int | bool) -> Program:
    b = ProgramBuilder("fill")
    b.expands(b.param("y", F32, (), "out"), value)
    return b.finish()


@given(st.floats() | st.integers(-(1 << 63), 1 << 63) | st.booleans())
@settings(max_examples=300, deadline=None)
def test_immediates_are_exact(value: float | int | bool) -> None:
    stmt = parse_program(program_to_text(_fill(value))).body[0]
    assert isinstance(stmt, Instr) and isinstance(stmt.srcs[0], Imm)
    back = stmt.srcs[0].value
    assert type(back) is type(value)
    if isinstance(value, float):
        assert math.isnan(value) == math.isnan(back)
        assert math.isnan(value) or (back == value and math.copysign(1, back) == math.copysign(1, value))
    else:
        assert back == value


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("program sample", "program Sample", 1),
        ("param in a", "param inn a", 2),
        ("f32[m, 768]\n", "f33[m, 768]\n", 2),
        ("strides [1024, 1]", "strides [1024, 1", 4),
        ("L0C depth 2", "L0D depth 2", 5),
        ("L0C depth 2", "L0C depth m", 5),
        ("pad=-inf", "pad=", 10),
        ("pad=-inf", "pad=-", 10),
        ("for t < 4", "for t <= 4", 10),
        ("t == 0", "t != 0", 11),
        ("TADDS", "TADD", 12),
        ("TEXP ", "TEXQ ", 14),
        ("TADDS acc[_0, _1]{64, 64},", "TADDS 1.0,", 12),
        ("in [0, 64]\n", "in [0]\n", 19),
        ("axes=(1)", "axes=(1.5)", 20),
        ("acc[_0, 0]{64, 64}, acc", "acc[_0 // 0, 0]{64, 64}, acc", 20),
        ("to=V\n  }\n}\n", "to=V\n  }\n", 23),
        ("to=V\n  }\n}\n", "to=V\n  }\n}\n}", 25),
        ("TSYNC", "TSYNC;", 22),
    ],
)
def test_malformed_text_names_the_line(old: str, new: str, line: int) -> None:
    assert old in SAMPLE
    with pytest.raises(TileSyntaxError) as caught:
        parse_program(SAMPLE.replace(old, new, 1))
    assert caught.value.line == line


@given(st.integers(0, len(SAMPLE)), st.integers(0, 12), st.text("[]{}(),<=*/%-+ m0_9.tfor", max_size=6))
@settings(max_examples=600, deadline=None)
def test_damaged_text_is_a_program_or_a_syntax_error(at: int, cut: int, insert: str) -> None:
    try:
        parse_program(SAMPLE[:at] + insert + SAMPLE[at + cut :])
    except TileSyntaxError:
        pass


@pytest.mark.parametrize(
    "body",
    [
        "for i < 2 { " * 80 + "}" * 80,
        "TEXP a[0]{}, a[0]{} " * 20001,
        "TEXP a[" + "(" * 100 + "0" + ")" * 100 + "]{}, a[0]{}",
        "TEXP a[" + ", ".join(["0"] * 2000) + "]{}, a[0]{}",
        "TEXP a[" + "*".join(["(i + j + k + l)"] * 40) + "]{}, a[0]{}",
        "TADDS a[0]{}, a[0]{}, " + "9" * 5000,
    ],
)
def test_sizes_are_bounded(body: str) -> None:
    with pytest.raises(TileSyntaxError):
        parse_program("program x () { body { " + body + " } }")


def test_builder_refuses_what_does_not_exist() -> None:
    b = ProgramBuilder("x")
    y = b.param("y", I32, (4,), "out")
    with pytest.raises(AttributeError):
        b.frobnicate(y)
    with pytest.raises(ValueError, match="no attribute"):
        b.rowsum(y, y, axis=0)
    with pytest.raises(ValueError, match="follow"), b.otherwise():
        pass
