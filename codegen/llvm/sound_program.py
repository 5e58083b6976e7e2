"""The way in for program texts: what is compiled is the canonical text of a program that the verifier accepts."""

from __future__ import annotations

from codegen.targets import target
from codegen.tile.arithmetic import Bounds
from codegen.tile.ir import Program
from codegen.tile.text import parse_program, program_to_text
from codegen.tile.verdicts import verified
from tensor_types.errors import InvalidModel

_REMEDY = "convert the model again"


def read_program(text: str, host: str) -> tuple[Program, Bounds]:
    """The program of a text and the bounds to be kept when its dims are bound.

    InvalidModel if it does not parse or is not canonical; VerifyError if it is not sound for the host class.
    """
    place = {"op": text.split("{", 1)[0].strip()[:80]}
    try:
        program = parse_program(text)
    except ValueError as error:
        raise InvalidModel(f"a tile program is not valid: {error}", where=place, remedy=_REMEDY) from error
    if program_to_text(program) != text:
        raise InvalidModel("a tile program is not in canonical form", where=place, remedy=_REMEDY)
    return program, verified(text, target(host), lambda: program)
