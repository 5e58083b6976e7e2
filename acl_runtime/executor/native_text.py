"""The executor itself: LLVM IR text, with struct offsets taken from `native_state`.

Three forms beyond LLVM IR keep the text readable; `_expand` turns each into plain instructions:

    %p = at run.head %run           address of a field
    %v = get i64 run.n_tasks %run   load a field
    put i64 %v run.host_head %run   store a field

Serial execution walks the records in index order, without atomics. Parallel execution works like this:

- `pending` counts predecessors. The worker that completes a task runs the first successor that became ready itself and
  puts the others into `queue`, a list that only grows during a run.
- An entry of the queue is a task, or a task with the bit SHARED: it has more than one chunk, stays at the head until
  its chunks are taken, and every worker takes chunks from it in ascending order.
- Only workers that are inside the gate may touch the run. The caller opens the gate when the run is set up, closes it
  at the end and waits until the last worker has left; it never waits for a worker that sleeps.
- A worker without work spins for `spin_ns`, then sets its bit in `sleeping`, looks once more, leaves the gate and
  parks. Whoever makes work available looks at `sleeping` after it, claims bits and posts to their owners, so no wake-up
  is lost.
- Host tasks wait in `host_queue` for the caller, which returns their number and is entered again when they are done.
"""

from __future__ import annotations

import re

import numpy as np

from acl_runtime.executor.native_state import (
    GATE_OPEN,
    MAX_THREADS,
    POOL,
    STRUCTS,
    WORKER,
)
from acl_runtime.executor.parking import platform_text
from acl_runtime.executor.task_record import UNWRITTEN_GUARD

# What the entry points return instead of the index of a host task.
FINISHED = -1
FAILED = -2

SERIAL_START = "executor_serial_start"  # (run) -> i64
SERIAL_RESUME = "executor_serial_resume"  # (run, task) -> i64
PARALLEL_START = "executor_parallel_start"  # (run, pool) -> i64
PARALLEL_RESUME = "executor_parallel_resume"  # (run, pool, task) -> i64
PARALLEL_ABANDON = "executor_parallel_abandon"  # (run, pool): stop the run whose host task failed
POOL_INIT = "executor_pool_init"  # (pool)
POOL_STOP = "executor_pool_stop"  # (pool): workers return as soon as they are idle
WORKER_LOOP = "executor_worker"  # (pool, worker): returns after POOL_STOP
SYMBOLS = [
    SERIAL_START,
    SERIAL_RESUME,
    PARALLEL_START,
    PARALLEL_RESUME,
    PARALLEL_ABANDON,
    POOL_INIT,
    POOL_STOP,
    WORKER_LOOP,
]

_CONSTANTS = {
    "FINISHED": FINISHED,
    "FAILED": FAILED,
    "PARKED": -3,  # of a worker alone: no work came within spin_ns
    "SHARED": 1 << 30,
    "TASK_MASK": (1 << 30) - 1,
    "GATE_OPEN": GATE_OPEN,
    "MAX_THREADS": MAX_THREADS,
    "UNWRITTEN_GUARD": UNWRITTEN_GUARD,
    "POOL_SIZE": POOL.itemsize,
    "WORKER_SIZE": WORKER.itemsize,
    "TASK_SIZE": STRUCTS["task"].itemsize,
    "CHUNKS_SIZE": STRUCTS["chunks"].itemsize,
}
MAX_TASKS = _CONSTANTS["TASK_MASK"]

_COMMON = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal ptr @record(ptr %run, i64 %i) alwaysinline {
  %records = get ptr run.records %run
  %task = getelementptr inbounds [TASK_SIZE x i8], ptr %records, i64 %i
  ret ptr %task
}

; Whether the task does anything: its grid is not empty and its guard byte has the wanted value.
define internal i1 @runnable(ptr %run, ptr %task) alwaysinline {
entry:
  %grid = get i64 task.grid %task
  %some = icmp sgt i64 %grid, 0
  %offset = get i64 task.guard_offset %task
  %free = icmp slt i64 %offset, 0
  br i1 %free, label %unguarded, label %guarded
unguarded:
  ret i1 %some
guarded:
  %guards = get ptr run.guards %run
  %byte.p = getelementptr inbounds i8, ptr %guards, i64 %offset
  %byte = load i8, ptr %byte.p
  %value = zext i8 %byte to i32
  %wanted = get i32 task.guard_value %task
  %equal = icmp eq i32 %value, %wanted
  %both = and i1 %some, %equal
  ret i1 %both
}

; Write the time of now as begin (which = 0) or end (1) of task i, when the run keeps times.
define internal void @stamp(ptr %run, i64 %i, i64 %which) alwaysinline {
entry:
  %times = get ptr run.times %run
  %untimed = icmp eq ptr %times, null
  br i1 %untimed, label %out, label %write
write:
  %t = call i64 @now()
  %p = getelementptr inbounds [2 x i64], ptr %times, i64 %i, i64 %which
  store i64 %t, ptr %p
  br label %out
out:
  ret void
}

