"""Weights of 2, 4 or 8 bits with a scale for each block, as onnxruntime stores them.

    MatMulNBits           BlockMatMul of codes [K, N], scales and zeros [blocks, N], all transposed, + bias
    GatherBlockQuantized  DequantizeLinear(Gather(codes, indices)): the rows are gathered before they are scaled

Constant codes of MatMulNBits stay packed in the file until they are written; others are unpacked by integer arithmetic.
"""

from __future__ import annotations

import math

import numpy as np

from frontend.normalise.contrib import DOMAIN
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import DTYPES, U8
from tensor_types.recipes import Source, repeat, reshape, unpack


def unpacked(node: PendingNode, packed: Value, bits: int) -> Value:
    """Codes u8 [.., n * 8/bits] of bytes [.., n], the lowest bits first."""
    if bits == 8:
        return packed
    mask, last = node.constant((1 << bits) - 1, U8, "mask"), node.ints([-1], "last")
    parts = []
    for shift in range(0, 8, bits):
        low = node.emit("BitShift", [packed, node.constant(shift, U8, "shift")], {"direction": "RIGHT"})
        parts.append(node.emit("Unsqueeze", [node.emit("BitwiseAnd", [low, mask]), last]))
    return _joined(node, parts)


def _joined(node: PendingNode, parts: list[Value]) -> Value:
    """Tensors [.., n, 1] as one [.., n * parts]."""
    joined = node.emit("Concat", parts, {"axis": -1})
    rank = len(joined.shape or ()) - 1
    return node.emit("Reshape", [joined, node.ints([0] * (rank - 1) + [-1], "flat")])


def _shaped(node: PendingNode, value: Value, *shape: int) -> Value:
    return node.emit("Reshape", [value, node.ints(shape, "shape")])


def first_columns(node: PendingNode, value: Value, count: int) -> Value:
    """The first `count` elements of the last axis."""
    if value.shape is not None and value.shape[-1] == count:
        return value
    return node.emit("Slice", [value, node.ints([0], "start"), node.ints([count], "end"), node.ints([-1], "axis")])


def _bits(node: PendingNode) -> int:
    bits = int(node.number("bits", 4))
    if bits not in (2, 4, 8):
        raise node.refuse(f"{node.op.rpartition('::')[2]} of {bits} bits")
    return bits


_BYTES_LEVEL = 4
"""The accuracy level from which on the other operand may be quantised as well."""


def _codes(node: PendingNode, packed: Value, rows: int, bits: int) -> Value:
    """Codes [rows, n] of bytes of `rows` rows; constants stay packed until they are written."""
    if packed.recipe is None or bits == 8:
        return _shaped(node, unpacked(node, _shaped(node, packed, rows, -1), bits), rows, -1)
    dtype = DTYPES[f"u{bits}"]
    if packed.recipe.size % rows:
        raise node.error(f"{packed.recipe.size} bytes of codes for {rows} rows")
    codes = unpack(reshape(packed.recipe, (rows, packed.recipe.size // rows)), bits, dtype)
    return node.graph.add_constant(node.free_name(f"{node.name}.codes"), codes, dtype)


def _turned(node: PendingNode, value: Value) -> Value:
    return node.emit("Transpose", [value], {"perm": (1, 0)})


@form(f"{DOMAIN}MatMulNBits")
def _matmul_n_bits(node: PendingNode) -> None:
    a, b, scales = (node.value(i) for i in range(3))
    zeros, groups, bias = (node.input(i) for i in (3, 4, 5))
    rows, depth, block, bits = *(int(node.number(n)) for n in ("N", "K", "block_size")), _bits(node)
    if min(rows, depth) < 1 or block < 1:
        raise node.error(f"N {rows}, K {depth} and block_size {block} must be above 0")
    if node.number("weight_prepacked", 0):
        raise node.refuse("a weight in the order of one kernel of onnxruntime")
    blocks = math.ceil(depth / block)
    codes = first_columns(node, _codes(node, b, rows, bits), depth)
    scales = _shaped(node, scales, rows, blocks)
    if zeros is None:
        middle = Source(np.full((1, 1), 1 << (bits - 1)).astype(codes.dtype.numpy))
        name = node.free_name(f"{node.name}.zero_points")
        points = node.graph.add_constant(name, repeat(middle, (rows, blocks)), codes.dtype)
    elif zeros.dtype == U8:
        points = first_columns(node, _codes(node, zeros, rows, bits), blocks)
    else:
        points = _shaped(node, zeros, rows, blocks)
    if groups is not None:
        which = first_columns(node, groups, depth)
        scales, points = (node.emit("Gather", [v, which], {"axis": 1}) for v in (scales, points))
        block = 1
    operands = [a, *(_turned(node, v) for v in (codes, scales, points))]
    attrs = {"block_size": block, "bytes": int(int(node.number("accuracy_level", 0)) >= _BYTES_LEVEL)}
    if bias is None:
        return node.become("BlockMatMul", operands, attrs)
    return node.become("Add", [node.emit("BlockMatMul", operands, attrs), bias])


@form(f"{DOMAIN}GatherBlockQuantized")
def _gather_block_quantized(node: PendingNode) -> None:
    data, indices, scales = (node.value(i) for i in range(3))
    zeros, bits, block, rank = node.input(3), _bits(node), int(node.number("block_size", 128)), node.rank()
    gathered, axis = (int(node.number(k, d)) for k, d in (("gather_axis", 0), ("quantize_axis", 1)))
    gathered, axis = gathered % rank, axis % rank
    packed = data.dtype == U8
    if gathered == axis or (packed and bits < 8 and axis != rank - 1):
        raise node.refuse(f"a gather along axis {gathered} of data quantised along axis {axis}")
    if node.rank(2) != rank:
        raise node.error(f"scales of rank {node.rank(2)} for data of rank {rank}")

    def rows(value: Value) -> Value:
        return node.emit("Gather", [value, indices], {"axis": gathered})

    codes, factors = rows(data), rows(scales)
    behind = axis + node.rank(1) - 1 if axis > gathered else axis
    if packed:
        codes = unpacked(node, codes, bits)
    elif data.dtype not in (DTYPES["i4"], DTYPES["u4"]):
        raise node.refuse(f"data of {data.dtype}")
    points = None if zeros is None else rows(zeros)
    if packed:
        count = None if factors.shape is None else factors.shape[-1]
        if points is not None:
            points = unpacked(node, points, bits)
            if not isinstance(count, int):
                raise node.error("the number of blocks is not known")
            points = first_columns(node, points, count)
        else:
            shape = node.emit("Shape", [factors])
            points = node.emit("Expand", [node.constant(1 << (bits - 1), U8, "middle"), shape])
    inputs = [codes, factors, *([points] if points is not None else [])]
    node.become("DequantizeLinear", inputs, {"axis": behind, "block_size": block})
