"""Which input of a decoder is what: tokens, mask, positions, caches and the outputs that continue them.

1. A configuration that names them is followed to the letter.
2. Else names decide (`input_ids`, `attention_mask`, `position_ids`, `past*` and `present*`, ...).
   Of pairs that do not grow, those of keys and values have a row for each token, others are recurrent states.
3. A cache input is paired with the output whose name is the same behind the word for past or present.
Whatever is left has no role, and the model is refused with its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from acl_runtime.session import InferSession, TensorInfo
from tensor_types.cache_names import paired
from tensor_types.errors import InvalidModel

_TOKENS = ("input_ids", "tokens", "token_ids", "ids")
_MASKS = ("attention_mask", "mask")
_POSITIONS = ("position_ids", "positions", "cache_position")
_BRANCHES = ("use_cache_branch", "use_cache")
_LOGITS = ("logits",)
_HAS_ROWS = re.compile(r"key|value|(?<![a-z])(k|v|kv)(?![a-z])|(?<![a-z])(k|v|kv)_?(cache|in|out)", re.I)
"""Names of fixed buffers with a row for each token; others of one size are states of recurrences and convolutions."""


@dataclass(frozen=True)
class Names:
    """Names that a configuration gives; None where it is silent. `past` and `present` have %d for the layer."""

    tokens: str | None = None
    mask: str | None = None
    positions: str | None = None
    logits: str | None = None
    past: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cache:
    """A pair of tensors: the input takes what the output gave. axis: that of the length, None if its extents are fixed.
    extents: of the other axes, those of the batch as 1. recurrent: it sums up the tokens and has no row of each."""

    past: str
    present: str
    output: int
    axis: int | None
    extents: tuple[int, ...]
    dtype: np.dtype
    recurrent: bool = False

    def empty(self) -> np.ndarray:
        """The cache before the first token."""
        return np.zeros(self.extents, self.dtype)

    @property
    def capacity(self) -> int | None:
        """The longest length that a fixed buffer holds; None if the cache grows, or has a state of one size."""
        return None if self.axis is not None or self.recurrent else self.extents[-2]


@dataclass(frozen=True)
class Roles:
    """The inputs and outputs of a decoder by what they are for."""

    tokens: TensorInfo
    mask: TensorInfo | None
    positions: TensorInfo | None
    branch: TensorInfo | None
    logits: int
    vocabulary: int | None
    all_positions: bool
    """Whether the logits of every token come out, not only those of the last one."""
    caches: tuple[Cache, ...]

    states: tuple[Cache, ...] = ()
    """Caches that are states of the model; it has no others then."""

    @cached_property
    def capacity(self) -> int | None:
        """Tokens that the caches hold at most, None if they grow."""
        if self.states:
            return min(c.extents[-2] for c in self.states)
        held = [c.capacity for c in self.caches if c.capacity is not None]
        return min(held) if held else None


def roles_of(session: InferSession, given: Names | None = None) -> Roles:
    """The roles of a session's tensors. InvalidModel names a tensor without one, or one that is not there."""
    given = given or Names()
    inputs = {t.name: t for t in session.get_inputs()}
    outputs = session.get_outputs()
    output_names = [t.name for t in outputs]
    left = dict(inputs)

    def take(name: str | None, usual: Sequence[str]) -> TensorInfo | None:
        if name is not None:
            if name not in inputs:
                raise _absent(name, "input", list(inputs))
            return left.pop(name, None)
        found = next((n for n in usual if n in left), None)
        return left.pop(found) if found else None

    tokens = take(given.tokens, _TOKENS)
    if tokens is None:
        integers = [t for t in left.values() if t.dtype.kind in "iu" and t.shape is not None and len(t.shape) == 2]
        if len(integers) != 1:
            raise InvalidModel(
                "it cannot be told which input takes the tokens", where={"tensor": ", ".join(inputs)},
                remedy="call it input_ids, or name it in genai_config.json",
            )  # fmt: skip
        tokens = left.pop(integers[0].name)
    mask, positions = take(given.mask, _MASKS), take(given.positions, _POSITIONS)
    branch = take(None, _BRANCHES)
    states = tuple(Cache(n, n, -1, a.ndim - 2, a.shape, a.dtype) for n, a in session.state().arrays.items())
    caches = [] if states else _named(given, left, outputs) if given.past else _paired(left, outputs)
    for cache in caches:
        left.pop(cache.past)
    if left:
        raise InvalidModel(
            "this input of the decoder has no known role", where={"tensor": next(iter(left))},
            remedy="tokens, mask, positions and caches are fed; fix the others in the model",
        )  # fmt: skip
    logits = _logits(given.logits, output_names, {c.present for c in caches})
    shape = outputs[logits].shape
    if shape is None or len(shape) != 3:
        raise InvalidModel("the logits must be [batch, tokens, vocabulary]", where={"tensor": output_names[logits]},
                           remedy="export the decoder with its language model head")  # fmt: skip
    vocabulary = shape[2] if isinstance(shape[2], int) else None
    return Roles(tokens, mask, positions, branch, logits, vocabulary, shape[1] != 1, tuple(caches), states)


