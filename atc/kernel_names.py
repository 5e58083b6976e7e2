"""Names of kernels in reports: equal kernels have equal names."""

from __future__ import annotations

import hashlib

from codegen.tile.text import parse_program


def kernel_name(program: str) -> str:
    """The name of a program and the start of the digest of its text."""
    return f"{parse_program(program).name}_{hashlib.sha256(program.encode()).hexdigest()[:8]}"
