"""DFT and STFT natively, against numpy's fast transforms."""

from __future__ import annotations

import numpy as np

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, array, info, model_of

rng = np.random.default_rng(0)


def ran(nodes, inputs, outputs, held, feeds, folder):
    result = atc.convert(model_of(nodes, inputs, outputs, held, opset=20), folder / "m.om")
    assert result.aicpu_nodes == [], "all of it has kernels"
    return InferSession(0, folder / "m.om").infer(feeds)


def close(found, wanted) -> None:
    both = np.stack([wanted.real, wanted.imag], -1) if np.iscomplexobj(wanted) else wanted[..., None]
    assert found.shape == both.shape
    assert np.linalg.norm(found - both) <= 1e-6 * np.linalg.norm(both)


def test_transforms_of_every_kind(tmp_path) -> None:
    """x real [b, 12, 15], z complex [b, 9, 10]: forward, one-sided, inverse, cut, padded, along both axes."""
    nodes = [
        N("DFT", ["x", "", "last"], ["forward"], "forward"),
        N("DFT", ["x", "", "first"], ["half"], "half", onesided=1),
        N("DFT", ["x", "seven", "last"], ["cut"], "cut"),
        N("DFT", ["x", "twenty", "last"], ["padded"], "padded", onesided=1),
        N("DFT", ["z", "", "first"], ["inverse"], "inverse", inverse=1),
        N("DFT", ["z", "", "last"], ["complex"], "complex"),
        N("DFT", ["z", "", "first"], ["real"], "real", inverse=1, onesided=1),
        N("DFT", ["z", "seventeen", "first"], ["odd"], "odd", inverse=1, onesided=1),
    ]
    names = [n.output[0] for n in nodes]
    inputs = [info("x", F32, ["b", 12, 15, 1]), info("z", F32, ["b", 9, 10, 2])]
    held = [array(n, np.array(v)) for n, v in
            (("first", 1), ("last", -2), ("seven", 7), ("twenty", 20), ("seventeen", 17))]  # fmt: skip
    x, z = rng.standard_normal((2, 12, 15, 1), np.float32), rng.standard_normal((2, 9, 10, 2), np.float32)
    found = ran(nodes, inputs, [info(n, F32, None) for n in names], held, [x, z], tmp_path)
    real, whole = x[..., 0].astype(np.float64), z[..., 0] + 1j * z[..., 1].astype(np.float64)
    wanted = {
        "forward": np.fft.fft(real, axis=2), "half": np.fft.rfft(real, axis=1), "cut": np.fft.fft(real, 7, 2),
        "padded": np.fft.rfft(real, 20, 2), "inverse": np.fft.ifft(whole, axis=1),
        "complex": np.fft.fft(whole, axis=2), "real": np.fft.irfft(whole, axis=1), "odd": np.fft.irfft(whole, 17, 1),
    }  # fmt: skip
    for name, ours in zip(names, found, strict=True):
        close(ours, wanted[name])


def test_short_time_transforms(tmp_path) -> None:
    """Frames of 16 and 7 every 5 and 3 elements, with a window and without, of any number of samples."""
    nodes = [
        N("STFT", ["wave", "five", "window"], ["half"], "half"),
        N("STFT", ["flat", "three", "", "seven"], ["whole"], "whole", onesided=0),
    ]
    inputs = [info("wave", F32, ["b", "n", 1]), info("flat", F32, ["b", "n"])]
    window = np.hanning(16).astype(np.float32)
    held = [array("window", window), *(array(n, np.array(v)) for n, v in (("five", 5), ("three", 3), ("seven", 7)))]
    wave = rng.standard_normal((2, 101), np.float32)
    outputs = [info(n, F32, None) for n in ("half", "whole")]
    half, whole = ran(nodes, inputs, outputs, held, [wave[..., None], wave], tmp_path)
    frames = np.lib.stride_tricks.sliding_window_view(wave.astype(np.float64), 16, 1)[:, ::5]
    close(half, np.fft.rfft(frames * window))
    close(whole, np.fft.fft(np.lib.stride_tricks.sliding_window_view(wave.astype(np.float64), 7, 1)[:, ::3]))
