"""Names of models and nodes that are written into paths, templates and pages by what a package or file says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from acl_runtime import InferSession
from acl_runtime.device.dumps import DumpSettings, ModelDump
from acl_runtime.om import FusedGraph, NodeDesc, PackageError, TensorDesc, open_package, write_package
from atc.html_page import render
from graph_opt.plan import ValueInfo
from tensor_types.dtypes import F32
from tests.runtime.packages import host, write

NAMES = ("{device.__class__.__mro__}", "{0}{x", "../../../etc", "..", "a\x00b", "\x1b[2J", "ü" * 300, "x" * 5000, "\r\n,=1")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """y = Relu(x), on the AI CPU."""
    values = [ValueInfo("x", F32, (2, 2), "input"), ValueInfo("y", F32, (2, 2), "temporary")]
    write(tmp_path / "m.om", values, [host("Relu", ["x"], ["y"])], ["x"], ["y"])
    return tmp_path / "m.om"


@pytest.mark.parametrize("name", NAMES)
def test_names_of_dumps_stay_in_their_folder(package: Path, tmp_path: Path, name: str) -> None:
    x, y = TensorDesc("x", "f32", (2, 2)), TensorDesc("y", "f32", (2, 2))
    graph = FusedGraph(name, (x,), (y,), (NodeDesc(name, name, ("x",), (y,)),))
    session = InferSession(0, package, keep=True)
    session.infer([np.zeros((2, 2), np.float32)])
    target = tmp_path / "dumps" / "{dumps}"
    target.mkdir(parents=True)
    ModelDump(DumpSettings(target, "all", {}), session, graph, name, 1, ()).write(0, 7)
    files = [p for p in (tmp_path / "dumps").rglob("*") if p.is_file() and p.name != "mapping.csv"]
    assert len(files) == 1 and files[0].is_relative_to(target)
    assert "class 'int'" not in str(files[0])  # braces are letters like others


def test_half_characters_are_no_names(package: Path, tmp_path: Path) -> None:
    opened = open_package(package)
    names = {s.name for s in opened.sections()} - {"header", "model_def"}
    sections = {name: bytes(opened.section(name)) for name in names}
    [name] = [n for n in names if n.endswith("/plan")]
    plan = json.loads(sections[name])
    plan["segments"][0]["tasks"][0]["node"] = "\ud800"
    sections[name] = json.dumps(plan).encode()
    write_package(tmp_path / "changed.om", opened.graph(), sections, opened.header)
    with pytest.raises(PackageError, match="surrogates not allowed"):
        InferSession(0, tmp_path / "changed.om")


def test_names_do_not_end_the_script_of_a_page() -> None:
    name = "</script><script>alert(1)</script><!--\u2028"
    page = render("base.html", {"name": name}, title=name)
    assert page.count("<script") == page.count("</script>") and "alert(1)</script>" not in page
    start = page.index('id="data">') + len('id="data">')
    assert json.loads(page[start : page.index("</script>", start)]) == {"name": name}
