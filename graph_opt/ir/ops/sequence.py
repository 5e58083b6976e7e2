"""Sequences and optionals: object handles on the AI CPU. The element's type is not followed."""

from __future__ import annotations

from graph_opt.ir.ops.registry import GRAPH, INT, TYPE, Inference, declare
from tensor_types.dtypes import BOOL, HANDLE, I64


def _handle(ctx: Inference) -> None:
    ctx.set_all(HANDLE, ())


def _element(ctx: Inference) -> None:
    ctx.set(0, ctx.node.output.dtype, None)


def _length(ctx: Inference) -> None:
    ctx.set(0, I64, ())


def _has(ctx: Inference) -> None:
    ctx.set(0, BOOL, ())


declare("SequenceConstruct", "inputs*", "aicpu", _handle)
declare("SequenceEmpty", "", "aicpu", _handle, {"dtype": INT})
declare("SequenceInsert", "input_sequence tensor position?", "aicpu", _handle)
declare("SequenceErase", "input_sequence position?", "aicpu", _handle)
declare("SplitToSequence", "input split?", "aicpu", _handle, {"axis": 0, "keepdims": 1})
declare("SequenceMap", "input_sequence additional_inputs*", "control", _handle, {"body": GRAPH})
declare("SequenceAt", "input_sequence position", "aicpu", _element)
declare("SequenceLength", "input_sequence", "aicpu", _length)
declare("ConcatFromSequence", "input_sequence", "aicpu", _element, {"axis": INT, "new_axis": 0})
declare("Optional", "input?", "aicpu", _handle, {"type": TYPE})
declare("OptionalGetElement", "input", "aicpu", _element)
declare("OptionalHasElement", "input?", "aicpu", _has)
