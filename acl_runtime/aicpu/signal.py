"""Signal processing: DFT, STFT, windows and the mel matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import from_onnx


def _scalar(value: Array) -> int:
    return int(np.asarray(value).reshape(-1)[0])


@implementation("DFT")
def _dft(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, length, given = np.asarray(inputs[0]), get(inputs, 1), get(inputs, 2)
    axis = _scalar(given) if given is not None else attrs.get("axis", -2)
    axis = axis % array.ndim
    signal = array[..., 0].astype(np.float64) + (1j * array[..., 1] if array.shape[-1] == 2 else 0)
    count = signal.shape[axis] if length is None else _scalar(length)
    if attrs.get("inverse", 0) and attrs.get("onesided", 0):
        count = 2 * (signal.shape[axis] - 1) if length is None else count
        return np.fft.irfft(signal, count, axis)[..., None].astype(array.dtype)
    result = np.fft.ifft(signal, count, axis) if attrs.get("inverse", 0) else np.fft.fft(signal, count, axis)
    if attrs.get("onesided", 0):
        result = np.take(result, np.arange(count // 2 + 1), axis)
    return np.stack([result.real, result.imag], axis=-1).astype(array.dtype)


@implementation("STFT")
def _stft(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, step, window, length = np.asarray(inputs[0]), _scalar(inputs[1]), get(inputs, 2), get(inputs, 3)
    signal = array.reshape(*array.shape[:2], -1) if array.ndim == 3 else array[..., None]
    wave = signal[..., 0].astype(np.float64) + (1j * signal[..., 1] if signal.shape[-1] == 2 else 0)
    size = _scalar(length) if length is not None else len(np.asarray(window))
    frames = np.lib.stride_tricks.sliding_window_view(wave, size, axis=1)[:, ::step]
    if window is not None:
        frames = frames * np.asarray(window).astype(np.float64)
    result = np.fft.fft(frames, axis=-1)
    if attrs.get("onesided", 1):
        result = result[..., : size // 2 + 1]
    return np.stack([result.real, result.imag], axis=-1).astype(array.dtype)


def _window(op: str, function: Callable[[Array], Array]) -> None:
    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        size = _scalar(inputs[0])
        whole = size if attrs.get("periodic", 1) else size - 1
        angle = 2 * np.pi * np.arange(size) / max(whole, 1)
        return function(angle).astype(from_onnx(attrs.get("output_datatype", 1)).numpy)


_window("HannWindow", lambda a: 0.5 - 0.5 * np.cos(a))
_window("HammingWindow", lambda a: 25 / 46 - 21 / 46 * np.cos(a))
_window("BlackmanWindow", lambda a: 0.42 - 0.5 * np.cos(a) + 0.08 * np.cos(2 * a))


@implementation("MelWeightMatrix")
def _mel_weight_matrix(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    bins, length, rate = (_scalar(v) for v in inputs[:3])
    low, high = (float(np.asarray(v).reshape(-1)[0]) for v in inputs[3:5])
    mel = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mel[0] + np.arange(bins + 2) * ((mel[1] - mel[0]) / (bins + 2))
    points = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    result = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, middle, right = points[i : i + 3]
        if left == middle:
            result[middle, i] = 1
        else:
            result[left : middle + 1, i] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right != middle:
            result[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    return result.astype(from_onnx(attrs.get("output_datatype", 1)).numpy)
