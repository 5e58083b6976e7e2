"""A protobuf message in its text form, as the dumps ge_proto_*.txt hold it, as plain values (--mode=5).

    name: "graph" op { name: "conv" attr { key: "pad" value { i: 1 } } }

A field that stands there several times is a list. Numbers, true and false are what they look like, other words text.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from atc.usage import UsageError

_WORD = re.compile(
    r"""\s*(?:(\#[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|([][{}<>:;,])|([^\s\]\[{}<>:;,\#"']+))"""
)
_DEEPEST = 200
_ENDS = {"{": "}", "<": ">"}


def read_text_proto(path: Path) -> dict[str, Any]:
    """The message of a file. UsageError E10410 if it cannot be read, E13018 with the line if it is no such text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--om={path} cannot be read: {reason}", code="E10410", where={"flag": "--om"},
                         remedy="name a ge_proto_*.txt file") from error  # fmt: skip
    return _Reader(text).message("", 0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._words: list[tuple[int, str]] = []
        at, line, end = 0, 1, len(text.rstrip())
        while at < end:
            match = _WORD.match(text, at)
            if match is None:
                raise _wrong(line, "a string does not end")
            line += text.count("\n", at, match.end())
            at = match.end()
            if match[1] is None:
                self._words.append((line, match[2] or match[3] or match[4]))
        self._words.reverse()
        self._last = line

    def message(self, end: str, depth: int) -> dict[str, Any]:
        """Fields up to the word `end`."""
        found: dict[str, Any] = {}
        several: set[str] = set()
        while (word := self._next(bool(end))) not in ("", end):
            if word in (";", ","):
                continue
            if not re.fullmatch(r"[A-Za-z_][\w.]*", word):
                raise self._error(f"{word} stands where the name of a field is wanted")
            value = self._field(word, depth)
            if word not in found:
                found[word] = value
            elif word in several:
                found[word].append(value)
            else:
                several.add(word)
                found[word] = [found[word], value]
        return found

    def _field(self, name: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self._error(f"messages are more than {_DEEPEST} deep")
        word = self._next(True)
        if word in _ENDS:
            return self.message(_ENDS[word], depth + 1)
        if word != ":":
            raise self._error(f"behind {name} stands {word} instead of a value")
        word = self._next(True)
        if word in _ENDS:
            return self.message(_ENDS[word], depth + 1)
        if word == "[":
            values = []
            while (word := self._next(True)) != "]":
                if word != ",":
                    values.append(self.message(_ENDS[word], depth + 1) if word in _ENDS else self._value(word))
            return values
        return self._value(word)

    def _value(self, word: str) -> Any:
        if word[0] in "\"'":
            text = word
            while self._words and self._words[-1][1][0] in "\"'":  # strings side by side are one
                text += self._next(True)
            try:
                return str(ast.literal_eval(text))
            except (ValueError, SyntaxError):
                raise self._error(f"{word} is no string") from None
        if word in ("true", "false"):
            return word == "true"
        for kind in (int, float):
            try:
                return kind(word.rstrip("f") if kind is float and word[-1:] == "f" and word != "inf" else word)
            except ValueError:
                pass
        return word

    def _next(self, is_needed: bool) -> str:
        if not self._words:
            if is_needed:
                raise self._error("it ends within a message")
            return ""
        self._last, word = self._words.pop()
        return word

    def _error(self, what: str) -> UsageError:
        return _wrong(self._last, what)


def _wrong(line: int, what: str) -> UsageError:
    return UsageError(f"--om: line {line}: {what}", code="E13018", where={"flag": "--om"},
                      remedy="give a ge_proto_*.txt dump as it was written")  # fmt: skip
