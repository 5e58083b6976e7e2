"""LLVM IR text: parking and waking workers, and the queues of ready tasks.

- An entry of the queue, a list that only grows during a run, is a task, or a task with the bit SHARED: it has more than
  one chunk, stays at the head until its chunks are taken, and every worker takes chunks from it in ascending order.
- A worker without work spins for `spin_ns`, then sets its bit in `sleeping`, looks once more, leaves the gate and
  parks. Whoever makes work available looks at `sleeping` after it, claims bits and posts to their owners, so no wake-up
  is lost.

The short forms of `native_text` are expanded there.
"""

from __future__ import annotations

SLEEP = """
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

READY = """
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
