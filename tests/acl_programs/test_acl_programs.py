"""Programs in the manner of the published samples, run as they are on packages of a small classifier."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import atc
from ais_bench.command import main as ais_bench
from atc.atc_command import run_as_atc

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(0)
SIZE = 32
AIPP = """aipp_op {{ aipp_mode: static related_input_rank: 0 input_format: {0} src_image_size_w: 32 src_image_size_h: 32
 {1} var_reci_chn_0: 0.00392157 var_reci_chn_1: 0.00392157 var_reci_chn_2: 0.00392157 }}"""
CSC = """csc_switch: true matrix_r0c0: 256 matrix_r0c1: 0 matrix_r0c2: 359 matrix_r1c0: 256 matrix_r1c1: -88
 matrix_r1c2: -183 matrix_r2c0: 256 matrix_r2c1: 454 matrix_r2c2: 0 input_bias_0: 0 input_bias_1: 128
 input_bias_2: 128"""


class Packages:
    """A convolution, a mean and a product over x [n, 3, h, w]: ten scores. Packages are made when they are needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        weights = [
            numpy_helper.from_array(RANDOM.standard_normal(s).astype(np.float32), n)
            for n, s in (("k", (8, 3, 3, 3)), ("w", (8, 10)))
        ]
        nodes = [
            helper.make_node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("ReduceMean", ["b"], ["c"], axes=[2, 3], keepdims=0),
            helper.make_node("MatMul", ["c", "w"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "classifier",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
            weights,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(self.model, folder / "model.onnx")
        self.reference = onnxruntime.InferenceSession(
            self.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def scores(self, x: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.reference.run(None, {"x": x.astype(np.float32)})[0]
        return found

    def package(self, name: str, **flags: str) -> str:
        path = self.folder / f"{name}.om"
        if not path.exists():
            flags.setdefault("input_shape", f"x:1,3,{SIZE},{SIZE}")
            atc.convert(str(self.folder / "model.onnx"), str(path), **flags)
        return str(path)

    def with_pictures(self, form: str, more: str = "") -> str:
        config = self.folder / f"{form}.cfg"
        config.write_text(AIPP.format(form, more))
        return self.package(form, insert_op_conf=str(config))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(tmp_path_factory.mktemp("packages"))


def run(program: str, *arguments: object) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", [program, *map(str, arguments)])
    patch.syspath_prepend(str(HERE))
    try:
        runpy.run_path(str(HERE / program), run_name="__main__")
    finally:
        patch.undo()


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_copies(capsys: pytest.CaptureFixture[str]) -> None:
    run("memcpy_trio.py", "--number_of_cycles", 3)
    assert capsys.readouterr().out.endswith("run success!\n")


def test_images_with_pillow(packages: Packages, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{n}.png" for n in range(2)]
    for file in files:
        Image.fromarray(RANDOM.integers(0, 256, (40, 30, 3), np.uint8)).save(file)
    run("classify_pillow.py", packages.package("static"), tmp_path / "y.npy", *files)
    x = [np.asarray(Image.open(f).resize((SIZE, SIZE)), np.float32).transpose(2, 0, 1) / 255 for f in files]
    same(np.load(tmp_path / "y.npy"), packages.scores(np.stack(x)))
    assert "top5" in capsys.readouterr().out


def test_pictures_by_a_static_stage(packages: Packages, tmp_path: Path) -> None:
    pixels = RANDOM.integers(0, 256, (1, SIZE, SIZE, 3), np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    run("classify_pictures.py", packages.with_pictures("RGB888_U8"), tmp_path / "x.npy", tmp_path / "y.npy")
    same(np.load(tmp_path / "y.npy"), packages.scores(pixels.transpose(0, 3, 1, 2) * np.float32(0.00392157)))


def test_pictures_by_a_dynamic_stage(packages: Packages, tmp_path: Path) -> None:
    pixels = [RANDOM.integers(0, 256, (*shape, 3), np.uint8) for shape in ((40, 50), (SIZE, SIZE), (33, 60))]
    np.savez(tmp_path / "x.npz", *pixels)
    config = tmp_path / "dynamic.cfg"
    config.write_text("aipp_op { aipp_mode: dynamic related_input_rank: 0 max_src_image_size: 6000 }")
    path = packages.package("dynamic", insert_op_conf=str(config))
    run("classify_camera.py", path, tmp_path / "x.npz", tmp_path / "y.npy", SIZE)
    x = []
    for picture in pixels:
        top, left = ((n - SIZE) // 2 for n in picture.shape[:2])
        bgr = picture[top : top + SIZE, left : left + SIZE, ::-1].astype(np.float32)
        x.append(((bgr - [104, 117, 123]) * [0.017, 0.0175, 0.0174]).transpose(2, 0, 1))
    same(np.load(tmp_path / "y.npy"), packages.scores(np.stack(x)))


def test_decode_resize_infer(packages: Packages, tmp_path: Path) -> None:
    rows, columns = np.mgrid[:48, :64]
    smooth = np.stack([rows * 5, columns * 4, 255 - rows * 2 - columns], -1).clip(0, 255).astype(np.uint8)
    Image.fromarray(smooth).save(tmp_path / "x.jpg", quality=95)
    path = packages.with_pictures("YUV420SP_U8", CSC)
    run("decode_resize_infer.py", path, tmp_path / "x.jpg", tmp_path / "y.npz", SIZE, SIZE)
    found = np.load(tmp_path / "y.npz")
    y, uv = found["pixels"][:SIZE].astype(int), found["pixels"][SIZE:].reshape(SIZE // 2, SIZE // 2, 2).astype(int)
    u, v = (uv[..., n].repeat(2, 0).repeat(2, 1) - 128 for n in (0, 1))
    rgb = [y + 359 * v / 256, y + (-88 * u - 183 * v) / 256, y + 454 * u / 256]
    x = np.stack([np.rint(c).clip(0, 255) for c in rgb])[None] * 0.00392157
    np.testing.assert_allclose(found["scores"], packages.scores(x), rtol=0.02, atol=0.02)
    small = np.asarray(Image.fromarray(smooth).resize((SIZE, SIZE), Image.Resampling.BILINEAR), int)
    luma = small @ [0.299, 0.587, 0.114]
    assert np.abs(y - luma).mean() < 6


@pytest.mark.parametrize("program", ["asynchronous.py", "threads.py", "benchmark.py"])
def test_many_inputs(program: str, packages: Packages, tmp_path: Path) -> None:
    x = random(7, 3, SIZE, SIZE)
    np.save(tmp_path / "x.npy", x)
    run(program, packages.package("static"), tmp_path / "x.npy", tmp_path / "y.npy")
    same(np.load(tmp_path / "y.npy"), packages.scores(x))


@pytest.mark.parametrize(
    ("name", "flags", "shapes"),
    [
        ("hw", {"input_shape": "x:1,3,-1,-1", "dynamic_image_size": "8,8;16,12"}, [(1, 3, 16, 12), (1, 3, 8, 8)]),
        ("batch", {"input_shape": "x:-1,3,8,8", "dynamic_batch_size": "1,2,4"}, [(2, 3, 8, 8), (4, 3, 8, 8)]),
        ("dims", {"input_shape": "x:-1,3,-1,8", "dynamic_dims": "1,8;3,4"}, [(3, 3, 4, 8), (1, 3, 8, 8)]),
    ],
)
def test_gears(
    name: str, flags: dict[str, str], shapes: list[tuple[int, ...]], packages: Packages, tmp_path: Path
) -> None:
    arrays = [random(*shape) for shape in shapes]
    files = [tmp_path / f"{n}.npy" for n in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        np.save(file, array)
    run("gears.py", packages.package(name, **flags), tmp_path / "y.npz", *files)
    found = np.load(tmp_path / "y.npz")
    for number, array in enumerate(arrays):
        same(found[str(number)], packages.scores(array))


def test_a_single_operator(tmp_path: Path) -> None:
    desc = {"format": "ND", "shape": [8, 16], "type": "int32"}
    add = [{"op": "Add", "input_desc": [desc, desc], "output_desc": [desc]}]
    (tmp_path / "add.json").write_text(json.dumps(add))
    line = [f"--singleop={tmp_path / 'add.json'}", "--soc_version=Ascend310P3", f"--output={tmp_path}"]
    assert run_as_atc(line, False) == 0
    run("single_operator.py", tmp_path, tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(128).reshape(8, 16) * 4)


def test_ais_bench_from_the_command_line(
    packages: Packages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packages.package("batch", input_shape="x:-1,3,8,8", dynamic_batch_size="1,2,4")
    x = random(2, 3, 8, 8)
    np.save(tmp_path / "x.npy", x)
    line = ["--model", path, "--dymBatch", "2", "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path)]
    assert ais_bench([*line, "--output_dirname", "out", "--outfmt", "NPY", "--loop", "3"]) == 0
    same(np.load(tmp_path / "out" / "x_0.npy"), packages.scores(x))
    said = capsys.readouterr().out
    assert "try get model batchsize:2" in said and "throughput 1000*batchsize.mean(2)" in said
    assert ais_bench(["--model", path, "--dymBatch", "3"]) == 1
    assert "145013" in capsys.readouterr().err
