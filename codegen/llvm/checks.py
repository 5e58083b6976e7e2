"""Run-time checks that end a kernel with a status word instead of a trap."""

from __future__ import annotations

from codegen.llvm.text import Function, Value


def require(fn: Function, condition: str, status: int, index: Value) -> None:
    """Ends the kernel with `status | index << 8` unless the condition holds."""
    fine, failed = fn.fresh("fine"), fn.fresh("failed")
    fn.branch_if(condition, fine, failed)
    fn.label(failed)
    shifted = fn.emit(f"shl i64 {index}, 8")
    fn.do(f"ret i64 {fn.emit(f'or i64 {shifted}, {status}')}")
    fn.label(fine)
