"""TGATHER and TSCATTER: the loops over the index tensor check each index; what one index moves is copied by vectors."""

from __future__ import annotations

from dataclasses import replace

from codegen.llvm.access import Access
from codegen.llvm.checks import require
from codegen.llvm.conversions import convert
from codegen.llvm.loops import Chunk, nest, over_vectors
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode, memory_type
from codegen.llvm.vector_memory import load_vector, store_vector
from codegen.llvm.vector_ops import evaluate
from codegen.tile.instructions import STATUS_INDEX
from codegen.tile.ir import Instr, View, element_strides
from tensor_types.dtypes import I64, U8, U16, U32, U64, DType

_RAW = {1: U8, 2: U16, 4: U32, 8: U64}
_COMBINE = {"add": "TADD", "mul": "TMUL", "max": "TMAX", "min": "TMIN"}


def emit_indexed(code: VectorCode, storage: Storage, instr: Instr) -> None:
    """Emits a gather or scatter; an index out of range ends the kernel with status INDEX and where it stands."""
    fn, dims = code.fn, storage.dims
    data, index_view = instr.srcs
    axis = instr.attr("axis", 0)
    assert isinstance(data, View) and isinstance(index_view, View) and isinstance(axis, int)
    gather = instr.op == "TGATHER"
    far_view, near_view = (data, instr.dst) if gather else (instr.dst, data)
    shape = [dims.value(s) for s in index_view.shape]
    limit = dims.value(far_view.shape[axis])
    reduce = str(instr.attr("reduce", "none"))
    far, near = storage.view_access(far_view), storage.view_access(near_view)
    if reduce == "none":
        raw = _RAW[far.dtype.bytes]
        far, near = replace(far, dtype=raw), replace(near, dtype=raw)
    stride = far.step(axis)
    # The index takes the place of the axis variable.
    far = replace(far, steps=tuple((k, s) for k, s in far.steps if k != axis))
    index = storage.view_access(index_view)
    start = dims.value(element_strides(index_view, storage.declared(index_view.base))[0])
    indexed = {k: shape[k] for k in range(len(shape)) if index.step(k) != 0}
    copied = {k: shape[k] for k in range(len(shape)) if k not in indexed}

    def run() -> None:
        with nest(fn, indexed, [far, near, index]) as (at, (far_at, near_at, index_at)):
            value = load_vector(code, index_at.pointer, index.dtype, 0, 1)
            number = code.extract(convert(code, value, I64), 0)
            if instr.attr("wrap") and index.dtype.kind == "int":
                negative = fn.emit(f"icmp slt i64 {number}, 0")
                number = fn.emit(f"select i1 {negative}, i64 {fn.add(number, limit)}, i64 {number}")
            position = start
            for k in indexed:
                position = fn.add(position, fn.mul(at[k], index.step(k)))
            require(fn, fn.emit(f"icmp ult i64 {number}, {limit}"), STATUS_INDEX, position)
            moved = replace(far_at, pointer=fn.offset(far_at.pointer, fn.mul(number, stride), memory_type(far.dtype)))
            _move(code, moved, near_at, copied, gather, reduce)

    empty = [extent for extent in copied.values() if extent == 0]
    dynamic = [extent for extent in copied.values() if not isinstance(extent, int)]
    if empty:
        return
    if not dynamic:
        run()
        return
    # With nothing to copy, no index is looked at.
    least: Value = dynamic[0]
    for extent in dynamic[1:]:
        least = fn.minimum(least, extent)
    fn.when(fn.emit(f"icmp sgt i64 {least}, 0"), run)


def _move(code: VectorCode, far: Access, near: Access, extents: dict[int, Value], gather: bool, reduce: str) -> None:
    """Copies what one index stands for: the axes along which the index does not change."""
    fn = code.fn
    source, target = (far, near) if gather else (near, far)
    unit = [k for k in extents if target.step(k) == 1]
    row = unit[-1] if unit else max(extents, default=None)
    if row is None:
        _element(code, source, target, 0, 1, None, reduce, -1)
        return
    outer = {k: e for k, e in extents.items() if k != row}
    lanes = _lanes(code, target.dtype, extents[row])
    with nest(fn, outer, [source, target]) as (_, (source_at, target_at)):

        def body(c: Chunk, held: list[Vec]) -> list[Vec]:
            for u in range(c.count):
                offset = fn.add(c.start, u * c.lanes)
                _element(code, source_at, target_at, offset, c.lanes, c.mask, reduce, row)
            return held

        over_vectors(code, extents[row], lanes, 4, [], body)


def _lanes(code: VectorCode, dtype: DType, extent: Value) -> int:
    lanes = code.host.vector_bytes // (max(dtype.bytes, 4) if dtype.is_float else dtype.bytes)
    while isinstance(extent, int) and lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def _element(code: VectorCode, source: Access, target: Access, offset: Value, lanes: int, mask: Vec | None, reduce: str,
             row: int) -> None:  # fmt: skip
    fn = code.fn
    source, target = source.advanced(fn, row, offset), target.advanced(fn, row, offset)
    value = load_vector(code, source.pointer, source.dtype, source.step(row), lanes, mask)
    value = code.broadcast(value, lanes)
    if reduce != "none":
        old = code.broadcast(load_vector(code, target.pointer, target.dtype, target.step(row), lanes, mask), lanes)
        value = evaluate(code, Instr(_COMBINE[reduce], View("", (), ())), [old, value], target.dtype)
    store_vector(code, value, target.pointer, target.step(row), mask)
