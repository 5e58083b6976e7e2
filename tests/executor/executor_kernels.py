"""Trivial kernels for the executor's tests, written as LLVM IR and loaded like the kernels of a model."""

from __future__ import annotations

import functools
import re

import llvmlite.binding as llvm
import numpy as np

from acl_runtime.executor import Graph, LoadedCode, load_object, task_records

IR = """
declare float @expf(float)
declare i32 @usleep(i32)

; args[0]: i64 array, one element per grid index; add 1 to each.
define i64 @increment(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %p = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i64 0
}

define i64 @nothing(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) { ret i64 0 }

; args[0]: i64 "done in execution" of each task; dims: own task, this execution, n, then n predecessors.
; Status 7 with the predecessor when one of them has not run in this execution.
define i64 @check_order(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %done = load ptr, ptr %args
  %self = load i64, ptr %dims
  %p1 = getelementptr i64, ptr %dims, i64 1
  %execution = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %dims, i64 2
  %n = load i64, ptr %p2
  %list = getelementptr i64, ptr %dims, i64 3
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %good ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %look, label %out
look:
  %q = getelementptr i64, ptr %list, i64 %k
  %before = load i64, ptr %q
  %b = getelementptr i64, ptr %done, i64 %before
  %when = load i64, ptr %b
  %same = icmp eq i64 %when, %execution
  br i1 %same, label %good, label %bad
good:
  %k1 = add i64 %k, 1
  br label %loop
bad:
  %shifted = shl i64 %before, 8
  %status = or i64 %shifted, 7
  ret i64 %status
out:
  %mine = getelementptr i64, ptr %done, i64 %self
  store i64 %execution, ptr %mine
  ret i64 0
}

; Status 9 at the first grid index >= dims[0].
define i64 @fail_from(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  %limit = load i64, ptr %dims
  %bad = icmp sgt i64 %end, %limit
  %from = call i64 @llvm.smax.i64(i64 %begin, i64 %limit)
  %shifted = shl i64 %from, 8
  %status = or i64 %shifted, 9
  %result = select i1 %bad, i64 %status, i64 0
  ret i64 %result
}
declare i64 @llvm.smax.i64(i64, i64)

; args[0]: guard byte; it becomes dims[0].
define i64 @write_byte(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  %p = load ptr, ptr %args
  %v = load i64, ptr %dims
  %b = trunc i64 %v to i8
  store i8 %b, ptr %p
  ret i64 0
}

; args[0]: f32 array x, args[1]: f32 array y; y = exp(x) by way of the scratch memory; status 1 if that is unaligned.
define i64 @exp_by_scratch(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  %a1 = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %a1
  %address = ptrtoint ptr %scratch to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %loop, label %bad
bad:
  ret i64 1
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %e = call float @expf(float %v)
  store volatile float %e, ptr %scratch
  %r = load volatile float, ptr %scratch
  %q = getelementptr float, ptr %y, i64 %i
  store float %r, ptr %q
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i64 0
}

; Sleep dims[0] microseconds per call.
define i64 @doze(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  %us = load i64, ptr %dims
  %short = trunc i64 %us to i32
  %r = call i32 @usleep(i32 %short)
  ret i64 0
}

; As `meet`, then status 11 with index `begin`.
define i64 @fail_together(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  %late = call i64 @meet(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  %shifted = shl i64 %begin, 8
  %status = or i64 %shifted, 11
  %code = or i64 %status, %late
  ret i64 %code
}

; As `meet`, with `begin` in the scratch memory before it; status 5 if another value is there after it.
define i64 @keep_in_scratch(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  store volatile i64 %begin, ptr %scratch
  %late = call i64 @meet(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  %now = load volatile i64, ptr %scratch
  %same = icmp eq i64 %now, %begin
  %status = select i1 %same, i64 %late, i64 5
  ret i64 %status
}

; args[0]: i64 counter. Count one and wait until it is dims[0]; status 3 when that lasts more than 10 seconds.
define i64 @meet(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %counter = load ptr, ptr %args
  %wanted = load i64, ptr %dims
  %old = atomicrmw add ptr %counter, i64 1 seq_cst
  br label %wait
wait:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  %count = load atomic i64, ptr %counter acquire, align 8
  %all = icmp sge i64 %count, %wanted
  br i1 %all, label %out, label %sleep
sleep:
  %r = call i32 @usleep(i32 100)
  %n1 = add i64 %n, 1
  %late = icmp sge i64 %n, 100000
  br i1 %late, label %bad, label %again
again:
  br label %wait
bad:
  ret i64 3
out:
  ret i64 0
}

; args[0]: f32 array; x = x * 0.5 in place, which for the smallest normal number gives a denormal.
define i64 @halve(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %x = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %h = fmul float %v, 0.5
  store float %h, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i64 0
}
"""
SYMBOLS = re.findall(r"define i64 @(\w+)", IR)


def compile_ir(ir: str) -> bytes:
    """Object file of a module for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        opt=2, codemodel="jitdefault", jit=True
    )
    module = llvm.parse_assembly(ir)
    module.verify()
    return machine.emit_object(module)


@functools.cache
def code() -> LoadedCode:
    return load_object(compile_ir(IR), SYMBOLS)


class GraphBuilder:
    """Collects tasks and edges; keeps the argument arrays alive."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.predecessors: list[list[int]] = []
        self.arrays: list[np.ndarray] = []

    def task(
        self,
        kernel: str | None,
        args: list[np.ndarray] | None = None,
        dims: list[int] | None = None,
        after: list[int] | None = None,
        **fields: int,
    ) -> int:
        """Append a task (an AI CPU task if `kernel` is None) and return its index."""
        pointers = np.array([a.ctypes.data for a in args or []] or [0], np.uint64)
        sizes = np.array(dims or [0], np.int64)
        self.arrays += [*(args or []), pointers, sizes]
        row = {
            "fn": code()[kernel] if kernel else 0,
            "args": pointers.ctypes.data,
            "dims": sizes.ctypes.data,
            **fields,
        }
        self.rows.append(row)
        self.predecessors.append(sorted(set(after or [])))
        return len(self.rows) - 1

    def build(self, guards_nbytes: int = 0, scratch_bytes: int = 0) -> Graph:
        records = task_records(len(self.rows))
        following: list[list[int]] = [[] for _ in self.rows]
        for index, (row, before) in enumerate(zip(self.rows, self.predecessors, strict=True)):
            for field, value in row.items():
                records[index][field] = value
            records[index]["n_predecessors"] = len(before)
            for source in before:
                following[source].append(index)
        records["n_successors"] = [len(f) for f in following]
        records["first_successor"] = np.cumsum(records["n_successors"]) - records["n_successors"]
        return Graph(records, np.array([s for f in following for s in f], np.int32), guards_nbytes, scratch_bytes)
