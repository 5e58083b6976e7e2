"""Verdicts of the verifier, remembered in the cache: no program is proven sound for a target twice on a machine.

What decides a verdict names its file: the program's text, the target, the limits and the sources of the verifier. Only
programs that were accepted are remembered. Whoever can write the cache decides what runs anyhow, as code lies in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from codegen.cache_files import CacheFiles, name_of, sources_digest
from codegen.cache_folder import cache_folder
from codegen.targets.target import Target
from codegen.tile.arithmetic import Bounds
from codegen.tile.ir import Program
from codegen.tile.verifier import verify
from tensor_types.dim_text import parse
from tensor_types.limits import limit

_SOURCES = ("codegen/targets", "codegen/tile", "tensor_types")
_LIMIT = 16 << 20
"""Bytes of all verdicts, of about a hundred each."""


def verdict_files() -> CacheFiles:
    """Where verdicts are kept."""
    return CacheFiles(cache_folder() / "verdicts", _LIMIT)


def verified(text: str, target: Target, program: Callable[[], Program]) -> Bounds:
    """What `verify` says of the program with this text, which `program` gives where nobody has asked before."""
    files = verdict_files()
    limits = (str(limit(name)) for name in ("verify_steps", "launch_work"))
    name = name_of(sources_digest(*_SOURCES), target.name, *limits, text)
    known = files.read(name)
    if known is not None:
        with suppress(ValueError):
            size, work = known.decode().split("\n")
            return Bounds(parse(size), parse(work))
    bounds = verify(program(), target)
    files.write(name, f"{bounds.size}\n{bounds.work}".encode())
    return bounds
