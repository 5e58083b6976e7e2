"""Writes docs/demo.svg: what `atc demo` shows on this machine. The README shows it; its times are of one run."""

from __future__ import annotations

import io
import os
import re
import tempfile
from pathlib import Path

from rich.console import Console

from atc.demo import run_demo


def main() -> None:
    console = Console(record=True, width=112, file=io.StringIO(), highlight=False)
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_demo(Path("openatc-demo"), console)
        text = console.export_text().replace(str(Path(folder).resolve()) + "/", "")
    picture = Console(record=True, width=112, file=io.StringIO(), highlight=False)
    picture.print(text.rstrip(), markup=False)
    svg = picture.export_svg(title="atc demo")
    # The page shows it without fetching a font from anywhere.
    (here / "demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
