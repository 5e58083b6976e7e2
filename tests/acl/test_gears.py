"""Gears and image stages of converted packages, through pyACL and ais_bench, against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from acl_programs import Program, from_device, ok, to_device
from converted import converted, scaled_mean

import acl
import aclruntime
from ais_bench.infer.interface import InferSession

HIDDEN = "ascend_mbatch_shape_data"
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gears")


def package(folder: Path, name: str, **flags: str | Path) -> str:
    place = folder / name
    if not (place / "model.om").exists():
        place.mkdir(exist_ok=True)
        converted(place, **flags)
    return str(place / "model.om")


def batches(folder: Path) -> str:
    return package(folder, "batch", input_shape="x:-1,3,4,5", dynamic_batch_size="1,2,8,4")


def images(folder: Path) -> str:
    return package(folder, "image", input_shape="x:2,3,-1,-1", dynamic_image_size="4,6;8,3;5,5")


def dims(folder: Path) -> str:
    return package(folder, "dims", input_shape="x:-1,3,-1,-1", dynamic_dims="1,4,6;3,2,2")


class Loaded:
    """A model with gears in a program: its description, datasets of the sizes that it tells, the hidden input."""

    def __init__(self, program: Program, path: str) -> None:
        self.id = ok(acl.mdl.load_from_file(path))
        self.desc = acl.mdl.create_desc()
        ok(acl.mdl.get_desc(self.desc, self.id))
        self.index = ok(acl.mdl.get_input_index_by_name(self.desc, HIDDEN))
        self.inputs, (self.x, self.hidden), self.outputs, (self.y, self.z) = program.datasets(self.id)

    def run(self, x: np.ndarray) -> None:
        to_device(x, self.x)
        ok(acl.mdl.execute(self.id, self.inputs, self.outputs))
        y, z = scaled_mean(x)
        np.testing.assert_allclose(from_device(self.y, y.shape), y, rtol=1e-6)
        np.testing.assert_allclose(from_device(self.z, z.shape), z, rtol=1e-5)
        assert ok(acl.mdl.get_cur_output_dims(self.desc, 0))["dims"] == list(y.shape)
        assert ok(acl.mdl.get_cur_output_dims(self.desc, 1))["dims"] == list(z.shape)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_batch_gears(program: Program, folder: Path) -> None:
    m = Loaded(program, batches(folder))
    assert (acl.mdl.get_num_inputs(m.desc), m.index) == (2, 1)
    assert ok(acl.mdl.get_dynamic_batch(m.desc)) == {"batchCount": 4, "batch": [1, 2, 8, 4]}
    assert ok(acl.mdl.get_dynamic_hw(m.desc, -1)) == {"hwCount": 0, "hw": []}
    assert acl.mdl.get_input_dynamic_gear_count(m.desc, -1) == (0, 0)
    assert acl.mdl.get_input_size_by_index(m.desc, 0) == 4 * 8 * 60
    assert acl.mdl.get_input_size_by_index(m.desc, 1) == 4
    assert acl.mdl.get_output_size_by_index(m.desc, 1) == 4 * 8 * 3
    assert ok(acl.mdl.get_input_dims(m.desc, 0))["dims"] == [-1, 3, 4, 5]
    assert ok(acl.mdl.get_output_dims(m.desc, 0))["dims"] == [8, 3, 4, 5]
    m.run(random(8, 3, 4, 5))  # nothing chosen: the largest
    for batch in (2, 1, 8, 4):
        ok(acl.mdl.set_dynamic_batch_size(m.id, m.inputs, m.index, batch))
        assert from_device(m.hidden, (1,), np.uint32) == [batch]
        m.run(random(batch, 3, 4, 5))


def test_a_wrong_size_changes_nothing(program: Program, folder: Path) -> None:
    m = Loaded(program, batches(folder))
    ok(acl.mdl.set_dynamic_batch_size(m.id, m.inputs, m.index, 2))
    short, freed = acl.create_data_buffer(m.hidden, 3), acl.create_data_buffer(m.hidden + (1 << 20), 4)
    for wanted, arguments in (
        (100000, (m.id, m.inputs, m.index, 0)),
        (145013, (m.id, m.inputs, m.index, 3)),
        (100000, (m.id, m.inputs, 0, 4)),
        (100000, (m.id, m.inputs, 7, 4)),
        (100000, (m.id, m.outputs + 1, m.index, 4)),
        (145003, (m.id + 99, m.inputs, m.index, 4)),
    ):
        assert acl.mdl.set_dynamic_batch_size(*arguments) == wanted
    assert acl.mdl.set_dynamic_hw_size(m.id, m.inputs, m.index, 4, 5) == 145013
    dims = {"name": "", "dimCount": 4, "dims": [4, 3, 4, 5]}
    assert acl.mdl.set_input_dynamic_dims(m.id, m.inputs, m.index, dims) == 145013
    for buffer, wanted in ((short, 145012), (freed, 145011)):
        other = acl.mdl.create_dataset()
        ok(acl.mdl.add_dataset_buffer(other, acl.mdl.get_dataset_buffer(m.inputs, 0)))
        ok(acl.mdl.add_dataset_buffer(other, buffer))
        assert acl.mdl.set_dynamic_batch_size(m.id, other, m.index, 4) == wanted
    assert from_device(m.hidden, (1,), np.uint32) == [2]
    m.run(random(2, 3, 4, 5))


def test_image_gears(program: Program, folder: Path) -> None:
    m = Loaded(program, images(folder))
    found = ok(acl.mdl.get_dynamic_hw(m.desc, -1))
    assert found == {"hwCount": 3, "hw": [[4, 6], [8, 3], [5, 5]]} and [8, 3] in found["hw"]
    assert ok(acl.mdl.get_dynamic_batch(m.desc))["batchCount"] == 0
    assert acl.mdl.get_input_size_by_index(m.desc, 0) == 4 * 2 * 3 * 25
    assert acl.mdl.get_input_size_by_index(m.desc, 1) == 8
    m.run(random(2, 3, 5, 5))
    for h, w in ((4, 6), (8, 3), (5, 5)):
        ok(acl.mdl.set_dynamic_hw_size(m.id, m.inputs, m.index, h, w))
        m.run(random(2, 3, h, w))
    assert acl.mdl.set_dynamic_hw_size(m.id, m.inputs, m.index, 6, 4) == 145013
    assert acl.mdl.set_dynamic_hw_size(m.id, m.inputs, m.index, 0, 4) == 100000


def test_gears_of_dims(program: Program, folder: Path) -> None:
    m = Loaded(program, dims(folder))
    count = ok(acl.mdl.get_input_dynamic_gear_count(m.desc, -1))
    assert count == 2 and acl.mdl.get_input_dynamic_dims(m.desc, -1, 1) == ([], 100000)
    gears = ok(acl.mdl.get_input_dynamic_dims(m.desc, -1, count))
    assert [g["dims"] for g in gears] == [[1, 3, 4, 6], [3, 3, 2, 2]]
    assert acl.mdl.get_input_size_by_index(m.desc, 1) == 12
    for gear in reversed(gears):
        ok(acl.mdl.set_input_dynamic_dims(m.id, m.inputs, m.index, gear))
        m.run(random(*gear["dims"]))
    for wrong, code in (([3, 3, 2], 145012), ([3, 4, 2, 2], 145012), ([1, 3, 2, 2], 145013)):
        asked = {"name": "", "dimCount": len(wrong), "dims": wrong}
        assert acl.mdl.set_input_dynamic_dims(m.id, m.inputs, m.index, asked) == code
    m.run(random(*gears[0]["dims"]))


def test_a_queued_execution_keeps_the_gear_that_it_was_queued_with(program: Program, folder: Path) -> None:
    m = Loaded(program, batches(folder))
    x = random(8, 3, 4, 5)
    to_device(x, m.x)
    to_device(np.zeros((8, 3, 4, 5), np.float32), m.y)
    ok(acl.mdl.set_dynamic_batch_size(m.id, m.inputs, m.index, 2))
    ok(acl.mdl.execute_async(m.id, m.inputs, m.outputs, program.stream))
    ok(acl.mdl.set_dynamic_batch_size(m.id, m.inputs, m.index, 8))
    ok(acl.rt.synchronize_stream(program.stream))
    y = from_device(m.y, x.shape)
    np.testing.assert_allclose(y[:2], scaled_mean(x[:2])[0], rtol=1e-6)
    assert not y[2:].any()


@pytest.fixture
def finalised() -> Iterator[None]:
    yield
    acl.finalize()


@pytest.mark.parametrize("mode", ["dymbatch", "dymhw", "dymdims"])
def test_modes_of_ais_bench(mode: str, folder: Path, finalised: None) -> None:
    path, shapes = {
        "dymbatch": (batches(folder), [(2, 3, 4, 5), (8, 3, 4, 5)]),
        "dymhw": (images(folder), [(2, 3, 8, 3), (2, 3, 5, 5)]),
        "dymdims": (dims(folder), [(3, 3, 2, 2), (1, 3, 4, 6)]),
    }[mode]
    with InferSession(0, path) as session:
        assert len(session.get_inputs()) == 1
        for shape in shapes:
            x = random(*shape)
            for got, want in zip(session.infer([x], mode), scaled_mean(x), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5)
        with pytest.raises(RuntimeError, match="145013"):
            session.infer([random(7, 3, 4, 5) if mode == "dymbatch" else random(2, 3, 1, 1)], mode)
        assert session.session.get_max_dym_batchsize() == (8 if mode == "dymbatch" else 0)
        assert session.session.get_dym_aipp_input_exist() == 0
        session.set_staticbatch()
        assert session.session.run([], [aclruntime_tensor(session, shapes[-1])])[0].shape == list(shapes[-1])


def aclruntime_tensor(session: InferSession, shape: tuple[int, ...]) -> aclruntime.Tensor:
    tensor = aclruntime.Tensor(random(*shape))
    tensor.to_device(session.device_id)
    return tensor


AIPP = """aipp_op {{ aipp_mode: static related_input_rank: 0 input_format: {0} src_image_size_w: 8 src_image_size_h: 6
 min_chn_0: 1 min_chn_1: 2 min_chn_2: 3 var_reci_chn_0: 0.5 var_reci_chn_1: 0.25 var_reci_chn_2: 0.125 }}"""


@pytest.mark.parametrize(
    ("form", "picture", "layout", "number"),
    [("RGB888_U8", [2, 6, 8, 3], [2, 6, 8, 3], 3), ("YUV420SP_U8", [2, 6, 8, 3], [2, 9, 8, 1], 1)],
)
def test_pictures_in(
    form: str, picture: list[int], layout: list[int], number: int, program: Program, folder: Path
) -> None:
    config = folder / f"{form}.cfg"
    config.write_text(AIPP.format(form))
    path = package(folder, form, input_shape="x:2,3,6,8", insert_op_conf=str(config))
    model, desc = ok(acl.mdl.load_from_file(path)), acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    assert acl.mdl.get_num_inputs(desc) == 1 and acl.mdl.get_input_data_type(desc, 0) == 4
    size = acl.mdl.get_input_size_by_index(desc, 0)
    assert ok(acl.mdl.get_input_dims(desc, 0))["dims"] == picture
    assert ok(acl.mdl.get_input_dims_v2(desc, 0))["dims"] == layout and np.prod(layout) == size
    assert acl.mdl.get_aipp_type(model, 0) == (1, (1 << 64) - 1, 0)
    assert acl.mdl.get_aipp_type(model, 1)[-1] == 100000
    info = ok(acl.mdl.get_first_aipp_info(model, 0))
    assert (info["inputFormat"], info["srcImageSizeW"], info["srcImageSizeH"]) == (number, 8, 6)
    if form == "RGB888_U8":
        pixels = RANDOM.integers(0, 256, picture, np.uint8)
        given, (a,), made, (y, _) = program.datasets(model)
        to_device(pixels, a)
        ok(acl.mdl.execute(model, given, made))
        x = (pixels - np.array([1, 2, 3])) * np.array([0.5, 0.25, 0.125])
        np.testing.assert_allclose(from_device(y, (2, 3, 6, 8)), scaled_mean(x.transpose(0, 3, 1, 2))[0], rtol=1e-5)


def test_pictures_of_gears(program: Program, folder: Path) -> None:
    """YUV420SP without colour conversion: planes Y, U, V of sizes that the program chooses."""
    config = folder / "gears.cfg"
    config.write_text("aipp_op { aipp_mode: static input_format: YUV420SP_U8 min_chn_1: 7 }")
    path = package(folder, "pictures", input_shape="x:2,3,-1,-1", dynamic_image_size="4,6;8,2", insert_op_conf=config)
    m = Loaded(program, path)
    assert acl.mdl.get_input_size_by_index(m.desc, 0) == 2 * 36
    assert ok(acl.mdl.get_input_dims(m.desc, 0))["dims"] == [2, -1, -1, 3]
    for h, w in ((8, 2), (4, 6)):
        ok(acl.mdl.set_dynamic_hw_size(m.id, m.inputs, m.index, h, w))
        pixels = RANDOM.integers(0, 256, (2, h * 3 // 2, w), np.uint8)
        to_device(pixels, m.x)
        ok(acl.mdl.execute(m.id, m.inputs, m.outputs))
        chroma = pixels[:, h:].reshape(2, h // 2, w // 2, 2).repeat(2, 1).repeat(2, 2)
        planes = np.concatenate([pixels[:, :h, :, None], chroma], 3).transpose(0, 3, 1, 2)
        x = planes.astype(np.float32) - np.array([0, 7, 0], np.float32).reshape(3, 1, 1)
        np.testing.assert_allclose(from_device(m.y, (2, 3, h, w)), scaled_mean(x)[0], rtol=1e-6)


def test_a_model_without_pictures(program: Program, folder: Path) -> None:
    m = Loaded(program, batches(folder))
    assert acl.mdl.get_aipp_type(m.id, 0) == (0, (1 << 64) - 1, 0)
    assert acl.mdl.get_first_aipp_info(m.id, 0) == (None, 100038)
    assert acl.mdl.create_aipp(0) == 0
    aipp = acl.mdl.create_aipp(2)
    ok(acl.mdl.set_aipp_input_format(aipp, 3))
    ok(acl.mdl.set_aipp_pixel_var_reci(aipp, 0.5, 0.5, 0.5, 0.5, 1))
    ok(acl.mdl.set_aipp_csc_params(aipp, 1, *range(15)))
    assert acl.mdl.set_aipp_input_format(aipp, 99) == 100000
    assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 1, 2, 3, 4, 2) == 100000
    assert acl.mdl.set_input_aipp(m.id, m.inputs, 0, aipp) == 145015
    assert acl.mdl.set_aipp_by_input_index(m.id, m.inputs, 0, aipp) == 145015
    ok(acl.mdl.destroy_aipp(aipp))
    assert acl.mdl.destroy_aipp(aipp) == 100000
