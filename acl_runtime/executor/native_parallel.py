"""LLVM IR text: the entry points of parallel execution and the loop of a worker thread.

Only workers that are inside the gate may touch the run. The caller opens the gate when the run is set up, closes it at
the end and waits until the last worker has left; it never waits for a worker that sleeps.

The short forms of `native_text` are expanded there.
"""

from __future__ import annotations

PARALLEL = """
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
  ; Whoever stops the run writes `stop` before `failed`, so one of the two is seen.
  %failed = at run.failed %run
  store atomic i64 0, ptr %failed seq_cst, align 8
  %stop.p = at run.stop %run
  %stop = load atomic i64, ptr %stop.p seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %refused, label %set
refused:
  call void @restore_float_mode(i64 %mode)
  ret i64 FAILED
set:
  put i64 %n run.left %run
  %threads = get i64 pool.threads %pool
  br label %clear
clear:
  %w = phi i64 [ 0, %set ], [ %w.next, %clear ]
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

; From another thread than the caller's: nothing more of the run begins.
define void @executor_stop(ptr %run, ptr %pool) {
entry:
  %stop = at run.stop %run
  store atomic i64 1, ptr %stop seq_cst, align 8
  %serial = icmp eq ptr %pool, null
  br i1 %serial, label %out, label %workers
workers:
  %failed = at run.failed %run
  store atomic i64 1, ptr %failed seq_cst, align 8
  call void @wake(ptr %pool, i64 1, i64 1)
  br label %out
out:
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
