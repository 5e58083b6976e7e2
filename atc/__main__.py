"""Entry point of `atc` and of `python -m atc`, ready for an interrupt while the rest is imported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command line of this process and ends it with a documented exit code."""
    try:
        _open_standard_streams()
        from atc.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


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
