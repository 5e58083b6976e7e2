"""AIPP: images in, the tensor of an independent numpy model behind it; wrong files are told by line and key."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from aipp_reference import prepared, random_config, text_of
from onnx import TensorProto as T
from onnx import helper as h

import atc as product
from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.aipp import PRESETS, parse_aipp
from atc.options import Options
from atc.usage import UsageError
from tensor_types.errors import OpenAtcError


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save_model(*shapes, op="Neg", dtype=T.FLOAT):
    """Inputs x0, x1 ... of these shapes, each through one element-wise operator."""
    ins = [h.make_tensor_value_info(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    nodes = [h.make_node(op, [f"x{i}"], [f"y{i}"], name=f"n{i}") for i in range(len(shapes))]
    outs = [h.make_tensor_value_info(f"y{i}", dtype, None) for i in range(len(shapes))]
    onnx.save(
        h.make_model(h.make_graph(nodes, "g", ins, outs), opset_imports=[h.make_opsetid("", 13)], ir_version=8),
        "m.onnx",
    )


def made(text, **flags):
    with open("aipp.cfg", "w") as file:
        file.write(text)
    return product.convert("m.onnx", "m.om", insert_op_conf="aipp.cfg", **flags)


def check(seed, layout="NCHW"):
    rng = np.random.default_rng(seed)
    config, shape, (channels, height, width) = random_config(rng)
    dims = [channels, height, width] if layout == "NCHW" else [height, width, channels]
    save_model(["n", *dims])
    result = made(text_of(config), input_format=layout)
    assert not result.aicpu_nodes and result.kernels <= 2, (config, result.aicpu_nodes)
    session = InferSession(0, "m.om")
    assert session.get_inputs()[0].dtype == np.uint8
    for image in (rng.integers(0, 256, shape, np.uint8), np.full(shape, 255, np.uint8)):
        _, wanted = prepared(image, config, channels)
        factor = np.array([config.get(f"var_reci_chn_{i}", 1.0) for i in range(channels)])
        got = -session.infer([image])[0].astype(np.float64)
        if layout == "NCHW":
            got = got.transpose(0, 2, 3, 1)
        step = 0.5 if config.get("csc_switch") else 0.0
        assert np.all(np.abs(got - wanted) <= (step + 1e-4) * factor + 1e-4 * np.abs(wanted) / 10), (seed, config)


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_images_become_the_tensor_of_the_numpy_model(seed):
    check(seed, "NHWC" if seed % 3 == 2 else "NCHW")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_images_of_random_configurations(seed):
    check(seed, "NHWC" if seed % 3 == 2 else "NCHW")


@pytest.mark.parametrize("form", ["YUV420SP_U8", "XRGB8888_U8"])
def test_padding_around_many_blocks(form):
    """Images larger than a block, one of them in both directions; the first and the last block fill the padding."""
    for height, width in ((40, 702), (3, 4000)):
        config = {"aipp_mode": "static", "input_format": form, "src_image_size_h": height + 3 - height % 2,
                  "src_image_size_w": 4096, "crop": True, "load_start_pos_h": 2, "crop_size_h": height - 1,
                  "crop_size_w": width - 1, "padding": True, "top_padding_size": 5, "bottom_padding_size": 3,
                  "left_padding_size": 7, "right_padding_size": 1, "padding_value": 1.5, "mean_chn_0": 9}  # fmt: skip
        config["src_image_size_h"] += config["src_image_size_h"] % 2
        save_model([1, 3, height + 7, width + 7])
        result = made(text_of(config), soc_version="Ascend310P3")
        assert not result.aicpu_nodes and not result.chips["Ascend310P3"]["aicpu_nodes"]
        for chip in (None, "Ascend310P3"):
            session = InferSession(0, "m.om", chip=chip)
            image = np.random.default_rng(7).integers(0, 256, session.get_inputs()[0].shape, np.uint8)
            wanted = prepared(image, config, 3)[1]
            assert np.abs(-session.infer([image])[0].transpose(0, 2, 3, 1) - wanted).max() < 1e-4


def test_one_kernel_more_and_the_header_says_what_it_takes():
    save_model([1, 3, 32, 48], op="Sigmoid")
    plain = product.convert("m.onnx", "plain.om")
    config = {"aipp_mode": "static", "input_format": "YUV420SP_U8", "var_reci_chn_0": 0.1}
    result = made(text_of(config))
    assert result.kernels == plain.kernels + 1 and result.fused["image"] == 1
    header = open_package("m.om").header
    assert header["aipp"] == [
        {"input": "x0", "mode": "static", "format": "YUV420SP_U8", "source": [32, 48], "bytes": 32 * 48 * 3 // 2}
    ]
    assert "aipp" not in open_package("plain.om").header
    assert InferSession(0, "m.om").get_inputs()[0].shape == (1, 48, 48)


@pytest.mark.parametrize("form", ["YUV420SP_U8", "XRGB8888_U8"])
def test_a_chip_prepares_images_as_the_host_does(form):
    save_model([1, 3, 9, 14])
    config = {"aipp_mode": "static", "input_format": form, "csc_switch": True, "src_image_size_h": 8, "src_image_size_w": 10,
              "crop": True, "load_start_pos_h": 2, "crop_size_h": 5, "crop_size_w": 9, "padding": True,
              "top_padding_size": 3, "bottom_padding_size": 1, "left_padding_size": 5, "padding_value": 1.5,
              "mean_chn_0": 9, "var_reci_chn_2": 0.25}  # fmt: skip
    made(text_of(config), soc_version="Ascend310P3")
    image = np.random.default_rng(7).integers(0, 256, InferSession(0, "m.om").get_inputs()[0].shape, np.uint8)
    _, wanted = prepared(image, config, 3)
    for session in (InferSession(0, "m.om"), InferSession(0, "m.om", chip="Ascend310P3")):
        assert np.abs(-session.infer([image])[0].transpose(0, 2, 3, 1) - wanted).max() < 0.51
    on_chip = json.loads(bytes(open_package("m.om").section("chip/Ascend310P3/report")))
    assert not on_chip.get("aicpu"), on_chip


def test_yuv_images_of_open_sizes_and_of_gears():
    """The rows of bytes are h + h//2, and sizes are even: the host and a chip solve and demand it."""
    save_model([1, 3, "h", "w"])
    config = {"aipp_mode": "static", "input_format": "YUV420SP_U8", "csc_switch": True, "mean_chn_1": 9}
    flags = {"input_shape": "x0:1,3,-1,-1", "soc_version": "Ascend310P3"}
    result = made(text_of(config), dynamic_image_size="14,10;8,32;64,62", **flags)
    assert not result.aicpu_nodes and not result.chips["Ascend310P3"]["aicpu_nodes"]
    rng = np.random.default_rng(5)

    def check_size(session, height, width):
        image = rng.integers(0, 256, (1, height * 3 // 2, width), np.uint8)
        got = -session.infer([image])[0].transpose(0, 2, 3, 1)
        assert np.abs(got - prepared(image, config, 3)[1]).max() < 0.51

    for session in (InferSession(0, "m.om"), InferSession(0, "m.om", chip="Ascend310P3")):
        for size in ((14, 10), (8, 32), (64, 62)):
            check_size(session, *size)
        with pytest.raises(OpenAtcError, match="no gear"):
            session.infer([np.zeros((1, 18, 32), np.uint8)])
    made(text_of(config), **flags)
    session = InferSession(0, "m.om")
    for size in ((2, 2), (130, 700)):
        check_size(session, *size)
    for shape, said in (((1, 7, 8), "h = 5 is no multiple of 2"), ((1, 6, 3), "w = 3 is no"), ((1, 8, 8), "no 'h' gives")):
        with pytest.raises(OpenAtcError, match=said):
            session.infer([np.zeros(shape, np.uint8)])


def test_keys_that_a_program_says_at_run_time_are_told():
    save_model([1, 3, 8, 8])
    result = made(text_of({"aipp_mode": "dynamic", "max_src_image_size": 752640, "input_format": "RGB888_U8"}))
    assert result.kernels == 2 and not result.aicpu_nodes
    (said,) = result.warnings
    assert "line 1" in said and "input_format" in said


def test_several_inputs_and_half_floats():
    save_model([1, 3, 8, 8], [1, 1, 4, 4], dtype=T.FLOAT16)
    grey = text_of({"aipp_mode": "static", "input_format": "YUV400_U8", "related_input_rank": 1, "mean_chn_0": 3})
    made(
        "# two inputs\n" + text_of({"related_input_rank": 0, "aipp_mode": "static", "input_format": "RGB888_U8"}) + grey
    )
    session = InferSession(0, "m.om")
    a, b = np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3), np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    y0, y1 = session.infer([a, b])
    np.testing.assert_array_equal(-y0, a.transpose(0, 3, 1, 2).astype(np.float16))
    np.testing.assert_array_equal(-y1, (b.transpose(0, 3, 1, 2) - 3.0).astype(np.float16))
    made(text_of({"related_input_name": '"x1"', "aipp_mode": "static", "input_format": "YUV400_U8"}))
    assert [i.dtype.name for i in InferSession(0, "m.om").get_inputs()] == ["float16", "uint8"]


@pytest.mark.parametrize(
    "name", [pytest.param(p, marks=[pytest.mark.long] if p.startswith("yuv") else []) for p in PRESETS]
)
def test_presets(name):
    """The ImageNet ones as torchvision normalises; the YUV ones by the standards' own factors."""
    save_model([1, 3, 16, 16])
    product.convert("m.onnx", "m.om", aipp=name)
    rng = np.random.default_rng(3)
    session = InferSession(0, "m.om")
    shape = session.get_inputs()[0].shape
    image = rng.integers(60, 180, shape, np.uint8)
    got = -session.infer([image])[0]
    if name.startswith("imagenet"):
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        wanted = ((image / 255 - mean) / std)[..., :: -1 if name.endswith("bgr") else 1].transpose(0, 3, 1, 2)
        np.testing.assert_allclose(got, wanted, atol=1e-5)
        return
    luma = image[:, :16].astype(float)
    u, v = (image[:, 16:].reshape(1, 8, 8, 2)[..., i].repeat(2, 1).repeat(2, 2).astype(float) - 128 for i in (0, 1))
    kr, kb = (0.299, 0.114) if "601" in name else (0.2126, 0.0722)
    narrow = name.endswith("narrow")
    y, scale = ((luma - 16) * 255 / 219, 255 / 224) if narrow else (luma, 1.0)
    red, blue = y + 2 * (1 - kr) * scale * v, y + 2 * (1 - kb) * scale * u
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    wanted = np.clip(np.stack([red, green, blue], 1), 0, 255)
    assert np.abs(got - wanted).max() <= 2.0  # factors are whole numbers of 1/256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no block"),
        (
            "aipp_op {\n  aipp_mode: static\n  input_format: RGB888\n}",
            "line 3: input_format is RGB888 did you mean RGB888_U8?",
        ),
        (
            "aipp_op {\n aipp_mode: static\n input_format: RGB888_U8\n csc_swich: true\n}",
            "line 4: there is no key 'csc_swich' did you mean csc_switch?",
        ),
        (
            "aipp_op {\n aipp_mode: static input_format: RGB888_U8\n crop: true\n crop: true }",
            "line 4: crop is given twice, first in line 3",
        ),
        ("aipp_op {\n aipp_mode: static", "line 1: the block does not end"),
        ("op {\n}", "line 1: 'op' stands outside of a block"),
        ("aipp_op { aipp_mode }", "aipp_mode has no value"),
        ("aipp_op { input_format: RGB888_U8 }", "aipp_mode is missing"),
        ("aipp_op { aipp_mode: static }", "input_format is missing"),
        ("aipp_op {\n aipp_mode: dynamic }", "line 1: max_src_image_size is missing"),
        (
            "aipp_op { aipp_mode: static input_format: RGB888_U8\n left_padding_size: 33 }",
            "line 2: left_padding_size is 33 use a number from 0 to 32",
        ),
        ("aipp_op { aipp_mode: static input_format: RGB888_U8\n mean_chn_0: 1.5 }", "use a whole number"),
        ("aipp_op { aipp_mode: static input_format: RGB888_U8\n crop: maybe }", "use true or false"),
        ("aipp_op { aipp_mode: static input_format: RGB888_U8\n resize: true }", "resize is reserved"),
        ("aipp_op { aipp_mode: static input_format: YUV400_U8\n csc_switch: true }", "no colours"),
        (
            "aipp_op { aipp_mode: static input_format: YUV420SP_U8\n src_image_size_h: 9 src_image_size_w: 8 }",
            "even sizes",
        ),
        (
            "aipp_op { aipp_mode: static input_format: RGB888_U8 src_image_size_h: 9\n }",
            "one of the source's sizes is 0",
        ),
        (
            "aipp_op { aipp_mode: static input_format: RGB888_U8 src_image_size_h: 9 src_image_size_w: 9\n crop: true load_start_pos_h: 4 crop_size_h: 8 crop_size_w: 8}",
            "the crop ends at 12, 8",
        ),
        (
            "aipp_op { aipp_mode: static input_format: RGB888_U8 }\naipp_op { aipp_mode: static input_format: RGB888_U8 }",
            "line 2: two blocks are for one input",
        ),
    ],
)
def test_a_wrong_file_names_line_and_key(tmp_path, text, said):
    (tmp_path / "f").write_text(text)
    with pytest.raises(UsageError) as caught:
        parse_aipp("insert_op_conf", str(tmp_path / "f"))
    assert caught.value.code == "E10052"
    assert said in f"{caught.value.message} {caught.value.remedy}"


