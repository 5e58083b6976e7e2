"""Files of arrays that a stranger may have written: .npy and .npz, without pickles."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


def read_arrays(path: str | os.PathLike[str]) -> np.ndarray | dict[str, np.ndarray]:
    """The array of an .npy file, or the arrays of an .npz file by name. OSError; ValueError if the file is neither, is
    cut short, or says that it holds more than memory does."""
    try:
        _check_size(Path(path))
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError):
        raise
    except MemoryError:
        raise ValueError("it holds more than memory does") from None
    except Exception as error:  # numpy reads the header as Python's tokenizer, zipfile and zlib see fit
        raise ValueError(f"it is damaged: {type(error).__name__}: {str(error)[:200]}") from error


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an .npy file. OSError; ValueError as `read_arrays`, and for an .npz file."""
    found = read_arrays(path)
    if isinstance(found, dict):
        raise ValueError("it is an archive of several arrays")
    return found


def _check_size(path: Path) -> None:
    """ValueError if the header of an .npy file tells more bytes than there are: numpy would ask for them first."""
    with path.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            return
        file.seek(0)
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            return
        shape, _, dtype = read(file)
        nbytes = prod(shape) * dtype.itemsize
        left = path.stat().st_size - file.tell()
        if not dtype.hasobject and nbytes > left:
            raise ValueError(f"its header tells {nbytes} bytes, there are {left}")
