"""A compile worker: a process that answers serialised tile programs with kernel images over a socket of its own.

`python -I -S worker.py DESCRIPTOR TARGET FOLDER...` starts one. The interpreter is isolated, so that nothing of the
current folder, of PYTHONPATH or of the user's site folders is imported; the folders named are the product's and those
of the libraries that it needs, behind the standard library. What a library prints cannot disturb the answers.

A frame is a length (4 bytes, little endian) and that many bytes. An answer is a status byte and the image, or what was
raised, as JSON. The end of the stream ends the worker, and so does the end of whoever reads the answers.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time

LARGEST_FRAME = 1 << 28
"""Bytes: what is longer is no program and no image."""
IDLE_SECONDS = 120.0
"""A worker that gets no request for so long ends; its parent asks none that has been idle for half as long."""
IMAGE, RAISED = b"\0", b"\1"


class ProtocolError(Exception):
    """The other side ended, or sent what is no frame."""


def send_frame(stream: socket.socket, data: bytes) -> None:
    """Writes one frame. OSError (TimeoutError among them) if the other side does not take it."""
    stream.sendall(len(data).to_bytes(4, "little") + data)


def receive_frame(stream: socket.socket, deadline: float | None = None) -> bytes:
    """The next frame. ProtocolError at the end of the stream or for a length above LARGEST_FRAME; TimeoutError if it
    is not complete at `deadline` (of time.monotonic)."""
    size = int.from_bytes(_receive(stream, 4, deadline), "little")
    if size > LARGEST_FRAME:
        raise ProtocolError(f"a frame of {size} bytes")
    return _receive(stream, size, deadline)


def _receive(stream: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        if deadline is not None:
            stream.settimeout(max(deadline - time.monotonic(), 1e-3))
        received = stream.recv_into(view[filled:])
        if not received:
            raise ProtocolError("the stream ended")
        filled += received
    return bytes(data)


def serve(stream: socket.socket, target: str) -> None:
    """Compiles each request until the stream ends or nothing is asked. ProtocolError or OSError says which."""
    from codegen.llvm.compile import compile_program

    while True:
        program = receive_frame(stream, time.monotonic() + IDLE_SECONDS)
        stream.settimeout(None)
        try:
            answer = IMAGE + compile_program(program, target)
        except Exception as error:  # the parent raises it again, with the program's name
            answer = RAISED + json.dumps(_report(error)).encode()
        send_frame(stream, answer)


def _report(error: Exception) -> dict[str, object]:
    """What `workers` makes the same error of."""
    kept = ("message", "code", "where", "remedy", "statement")
    fields = {key: getattr(error, key) for key in kept if hasattr(error, key)}
    return {"kind": type(error).__name__, "message": str(error), **fields}


def _main(descriptor: str, target: str, *folders: str) -> None:
    gc.set_threshold(50_000, 20, 50)  # it makes much and drops little: a tenth of its time went into looking for cycles
    sys.path += folders
    with socket.socket(fileno=int(descriptor)) as stream:
        try:
            serve(stream, target)
        except (ProtocolError, OSError):
            # At a usual exit the interpreter would run what libraries left behind, and might complain.
            os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
