"""What AIPP means, in numpy and double precision, written from its description: no code of the product is used.

`prepared` gives the tensor before and after normalisation; colours are not rounded, so a right implementation that
rounds to whole numbers is within half a step of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NARROW_601_BGR = [[298, 516, 0], [298, -100, -208], [298, 0, 409]]


def planes_of(image: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """[n, h, w, c] in the order of the format, as stored."""
    if config["input_format"] != "YUV420SP_U8":
        return image.astype(np.float64)
    rows = image.shape[1] * 2 // 3
    luma, pairs = image[:, :rows], image[:, rows:].reshape(image.shape[0], rows // 2, -1, 2)
    chroma = pairs.repeat(2, axis=1).repeat(2, axis=2)
    return np.concatenate([luma[..., None], chroma], axis=3).astype(np.float64)


def prepared(image: np.ndarray, config: dict[str, Any], channels: int) -> tuple[np.ndarray, np.ndarray]:
    """The image [n, h, w, c] before normalisation, and the tensor after it and after padding."""
    x = planes_of(image, config)
    order = list(range(x.shape[3]))
    if config.get("rbuv_swap_switch") and len(order) > 1:
        first, last = (1, 3) if len(order) == 4 else (1, 2) if config["input_format"].startswith("YUV") else (0, 2)
        order[first], order[last] = order[last], order[first]
    if config.get("ax_swap_switch") and len(order) == 4:
        order = [*order[1:], order[0]]
    x = x[..., order]
    if config.get("crop"):
        top, left = config.get("load_start_pos_h", 0), config.get("load_start_pos_w", 0)
        x = x[:, top : top + config["crop_size_h"], left : left + config["crop_size_w"]]
    if config.get("csc_switch"):
        matrix = np.array(
            [[config.get(f"matrix_r{r}c{c}", NARROW_601_BGR[r][c]) for c in range(3)] for r in range(3)], float
        )
        is_yuv = config["input_format"].startswith("YUV")
        before = np.array([config.get(f"input_bias_{i}", (16, 128, 128)[i] if is_yuv else 0) for i in range(3)], float)
        after = np.array([config.get(f"output_bias_{i}", 0) for i in range(3)], float)
        x = np.clip((x[..., :3] - before) @ matrix.T / 256 + after, 0, 255)
    x = x[..., :channels]

    def each(name: str, default: float) -> np.ndarray:
        return np.array([config.get(f"{name}_chn_{i}", default) for i in range(channels)], float)

    y = (x - each("mean", 0) - each("min", 0)) * each("var_reci", 1)
    if config.get("padding"):
        sides = [config.get(f"{side}_padding_size", 0) for side in ("top", "bottom", "left", "right")]
        y = np.pad(
            y, [(0, 0), tuple(sides[:2]), tuple(sides[2:]), (0, 0)], constant_values=config.get("padding_value", 0)
        )
    return x, y


def random_config(rng: np.random.Generator) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, int, int]]:
    """A configuration, the shape of its u8 image for a batch of 2, and the model's channels, height and width."""
    form = str(rng.choice(["YUV420SP_U8", "XRGB8888_U8", "RGB888_U8", "YUV400_U8"]))
    step = 2 if form == "YUV420SP_U8" else 1
    height, width = (int(step * rng.integers(2, 24)) for _ in range(2))
    config: dict[str, Any] = {
        "aipp_mode": "static",
        "input_format": form,
        "src_image_size_h": height,
        "src_image_size_w": width,
    }
    rows, columns = height, width
    if rng.random() < 0.5:
        top, left = (int(step * rng.integers(0, (n - 1) // step)) if n > step else 0 for n in (height, width))
        rows, columns = int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
        config |= {
            "crop": True,
            "load_start_pos_h": top,
            "load_start_pos_w": left,
            "crop_size_h": rows,
            "crop_size_w": columns,
        }
    channels = {"YUV400_U8": 1, "XRGB8888_U8": int(rng.choice([3, 4]))}.get(form, 3)
    config["rbuv_swap_switch"] = bool(rng.random() < 0.5)
    config["ax_swap_switch"] = bool(form == "XRGB8888_U8" and rng.random() < 0.5)
    if form != "YUV400_U8" and rng.random() < 0.5:
        channels = int(rng.choice([1, 3]))
        config["csc_switch"] = True
        if rng.random() < 0.7:
            config |= {f"matrix_r{r}c{c}": int(rng.integers(-300, 520)) for r in range(3) for c in range(3)}
        for way in ("input", "output"):
            if rng.random() < 0.5:
                config |= {f"{way}_bias_{i}": int(rng.integers(0, 256)) for i in range(3)}
    for i in range(channels):
        if rng.random() < 0.6:
            config |= {f"mean_chn_{i}": int(rng.integers(0, 256)), f"min_chn_{i}": round(float(rng.uniform(0, 99)), 3)}
        if rng.random() < 0.7:
            config[f"var_reci_chn_{i}"] = round(float(rng.uniform(0.001, 2)), 6)
    if rng.random() < 0.4:
        config["padding"] = True
        sides = {f"{side}_padding_size": int(rng.integers(0, 33)) for side in ("top", "bottom", "left", "right")}
        config |= sides | {"padding_value": round(float(rng.uniform(-2, 2)), 3)}
        rows += sides["top_padding_size"] + sides["bottom_padding_size"]
        columns += sides["left_padding_size"] + sides["right_padding_size"]
    shape = (
        (2, height * 3 // 2, width)
        if step == 2
        else (2, height, width, {"XRGB8888_U8": 4, "YUV400_U8": 1}.get(form, 3))
    )
    return config, shape, (channels, rows, columns)


def text_of(config: dict[str, Any], more: str = "") -> str:
    """The configuration as ATC's file has it."""
    shown = (f"  {key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in config.items())
    return "aipp_op {\n" + "\n".join(shown) + f"\n{more}}}\n"
