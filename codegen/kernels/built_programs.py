"""Programs that were built here, by their text: who asks about a text that was just made need not read it."""

from __future__ import annotations

from collections import OrderedDict

from codegen.tile.ir import Program
from codegen.tile.text import parse_program, program_to_text

_MOST_KEPT = 256

_built: OrderedDict[str, Program] = OrderedDict()


def text_of(program: Program) -> str:
    """The text of a program that was built here."""
    text = program_to_text(program)
    _built[text] = program
    if len(_built) > _MOST_KEPT:
        _built.popitem(last=False)
    return text


def program_of(text: str) -> Program:
    """The program of a text, read only if it is no longer known. TileSyntaxError if it is no program."""
    return _built.get(text) or parse_program(text)
