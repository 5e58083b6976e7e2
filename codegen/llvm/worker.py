"""A compile worker: `python -m codegen.llvm.worker TARGET` answers programs on stdin with objects on stdout.

Frames are a length (4 bytes, little endian) and that many bytes. An answer is a status byte (0 object, 1 error text)
and a frame. End of input ends the worker, and so does the end of whoever reads the answers.
"""

from __future__ import annotations

import os
import sys
from typing import IO

from codegen.llvm.compile import compile_program


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Writes one frame and flushes."""
    stream.write(len(data).to_bytes(4, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    return data if len(data) == size else None


def serve(target: str, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Compiles each request until the stream ends."""
    while (program := read_frame(requests)) is not None:
        try:
            status, answer = b"\0", compile_program(program, target)
        except Exception as error:  # the parent raises it again, with the program's name
            status, answer = b"\1", f"{type(error).__name__}: {error}".encode()
        answers.write(status)
        write_frame(answers, answer)


if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)  # at a usual exit the interpreter would write the rest of the answer again, and complain
