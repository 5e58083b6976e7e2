"""What is written at once, so that the page cache can keep it in large pages, and that they are asked for."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from acl_runtime.om.large_blocks import BLOCK, LargeBlocks
from acl_runtime.om.reader import _map


class Recorder:
    """A file that keeps what is written at which place."""

    def __init__(self) -> None:
        self.place = 0
        self.writes: list[tuple[int, bytes]] = []

    def seek(self, place: int) -> None:
        self.place = place

    def write(self, data: bytes) -> None:
        self.writes.append((self.place, bytes(data)))
        self.place += len(data)


@pytest.mark.parametrize("place", [0, 64, BLOCK - 1, BLOCK, 3 * BLOCK + 4096])
@pytest.mark.parametrize(
    "sizes", [[], [0, 5], [BLOCK], [7, 3 * BLOCK, 1], [BLOCK // 2 + 1] * 7, [5 * BLOCK + 3, BLOCK]]
)
def test_whole_blocks(place, sizes):
    data = np.random.default_rng(0).integers(0, 256, sum(sizes), np.uint8).tobytes()
    file = Recorder()
    blocks = LargeBlocks(file, place)
    start = 0
    for size in sizes:
        blocks.write(memoryview(data)[start : start + size])
        start += size
    blocks.close()
    assert b"".join(written for _, written in file.writes) == data
    assert file.writes == [] or file.writes[0][0] == place
    for at, _ in file.writes[1:]:
        assert at % BLOCK == 0  # else a block is made of two pages at least
    for at, written in file.writes[:-1]:
        assert (at + len(written)) % BLOCK == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what was asked of a mapping")
def test_a_mapped_package_asks_for_large_pages(tmp_path):
    path = tmp_path / "large_pages.om"
    path.write_bytes(b"\0" * 3 * BLOCK)
    mapped = _map(path)
    flags = None
    with open("/proc/self/smaps") as table:
        for line in table:
            if str(path) in line:
                flags = ""
            elif flags == "" and line.startswith("VmFlags"):
                flags = line
                break
    assert flags, "the mapping is not in the table"
    if hasattr(mmap, "MADV_HUGEPAGE") and _system_has_them():
        assert " hg" in flags
    assert len(mapped) == 3 * BLOCK


def _system_has_them() -> bool:
    try:
        with mmap.mmap(-1, 2 * BLOCK) as block:
            block.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return False
    return True
