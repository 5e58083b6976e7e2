"""TCUMSUM: a running sum along one axis, vectors along another axis where one is contiguous."""

from __future__ import annotations

from codegen.llvm.conversions import is_reduced, round_to
from codegen.llvm.loops import Chunk, carried, nest, over_vectors
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.vector_memory import load_vector, store_vector
from codegen.llvm.vector_ops import evaluate
from codegen.tile.ir import Instr, View
from tensor_types.dtypes import F32


def emit_scan(code: VectorCode, storage: Storage, instr: Instr) -> None:
    """Emits a TCUMSUM; f16 and bf16 sums are carried in f32."""
    fn, dims = code.fn, storage.dims
    view = instr.srcs[0]
    axis = instr.attr("axis", 0)
    assert isinstance(view, View) and isinstance(axis, int)
    shape = [dims.value(s) for s in instr.dst.shape]
    source, target = storage.view_access(view), storage.view_access(instr.dst)
    dtype = target.dtype
    held_dtype = F32 if is_reduced(dtype) else dtype
    length = shape[axis]
    others = [k for k in range(len(shape)) if k != axis]
    unit = [k for k in others if target.step(k) == 1 and source.step(k) in (0, 1)]
    row = unit[-1] if unit else None
    exclusive, reverse = bool(instr.attr("exclusive")), bool(instr.attr("reverse"))
    add = Instr("TADD", View("", (), ()))

    with nest(fn, {k: shape[k] for k in others if k != row}, [source, target]) as (_, (source_at, target_at)):

        def column(c: Chunk, held: list[Vec]) -> list[Vec]:
            start = (source_at, target_at)
            if row is not None:
                start = (source_at.advanced(fn, row, c.start), target_at.advanced(fn, row, c.start))

            def step(i: Value, total: list[Vec]) -> list[Vec]:
                at = fn.sub(fn.sub(length, 1), i) if reverse else i
                from_, to = (a.advanced(fn, axis, at) for a in start)
                source_step = from_.step(row) if row is not None else 0
                value = load_vector(code, from_.pointer, source.dtype, source_step, c.lanes, c.mask)
                value = code.broadcast(Vec(value.text, held_dtype, value.lanes), c.lanes)
                after = evaluate(code, add, [total[0], value], held_dtype)
                result = (
                    round_to(code, total[0] if exclusive else after, dtype)
                    if is_reduced(dtype)
                    else (total[0] if exclusive else after)
                )
                store_vector(code, result, to.pointer, 1, c.mask)
                return [after]

            carried(code, length, 1, 0, [code.const(0, held_dtype, c.lanes)], step)
            return held

        if row is None:
            column(Chunk(0, 1, 1), [])
        else:
            lanes = code.host.vector_bytes // max(dtype.bytes, held_dtype.bytes)
            extent = shape[row]
            while isinstance(extent, int) and lanes > 1 and lanes // 2 >= extent:
                lanes //= 2
            over_vectors(code, extent, lanes, 1, [], column)
