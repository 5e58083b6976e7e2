"""LLVM IR text: the work of one thread inside the gate: take a task or a chunk, run it, release its successors.

`pending` counts predecessors. The worker that completes a task runs the first successor that became ready itself and
puts the others into the queue. Host tasks wait in `host_queue` for the caller, which returns their number and is
entered again when they are done.

The short forms of `native_text` are expanded there.
"""

from __future__ import annotations

WORK = """
; Next AI CPU task of the caller, or -1.
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
; The caller (id 0) gets FINISHED, FAILED or an AI CPU task; a worker may also get PARKED: it has to leave and sleep.
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
  %status = call i64 @run_kernel(ptr %run, i64 %id, i64 %i, ptr %record, i64 0, i64 %grid, ptr %scratch)
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
  %part.status = call i64 @run_kernel(ptr %run, i64 %id, i64 %i, ptr %record, i64 %begin, i64 %end, ptr %scratch)
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
