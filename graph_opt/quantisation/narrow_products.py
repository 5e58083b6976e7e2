"""Products whose right operand is a constant of codes keep the codes: BlockMatMul, where a kernel takes it.

`FuseNarrowProducts`
1. MatMul(a, DequantizeLinear(codes)) of a constant matrix of codes [K, N] of at most 8 bits becomes BlockMatMul, if its
   scales are one number, one for each column, or one for each column and block of k; also with a Cast between, and
   with the matrix transposed behind DequantizeLinear.
2. Signed codes below 8 bits become unsigned ones, and their zeros move along: kernels know words of unsigned ones.

`ChooseNarrowProducts`, for the targets
3. Where the operator allows bytes and blocks divide k, a is quantised block by block (QuantizeBlocks); halves become
   f32 otherwise.
4. What no kernel takes becomes the product of numbers that it stands for, its weight a recipe over the codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dims import ceildiv
from tensor_types.dtypes import DTYPES, F32, I8, DType
from tensor_types.recipes import Computed, Recipe, Source, permute, repeat, reshape, scale

_MOST_BITS = 8


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
    do = Arithmetic(rewriter, node)
    name = f"{node.name or node.output.name}/"
    codes = rewriter.constant(found.codes, name + "codes")
    scales = rewriter.constant(found.scales, name + "scales")
    zeros = None if found.zeros is None else rewriter.constant(found.zeros, name + "zeros")
    result = node.output.dtype
    wanted = {"result_dtype": result.name} if result != a.dtype else {}
    do.finish(do("BlockMatMul", a, codes, scales, zeros, block_size=found.block, **wanted))
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

    zeros = None if zero is None else parameter(zero)
    codes = permute(codes, order)
    if codes.dtype.bits < 8 and codes.dtype.kind == "int":
        middle, dtype = 1 << (codes.dtype.bits - 1), DTYPES[f"u{codes.dtype.bits}"]
        codes = _unsigned(codes, middle, dtype)
        held = Source(np.full((1, 1), middle).astype(dtype.numpy))
        zeros = repeat(held, (shape[0], n)) if zeros is None else _unsigned(zeros, middle, dtype)
    return _Codes(codes, parameter(factor), zeros, block)


def _unsigned(codes: Recipe, middle: int, dtype: DType) -> Recipe:
    """Signed codes below 8 bits moved up by `middle`, half of their range."""

    def moved(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return (arrays[0].astype(np.int8) + np.int8(middle)).astype(np.uint8).astype(dtype.numpy)

    return Computed(("unsigned", middle), moved, (codes,), codes.shape, dtype)


@dataclass(frozen=True)
class ChooseNarrowProducts:
    """See the module."""

    kernels: Kernels
    name: ClassVar[str] = "choose-narrow-products"

    def apply(self, graph: Graph) -> bool:
        return any([self._choose(graph, node) for node in list(graph.nodes) if node.op == "BlockMatMul"])

    def _choose(self, graph: Graph, node: Node) -> bool:
        a, codes = node.inputs[:2]
        assert a is not None and codes is not None and isinstance(codes.shape, tuple)
        if a.dtype == I8:
            return False
        k = codes.shape[0]
        block = int(node.attrs.get("block_size") or 0) or k  # type: ignore[call-overload]
        if node.attrs.get("bytes") and isinstance(k, int) and k % block == 0 and self._quantise(graph, node, block):
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
        """a in bytes, if a kernel multiplies those."""
        a, rewriter = node.inputs[0], Rewriter(graph)
        name = node.name or node.output.name
        outputs = [f"{name}/{part}" for part in ("bytes", "byte_scales", "byte_sums")]
        attrs = {"block_size": block}
        made = rewriter.insert("QuantizeBlocks", [a], attrs, before=node, outputs=outputs, name=f"{name}/quantize")
        inputs = [made.outputs[0], *(*node.inputs[1:], None)[:3], *made.outputs[1:]]
        attrs = {**node.attrs, "bytes": 0, "result_dtype": node.output.dtype.name}
        product = rewriter.insert("BlockMatMul", inputs, attrs, before=node, name=f"{name}/product")
        refused = [n for n in (made, product) if self.kernels.why_not_alone(graph, n) is not None]
        if not refused:
            rewriter.replace(node.output, product.output)
        rewriter.erase_dead([node] if not refused else [product, made])
        return not refused


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
