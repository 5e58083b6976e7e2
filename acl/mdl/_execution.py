"""Executions."""

from __future__ import annotations

from acl._call import status, word
from acl._process import contexts, handles, memory, models, stream_in_context
from acl_runtime.device import Dataset, run_now, submit

__all__ = [
    "execute",
    "execute_async",
    "execute_v2",
]


@status(word, word, word)
def execute(model: int, inputs: int, outputs: int) -> None:
    """Runs to the end. An output buffer without memory gets some, which the caller frees with rt.free."""
    item = models.get(model)
    sources, targets = handles.get(inputs, Dataset), handles.get(outputs, Dataset)
    context = contexts.current()
    work = item.prepare(sources, targets, memory(), context, allocates=True)
    run_now(memory(), work)


@status(word, word, word, word, word)
def execute_v2(model: int, inputs: int, outputs: int, stream: int, config: int) -> None:
    """Runs to the end, in the order of a stream; the configuration makes no difference here."""
    queue = stream_in_context(stream)
    _queue(model, inputs, outputs, stream)
    queue.synchronize()


@status(word, word, word, word)
def execute_async(model: int, inputs: int, outputs: int, stream: int) -> None:
    """Runs at the stream's turn; memory that is freed before stays until then. Outputs must have memory."""
    _queue(model, inputs, outputs, stream)


def _queue(model: int, inputs: int, outputs: int, stream: int) -> None:
    item = models.get(model)
    sources, targets = handles.get(inputs, Dataset), handles.get(outputs, Dataset)
    queue = stream_in_context(stream)
    work = item.prepare(sources, targets, memory(), contexts.current(), allocates=False)
    submit(memory(), queue, work)
