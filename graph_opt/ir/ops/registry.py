"""What an operator is: its inputs, typed attributes, kind, and the rule for dtype, shape and content of its outputs.

Each operator is declared once, in a file of its family, by `declare`; `get` finds it. A rule is a function of
`Inference`.
Attributes are declared as name -> default, or name -> one of TYPES when there is no default.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias, cast

import numpy as np

from graph_opt.ir.core import AttrValue, Graph, Node, Requirement, Value
from tensor_types.dims import Dim, Expr, dim, dmax, dmin, evaluate, names, product, substitute
from tensor_types.dtypes import DType
from tensor_types.errors import InvalidModel
from tensor_types.proofs import Range, prove_le, settle
from tensor_types.relations import Relation

INT, FLOAT, STRING, INTS, FLOATS, STRINGS, TENSOR, GRAPH, TYPE = (
    "int", "float", "string", "ints", "floats", "strings", "tensor", "graph", "type",
)  # fmt: skip
TYPES = (INT, FLOAT, STRING, INTS, FLOATS, STRINGS, TENSOR, GRAPH, TYPE)

CONTENT_LIMIT = 256
"""Longest tensor whose elements are followed as dims: shape arithmetic is far below, data far above."""

KINDS = ("elementwise", "reduction", "cube", "movement", "control", "aicpu", "shape")

_FURTHEST = 1 << 24
"""Largest size that an operator may ask for of a dim."""

Shape: TypeAlias = tuple[Dim, ...]
Rule: TypeAlias = "Callable[[Inference], None]"


@dataclass(frozen=True)
class Attr:
    """A declared attribute: its type (INT...) and its default, None when there is none."""

    type: str
    default: AttrValue = None


@dataclass(frozen=True)
class Op:
    """A declared operator. `aicpu` names its implementation on the AI CPU, None where the executor itself knows it."""

    name: str
    inputs: tuple[str, ...]
    """Names in ONNX order; a trailing '?' marks an optional input, a trailing '*' a variadic one."""
    attrs: Mapping[str, Attr]
    infer: Rule
    kind: str
    aicpu: str | None
    commutative: bool = False
    deterministic: bool = True
    custom: bool = False
    """Registered by the user: its nodes keep every attribute of the model, and the opset of their domain as `opset`."""

    @property
    def required(self) -> int:
        """Number of inputs up to the last one that must be present."""
        return max((i + 1 for i, name in enumerate(self.inputs) if not name.endswith(("?", "*"))), default=0)

    @property
    def variadic(self) -> bool:
        return bool(self.inputs) and self.inputs[-1].endswith("*")


_OPS: dict[str, Op] = {}
_CUSTOM: dict[str, Op] = {}


def _attr(declared: Any) -> Attr:
    if isinstance(declared, str) and declared in TYPES:
        return Attr(declared)
    if isinstance(declared, int):
        return Attr(INT, declared)
    if isinstance(declared, float):
        return Attr(FLOAT, declared)
    if isinstance(declared, str):
        return Attr(STRING, declared)
    first = declared[0]
    return Attr(STRINGS if isinstance(first, str) else INTS if isinstance(first, int) else FLOATS, tuple(declared))


def declare(
    names: str,
    inputs: str,
    kind: str,
    rule: Rule,
    attrs: Mapping[str, object] | None = None,
    *,
    aicpu: str | None = "",
    commutative: bool = False,
    deterministic: bool = True,
) -> None:
    """Declares one operator per word of `names`; `inputs` are words as in `Op.inputs`.

    `aicpu` defaults to the operator's own name.
    """
    assert kind in KINDS, kind
    for name in names.split():
        assert name not in _OPS, name
        typed = {key: _attr(value) for key, value in (attrs or {}).items()}
        implementation = name if aicpu == "" else aicpu
        _OPS[name] = Op(name, tuple(inputs.split()), typed, rule, kind, implementation, commutative, deterministic)


def declare_custom(op: Op) -> None:
    """Declares an operator of the user, 'Domain::Name', or declares it anew. ValueError for a name that is taken."""
    if op.name in _OPS:
        raise ValueError(f"{op.name} is an operator of openatc")
    _CUSTOM[op.name] = op


def get(name: str) -> Op | None:
    """The declaration of 'Name' or 'Domain::Name', None when there is none."""
    return _OPS.get(name) or _CUSTOM.get(name)


def declared() -> tuple[Op, ...]:
    """Every operator of openatc itself, in order of declaration."""
    return tuple(_OPS.values())


@dataclass
class Inference:
    """One node during inference: typed access to its inputs, and setters for its outputs."""

    graph: Graph
    node: Node
    op: Op | None
    infer_body: Callable[[Graph], None]
    """Infers a subgraph, for control flow."""
    _fresh: int = field(default=0, repr=False)

    # --- reading

    def value(self, index: int) -> Value:
        """Input `index`; InvalidModel when it is absent."""
        value = self.node.input(index)
        if value is None:
            raise self.error(f"input {index} is missing")
        return value

    def has(self, index: int) -> bool:
        return self.node.input(index) is not None

    def dtype(self, index: int = 0) -> DType:
        return self.value(index).dtype

    def shape(self, index: int = 0) -> Shape | None:
        return self.value(index).shape

    def rank(self, index: int = 0) -> int | None:
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def content(self, index: int) -> tuple[Dim, ...] | None:
        """The elements of a small tensor as dims, flattened; None when unknown, absent or not whole numbers."""
        value = self.node.input(index)
        return None if value is None else content_of(value)

    def array(self, index: int) -> np.ndarray | None:
        """As `content`, as an array of objects in the shape of the tensor."""
        value = self.node.input(index)
        content = None if value is None else content_of(value)
        if value is None or content is None or not value.is_static:
            return None
        flat = np.empty(len(content), object)
        flat[:] = content
        return flat.reshape(cast("tuple[int, ...]", value.shape))

    def ints(self, index: int) -> tuple[int, ...] | None:
        """As `content`, when every element is a number."""
        content = self.content(index)
        if content is None or not all(isinstance(v, int) for v in content):
            return None
        return cast("tuple[int, ...]", content)

    def attr(self, name: str) -> Any:
        """The attribute, or its declared default."""
        if name in self.node.attrs:
            return self.node.attrs[name]
        assert self.op is not None and name in self.op.attrs, f"{self.node.op} declares no {name}"
        return self.op.attrs[name].default

    def axis(self, rank: int, name: str = "axis") -> int:
        """An axis attribute as a non-negative number."""
        return self.normal_axis(int(self.attr(name)), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < max(rank, 1):
            raise self.error(f"axis {axis} is outside rank {rank}")
        return axis % rank if rank else 0

    def proves(self, low: Dim, high: Dim) -> bool:
        """Whether low <= high for every value of the dims."""
        return prove_le(low, high, cast("Mapping[str, Range]", self.graph.dims))

    def same(self, left: Dim, right: Dim) -> bool:
        """Whether both are equal for every value of the dims; a dim that may be 0 is looked at for itself."""
        cases: list[dict[str, Range]] = [dict(cast("Mapping[str, Range]", self.graph.dims))]
        for name in sorted(names(left) | names(right)):
            low, high = self.graph.dims.get(name, (0, None))
            if low == 0 and len(cases) < _CASES:
                cases = [{**case, name: span} for case in cases for span in ((0, 0), (1, high))]
        pairs = [(settle(left, case), settle(right, case), case) for case in cases]
        return all(a == b or prove_le(a, b, case) and prove_le(b, a, case) for a, b, case in pairs)

    def assumes(self, low: Dim, high: Dim) -> bool:
        """Whether low <= high once no named dim is 0; if so, the ranges of those that they name say it from now on.

        For shapes that would not be the same with a dim of 0: `x[-n:]` is then all of x, an axis of 2*n - 1 is none.
        """
        raised = {n: (max(low, 1), high) for n in names(low) | names(high) if n in self.graph.dims
                  for low, high in [self.graph.dims[n]] if not is_fresh(n)}  # fmt: skip
        if not prove_le(low, high, cast("Mapping[str, Range]", {**self.graph.dims, **raised})):
            return False
        self.graph.dims.update(raised)
        return True

    def raises(self, value: Dim, low: int) -> bool:
        """Whether low <= value from some size on of the one named dim in it, and nowhere below; if so, the range of
        that dim begins there from now on."""
        name = next(iter(names(value)), "")
        if len(names(value)) != 1 or name not in self.graph.dims or is_fresh(name):
            return False
        first, last = self.graph.dims[name]
        if not isinstance(first, int) or not self.proves(value, substitute(value, {name: dim(name) + 1})):
            return False
        size = bisect_left(range(_FURTHEST), low, lo=first, key=lambda n: evaluate(value, {name: n}))
        ranges = {**self.graph.dims, name: (size, last)}
        if not prove_le(size, _FURTHEST if last is None else last, {}) or not prove_le(low, value, ranges):
            return False
        self.graph.dims[name] = (size, last)
        return True

    def agreed(self, dims: Iterable[Dim], *, broadcast: bool = False, of: Callable[[], str] = str) -> Dim:
        """The common extent of axes that must agree, or broadcast. InvalidModel when two numbers contradict.

        What cannot be decided here becomes a requirement of the graph. A number decides; so does, when broadcasting, an
        extent that is provably above 1. Different symbolic extents that broadcast give `broadcast_extent`. `of` says in
        the message which axes of which inputs they are.
        """
        parts = [p for d in dims for p in (_broadcast_parts(d) if broadcast else (d,))]
        kept = [d for d in dict.fromkeys(parts) if d != 1 or not broadcast]
        if not kept:
            return 1
        for cut, whole in [(a, b) for a in kept for b in kept if broadcast and _is_cut(a, b)]:
            if cut in kept and whole in kept:
                kept.remove(cut)  # both are 1 at once, or neither
                self.graph.requirements.setdefault(Requirement(whole, cut, "equal"), self.node.name)
        numbers = [d for d in kept if isinstance(d, int)]
        if len(numbers) > 1:
            word, place = "broadcast" if broadcast else "agree", of()
            raise self.error(f"extents {numbers[0]} and {numbers[1]} do not {word}{place and f': {place}'}")
        sure: list[Dim] = [*numbers] or ([d for d in kept if self.proves(2, d)] if broadcast else kept)
        if sure:
            chosen = min(sure, key=lambda d: len(str(d)))
            pairs = [(chosen, right) for right in kept if right != chosen]
        else:
            chosen = broadcast_extent(kept)
            pairs = list(combinations(kept, 2))
        relation: Relation = "broadcast" if broadcast else "equal"
        for left, right in pairs:
            self.graph.requirements.setdefault(Requirement(left, right, relation), self.node.name)
        return chosen

    def require_equal(self, left: Dim, right: Dim) -> None:
        """Makes it a requirement of the graph that two extents are the same, unless that is known."""
        if left != right and not self.same(left, right):
            self.graph.requirements.setdefault(Requirement(left, right, "equal"), self.node.name)

    def expect(self, index: int, extents: Sequence[Dim], *, broadcast: bool = False) -> None:
        """Input `index`, if it is there, has these extents, or with `broadcast` ones that repeat to them.

        InvalidModel names the operand as the operator's text does. Nothing is said while its rank is not known.
        """
        value = self.node.input(index)
        if value is None or value.shape is None or self.op is None:
            return
        own, wanted = value.shape, tuple(extents)
        name = self.op.inputs[min(index, len(self.op.inputs) - 1)].rstrip("?*")
        words = f"{name} is {listed(own)}, {'it must repeat to' if broadcast else 'expected is'} {listed(wanted)}"
        if len(own) > len(wanted) or (len(own) < len(wanted) and not broadcast):
            raise self.error(words)
        for extent, whole in zip(own, wanted[len(wanted) - len(own) :], strict=True):
            if broadcast and isinstance(extent, int) and extent == 1:
                continue
            if broadcast and isinstance(extent, int) and isinstance(whole, int) and extent != whole:
                raise self.error(words)
            self.agreed((extent, whole), broadcast=broadcast, of=lambda: words)

    # --- writing

    def set(
        self,
        index: int,
        dtype: DType,
        shape: Sequence[Dim] | None,
        content: Iterable[Dim] | np.ndarray | None = None,
    ) -> None:
        """Types output `index`; nothing happens when the node has no such output. `content` is in row-major order."""
        if index >= len(self.node.outputs):
            return
        value = self.node.outputs[index]
        value.dtype = dtype
        value.shape = None if shape is None else tuple(shape)
        if isinstance(content, np.ndarray):
            # Looked at before it is written out: a constant that was expanded may be larger than the machine.
            content = content.reshape(-1).tolist() if content.size <= CONTENT_LIMIT else None
        known = None if content is None else tuple(content)
        value.content = known if known is not None and len(known) <= CONTENT_LIMIT else None

    def set_all(self, dtype: DType, shape: Sequence[Dim] | None) -> None:
        for index in range(len(self.node.outputs)):
            self.set(index, dtype, shape)

    def fresh(self, highest: int | None = None, index: int = 0, axis: int = 0) -> Expr:
        """A dim that only the data decides, for `axis` of output `index`; a second inference finds the first one's."""
        old = self.node.outputs[index].shape if index < len(self.node.outputs) else None
        if old is not None and axis < len(old) and is_fresh(str(old[axis])):
            inputs = [v for v in self.node.inputs if v is not None]
            inherited = {d for v in inputs for d in (*(v.shape or ()), *(v.content or ()))}
            if old[axis] not in inherited:
                return cast(Expr, old[axis])
        return self.new_dim(highest)

    def new_dim(self, highest: int | None = None) -> Expr:
        """A dim of a new name."""
        number = sum(is_fresh(name) for name in self.graph.dims)
        while f"u{number}" in self.graph.dims:
            number += 1
        self.graph.dims[f"u{number}"] = (0, highest)
        return dim(f"u{number}")

    def fresh_shape(self, rank: int, index: int = 0) -> Shape:
        return tuple(self.fresh(index=index, axis=axis) for axis in range(rank))

    def error(self, message: str) -> InvalidModel:
        return InvalidModel(message, where={"node": self.node.name, "op": self.node.op})


