"""Fetch the Netron release that the viewer tests need into the folder where they look for it.

python tests/om/fetch_netron.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASE = "netron==9.3.3"


def folder() -> Path:
    """Where netron's modules lie: OPENATC_NETRON, else ~/.cache/openatc/netron."""
    return Path(os.environ.get("OPENATC_NETRON") or "~/.cache/openatc/netron").expanduser()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", RELEASE, "-d", scratch]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        folder().parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(scratch) / "netron", folder(), dirs_exist_ok=True)
    print(folder())


if __name__ == "__main__":
    main()
