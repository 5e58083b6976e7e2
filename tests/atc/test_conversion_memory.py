"""A conversion holds no weights in memory: what it needs of it does not grow with them, in any precision mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")

CONVERT = """
import sys, threading, time
from pathlib import Path
from atc.conversion import convert
from atc.options import Options

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(l.split()[1] for l in lines if l.startswith("RssAnon"))) << 10

peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

import atc.pipeline, codegen.llvm.lower  # what a conversion imports is no memory for weights
base = anonymous()
threading.Thread(target=watch, daemon=True).start()
convert(sys.argv[1], sys.argv[2], Options.of({"precision_mode": sys.argv[3]}))
print(peak[0] - base)
"""


def save(path: Path, layers: int, width: int) -> int:
    """Layers of three sibling products, a transposed one and a convolution with its BatchNormalization; bytes of the
    weights, which are a file full of holes with a number now and then."""
    nodes, tensors, size, x = [], [], 0, "x"

    def weight(name: str, *dims: int) -> str:
        nonlocal size
        count = int(np.prod(dims)) * 4
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", f"{path.name}.data"), ("offset", size), ("length", count)):
            tensor.external_data.add(key=key, value=str(value))
        size += count
        tensors.append(tensor)
        return name

    for i in range(layers):
        for s in "qkv":
            nodes.append(helper.make_node("MatMul", [x, weight(f"{s}{i}", width, width)], [f"x{s}{i}"]))
        nodes.append(helper.make_node("Mul", [f"xq{i}", f"xk{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"m{i}", f"xv{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Gemm", [f"a{i}", weight(f"o{i}", width, width)], [f"g{i}"], transB=1))
        nodes.append(helper.make_node("Reshape", [f"g{i}", "image"], [f"i{i}"]))
        nodes.append(helper.make_node("Conv", [f"i{i}", weight(f"c{i}", width, width, 1, 1)], [f"f{i}"]))
        nodes.append(helper.make_node("BatchNormalization", [f"f{i}", "one", "zero", "zero", "one"], [f"b{i}"]))
        nodes.append(helper.make_node("Reshape", [f"b{i}", "rows"], [x := f"y{i}"]))
    tensors += [
        onnx.numpy_helper.from_array(np.array([1, width, 2, 4]), "image"),
        onnx.numpy_helper.from_array(np.array([8, width]), "rows"),
        onnx.numpy_helper.from_array(np.full(width, 2, np.float32), "one"),
        onnx.numpy_helper.from_array(np.zeros(width, np.float32), "zero"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, width]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with open(f"{path}.data", "wb") as file:
        file.truncate(size)
        for at in range(0, size, size // 64 & -4096):
            file.seek(at)
            file.write(np.float32([0.25, 1.5, 1 / 3]).tobytes())
    return size


def grown(model: Path, mode: str) -> int:
    """Bytes of anonymous memory that a conversion takes at its peak, beside its code."""
    command = [sys.executable, "-c", CONVERT, model, model.with_suffix(".om"), mode]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def test_weights_are_not_held(tmp_path: Path) -> None:
    size = save(tmp_path / "m.onnx", 2, 1536)
    assert size > 90e6
    assert grown(tmp_path / "m.onnx", "allow_mix_precision_bf16") < 40e6


@pytest.mark.long
@pytest.mark.parametrize("mode", ["must_keep_origin_dtype", "force_fp16", "allow_mix_precision_bf16"])
def test_two_gigabytes(tmp_path: Path, mode: str) -> None:
    assert save(tmp_path / "m.onnx", 6, 4096) > 2e9
    assert grown(tmp_path / "m.onnx", mode) < 160e6
