"""The way of tokens to their experts: a stable counting sort of the router's choices by expert.

One grid index walks over the choices twice: it counts those of each expert, then gives each the next row of its expert.
"""

from __future__ import annotations

from codegen.kernels.index_words import IndexWords
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import I64


def lower_moe(node: Node, target: Target) -> list[Record]:
    """One task for a Fused node around a MoeRoute; NotLowerable says why there is none."""
    body = body_of(node)
    (route,) = body.nodes
    values = outer_values(node)
    indices = values[route.inputs[0].name] if route.inputs[0] is not None else None
    if indices is None or indices.dtype != I64 or any(not v.format.is_plain for v in values.values()):
        raise NotLowerable("indices are i64 in plain order")
    *lead, choices = shape_of(indices)
    if not isinstance(choices, int):
        raise NotLowerable("a run-time number of choices")
    experts = int(route.attrs["experts"])  # type: ignore[arg-type]

    task = KernelTask(node, "moe", target)
    paths = MemoryPaths(task, target)
    words = IndexWords(task, paths, (1,))
    tokens = task.extent(product(lead))
    rows = tokens * choices
    shapes: list[tuple[Dim, ...]] = [(experts + 1,), (rows,), (rows,), (tokens, choices)]
    source = words.operand(indices, "in", (tokens, choices))
    offsets, choice_of, token_of, row_of = (
        words.operand(values[v.name], "out", shape) if v.name in values else None
        for v, shape in zip(route.outputs, shapes, strict=True)
    )
    counts, following = (paths.tile(words.dtype, (experts,)) for _ in range(2))
    choice, token = (paths.tile(words.dtype, (1,)).window((0,), (1,)) for _ in range(2))
    whole = [t.window((0,), (experts,)) for t in (counts, following)]

    def expert(name: str, t: Dim, c: Dim) -> Dim:
        return task.read(name, words.view(source, (t, c), ()), 0, experts - 1)

    def element(tile: Buffer, at: Dim) -> View:
        return tile.view(at + axis(0), shape=(1,))

    def store(result: Buffer | None, index: tuple[Dim, ...], number: View) -> None:
        if result is not None:
            words.store(result, index, number)

    task.expands(whole[0], 0)
    with task.loop("t", tokens) as t, task.loop("c", choices) as c:
        counted = element(counts, expert("e", t, c))
        task.add(counted, counted, 1)
    task.cumsum(whole[1], whole[0], axis=0, exclusive=1)
    if offsets is not None:
        task.add(whole[0], whole[0], whole[1])
        task.expands(choice, 0)
        words.store(offsets, (axis(0),), choice)
        with task.loop("g", experts) as g:
            words.store(offsets, (g + 1 + axis(0),), element(counts, g))
    task.expands(choice, 0)
    task.expands(token, 0)
    with task.loop("u", tokens) as t:
        with task.loop("d", choices) as c:
            at = expert("f", t, c)
            row = task.read("r", following.view(at, shape=()), 0, rows - 1)
            store(row_of, (t, c + axis(0)), element(following, at))
            store(choice_of, (row + axis(0),), choice)
            store(token_of, (row + axis(0),), token)
            task.add(element(following, at), element(following, at), 1)
            task.add(choice, choice, 1)
        task.add(token, token, 1)
    return [task.record(16 * rows)]
