"""Casts of 64-bit integers for a vector engine that has none: it computes with their two 32-bit words.

A number that fits one word converts as that word does. Others come to a float as high * 2**32 + low: two roundings,
less than one unit in the last place apart from one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.kernels.elementwise import ElementwiseEmitter, Operand
from codegen.targets.target import Target
from graph_opt.ir.core import Node, Value
from tensor_types.dtypes import BOOL, F32, I32, I64, U32

_RESULTS = (F32, I32, BOOL)


def wide_casts(nodes: Sequence[Node], values: Mapping[str, Value], target: Target) -> list[Node]:
    """The casts of outer i64 values among `nodes` that have to be, and can be, made of words."""
    if not target.explicit_memory or target.supports(I64):
        return []
    made = {v.name for n in nodes for v in n.outputs}
    read = {v.name for n in nodes if not _is_cast(n) for v in n.inputs if v is not None}
    inputs = ((n, n.input(0)) for n in nodes if _is_cast(n))
    return [n for n, v in inputs if v is not None and v.name not in made | read and not v.is_constant]


def _is_cast(node: Node) -> bool:
    source = node.input(0)
    return node.op == "Cast" and source is not None and source.dtype == I64 and node.output.dtype in _RESULTS


def emit_wide_cast(emitter: ElementwiseEmitter, cast: Node, low: Operand, high: Operand) -> Operand:
    """The cast's result over a block, from the words of its operand as i32."""
    if cast.output.dtype == I32:
        return low
    if cast.output.dtype == BOOL:
        return emitter.apply("TCMP", BOOL, emitter.apply("TOR", I32, low, high), 0, mode="ne")
    fits = emitter.apply("TCMP", BOOL, high, emitter.apply("TSHR", I32, low, 31), mode="eq")
    upper = emitter.apply("TMUL", F32, emitter.apply("TCVT", F32, high), 4294967296.0)
    lower = emitter.apply("TCVT", F32, emitter.apply("TCVT", U32, low))
    both = emitter.apply("TADD", F32, upper, lower)
    return emitter.apply("TSEL", F32, fits, emitter.apply("TCVT", F32, low), both)
