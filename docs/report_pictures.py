"""Writes docs/compare.png, profile.png and package.png: the pages of a model with an f16 overflow. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from PIL import Image

from atc.cli import run_command

_COLOURS = 96
"""Of a picture's palette: pages are drawn in few."""


def model() -> onnx.ModelProto:
    """Six blocks as of a transformer; the fourth one leaves the range of f16 in the middle of its layer."""
    draw = np.random.default_rng(1)
    nodes, stored, last = [], [], "x"

    def weight(name: str, *shape: int, scale: float = 1.0) -> str:
        data = draw.standard_normal(shape) / np.sqrt(shape[0]) * scale
        stored.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    for n in range(6):
        wild = 4e5 if n == 3 else 1.0
        stored.append(numpy_helper.from_array(np.float32(1 / wild), f"s{n}"))
        steps = [
            ("MatMul", [last, weight(f"up{n}", 256, 512, scale=wild)], f"block{n}/up"),
            ("Mul", [f"block{n}/up", f"s{n}"], f"block{n}/scaled"), ("Gelu", [f"block{n}/scaled"], f"block{n}/gelu"),
            ("MatMul", [f"block{n}/gelu", weight(f"down{n}", 512, 256)], f"block{n}/down"),
            ("Add", [f"block{n}/down", last], f"block{n}/sum"), ("Softmax", [f"block{n}/sum"], f"block{n}/softmax"),
            ("Add", [f"block{n}/softmax", f"block{n}/sum"], f"block{n}/out"),
        ]  # fmt: skip
        nodes += [helper.make_node(op, inputs, [out], out) for op, inputs, out in steps]
        last = f"block{n}/out"
    ends = [[helper.make_tensor_value_info(name, 1, [64, 256])] for name in ("x", last)]
    graph = helper.make_graph(nodes, "blocks", *ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def main() -> None:
    here = Path(__file__).parent.resolve()
    browser = shutil.which("chromium") or "google-chrome"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "blocks.onnx"
        onnx.save(model(), source)
        pages = {page: folder / f"{page}.html" for page in ("compare", "profile", "package")}
        package = str(source.with_suffix(".om"))
        for words in (
            ["compare", str(source), "--precision_mode", "force_fp16", "--dump", "all", "--html",
             str(pages["compare"])],
            ["convert", str(source), "-q"], ["profile", package, "--runs", "100", "--html", str(pages["profile"])],
            ["inspect", package, "-o", str(pages["package"])],
        ):  # fmt: skip
            sys.argv = ["atc", *words]  # the page tells the command line
            run_command(words, False)
        for page, path in pages.items():
            path.write_text(path.read_text().replace(f"{folder}/", ""))  # where it was made is nobody's business
            shot = folder / f"{page}.png"
            size = "--window-size=1280,1120"
            subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size,
                            "--virtual-time-budget=3000", f"--screenshot={shot}", path.as_uri()], check=True,
                           capture_output=True, timeout=120)  # fmt: skip
            picture = Image.open(shot).convert("RGB").quantize(_COLOURS)
            picture.save(here / f"{page}.png", optimize=True)


if __name__ == "__main__":
    main()
