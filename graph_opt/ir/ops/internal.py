"""Operators that only the compiler makes: Fused and Relayout."""

from __future__ import annotations

from graph_opt.ir.ops.registry import STRING, Inference, declare


def _fused(ctx: Inference) -> None:
    body = ctx.node.subgraphs["body"]
    for outer, inner in zip(ctx.node.inputs, body.inputs, strict=True):
        if outer is not None:
            inner.dtype, inner.shape, inner.content = outer.dtype, outer.shape, outer.content
    ctx.infer_body(body)
    for index, value in enumerate(body.outputs):
        ctx.set(index, value.dtype, value.shape, value.content)


def _relayout(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), ctx.shape(), ctx.content(0))


declare("Fused", "inputs*", "control", _fused, {"family": STRING}, aicpu=None)
declare("Relayout", "input", "movement", _relayout, aicpu=None)
