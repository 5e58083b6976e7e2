"""What looks on while models are executed: dumps and profiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from acl_runtime.device.dumps import DumpSettings
from acl_runtime.device.profiler import Profiler


@dataclass
class Watch:
    """dump: of the models that are loaded from now on. profiler: of every execution while it is on."""

    dump: DumpSettings | None = None
    profiler: Profiler = field(default_factory=Profiler)
