"""DynamicQuantizeLSTM becomes products of bytes, where a kernel has them, else an LSTM on the numbers of its weights.

1. In bytes: the input is quantised as a whole and multiplied with W of all directions, scaled and biased; QuantisedLstm
   walks through time with R in bytes. Codes less their zero points have to be signed bytes.
2. Else weights are the numbers that the codes stand for: the operator quantises its input and the state at every step
   to save time, not to say something. They are recipes over the same bytes, so that a package holds those once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import F32, I8
from tensor_types.recipes import Recipe, Source, permute, reshape, scale


@dataclass(frozen=True)
class ExpandQuantisedLstm:
    """See the module. Weights, scales and zero points must be constant."""

    kernels: Kernels
    name: ClassVar[str] = "expand-quantised-lstm"

    def apply(self, graph: Graph) -> bool:
        nodes = [n for n in graph.nodes if n.op == "com.microsoft::DynamicQuantizeLSTM"]
        rewriter = Rewriter(graph)
        return any([self._expand(rewriter, node) for node in nodes])

    def _expand(self, rewriter: Rewriter, node: Node) -> bool:
        w, r = (_weight(node, codes, scale) for codes, scale in ((1, 8), (2, 10)))
        if w is None or r is None:
            return False
        return self._in_bytes(rewriter, node, w, r) or _in_numbers(rewriter, node, w, r)

    def _in_bytes(self, rewriter: Rewriter, node: Node, w: _Weight, r: _Weight) -> bool:
        x, bias = node.inputs[0], node.input(3)
        if (w.codes.dtype, r.codes.dtype) != (I8, I8) or (bias is not None and bias.data is None):
            return False
        do = Arithmetic(rewriter, node)
        name = node.output.name
        operands = [
            None, rewriter.constant(r.codes, f"{name}/R"), rewriter.constant(_along_columns(r), f"{name}/R_scale"),
            do.constant(r.codes.array().astype(np.int32).sum(1, dtype=np.int32), "R_sums"),
            *(node.input(i) for i in range(4, 8)),
        ]  # fmt: skip
        made = [f"{name}/{part}" for part in ("bytes", "scale", "zero")]
        quantised = rewriter.insert("DynamicQuantizeLinear", [x], {}, before=node, outputs=made, name=f"{node.name}/x")
        codes, step, zero = quantised.outputs
        total = do("MatMulInteger", codes, rewriter.constant(_side_by_side(w.codes), f"{name}/W"), zero)
        factor = do("Mul", rewriter.constant(_in_a_row(w), f"{name}/W_scale"), step)
        gates = do("Mul", do.cast(total, F32), factor)
        if bias is not None and bias.data is not None:
            both = bias.data.astype(np.float32).reshape(len(bias.data), 2, -1).sum(1)
            gates = do("Add", gates, do.constant(both.reshape(-1), "B"))
        lstm = _insert(rewriter, node, "QuantisedLstm", [gates, *operands[1:]])
        if self.kernels.why_not_alone(rewriter.graph, lstm) is not None:
            rewriter.erase_dead([lstm])
            return False
        return _replace(rewriter, node, lstm)


@dataclass(frozen=True)
class _Weight:
    """codes [directions, k, 4*hidden] times scales [directions, 4*hidden]."""

    codes: Recipe
    scales: Recipe


def _weight(node: Node, index: int, scale_index: int) -> _Weight | None:
    """The codes less their zero points: signed bytes if they are such, else f32."""
    parameters: list[Value | None] = [node.input(i) for i in (index, scale_index, scale_index + 1)]
    if any(v is None or v.recipe is None for v in parameters):
        return None
    codes, factor, zero = (v.recipe for v in parameters if v is not None and v.recipe is not None)
    directions, _, columns = codes.shape
    if factor.dtype != F32:
        return None
    every = factor.size == directions * columns
    scales = reshape(factor, (directions, columns)) if every else _spread(factor, (directions, columns))
    zeros = zero.array().astype(np.int16).reshape(directions, 1, -1)
    if codes.dtype == I8 and not zeros.any():
        return _Weight(codes, scales)
    whole = codes.array().astype(np.int16) - zeros
    fits = whole.min(initial=0) >= -128 and whole.max(initial=0) <= 127
    return _Weight(Source(whole.astype(np.int8 if fits else np.float32)), scales)


@lru_cache(maxsize=16)
def _spread(factor: Recipe, shape: tuple[int, int]) -> Recipe:
    """A scale for each direction as one for each column: one array for every target, which a package holds once."""
    return Source(np.ascontiguousarray(np.broadcast_to(factor.array().reshape(shape[0], 1), shape)))


def _side_by_side(codes: Recipe) -> Recipe:
    """[directions, k, columns] as one matrix [k, directions*columns]."""
    return reshape(permute(codes, (1, 0, 2)), (codes.shape[1], codes.shape[0] * codes.shape[2]))


def _numbers(weight: _Weight) -> Recipe:
    """The weight as LSTM has it, [directions, 4*hidden, k]."""
    directions, k, columns = weight.codes.shape
    matrix = scale(_side_by_side(weight.codes), _in_a_row(weight), F32)
    return permute(reshape(matrix, (k, directions, columns)), (1, 2, 0))


def _recurrent_numbers(weight: _Weight) -> Recipe:
    return permute(scale(weight.codes, _along_columns(weight), F32), (0, 2, 1))


def _in_a_row(weight: _Weight) -> Recipe:
    """The scales of all directions as a matrix's."""
    return reshape(weight.scales, (1, weight.scales.size))


def _along_columns(weight: _Weight) -> Recipe:
    directions, columns = weight.scales.shape
    return reshape(weight.scales, (directions, 1, columns))


def _in_numbers(rewriter: Rewriter, node: Node, w: _Weight, r: _Weight) -> bool:
    constants = [rewriter.constant(n, f"{node.output.name}/weight") for n in (_numbers(w), _recurrent_numbers(r))]
    return _replace(rewriter, node, _insert(rewriter, node, "LSTM", [node.inputs[0], *constants, *node.inputs[3:8]]))


def _insert(rewriter: Rewriter, node: Node, op: str, operands: list[Value | None]) -> Node:
    names = [v.name for v in node.outputs]
    return rewriter.insert(op, operands, node.attrs, before=node, outputs=names, name=node.name)


def _replace(rewriter: Rewriter, node: Node, lstm: Node) -> bool:
    for old, new in zip(node.outputs, lstm.outputs, strict=True):
        rewriter.replace(old, new)
    rewriter.erase_dead([node])
    return True
