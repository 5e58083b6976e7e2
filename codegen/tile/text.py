"""The text of a tile program: its one serialised form, printed deterministically and read back exactly.

`parse_program(program_to_text(p)) == p`. Line breaks carry no meaning; everything the reader accepts is bounded.

    program scale (m in [1, inf]) {
      param in x: f32[m, 64]
      param out y: f32[m, 64] strides [128, 1]
      tile t: f32[64] UB depth 2
      grid i < m
      body {
        TLOAD t[_0]{64}, x[i, _0]{64}
        TMULS t[_0]{64}, t[_0]{64}, 0.5
        TSTORE y[i, _0]{64}, t[_0]{64}
      }
    }
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import (
    ROLES,
    SCOPES,
    AttrValue,
    DimParam,
    For,
    If,
    Imm,
    Instr,
    Operand,
    Param,
    Program,
    ReadDim,
    Scalar,
    Stmt,
    Tile,
    View,
)
from tensor_types import dim_text
from tensor_types.dims import Dim, Expr
from tensor_types.dtypes import DTYPES
from tensor_types.effort import effort
from tensor_types.limits import limit

MAX_TEXT = 1 << 24
"""Longest text in characters."""
MAX_STATEMENTS = 20000
MAX_NESTING = 64
MAX_LIST = 1024
"""Most entries of any list: parameters, tiles, dims, axes, operands, attributes."""
MAX_INTEGER = 1 << 64

_T = TypeVar("_T")
_SIZE = "size"
"""What stands before an expression of dims in the place of a number."""


class TileSyntaxError(ValueError):
    """The text is no tile program; `line` (from 1) is where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


# Printing


def program_to_text(program: Program) -> str:
    """The canonical text of a program, ending in a line break."""
    lines = [f"program {program.name} ({', '.join(map(_dim_param, program.dims))}) {{"]
    for param in program.params:
        strides = "" if param.strides is None else f" strides [{_list(param.strides)}]"
        lines.append(f"  param {param.role} {param.name}: {param.dtype}[{_list(param.shape)}]{strides}")
    for tile in program.tiles:
        depth = f" depth {tile.depth}" if tile.depth != 1 else ""
        lines.append(f"  tile {tile.name}: {tile.dtype}[{_list(tile.shape)}] {tile.scope}{depth}")
    if program.grid:
        lines.append("  grid " + ", ".join(f"{name} < {extent}" for name, extent in program.grid))
    lines.append("  body {")
    for stmt in program.body:
        _print(stmt, "    ", lines)
    lines += ["  }", "}", ""]
    return "\n".join(lines)


def statement_to_text(stmt: Stmt) -> str:
    """The text of one statement; of a loop or a condition only its head."""
    if isinstance(stmt, Instr):
        parts = ", ".join(map(operand_to_text, (stmt.dst, *stmt.srcs)))
        attrs = "".join(f" {name}={_attr(value)}" for name, value in stmt.attrs)
        return f"{_spelling(stmt.op, stmt.srcs)} {parts}{attrs}"
    if isinstance(stmt, For):
        return f"for {stmt.var} < {stmt.extent}"
    if isinstance(stmt, If):
        return f"if {stmt.left} {stmt.relation} {stmt.right}"
    return f"read {stmt.var} = {operand_to_text(stmt.source)} in [{stmt.low}, {stmt.high}]"


def operand_to_text(operand: Operand) -> str:
    """The text of a view or an immediate."""
    if isinstance(operand, Imm):
        return f"{_SIZE}({operand.value})" if isinstance(operand.value, Expr) else _scalar(operand.value)
    return f"{operand.base}[{_list(operand.index)}]{{{_list(operand.shape)}}}"


def _print(stmt: Stmt, indent: str, lines: list[str]) -> None:
    head = indent + statement_to_text(stmt)
    if isinstance(stmt, For):
        lines.append(head + " {")
        for inner in stmt.body:
            _print(inner, indent + "  ", lines)
        lines.append(indent + "}")
    elif isinstance(stmt, If):
        lines.append(head + " {")
        for inner in stmt.then:
            _print(inner, indent + "  ", lines)
        if stmt.orelse:
            lines.append(indent + "} else {")
            for inner in stmt.orelse:
                _print(inner, indent + "  ", lines)
        lines.append(indent + "}")
    else:
        lines.append(head)


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _dim_param(param: DimParam) -> str:
    return f"{param.name} in [{param.low}, {'inf' if param.high is None else param.high}]"


def _scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else repr(float(value))


