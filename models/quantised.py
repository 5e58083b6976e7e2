"""int8 forms of a float model through onnxruntime.quantization."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np


def quantise_static(source: Path, target: Path, calibration: Iterable[dict[str, np.ndarray]]) -> None:
    """QuantizeLinear/DequantizeLinear form: int8 activations per tensor, int8 weights per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
        def __init__(self) -> None:
            self.samples = iter(calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)


def quantise_dynamic(source: Path, target: Path) -> None:
    """DynamicQuantizeLinear + MatMulInteger form with int8 weights."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8)
