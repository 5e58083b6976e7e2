"""VDEC and VENC: frames through the encoder and back, callbacks on the thread that the channel names."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from acl_programs import H2D, Program, from_device, ok

import acl

WIDTH, HEIGHT, COUNT = 96, 64, 7
NV12, NV21 = 1, 2


def pictures(pixel: int) -> list[np.ndarray]:
    """Smooth YUV420SP pictures [96, 96] that change from one to the next."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    found = []
    for n in range(COUNT):
        luma = 60 + 0.8 * x + 0.5 * y + 6 * n
        u, v = 100 + 0.4 * x[: HEIGHT // 2, ::2] + n, 150 - 0.5 * y[: HEIGHT // 2, ::2]
        pairs = np.stack([u, v] if pixel == NV12 else [v, u], -1).reshape(HEIGHT // 2, WIDTH)
        found.append(np.concatenate([luma, pairs]).clip(0, 255).astype(np.uint8))
    return found


class Service:
    """The thread that calls the callbacks, as samples have it."""

    def __init__(self) -> None:
        self.context, self.ends = ok(acl.rt.get_context()), False
        self.thread = ok(acl.util.start_thread(self.run, [0]))
        self.callers: set[int] = set()

    def run(self, _: list[int]) -> None:
        ok(acl.rt.set_context(self.context))
        while not self.ends:
            if acl.rt.process_report(20) == 107012:
                threading.Event().wait(0.01)

    def close(self) -> None:
        self.ends = True
        assert acl.util.stop_thread(self.thread) == 0


@pytest.fixture
def service(program: Program) -> Any:
    made = Service()
    yield made
    made.close()


def picture_of(pixels: np.ndarray | None, pixel: int) -> tuple[int, int]:
    size = WIDTH * HEIGHT * 3 // 2
    data = ok(acl.media.dvpp_malloc(size))
    if pixels is not None:
        given = pixels.tobytes()
        ok(acl.rt.memcpy(data, size, acl.util.bytes_to_ptr(given), size, H2D))
    picture = acl.media.dvpp_create_pic_desc()
    for name, value in (("data", data), ("size", size), ("format", pixel), ("width", WIDTH), ("height", HEIGHT),
                        ("width_stride", WIDTH), ("height_stride", HEIGHT)):  # fmt: skip
        ok(getattr(acl.media, f"dvpp_set_pic_desc_{name}")(picture, value))
    return picture, data


def encoded(service: Service, entype: int, pixel: int) -> list[bytes]:
    packets: list[bytes] = []

    def callback(picture: int, stream: int, user: Any) -> None:
        service.callers.add(threading.get_ident())
        size = acl.media.dvpp_get_stream_desc_size(stream)
        packets.append(acl.util.ptr_to_bytes(acl.media.dvpp_get_stream_desc_data(stream), size))
        assert user == "mine"

    channel = acl.media.venc_create_channel_desc()
    for name, value in (("thread_id", service.thread), ("entype", entype), ("pic_format", pixel), ("pic_width", WIDTH),
                        ("pic_height", HEIGHT), ("key_frame_interval", 4), ("callback", callback)):  # fmt: skip
        ok(getattr(acl.media, f"venc_set_channel_desc_{name}")(channel, value))
    ok(acl.media.venc_create_channel(channel))
    config = acl.media.venc_create_frame_config()
    for pixels in pictures(pixel):
        ok(acl.media.venc_send_frame(channel, picture_of(pixels, pixel)[0], 0, config, "mine"))
    ok(acl.media.venc_set_frame_config_eos(config, 1))
    assert acl.media.venc_get_frame_config_eos(config) == 1
    ok(acl.media.venc_send_frame(channel, 0, 0, config, "mine"))
    ok(acl.media.venc_destroy_channel(channel))
    ok(acl.media.venc_destroy_channel_desc(channel))
    return packets


@pytest.mark.parametrize(("entype", "pixel"), [(1, NV12), (3, NV21), (0, NV12)])
def test_frames_through_encoder_and_decoder(service: Service, entype: int, pixel: int) -> None:
    pytest.importorskip("av")
    packets = encoded(service, entype, pixel)
    assert len(packets) == COUNT and all(packets)
    results: list[tuple[int, int]] = []

    def callback(stream: int, picture: int, user: int) -> None:
        results.append((user, acl.media.dvpp_get_pic_desc_ret_code(picture)))

    channel = acl.media.vdec_create_channel_desc()
    for name, value in (("channel_id", 10), ("thread_id", service.thread), ("callback", callback), ("entype", entype),
                        ("out_pic_format", pixel)):  # fmt: skip
        ok(getattr(acl.media, f"vdec_set_channel_desc_{name}")(channel, value))
    ok(acl.media.vdec_create_channel(channel))
    assert acl.media.vdec_create_channel(channel) == 100000
    config, places = acl.media.vdec_create_frame_config(), []
    for number, packet in enumerate([*packets, b""]):
        stream = acl.media.dvpp_create_stream_desc()
        picture = 0
        if packet:
            data = ok(acl.media.dvpp_malloc(len(packet)))
            ok(acl.rt.memcpy(data, len(packet), acl.util.bytes_to_ptr(packet), len(packet), H2D))
            ok(acl.media.dvpp_set_stream_desc_data(stream, data) or acl.media.dvpp_set_stream_desc_size(stream, len(packet)))
            picture, place = picture_of(None, pixel)
            places.append(place)
        ok(acl.media.dvpp_set_stream_desc_eos(stream, int(not packet)))
        ok(acl.media.vdec_send_frame(channel, stream, picture, config, number))
    ok(acl.media.vdec_destroy_channel(channel))
    assert results == [(n, 0) for n in range(COUNT)]
    for place, wanted in zip(places, pictures(pixel), strict=True):
        got = from_device(place, wanted.shape, np.uint8)
        assert np.abs(got.astype(int) - wanted).mean() < 3
    assert service.callers == {service.thread}


def test_a_packet_that_is_none(service: Service) -> None:
    pytest.importorskip("av")
    codes: list[int] = []
    channel = acl.media.vdec_create_channel_desc()
    ok(acl.media.vdec_set_channel_desc_thread_id(channel, service.thread))
    ok(acl.media.vdec_set_channel_desc_entype(channel, 1))
    stream, (picture, data) = acl.media.dvpp_create_stream_desc(), picture_of(np.full((96, 96), 7, np.uint8), NV12)
    ok(acl.media.dvpp_set_stream_desc_data(stream, data) or acl.media.dvpp_set_stream_desc_size(stream, 500))
    ok(acl.media.dvpp_set_stream_desc_eos(stream, 1))
    with pytest.raises(RuntimeError, match="vdec_set_channel_desc_callback"):
        acl.media.vdec_send_frame(channel, stream, picture, 0, None)
    ok(acl.media.vdec_set_channel_desc_callback(channel, lambda s, p, u: codes.append(acl.media.dvpp_get_pic_desc_ret_code(p))))
    assert acl.media.vdec_send_frame(channel, stream, picture, 0, None) == 100000  # not open
    ok(acl.media.vdec_create_channel(channel))
    ok(acl.media.vdec_send_frame(channel, stream, picture, 0, None))
    ok(acl.media.vdec_destroy_channel(channel))
    assert codes == [100003]


def test_without_the_library(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    for unit in ("vdec", "venc"):
        channel = getattr(acl.media, f"{unit}_create_channel_desc")()
        assert getattr(acl.media, f"{unit}_create_channel")(channel) == 207000
        assert "pip install av" in (acl.get_recent_err_msg() or "")
