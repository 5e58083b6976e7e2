"""Statistics of tensors as a table, for dumps that hold no values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from tensor_types.dtypes import from_numpy

_COLUMNS = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape", "Max Value", "Min Value", "Avg Value",
            "Count", "Nan Count", "Negative Inf Count", "Positive Inf Count")  # fmt: skip


def table_of(rows: Sequence[tuple[str, int, np.ndarray]]) -> bytes:
    """A CSV file of (Input or Output, index, tensor). Largest, least and mean are of the finite values."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(_COLUMNS)
    for kind, index, array in rows:
        form = "NCHW" if array.ndim == 4 else "ND"
        shape = "x".join(map(str, array.shape))
        size, dtype = array.nbytes, from_numpy(array.dtype).name
        table.writerow([kind, index, size, dtype, form, shape, *_figures(array)])
    return text.getvalue().encode()


def _figures(array: np.ndarray) -> list[object]:
    values = array.reshape(-1)
    if values.dtype.kind not in "biu":
        values = values.astype(np.float64)
    counts = [0, 0, 0]
    if values.dtype.kind == "f":
        counts = [int(found.sum()) for found in (np.isnan(values), np.isneginf(values), np.isposinf(values))]
        values = values[np.isfinite(values)]
    if not len(values):
        return ["", "", "", array.size, *counts]
    return [values.max().item(), values.min().item(), float(values.mean(dtype=np.float64)), array.size, *counts]
