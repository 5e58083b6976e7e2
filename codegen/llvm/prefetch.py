"""TPREFETCH: a request for each line of a view, along its axes in order."""

from __future__ import annotations

from contextlib import ExitStack

from codegen.llvm.cube_reduction import PREFETCH_TO_L2
from codegen.llvm.storage import Storage
from codegen.llvm.vector_code import VectorCode
from codegen.tile.ir import Instr

_LINE_BYTES = 64


def emit_prefetch(code: VectorCode, storage: Storage, instr: Instr) -> None:
    """Fetches the elements of the destination into the second-level cache, which can wait for many lines."""
    fn, access = code.fn, storage.view_access(instr.dst)
    line = max(1, _LINE_BYTES // access.dtype.bytes)
    extents = [storage.dims.value(extent) for extent in instr.dst.shape]
    with ExitStack() as stack:
        for loop, extent in enumerate(extents):
            index = stack.enter_context(fn.loop(extent, line if access.step(loop) == 1 else 1))
            access = access.advanced(fn, loop, index)
        fn.call("void", "llvm.prefetch.p0", f"ptr {access.pointer}", *PREFETCH_TO_L2)
