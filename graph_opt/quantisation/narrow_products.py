"""Products whose right operand is a constant of codes keep the codes: BlockMatMul, where a kernel takes it.

`FuseNarrowProducts`
1. MatMul(a, DequantizeLinear(codes)) of a constant matrix of codes [K, N] of at most 8 bits becomes BlockMatMul, if its
   scales are one number, one for each column, or one for each column and block of k; also with a Cast between, and
   with the matrix transposed behind DequantizeLinear.
2. Signed codes below 8 bits become unsigned ones, and their zeros move along: kernels know words of unsigned ones.

`ChooseNarrowProducts`, for the targets
3. Where the operator allows bytes and blocks divide k, a is quantised block by block (QuantizeBlocks). With `dynamic`
   all others are quantised too, above the least number of each part of a block. Halves become f32 otherwise.
4. What no kernel takes becomes the product of numbers that it stands for, its weight a recipe over the codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import ceildiv
from tensor_types.dtypes import DTYPES, F32, I8, U8, DType
from tensor_types.recipes import Computed, Recipe, Source, permute, repeat, reshape, scale

_MOST_BITS = 8
_MIDDLE = 128
_QUAD = 4
_PART = 32
"""Elements of a row that share a scale: of half as many the scales, of twice as many the errors would cost more."""


@dataclass(frozen=True)
class FuseNarrowProducts:
    """See the module."""

    name: ClassVar[str] = "fuse-narrow-products"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_fuse(rewriter, node) for node in list(graph.nodes) if node.op == "MatMul"])


@dataclass(frozen=True)
class _Codes:
    """(codes [K, N] - zeros) * scales, scales and zeros [blocks, N]."""

    codes: Recipe
    scales: Recipe
    zeros: Recipe | None
    block: int


def _fuse(rewriter: Rewriter, node: Node) -> bool:
    a, weight = node.inputs[:2]
    if a is None or a.is_constant or not a.dtype.is_float or a.dtype == DTYPES["f64"] or weight is None:
        return False
    found = _codes(weight, False)
    if found is None or node.attrs.get("transA") or node.attrs.get("transB") or node.attrs.get("alpha", 1.0) != 1.0:
        return False
    name = f"{node.name or node.output.name}/"
    codes = rewriter.constant(found.codes, name + "codes")
    scales = rewriter.constant(found.scales, name + "scales")
    zeros = None if found.zeros is None else rewriter.constant(found.zeros, name + "zeros")
    result = node.output.dtype
    wanted = {"result_dtype": result.name} if result != a.dtype else {}
    attrs = {"block_size": found.block, **wanted}
    product = rewriter.insert("BlockMatMul", [a, codes, scales, zeros], attrs, before=node, name=node.name)
    Arithmetic(rewriter, node).finish(product.output)
    return True


def _codes(weight: Value, turned: bool) -> _Codes | None:
    """What a right operand [K, N] is made of, if it is codes; `turned`: of its transpose."""
    node = weight.producer
    if node is None or weight.shape is None or weight.rank != 2:
        return None
    source = node.inputs[0]
    if node.op == "Cast" and source is not None and source.dtype.is_float and weight.dtype.is_float:
        return _codes(source, turned)
    if node.op == "Transpose" and source is not None:
        return _codes(source, turned != (tuple(node.attrs.get("perm") or (1, 0)) == (1, 0)))  # type: ignore[arg-type]
    if node.op != "DequantizeLinear":
        return None
    codes, factor, zero = (None if v is None else v.recipe for v in (*node.inputs, None)[:3])
    missing = len(node.inputs) > 2 and node.inputs[2] is not None and zero is None
    if codes is None or factor is None or missing or not codes.dtype.is_integer or codes.dtype.bits > _MOST_BITS:
        return None
    block, axis = int(node.attrs.get("block_size") or 0), int(node.attrs.get("axis", 1)) % 2  # type: ignore[call-overload]
    order = (1, 0) if turned else (0, 1)
    along = order.index(axis)  # the axis of scales (of blocks, where there are any) in [K, N]
    k, n = (codes.shape[i] for i in order)
    if factor.size == 1:
        block, shape = 0, (1, 1)
    elif block:
        if along != 0 or len(factor.shape) != 2:
            return None
        shape = (ceildiv(k, block), n)
    elif along == 1 and len(factor.shape) == 1:
        shape = (1, n)
    else:
        return None  # each k has a scale of its own

    def parameter(of: Recipe) -> Recipe:
        placed = permute(of, order) if block else reshape(of, shape)
        return repeat(placed, (shape[0], n))

    zeros = None if zero is None or not np.asarray(zero.array()).astype(bool).any() else parameter(zero)
    codes = permute(codes, order)
    if codes.dtype.bits < 8 and codes.dtype.kind == "int":
        middle, dtype = 1 << (codes.dtype.bits - 1), DTYPES[f"u{codes.dtype.bits}"]
        codes = _moved(codes, middle, dtype)
        held = Source(np.full((1, 1), middle).astype(dtype.numpy))
        zeros = repeat(held, (shape[0], n)) if zeros is None else _moved(zeros, middle, dtype)
    return _Codes(codes, parameter(factor), zeros, block)


def _moved(codes: Recipe, by: float, dtype: DType) -> Recipe:
    """Codes or zeros, `by` further, in another dtype that holds them."""

    def moved(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return (arrays[0].astype(np.float32) + np.float32(by)).astype(dtype.numpy)

    return Computed(("moved", by, dtype.name), moved, (codes,), codes.shape, dtype)


@dataclass(frozen=True)
class ChooseNarrowProducts:
    """See the module."""

    kernels: Kernels
    dynamic: bool = False
    """`--dynamic_quantisation`."""
    quantised: list[str] = field(default_factory=list, compare=False)
    """The products that multiply bytes because of it."""
    name: ClassVar[str] = "choose-narrow-products"

    def apply(self, graph: Graph) -> bool:
        return any([self._choose(graph, node) for node in list(graph.nodes) if node.op == "BlockMatMul"])

    def _choose(self, graph: Graph, node: Node) -> bool:
        a, codes = node.inputs[:2]
        assert a is not None and codes is not None and isinstance(codes.shape, tuple)
        if a.dtype.is_integer:
            return False
        k = codes.shape[0]
        block = int(node.attrs.get("block_size") or 0) or k  # type: ignore[call-overload]
        whole = isinstance(k, int) and k % block == 0
        if whole and node.attrs.get("bytes") and self._quantise(graph, node, block):
            return True
        if whole and self.dynamic and self._quantise_finely(graph, node, block):
            self.quantised.append(node.name)
            return True
        if a.dtype != F32 and self._in_f32(graph, node):
            return True
        refused = self.kernels.why_not_alone(graph, node) is not None
        return refused and _widen(Rewriter(graph), node)

    def _in_f32(self, graph: Graph, node: Node) -> bool:
        """a as f32, if a kernel multiplies that: halves are converted once, not in each step of the product."""
        rewriter = Rewriter(graph)
        a, name = node.inputs[0], node.name or node.output.name
        cast = rewriter.insert("Cast", [a], {"to": F32.onnx}, before=node, name=f"{name}/f32")
        attrs = {**node.attrs, "result_dtype": node.output.dtype.name}
        inputs = [cast.output, *node.inputs[1:]]
        product = rewriter.insert("BlockMatMul", inputs, attrs, before=node, name=f"{name}/product")
        refused = self.kernels.why_not_alone(graph, product) is not None
        if not refused:
            rewriter.replace(node.output, product.output)
        rewriter.erase_dead([product, cast] if refused else [node])
        return not refused

    def _quantise(self, graph: Graph, node: Node, block: int) -> bool:
        """a in bytes with a scale for each of the weight's blocks, if a kernel multiplies those."""
        return self._in_bytes(graph, node, node.inputs[:4], block, {"block_size": block})

    def _quantise_finely(self, graph: Graph, node: Node, block: int) -> bool:
        """a in unsigned bytes above the least of each part of a block, if a kernel multiplies those."""
        codes, scales, zeros = (*node.inputs, None)[1:4]
        assert codes is not None and scales is not None
        part = _part(block, codes.dtype)
        if not part:
            return False
        signed = _signed(Rewriter(graph), codes, scales, zeros)
        return self._in_bytes(graph, node, [node.inputs[0], signed[0], scales, signed[1]], part, {"lows": 1})

    def _in_bytes(
        self, graph: Graph, node: Node, operands: Sequence[Value | None], part: int, how: Mapping[str, AttrValue]
    ) -> bool:
        rewriter, name = Rewriter(graph), node.name or node.output.name
        a, *weight = (*operands, None, None)[:4]
        attrs = {"block_size": part, **how}
        outputs = ["bytes", "byte_scales", "byte_sums", *(["byte_lows"] if "lows" in how else [])]
        made = rewriter.insert(
            "QuantizeBlocks", [a], attrs, before=node, outputs=[f"{name}/{o}" for o in outputs], name=f"{name}/quantize"
        )
        scales, sums, *lows = made.outputs[1:]
        inputs = [made.outputs[0], *weight, scales, None if weight[2] is None else sums, *lows]
        attrs = {**node.attrs, "bytes": 0, "result_dtype": node.output.dtype.name}
        product = rewriter.insert("BlockMatMul", inputs, attrs, before=node, name=f"{name}/product")
        refused = [n for n in (made, product) if self.kernels.why_not_alone(graph, n) is not None]
        if not refused:
            rewriter.replace(node.output, product.output)
        rewriter.erase_dead([node] if not refused else [product, made])
        return not refused


