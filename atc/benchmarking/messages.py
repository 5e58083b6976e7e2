"""Length-prefixed JSON messages over a pipe; arrays travel in files that the messages name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np

PREFIX = struct.Struct(">Q")
Message = dict[str, Any]


def send(pipe: IO[bytes], message: Message) -> None:
    data = json.dumps(message).encode()
    pipe.write(PREFIX.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Message | None:
    """The next message, or None when the other side has gone."""
    head = pipe.read(PREFIX.size)
    if len(head) < PREFIX.size:
        return None
    (size,) = PREFIX.unpack(head)
    data = pipe.read(size)
    return json.loads(data) if len(data) == size else None


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes named arrays; names may hold any character."""
    np.savez(path, np.array(list(arrays)), *arrays.values())


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        names = archive["arr_0"].tolist()
        return {name: archive[f"arr_{i + 1}"] for i, name in enumerate(names)}