define internal i64 @call_kernel(ptr %fn, ptr %task, i64 %begin, i64 %end, ptr %scratch) alwaysinline {
  %args = get ptr task.args %task
  %dims = get ptr task.dims %task
  %status = call i64 %fn(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  ret i64 %status
}

define internal void @reset_outputs(ptr %run) {
entry:
  %guards = get ptr run.guards %run
  %guards.n = get i64 run.guards_nbytes %run
  call void @llvm.memset.p0.i64(ptr %guards, i8 UNWRITTEN_GUARD, i64 %guards.n, i1 false)
  %times = get ptr run.times %run
  %untimed = icmp eq ptr %times, null
  br i1 %untimed, label %out, label %clear
clear:
  %n = get i64 run.n_tasks %run
  %times.n = mul i64 %n, 16
  call void @llvm.memset.p0.i64(ptr %times, i8 0, i64 %times.n, i1 false)
  br label %out
out:
  ret void
}
"""

_SERIAL = """
define i64 @executor_serial_start(ptr %run) {
  call void @reset_outputs(ptr %run)
  %result = call i64 @serial(ptr %run, i64 0)
  ret i64 %result
}

define i64 @executor_serial_resume(ptr %run, i64 %task) {
  call void @stamp(ptr %run, i64 %task, i64 1)
  %next = add i64 %task, 1
  %result = call i64 @serial(ptr %run, i64 %next)
  ret i64 %result
}

define internal i64 @serial(ptr %run, i64 %first) {
entry:
  %mode = call i64 @default_float_mode()
  %n = get i64 run.n_tasks %run
  %scratch = get ptr run.scratch %run
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %i.next, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %out
look:
  %task = call ptr @record(ptr %run, i64 %i)
  %on = call i1 @runnable(ptr %run, ptr %task)
  br i1 %on, label %begin, label %next
begin:
  call void @stamp(ptr %run, i64 %i, i64 0)
  %fn = get ptr task.fn %task
  %host = icmp eq ptr %fn, null
  br i1 %host, label %out, label %call
call:
  %grid = get i64 task.grid %task
  %status = call i64 @call_kernel(ptr %fn, ptr %task, i64 0, i64 %grid, ptr %scratch)
  call void @stamp(ptr %run, i64 %i, i64 1)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %failed, label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
failed:
  put i64 %i run.failed_task %run
  put i64 %status run.failed_status %run
  br label %out
out:
  %result = phi i64 [ FINISHED, %loop ], [ %i, %begin ], [ FAILED, %failed ]
  call void @restore_float_mode(i64 %mode)
  ret i64 %result
}
"""

_SLEEP = """
define internal ptr @worker_state(ptr %pool, i64 %id) alwaysinline {
  %workers = getelementptr inbounds i8, ptr %pool, i64 POOL_SIZE
  %worker = getelementptr inbounds [WORKER_SIZE x i8], ptr %workers, i64 %id
  ret ptr %worker
}

; Wait for the post of whoever claimed our bit.
define internal void @sleep(ptr %pool, i64 %id) noinline {
entry:
  %worker = call ptr @worker_state(ptr %pool, i64 %id)
  %posted = at worker.posted %worker
  %parking = at pool.parking %pool
  br label %loop
loop:
  %word = load atomic i32, ptr %posted acquire, align 4
  %awake = icmp ne i32 %word, 0
  br i1 %awake, label %out, label %wait
wait:
  call void @park(ptr %parking, ptr %posted, i32 0)
  br label %loop
out:
  store atomic i32 0, ptr %posted monotonic, align 4
  ret void
}

; Say that we are about to sleep. The caller must look for work once more before it sleeps.
define internal void @announce_sleep(ptr %pool, i64 %id) {
  %bit = shl i64 1, %id
  %sleeping = at pool.sleeping %pool
  %old = atomicrmw or ptr %sleeping, i64 %bit seq_cst
  fence seq_cst
  ret void
}

define internal void @retract_sleep(ptr %pool, i64 %id) {
entry:
  %bit = shl i64 1, %id
  %others = xor i64 %bit, -1
  %sleeping = at pool.sleeping %pool
  %old = atomicrmw and ptr %sleeping, i64 %others seq_cst
  %mine = and i64 %old, %bit
  %claimed = icmp eq i64 %mine, 0
  br i1 %claimed, label %consume, label %out
consume:
  ; Somebody claimed the bit before and posts; left alone, the post would end a later sleep.
  call void @sleep(ptr %pool, i64 %id)
  br label %out
out:
  ret void
}

; Wake up to `demand` of the sleepers in `mask`. What they are to see was written before.
define internal void @wake(ptr %pool, i64 %mask, i64 %demand) noinline {
entry:
  %sleeping = at pool.sleeping %pool
  %parking = at pool.parking %pool
  fence seq_cst
  br label %loop
loop:
  %want = phi i64 [ %demand, %entry ], [ %want, %claim ], [ %want.less, %post ]
  %bits.all = load atomic i64, ptr %sleeping monotonic, align 8
  %bits = and i64 %bits.all, %mask
  %nobody = icmp eq i64 %bits, 0
  %enough = icmp sle i64 %want, 0
  %stop = or i1 %nobody, %enough
  br i1 %stop, label %out, label %claim
claim:
  %id = call i64 @llvm.cttz.i64(i64 %bits, i1 true)
  %bit = shl i64 1, %id
  %others = xor i64 %bit, -1
  %old = atomicrmw and ptr %sleeping, i64 %others seq_cst
  %got = and i64 %old, %bit
  %lost = icmp eq i64 %got, 0
  br i1 %lost, label %loop, label %post
post:
  %worker = call ptr @worker_state(ptr %pool, i64 %id)
  %posted = at worker.posted %worker
  store atomic i32 1, ptr %posted seq_cst, align 4
  call void @unpark(ptr %parking, ptr %posted)
  %want.less = sub i64 %want, 1
  br label %loop
out:
  ret void
}

; True when nothing happened for spin_ns. `spins` and `since` are the state of one waiting, both zero at its start.
define internal i1 @spin_is_over(ptr %pool, ptr %spins, ptr %since) {
entry:
  call void @relax()
  %n = load i64, ptr %spins
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %spins
  ; Reading the clock costs as much as some pauses.
  %phase = and i64 %n, 15
  %skip = icmp ne i64 %phase, 0
  br i1 %skip, label %no, label %clock
clock:
  %t = call i64 @now()
  %first = icmp eq i64 %n, 0
  br i1 %first, label %begin, label %compare
begin:
  store i64 %t, ptr %since
  %limit0 = get i64 pool.spin_ns %pool
  %none = icmp sle i64 %limit0, 0
  ret i1 %none
compare:
  %t0 = load i64, ptr %since
  %spent = sub i64 %t, %t0
  %limit = get i64 pool.spin_ns %pool
  %over = icmp sgt i64 %spent, %limit
  ret i1 %over
no:
  ret i1 false
}
"""

_READY = """
define internal void @push(ptr %run, i32 %entry) alwaysinline {
  %tail = at run.tail %run
  %at = atomicrmw add ptr %tail, i64 1 monotonic
  %queue = get ptr run.queue %run
  %slot = getelementptr inbounds i32, ptr %queue, i64 %at
  store atomic i32 %entry, ptr %slot release, align 4
  ret void
}

; A task without open predecessors: keep it in `keep` if that is free, else queue it and count it in `demand`.
define internal void @make_ready(ptr %run, ptr %pool, i32 %task, ptr %keep, ptr %demand) {
entry:
  %i = zext i32 %task to i64
  %record = call ptr @record(ptr %run, i64 %i)
  %kept = load i32, ptr %keep
  %free = icmp slt i32 %kept, 0
  %wanted = load i64, ptr %demand
  %on = call i1 @runnable(ptr %run, ptr %record)
  br i1 %on, label %kind, label %single
kind:
  %fn = get ptr task.fn %record
  %host = icmp eq ptr %fn, null
  br i1 %host, label %for_host, label %native
native:
  %grid = get i64 task.grid %record
  %grain = get i64 task.grain %record
  %several = icmp sgt i64 %grid, %grain
  br i1 %several, label %shared, label %single
single:
  br i1 %free, label %single_keep, label %single_push
single_keep:
  store i32 %task, ptr %keep
  ret void
single_push:
  call void @push(ptr %run, i32 %task)
  %wanted1 = add i64 %wanted, 1
  store i64 %wanted1, ptr %demand
  ret void
shared:
  %chunks.all = get ptr run.chunks %run
  %chunks = getelementptr inbounds [CHUNKS_SIZE x i8], ptr %chunks.all, i64 %i
  put i64 0 chunks.next %chunks
  put i64 %grid chunks.remaining %chunks
  %entry.shared = or i32 %task, SHARED
  call void @push(ptr %run, i32 %entry.shared)
  %wanted2 = add i64 %wanted, MAX_THREADS
  store i64 %wanted2, ptr %demand
  br i1 %free, label %shared_keep, label %out
shared_keep:
  store i32 %entry.shared, ptr %keep
  ret void
for_host:
  %host_tail = at run.host_tail %run
  %at = atomicrmw add ptr %host_tail, i64 1 monotonic
  %host_queue = get ptr run.host_queue %run
  %slot = getelementptr inbounds i32, ptr %host_queue, i64 %at
  store atomic i32 %task, ptr %slot release, align 4
  call void @wake(ptr %pool, i64 1, i64 1)
  ret void
out:
  ret void
}

; Task i is done: its successors have one predecessor less.
define internal void @release_successors(ptr %run, ptr %pool, i64 %i, ptr %keep) {
entry:
  %demand = alloca i64
  store i64 0, ptr %demand
  %record = call ptr @record(ptr %run, i64 %i)
  %first = get i32 task.first_successor %record
  %count = get i32 task.n_successors %record
  %successors = get ptr run.successors %run
  %first.wide = sext i32 %first to i64
  %list = getelementptr inbounds i32, ptr %successors, i64 %first.wide
  %count.wide = sext i32 %count to i64
  %pending = get ptr run.pending %run
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %count.wide
  br i1 %more, label %edge, label %wake
edge:
  %s.p = getelementptr inbounds i32, ptr %list, i64 %k
  %s = load i32, ptr %s.p
  %s.wide = zext i32 %s to i64
  %s.record = call ptr @record(ptr %run, i64 %s.wide)
  %n = get i32 task.n_predecessors %s.record
  %only = icmp eq i32 %n, 1
  br i1 %only, label %ready, label %count_down
count_down:
  %counter = getelementptr inbounds i32, ptr %pending, i64 %s.wide
  %old = atomicrmw sub ptr %counter, i32 1 acq_rel
  %last = icmp eq i32 %old, 1
  br i1 %last, label %ready, label %next
ready:
  call void @make_ready(ptr %run, ptr %pool, i32 %s, ptr %keep, ptr %demand)
  br label %next
next:
  %k.next = add i64 %k, 1
  br label %loop
wake:
  %want = load i64, ptr %demand
  call void @wake_if_wanted(ptr %pool, i64 %want)
  ret void
}

define internal void @wake_if_wanted(ptr %pool, i64 %demand) alwaysinline {
entry:
  %some = icmp sgt i64 %demand, 0
  br i1 %some, label %look, label %out
look:
  ; Orders the pushes before the look at the sleepers, as the fence of a sleeper orders its bit before its last look.
  fence seq_cst
  %sleeping = at pool.sleeping %pool
  %bits = load atomic i64, ptr %sleeping monotonic, align 8
  %any = icmp ne i64 %bits, 0
  br i1 %any, label %wake, label %out
wake:
  call void @wake(ptr %pool, i64 -1, i64 %demand)
  br label %out
out:
  ret void
}
"""

_WORK = """
; Next host task of the caller, or -1.
define internal i32 @host_ready(ptr %run) alwaysinline {
  %queue = get ptr run.host_queue %run
  %head = get i64 run.host_head %run
  %slot = getelementptr inbounds i32, ptr %queue, i64 %head
  %task = load atomic i32, ptr %slot acquire, align 4
  ret i32 %task
}

; Entry at the head of the queue, or -1. It may be a shared task without a chunk left.
define internal i32 @queue_front(ptr %run) alwaysinline {
  %head = at run.head %run
  %at = load atomic i64, ptr %head acquire, align 8
  %queue = get ptr run.queue %run
  %slot = getelementptr inbounds i32, ptr %queue, i64 %at
  %entry = load atomic i32, ptr %slot acquire, align 4
  ret i32 %entry
}

; Take an entry, or the right to take chunks of a shared one; -1 if there is none.
define internal i32 @pop(ptr %run) {
start:
  %head = at run.head %run
  %queue = get ptr run.queue %run
  %chunks.all = get ptr run.chunks %run
  br label %retry
retry:
  %at = load atomic i64, ptr %head acquire, align 8
  %slot = getelementptr inbounds i32, ptr %queue, i64 %at
  %entry = load atomic i32, ptr %slot acquire, align 4
  %none = icmp slt i32 %entry, 0
  br i1 %none, label %out, label %kind
kind:
  %flag = and i32 %entry, SHARED
  %shared = icmp ne i32 %flag, 0
  br i1 %shared, label %look, label %take
look:
  %masked = and i32 %entry, TASK_MASK
  %i = zext i32 %masked to i64
  %record = call ptr @record(ptr %run, i64 %i)
  %grid = get i64 task.grid %record
  %chunks = getelementptr inbounds [CHUNKS_SIZE x i8], ptr %chunks.all, i64 %i
  %next.p = at chunks.next %chunks
  %next = load atomic i64, ptr %next.p monotonic, align 8
  %left = icmp slt i64 %next, %grid
  br i1 %left, label %out, label %take
take:
  %at.next = add i64 %at, 1
  %pair = cmpxchg ptr %head, i64 %at, i64 %at.next acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  %mine = xor i1 %shared, true
  %done = and i1 %won, %mine
  br i1 %done, label %out, label %retry
out:
  ret i32 %entry
}

; A kernel failed. Each worker fails at most once in a run, for it stops then.
define internal void @report_error(ptr %run, ptr %pool, i64 %id, i64 %task, i64 %begin, i64 %status) noinline {
entry:
  %worker = call ptr @worker_state(ptr %pool, i64 %id)
  put i64 %task worker.error_task %worker
  put i64 %begin worker.error_begin %worker
  put i64 %status worker.error_status %worker
  %failed = at run.failed %run
  store atomic i64 1, ptr %failed release, align 8
  call void @wake(ptr %pool, i64 1, i64 1)
  ret void
}

; Report completed tasks; true when they were the last ones.
define internal i1 @flush(ptr %run, ptr %done) alwaysinline {
entry:
  %n = load i64, ptr %done
  %none = icmp eq i64 %n, 0
  br i1 %none, label %no, label %report
report:
  store i64 0, ptr %done
  %left = at run.left %run
  %old = atomicrmw sub ptr %left, i64 %n acq_rel
  %last = icmp eq i64 %old, %n
  ret i1 %last
no:
  ret i1 false
}

; Whether there is a reason not to sleep.
define internal i1 @anything(ptr %run, ptr %pool, i64 %id) {
entry:
  %left.p = at run.left %run
  %left = load atomic i64, ptr %left.p acquire, align 8
  %finished = icmp eq i64 %left, 0
  %failed.p = at run.failed %run
  %failed = load atomic i64, ptr %failed.p acquire, align 8
  %bad = icmp ne i64 %failed, 0
  %over = or i1 %finished, %bad
  br i1 %over, label %yes, label %queued
queued:
  %front = call i32 @queue_front(ptr %run)
  %work = icmp sge i32 %front, 0
  br i1 %work, label %yes, label %role
role:
  %caller = icmp eq i64 %id, 0
  br i1 %caller, label %host, label %stop
host:
  %task = call i32 @host_ready(ptr %run)
  %ready = icmp sge i32 %task, 0
  ret i1 %ready
stop:
  %stop.p = at pool.stop %pool
  %stopped = load atomic i64, ptr %stop.p acquire, align 8
  %leave = icmp ne i64 %stopped, 0
  ret i1 %leave
yes:
  ret i1 true
}

; Work for the run until it is over. Starts with the entry `first` (or -1) and `completed` tasks not yet reported.
; The caller (id 0) gets FINISHED, FAILED or a host task; a worker may also get PARKED: it has to leave and sleep.
define internal i64 @work(ptr %run, ptr %pool, i64 %id, i32 %first, i64 %completed) {
entry:
  %keep = alloca i32
  %done = alloca i64
  %spins = alloca i64
  %since = alloca i64
  store i32 %first, ptr %keep
  store i64 %completed, ptr %done
  store i64 0, ptr %since
  %caller = icmp eq i64 %id, 0
  %scratch.all = get ptr run.scratch %run
  %stride = get i64 run.scratch_stride %run
  %scratch.at = mul i64 %stride, %id
  %scratch = getelementptr inbounds i8, ptr %scratch.all, i64 %scratch.at
  %chunks.all = get ptr run.chunks %run
  %failed.p = at run.failed %run
  %left.p = at run.left %run
  %stop.p = at pool.stop %pool
  br label %loop
loop:
  %failed = load atomic i64, ptr %failed.p acquire, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %out_failed, label %role
role:
  br i1 %caller, label %host, label %choose
host:
  %host.task = call i32 @host_ready(ptr %run)
  %host.some = icmp sge i32 %host.task, 0
  br i1 %host.some, label %out_host, label %choose
choose:
  %kept = load i32, ptr %keep
  %kept.some = icmp sge i32 %kept, 0
  br i1 %kept.some, label %execute, label %fetch
fetch:
  %popped = call i32 @pop(ptr %run)
  %popped.some = icmp sge i32 %popped, 0
  br i1 %popped.some, label %execute, label %idle

execute:
  %e = phi i32 [ %kept, %choose ], [ %popped, %fetch ]
  store i32 %e, ptr %keep
  %e.task = and i32 %e, TASK_MASK
  %i = zext i32 %e.task to i64
  %record = call ptr @record(ptr %run, i64 %i)
  %fn = get ptr task.fn %record
  %grid = get i64 task.grid %record
  %flag = and i32 %e, SHARED
  %shared = icmp ne i32 %flag, 0
  br i1 %shared, label %chunk, label %single

single:
  %on = call i1 @runnable(ptr %run, ptr %record)
  br i1 %on, label %whole, label %complete
whole:
  call void @stamp(ptr %run, i64 %i, i64 0)
  %status = call i64 @call_kernel(ptr %fn, ptr %record, i64 0, i64 %grid, ptr %scratch)
  call void @stamp(ptr %run, i64 %i, i64 1)
  %ok = icmp eq i64 %status, 0
  br i1 %ok, label %complete, label %error

chunk:
  %chunks = getelementptr inbounds [CHUNKS_SIZE x i8], ptr %chunks.all, i64 %i
  %grain.raw = get i64 task.grain %record
  %grain = call i64 @llvm.smax.i64(i64 %grain.raw, i64 1)
  %next.p = at chunks.next %chunks
  %begin = atomicrmw add ptr %next.p, i64 %grain monotonic
  %taken = icmp sge i64 %begin, %grid
  br i1 %taken, label %exhausted, label %part
exhausted:
  store i32 -1, ptr %keep
  br label %loop
part:
  %is.first = icmp eq i64 %begin, 0
  br i1 %is.first, label %part_stamp, label %part_run
part_stamp:
  call void @stamp(ptr %run, i64 %i, i64 0)
  br label %part_run
part_run:
  %end.raw = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %end.raw, i64 %grid)
  %part.status = call i64 @call_kernel(ptr %fn, ptr %record, i64 %begin, i64 %end, ptr %scratch)
  %part.ok = icmp eq i64 %part.status, 0
  br i1 %part.ok, label %part_done, label %error
part_done:
  %size = sub i64 %end, %begin
  %remaining.p = at chunks.remaining %chunks
  %remaining = atomicrmw sub ptr %remaining.p, i64 %size acq_rel
  %part.last = icmp eq i64 %remaining, %size
  br i1 %part.last, label %part_complete, label %loop
part_complete:
  call void @stamp(ptr %run, i64 %i, i64 1)
  br label %complete

complete:
  %d = load i64, ptr %done
  %d1 = add i64 %d, 1
  store i64 %d1, ptr %done
  store i32 -1, ptr %keep
  call void @release_successors(ptr %run, ptr %pool, i64 %i, ptr %keep)
  br label %loop

error:
  %error.begin = phi i64 [ 0, %whole ], [ %begin, %part_run ]
  %error.status = phi i64 [ %status, %whole ], [ %part.status, %part_run ]
  call void @report_error(ptr %run, ptr %pool, i64 %id, i64 %i, i64 %error.begin, i64 %error.status)
  br label %out_failed

idle:
  %was.last = call i1 @flush(ptr %run, ptr %done)
  br i1 %was.last, label %out_last, label %idle_begin
idle_begin:
  store i64 0, ptr %spins
  br label %spin
spin:
  %left = load atomic i64, ptr %left.p acquire, align 8
  %finished = icmp eq i64 %left, 0
  br i1 %finished, label %out_finished, label %spin_look
spin_look:
  %some = call i1 @anything(ptr %run, ptr %pool, i64 %id)
  br i1 %some, label %spin_found, label %spin_wait
spin_found:
  ; A stop of the pool is a reason to leave for workers alone: the caller ends its run without them.
  %stopped = load atomic i64, ptr %stop.p acquire, align 8
  %stop = icmp ne i64 %stopped, 0
  %worker = xor i1 %caller, true
  %leave = and i1 %stop, %worker
  br i1 %leave, label %out_finished, label %loop
spin_wait:
  %over = call i1 @spin_is_over(ptr %pool, ptr %spins, ptr %since)
  br i1 %over, label %doze, label %spin
doze:
  call void @announce_sleep(ptr %pool, i64 %id)
  %doze.some = call i1 @anything(ptr %run, ptr %pool, i64 %id)
  br i1 %doze.some, label %doze_not, label %doze_role
doze_not:
  call void @retract_sleep(ptr %pool, i64 %id)
  br label %idle_begin
doze_role:
  br i1 %caller, label %doze_here, label %out_parked
doze_here:
  call void @sleep(ptr %pool, i64 0)
  br label %idle_begin

out_last:
  call void @wake(ptr %pool, i64 1, i64 1)
  ret i64 FINISHED
out_finished:
  ret i64 FINISHED
out_failed:
  ret i64 FAILED
out_parked:
  ret i64 PARKED
out_host:
  ; What we would have run next goes to the others; a shared entry is in the queue already.
  %kept.back = load i32, ptr %keep
  %back.some = icmp sge i32 %kept.back, 0
  %back.flag = and i32 %kept.back, SHARED
  %back.single = icmp eq i32 %back.flag, 0
  %back = and i1 %back.some, %back.single
  br i1 %back, label %give_back, label %hand_over
give_back:
  call void @push(ptr %run, i32 %kept.back)
  call void @wake_if_wanted(ptr %pool, i64 1)
  br label %hand_over
hand_over:
  %host.head = get i64 run.host_head %run
  %host.head1 = add i64 %host.head, 1
  put i64 %host.head1 run.host_head %run
  %never = call i1 @flush(ptr %run, ptr %done)
  %host.i = zext i32 %host.task to i64
  call void @stamp(ptr %run, i64 %host.i, i64 0)
  ret i64 %host.i
}
"""

_PARALLEL = """
define i64 @executor_parallel_start(ptr %run, ptr %pool) {
entry:
  %keep = alloca i32
  %demand = alloca i64
  store i32 -1, ptr %keep
  store i64 0, ptr %demand
  call void @reset_outputs(ptr %run)
  %n = get i64 run.n_tasks %run
  %none = icmp eq i64 %n, 0
  br i1 %none, label %empty, label %reset
empty:
  ret i64 FINISHED
reset:
  %mode = call i64 @default_float_mode()
  %pending = get ptr run.pending %run
  %predecessors = get ptr run.predecessors %run
  %n4 = mul i64 %n, 4
  call void @llvm.memcpy.p0.p0.i64(ptr %pending, ptr %predecessors, i64 %n4, i1 false)
  ; One more entry than tasks, so that an empty queue needs no bounds check.
  %q4 = add i64 %n4, 4
  %queue = get ptr run.queue %run
  call void @llvm.memset.p0.i64(ptr %queue, i8 255, i64 %q4, i1 false)
  %host_queue = get ptr run.host_queue %run
  call void @llvm.memset.p0.i64(ptr %host_queue, i8 255, i64 %q4, i1 false)
  put i64 0 run.host_head %run
  put i64 0 run.head %run
  put i64 0 run.tail %run
  put i64 0 run.host_tail %run
  put i64 0 run.failed %run
  put i64 %n run.left %run
  %threads = get i64 pool.threads %pool
  br label %clear
clear:
  %w = phi i64 [ 0, %reset ], [ %w.next, %clear ]
  %worker = call ptr @worker_state(ptr %pool, i64 %w)
  put i64 -1 worker.error_task %worker
  %w.next = add i64 %w, 1
  %w.more = icmp slt i64 %w.next, %threads
  br i1 %w.more, label %clear, label %roots
roots:
  %roots.list = get ptr run.roots %run
  %roots.n = get i64 run.n_roots %run
  br label %root
root:
  %k = phi i64 [ 0, %roots ], [ %k.next, %root ]
  %root.p = getelementptr inbounds i32, ptr %roots.list, i64 %k
  %root.task = load i32, ptr %root.p
  call void @make_ready(ptr %run, ptr %pool, i32 %root.task, ptr %keep, ptr %demand)
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %roots.n
  br i1 %k.more, label %root, label %open
open:
  put ptr %run pool.run %pool
  %gate = at pool.gate %pool
  store atomic i64 GATE_OPEN, ptr %gate release, align 8
  ; After the gate, for a worker that sees the new epoch and a closed gate takes the run for over.
  %epoch = at pool.epoch %pool
  %old = atomicrmw add ptr %epoch, i64 1 seq_cst
  %want = load i64, ptr %demand
  call void @wake_if_wanted(ptr %pool, i64 %want)
  %first = load i32, ptr %keep
  %result = call i64 @work_and_settle(ptr %run, ptr %pool, i32 %first, i64 0)
  call void @restore_float_mode(i64 %mode)
  ret i64 %result
}

