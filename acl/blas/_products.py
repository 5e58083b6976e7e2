"""gemm_ex."""

from __future__ import annotations

import numpy as np

from acl._call import integer, status, word
from acl._process import memory
from acl.op._execution import run
from acl_runtime.device import Code, DataBuffer, DeviceError, TensorDesc
from acl_runtime.device.dataset import element_type
from acl_runtime.device.operators import Operator

__all__ = ["gemm_ex"]

_PLAIN, _TRANSPOSED = 0, 1
_ND = 2


@status(*(integer,) * 6, word, word, integer, integer, word, integer, integer, word, word, *(integer,) * 3, word)
def gemm_ex(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, type_a: int,
    b: int, ldb: int, type_b: int, beta: int, c: int, ldc: int, type_c: int, precision: int, stream: int,
) -> None:  # fmt: skip
    """c = alpha * op(a) op(b) + beta * c, row by row; alpha and beta are addresses of numbers of c's type, read now.

    Leading dims are -1 or those of dense matrices, c is not transposed; others are 207000.
    """
    if trans_c != _PLAIN or not {trans_a, trans_b} <= {_PLAIN, _TRANSPOSED}:
        raise DeviceError(Code.FEATURE_NOT_SUPPORT, "matrices are plain or transposed, c is plain")
    if min(m, n, k) < 1 or not (alpha and beta and a and b and c):
        raise DeviceError(Code.INVALID_PARAM, f"sizes {m}, {n}, {k} from 1 on and addresses are wanted")
    shapes = [(k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n), (m, n)]
    for name, given, shape in zip(("lda", "ldb", "ldc"), (lda, ldb, ldc), shapes, strict=True):
        if given not in (-1, shape[1]):
            raise DeviceError(Code.FEATURE_NOT_SUPPORT, f"{name} is {given}: only dense rows, -1 or {shape[1]}")
    descs = [TensorDesc(t, list(s), _ND) for t, s in zip((type_a, type_b, type_c), shapes, strict=True)]
    if len({type_a, type_b, type_c}) > 1:
        raise DeviceError(Code.FEATURE_NOT_SUPPORT, "the matrices have different types")
    scale, keep = _number(alpha, type_c), _number(beta, type_c)
    attributes = {"alpha": scale, "beta": keep, "transA": trans_a, "transB": trans_b}
    operator = Operator.of("Gemm", descs, descs[2:], attributes)
    buffers = [DataBuffer(address, desc.nbytes) for address, desc in zip((a, b, c), descs, strict=True)]
    run(operator, buffers, buffers[2:], stream)


def _number(address: int, kind: int) -> float:
    dtype = element_type(kind)
    if dtype is None or not dtype.is_float:
        raise DeviceError(Code.UNSUPPORTED_DATA_TYPE, f"data type {kind}: floats are multiplied")
    value: np.ndarray = memory().bytes(address, dtype.bytes).view(dtype.numpy)
    return float(value[0])
