"""How an input image becomes a tensor, as data: what `images` makes nodes of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImagePreparation:
    """What becomes of an image. Sizes are (height, width), of `source` None where they follow from the model.

    `matrix` (in 1/256), `input_bias` and `output_bias` convert colours: matrix * (x - input_bias) / 256 + output_bias.
    `padding` is top, bottom, left, right. `mean`, `least` and `factor` have one entry a channel.
    """

    format: str
    source: tuple[int, int] | None = None
    crop: tuple[int, int, int, int] | None = None
    """Top, left, height, width."""
    swap_rb: bool = False
    """R and B, or U and V, are exchanged."""
    swap_ax: bool = False
    """The first of four channels becomes the last."""
    matrix: tuple[tuple[int, ...], ...] | None = None
    input_bias: tuple[int, ...] = (0, 0, 0)
    output_bias: tuple[int, ...] = (0, 0, 0)
    mean: tuple[float, ...] = (0.0,) * 4
    least: tuple[float, ...] = (0.0,) * 4
    factor: tuple[float, ...] = (1.0,) * 4
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    padding_value: float = 0.0
