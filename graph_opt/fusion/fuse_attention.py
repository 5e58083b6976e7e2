"""Recognises scaled dot-product attention in its exported forms and makes one `attention` kernel of it.

    softmax(scale * Q @ transpose(K) + mask) @ V

Rules
1. K comes transposed by a Transpose of its last two axes, or by one that also splits heads (perm 0,2,3,1).
2. The scale is a Mul or Div by a scalar constant on the scores, on Q, or on Q and K; it may be missing.
3. The mask is an Add of a value that broadcasts to the scores, or Where(condition, scores, c) / Where(condition, c,
   scores) with a scalar constant c: then the mask added is Where(condition, 0, c). For c <= -1e9 the sum rounds to c,
   so that a row that is masked everywhere has equal scores here as well; with a smaller c it would not.
4. Every interior tensor has one use; the scores must not be an output.
5. Nothing broadcasts but the mask and a single head of K and V: the operator has one batch and one set of heads.
6. Transposes [B,S,H,D] -> [B,H,S,D] of the operands and back of the result join the kernel, which reads by strides.
An ONNX Attention node of opset 23 and later takes the same way, with its own attributes and its cache: the kernel
writes the present keys and values and reads them from there. Windows and lengths become part of the mask. Where nothing
is seen its result is 0; that of primitive operators, a softmax over -inf alone, is NaN, unless they put 0 in the place
of probabilities that are NaN. Keys and values whose heads are repeated for a group of queries' are read as they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.fusion.attention_masks import complete_mask
from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.outline import outline
from graph_opt.ir.passes import Declining
from graph_opt.ir.rewriter import Rewriter

_SPLIT_HEADS = [0, 2, 1, 3]
_NOTHING_IS_NAN: dict[str, AttrValue] = {"softmax_of_nothing": "nan"}
_NOTHING_IS_ZERO: dict[str, AttrValue] = {}
_ABSORBING = -1e9
"""From here on the spacing of f32 is 64: a sum with a score is this number again."""


@dataclass(frozen=True)
class FuseAttention(Declining):
    """See the module. Declined candidates and reasons are collected in `declined`."""

    kernels: Kernels
    name: ClassVar[str] = "fuse-attention"

    def apply(self, graph: Graph) -> bool:
        changed = False
        if self.kernels.family("attention") is None:
            return False
        rewriter = Rewriter(graph)
        for node in [n for n in graph.nodes if n.op == "Attention"]:
            reason = _why_not_native(graph, node)
            if reason is None:
                complete_mask(rewriter, node)
                reason = _fuse(rewriter, node, self.kernels)
            if reason is not None:
                self.declined[node.name] = reason
            changed |= reason is None
        for node in list(graph.nodes):
            if node.op == "Softmax":
                changed |= self._match(rewriter, node)
        return changed

    def _match(self, rewriter: Rewriter, softmax: Node) -> bool:
        found = _SdpaMatch(rewriter, softmax)
        reason = found.find() or found.rewrite(self.kernels)
        if reason is not None and reason != "no product on both sides":
            self.declined[softmax.name] = reason
        return reason is None


def _single_user(graph: Graph, value: Value) -> Node | None:
    return next(iter(value.uses))[0] if len(value.uses) == 1 and not graph.is_output(value) else None


def _scalar(value: Value | None) -> float | None:
    return (
        float(value.data.reshape(())) if value is not None and value.data is not None and value.data.size == 1 else None
    )


class _SdpaMatch:
    """One candidate around a Softmax: `find` gives the reason against it, or None after setting the parts."""

    def __init__(self, rewriter: Rewriter, softmax: Node) -> None:
        self.rewriter, self.graph = rewriter, rewriter.graph
        self.softmax = softmax
        self.scale = 1.0
        self.mask: Value | None = None
        self.fill: float | None = None
        self.condition: tuple[Value, bool] | None = None
        self.interior: list[Value] = []
        self.attrs = _NOTHING_IS_NAN

    def find(self) -> str | None:
        probabilities = self._guarded() or self.softmax.output
        product = _single_user(self.graph, probabilities)
        if product is None or product.op != "MatMul" or product.inputs[0] is not probabilities:
            return "no product on both sides"
        rank = self.softmax.output.rank if self.softmax.output.shape is not None else 0
        if rank != 4 or self.softmax.attrs.get("axis", -1) not in (-1, rank - 1):
            return "the softmax is not over the last of four axes"
        self.product = product
        self.value = product.inputs[1]
        self.interior.append(probabilities)
        return self._walk_up(self.softmax.inputs[0])

    def _guarded(self) -> Value | None:
        """Where(IsNaN(p), 0, p), if nothing else reads the probabilities p."""
        made = self.softmax.output
        users = {user.op: user for user, _ in made.uses}
        test, choice = users.get("IsNaN"), users.get("Where")
        if len(made.uses) != 2 or test is None or choice is None or self.graph.is_output(made):
            return None
        if choice.inputs[0] is not test.output or choice.inputs[2] is not made or _scalar(choice.inputs[1]) != 0:
            return None
        if len(test.output.uses) != 1 or self.graph.is_output(test.output):
            return None
        self.interior += [made, test.output]
        self.attrs = _NOTHING_IS_ZERO
        return choice.output

    def _walk_up(self, scores: Value | None) -> str | None:
        while scores is not None:
            node = scores.producer
            if node is None or _single_user(self.graph, scores) is None:
                return "no product on both sides" if node is None else "the scores have a second use"
            self.interior.append(scores)
            if node.op == "MatMul":
                return self._operands(node)
            step = self._scale_step(node) or self._mask_step(node)
            if step is None:
                return "no product on both sides"
            if isinstance(step, str):
                return step
            scores = step
        return "no product on both sides"

    def _scale_step(self, node: Node) -> Value | None:
        if node.op not in ("Mul", "Div"):
            return None
        left, right = node.inputs
        factor = _scalar(right)
        if factor is not None:
            self.scale *= factor if node.op == "Mul" else 1.0 / factor
            return left
        factor = _scalar(left)
        if factor is not None and node.op == "Mul":
            self.scale *= factor
            return right
        return None

    def _mask_step(self, node: Node) -> Value | str | None:
        if self.mask is not None or self.condition is not None:
            return None if node.op not in ("Add", "Where") else "two masks"
        if self.scale != 1.0 and node.op in ("Add", "Where"):
            return "the scale follows the mask"
        if node.op == "Add":
            for scores, mask in (node.inputs, node.inputs[::-1]):
                producer = scores.producer if scores is not None else None
                if producer is not None and producer.op in ("MatMul", "Mul", "Div", "Add") and scores is not None:
                    if self._leads_to_product(scores):
                        self.mask = mask
                        return scores
        if node.op == "Where" and len(node.inputs) == 3:
            condition, yes, no = node.inputs
            for scores, fill, keep_where in ((yes, no, True), (no, yes, False)):
                number = _scalar(fill)
                if (
                    number is not None
                    and scores is not None
                    and condition is not None
                    and self._leads_to_product(scores)
                ):
                    if number > _ABSORBING:
                        return "the masked value is not large and negative"
                    self.condition, self.fill = (condition, keep_where), number
                    return scores
        return None

    def _leads_to_product(self, scores: Value) -> bool:
        node = scores.producer
        while node is not None and node.op in ("Mul", "Div", "Add", "Where"):
            inside = [v for v in node.inputs if v is not None and v.shape == scores.shape and v.producer is not None]
            node = inside[0].producer if inside else None
        return node is not None and node.op == "MatMul"

    def _operands(self, node: Node) -> str | None:
        query, key = node.inputs
        assert query is not None and key is not None
        query = self._unscaled(query)
        key = self._unscaled(key)
        shapes = [v.shape if v is not None else None for v in (query, key, self.value)]
        if any(s is None or len(s) != 4 for s in shapes):
            return "an operand has not four axes"
        q, k, v = (s for s in shapes if s is not None)
        scores = self.softmax.output.shape or ()
        # The mask may not widen the scores; along the keys the product with V then demands the same.
        widened = scores[:3] != q[:3] or (scores[3] != k[3] and k[3] != v[2])
        if widened or k[:2] != v[:2] or k[0] != q[0] or k[1] not in (1, q[1]):
            return "an operand or the scores are broadcast"
        if not all(isinstance(d, int) for d in (q[1], q[3], k[1], v[3])):
            return "the head size or number of heads is not static"
        transpose = key.producer
        if transpose is None or transpose.op != "Transpose" or len(key.uses) != 1:
            return "K is not transposed by a node of its own"
        perm = list(transpose.attrs.get("perm", ()))  # type: ignore[call-overload]
        if perm not in ([0, 1, 3, 2], [0, 2, 3, 1]):
            return f"K is transposed by {perm}"
        self.query, self.key_transpose, self.key_perm = query, transpose, perm
        return None

    def _unscaled(self, value: Value) -> Value:
        node = value.producer
        if node is None or _single_user(self.graph, value) is None:
            return value
        before, kept = self.scale, self._scale_step(node)
        if kept is None or kept.shape != value.shape:
            self.scale = before
            return value
        self.interior.append(value)
        return kept

    def rewrite(self, kernels: Kernels) -> str | None:
        """Puts an Attention kernel in the place of the candidate; why not, if there is none and all is as it was.

        The AI CPU's Attention takes a mask and a row that sees nothing otherwise: there has to be a kernel.
        """
        rewriter, at = self.rewriter, self.product
        source = self.key_transpose.inputs[0]
        assert source is not None
        if self.key_perm == [0, 2, 3, 1]:
            source = rewriter.insert(
                "Transpose", [source], {"perm": _SPLIT_HEADS}, before=at, name=self.key_transpose.name
            ).output
        mask = self.mask
        if self.condition is not None and self.fill is not None:
            condition, keep_where = self.condition
            type_ = self.query.dtype.numpy
            zero, fill = rewriter.constant(np.zeros((), type_)), rewriter.constant(np.asarray(self.fill, type_))
            branches = [zero, fill] if keep_where else [fill, zero]
            mask = rewriter.insert(
                "Where", [condition, *branches], before=at, name=f"{self.softmax.name}/mask"
            ).output
        attrs: dict[str, AttrValue] = {"scale": self.scale}
        inputs = [self.query, source, self.value] + ([mask] if mask is not None else [])
        node = rewriter.insert(
            "Attention", inputs, attrs, before=at, outputs=[f"{at.output.name}/attention"], name=at.name
        )
        attention = outline(self.graph, [node], "attention", self.attrs, public=[node.output]).node
        reason = kernels.why_not(attention)
        if reason is not None:
            rewriter.erase_dead([node])
            return reason
        rewriter.absorb([*self.interior, self.key_transpose.output], node.output)
        rewriter.replace(at.output, node.output)
        rewriter.erase_dead([at])
        return _fuse(rewriter, node, kernels, self.attrs)


def _why_not_native(graph: Graph, node: Node) -> str | None:
    """What of an Attention node the kernel lacks."""
    if any(_is_used(graph, v) for v in node.outputs[3:]):
        return "its scores are a result"
    if node.input(4) is not None and not all(_is_used(graph, v) for v in (node.outputs + [None, None])[1:3]):
        return "it has past keys, but nothing uses the present ones"
    for index, value in enumerate(node.inputs[:3]):
        if value is None or value.shape is None:
            return "the rank of an operand is not known"
        static = value.shape[2:] if value.rank == 3 else (value.shape[1], value.shape[3])
        if not all(isinstance(d, int) for d in static):
            return f"the head size or number of {'QKV'[index]} is not static"
    return None


def _is_used(graph: Graph, value: Value | None) -> bool:
    return value is not None and (bool(value.uses) or graph.is_output(value))


def _share_heads(rewriter: Rewriter, node: Node) -> None:
    """Takes keys and values [B, G, T, D] for Reshape(Expand(Unsqueeze)) of them [B, G, N, T, D] to [B, G * N, T, D]."""
    found = []
    for value in node.inputs[1:3]:
        steps = []
        while value is not None and value.producer is not None and len(steps) < 3:
            steps.append(value.producer)
            value = value.producer.inputs[0]
        if [s.op for s in steps] != ["Reshape", "Expand", "Unsqueeze"] or value is None or value.shape is None:
            return
        repeated, whole = steps[1].output.shape, steps[0].output.shape
        if value.rank != 4 or repeated is None or whole is None or len(repeated) != 5 or len(whole) != 4:
            return
        batch, heads, *rows = value.shape
        if not isinstance(heads, int) or not isinstance(repeated[2], int):
            return
        if repeated != (batch, heads, repeated[2], *rows) or whole != (batch, heads * repeated[2], *rows):
            return
        if steps[2].output.shape != (batch, heads, 1, *rows):
            return
        found.append(value)
    if found[0].shape is not None and found[1].shape is not None and found[0].shape[1] == found[1].shape[1]:
        old = [v.producer for v in node.inputs[1:3] if v is not None]
        for index, value in enumerate(found, 1):
            node.set_input(index, value)
        rewriter.erase_dead([n for n in old if n is not None])


def _fuse(
    rewriter: Rewriter, node: Node, kernels: Kernels, attrs: Mapping[str, AttrValue] | None = None
) -> str | None:  # fmt: skip
    """Fuses an Attention node with as many of the head transposes around it as its kernel takes; why not by itself."""
    graph = rewriter.graph
    _share_heads(rewriter, node)
    operands: list[Node] = []
    for value in node.inputs[:3]:
        producer = value.producer if value is not None else None
        if value is not None and producer is not None and _is_head_transpose(producer) and len(value.uses) == 1:
            if not graph.is_output(value):
                operands.append(producer)
    user = _single_user(graph, node.output)
    behind = [user] if user is not None and _is_head_transpose(user) else []
    reason: str | None = None
    for members in ([*operands, node, *behind], [*operands, node], [node]):
        reason = kernels.why_not(outline(graph, members, "attention", attrs, public=rewriter.public).node)
        if reason is None:
            rewriter.fuse(members, "attention", attrs, name=node.name)
            return None
    return reason


def _is_head_transpose(node: Node) -> bool:
    return node.op == "Transpose" and list(node.attrs.get("perm", ())) == _SPLIT_HEADS  # type: ignore[call-overload]
