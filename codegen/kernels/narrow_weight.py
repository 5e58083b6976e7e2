"""The right operand of a BlockMatMul as kernels see it: constant codes, scales and zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.kernels.operands import NotLowerable
from graph_opt.ir.core import Node, Value


@dataclass(frozen=True)
class Weight:
    """The right operand: codes [k, n], and for blocks of `block` k and each column a scale and a zero.

    `middle` is the zero where one number serves all, `zeros` the constant otherwise.
    """

    codes: Value
    scales: Value
    zeros: Value | None
    middle: float
    k: int
    n: int
    block: int

    @property
    def bits(self) -> int:
        """Of codes in words; 0 where a code has a byte of its own."""
        return self.codes.dtype.bits if self.codes.dtype.bits < 8 else 0

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block)


def weight_of(anchor: Node, values: dict[str, Value]) -> Weight:
    """Reads the right operand of a BlockMatMul; NotLowerable for a form that has no kernel."""

    def outer(index: int) -> Value | None:
        value = anchor.input(index)
        return None if value is None else values.get(value.name, value)

    codes, scales, zeros = (outer(i) for i in (1, 2, 3))
    assert codes is not None and scales is not None
    if codes.recipe is None or scales.recipe is None or (zeros is not None and zeros.recipe is None):
        raise NotLowerable("codes, scales or zeros that only the run knows")
    k, n = codes.recipe.shape
    block = min(int(anchor.attrs.get("block_size", 0)) or k, k)  # type: ignore[call-overload]
    if codes.dtype.bits < 8 and codes.dtype.kind != "uint":
        raise NotLowerable(f"{codes.dtype} codes in words: they are unsigned")
    if codes.dtype.bits < 8 and (k % (32 // codes.dtype.bits) or (block % (32 // codes.dtype.bits) and block != k)):
        raise NotLowerable(f"blocks of {block} of {k} codes of {codes.dtype.bits} bits are no whole words")
    middle = 0.0
    if zeros is not None:
        assert zeros.recipe is not None
        numbers = np.asarray(zeros.recipe.array()).astype(np.float32)
        if numbers.size and (numbers == numbers.flat[0]).all():
            zeros, middle = None, float(numbers.flat[0])
    return Weight(codes, scales, zeros, middle, k, n, block)
