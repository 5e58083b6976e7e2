"""Dynamic AIPP: what a program says of each image of a batch at run time, against the numpy model of the static tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from acl_programs import Program, from_device, ok, to_device
from onnx import TensorProto, helper

import acl
import atc
from acl_runtime import InferSession
from acl_runtime.aicpu import evaluate
from acl_runtime.device.aipp import ImageStage
from acl_runtime.device.preparation import Preparation
from acl_runtime.om import open_package
from ais_bench.infer.interface import InferSession as Benchmark
from tensor_types.errors import OpenAtcError
from tests.atc.aipp_reference import prepared, random_config

FORMATS = {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}
SIDES = ("top", "bottom", "left", "right")
_NO_INPUT = (1 << 64) - 1


def converted(
    folder: Path, shape: list[Any], max_bytes: int, dtype: int = TensorProto.FLOAT, more: str = "", **flags: Any
) -> str:
    """y = -x, with images for x."""
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", dtype, shape)], [helper.make_tensor_value_info("y", dtype, None)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "m.onnx")
    (folder / "aipp.cfg").write_text(f"aipp_op {{ aipp_mode: dynamic max_src_image_size: {max_bytes} {more} }}")
    atc.convert(str(folder / "m.onnx"), str(folder / "m.om"), insert_op_conf=str(folder / "aipp.cfg"), **flags)
    return str(folder / "m.om")


def for_picture(config: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Another crop, padding and normalisation whose result is as large."""
    other, step = dict(config), 2 if config["input_format"] == "YUV420SP_U8" else 1
    if config.get("crop"):
        for side in "hw":
            room = config[f"src_image_size_{side}"] - config[f"crop_size_{side}"]
            other[f"load_start_pos_{side}"] = int(rng.integers(0, room // step + 1)) * step
    for one, two in (("top", "bottom"), ("left", "right")):
        other[f"{one}_padding_size"], other[f"{two}_padding_size"] = (
            config.get(f"{side}_padding_size", 0) for side in (two, one)
        )
    for i in range(4):
        other[f"mean_chn_{i}"], other[f"min_chn_{i}"] = int(rng.integers(0, 256)), round(float(rng.uniform(0, 9)), 3)
        other[f"var_reci_chn_{i}"] = round(float(rng.uniform(0.001, 2)), 6)
    return other


def set_of(configs: list[dict[str, Any]]) -> int:
    """The handle with the settings of a batch."""
    aipp, first = acl.mdl.create_aipp(len(configs)), configs[0]
    ok(acl.mdl.set_aipp_input_format(aipp, FORMATS[first["input_format"]]))
    ok(acl.mdl.set_aipp_src_image_size(aipp, first["src_image_size_w"], first["src_image_size_h"]))
    ok(acl.mdl.set_aipp_rbuv_swap_switch(aipp, int(first["rbuv_swap_switch"])))
    ok(acl.mdl.set_aipp_ax_swap_switch(aipp, int(first["ax_swap_switch"])))
    if first.get("csc_switch"):
        keys = [f"matrix_r{r}c{c}" for r in range(3) for c in range(3)]
        keys += [f"{way}_bias_{i}" for way in ("output", "input") for i in range(3)]
        ok(acl.mdl.set_aipp_csc_params(aipp, 1, *(first[key] for key in keys)))
    for n, c in enumerate(configs):
        if c.get("crop"):
            keys = ["load_start_pos_w", "load_start_pos_h", "crop_size_w", "crop_size_h"]
            ok(acl.mdl.set_aipp_crop_params(aipp, 1, *(c[key] for key in keys), n))
        if c.get("padding"):
            ok(acl.mdl.set_aipp_padding_params(aipp, 1, *(c[f"{side}_padding_size"] for side in SIDES), n))
        for name, key, absent in (
            ("dtc_pixel_mean", "mean", 0), ("dtc_pixel_min", "min", 0.0), ("pixel_var_reci", "var_reci", 1.0)
        ):  # fmt: skip
            setter = getattr(acl.mdl, f"set_aipp_{name}")
            ok(setter(aipp, *(c.get(f"{key}_chn_{i}", absent) for i in range(4)), n))
    return aipp


def explicit(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with all of its colour conversion, and zeros as padding."""
    full = dict(config) | {"padding_value": 0}
    if config.get("csc_switch"):
        yuv = config["input_format"].startswith("YUV")
        default = [[298, 516, 0], [298, -100, -208], [298, 0, 409]]
        for r in range(3):
            full.setdefault(f"input_bias_{r}", (16, 128, 128)[r] if yuv else 0)
            full.setdefault(f"output_bias_{r}", 0)
            for c in range(3):
                full.setdefault(f"matrix_r{r}c{c}", default[r][c])
    return full


def check(seed: int, program: Program, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    config, shape, (channels, height, width) = random_config(rng)
    nhwc = seed % 3 == 0
    dims = [2, height, width, channels] if nhwc else [2, channels, height, width]
    path = converted(folder, dims, int(np.prod(shape)) + 100, input_format="NHWC" if nhwc else "NCHW")
    model = ok(acl.mdl.load_from_file(path))
    inputs, places, outputs, results = program.datasets(model)
    configs = [explicit(config), for_picture(explicit(config), rng)]
    aipp = set_of(configs)
    ok(acl.mdl.set_input_aipp(model, inputs, 1, aipp))
    ok(acl.mdl.destroy_aipp(aipp))
    images = rng.integers(0, 256, shape, np.uint8)
    to_device(images, places[0])
    ok(acl.mdl.execute(model, inputs, outputs))
    got = -from_device(results[0], dims).astype(np.float64)
    got = got if nhwc else got.transpose(0, 2, 3, 1)
    step = 0.5 if config.get("csc_switch") else 0.0
    for n, c in enumerate(configs):
        _, wanted = prepared(images[n : n + 1], c, channels)
        factor = np.array([c.get(f"var_reci_chn_{i}", 1.0) for i in range(channels)])
        assert np.all(np.abs(got[n] - wanted[0]) <= (step + 1e-4) * factor + 1e-5 * np.abs(wanted[0])), (seed, c)


@pytest.mark.parametrize("seed", [2, 3])
def test_images_become_the_tensor_of_the_numpy_model(seed: int, program: Program, tmp_path: Path) -> None:
    check(seed, program, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_images_of_random_settings(seed: int, program: Program, tmp_path: Path) -> None:
    check(seed, program, tmp_path)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    return converted(tmp_path_factory.mktemp("m"), [1, 3, 4, 6], 100, more="input_format: RGB888_U8")


def test_what_the_model_shows(program: Program, package: str) -> None:
    model = ok(acl.mdl.load_from_file(package))
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    assert acl.mdl.get_num_inputs(desc) == 2
    assert ok(acl.mdl.get_input_index_by_name(desc, "ascend_dynamic_aipp_data")) == 1
    assert acl.mdl.get_input_size_by_index(desc, 0) == 100
    assert acl.mdl.get_input_size_by_index(desc, 1) == acl.mdl.get_aipp_data_size(1) == 256
    assert [acl.mdl.get_aipp_type(model, n) for n in (0, 1)] == [(2, 1, 0), (3, _NO_INPUT, 0)]
    assert acl.mdl.get_first_aipp_info(model, 0) == (None, 100038)
    header = open_package(package).header["aipp"]
    assert header == [{"input": "x", "mode": "dynamic", "parameters": "ascend_dynamic_aipp_data", "max_bytes": 100,
                       "result": [4, 6, 3]}]  # fmt: skip


def given(format_: int, width: int, height: int, batch: int = 1, **more: Any) -> int:
    aipp = acl.mdl.create_aipp(batch)
    ok(acl.mdl.set_aipp_input_format(aipp, format_))
    ok(acl.mdl.set_aipp_src_image_size(aipp, width, height))
    for name, numbers in more.items():
        ok(getattr(acl.mdl, f"set_aipp_{name}")(aipp, *numbers))
    return aipp


CSC = (1, *(256, 0, 359, 256, -88, -183, 256, 454, 0), *(0,) * 6)
WRONG = {
    "size": (given, (3, 8, 4), {}, "crop and padding make 4 x 8, the model takes 4 x 6"),
    "bytes": (given, (2, 60, 40), {"crop_params": (1, 0, 0, 6, 4, 0)}, "more than the 100 of max_src_image_size"),
    "crop": (given, (3, 7, 4), {"crop_params": (1, 2, 0, 6, 4, 0)}, "leaves the 4 x 7"),
    "even": (given, (1, 8, 8), {"crop_params": (1, 1, 0, 6, 4, 0)}, "begins at even places"),
    "odd": (given, (1, 7, 4), {}, "cannot be 4 x 7"),
    "colours": (given, (4, 6, 4), {"csc_params": CSC}, "no colours"),
    "channels": (given, (4, 6, 4), {}, "the model takes 3 channels, YUV400_U8 gives 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_do_not_fit_change_nothing(name: str, program: Program, package: str) -> None:
    model = ok(acl.mdl.load_from_file(package))
    inputs, places, outputs, results = program.datasets(model)
    ok(acl.mdl.set_input_aipp(model, inputs, 1, given(3, 6, 4)))
    make, arguments, more, said = WRONG[name]
    assert acl.mdl.set_input_aipp(model, inputs, 1, make(*arguments, **more)) == 100000
    assert said in acl.get_recent_err_msg()
    image = np.arange(72, dtype=np.uint8).reshape(1, 4, 6, 3)
    to_device(image, places[0])
    ok(acl.mdl.execute(model, inputs, outputs))
    np.testing.assert_array_equal(-from_device(results[0], (1, 3, 4, 6)), image.transpose(0, 3, 1, 2))


def test_misuse_gives_codes(program: Program, package: str, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(package))
    inputs, _, outputs, _ = program.datasets(model)
    assert acl.mdl.execute(model, inputs, outputs) == 145014
    assert "set_input_aipp for input 1" in acl.get_recent_err_msg()
    empty, aipp = acl.mdl.create_aipp(1), given(3, 6, 4)
    assert acl.mdl.set_input_aipp(model, inputs, 1, empty) == 100000
    assert acl.mdl.set_input_aipp(model, inputs, 0, aipp) == 145015
    assert acl.mdl.set_input_aipp(model, inputs, 9, aipp) == 100000
    assert acl.mdl.set_aipp_by_input_index(model, inputs, 1, aipp) == 145015
    assert acl.mdl.set_aipp_by_input_index(model, inputs, 0, aipp) == 0
    assert acl.mdl.set_aipp_crop_params(aipp, 1, 0, 0, 6, 4, 1) == 100000  # no such picture
    assert acl.mdl.set_aipp_scf_params(aipp, 1, 6, 4, 6, 4, 0) == 207000
    assert acl.mdl.create_aipp(0) == acl.mdl.create_aipp(128) == 0
    short, _ = program.dataset([100, 255])
    assert acl.mdl.set_input_aipp(model, short, 1, aipp) == 145012


def test_batches_of_a_gear_have_their_own_settings(program: Program, tmp_path: Path) -> None:
    path = converted(tmp_path, ["n", 1, 2, 2], 16, TensorProto.FLOAT16, input_shape="x:-1,1,2,2",
                     dynamic_batch_size="1,2,4")  # fmt: skip
    model = ok(acl.mdl.load_from_file(path))
    inputs, places, outputs, results = program.datasets(model)
    aipp = given(4, 2, 2, 2, dtc_pixel_mean=(5, 0, 0, 0, 1))
    ok(acl.mdl.set_input_aipp(model, inputs, 1, aipp))
    ok(acl.mdl.set_dynamic_batch_size(model, inputs, 2, 2))
    to_device(np.arange(10, 18, dtype=np.uint8), places[0])
    ok(acl.mdl.execute(model, inputs, outputs))
    got = -from_device(results[0], (2, 1, 2, 2), np.float16)
    np.testing.assert_array_equal(got.reshape(2, 4), [[10, 11, 12, 13], [9, 10, 11, 12]])
    ok(acl.mdl.set_dynamic_batch_size(model, inputs, 2, 4))
    assert acl.mdl.execute(model, inputs, outputs) == 145014


def test_chip_and_ai_cpu_prepare_images_as_the_kernel_does(tmp_path: Path) -> None:
    path = converted(tmp_path, [2, 3, 6, 70], 4000, soc_version="Ascend310P3,Ascend910B2")
    report = json.loads(bytes(open_package(path).section("chip/Ascend310P3/report")))
    assert report["kernels"] == 2 and not report.get("aicpu"), report
    preparation = Preparation(2)
    for name, numbers in {
        "input_format": (1,), "src_image_size": (80, 8), "csc_params": (*CSC[:10], 1, 2, 3, 0, 128, 128),
        "crop_params": (1, 2, 2, 69, 5), "padding_params": (1, 1, 0, 0, 1), "dtc_pixel_mean": (1, 2, 3, 4),
    }.items():  # fmt: skip
        for picture in range(2):
            preparation.set(name, (*numbers, picture) if name in Preparation.OF_PICTURE else numbers)
    rows = preparation.rows(ImageStage(0, 1, (6, 70, 3), 4000))
    image = np.random.default_rng(2).integers(0, 256, 4000, np.uint8)
    chips = (None, "Ascend310P3", "Ascend910B2")
    native, *on_chips = (InferSession(0, path, chip=chip).infer([image, rows])[0] for chip in chips)
    for result in on_chips:
        np.testing.assert_array_equal(native, result)
    attrs = {"size": (6, 70), "channels": 3, "order": "NCHW", "to": TensorProto.FLOAT}
    (by_ai_cpu,) = evaluate("PrepareImage", attrs, [image, rows])
    np.testing.assert_array_equal(native, -by_ai_cpu)
    with pytest.raises(OpenAtcError, match="lead out of the image"):
        evaluate("PrepareImage", attrs, [image, rows * 40])
    with pytest.raises(OpenAtcError, match="aipp"):
        InferSession(0, path, chip="Ascend310P3").infer([image, rows * 40])


def test_parameters_that_lead_out_of_the_image_are_refused(package: str) -> None:
    session = InferSession(0, package)
    rows = np.zeros((1, 64), np.float32)
    rows[0, :5] = 3, 90, 0, 4, 6
    rows[0, 8::5][:4], rows[0, 10:28:5], rows[0, 11:28:5] = 0, 18, 3
    with pytest.raises(OpenAtcError, match="index is out of range"):
        session.infer([np.zeros(100, np.uint8), rows])


CONFIG = """[aipp_op]
input_format : RGB888_U8
src_image_size_w : 6
src_image_size_h : 4
rbuv_swap_switch : 1
mean_chn_0 : 7
var_reci_chn_1 : 0.5   # the second channel
"""


def test_atc_run_makes_up_images_and_their_settings(package: str, tmp_path: Path) -> None:
    from atc.command_line import main

    with pytest.raises(SystemExit) as ended:
        main(["run", package, "--output-dir", str(tmp_path / "y")])
    assert not ended.value.code
    found = -np.load(next((tmp_path / "y").glob("*.npy")))
    assert found.shape == (1, 3, 4, 6) and found.max() > 100 and len(np.unique(found)) > 30


def test_ais_bench_reads_a_file_of_settings(package: str, tmp_path: Path) -> None:
    (tmp_path / "a.config").write_text(CONFIG)
    image = np.random.default_rng(1).integers(0, 256, (1, 4, 6, 3), np.uint8)
    with Benchmark(0, package) as session:
        assert session.session.get_dym_aipp_input_exist() == 1
        with pytest.raises(RuntimeError, match="set_dym_aipp_info_set"):
            session.infer([np.zeros(100, np.uint8)])
        session.load_aipp_config_file(tmp_path / "a.config", 1)
        assert [(t.name, t.size, t.realsize) for t in session.get_inputs()] == [("x", 100, 72)]
        (got,) = session.infer([image])
    wanted = (image[..., ::-1] - np.array([7, 0, 0])) * np.array([1, 0.5, 1])
    np.testing.assert_allclose(-got, wanted.transpose(0, 3, 1, 2))
    acl.finalize()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[aipp_op]\ninput_format : RGB888_U8", "src_image_size_w is missing"),
        (CONFIG + "crop_sise_w : 3", "did you mean crop_size_w"),
        (CONFIG.replace(": 7", ": many"), "mean_chn_0 is 'many', which is no number"),
        (CONFIG.replace("RGB888_U8", "RGB"), "use one of YUV420SP_U8"),
        (CONFIG.replace("src_image_size_w : 6", "src_image_size_w : 8"), "the model takes 4 x 6"),
        ("input_format : RGB888_U8", "no list of keys under"),
    ],
)
def test_a_wrong_file_of_settings(package: str, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.config").write_text(text)
    with Benchmark(0, package) as session, pytest.raises(RuntimeError, match=said):
        session.load_aipp_config_file(tmp_path / "a.config", 1)
    acl.finalize()


def test_settings_that_change_between_executions_count(program: Program, package: str) -> None:
    model = ok(acl.mdl.load_from_file(package))
    inputs, places, outputs, results = program.datasets(model)
    image = np.arange(72, dtype=np.uint8).reshape(1, 4, 6, 3)
    to_device(image, places[0])
    for mean in (0, 3, 9):
        ok(acl.mdl.set_input_aipp(model, inputs, 1, given(3, 6, 4, dtc_pixel_mean=(mean, 0, 0, 0, 0))))
        for _ in range(2):
            ok(acl.mdl.execute(model, inputs, outputs))
            wanted = image.transpose(0, 3, 1, 2) - np.array([mean, 0, 0]).reshape(3, 1, 1)
            np.testing.assert_array_equal(-from_device(results[0], (1, 3, 4, 6)), wanted)
