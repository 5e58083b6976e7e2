"""Extents that the text of an operator fixes: an operand of another shape is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from frontend import read_model
from tensor_types.errors import InvalidModel

Case = tuple[str, list[tuple[int, ...] | None], dict[str, Any], str]
"""op, shapes of the inputs, attributes, the operand that is wrong."""
WRONG: list[Case] = [
    ("Conv", [(1, 3, 5, 5), (8, 3, 3, 3), (1,)], {}, "B"), ("Conv", [(1, 3, 5, 5), (8, 3, 3, 3), (4,)], {}, "B"),
    ("Conv", [(1, 3, 5, 5), (8, 3, 3, 3), (8, 1)], {}, "B"),
    ("ConvTranspose", [(1, 3, 5, 5), (3, 4, 3, 3), (8,)], {"group": 1}, "B"),
    ("ConvTranspose", [(1, 3, 5, 5), (4, 4, 3, 3)], {}, "axis 1 of [1, 3, 5, 5]"),
    ("InstanceNormalization", [(1, 4, 5), (1,), (4,)], {}, "scale"),
    ("InstanceNormalization", [(1, 4, 5), (4,), (5,)], {}, "B"),
    ("BatchNormalization", [(1, 4, 5), (4,), (4,), (1,), (4,)], {}, "input_mean"),
    ("LayerNormalization", [(2, 6), (4,)], {}, "Scale"), ("LayerNormalization", [(2, 6), (6,), (3, 2, 6)], {}, "B"),
    ("LSTM", [(3, 2, 4), (1, 20, 4), (1, 20, 4)], {"hidden_size": 5}, "R"),
    ("LSTM", [(3, 2, 4), (1, 20, 3), (1, 20, 5)], {"hidden_size": 5}, "W"),
    ("GRU", [(3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 15)], {"hidden_size": 5}, "B"),
    ("RNN", [(3, 2, 4), (1, 5, 4), (1, 5, 5), None, None, (1, 3, 5)], {"hidden_size": 5}, "initial_h"),
    ("PRelu", [(3, 4), (2, 3, 4)], {}, "slope"), ("PRelu", [(3, 4), (3,)], {}, "slope"),
]
RIGHT: list[Case] = [
    ("Conv", [(1, 3, 5, 5), (8, 3, 3, 3), (8,)], {}, ""), ("ConvTranspose", [(1, 4, 5, 5), (4, 4, 3, 3), (8,)], {"group": 2}, ""),
    ("InstanceNormalization", [(1, 4, 5), (4,), (4,)], {}, ""), ("LayerNormalization", [(2, 6), (1,)], {}, ""),
    ("LayerNormalization", [(2, 3, 6), (6,)], {"axis": 1}, ""), ("PRelu", [(3, 4), (3, 1)], {}, ""),
    ("LSTM", [(3, 2, 4), (2, 20, 4), (2, 20, 5), (2, 40)], {"hidden_size": 5, "direction": "bidirectional"}, ""),
    ("LSTM", [(2, 3, 4), (1, 20, 4), (1, 20, 5), None, None, (2, 1, 5)], {"hidden_size": 5, "layout": 1}, ""),
]  # fmt: skip


def save(path: Path, case: Case) -> Path:
    op, shapes, attrs, _ = case
    names = ["" if s is None else f"x{k}" for k, s in enumerate(shapes)]
    given = {n: s for n, s in zip(names, shapes, strict=True) if s is not None}
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)], "g", [helper.make_tensor_value_info("x0", 1, given["x0"])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.zeros(s, np.float32), n) for n, s in given.items() if n != "x0"],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("case", WRONG, ids=lambda c: f"{c[0]}-{c[3].split()[0]}")
def test_a_wrong_extent_names_the_operand(tmp_path: Path, case: Case) -> None:
    with pytest.raises(InvalidModel) as caught:
        read_model(save(tmp_path / "m.onnx", case))
    assert f"{case[3]} is [" in str(caught.value) or case[3] in str(caught.value) and "axis" in case[3]


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: c[0])
def test_what_onnx_allows_is_read(tmp_path: Path, case: Case) -> None:
    read_model(save(tmp_path / "m.onnx", case))
