"""Work that is queued or runs, and the memory that it uses.

What a stream has not passed keeps its blocks: a block that is freed meanwhile is gone from the books at once, but its
bytes stay as they are, and its addresses nobody else's, until the work is over. So a program that frees too early gets
what it would have got later, never something else. `ACL_SIM_CHECK=1` reports it (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from acl_runtime.device.codes import DeviceError

if TYPE_CHECKING:
    from acl_runtime.device.memory import AddressSpace, Allocation, Memory
    from acl_runtime.device.stream import Stream


@dataclass(frozen=True)
class Use:
    """Bytes that work reads, or writes; `what` names them in messages."""

    address: int
    nbytes: int
    writes: bool
    what: str


@dataclass(frozen=True)
class Execution:
    """Work that was checked: the memory that it uses, and the call. blocks: those of the device that hold all of the
    memory, where they are known."""

    uses: Sequence[Use]
    run: Callable[[], None]
    blocks: Sequence[Allocation] = ()

    def is_stale(self) -> bool:
        """Whether memory that it uses was freed."""
        for block in self.blocks:
            if block.is_freed:
                return True
        return False


class Hold:
    """Keeps the blocks of some uses until `release`. Plain host memory is its owner's business.

    PARAM_INVALID if a use is in no live block of its space.
    """

    def __init__(self, memory: Memory, uses: Sequence[Use]) -> None:
        self.uses = tuple(uses)
        self.blocks: list[tuple[AddressSpace, Allocation, Use]] = []
        try:
            for use in uses:
                space = memory.space(use.address)
                if space is not None:
                    self.blocks.append((space, space.pin(use.address, use.nbytes, use.what), use))
        except DeviceError:
            self.release()
            raise

    def release(self) -> None:
        """Lets go; once is enough."""
        blocks, self.blocks = self.blocks, []
        for space, block, _ in blocks:
            space.unpin(block)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def submit(memory: Memory, stream: Stream, work: Execution) -> None:
    """Queues work whose memory is checked now and kept until the stream has passed it."""
    if work.blocks and memory.checks is None and memory.device.keep(work.blocks):
        release: Callable[[], None] = lambda: memory.device.leave(work.blocks)  # noqa: E731
        task = work.run
    else:
        hold = Hold(memory, work.uses)
        release = hold.release
        task = work.run if memory.checks is None else memory.checks.watched(work.run, hold, stream)
    try:
        stream.submit(task, release=release)
    except BaseException:
        release()
        raise


def run_now(memory: Memory, work: Execution) -> None:
    """Runs work on the caller's thread; its memory is kept meanwhile, whatever other threads free."""
    if work.blocks and memory.checks is None and memory.device.keep(work.blocks):
        try:
            work.run()
        finally:
            memory.device.leave(work.blocks)
        return
    with Hold(memory, work.uses) as hold:
        task = work.run if memory.checks is None else memory.checks.watched(work.run, hold, None)
        task()
