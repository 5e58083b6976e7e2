"""Seeded inputs with the look and range of real ones: drawn scenes and text lines, tones, tokens, file bytes.

Every function takes a numpy Generator first; the same seed gives the same arrays.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]

# Lit bars of each digit on a seven-bar display: top, upper right, lower right, bottom, lower left, upper left, middle.
BARS = ["abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg"]


def _digit(value: int, height: int, width: int) -> Array:
    """A digit as ink, f32 [height, width] of 0 or 1."""
    pen = max(1, height // 8)
    middle = (height - pen) // 2
    rows = {"a": (0, pen), "g": (middle, middle + pen), "d": (height - pen, height)}
    halves = {"b": (0, middle + pen), "c": (middle, height), "e": (middle, height), "f": (0, middle + pen)}
    ink = np.zeros((height, width), np.float32)
    for bar in BARS[value]:
        if bar in rows:
            ink[slice(*rows[bar])] = 1
        else:
            columns = slice(width - pen, None) if bar in "bc" else slice(0, pen)
            ink[slice(*halves[bar]), columns] = 1
    return ink


def _write(rng: np.random.Generator, canvas: Array, top: int, left: int, height: int, right: int) -> None:
    """Writes random digits as ink of value 1 on canvas [H, W] from `left` to at most `right`."""
    width = max(2, height // 2)
    while left + width <= right:
        digit = _digit(int(rng.integers(10)), height, width)
        area = canvas[top : top + height, left : left + width]
        np.maximum(area, digit[: area.shape[0], : area.shape[1]], out=area)
        left += width + max(2, height // 4)


def text_line(rng: np.random.Generator, channels: int, height: int, width: int, batch: int = 1) -> Array:
    """Dark digits on a light, noisy ground: f32 [batch, channels, height, width] in 0..1."""
    images = []
    for _ in range(batch):
        ink = np.zeros((height, width), np.float32)
        _write(rng, ink, height // 5, height // 6, height * 3 // 5, width - height // 8)
        grey = 0.85 - 0.7 * ink + 0.03 * rng.standard_normal((height, width), dtype=np.float32)
        images.append(np.broadcast_to(grey.clip(0, 1), (channels, height, width)))
    return np.stack(images).astype(np.float32)


def scene(rng: np.random.Generator, height: int, width: int, batch: int = 1) -> Array:
    """A gradient with coloured boxes, discs and lines of digits: f32 [batch, 3, height, width] in 0..1."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    images = []
    for _ in range(batch):
        image = np.stack([0.5 + 0.3 * np.sin(x / width * a + y / height * b) for a, b in rng.uniform(1, 5, (3, 2))])
        for _ in range(6):
            colour = rng.uniform(0, 1, 3).astype(np.float32)
            row, column = rng.uniform(0, height), rng.uniform(0, width)
            size = rng.uniform(0.06, 0.25) * min(height, width)
            disc = rng.random() < 0.5
            inside = np.hypot(y - row, x - column) < size if disc else np.maximum(abs(y - row), abs(x - column)) < size
            image[:, inside] = colour[:, None]
        ink = np.zeros((height, width), np.float32)
        for top in range(height // 12, height - height // 8, height // 4):
            _write(rng, ink, top, width // 12, max(8, height // 20), width * 3 // 4)
        image = image * (1 - ink) + 0.02 * rng.standard_normal(image.shape, dtype=np.float32)
        images.append(image.clip(0, 1))
    return np.stack(images).astype(np.float32)


def normalised_scene(rng: np.random.Generator, height: int, width: int, batch: int = 1) -> Array:
    """A scene with ImageNet's mean taken off and divided by its standard deviation."""
    return ((scene(rng, height, width, batch) - IMAGENET_MEAN) / IMAGENET_STD).astype(np.float32)


def tone(rng: np.random.Generator, samples: int, rate: int, batch: int = 1) -> Array:
    """A swelling chord with overtones and a little noise: f32 [batch, samples] within -1..1."""
    time = np.arange(samples) / rate
    waves = []
    for _ in range(batch):
        wave = 0.01 * rng.standard_normal(samples)
        for base in rng.uniform(110, 440, 3):
            for overtone in (1, 2, 3):
                wave += 0.2 / overtone * np.sin(2 * np.pi * base * overtone * time + rng.uniform(0, 6))
        waves.append(0.4 * wave * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time)))
    return np.stack(waves).astype(np.float32)


def token_ids(rng: np.random.Generator, vocabulary: int, batch: int, sequence: int) -> Array:
    """Token ids below `vocabulary`, small ids more often as in text: i64 [batch, sequence]."""
    return (vocabulary * rng.random((batch, sequence)) ** 3).astype(np.int64)


def sentence_pair(rng: np.random.Generator, vocabulary: int, batch: int, sequence: int) -> dict[str, Array]:
    """BERT's three inputs: two segments, the last eighth padded and masked."""
    used = sequence - sequence // 8
    ids = token_ids(rng, vocabulary, batch, sequence)
    mask = np.zeros((batch, sequence), np.int64)
    mask[:, :used] = 1
    types = np.zeros((batch, sequence), np.int64)
    types[:, used // 2 : used] = 1
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": types}


def source_text(rng: np.random.Generator, length: int, batch: int = 1) -> Array:
    """Bytes of a small made-up Python program: i32 [batch, length] in 0..255."""
    texts = []
    for _ in range(batch):
        lines = ["import sys", ""]
        while sum(map(len, lines)) < length:
            number = int(rng.integers(1000))
            lines += [
                f"def step_{number}(x):",
                f"    if x > {number}:",
                f"        return x - {number}",
                "    return x",
                "",
            ]
        texts.append(list("\n".join(lines).encode()[:length]))
    return np.array(texts, np.int32)


def brain_signal(rng: np.random.Generator, samples: int, rate: int, batch: int = 1) -> Array:
    """Noise that falls with frequency, with bursts at 13 Hz: f32 [batch, 1, samples], unit variance."""
    spectrum = np.fft.rfft(rng.standard_normal((batch, 1, samples)))
    spectrum /= np.sqrt(np.arange(1, spectrum.shape[-1] + 1))
    signal = np.fft.irfft(spectrum, samples)
    signal /= signal.std()
    time = np.arange(samples) / rate
    for start in rng.uniform(0.1, 0.9, 3) * time[-1]:
        signal += 1.5 * np.exp(-(((time - start) / 0.4) ** 2)) * np.sin(2 * np.pi * 13 * time)
    signal = signal / signal.std()
    return np.asarray(signal, np.float32)


def spectrogram(rng: np.random.Generator, bands: int, frames: int, batch: int = 1) -> Array:
    """Smooth over time, falling with frequency, about unit scale: f32 [batch, bands, frames]."""
    noise = rng.standard_normal((batch, bands, frames + 15))
    smooth = np.apply_along_axis(np.convolve, -1, noise, np.full(16, 0.25), "valid")
    return (0.7 * smooth + np.linspace(0.5, -0.5, bands)[:, None]).astype(np.float32)


def ending(features: Array, silence: float) -> Array:
    """Features [batch, bands, frames] whose last eighth is silent: a speaker who has ended."""
    result = features.copy()
    result[..., -(features.shape[-1] // 8) :] = silence
    return result