def _part(block: int, codes: DType) -> int:
    """Of the divisors of a block that kernels multiply fast, the one nearest to `_PART`; 0 if all are far from it."""
    step = max(_QUAD, 32 // codes.bits)
    fitting = [d for d in range(step, min(block, 2 * _PART) + 1, step) if block % d == 0 and 2 * d >= _PART]
    return min(fitting, key=lambda d: (abs(d - _PART), d), default=0)


def _signed(rewriter: Rewriter, codes: Value, scales: Value, zeros: Value | None) -> tuple[Value, Value | None]:
    """Unsigned bytes and their zeros moved down by 128: products of unsigned with signed bytes need nothing more."""
    if codes.dtype != U8 or codes.recipe is None or (zeros is not None and zeros.recipe is None):
        return codes, zeros
    assert isinstance(scales.shape, tuple)
    down = -float(_MIDDLE)
    if zeros is None:
        recipe = repeat(Source(np.full((1, 1), down).astype(np.int8)), scales.shape)  # type: ignore[arg-type]
    else:
        recipe = _moved(zeros.recipe, down, I8 if zeros.dtype == U8 else zeros.dtype)
    held = rewriter.constant(recipe, f"{codes.name}/zeros") if np.asarray(recipe.array()).any() else None
    return rewriter.constant(_moved(codes.recipe, down, I8), f"{codes.name}/signed"), held


def _widen(rewriter: Rewriter, node: Node) -> bool:
    """The product of numbers that a BlockMatMul stands for."""
    a, codes, scales, zeros = (*node.inputs, None)[:4]
    assert a is not None and codes is not None and scales is not None
    block = int(node.attrs.get("block_size") or 0)  # type: ignore[call-overload]
    do = Arithmetic(rewriter, node)
    result = node.output.dtype
    if codes.recipe is not None and scales.recipe is not None and (zeros is None or zeros.recipe is not None):
        zero = None if zeros is None else zeros.recipe
        numbers = scale(codes.recipe, scales.recipe, a.dtype, zero, block or codes.recipe.shape[0])
        weight = rewriter.constant(numbers, f"{node.name or node.output.name}/numbers")
    else:
        blocked = {"axis": 0, "block_size": block or codes.shape[0]}  # type: ignore[index]
        factor = do.cast(scales, F32)
        if zeros is None or zeros.dtype == codes.dtype:
            weight = do("DequantizeLinear", codes, factor, zeros, **blocked)  # type: ignore[arg-type]
        else:
            ones = do.constant(np.ones(codes.shape, np.uint8), "ones")  # type: ignore[arg-type]
            shift = do("DequantizeLinear", ones, do("Mul", do.cast(zeros, F32), factor), None, **blocked)  # type: ignore[arg-type]
            weight = do("Sub", do("DequantizeLinear", codes, factor, None, **blocked), shift)  # type: ignore[arg-type]
        weight = do.cast(weight, a.dtype)
    wanted = {"result_dtype": result.name} if result != a.dtype else {}
    do.finish(do("MatMul", a, weight, **wanted))
    return True
