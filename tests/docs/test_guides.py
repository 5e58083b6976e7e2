"""The programs and commands of the guides run, and do what the text says."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from atc.command_line import main

ROOT = Path(__file__).resolve().parents[2]
F32 = TensorProto.FLOAT


def blocks(name: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a guide."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / name).read_text(), re.M | re.S)


def commands(text: str, capsys: pytest.CaptureFixture) -> str:
    """Runs the lines of a block, each of which must succeed; gives what they print."""
    shown = ""
    for line in text.splitlines():
        words = shlex.split(line)
        assert words[0] == "atc"
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        found = capsys.readouterr()
        assert not ended.value.code, (line, found.out, found.err)
        shown += found.out
    return shown


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("my_ops", None)


def save(nodes: list, inputs: list, outputs: list, domains: tuple[str, ...] = ()) -> None:
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(d, 1) for d in domains)]
    graph = helper.make_graph(nodes, "guide", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), "model.onnx")


def info(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


def test_custom_operators(folder, capsys):
    nodes = [
        helper.make_node("Shrink", ["x"], ["small"], domain="my.domain"),
        helper.make_node("ScaleRows", ["small", "scale"], ["y"], domain="my.domain"),
    ]
    save(nodes, [info("x", "m", 4), info("scale", "m")], [info("y", "m", 4)], ("my.domain",))
    (_, module), (_, shell), (_, program) = blocks("custom_operators.md")
    name = re.match(r"# (\w+\.py)\n", module)[1]
    (folder / name).write_text(module)
    shown = commands(shell, capsys)
    assert "every operator is supported" in shown and "1 custom" in shown and "Shrink" in shown
    assert re.search(r"2 reference[^$]*\nverdict +pass", shown)
    scope: dict = {}
    exec(program, scope)
    x = np.tile(scope["x"], (1, 2))
    small = np.where(np.abs(x) <= 0.5, 0, x - np.copysign(0.5, x))
    np.testing.assert_allclose(scope["y"], small * scope["scale"][:, None], rtol=1e-6)
    assert capsys.readouterr().out.split("\n")[0] in program  # the comment says what is printed


def test_pyacl(folder, capsys):
    save([helper.make_node("Tanh", ["x"], ["y"])], [info("x", 3, 5)], [info("y", 3, 5)])
    commands("atc convert model.onnx", capsys)
    [(_, program)] = blocks("pyacl.md")
    scope: dict = {}
    exec(program, scope)
    np.testing.assert_allclose(scope["y"], np.tanh(np.linspace(-1, 1, 15)).reshape(3, 5), rtol=1e-5, atol=1e-7)


def test_trust(folder, capsys):
    pytest.importorskip("cryptography")
    save([helper.make_node("Tanh", ["x"], ["y"])], [info("x", 3, 5)], [info("y", 3, 5)])
    for _, text in blocks("trust.md"):
        shown = commands(text, capsys)
    assert "it is signed by release_key.pub" in shown


def test_run(folder, capsys):
    save([helper.make_node("Relu", ["input"], ["y"])], [info("input", 1, 3, 224, 224)], [info("y", 1, 3, 224, 224)])
    commands("atc convert model.onnx", capsys)
    program = blocks("run.md")[-1][1]
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    scope = {"image": image, "buffer": np.empty_like(image)}
    exec(program, scope)
    np.testing.assert_array_equal(scope["buffer"], np.maximum(image, 0))