define i64 @executor_parallel_resume(ptr %run, ptr %pool, i64 %task) {
  %keep = alloca i32
  store i32 -1, ptr %keep
  %mode = call i64 @default_float_mode()
  call void @stamp(ptr %run, i64 %task, i64 1)
  call void @release_successors(ptr %run, ptr %pool, i64 %task, ptr %keep)
  %first = load i32, ptr %keep
  %result = call i64 @work_and_settle(ptr %run, ptr %pool, i32 %first, i64 1)
  call void @restore_float_mode(i64 %mode)
  ret i64 %result
}

define void @executor_parallel_abandon(ptr %run, ptr %pool) {
  %failed = at run.failed %run
  store atomic i64 1, ptr %failed release, align 8
  call void @close_gate(ptr %pool)
  ret void
}

define internal i64 @work_and_settle(ptr %run, ptr %pool, i32 %first, i64 %completed) {
entry:
  %result = call i64 @work(ptr %run, ptr %pool, i64 0, i32 %first, i64 %completed)
  %host = icmp sge i64 %result, 0
  br i1 %host, label %out, label %close
close:
  call void @close_gate(ptr %pool)
  %bad = icmp eq i64 %result, FAILED
  br i1 %bad, label %errors, label %out
errors:
  %threads = get i64 pool.threads %pool
  br label %loop
loop:
  %w = phi i64 [ 0, %errors ], [ %w.next, %next ]
  %best.task = phi i64 [ -1, %errors ], [ %new.task, %next ]
  %best.begin = phi i64 [ 0, %errors ], [ %new.begin, %next ]
  %best.status = phi i64 [ 0, %errors ], [ %new.status, %next ]
  %more = icmp slt i64 %w, %threads
  br i1 %more, label %compare, label %store
compare:
  %worker = call ptr @worker_state(ptr %pool, i64 %w)
  %task = get i64 worker.error_task %worker
  %begin = get i64 worker.error_begin %worker
  %status = get i64 worker.error_status %worker
  ; As unsigned numbers -1, no error, is the highest task.
  %lower = icmp ult i64 %task, %best.task
  %same = icmp eq i64 %task, %best.task
  %before = icmp slt i64 %begin, %best.begin
  %earlier = and i1 %same, %before
  %better = or i1 %lower, %earlier
  br label %next
next:
  %new.task = select i1 %better, i64 %task, i64 %best.task
  %new.begin = select i1 %better, i64 %begin, i64 %best.begin
  %new.status = select i1 %better, i64 %status, i64 %best.status
  %w.next = add i64 %w, 1
  br label %loop
store:
  put i64 %best.task run.failed_task %run
  put i64 %best.status run.failed_status %run
  br label %out
out:
  ret i64 %result
}

