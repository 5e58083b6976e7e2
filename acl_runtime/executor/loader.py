"""Links object files into this process and gives the addresses of their functions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import llvmlite.binding as llvm

from tensor_types.errors import EnvironmentProblem

_lock = threading.Lock()
_names = itertools.count()
_jit: llvm.orcjit.LLJIT | None = None


class LoadError(EnvironmentProblem):
    """An object file cannot be linked: damaged, of another architecture, or a symbol does not exist."""


class LoadedCode:
    """Linked code. `addresses` maps each requested symbol to its address, valid while this object is referenced."""

    def __init__(self, tracker: llvm.orcjit.ResourceTracker, symbols: Sequence[str]) -> None:
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in symbols}

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]


def initialize_llvm() -> None:
    """Make the native target known to LLVM; cheap to repeat."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def load_object(object_bytes: bytes, symbols: Sequence[str]) -> LoadedCode:
    """Link one relocatable object and look up `symbols` in it.

    Undefined symbols are searched in the process: libc (memcpy, memset, memmove, syscall) and libm among them.
    Raises LoadError when the object is damaged or any symbol, wanted or used, is missing.
    """
    global _jit
    builder = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process()
    for name in symbols:
        builder.export_symbol(name)
    # The LLJIT of llvmlite makes no promise about threads.
    with _lock:
        try:
            # Parsed first, because a linker may trust the headers of what it is given.
            llvm.ObjectFileRef.from_data(object_bytes).close()
            if _jit is None:
                initialize_llvm()
                _jit = llvm.create_lljit_compiler(suppress_errors=True)
            tracker = builder.link(_jit, f"object{next(_names)}")
        except RuntimeError as error:
            raise LoadError(f"the object code cannot be linked: {error}", remedy="convert the model again") from error
    return LoadedCode(tracker, symbols)
