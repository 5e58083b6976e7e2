"""The text form of dimension expressions, read back: what `str` of a dim writes, and nothing else."""

from __future__ import annotations

import re

from tensor_types.dims import OPERATIONS, Dim, dim, floordiv, mod, terms

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|(//|[-+*%(),]))")


def parse(text: str) -> Dim:
    """Reads the text form back: parse(str(e)) == e. ValueError on anything else."""
    tokens: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if not match:
            raise ValueError(f"not a dim expression: {text!r}")
        tokens.append(match.group().strip())
        at = match.end()
    if len(tokens) > 4096:
        raise ValueError("dim expression too long")
    value, rest = _parse_sum(tokens, 0, 0)
    if rest != len(tokens):
        raise ValueError(f"not a dim expression: {text!r}")
    return value


def _parse_sum(tokens: list[str], at: int, depth: int) -> tuple[Dim, int]:
    if depth > 64:
        raise ValueError("dim expression nested too deeply")
    sign = 1
    if at < len(tokens) and tokens[at] == "-":
        sign, at = -1, at + 1
    value, at = _parse_product(tokens, at, depth)
    value = _bounded(value * sign)
    while at < len(tokens) and tokens[at] in "+-":
        sign = 1 if tokens[at] == "+" else -1
        right, at = _parse_product(tokens, at + 1, depth)
        value = _bounded(value + right * sign)
    return value, at


def _bounded(value: Dim) -> Dim:
    """Text from outside must not grow into huge polynomials."""
    found = terms(value)
    if len(found) > 256 or any(len(m) > 16 or abs(f) > 1 << 64 for m, f in found):
        raise ValueError("dim expression too large")
    return value


def _parse_product(tokens: list[str], at: int, depth: int) -> tuple[Dim, int]:
    value, at = _parse_leaf(tokens, at, depth)
    while at < len(tokens) and tokens[at] in ("*", "//", "%"):
        op = tokens[at]
        right, at = _parse_leaf(tokens, at + 1, depth)
        value = _bounded(value * right if op == "*" else floordiv(value, right) if op == "//" else mod(value, right))
    return value, at


def _parse_leaf(tokens: list[str], at: int, depth: int) -> tuple[Dim, int]:
    if at >= len(tokens):
        raise ValueError("dim expression ends early")
    token = tokens[at]
    if token.isdigit():
        return _bounded(int(token)), at + 1
    if token == "(":
        value, at = _parse_sum(tokens, at + 1, depth + 1)
        return value, _expect(tokens, at, ")")
    if token in ("min", "max") and at + 1 < len(tokens) and tokens[at + 1] == "(":
        args: list[Dim] = []
        at += 1
        while tokens[at] in ("(", ","):
            value, at = _parse_sum(tokens, at + 1, depth + 1)
            args.append(value)
            if at >= len(tokens):
                raise ValueError("dim expression ends early")
        return OPERATIONS[token](*args), _expect(tokens, at, ")")
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", token):
        return dim(token), at + 1
    raise ValueError(f"unexpected {token!r} in a dim expression")


def _expect(tokens: list[str], at: int, token: str) -> int:
    if at >= len(tokens) or tokens[at] != token:
        raise ValueError(f"expected {token!r} in a dim expression")
    return at + 1