; Let nobody in any more and wait until all have left. Also ends the life of pointers to the run in the pool.
define internal void @close_gate(ptr %pool) {
entry:
  %spins = alloca i64
  %since = alloca i64
  store i64 0, ptr %spins
  store i64 0, ptr %since
  %gate = at pool.gate %pool
  %closed = atomicrmw and ptr %gate, i64 4294967295 seq_cst
  br label %loop
loop:
  %inside = load atomic i64, ptr %gate acquire, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %out, label %wait
wait:
  %over = call i1 @spin_is_over(ptr %pool, ptr %spins, ptr %since)
  br i1 %over, label %doze, label %loop
doze:
  call void @announce_sleep(ptr %pool, i64 0)
  %still = load atomic i64, ptr %gate seq_cst, align 8
  %gone = icmp eq i64 %still, 0
  br i1 %gone, label %awake, label %sleep
awake:
  call void @retract_sleep(ptr %pool, i64 0)
  br label %loop
sleep:
  call void @sleep(ptr %pool, i64 0)
  store i64 0, ptr %spins
  br label %loop
out:
  ret void
}

define void @executor_pool_init(ptr %pool) {
  %parking = at pool.parking %pool
  call void @parking_init(ptr %parking)
  ret void
}

define void @executor_pool_stop(ptr %pool) {
  %stop = at pool.stop %pool
  store atomic i64 1, ptr %stop seq_cst, align 8
  ; Bit 0 belongs to a caller, who does not care.
  call void @wake(ptr %pool, i64 -2, i64 MAX_THREADS)
  ret void
}

