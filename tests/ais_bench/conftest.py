import sys
from pathlib import Path

from tests.device_fixtures import finalised, own_cache  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent.parent / "acl"))
sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
