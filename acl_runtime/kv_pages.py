"""Pages of a decoder's caches: which page holds which rows of which sequence, for PagedAttention.

A cache of `blocks` pages of `block_size` rows serves all sequences. A sequence gets a page when a row needs one; a fork
has the pages of its origin, and a page that several have is copied for the first that writes to it. A full page is
found again by its tokens and all before them, also when the sequence that wrote it is gone, until its page is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acl_runtime.state import State
from tensor_types.errors import InvalidModel, ResourceLimit

_Key = tuple[int, tuple[int, ...]]
"""The content of the page before, and a page's own tokens."""
_NOTHING = 0


@dataclass(frozen=True)
class Figures:
    """How pages are used. used: by a sequence at least; shared: by several; kept: by none, but found again by their
    tokens; saved: pages that sharing spares. wasted_rows: of used pages, without a token."""

    blocks: int
    used: int
    shared: int
    kept: int
    saved: int
    wasted_rows: int


@dataclass(frozen=True)
class PagedBatch:
    """What a run of some sequences takes, one behind the other: `inputs` by the names of PagedAttention's operands.

    input_ids i64 [tokens]; cumulative_sequence_length [sequences + 1], past_seqlens and context_lens [sequences],
    block_table [sequences, pages] with -1 behind a sequence's last, slot_mapping [tokens], all i32. copies: pairs of
    pages, to be copied in every cache before the run; none where `KvPages` has the state and did it.
    """

    inputs: dict[str, np.ndarray]
    copies: tuple[tuple[int, int], ...]

    @property
    def last_tokens(self) -> np.ndarray:
        """Where in the results the last token of each sequence stands."""
        return self.inputs["cumulative_sequence_length"][1:].astype(np.int64) - 1


@dataclass
class _Sequence:
    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    contents: list[int] = field(default_factory=list)
    """What its full pages hold."""
    filled: list[int] = field(default_factory=list)
    """Pages that the latest append made findable, whose run may still fail."""

    def copy(self) -> _Sequence:
        return _Sequence(list(self.tokens), list(self.pages), list(self.contents))


