"""What a session can be opened from: a package or an ONNX model, as a file or as bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acl_runtime.om.outer import MAGIC

Source = str | os.PathLike[str] | bytes | bytearray | memoryview


@contextmanager
def package_file(source: Source, chip: str | None = None) -> Iterator[str | os.PathLike[str]]:
    """A path of the package. What had to be written for it lies in a folder that goes with the context: an opened
    package stays mapped. An ONNX model is converted, for `chip` if one is named. OpenAtcError as a conversion has it.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        with tempfile.TemporaryDirectory(prefix="openatc-") as folder:
            is_package = bytes(source[: len(MAGIC)]) == MAGIC
            file = Path(folder) / ("model.om" if is_package else "model.onnx")
            file.write_bytes(source)
            with package_file(file, chip) as package:
                yield package
    elif os.fspath(source).endswith(".onnx"):
        from atc.conversion import convert  # the compiler is loaded for whoever gives a model, and for nobody else
        from atc.options import Options

        with tempfile.TemporaryDirectory(prefix="openatc-") as folder:
            package = Path(folder) / "model.om"
            convert(source, package, Options() if chip is None else Options(soc_version=(chip,)))
            yield package
    else:
        yield source
