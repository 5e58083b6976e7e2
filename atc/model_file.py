"""A model as callers of Python have it, a file, bytes or a ModelProto, as the file that a conversion reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atc.usage import UsageError


@contextmanager
def model_file(model: Any, output: Any) -> Iterator[Path]:
    """The path of the model. What is no file is written to a folder that goes with the context, tensors as external
    data where they are too large for one message. UsageError if it then has no place for its package."""
    if not isinstance(model, (bytes, bytearray, memoryview)) and not hasattr(model, "SerializeToString"):
        yield Path(model)
        return
    if output is None:
        raise UsageError("a model that is no file has no place for its package", where={"flag": "output"},
                         remedy='name it: convert(model, "model.om")')  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="openatc-") as folder:
        path = Path(folder) / "model.onnx"
        if isinstance(model, (bytes, bytearray, memoryview)):
            path.write_bytes(model)
        else:
            _save(model, path)
        yield path


def _save(model: Any, path: Path) -> None:
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)  # saving outside the message changes the message
    large = whole.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
    onnx.save(whole, path, save_as_external_data=large, location="weights" if large else None)
