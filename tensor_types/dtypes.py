"""Element types: name, ONNX number, AscendCL number, bytes, numpy dtype. One table, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type. `bits` is the storage width of one element; `numpy` is None for object handles."""

    name: str
    bits: int
    kind: str
    """'float', 'int', 'uint', 'bool', 'complex' or 'handle' (string, sequence, optional)."""
    onnx: int
    acl: int
    """aclDataType; -1 where AscendCL has none."""

    @property
    def numpy(self) -> np.dtype:
        return _numpy_dtypes()[self.name]

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory (sub-byte types are stored one element per byte)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    def __str__(self) -> str:
        return self.name


_TABLE = [
    DType("f32", 32, "float", 1, 0),
    DType("u8", 8, "uint", 2, 4),
    DType("i8", 8, "int", 3, 2),
    DType("u16", 16, "uint", 4, 7),
    DType("i16", 16, "int", 5, 6),
    DType("i32", 32, "int", 6, 3),
    DType("i64", 64, "int", 7, 9),
    DType("str", 64, "handle", 8, 13),
    DType("bool", 8, "bool", 9, 12),
    DType("f16", 16, "float", 10, 1),
    DType("f64", 64, "float", 11, 11),
    DType("u32", 32, "uint", 12, 8),
    DType("u64", 64, "uint", 13, 10),
    DType("c64", 64, "complex", 14, 16),
    DType("c128", 128, "complex", 15, 17),
    DType("bf16", 16, "float", 16, 27),
    DType("f8e4m3fn", 8, "float", 17, 36),
    DType("f8e4m3fnuz", 8, "float", 18, -1),
    DType("f8e5m2", 8, "float", 19, 35),
    DType("f8e5m2fnuz", 8, "float", 20, -1),
    DType("u4", 4, "uint", 21, -1),
    DType("i4", 4, "int", 22, 29),
    DType("f4e2m1", 4, "float", 23, -1),
    DType("f8e8m0", 8, "float", 24, 37),
    DType("u2", 2, "uint", 25, -1),
    DType("i2", 2, "int", 26, -1),
    DType("handle", 64, "handle", -1, -1),
]


@cache
def _numpy_dtypes() -> dict[str, np.dtype]:
    """By name. What only compiles programs does not load numpy."""
    import ml_dtypes
    import numpy as np

    return {
        "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
        "bf16": np.dtype(ml_dtypes.bfloat16), "bool": np.dtype(np.bool_), "str": np.dtype(object),
        "handle": np.dtype(object), "c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128),
        "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
        "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
        "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
        "f8e5m2": np.dtype(ml_dtypes.float8_e5m2), "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
        "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu), "u4": np.dtype(ml_dtypes.uint4), "i4": np.dtype(ml_dtypes.int4),
        "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn), "u2": np.dtype(ml_dtypes.uint2), "i2": np.dtype(ml_dtypes.int2),
    }  # fmt: skip


@cache
def _by_numpy() -> dict[np.dtype, DType]:
    return {kind: DTYPES[name] for name, kind in _numpy_dtypes().items() if name not in ("str", "handle")}


DTYPES: dict[str, DType] = {t.name: t for t in _TABLE}
_BY_ONNX = {t.onnx: t for t in _TABLE if t.onnx > 0}

F32, F64, F16, BF16 = DTYPES["f32"], DTYPES["f64"], DTYPES["f16"], DTYPES["bf16"]
I8, I16, I32, I64 = DTYPES["i8"], DTYPES["i16"], DTYPES["i32"], DTYPES["i64"]
U8, U16, U32, U64 = DTYPES["u8"], DTYPES["u16"], DTYPES["u32"], DTYPES["u64"]
BOOL, STR, HANDLE = DTYPES["bool"], DTYPES["str"], DTYPES["handle"]


def dtype(name: str) -> DType:
    """The dtype of that name; KeyError lists the known ones."""
    try:
        return DTYPES[name]
    except KeyError:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}") from None


def from_onnx(number: int) -> DType:
    """The dtype of an ONNX TensorProto.DataType number; KeyError if there is none."""
    return _BY_ONNX[number]


def from_numpy(value: np.dtype | type) -> DType:
    """The dtype of a numpy dtype; strings and objects give `str`. KeyError if there is none."""
    import numpy as np

    value = np.dtype(value)
    return STR if value.kind in "OUS" else _by_numpy()[value]
