"""What a profiled session tells: times of tasks and of every call of a kernel, and what measuring them cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class TaskTime:
    """One task, in program order. `device` is 'AI Core' for native code and 'AI CPU' for host code.

    seconds: in the fastest run, 0 where its branch did not run; median: over all runs. program: number of its program,
    None on the AI CPU.
    dims: values of the program's dims, by name. bytes: of all operands, each counted once.
    """

    node: str
    family: str
    device: str
    seconds: float
    grid: int
    segment: int = 0
    program: int | None = None
    dims: tuple[tuple[str, int], ...] = ()
    bytes: int = 0
    median: float = 0.0


@dataclass(frozen=True)
class Profile:
    """Times of one input, of the fastest run: others were disturbed.

    seconds: from the first task's begin to the last one's end. calls: an array with fields task (its number in
    `tasks`), worker, begin and end (ns of CLOCK_MONOTONIC). plain_seconds and timed_seconds: medians of whole
    executions without and with measuring, which took turns.
    """

    tasks: tuple[TaskTime, ...]
    seconds: float
    calls: np.ndarray
    plain_seconds: float = 0.0
    timed_seconds: float = 0.0
    dims: Mapping[str, int] = field(default_factory=dict)
    """All dims that were known when the run ended, those that it decided itself among them."""

    @property
    def ai_cpu_share(self) -> float:
        """Part of the summed task time that host code took, 0 to 1."""
        total = sum(t.seconds for t in self.tasks)
        return sum(t.seconds for t in self.tasks if t.device == "AI CPU") / total if total else 0.0

    @property
    def overhead(self) -> float:
        """What measuring added, as a part of the plain time; 0 where noise hides it."""
        return max(0.0, self.timed_seconds / self.plain_seconds - 1) if self.plain_seconds else 0.0
