"""The sequences of a graph: nodes in topological order, and its outputs. Neither costs a pass over the graph to change.

`Order` keeps its items in blocks of bounded length, so that insertion, removal and the place of an item take steps of
the block's length, at most `_LONGEST`, whatever the length of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

_LONGEST = 512

T = TypeVar("T")


class _Block(list[T]):
    """A run of items; `number` is its place among the blocks."""

    __slots__ = ("number",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(items)
        self.number = 0


class Order(Sequence[T]):
    """Distinct items in an order. Whoever changes it while iterating iterates over a copy."""

    __slots__ = ("_blocks", "_block_of")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._blocks: list[_Block[T]] = [_Block()]
        self._block_of: dict[T, _Block[T]] = {}
        for item in items:
            self.append(item)

    def append(self, item: T) -> None:
        """Puts the item at the end."""
        self._put(item, self._blocks[-1], len(self._blocks[-1]))

    def insert_before(self, at: T, item: T) -> None:
        """Puts the item before another; KeyError if that one is not here."""
        block = self._block_of[at]
        self._put(item, block, block.index(at))

    def insert_after(self, at: T, item: T) -> None:
        """Puts the item behind another; KeyError if that one is not here."""
        block = self._block_of[at]
        self._put(item, block, block.index(at) + 1)

    def remove(self, item: T) -> None:
        """Takes the item out; KeyError if it is not here."""
        block = self._block_of.pop(item)
        block.remove(item)
        if not block and len(self._blocks) > 1:
            del self._blocks[block.number]
            self._renumber(block.number)

    def place(self, item: T) -> tuple[int, int]:
        """A key that sorts items as they lie, until the next change; KeyError if it is not here."""
        block = self._block_of[item]
        return block.number, block.index(item)

    def following(self, item: T) -> Iterator[T]:
        """The items behind one, in order."""
        number, index = self.place(item)
        return chain(islice(self._blocks[number], index + 1, None), *islice(self._blocks, number + 1, None))

    def _put(self, item: T, block: _Block[T], index: int) -> None:
        if item in self._block_of:
            raise ValueError(f"{item} is in the order already")
        block.insert(index, item)
        self._block_of[item] = block
        if len(block) > _LONGEST:
            half = _Block(block[_LONGEST // 2 :])
            del block[_LONGEST // 2 :]
            self._block_of.update(dict.fromkeys(half, half))
            self._blocks.insert(block.number + 1, half)
            self._renumber(block.number + 1)

    def _renumber(self, first: int) -> None:
        for number in range(first, len(self._blocks)):
            self._blocks[number].number = number

    def __len__(self) -> int:
        return len(self._block_of)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    def __reversed__(self) -> Iterator[T]:
        return chain.from_iterable(reversed(block) for block in reversed(self._blocks))

    def __contains__(self, item: object) -> bool:
        return item in self._block_of

    def __getitem__(self, index: Any) -> Any:
        """An item, or a list of them; the first and the last block are read directly."""
        if isinstance(index, int):
            if 0 <= index < len(self._blocks[0]):
                return self._blocks[0][index]
            if -len(self._blocks[-1]) <= index < 0:
                return self._blocks[-1][index]
        return list(self)[index]


class Outputs(Sequence[T]):
    """The outputs of a graph, in order; one value may stand at several places."""

    __slots__ = ("_values", "_places")

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._values = list(values)
        self._places: dict[T, list[int]] = {}
        for place, value in enumerate(self._values):
            self._places.setdefault(value, []).append(place)

    def append(self, value: T) -> None:
        """Puts the value at the end."""
        self._places.setdefault(value, []).append(len(self._values))
        self._values.append(value)

    def replace(self, old: T, new: T) -> None:
        """Puts `new` wherever `old` stands."""
        for place in self._places.pop(old, ()):
            self._values[place] = new
            self._places.setdefault(new, []).append(place)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values)

    def __contains__(self, value: object) -> bool:
        return value in self._places

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]
