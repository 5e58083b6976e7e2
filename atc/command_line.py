"""The command line: which of its spellings stands there, and how a command ends. It imports what a command needs."""

from __future__ import annotations

import sys

from atc.console import PIPE_CLOSED, outcome, report_error, standard_output
from atc.plain_convert import plain_convert
from atc.spelling import is_atc_spelling, wants_json


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `atc`; ends the process with a documented exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    as_json = wants_json(words)
    try:
        with standard_output():
            code = _dispatch(words, as_json)
    except SystemExit as end:  # the help of a command meets its reader's end in a library that has its own exit code
        code = PIPE_CLOSED if isinstance(end.__context__, BrokenPipeError) else end.code
    except (Exception, KeyboardInterrupt) as error:
        code = report_error(error, as_json)
    sys.exit(code or 0)


def _dispatch(words: list[str], as_json: bool) -> int:
    if is_atc_spelling(words):
        from atc.atc_command import run_as_atc

        return run_as_atc(words, as_json)
    conversion = plain_convert(words)
    if conversion is not None:
        return outcome(conversion.json, conversion.run)
    from atc.cli import run_command

    return run_command(words, as_json)
