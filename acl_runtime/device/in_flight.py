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


def submit(memory: Memory, stream: Stream, uses: Sequence[Use], task: Callable[[], None]) -> None:
    """Queues a task whose memory is checked now and kept until the stream has passed it."""
    hold = Hold(memory, uses)
    try:
        if memory.checks is not None:
            task = memory.checks.watched(task, hold, stream)
        stream.submit(task, release=hold.release)
    except BaseException:
        hold.release()
        raise


def run_now(memory: Memory, uses: Sequence[Use], task: Callable[[], None]) -> None:
    """Runs a task on the caller's thread; its memory is kept meanwhile, whatever other threads free."""
    with Hold(memory, uses) as hold:
        if memory.checks is not None:
            task = memory.checks.watched(task, hold, None)
        task()
