"""LLVM IR text: what every execution shares, and serial execution, which walks the records in index order.

The short forms of `native_text` are expanded there.
"""

from __future__ import annotations

COMMON = """
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

; The same by worker %id for task %i, noted in the trace of the run if it has one.
define internal i64 @run_kernel(ptr %run, i64 %id, i64 %i, ptr %task, i64 %begin, i64 %end, ptr %scratch) alwaysinline {
entry:
  %fn = get ptr task.fn %task
  %trace = get ptr run.trace %run
  %untraced = icmp eq ptr %trace, null
  br i1 %untraced, label %plain, label %traced
plain:
  %plain.status = call i64 @call_kernel(ptr %fn, ptr %task, i64 %begin, i64 %end, ptr %scratch)
  ret i64 %plain.status
traced:
  %started = call i64 @now()
  %status = call i64 @call_kernel(ptr %fn, ptr %task, i64 %begin, i64 %end, ptr %scratch)
  %ended = call i64 @now()
  %count = at trace.count %trace
  %slot = atomicrmw add ptr %count, i64 1 monotonic
  %capacity = get i64 trace.capacity %trace
  %room = icmp slt i64 %slot, %capacity
  br i1 %room, label %note, label %out
note:
  %events = get ptr trace.events %trace
  %event = getelementptr inbounds [EVENT_SIZE x i8], ptr %events, i64 %slot
  put i64 %i event.task %event
  put i64 %id event.worker %event
  put i64 %started event.begin %event
  put i64 %ended event.end %event
  br label %out
out:
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

SERIAL = """
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
  %grain.raw = get i64 task.grain %task
  %grain.least = call i64 @llvm.smax.i64(i64 %grain.raw, i64 1)
  %grain = call i64 @llvm.smin.i64(i64 %grain.least, i64 %grid)
  %in_chunks = get i64 run.in_chunks %run
  %whole = icmp eq i64 %in_chunks, 0
  %step = select i1 %whole, i64 %grid, i64 %grain
  br label %part
part:
  %part.begin = phi i64 [ 0, %call ], [ %part.end, %part_done ]
  %stop.p = at run.stop %run
  %stop = load atomic i64, ptr %stop.p monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %out, label %part_run
part_run:
  %left = sub i64 %grid, %part.begin
  %size = call i64 @llvm.smin.i64(i64 %left, i64 %step)
  %part.end = add i64 %part.begin, %size
  %status = call i64 @run_kernel(ptr %run, i64 0, i64 %i, ptr %task, i64 %part.begin, i64 %part.end, ptr %scratch)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %failed, label %part_done
part_done:
  %more.parts = icmp slt i64 %part.end, %grid
  br i1 %more.parts, label %part, label %called
called:
  call void @stamp(ptr %run, i64 %i, i64 1)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
failed:
  call void @stamp(ptr %run, i64 %i, i64 1)
  put i64 %i run.failed_task %run
  put i64 %status run.failed_status %run
  br label %out
out:
  %result = phi i64 [ FINISHED, %loop ], [ %i, %begin ], [ FAILED, %part ], [ FAILED, %failed ]
  call void @restore_float_mode(i64 %mode)
  ret i64 %result
}
"""
