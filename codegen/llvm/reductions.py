"""Reductions as accumulators: what they start from, how they take an element, and how they end.

Accumulators of f16 and bf16 sums are f32 and are rounded once. Lanes and accumulators are combined in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from codegen.llvm.conversions import is_reduced, narrow_to_nibble, round_to
from codegen.llvm.vector_code import Vec, VectorCode, vector_type
from codegen.llvm.vector_ops import UnsupportedInstruction, maximum, minimum
from codegen.tile.ir import Instr, Scalar
from tensor_types.dtypes import BOOL, F32, I64, DType


@dataclass(frozen=True)
class Reduction:
    """One reducing instruction; an accumulator is one vector, or a value and an index vector for TROWARG*."""

    instr: Instr
    source: DType
    """dtype of the elements as they are accumulated."""

    @staticmethod
    def of(instr: Instr, source: DType) -> Reduction:
        return Reduction(instr, F32 if is_reduced(source) else source)

    @property
    def finds_index(self) -> bool:
        return self.instr.op.startswith("TROWARG")

    @property
    def _largest(self) -> bool:
        return self.instr.op.endswith("MAX")

    def types(self, lanes: int) -> list[str]:
        """LLVM types of the accumulator's vectors."""
        own = [vector_type(self.source, lanes)]
        return [*own, vector_type(I64, lanes)] if self.finds_index else own

    def neutral(self, code: VectorCode, lanes: int) -> list[Vec]:
        """The accumulator before the first element."""
        value = code.const(self._neutral_scalar(), self.source, lanes)
        return [value, code.const(0, I64, lanes)] if self.finds_index else [value]

    def _neutral_scalar(self) -> Scalar:
        op, dtype = self.instr.op, self.source
        if self.finds_index and dtype.is_float:
            return math.nan  # so that -inf after NaN elements is found
        if op == "TROWSUM":
            return 0
        if op == "TROWPROD":
            return 1
        if dtype == BOOL:
            return not self._largest
        if dtype.is_float:
            return -math.inf if self._largest else math.inf
        if dtype.kind == "uint":
            return 0 if self._largest else (1 << dtype.bits) - 1
        return -(1 << (dtype.bits - 1)) if self._largest else (1 << (dtype.bits - 1)) - 1

    def take(
        self, code: VectorCode, held: list[Vec], elements: list[Vec], index: Vec | None, mask: Vec | None
    ) -> list[Vec]:
        """The accumulator after one more vector of elements (two: their products); masked-out lanes change nothing."""
        if len(elements) == 2:
            a, b = (x if mask is None else code.select(mask, x, code.like(0.0, x)) for x in elements)
            return [code.fma(a, b, held[0])]
        element = elements[0]
        element = Vec(element.text, self.source, element.lanes)
        if mask is not None:
            element = code.select(mask, element, code.like(self._neutral_scalar(), element))
        if not self.finds_index:
            return [self._combine(code, element, held[0])]
        assert index is not None
        better = self._better(code, element, held[0])
        if mask is not None:
            better = code.op("and", better, mask)
        return [code.select(better, element, held[0]), code.select(better, index, held[1])]

    def _better(self, code: VectorCode, a: Vec, b: Vec) -> Vec:
        equal = "e" if self.instr.attr("last") else "t"
        side = ("g" if self._largest else "l") + equal
        if a.dtype.is_float:
            return code.op("and", code.compare("u" + side, a, b), code.compare("ord", a, a))
        return code.compare(("s" if a.dtype.kind == "int" else "u") + side, a, b)

    def _combine(self, code: VectorCode, element: Vec, held: Vec) -> Vec:
        op, dtype = self.instr.op, self.source
        if op in ("TROWSUM", "TROWPROD"):
            product = op == "TROWPROD"
            if dtype == BOOL:
                return code.op("and" if product else "or", held, element)
            if dtype.is_float:
                return code.op("fmul" if product else "fadd", held, element)
            return code.op("mul" if product else "add", held, element)
        if dtype == BOOL:
            return code.op("or" if self._largest else "and", held, element)
        if dtype.is_float:
            if self.instr.attr("nan"):
                return maximum(code, element, held) if self._largest else minimum(code, element, held)
            # A NaN element compares false and leaves what is held.
            return code.select(code.compare("ogt" if self._largest else "olt", element, held), element, held)
        sign = "s" if dtype.kind == "int" else "u"
        return code.call(f"llvm.{sign}{'max' if self._largest else 'min'}", element, held)

    def merge(self, code: VectorCode, a: list[Vec], b: list[Vec]) -> list[Vec]:
        """Two accumulators as one."""
        if not self.finds_index:
            return [self._combine(code, b[0], a[0])]
        side = "g" if self._largest else "l"
        prefix = "o" if self.source.is_float else "s" if self.source.kind == "int" else "u"
        better = code.compare(f"{prefix}{side}t", b[0], a[0])
        if self.source.is_float:
            alone = code.op("and", code.compare("uno", a[0], a[0]), code.compare("ord", b[0], b[0]))
            better = code.op("or", better, alone)
        equal = code.compare("oeq" if self.source.is_float else "eq", b[0], a[0])
        earlier = code.compare("sgt" if self.instr.attr("last") else "slt", b[1], a[1])
        wins = code.op("or", better, code.op("and", equal, earlier))
        return [code.select(wins, b[0], a[0]), code.select(wins, b[1], a[1])]

    def horizontal(self, code: VectorCode, held: list[Vec]) -> list[Vec]:
        """The lanes of an accumulator combined into one, halves first."""
        while held[0].lanes > 1:
            half = held[0].lanes // 2
            low = [code.shuffle(v, v, list(range(half))) for v in held]
            high = [code.shuffle(v, v, list(range(half, 2 * half))) for v in held]
            held = self.merge(code, low, high)
        return held

    def result(self, code: VectorCode, held: list[Vec], old: Vec | None, dtype: DType) -> Vec:
        """The value for the destination, with its old content taken in when the instruction accumulates."""
        if self.finds_index:
            index = held[1]
            if dtype.bits == 64:
                return Vec(index.text, dtype, index.lanes)
            return code.cast("trunc", index, dtype)
        total = held[0]
        if old is not None:
            total = self._combine(code, Vec(old.text, self.source, old.lanes), total)
        if is_reduced(dtype):
            return round_to(code, total, dtype)
        if total.dtype != dtype:
            raise UnsupportedInstruction(f"{self.instr.op} from {total.dtype} to {dtype}")
        return narrow_to_nibble(code, total)
