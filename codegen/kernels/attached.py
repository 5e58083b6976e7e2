"""Element-wise operators that a kernel computes for each of its blocks: behind an anchor, before it, or alone.

What every family does with them is here: which further operands they need, their instructions, and the stores of the
results. A family gives a view of any value over its block, and the operands that it has made itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from codegen.kernels.block_emitter import Operand, Words, immediate
from codegen.kernels.elementwise import ElementwiseEmitter, can_emit
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable
from codegen.kernels.wide_integers import in_words, words_of
from codegen.tile.ir import View
from graph_opt.ir.core import Node, Value
from tensor_types.dtypes import I32

ViewOf = Callable[[Value], View]
"""A value of the graph over the block. Of 64-bit integers in words it is the low ones; the high ones stand at 1 along
the last index."""


class Attached:
    """`nodes` in order, over the values around them by name; the kernel itself gives those named in `given`."""

    def __init__(self, nodes: Sequence[Node], values: Mapping[str, Value], given: Collection[str] = ()) -> None:
        if refused := [n for n in nodes if not can_emit(n)]:
            raise NotLowerable(f"{refused[0].op} has no tile instructions for its dtypes")
        self.nodes = nodes
        made = {v.name for n in nodes for v in n.outputs} | set(given)
        used = {v.name: values.get(v.name, v) for n in nodes for v in n.inputs if v is not None and v.name not in made}
        numbers = {name: immediate(value) for name, value in used.items()}
        self._numbers: dict[str, Operand] = {name: number for name, number in numbers.items() if number is not None}
        self.extras = {name: value for name, value in used.items() if numbers[name] is None}
        """By name in the body: what they read beside the given, less the constants of one element."""

    def emit(
        self, emitter: ElementwiseEmitter, paths: MemoryPaths, view: ViewOf, given: Mapping[str, Operand],
        keep: Sequence[Value],
    ) -> dict[str, Operand]:  # fmt: skip
        """Appends their instructions; operands by name, those of `keep` valid until the end."""
        for n in self.nodes:
            paths.require(I32 if in_words(n.output.dtype, paths.target) else n.output.dtype)
        operands = {**self._numbers, **given}
        for name, value in self.extras.items():
            operands[name] = vector_operand(paths, value, view(value), emitter.shape)
        emitter.run(self.nodes, operands, keep)
        return operands


def vector_operand(paths: MemoryPaths, value: Value, seen: View, shape: Sequence[int]) -> View | Words:
    """A value where the vector engine reads it, `seen` over a block of that shape."""
    if in_words(value.dtype, paths.target) and paths.builder.element_type(seen) == I32:
        return Words(*(paths.vector_input(word, shape, I32) for word in (seen, above(seen))))
    return paths.vector_input(seen, shape, value.dtype)


def store_results(
    paths: MemoryPaths, emitter: ElementwiseEmitter, results: Sequence[tuple[str, Value]],
    operands: Mapping[str, Operand], view: ViewOf,
) -> None:  # fmt: skip
    """Stores the block's part of every result, (name in the body, value of the graph).

    NotLowerable for a result that the kernel does not hold when all else is computed.
    """
    for name, value in results:
        if name not in operands:
            raise NotLowerable(f"{name} is no longer there when results are stored")
        held, seen = operands[name], view(value)
        if in_words(value.dtype, paths.target) and paths.builder.element_type(seen) == I32:
            words = words_of(held)
            parts = [(seen, words.low), (above(seen), words.high)]
        else:
            assert not isinstance(held, Words)
            parts = [(seen, held)]
        for place, part in parts:
            dtype = paths.builder.element_type(place)
            paths.store(place, part if isinstance(part, View) else part.value, emitter.shape, dtype)


def above(low: View) -> View:
    """The high words of 64-bit integers whose low ones a view sees."""
    return View(low.base, (*low.index[:-1], 1), low.shape)
