"""What the tests' programs have in common: begin and end, packages, datasets of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from packages import elementwise, host, kernel, write

import acl
from graph_opt.plan import ValueInfo
from tensor_types.dims import dim
from tensor_types.dtypes import F32, I64

H2D, D2H, D2D = 1, 2, 3
N = dim("n")


def static_model(path: Path, rows: int = 4) -> Path:
    """y = tanh(exp(x)), z = x + w for x, w of rows by 3."""
    shape = (rows, 3)
    values = [ValueInfo("x", F32, shape, "input"), ValueInfo("w", F32, shape, "input")]
    values += [ValueInfo("y", F32, shape), ValueInfo("z", F32, shape)]
    records = [
        kernel(elementwise(["exp", "tanh"]), ["x"], "y", 3 * rows),
        kernel(elementwise(["add"], 2), ["x", "w"], "z", 3 * rows),
    ]
    write(path, values, records, ["x", "w"], ["y", "z"])
    return path


def negative_model(path: Path, size: int = 6) -> Path:
    """y = -x for x of `size`."""
    values = [ValueInfo("x", F32, (size,), "input"), ValueInfo("y", F32, (size,))]
    write(path, values, [kernel(elementwise(["neg"]), ["x"], "y", size)], ["x"], ["y"])
    return path


def dynamic_model(path: Path) -> Path:
    """y = -x for x of n by 3, n in 2..50."""
    values = [ValueInfo("x", F32, (N, 3), "input"), ValueInfo("y", F32, (N, 3))]
    write(path, values, [kernel(elementwise(["neg"]), ["x"], "y", 3 * N)], ["x"], ["y"], dims={"n": (2, 50)})
    return path


def nonzero_model(path: Path) -> Path:
    """y = indices of what is not 0 in x of 8: as many as there are."""
    values = [ValueInfo("x", F32, (8,), "input"), ValueInfo("y", I64, None)]
    write(path, values, [host("NonZero", ["x"], ["y"])], ["x"], ["y"])
    return path


def ok(result: object) -> object:
    """The values of a call that must succeed."""
    *values, code = result if isinstance(result, tuple) else (result,)
    assert code == 0, f"{code}: {acl.get_recent_err_msg()}"
    return values[0] if len(values) == 1 else tuple(values)


def to_device(array: np.ndarray, address: int) -> None:
    data = array.tobytes()
    ok(acl.rt.memcpy(address, len(data), acl.util.bytes_to_ptr(data), len(data), H2D))


def from_device(address: int, shape: Sequence[int], dtype: np.dtype | type = np.float32) -> np.ndarray:
    data = bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    ok(acl.rt.memcpy(acl.util.bytes_to_ptr(data), len(data), address, len(data), D2H))
    return np.frombuffer(data, dtype).reshape(shape)


class Program:
    """The first and last lines of every program."""

    def __init__(self) -> None:
        ok(acl.init())
        ok(acl.rt.set_device(0))
        self.context = ok(acl.rt.create_context(0))
        self.stream = ok(acl.rt.create_stream())
        self.blocks: list[int] = []

    def malloc(self, size: int) -> int:
        self.blocks.append(ok(acl.rt.malloc(size, 0)))
        return self.blocks[-1]

    def end(self) -> None:
        for block in self.blocks:
            acl.rt.free(block)
        acl.rt.destroy_context(self.context)
        while acl.rt.reset_device(0) == 0:
            pass
        acl.finalize()

    def dataset(self, sizes: Sequence[int]) -> tuple[int, list[int]]:
        """A dataset of fresh device memory, and its addresses."""
        dataset, addresses = acl.mdl.create_dataset(), []
        for size in sizes:
            addresses.append(self.malloc(size))
            assert acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(addresses[-1], size)) == (dataset, 0)
        return dataset, addresses

    def datasets(self, model: int) -> tuple[int, list[int], int, list[int]]:
        """Input and output datasets of a model, by the sizes of its description."""
        desc = acl.mdl.create_desc()
        ok(acl.mdl.get_desc(desc, model))
        inputs = self.dataset([acl.mdl.get_input_size_by_index(desc, i) for i in range(acl.mdl.get_num_inputs(desc))])
        outputs = self.dataset(
            [acl.mdl.get_output_size_by_index(desc, i) for i in range(acl.mdl.get_num_outputs(desc))]
        )
        ok(acl.mdl.destroy_desc(desc))
        return *inputs, *outputs
