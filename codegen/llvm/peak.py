"""Two loops that show what a machine can do: multiply-adds in registers, and loads from a buffer.

Both are kernels of the usual ABI with the symbols `peak_flops` and `peak_bytes`, so that the executor spreads them over
threads. Operands: out f32[grid, lanes]; a buffer u8[rows, bytes]. Dims: rounds of a grid index, and rows, of which grid
index i reads row i modulo rows.
"""

from __future__ import annotations

from codegen.targets.hosts import host_class

_CHAINS = 10
"""Independent sums: enough to hide the latency of a multiply-add in two pipes, few enough for 16 registers."""
_LOADS = 8

_KERNEL = """
define i64 @peak_WHAT(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
entry:
  br label %loop
loop:
  %index = phi i64 [ %begin, %entry ], [ %next, %loop ]
  call void @WHAT(ptr %args, ptr %dims, i64 %index)
  %next = add i64 %index, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out
out:
  ret i64 0
}
"""


def peak_text(target: object) -> tuple[str, int, int]:
    """LLVM text for a host class; operations (a multiply-add is two) and bytes of one round."""
    host = host_class(target)
    lanes = host.vector_bytes // 4
    v = f"<{lanes} x float>"
    fma = f"declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})" if host.engines.fma else ""
    splat = ", ".join(["float 0x3FEFFFFFE0000000"] * lanes)
    tiny = ", ".join(["float 0x3EB0000000000000"] * lanes)
    chains = range(_CHAINS)
    phis = "\n".join(f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in chains)
    if host.engines.fma:
        steps = "\n".join(
            f"  %b{k} = call {v} @llvm.fma.v{lanes}f32({v} %a{k}, {v} <{splat}>, {v} <{tiny}>)" for k in chains
        )
    else:
        steps = "\n".join(f"  %m{k} = fmul {v} %a{k}, <{splat}>\n  %b{k} = fadd {v} %m{k}, <{tiny}>" for k in chains)
    sums = "\n".join(f"  %s{k} = fadd {v} {'%b0' if k == 1 else f'%s{k - 1}'}, %b{k}" for k in range(1, _CHAINS))
    loads = range(_LOADS)
    load_phis = "\n".join(f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in loads)
    load_steps = "\n".join(
        f"  %p{k} = getelementptr inbounds {v}, ptr %q, i64 {k}\n  %v{k} = load {v}, ptr %p{k}, align 4\n"
        f"  %b{k} = fadd {v} %a{k}, %v{k}"
        for k in loads
    )
    load_sums = "\n".join(f"  %s{k} = fadd {v} {'%b0' if k == 1 else f'%s{k - 1}'}, %b{k}" for k in range(1, _LOADS))
    step = _LOADS * host.vector_bytes
    signature = "(ptr %args, ptr %dims, i64 %index)"
    store = f"""  %memory = load ptr, ptr %args
  %at = getelementptr inbounds {v}, ptr %memory, i64 %index"""
    text = f"""{fma}
define internal void @flops{signature} {{
entry:
  %rounds = load i64, ptr %dims
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{phis}
{steps}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %rounds
  br i1 %more, label %loop, label %out
out:
{sums}
{store}
  store {v} %s{_CHAINS - 1}, ptr %at, align 4
  ret void
}}
define internal void @bytes{signature} {{
entry:
  %rounds = load i64, ptr %dims
  %buffer.p = getelementptr ptr, ptr %args, i64 1
  %buffer = load ptr, ptr %buffer.p
  %rows.p = getelementptr i64, ptr %dims, i64 1
  %rows = load i64, ptr %rows.p
  %number = urem i64 %index, %rows
  %row = mul i64 %rounds, {step}
  %first = mul i64 %row, %number
  %start = getelementptr i8, ptr %buffer, i64 %first
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{load_phis}
  %offset = mul i64 %i, {step}
  %q = getelementptr i8, ptr %start, i64 %offset
{load_steps}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %rounds
  br i1 %more, label %loop, label %out
out:
{load_sums}
{store}
  store {v} %s{_LOADS - 1}, ptr %at, align 4
  ret void
}}
"""
    text += "".join(_KERNEL.replace("WHAT", name) for name in ("flops", "bytes"))
    return text, 2 * _CHAINS * lanes, step