class KvPages:
    """The pages of one set of caches. Every change is made as a whole or not at all."""

    def __init__(self, blocks: int, block_size: int, state: State | None = None, most_rows: int | None = None) -> None:
        """`state`: that of the session whose caches these are; pages are copied in it. `most_rows`: of a sequence.

        InvalidModel for sizes below 1, and for a state none of whose buffers is [blocks, block_size, ..].
        """
        if blocks < 1 or block_size < 1:
            raise InvalidModel(f"{blocks} pages of {block_size} rows", remedy="give at least one page of one row")
        self.blocks, self.block_size = blocks, block_size
        self.most_rows = blocks * block_size if most_rows is None else most_rows
        self._state = state
        buffers = [] if state is None else list(state.arrays.values())
        self._caches = [a for a in buffers if a.shape[:2] == (blocks, block_size)]
        if state is not None and not self._caches:
            raise InvalidModel(
                f"no state is a cache of {blocks} pages of {block_size} rows",
                remedy="give the first two extents of the states",
            )
        self._sequences: dict[int, _Sequence] = {}
        self._users = [0] * blocks
        self._free = dict.fromkeys(range(blocks))
        """In the order in which they are given away: those that were used last come last."""
        self._found: dict[_Key, int] = {}
        self._keys: dict[int, _Key] = {}
        self._contents: dict[int, int] = {}
        """A number for what each page that can be found holds, never given twice."""
        self._names = self._content_names = 0

    # Sequences

    def open(self, tokens: Sequence[int] = ()) -> tuple[int, int]:
        """A new sequence and how many of its first tokens it has rows for already: whole pages of the same beginning,
        never all of `tokens`, as the last one's row is what a run gives logits for. The others are the caller's to
        append."""
        made = _Sequence()
        tokens = _numbers(tokens)
        for start in range(0, len(tokens) - self.block_size, self.block_size):
            own = tuple(tokens[start : start + self.block_size])
            page = self._found.get(_key(made, own))
            if page is None:
                break
            made.contents.append(self._contents[page])
            made.pages.append(page)
            made.tokens += own
        for page in made.pages:
            self._take(page)
        return self._named(made), len(made.tokens)

    def fork(self, sequence: int) -> int:
        """A sequence that goes on from the same rows. InvalidModel if there is no such sequence."""
        origin = self._sequence(sequence)
        for page in origin.pages:
            self._take(page)
        return self._named(origin.copy())

    def truncate(self, sequence: int, length: int) -> None:
        """Leaves the first `length` rows, as after a run that failed: pages that the latest append was to fill are not
        found again where it takes rows of them. InvalidModel if it has not as many."""
        held = self._sequence(sequence)
        if not 0 <= length <= len(held.tokens):
            raise InvalidModel(
                f"sequence {sequence} has {len(held.tokens)} rows, {length} cannot be left", remedy="leave fewer"
            )
        for page in set(held.filled).intersection(held.pages[length // self.block_size :]):
            self._forget(page)
        self._cut(held, length)

    def _cut(self, held: _Sequence, length: int) -> None:
        kept = -(-length // self.block_size)
        for page in held.pages[kept:]:
            self._leave(page)
        del held.pages[kept:], held.tokens[length:], held.contents[length // self.block_size :]

    def free(self, sequence: int) -> None:
        """Gives the pages of a sequence back; full ones can be found again, so one whose run failed is truncated
        before. InvalidModel if there is no such sequence."""
        self._cut(self._sequence(sequence), 0)
        del self._sequences[sequence]

    def tokens(self, sequence: int) -> tuple[int, ...]:
        """The tokens that have rows."""
        return tuple(self._sequence(sequence).tokens)

    def pages(self, sequence: int) -> tuple[int, ...]:
        """The pages of a sequence in order."""
        return tuple(self._sequence(sequence).pages)

    @property
    def figures(self) -> Figures:
        """How the pages are used now."""
        used = [count for count in self._users if count]
        rows: dict[int, int] = {}
        for held in self._sequences.values():
            for number, page in enumerate(held.pages):
                filled = min(self.block_size, len(held.tokens) - number * self.block_size)
                rows[page] = max(rows.get(page, 0), filled)
        return Figures(
            self.blocks, len(used), sum(count > 1 for count in used), sum(page in self._keys for page in self._free),
            sum(used) - len(used), sum(self.block_size - filled for filled in rows.values()),
        )  # fmt: skip

    # Rows

    def append(self, new: Mapping[int, Sequence[int]]) -> PagedBatch:
        """Rows for new tokens of some sequences, and what their run takes.

        InvalidModel for an unknown sequence, one without tokens and tokens that are no numbers, ResourceLimit beyond
        `most_rows` and when pages run out; nothing is changed then.
        """
        new = {sequence: _numbers(tokens) for sequence, tokens in new.items()}
        self._check(new)
        copies = []
        for sequence, tokens in new.items():
            held = self._sequences[sequence]
            if len(held.tokens) % self.block_size:
                copies += self._writable(held)
            self._extend(held, tokens)
        if self._state is not None and copies:
            with self._state.lock:
                for source, target in copies:
                    for cache in self._caches:
                        cache[target] = cache[source]
            copies = []
        return PagedBatch(self._arrays(new), tuple(copies))

    def _check(self, new: Mapping[int, Sequence[int]]) -> None:
        needed, users = 0, {}
        for sequence, tokens in new.items():
            held = self._sequence(sequence)
            total = len(held.tokens) + len(tokens)
            if not len(tokens):
                raise InvalidModel(f"no tokens for sequence {sequence}", remedy="leave it out of the batch")
            if total > self.most_rows:
                raise ResourceLimit(
                    f"sequence {sequence} would have {total} rows, the most are {self.most_rows}",
                    remedy="end it, or convert with a larger --cache_capacity",
                )
            needed += -(-total // self.block_size) - len(held.pages)
            if len(held.tokens) % self.block_size:
                last = held.pages[-1]
                count = users.setdefault(last, self._users[last])
                if count > 1:
                    needed += 1
                    users[last] -= 1
        if needed > len(self._free):
            raise ResourceLimit(
                f"{needed} pages are needed and {len(self._free)} of {self.blocks} are free",
                remedy="free sequences, or convert with a larger --cache_capacity",
            )

    def _writable(self, held: _Sequence) -> list[tuple[int, int]]:
        """Makes the last page one that nobody else has, and that is not found by tokens it is about to lose."""
        page = held.pages[-1]
        if self._users[page] == 1:
            self._forget(page)
            return []
        held.pages[-1] = self._new_page()
        self._leave(page)
        return [(page, held.pages[-1])]

    def _extend(self, held: _Sequence, tokens: Sequence[int]) -> None:
        size = self.block_size
        held.tokens += tokens
        held.filled.clear()
        while len(held.pages) * size < len(held.tokens):
            held.pages.append(self._new_page())
        for number in range(len(held.contents), len(held.tokens) // size):  # pages that are full now can be found
            key = _key(held, tuple(held.tokens[number * size : (number + 1) * size]))
            if key not in self._found:
                page = held.pages[number]
                self._content_names += 1
                self._found[key], self._keys[page], self._contents[page] = page, key, self._content_names
                held.filled.append(page)
            held.contents.append(self._contents[self._found[key]])

    def _arrays(self, new: Mapping[int, Sequence[int]]) -> dict[str, np.ndarray]:
        sequences = [self._sequences[s] for s in new]
        counts = [len(tokens) for tokens in new.values()]
        lengths = np.array([len(s.tokens) for s in sequences], np.int32)
        table = np.full((len(sequences), max((len(s.pages) for s in sequences), default=0)), -1, np.int32)
        slots = [np.zeros(0, np.int32)]
        for line, held, count in zip(table, sequences, counts, strict=True):
            line[: len(held.pages)] = held.pages
            rows = np.arange(len(held.tokens) - count, len(held.tokens))
            slots.append((line[rows // self.block_size] * self.block_size + rows % self.block_size).astype(np.int32))
        return {
            "input_ids": np.array([t for s, n in zip(sequences, counts, strict=True) for t in s.tokens[-n:]], np.int64),
            "cumulative_sequence_length": np.cumsum([0, *counts]).astype(np.int32),
            "past_seqlens": lengths - np.array(counts, np.int32), "context_lens": lengths,
            "block_table": table, "slot_mapping": np.concatenate(slots),
        }  # fmt: skip

    # Pages

    def _sequence(self, sequence: int) -> _Sequence:
        if sequence not in self._sequences:
            known = ", ".join(str(s) for s in list(self._sequences)[:8]) or "none"
            raise InvalidModel(f"there is no sequence {sequence}", remedy=f"sequences: {known}")
        return self._sequences[sequence]

    def _named(self, held: _Sequence) -> int:
        self._names += 1
        self._sequences[self._names] = held
        return self._names

    def _new_page(self) -> int:
        page = next(iter(self._free))
        self._take(page)
        self._forget(page)
        return page

    def _take(self, page: int) -> None:
        self._free.pop(page, None)
        self._users[page] += 1

    def _leave(self, page: int) -> None:
        self._users[page] -= 1
        if not self._users[page]:
            self._free[page] = None

    def _forget(self, page: int) -> None:
        key = self._keys.pop(page, None)
        if key is not None:
            del self._found[key], self._contents[page]


def _numbers(tokens: Sequence[int]) -> list[int]:
    try:
        return [operator.index(t) for t in tokens]
    except TypeError as error:
        raise InvalidModel(f"tokens are whole numbers: {error}", remedy="give a list or array of integers") from error


def _key(before: _Sequence, tokens: tuple[int, ...]) -> _Key:
    """What finds a page of these tokens behind the full pages of a sequence."""
    return (before.contents[-1] if before.contents else _NOTHING), tokens
