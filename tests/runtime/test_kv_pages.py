"""Pages of paged caches against a plain model: what each sequence reads through its pages is what was written for it.

The simulated cache holds in each row the tokens up to it, as one number, so that a page shared by mistake, or written
for another, gives another number.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from acl_runtime import KvPages
from acl_runtime.kv_pages import PagedBatch
from acl_runtime.plan_format import PlanValue
from acl_runtime.state import State
from tensor_types.dtypes import F32
from tensor_types.errors import InvalidModel, ResourceLimit
from tensor_types.formats import PLAIN


class Model:
    """Sequences as lists of tokens, and a cache that runs write."""

    def __init__(self, blocks: int, size: int) -> None:
        self.pages = KvPages(blocks, size)
        self.cache = np.full((blocks, size), -1, np.int64)
        self.texts: dict[int, list[int]] = {}

    def run(self, batch: PagedBatch, new: dict[int, list[int]]) -> None:
        """What a decoder does: copies pages, writes rows at slots, and reads all rows of each sequence."""
        for source, target in batch.copies:
            self.cache[target] = self.cache[source]
        given = batch.inputs
        starts = given["cumulative_sequence_length"]
        assert given["input_ids"].tolist() == [t for tokens in new.values() for t in tokens]
        for line, sequence in enumerate(new):
            self.texts[sequence] += new[sequence]
            text, first, last = self.texts[sequence], starts[line], starts[line + 1]
            assert given["context_lens"][line] == len(text) == given["past_seqlens"][line] + last - first
            for slot, row in zip(given["slot_mapping"][first:last], range(len(text) - last + first, len(text)), strict=True):
                self.cache.reshape(-1)[slot] = hash(tuple(text[: row + 1]))
        for line, sequence in enumerate(new):
            self.check(sequence, given["block_table"][line].tolist())

    def check(self, sequence: int, line: list[int]) -> None:
        text, size = self.texts[sequence], self.cache.shape[1]
        pages = list(self.pages.pages(sequence))
        assert self.pages.tokens(sequence) == tuple(text)
        assert line[: len(pages)] == pages and set(line[len(pages) :]) <= {-1} and len(pages) == -(-len(text) // size)
        for row in range(len(text)):
            assert self.cache[pages[row // size], row % size] == hash(tuple(text[: row + 1])), (sequence, row)

    def check_all(self) -> None:
        users: dict[int, int] = {}
        filled: dict[int, int] = {}
        size = self.cache.shape[1]
        for sequence, text in self.texts.items():
            pages = self.pages.pages(sequence)
            self.check(sequence, list(pages))
            for number, page in enumerate(pages):
                users[page] = users.get(page, 0) + 1
                filled[page] = max(filled.get(page, 0), min(size, len(text) - number * size))
        found = self.pages.figures
        assert (found.used, found.shared) == (len(users), sum(n > 1 for n in users.values()))
        assert found.saved == sum(users.values()) - len(users)
        assert found.wasted_rows == sum(size - n for n in filled.values())
        assert found.kept <= found.blocks - found.used


def walk(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4, 7])
    model = Model(rng.choice([6, 20, 40]), size)
    for step in range(steps):
        known = list(model.texts)
        action = rng.random()
        if not known or action < 0.15:
            # Few tokens, so that beginnings are often alike.
            text = [rng.randrange(2) for _ in range(rng.randrange(1, 4 * size + 2))]
            sequence, held = model.pages.open(text)
            assert held < len(text) and held % size == 0
            model.texts[sequence] = text[:held]
            append(model, {sequence: text[held:]})
        elif action < 0.25:
            origin = rng.choice(known)
            model.texts[model.pages.fork(origin)] = list(model.texts[origin])
        elif action < 0.35:
            sequence = rng.choice(known)
            length = rng.randrange(len(model.texts[sequence]) + 1)
            model.pages.truncate(sequence, length)
            del model.texts[sequence][length:]
        elif action < 0.5:
            sequence = rng.choice(known)
            model.pages.free(sequence)
            del model.texts[sequence]
        else:
            some = rng.sample(known, rng.randrange(1, min(4, len(known)) + 1))
            append(model, {s: [rng.randrange(3) for _ in range(rng.randrange(1, size + 2))] for s in some})
        if step % 7 == 0:
            model.check_all()
    model.check_all()
    for sequence in list(model.texts):
        model.pages.free(sequence)
    assert model.pages.figures.used == 0


def append(model: Model, new: dict[int, list[int]]) -> None:
    before = {s: (model.pages.tokens(s), model.pages.pages(s)) for s in model.texts}, model.pages.figures
    try:
        batch = model.pages.append(new)
    except ResourceLimit:
        after = {s: (model.pages.tokens(s), model.pages.pages(s)) for s in model.texts}, model.pages.figures
        assert after == before
        return
    model.run(batch, new)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_operations(seed: int) -> None:
    walk(seed, 200)


@pytest.mark.long
def test_ten_thousand_walks() -> None:
    for seed in range(10_000):
        walk(seed, 40)


def test_beginnings_that_are_alike_share_pages() -> None:
    pages = KvPages(8, 4)
    first, held = pages.open(range(10))
    assert held == 0
    pages.append({first: range(10)})
    second, held = pages.open([*range(8), 77])
    assert held == 8 and pages.pages(second) == pages.pages(first)[:2]
    batch = pages.append({second: [77]})
    assert not batch.copies and batch.inputs["past_seqlens"].tolist() == [8]
    assert pages.figures.used == 4 and pages.figures.saved == 2 and pages.figures.wasted_rows == 5
    third, held = pages.open(range(8))
    assert held == 4, "the last token's row is computed anew: its logits are wanted"
    pages.free(first)
    pages.free(second)
    pages.free(third)
    assert pages.figures.used == 0 and pages.figures.kept == 2
    _again, held = pages.open(range(12))
    assert held == 8, "pages are found by their tokens until somebody needs them"


def test_a_fork_copies_the_page_that_it_writes_to() -> None:
    pages = KvPages(8, 4)
    origin, _ = pages.open()
    pages.append({origin: [1, 2, 3, 4, 5]})
    fork = pages.fork(origin)
    batch = pages.append({origin: [6], fork: [7]})
    ((source, target),) = batch.copies
    assert (target, source) == (pages.pages(origin)[1], pages.pages(fork)[1])
    assert batch.last_tokens.tolist() == [0, 1] and pages.pages(origin)[0] == pages.pages(fork)[0]


def test_pages_are_copied_in_a_state() -> None:
    state = State([PlanValue(name, F32, shape, PLAIN, None) for name, shape in (("k", (8, 4, 2)), ("other", (3,)))])
    pages = KvPages(8, 4, state)
    origin, _ = pages.open()
    pages.append({origin: [1, 2]})
    page = pages.pages(origin)[0]
    state.arrays["k"][page] = 5
    fork = pages.fork(origin)
    batch = pages.append({fork: [3]})
    assert not batch.copies and (state.arrays["k"][pages.pages(fork)[0]] == 5).all()
    with pytest.raises(InvalidModel, match="no state is a cache of 9 pages"):
        KvPages(9, 4, state)


def test_errors_leave_everything_as_it_was() -> None:
    pages = KvPages(3, 4, most_rows=9)
    one, _ = pages.open()
    pages.append({one: range(5)})
    with pytest.raises(ResourceLimit, match="2 pages are needed and 1 of 3 are free.*free sequences"):
        pages.append({one: [1], pages.fork(one): [2, 3, 4, 5]})
    with pytest.raises(ResourceLimit, match="would have 10 rows, the most are 9"):
        pages.append({one: range(5)})
    with pytest.raises(InvalidModel, match="there is no sequence 9.*sequences: 1, 2"):
        pages.append({one: [1], 9: [2]})
    with pytest.raises(InvalidModel, match="no tokens"):
        pages.append({one: []})
    with pytest.raises(InvalidModel, match="has 5 rows, 6 cannot be left"):
        pages.truncate(one, 6)
    with pytest.raises(InvalidModel, match="at least one page"):
        KvPages(0, 4)
    assert pages.tokens(one) == tuple(range(5)) and pages.figures.used == 2


def test_rows_of_a_run_that_failed_are_not_found_again() -> None:
    """They were found by their tokens as soon as they were asked for: another text read what nobody had written."""
    pages = KvPages(8, 4)
    text, _ = pages.open()
    pages.append({text: range(6)})  # this run succeeds
    pages.append({text: range(6, 13)})  # this one fails
    pages.truncate(text, 6)
    assert pages.open(range(13))[1] == 4
    pages.free(text)
    assert pages.open(range(13))[1] == 4
    again, held = pages.open(range(13))
    pages.append({again: range(held, 13)})
    pages.append({again: [13]})  # the run before has succeeded, as this one is asked for
    pages.truncate(again, 2)
    assert pages.open(range(13))[1] == 12


def test_tokens_that_are_no_numbers_change_nothing() -> None:
    pages = KvPages(8, 4)
    one, other = (pages.open()[0] for _ in range(2))
    for wrong in (["a"], [1.5], [None], 3):
        with pytest.raises(InvalidModel, match="whole numbers"):
            pages.append({one: [1], other: wrong})  # type: ignore[dict-item]
    assert pages.tokens(one) == () and pages.figures.used == 0
    pages.append({one: np.array([1, 2], np.int32)})
    assert pages.tokens(one) == (1, 2)