def broadcast_extent(dims: Sequence[Dim]) -> Dim:
    """The extent that dims broadcast to if those that are not 1 are equal; any of them may be 0."""
    return dmin(dmax(*dims), product(dims)) if len(dims) > 1 else dims[0]


def _is_cut(value: Dim, whole: Dim) -> bool:
    """True for min(whole, n) with numbers above 1: a table of positions cut to a length."""
    atom = value.terms[0][0][0] if isinstance(value, Expr) and value.is_name else None
    if atom is None or atom.kind != "min" or whole not in atom.args:
        return False
    return all(d == whole or isinstance(d, int) and d > 1 for d in atom.args)


def _broadcast_parts(value: Dim) -> tuple[Dim, ...]:
    """What `broadcast_extent` made a dim of; itself if it did not."""
    atom = value.terms[0][0][0] if isinstance(value, Expr) and value.is_name else None
    for largest in atom.args if atom is not None and atom.kind == "min" else ():
        inner = largest.terms[0][0][0] if isinstance(largest, Expr) and largest.is_name else None
        if inner is not None and inner.kind == "max" and value == broadcast_extent(inner.args):
            return inner.args
    return (value,)


_CASES = 4
"""Most cases of a proof of equality."""


def listed(shape: Shape) -> str:
    """A shape as messages show it."""
    return f"[{', '.join(map(str, shape))}]"


def is_fresh(name: str) -> bool:
    """Whether a dim's name says that only the data decides it."""
    return name.startswith("u") and name[1:].isdigit()


def content_of(value: Value) -> tuple[Dim, ...] | None:
    """The elements of a small tensor of whole numbers as dims, flattened in row-major order; None when not known."""
    if value.recipe is None:
        return value.content
    if value.recipe.size > CONTENT_LIMIT:
        return None
    elements = value.recipe.array().reshape(-1)
    if value.dtype.kind in ("int", "uint", "bool"):
        return tuple(int(v) for v in elements)
    if value.dtype.is_float:
        numbers = [float(v) for v in elements]
        return tuple(int(v) for v in numbers) if all(v.is_integer() for v in numbers) else None
    return None


def same(ctx: Inference) -> None:
    """The output is like the first input."""
    ctx.set(0, ctx.dtype(), ctx.shape())


def along_axis(ctx: Inference) -> None:
    """As `same`, for an operator whose axis attribute must lie within the rank."""
    rank = ctx.rank()
    if rank is not None:
        ctx.axis(rank)
    same(ctx)
