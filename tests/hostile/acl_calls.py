"""Random calls of pyACL from several threads, with handles and addresses right, stale and made up."""

from __future__ import annotations

import ctypes
import mmap
import random
import threading
from pathlib import Path
from typing import Any

import acl
from tests.hostile import packages

_SIZES = (0, 1, 31, 64, 4096, 1 << 20, 1 << 33, 1 << 63, (1 << 64) - 1, -1)


def prepare(folder: Path) -> None:
    """The packages that models are loaded from."""
    if not (folder / "mlp.om").exists():
        packages.prepare(folder, ("mlp", "branches"))


_CALLS = {
    "rt.malloc": ("size", "small"), "rt.free": ("any",), "rt.malloc_host": ("size",), "rt.free_host": ("any",),
    "rt.memcpy": ("any", "size", "any", "size", "small"), "rt.memset": ("any", "size", "small", "size"),
    "rt.memcpy_async": ("any", "size", "any", "size", "small", "any"), "rt.create_stream": (),
    "rt.memset_async": ("any", "size", "small", "size", "any"), "rt.destroy_stream": ("any",),
    "rt.synchronize_stream": ("any",), "rt.create_event": (), "rt.destroy_event": ("any",),
    "rt.record_event": ("any", "any"), "rt.query_event_status": ("any",), "rt.get_mem_info": ("small",),
    "rt.create_context": ("small",), "rt.set_context": ("any",), "rt.get_context": (),
    "mdl.load_from_file": ("path",), "mdl.load_from_mem": ("any", "size"), "mdl.unload": ("any",),
    "mdl.create_desc": (), "mdl.get_desc": ("any", "any"), "mdl.destroy_desc": ("any",),
    "mdl.get_num_inputs": ("any",), "mdl.get_input_size_by_index": ("any", "small"), "mdl.get_output_dims": ("any", "small"),
    "mdl.create_dataset": (), "mdl.destroy_dataset": ("any",), "mdl.add_dataset_buffer": ("any", "any"),
    "mdl.execute": ("any", "any", "any"), "create_data_buffer": ("any", "size"), "destroy_data_buffer": ("any",),
    "get_data_buffer_size": ("any",), "util.ptr_to_bytes": ("any", "size"), "mdl.get_dataset_num_buffers": ("any",),
}  # fmt: skip


def _fenced_page() -> int:
    """A page of host memory with 16 GB behind it that may not be touched: what is beyond its end is no heap."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    address = libc.mmap(None, 16 << 30, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 3) == 0
    return int(address)


class Case:
    """A case is a hundred calls, spread over three threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: list[int] = [0, 1, 2, 64, 4096, 1 << 40, (1 << 64) - 1]
        self.host = _fenced_page()
        acl.init()

    def run(self, draw: random.Random) -> str:
        errors: list[BaseException] = []
        acl.rt.set_device(0)

        def work(seed: int) -> None:
            own = random.Random(seed)
            acl.rt.set_device(0)
            try:
                for _ in range(33):
                    self.call(own)
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=work, args=(draw.randrange(1 << 30),)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]
        return "100 calls"

    def call(self, draw: random.Random) -> None:
        name = draw.choice(sorted(_CALLS))
        function: Any = acl
        for part in name.split("."):
            function = getattr(function, part)
        arguments = [self.argument(draw, kind) for kind in _CALLS[name]]
        result = function(*arguments)
        code = result[-1] if isinstance(result, tuple) else result
        if code in (500000, 507000):
            raise AssertionError(f"{name}{tuple(arguments)}: {acl.get_recent_err_msg()}")
        if isinstance(result, tuple) and code == 0 and isinstance(result[0], int):
            if len(self.known) > 60:
                self.known.pop(draw.randrange(7, len(self.known)))
            self.known.append(result[0])

    def argument(self, draw: random.Random, kind: str) -> Any:
        if kind == "size":
            return draw.choice(_SIZES[:6] if draw.random() < 0.8 else _SIZES)
        if kind == "small":
            return draw.choice([0, 0, 0, 1, 2, 3, -1, 77])
        if kind == "path":
            return str(self.folder / draw.choice(["mlp.om", "branches.om", "none.om"]))
        if draw.random() < 0.15:
            return self.host + draw.choice([0, 1, 4000])
        return draw.choice(self.known) + draw.choice([0, 0, 0, 0, 1, 64])
