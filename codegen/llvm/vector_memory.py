"""Vector loads and stores: contiguous, masked, repeated and strided, for every dtype in its memory form."""

from __future__ import annotations

import re

from codegen.llvm.conversions import from_memory, to_memory
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode, memory_type
from tensor_types.dtypes import BOOL, DType

_SHUFFLED_STEP = 4
"""Up to this distance between lanes, whole loads and shuffles beat fetching the elements."""


def load_vector(code: VectorCode, pointer: str, dtype: DType, step: Value, lanes: int, mask: Vec | None = None) -> Vec:
    """`lanes` elements `step` apart (0: one element, in one lane); lanes that the mask leaves out are not read."""
    fn, kind = code.fn, memory_type(dtype)
    align = dtype.bytes
    if step == 0 or lanes == 1:
        raw = fn.emit(f"load <1 x {kind}>, ptr {pointer}, align {align}")
        return from_memory(code, raw, dtype, 1)
    vector = f"<{lanes} x {kind}>"
    if step == 1:
        if mask is None:
            return from_memory(code, fn.load(vector, pointer, align), dtype, lanes)
        raw = fn.call(vector, f"llvm.masked.load.v{lanes}{_suffix(kind)}.p0", f"ptr align {align} {pointer}",
                      code.typed(mask), f"{vector} zeroinitializer")  # fmt: skip
        return from_memory(code, raw, dtype, lanes)
    if mask is None and isinstance(step, int) and (step == -1 or 2 <= step <= _SHUFFLED_STEP) and lanes >= 4:
        return from_memory(code, _load_shuffled(code, pointer, kind, step, lanes, align), dtype, lanes)
    if mask is not None or (code.host.vector_bytes == 64 and dtype.bytes >= 4):
        pointers = _lane_pointers(code, pointer, step, lanes, kind, align)
        mask = mask or code.const(True, BOOL, lanes)
        raw = fn.call(vector, f"llvm.masked.gather.v{lanes}{_suffix(kind)}.v{lanes}p0", pointers,
                      code.typed(mask), f"{vector} zeroinitializer")  # fmt: skip
        return from_memory(code, raw, dtype, lanes)
    raw = "poison"
    for lane in range(lanes):
        scalar = fn.load(kind, fn.offset(pointer, fn.mul(step, lane), kind), align)
        raw = fn.emit(f"insertelement {vector} {raw}, {kind} {scalar}, i64 {lane}")
    return from_memory(code, raw, dtype, lanes)


def _load_shuffled(code: VectorCode, pointer: str, kind: str, step: int, lanes: int, align: int) -> str:
    """Every `step`-th element by whole loads and shuffles; nothing outside the first to the last element is read."""
    fn, vector = code.fn, f"<{lanes} x {kind}>"
    if step == -1:
        raw = fn.load(vector, fn.offset(pointer, 1 - lanes, kind), align)
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
        return fn.emit(f"shufflevector {vector} {raw}, {vector} poison, <{lanes} x i32> <{order}>")
    span = (lanes - 1) * step + 1
    starts = [min(j * lanes, span - lanes) for j in range(step)]
    result = "poison"
    for j, start in enumerate(starts):
        raw = fn.load(vector, fn.offset(pointer, start, kind), align)
        places = range(0, lanes * step, step)
        picked = [lanes + at - start if at // lanes == j else lane for lane, at in enumerate(places)]
        mask = ", ".join(f"i32 {p}" for p in picked)
        result = fn.emit(f"shufflevector {vector} {result}, {vector} {raw}, <{lanes} x i32> <{mask}>")
    return result


def store_vector(code: VectorCode, a: Vec, pointer: str, step: Value, mask: Vec | None = None) -> None:
    """Stores lanes `step` elements apart; lanes that the mask leaves out are not written."""
    fn, kind, lanes = code.fn, memory_type(a.dtype), a.lanes
    align = a.dtype.bytes
    raw = to_memory(code, a)
    vector = f"<{lanes} x {kind}>"
    if step == 1 or lanes == 1:
        if mask is None or lanes == 1:
            fn.store(vector, raw, pointer, align)
        elif mask.text.count("i1 true") == 1 and not mask.text.startswith("splat"):
            # LLVM 22 turns a one-lane masked store of a truncated vector into a store of the untruncated element.
            lane = re.findall(r"i1 (\w+)", mask.text).index("true")
            scalar = fn.emit(f"extractelement {vector} {raw}, i64 {lane}")
            fn.store(kind, scalar, fn.offset(pointer, lane, kind), align)
        else:
            fn.call("void", f"llvm.masked.store.v{lanes}{_suffix(kind)}.p0", f"{vector} {raw}",
                    f"ptr align {align} {pointer}", code.typed(mask))  # fmt: skip
        return
    if mask is not None:
        pointers = _lane_pointers(code, pointer, step, lanes, kind, align)
        fn.call("void", f"llvm.masked.scatter.v{lanes}{_suffix(kind)}.v{lanes}p0", f"{vector} {raw}",
                pointers, code.typed(mask))  # fmt: skip
        return
    for lane in range(lanes):
        scalar = fn.emit(f"extractelement {vector} {raw}, i64 {lane}")
        fn.store(kind, scalar, fn.offset(pointer, fn.mul(step, lane), kind), align)


def _suffix(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)


def _lane_pointers(code: VectorCode, pointer: str, step: Value, lanes: int, kind: str, align: int) -> str:
    """The addresses of all lanes, as 'type value'."""
    fn = code.fn
    numbers = "<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">"
    if isinstance(step, int):
        offsets = "<" + ", ".join(f"i64 {lane * step}" for lane in range(lanes)) + ">"
    else:
        offsets = fn.emit(f"mul <{lanes} x i64> {fn.splat(step, 'i64', lanes)}, {numbers}")
    return f"<{lanes} x ptr> align {align} {fn.emit(f'getelementptr {kind}, ptr {pointer}, <{lanes} x i64> {offsets}')}"
