"""Pages of reports in a real browser, from disk: nothing on the console, plots drawn, light and dark."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small_models
from faults import spoil_graphs, wrong_constant
from PIL import Image

N, info, array = onnx.helper.make_node, small_models.info, small_models.array
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.long, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]


def browser(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         "--virtual-time-budget=3000", f"--user-data-dir={page.parent / 'browser'}", *flags, page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def console(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r":CONSOLE.*", ended.stderr)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A failing comparison, a profile with two threads and a package; names that would break a page."""
    from atc.cli import run_command

    folder = tmp_path_factory.mktemp("pages")
    generator = np.random.default_rng(0)
    nodes, constants, last = [], [], "x"
    for n in range(8):
        constants += [array(f"w{n}", generator.standard_normal((32, 32)).astype(np.float32)),
                      array(f"b{n}", generator.standard_normal(32).astype(np.float32))]  # fmt: skip
        nodes += [N("MatMul", [last, f"w{n}"], [f"m{n}"], f"product{n}"), N("Add", [f"m{n}", f"b{n}"], [f"a{n}"]),
                  N("Softmax", [f"a{n}"], [f"</script><b>{n}"], f"<img src=x onerror=alert({n})>")]  # fmt: skip
        last = f"</script><b>{n}"
    proto = small_models.model_of(nodes, [info("x", 1, [64, 32])], [info(last, 1, [64, 32])], constants)
    onnx.save(proto, folder / "m.onnx")
    found = {name: folder / f"{name}.html" for name in ("compare", "profile", "package")}
    with pytest.MonkeyPatch.context() as patch:
        spoil_graphs(patch, wrong_constant("b3"))
        run_command(["compare", str(folder / "m.onnx"), "--html", str(found["compare"])], False)
    run_command(["convert", str(folder / "m.onnx"), "-q"], False)
    package = str(folder / "m.om")
    run_command(["profile", package, "--threads", "2", "--runs", "2", "--html", str(found["profile"])], False)
    run_command(["inspect", package, "-o", str(found["package"])], False)
    return found


def test_the_console_is_read(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<script>nothing.here()</script>")
    assert any("nothing is not defined" in line for line in console(browser(tmp_path / "bad.html", "--dump-dom")))


@pytest.mark.parametrize("name", ["compare", "profile", "package"])
def test_a_page_works_from_disk(pages: dict[str, Path], name: str) -> None:
    ended = browser(pages[name], "--dump-dom", "--host-resolver-rules=MAP * ~NOTFOUND")
    assert not console(ended) and "<img" not in ended.stdout
    rows = len(re.findall(r"<tr\b", ended.stdout))
    assert rows > {"compare": 10, "profile": 10, "package": 8}[name], "the table is filled"
    canvases = re.findall(r"<canvas[^>]*height: (\d+)px", ended.stdout)
    assert len(canvases) == {"compare": 3, "profile": 3, "package": 2}[name], "every plot has been sized"
    if name == "compare":
        assert re.search(r'<h2 id="chosen">&lt;/script&gt;&lt;b&gt;3|<h2 id="chosen">a3', ended.stdout)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["compare", "profile", "package"])
def test_a_page_is_drawn(pages: dict[str, Path], name: str, dark: bool, tmp_path: Path) -> None:
    """1280 x 800: the background is the scheme's, words stand out from it, and plots have colours."""
    picture = tmp_path / "page.png"
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    browser(pages[name], f"--screenshot={picture}", "--window-size=1280,800", *scheme)
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert pixels.shape == (800, 1280, 3)
    light = pixels.mean(axis=2)
    paper = np.median(light)
    assert paper < 40 if dark else paper > 235
    assert (np.abs(light - paper) > 120).mean() > 0.005, "words"
    coloured = pixels.max(axis=2) - pixels.min(axis=2) > 60
    assert coloured.mean() > 0.0005, "plots"
    assert coloured[:, 1240:].sum() == 0, "nothing runs out of the page on the right"


def test_the_trace_is_read_by_perfetto(pages: dict[str, Path], tmp_path: Path, atc: Any) -> None:
    """Its slices sum to the CSV within 1 %; only where the trace processor is installed."""
    processor = pytest.importorskip("perfetto.trace_processor")
    package, csv, trace = pages["package"].with_name("m.om"), tmp_path / "o.csv", tmp_path / "t.json"
    assert atc("profile", package, "--runs", 2, "--threads", 2, "--csv", csv, "-o", trace, "--json")[0] == 0
    rows = [line.split(",") for line in csv.read_text().splitlines()]
    total = sum(float(row[rows[0].index("aicore_time(us)")]) for row in rows[1:])
    with processor.TraceProcessor(trace=str(trace)) as reader:
        [row] = reader.query("select sum(dur) as total, count(*) as n from slice")
        flows = next(iter(reader.query("select count(*) as n from flow"))).n
    assert row.total / 1e3 == pytest.approx(total, rel=0.01) and row.n > 5 and flows > 5
