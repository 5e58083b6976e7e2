"""What the native executor needs of the operating system and the processor, as IR text.

`park(lock, word, expected)` blocks while the i32 at `word` equals `expected`, and may return early.
`unpark(lock, word)` wakes whoever is blocked on `word`, which was changed before.
`lock` is the `parking` field of the pool.
Linux uses futexes; elsewhere one POSIX mutex and condition variable per pool do.
"""

from __future__ import annotations

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}

_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @parking_init(ptr %lock) { ret void }

define internal void @park(ptr %lock, ptr %word, i32 %expected) noinline {
  %r = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 128, i32 %expected, ptr null, ptr null, i32 0)
  ret void
}

define internal void @unpark(ptr %lock, ptr %word) noinline {
  %r = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 129, i32 1, ptr null, ptr null, i32 0)
  ret void
}
"""

# The word changes before `unpark` takes the mutex, so a sleeper has either seen the change or is already waiting.
_PTHREAD = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @parking_init(ptr %lock) {
  %changed = getelementptr inbounds i8, ptr %lock, i64 128
  %m = call i32 @pthread_mutex_init(ptr %lock, ptr null)
  %c = call i32 @pthread_cond_init(ptr %changed, ptr null)
  ret void
}

define internal void @park(ptr %lock, ptr %word, i32 %expected) noinline {
entry:
  %changed = getelementptr inbounds i8, ptr %lock, i64 128
  %l = call i32 @pthread_mutex_lock(ptr %lock)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %expected
  br i1 %same, label %wait, label %out
wait:
  %w = call i32 @pthread_cond_wait(ptr %changed, ptr %lock)
  br label %out
out:
  %u = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}

define internal void @unpark(ptr %lock, ptr %word) noinline {
  %changed = getelementptr inbounds i8, ptr %lock, i64 128
  %l = call i32 @pthread_mutex_lock(ptr %lock)
  %b = call i32 @pthread_cond_broadcast(ptr %changed)
  %u = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}
"""

_CLOCK = """
declare i32 @clock_gettime(i32, ptr)

; Nanoseconds of CLOCK_MONOTONIC.
define internal i64 @now() noinline {
  %spec = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 CLOCK, ptr %spec)
  %s = load i64, ptr %spec
  %np = getelementptr inbounds i64, ptr %spec, i64 1
  %ns = load i64, ptr %np
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum
}
"""

# Libraries built with fast-math switch their loading thread to flush-to-zero, and threads inherit it from their maker.
# All workers compute in the default floating-point environment, so that results cannot depend on who runs a chunk.
_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)

define internal void @relax() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @default_float_mode() {
  %word = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %saved = load i32, ptr %word
  store i32 8064, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %wide = zext i32 %saved to i64
  ret i64 %wide
}

define internal void @restore_float_mode(i64 %saved) {
  %word = alloca i32
  %narrow = trunc i64 %saved to i32
  store i32 %narrow, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
"""

# `isb` stands for the pause that `yield` is not on cores without SMT.
_AARCH64 = """
declare void @llvm.aarch64.isb(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @relax() alwaysinline {
  call void @llvm.aarch64.isb(i32 15)
  ret void
}

define internal i64 @default_float_mode() {
  %saved = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret i64 %saved
}

define internal void @restore_float_mode(i64 %saved) {
  call void @llvm.aarch64.set.fpcr(i64 %saved)
  ret void
}
"""

_PROCESSOR = {"x86_64": _X86, "aarch64": _AARCH64}


def architecture(triple: str) -> str:
    """'x86_64' or 'aarch64'; ValueError for another processor."""
    name = {"arm64": "aarch64"}.get(triple.split("-")[0], triple.split("-")[0])
    if name not in _PROCESSOR:
        raise ValueError(f"no native executor for {triple}")
    return name


def platform_text(triple: str, *, futex: bool | None = None) -> str:
    """IR of `parking_init`, `park`, `unpark`, `now`, `relax`, `default_float_mode` and `restore_float_mode`.

    `futex` None chooses by the triple; False takes the POSIX variant.
    """
    name = architecture(triple)
    linux = "linux" in triple
    parking = _FUTEX.replace("NUMBER", str(_FUTEX_CALL[name])) if (linux if futex is None else futex) else _PTHREAD
    clock = _CLOCK.replace("CLOCK,", "1," if linux else "6,")
    return parking + clock + _PROCESSOR[name]