def _attr(value: AttrValue) -> str:
    if isinstance(value, tuple):
        return f"({_list(value)})"
    return value if isinstance(value, str) else _scalar(value)


def _spelling(op: str, srcs: tuple[Operand, ...]) -> str:
    """PTO writes a binary instruction with an immediate as its tile-scalar form: TADDS, TMULS."""
    declared = INSTRUCTIONS.get(op)  # an unknown one is the verifier's to refuse, with its text
    binary = declared is not None and declared.kind == "elementwise" and declared.sources == 2
    return op + "S" if binary and any(isinstance(s, Imm) for s in srcs) else op


# Reading

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<mark>//|<=|==|[-+*%(),\[\]{}:<=]))"
)
_HEAD = re.compile(r"\s*program\s+([a-z0-9_]+)\s*(?=\()")


def parse_program(text: str) -> Program:
    """Reads a program; TileSyntaxError on anything malformed or beyond the bounds of this module."""
    if len(text) > MAX_TEXT:
        raise TileSyntaxError(f"text longer than {MAX_TEXT} characters", 1)
    with effort(limit("parse_steps")):
        return _Reader(text).program()


@lru_cache(maxsize=65536)
def _dim(text: str) -> Dim:
    return dim_text.parse(text)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        self.statements = 0
        head = _HEAD.match(text)
        if not head:
            raise TileSyntaxError("expected 'program <name> ('", 1)
        self.name = head[1]
        position, end = head.end(), len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if not match:
                self.starts.append(position)
                raise self.error(f"unexpected character {text[position : position + 20].split()[0][:1]!r}", last=True)
            self.tokens.append(match.group().lstrip())
            self.starts.append(match.start(match.lastgroup or 0))
            position = match.end()
        self.starts.append(end)

    def error(self, message: str, last: bool = False) -> TileSyntaxError:
        start = self.starts[-1 if last else min(self.at, len(self.starts) - 1)]
        return TileSyntaxError(message, self.text.count("\n", 0, start) + 1)

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise self.error("the text ends early")
        self.at += 1
        return token

    def take(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.error(f"expected {token!r}, found {self.peek()!r}")

    def word(self, what: str) -> str:
        token = self.peek()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", token) or len(token) > 256:
            raise self.error(f"expected {what}, found {token!r}")
        return self.next()

    def one_of(self, choices: Iterable[str], what: str) -> str:
        token = self.peek()
        if token not in choices:
            raise self.error(f"unknown {what} {token!r}")
        return self.next()

    def number(self) -> int | float:
        """A signed number; inf and nan are floats."""
        sign = -1 if self.take("-") else 1
        token = self.next()
        if token == "nan":
            return math.nan
        if token == "inf":
            return sign * math.inf
        if not token[0].isdigit() or len(token) > 64:
            self.at -= 1
            raise self.error(f"expected a number, found {token!r}")
        return sign * (int(token) if token.isdigit() else float(token))

    def integer(self) -> int:
        value = self.number()
        if not isinstance(value, int) or abs(value) > MAX_INTEGER:
            self.at -= 1
            raise self.error(f"expected an integer, found {value}")
        return value

    def dim(self) -> Dim:
        """The longest run of tokens that can belong to a dim expression, read by `dim_text.parse`."""
        start, depth = self.at, 0
        while token := self.peek():
            if token in ("]", "}", "{", "<", "<=", "==", "[", ":", "=") or (not depth and token in (",", ")")):
                break
            depth += (token == "(") - (token == ")")
            self.at += 1
            # A name after a complete operand starts something new: `grid i < m body`, `for i < 4 ...`.
            if not depth and (token == ")" or token[0].isalnum() or token[0] == "_"):
                following = self.peek()
                if following and (following[0].isalnum() or following[0] == "_"):
                    break
        try:
            return _dim(" ".join(self.tokens[start : self.at]))
        except ValueError as problem:
            self.at = start
            raise self.error(str(problem)) from None

    def listed(self, opening: str, closing: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        self.expect(opening)
        items: list[_T] = []
        while not self.take(closing):
            if items:
                self.expect(",")
            items.append(item())
            if len(items) > MAX_LIST:
                raise self.error(f"a list of more than {MAX_LIST} entries")
        return tuple(items)

    def program(self) -> Program:
        dim_params = self.listed("(", ")", self.dim_param)
        self.expect("{")
        params: list[Param] = []
        tiles: list[Tile] = []
        grid: list[tuple[str, Dim]] = []
        while self.take("param"):
            params.append(self.param())
            self.limit(params)
        while self.take("tile"):
            tiles.append(self.tile())
            self.limit(tiles)
        if self.take("grid"):
            grid.append(self.bound())
            while self.take(","):
                grid.append(self.bound())
                self.limit(grid)
        self.expect("body")
        body = self.body(0)
        self.expect("}")
        if self.at != len(self.tokens):
            raise self.error("text after the program")
        return Program(self.name, tuple(params), tuple(tiles), tuple(grid), body, dim_params)

    def limit(self, items: list[_T]) -> None:
        if len(items) > MAX_LIST:
            raise self.error(f"more than {MAX_LIST} declarations")

    def dim_param(self) -> DimParam:
        name = self.word("a dim name")
        self.expect("in")
        self.expect("[")
        low = self.integer()
        self.expect(",")
        high = None if self.take("inf") else self.integer()
        self.expect("]")
        return DimParam(name, low, high)

    def param(self) -> Param:
        role = self.one_of(ROLES, "role")
        name = self.word("a parameter name")
        self.expect(":")
        element = DTYPES[self.one_of(DTYPES, "dtype")]
        shape = self.listed("[", "]", self.dim)
        strides = self.listed("[", "]", self.dim) if self.take("strides") else None
        return Param(name, element, shape, role, strides)

    def tile(self) -> Tile:
        name = self.word("a tile name")
        self.expect(":")
        element = DTYPES[self.one_of(DTYPES, "dtype")]
        shape = self.listed("[", "]", self.integer)
        scope = self.one_of(SCOPES, "scope")
        return Tile(name, element, shape, scope, self.integer() if self.take("depth") else 1)

    def bound(self) -> tuple[str, Dim]:
        name = self.word("a variable")
        self.expect("<")
        return name, self.dim()

    def body(self, depth: int) -> tuple[Stmt, ...]:
        if depth > MAX_NESTING:
            raise self.error(f"statements nested deeper than {MAX_NESTING}")
        self.expect("{")
        stmts: list[Stmt] = []
        while not self.take("}"):
            stmts.append(self.statement(depth))
        return tuple(stmts)

    def statement(self, depth: int) -> Stmt:
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            raise self.error(f"more than {MAX_STATEMENTS} statements")
        if self.take("for"):
            var, extent = self.bound()
            return For(var, extent, self.body(depth + 1))
        if self.take("if"):
            left = self.dim()
            relation = self.one_of(("<", "<=", "=="), "relation")
            right = self.dim()
            then = self.body(depth + 1)
            return If(left, relation, right, then, self.body(depth + 1) if self.take("else") else ())
        if self.take("read"):
            var = self.word("a variable")
            self.expect("=")
            source = self.view()
            self.expect("in")
            self.expect("[")
            low = self.dim()
            self.expect(",")
            high = self.dim()
            self.expect("]")
            return ReadDim(var, source, low, high)
        return self.instruction()

    def instruction(self) -> Instr:
        start = self.at
        spelled = self.word("a statement")
        op = spelled if spelled in INSTRUCTIONS else spelled[:-1]
        if op not in INSTRUCTIONS:
            self.at = start
            raise self.error(f"unknown instruction {spelled!r}")
        dst = self.view()
        srcs: list[Operand] = []
        while self.take(","):
            srcs.append(self.operand())
            self.limit(srcs)
        attrs: list[tuple[str, AttrValue]] = []
        while self.peek(1) == "=":
            attrs.append((self.word("an attribute"), self.attr_value()))
            self.limit(attrs)
        if spelled != _spelling(op, tuple(srcs)):
            self.at = start
            raise self.error(f"{spelled} with these operands is spelled {_spelling(op, tuple(srcs))}")
        return Instr(op, dst, tuple(srcs), tuple(attrs))

    def attr_value(self) -> AttrValue:
        self.expect("=")
        if self.peek() == "(":
            return self.listed("(", ")", self.integer)
        if self.peek() not in ("true", "false", "inf", "nan") and re.match(r"[A-Za-z_]", self.peek()):
            return self.word("a value")
        return self.scalar()

    def scalar(self) -> Scalar:
        if self.peek() in ("true", "false"):
            return self.next() == "true"
        return self.number()

    def operand(self) -> Operand:
        if self.peek() == _SIZE and self.peek(1) == "(":
            self.next()
            return Imm(self.dim())
        return self.view() if self.peek(1) == "[" else Imm(self.scalar())

    def view(self) -> View:
        base = self.word("a parameter or tile")
        return View(base, self.listed("[", "]", self.dim), self.listed("{", "}", self.dim))
