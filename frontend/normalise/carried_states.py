"""Operators that carry a state from one call to the next: convolutions and linear attention (opset 27, com.microsoft).

1. CausalConvWithState is a depthwise Conv over the state and the input behind it; the new state is the end of that.
   Along one axis, channels first; com.microsoft may space the taps (`dilation`).
2. LinearAttention of com.microsoft is the standard operator.
"""

from __future__ import annotations

from frontend.normalise.contrib import DOMAIN
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir.core import AttrValue


@form(f"CausalConvWithState {DOMAIN}CausalConvWithState")
def _causal_conv(node: PendingNode) -> None:
    x, weight, bias, past = node.value(0), node.value(1), node.input(2), node.input(3)
    shape = weight.shape
    if shape is None or not all(isinstance(d, int) for d in shape) or len(shape) != 3:
        raise node.error("the extents of the weights are not known")
    activation = str(node.attrs.get("activation", "none"))
    if activation not in ("none", "", "silu", "swish"):
        raise node.refuse(f"the activation {activation}")
    _refuse_others(node, {"activation": activation, "dilation": node.number("dilation", 1), "ndim": 1})
    step = int(node.number("dilation", 1))
    channels, held = int(shape[0]), (int(shape[2]) - 1) * step  # type: ignore[arg-type]
    if past is None:
        whole = node.emit("Pad", [x, node.ints([0, 0, held, 0, 0, 0], "before")])
    else:
        whole = node.emit("Concat", [past, x], {"axis": 2})
    if node.wants(1):
        end = node.emit("Shape", [whole], {"start": 2, "end": 3})
        start = node.emit("Sub", [end, node.ints([held], "held")])
        node.give(1, node.emit("Slice", [whole, start, end, node.ints([2], "axis")]))
    del node.outputs[1:]
    attrs: dict[str, AttrValue] = {"group": channels, "dilations": (step,)}
    if activation in ("none", ""):
        return node.become("Conv", [whole, weight, bias], attrs)
    made = node.emit("Conv", [whole, weight, bias], attrs)
    node.become("Mul", [made, node.emit("Sigmoid", [made])])


@form(f"{DOMAIN}LinearAttention")
def _linear_attention(node: PendingNode) -> None:
    known = ("chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule")
    _refuse_others(node, {name: node.attrs.get(name) for name in known})
    node.become("LinearAttention", node.inputs, node.attrs)


def _refuse_others(node: PendingNode, known: dict[str, AttrValue | None]) -> None:
    """Attributes that onnxruntime added later ask for other layouts of the state, unless they are at rest."""
    for name, value in node.attrs.items():
        if value != known.get(name) and not (name not in known and value in (0, -1)):
            raise node.refuse(f"{name} = {value}")
