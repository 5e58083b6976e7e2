"""Links object files into this process and gives the addresses of their functions."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import llvmlite.binding as llvm

from tensor_types.errors import EnvironmentProblem

_lock = threading.Lock()
_OBJECTS_PER_LINKER = 64
"""A linker keeps about 8 KB of every object that it ever linked; this many, then it makes room for another one."""


class LoadError(EnvironmentProblem):
    """An object file cannot be linked: damaged, of another architecture, or a symbol does not exist."""


class _Linker:
    """An LLJIT for a number of objects. It ends with the last reference to it, and what it kept of them goes too."""

    def __init__(self) -> None:
        initialize_llvm()
        self.jit = llvm.create_lljit_compiler(suppress_errors=True)
        self.objects = 0

    def link(self, builder: llvm.JITLibraryBuilder, count: int) -> llvm.orcjit.ResourceTracker:
        """RuntimeError if its `count` objects cannot be linked. Names of libraries are never used again."""
        self.objects += count
        return builder.link(self.jit, f"object{self.objects}")


_linker: _Linker | None = None


class LoadedCode:
    """Linked code. `addresses` maps each requested symbol to its address, valid while this object is referenced."""

    def __init__(self, linker: _Linker, tracker: llvm.orcjit.ResourceTracker, symbols: Sequence[str]) -> None:
        self._linker = linker
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in symbols}

    def __del__(self) -> None:
        # The code goes before the linker that it belongs to.
        self._tracker.close()

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]


def initialize_llvm() -> None:
    """Make the native target known to LLVM; cheap to repeat."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def load_object(object_bytes: bytes, symbols: Sequence[str]) -> LoadedCode:
    """Link one relocatable object and look up `symbols` in it. As `load_objects`."""
    return load_objects([object_bytes], symbols)


def load_objects(objects: Sequence[bytes], symbols: Sequence[str]) -> LoadedCode:
    """Link relocatable objects together, which takes a third of the time of one after the other, and look up `symbols`.

    Undefined symbols are searched in the process: libc (memcpy, memset, memmove, syscall) and libm among them.
    Raises LoadError when an object is damaged or any symbol, wanted or used, is missing.
    """
    global _linker
    builder = llvm.JITLibraryBuilder().add_current_process()
    for object_bytes in objects:
        builder.add_object_img(object_bytes)
    for name in symbols:
        builder.export_symbol(name)
    # The LLJIT of llvmlite makes no promise about threads.
    with _lock:
        try:
            # Parsed first, because a linker may trust the headers of what it is given.
            for object_bytes in objects:
                llvm.ObjectFileRef.from_data(object_bytes).close()
            if _linker is None or _linker.objects >= _OBJECTS_PER_LINKER:
                _linker = _Linker()
            linker = _linker
            tracker = linker.link(builder, len(objects))
        except RuntimeError as error:
            raise LoadError(f"the object code cannot be linked: {error}", remedy="convert the model again") from error
    return LoadedCode(linker, tracker, symbols)
