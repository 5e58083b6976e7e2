"""Entry point of `pyatc` and of `python -m ge.pyatc`: the same as `atc`."""

from __future__ import annotations

from atc.__main__ import main

if __name__ == "__main__":
    main()