def _logits(given: str | None, names: Sequence[str], presents: set[str]) -> int:
    if given is not None:
        if given not in names:
            raise _absent(given, "output", names)
        return names.index(given)
    rest = [n for n in names if n not in presents]
    found = next((n for n in rest if n in _LOGITS), rest[0] if len(rest) == 1 else None)
    if found is None:
        raise InvalidModel("it cannot be told which output has the logits", where={"tensor": ", ".join(rest)},
                           remedy="call it logits, or name it in genai_config.json")  # fmt: skip
    return names.index(found)


def _named(given: Names, left: dict[str, TensorInfo], outputs: Sequence[TensorInfo]) -> list[Cache]:
    """The caches of a configuration: the templates are counted up until no input has the name."""
    found = []
    for past, present in zip(given.past, given.present, strict=True):
        layer = 0
        while (name := past.replace("%d", str(layer))) in left:
            found.append(_cache(left[name], present.replace("%d", str(layer)), outputs))
            layer += 1
            if "%d" not in past:
                break
        if not layer:
            raise _absent(past.replace("%d", "0"), "input", list(left))
    return found


def _paired(left: dict[str, TensorInfo], outputs: Sequence[TensorInfo]) -> list[Cache]:
    """The caches that names tell."""
    pairs = paired(left, [t.name for t in outputs])
    return [_cache(left[past], present, outputs) for past, present in pairs.items()]


def _cache(past: TensorInfo, present: str, outputs: Sequence[TensorInfo]) -> Cache:
    names = [t.name for t in outputs]
    if present not in names:
        raise _absent(present, "output", names)
    number = names.index(present)
    result = outputs[number]
    if past.shape is None or result.shape is None or len(past.shape) != len(result.shape) or past.dtype != result.dtype:
        raise InvalidModel(f"a cache of {past.dtype}{past.shape} continues as {result.dtype}{result.shape}",
                           where={"tensor": past.name}, remedy="past and present must be of one kind")  # fmt: skip
    grown = [axis for axis, (a, b) in enumerate(zip(past.shape, result.shape, strict=True)) if a != b]
    if len(grown) > 1:
        raise InvalidModel(f"a cache grows along the axes {grown}", where={"tensor": past.name},
                           remedy="export the decoder with one length")  # fmt: skip
    axis = grown[0] if grown else None
    extents = tuple(0 if a == axis else d if isinstance(d, int) else 1 for a, d in enumerate(past.shape))
    recurrent = axis is None and not _HAS_ROWS.search(past.name)
    return Cache(past.name, present, number, axis, extents, past.dtype, recurrent)


def _absent(name: str, kind: str, known: Sequence[str]) -> InvalidModel:
    return InvalidModel(f"the configuration names an {kind} that the model does not have", where={"tensor": name},
                        remedy=f"the model has {', '.join(known)}")  # fmt: skip
