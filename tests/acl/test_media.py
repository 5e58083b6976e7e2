"""The image units against numpy written here and against Pillow's own decoder."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from acl_programs import Program, from_device, ok, to_device
from PIL import Image

import acl

NV12, NV21, RGB = 1, 2, 12
media = acl.media


class Units(Program):
    """A program with an open channel."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = media.dvpp_create_channel_desc()
        ok(media.dvpp_create_channel(self.channel))

    def picture(self, width: int, height: int, pixels: np.ndarray | None = None, format_: int = NV12, step: int = 16,
                rows: int = 2) -> tuple[int, int, tuple[int, int]]:  # fmt: skip
        """Description, address and strides of a 4:2:0 picture; `pixels` are [3h/2, w], luma above chroma."""
        ws, hs = -(-width // step) * step, -(-height // rows) * rows
        address = ok(media.dvpp_malloc(ws * hs * 3 // 2))
        self.blocks.append(address)
        if pixels is not None:
            whole = np.zeros((hs * 3 // 2, ws), np.uint8)
            whole[:height, :width] = pixels[:height]
            whole[hs : hs + height // 2, :width] = pixels[height:]
            to_device(whole, address)
        desc = media.dvpp_create_pic_desc()
        for name, value in (("data", address), ("size", ws * hs * 3 // 2), ("format", format_), ("width", width),
                            ("height", height), ("width_stride", ws), ("height_stride", hs)):  # fmt: skip
            ok(getattr(media, f"dvpp_set_pic_desc_{name}")(desc, value))
        return desc, address, (ws, hs)

    def pixels(self, picture: tuple[int, int, tuple[int, int]], width: int, height: int) -> np.ndarray:
        _, address, (ws, hs) = picture
        whole = from_device(address, (hs * 3 // 2, ws), np.uint8)
        return np.concatenate([whole[:height, :width], whole[hs : hs + height // 2, :width]])

    def upload(self, data: bytes) -> int:
        address = ok(media.dvpp_malloc(len(data)))
        self.blocks.append(address)
        to_device(np.frombuffer(data, np.uint8), address)
        return address

    def sync(self) -> None:
        ok(acl.rt.synchronize_stream(self.stream))


@pytest.fixture
def units() -> object:
    units = Units()
    yield units
    units.end()


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height * 3 // 2, width), np.uint8)


def smooth(width: int, height: int) -> np.ndarray:
    """A picture [3h/2, w] of slow gradients, as photographs have them."""
    y, x = np.mgrid[:height, :width]
    luma = 128 + 100 * np.sin(x / 17) * np.cos(y / 23)
    chroma = np.stack([90 + x[::2, ::2] * 70 / width, 160 - y[::2, ::2] * 60 / height], -1).reshape(height // 2, width)
    return np.concatenate([luma, chroma]).round().astype(np.uint8)


def bilinear(plane: np.ndarray, width: int, height: int) -> np.ndarray:
    """Pixel centres at half, edges repeated, no filter: what OpenCV calls INTER_LINEAR."""
    value = plane.astype(np.float64)
    for axis, size in ((0, height), (1, width)):
        old = value.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, old - 1)
        part = (at - low).reshape((-1, 1) if axis == 0 else (1, -1))
        value = value.take(low, axis) * (1 - part) + value.take(high, axis) * part
    return value


def resized(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """[3h/2, w] scaled plane by plane, in float."""
    rows = len(pixels) * 2 // 3
    chroma = pixels[rows:].reshape(rows // 2, -1, 2)
    parts = [bilinear(chroma[..., c], width // 2, height // 2) for c in (0, 1)]
    return np.concatenate([bilinear(pixels[:rows], width, height), np.stack(parts, -1).reshape(height // 2, width)])


@pytest.mark.parametrize(
    ("old", "new"), [((64, 48), (224, 224)), ((640, 360), (224, 224)), ((100, 90), (100, 90)), ((50, 34), (30, 18))]
)
@pytest.mark.parametrize("format_", [NV12, NV21])
def test_resize_is_bilinear(units: Units, old: tuple[int, int], new: tuple[int, int], format_: int) -> None:
    pixels = noise(*old)
    source = units.picture(*old, pixels, format_)
    target = units.picture(*new, format_=NV12)
    config = media.dvpp_create_resize_config()
    ok(media.dvpp_vpc_resize_async(units.channel, source[0], target[0], config, units.stream))
    units.sync()
    want = resized(pixels, *new)
    if format_ == NV21:
        chroma = want[new[1] :].reshape(-1, 2)[:, ::-1]
        want = np.concatenate([want[: new[1]], chroma.reshape(new[1] // 2, new[0])])
    assert np.abs(units.pixels(target, *new) - want).max() <= 0.501
    assert media.dvpp_get_pic_desc_ret_code(target[0]) == 0


def test_nearest(units: Units) -> None:
    pixels = noise(64, 64)
    source, target = units.picture(64, 64, pixels), units.picture(32, 32)
    config = media.dvpp_create_resize_config()
    ok(media.dvpp_set_resize_config_interpolation(config, 2))
    ok(media.dvpp_vpc_resize_async(units.channel, source[0], target[0], config, units.stream))
    units.sync()
    np.testing.assert_array_equal(units.pixels(target, 32, 32)[:32], pixels[1:64:2, 1::2])


def test_crop_and_paste_leaves_the_rest(units: Units) -> None:
    pixels = noise(128, 96)
    source = units.picture(128, 96, pixels)
    target = units.picture(96, 64, np.full((96, 96), 7, np.uint8))
    crop = media.dvpp_create_roi_config(10, 41, 20, 51)
    paste = media.dvpp_create_roi_config(16, 47, 8, 39)
    ok(media.dvpp_vpc_crop_and_paste_async(units.channel, source[0], target[0], crop, paste, units.stream))
    units.sync()
    want = np.full((96, 96), 7, np.uint8)
    want[8:40, 16:48] = pixels[20:52, 10:42]
    want[64 + 4 : 64 + 20, 16:48] = pixels[96 + 10 : 96 + 26, 10:42]
    np.testing.assert_array_equal(units.pixels(target, 96, 64), want)


def test_batch_crop_takes_regions_in_turn(units: Units) -> None:
    images = [noise(64, 64, 1), noise(64, 64, 2)]
    sources, targets = media.dvpp_create_batch_pic_desc(2), media.dvpp_create_batch_pic_desc(3)
    made = []
    for batch, count, size in ((sources, 2, 64), (targets, 3, 32)):
        for index in range(count):
            picture = units.picture(size, size, images[index] if batch == sources else None)
            desc = media.dvpp_get_pic_desc(batch, index)
            for name in ("data", "size", "format", "width", "height", "width_stride", "height_stride"):
                value = getattr(media, f"dvpp_get_pic_desc_{name}")(picture[0])
                ok(getattr(media, f"dvpp_set_pic_desc_{name}")(desc, value))
            made.append(picture)
    corners = [(0, 0), (32, 16), (8, 4)]
    regions = [media.dvpp_create_roi_config(x, x + 31, y, y + 31) for x, y in corners]
    found = media.dvpp_vpc_batch_crop_async(units.channel, sources, [2, 1], targets, regions, units.stream)
    assert found == (targets, 0)
    units.sync()
    for picture, (x, y), image in zip(made[2:], corners, (0, 0, 1), strict=True):
        want = images[image][y : y + 32, x : x + 32]
        np.testing.assert_array_equal(units.pixels(picture, 32, 32)[:32], want)
    code = media.dvpp_vpc_batch_crop_async(units.channel, sources, [2, 2], targets, regions, units.stream)[1]
    assert code == 100000
    assert media.dvpp_destroy_batch_pic_desc(sources) == 0
    assert media.dvpp_destroy_batch_pic_desc(sources) == 100000


def jpeg(width: int, height: int, mode: str = "YCbCr", **settings: object) -> tuple[bytes, np.ndarray]:
    """A file of a smooth picture, and what Pillow's decoder reads from it as [h, w, 3] YCbCr (grey: [h, w])."""
    pixels = smooth(width + width % 2, height + height % 2)
    rows = height + height % 2
    chroma = pixels[rows:].reshape(rows // 2, -1, 2).repeat(2, 0).repeat(2, 1)
    whole = np.dstack([pixels[:rows], chroma])[:height, :width]
    image = Image.fromarray(np.ascontiguousarray(whole if mode == "YCbCr" else whole[..., 0]), mode)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92, **settings)
    read = Image.open(io.BytesIO(file.getvalue()))
    read.draft("YCbCr" if mode == "YCbCr" else "L", read.size)
    return file.getvalue(), np.asarray(read)


@pytest.mark.parametrize("size", [(128, 64), (227, 149), (640, 480)])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_jpeg_is_decoded_as_pillow_does(units: Units, size: tuple[int, int], subsampling: int) -> None:
    data, want = jpeg(*size, subsampling=subsampling)
    host = acl.util.bytes_to_ptr(data)
    assert media.dvpp_jpeg_get_image_info(host, len(data)) == (*size, 3, 0)
    nbytes = ok(media.dvpp_jpeg_predict_dec_size(host, len(data), NV12))
    ws, hs = -(-size[0] // 64) * 64, -(-size[1] // 16) * 16
    assert nbytes == ws * hs * 3 // 2
    target = units.picture(*size, step=64, rows=16)
    ok(media.dvpp_jpeg_decode_async(units.channel, units.upload(data), len(data), target[0], units.stream))
    units.sync()
    width, height = size[0] // 2 * 2, size[1] // 2 * 2
    assert (media.dvpp_get_pic_desc_width(target[0]), media.dvpp_get_pic_desc_height(target[0])) == (width, height)
    got = units.pixels(target, width, height)
    np.testing.assert_array_equal(got[:height], want[:height, :width, 0])
    chroma = want[:height, :width, 1:].astype(np.float64).reshape(height // 2, 2, width // 2, 2, 2).mean((1, 3))
    assert np.abs(got[height:].reshape(height // 2, width // 2, 2) - chroma).max() <= 0.5


def test_a_grey_jpeg_has_chroma_128(units: Units) -> None:
    data, want = jpeg(64, 64, "L")
    target = units.picture(64, 64, step=64, rows=16)
    ok(media.dvpp_jpeg_decode_async(units.channel, units.upload(data), len(data), target[0], units.stream))
    units.sync()
    got = units.pixels(target, 64, 64)
    np.testing.assert_array_equal(got[:64], want)
    assert (got[64:] == 128).all()


def test_encoded_pictures_decode_to_themselves(units: Units) -> None:
    pixels = smooth(160, 96)
    source = units.picture(160, 96, pixels)
    config = media.dvpp_create_jpege_config()
    ok(media.dvpp_set_jpege_config_level(config, 100))
    room = ok(media.dvpp_jpeg_predict_enc_size(source[0], config))
    target = ok(media.dvpp_malloc(room))
    units.blocks.append(target)
    size = room.to_bytes(4, "little")
    ok(media.dvpp_jpeg_encode_async(units.channel, source[0], target, acl.util.bytes_to_ptr(size), config,
                                    units.stream))  # fmt: skip
    units.sync()
    used = int.from_bytes(size, "little")
    assert 0 < used < room
    image = Image.open(io.BytesIO(from_device(target, (used,), np.uint8).tobytes()))
    image.draft("YCbCr", image.size)
    read = np.asarray(image)
    assert read.shape == (96, 160, 3)
    assert np.abs(read[..., 0].astype(int) - pixels[:96]).max() <= 3
    assert np.abs(read[::2, ::2, 1].astype(int) - pixels[96:, ::2]).max() <= 4


def test_png(units: Units) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (37, 53, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = file.getvalue()
    host = acl.util.bytes_to_ptr(data)
    assert media.dvpp_png_get_image_info(host, len(data)) == (53, 37, 3, 0)
    room = ok(media.dvpp_png_predict_dec_size(host, len(data), RGB))
    assert room == 3 * 128 * 48
    target = media.dvpp_create_pic_desc()
    address = ok(media.dvpp_malloc(room))
    units.blocks.append(address)
    for name, value in (("data", address), ("size", room), ("format", RGB)):
        ok(getattr(media, f"dvpp_set_pic_desc_{name}")(target, value))
    ok(media.dvpp_png_decode_async(units.channel, units.upload(data), len(data), target, units.stream))
    units.sync()
    got = from_device(address, (48, 128, 3), np.uint8)
    np.testing.assert_array_equal(got[:37, :53], pixels)


Change = Callable[[int], object]


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [(100000, "width_stride", 40), (100000, "height_stride", 31), (100000, "height", 4), (100000, "size", 100),
     (100000, "width", 9000), (207000, "format", 14), (100000, "data", 0), (200003, "data", 8)],
)  # fmt: skip
def test_rules_of_pictures_have_their_codes(units: Units, code: int, field: str, value: int) -> None:
    source, target = units.picture(64, 64, noise(64, 64)), units.picture(32, 32)
    if field == "data" and value:
        value += target[1]
    ok(getattr(media, f"dvpp_set_pic_desc_{field}")(target[0], value))
    config = media.dvpp_create_resize_config()
    assert media.dvpp_vpc_resize_async(units.channel, source[0], target[0], config, units.stream) == code


@pytest.mark.parametrize("edges", [(1, 32, 0, 31), (0, 30, 0, 31), (0, 31, 1, 32), (0, 63, 0, 64), (32, 31, 0, 31)])
def test_regions_outside_of_the_rules(units: Units, edges: tuple[int, ...]) -> None:
    source, target = units.picture(64, 64, noise(64, 64)), units.picture(32, 32)
    region = media.dvpp_create_roi_config(*edges)
    assert media.dvpp_vpc_crop_async(units.channel, source[0], target[0], region, units.stream) == 100000


def test_what_is_no_jpeg_is_told_at_the_call_or_at_the_stream(units: Units) -> None:
    junk = bytes(100)
    assert media.dvpp_jpeg_predict_dec_size(acl.util.bytes_to_ptr(junk), 100, NV12)[1] == 148052
    data, _ = jpeg(64, 64)
    progressive, _ = jpeg(64, 64, progressive=True)
    for bad in (junk, data[:200], progressive):
        target = units.picture(64, 64, step=64, rows=16)
        ok(media.dvpp_jpeg_decode_async(units.channel, units.upload(bad), len(bad), target[0], units.stream))
        assert acl.rt.synchronize_stream(units.stream) == 148052
        assert media.dvpp_get_pic_desc_ret_code(target[0]) == 148052


def test_host_memory_and_closed_channels_are_refused(units: Units) -> None:
    data, _ = jpeg(64, 64)
    target = units.picture(64, 64, step=64, rows=16)
    host = acl.util.bytes_to_ptr(data)
    assert media.dvpp_jpeg_decode_async(units.channel, host, len(data), target[0], units.stream) == 100000
    ok(media.dvpp_destroy_channel(units.channel))
    assert media.dvpp_destroy_channel(units.channel) == 100000
    assert media.dvpp_jpeg_decode_async(units.channel, units.upload(data), len(data), target[0], units.stream) == 100000


def test_a_progressive_file_does_not_write(units: Units) -> None:
    progressive, _ = jpeg(64, 64, progressive=True)
    target = units.picture(64, 64, np.full((96, 64), 9, np.uint8), step=64, rows=16)
    media.dvpp_jpeg_decode_async(units.channel, units.upload(progressive), len(progressive), target[0], units.stream)
    acl.rt.synchronize_stream(units.stream)
    assert (units.pixels(target, 64, 64) == 9).all()


@pytest.mark.long
def test_a_hundred_pictures_decoded_cut_and_scaled(units: Units) -> None:
    """JPEG decoding against Pillow, a cut that is scaled and pasted against OpenCV's bilinear form."""
    random = np.random.default_rng(3)
    for seed in range(100):
        width, height = (int(n) * 2 for n in random.integers(24, 300, 2))
        rows = [noise(width, height, seed), smooth(width, height)]
        pixels = (0.2 * rows[0] + 0.8 * rows[1]).astype(np.uint8)
        chroma = pixels[height:].reshape(height // 2, -1, 2).repeat(2, 0).repeat(2, 1)
        image = Image.fromarray(np.dstack([pixels[:height], chroma]), "YCbCr")
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(random.integers(40, 100)), subsampling=int(random.integers(0, 3)))
        read = Image.open(file)
        read.draft("YCbCr", read.size)
        want = np.asarray(read)
        decoded = units.picture(width, height, step=64, rows=16)
        data = file.getvalue()
        ok(media.dvpp_jpeg_decode_async(units.channel, units.upload(data), len(data), decoded[0], units.stream))
        units.sync()
        got = units.pixels(decoded, width, height)
        np.testing.assert_array_equal(got[:height], want[..., 0])
        mean = want[..., 1:].astype(np.float64).reshape(height // 2, 2, width // 2, 2, 2).mean((1, 3))
        assert np.abs(got[height:].reshape(height // 2, width // 2, 2) - mean).max() <= 0.5
        left, top = (int(random.integers(0, n // 4)) * 2 for n in (width, height))
        wide, high = (max(16, (n - at) // 4 * 2) for n, at in ((width, left), (height, top)))
        target = units.picture(224, 224, np.full((336, 224), 128, np.uint8))
        crop = media.dvpp_create_roi_config(left, left + wide - 1, top, top + high - 1)
        paste = media.dvpp_create_roi_config(16, 191, 8, 199)
        ok(media.dvpp_vpc_crop_and_paste_async(units.channel, decoded[0], target[0], crop, paste, units.stream))
        units.sync()
        part = np.concatenate([got[top : top + high, left : left + wide],
                               got[height + top // 2 : height + (top + high) // 2, left : left + wide]])  # fmt: skip
        scaled, made = resized(part, 176, 192), units.pixels(target, 224, 224)
        assert np.abs(made[8:200, 16:192] - scaled[:192]).max() <= 0.501
        assert np.abs(made[224 + 4 : 224 + 100, 16:192] - scaled[192:]).max() <= 0.501
        assert (made[:8] == 128).all() and (made[:, :16] == 128).all()