define void @executor_worker(ptr %pool, i64 %id) {
entry:
  %spins = alloca i64
  %since = alloca i64
  store i64 0, ptr %spins
  store i64 0, ptr %since
  %mode = call i64 @default_float_mode()
  %stop.p = at pool.stop %pool
  %epoch.p = at pool.epoch %pool
  %gate = at pool.gate %pool
  br label %outside
outside:
  ; The last epoch whose run is over for us.
  %seen = phi i64 [ 0, %entry ], [ %seen, %spin ], [ %epoch, %missed ], [ %seen.after, %left ], [ %seen, %woken ]
  %stopped = load atomic i64, ptr %stop.p acquire, align 8
  %stop = icmp ne i64 %stopped, 0
  br i1 %stop, label %out, label %look
look:
  %epoch = load atomic i64, ptr %epoch.p acquire, align 8
  %new = icmp ne i64 %epoch, %seen
  br i1 %new, label %knock, label %spin
knock:
  %g = load atomic i64, ptr %gate acquire, align 8
  %open = icmp uge i64 %g, GATE_OPEN
  br i1 %open, label %enter, label %missed
missed:
  br label %outside
enter:
  %g1 = add i64 %g, 1
  %pair = cmpxchg ptr %gate, i64 %g, i64 %g1 acq_rel monotonic
  %inside = extractvalue { i64, i1 } %pair, 1
  br i1 %inside, label %work, label %knock
work:
  %run = get ptr pool.run %pool
  %result = call i64 @work(ptr %run, ptr %pool, i64 %id, i32 -1, i64 0)
  %old = atomicrmw sub ptr %gate, i64 1 seq_cst
  %last = icmp eq i64 %old, 1
  br i1 %last, label %tell, label %leave
tell:
  call void @wake(ptr %pool, i64 1, i64 1)
  br label %leave
leave:
  %parked = icmp eq i64 %result, PARKED
  br i1 %parked, label %leave_sleep, label %left
leave_sleep:
  call void @sleep(ptr %pool, i64 %id)
  br label %left
left:
  %seen.after = phi i64 [ %epoch, %leave ], [ %seen, %leave_sleep ]
  store i64 0, ptr %spins
  br label %outside
spin:
  %over = call i1 @spin_is_over(ptr %pool, ptr %spins, ptr %since)
  br i1 %over, label %doze, label %outside
doze:
  call void @announce_sleep(ptr %pool, i64 %id)
  %epoch.now = load atomic i64, ptr %epoch.p seq_cst, align 8
  %changed = icmp ne i64 %epoch.now, %seen
  %stop.now = load atomic i64, ptr %stop.p seq_cst, align 8
  %stop.set = icmp ne i64 %stop.now, 0
  %awake = or i1 %changed, %stop.set
  br i1 %awake, label %awaken, label %sleep
awaken:
  call void @retract_sleep(ptr %pool, i64 %id)
  br label %woken
sleep:
  call void @sleep(ptr %pool, i64 %id)
  br label %woken
woken:
  store i64 0, ptr %spins
  br label %outside
out:
  call void @restore_float_mode(i64 %mode)
  ret void
}
"""

_TYPES = {"ptr": "u8", "i64": "i8", "i32": "i4"}
_AT = re.compile(r"(%[\w.]+) = at (\w+)\.(\w+) (%[\w.]+)")
_GET = re.compile(r"(%[\w.]+) = get (\w+) (\w+)\.(\w+) (%[\w.]+)")
_PUT = re.compile(r"put (\w+) (\S+) (\w+)\.(\w+) (%[\w.]+)")


def _offset(struct: str, field: str, kind: str | None = None) -> int:
    dtype, offset = STRUCTS[struct].fields[field][:2]  # type: ignore[index]
    if kind is not None and dtype != np.dtype("<" + _TYPES[kind]):
        raise TypeError(f"{struct}.{field} is {dtype}, not {kind}")
    return offset


def _expand(line: str, number: int) -> str:
    """One line in plain LLVM IR; `number` makes the names of temporaries unique."""
    text = line.strip()
    if match := _AT.fullmatch(text):
        name, struct, field, base = match.groups()
        return f"  {name} = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field)}"
    if match := _GET.fullmatch(text):
        name, kind, struct, field, base = match.groups()
        return (
            f"  {name}.field = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field, kind)}\n"
            f"  {name} = load {kind}, ptr {name}.field"
        )
    if match := _PUT.fullmatch(text):
        kind, value, struct, field, base = match.groups()
        return (
            f"  %put.{number} = getelementptr inbounds i8, ptr {base}, i64 {_offset(struct, field, kind)}\n"
            f"  store {kind} {value}, ptr %put.{number}"
        )
    return line


def native_text(triple: str, *, futex: bool | None = None) -> str:
    """The executor's module for `triple` (x86-64 or aarch64) as LLVM IR; `futex` as in `platform_text`."""
    text = _COMMON + _SERIAL + _SLEEP + _READY + _WORK + _PARALLEL
    words = "|".join(_CONSTANTS)
    text = re.sub(rf"(?<![%@\w])(?:{words})\b", lambda match: str(_CONSTANTS[match.group()]), text)
    body = "\n".join(_expand(line, number) for number, line in enumerate(text.splitlines()))
    return f'target triple = "{triple}"\n{platform_text(triple, futex=futex)}\n{body}\n'