@pytest.mark.parametrize(
    ("shape", "config", "flags", "code", "said"),
    [
        ([1, 3, 8, 8], {"related_input_rank": 1}, {}, "E10052", "the model has 1 inputs"),
        ([1, 3, 8, 8], {"related_input_name": "x"}, {}, "E10052", "did you mean x0?"),
        ([1, 8, 8], {}, {}, "E10052", "is no image"),
        ([1, 8, 8, 3], {}, {}, "E10052", "8 channels in NCHW"),
        ([1, 4, 8, 8], {}, {}, "E10052", "images of RGB888_U8 give 3 channels"),
        (
            [1, 3, 8, 8],
            {"src_image_size_h": 9, "src_image_size_w": 9},
            {},
            "E10052",
            "make 9 x 9, the model takes 8 x 8",
        ),
        ([1, 3, 8, 8], {"crop": "true"}, {}, "E10052", "a crop needs the size of the image"),
        ([1, 3, "h", "w"], {"padding": "true", "left_padding_size": 1}, {}, "E10052", "sizes are open"),
        (
            [1, 3, "h", "w"],
            {"input_format": "YUV420SP_U8"},
            {"dynamic_image_size": "8,8;8,9"},
            "E10052",
            "not those of --dynamic_image_size 8,9",
        ),
        ([1, 3, 7, 8], {"input_format": "YUV420SP_U8"}, {}, "E10052", "even sizes"),
        ([1, 3, "h", 8], {"aipp_mode": "dynamic", "max_src_image_size": 999}, {}, "E10052", "images of one size"),
        (["n", 3, 8, 8], {"aipp_mode": "dynamic", "max_src_image_size": 999}, {}, "E10052", "the batch is n"),
        ([1, 3, 8, 8], {}, {"input_fp16_nodes": "x0"}, "E10034", "x0 takes images"),
        ([1, 3, "h", 8], {}, {"dynamic_dims": "8;16"}, "E10001", "exclude each other"),
        ([1, 3, 8, 8], {}, {"input_format": "ND"}, "E10001", "needs images"),
    ],
)
def test_a_file_that_does_not_fit_the_model(shape, config, flags, code, said):
    save_model(shape)
    with pytest.raises(UsageError) as caught:
        made(text_of({"aipp_mode": "static", "input_format": "RGB888_U8"} | config), **flags)
    assert caught.value.code == code and said in f"{caught.value.message} {caught.value.remedy}"
    assert Options.of({}).insert_op_conf == ()
