"""Entry point of `atc` and of `python -m atc`, ready for an interrupt while the rest is imported.

What lies in the current folder is not imported: of `python -m atc`, which puts it in front of the path, as soon as
this file runs; of `atc`, at no time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Runs the command line of this process and ends it with a documented exit code."""
    gc.set_threshold(50_000, 20, 50)  # what a command makes mostly lives to its end
    _leave_current_folder()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _open_standard_streams()
        from tensor_types.interrupts import end_promptly

        end_promptly({signal.SIGINT: 130, signal.SIGTERM: 128 + signal.SIGTERM}, _say_interrupted)
        from atc.command_line import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # the end of the process frees all; a search for circles before it is in vain


def _leave_current_folder() -> None:
    """Takes the current folder from the front of the path, unless it is where the product itself lies."""
    product = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()) and os.getcwd() != product:
        del sys.path[0]


def _say_interrupted() -> None:
    from atc.console import report_error
    from atc.spelling import wants_json

    report_error(KeyboardInterrupt(), wants_json(sys.argv[1:]))


def _terminate(*_: object) -> None:
    """The end that a system asks for is like any other: files and folders that were begun go."""
    sys.exit(128 + signal.SIGTERM)


def _open_standard_streams() -> None:
    """Streams that the caller closed lead to the null device, so that no file opened later takes their place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_WRONLY if descriptor else os.O_RDONLY
            opened = os.open(os.devnull, mode)
            os.dup2(opened, descriptor)
            if opened != descriptor:
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r"))


if __name__ == "__main__":
    main()
