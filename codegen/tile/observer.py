"""What an observer of the interpreter sees of a run: grid indices, loop iterations, and instructions with their sizes.

The interpreter has no clock. Whoever has one, or counts traffic, follows the same walk through the calls below, in
program order; results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.tile.ir import For, Imm, Instr, ReadDim
from tensor_types.dtypes import DType


@dataclass(frozen=True)
class Touched:
    """A view at one moment: its base, the base's dtype and scope ('GM' for a tensor in global memory).

    start: index in the base of the view's first element, negative where a padded view begins outside. steps: per axis
    of the base, the step of each of the view's axes. shape: extents of the view's axes.
    """

    base: str
    dtype: DType
    scope: str
    start: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Different elements of the base that it spans at most: axes that it repeats count once; 0 if it is empty."""
        total = 1
        for k, extent in enumerate(self.shape):
            moves = any(steps[k] for steps in self.steps)
            total *= extent if moves or extent == 0 else 1
        return total


class Observer:
    """Does nothing; subclasses override what they want to see."""

    def begin(self, index: int, env: Mapping[str, int]) -> None:
        """A grid index (flattened, from 0) begins; `env` holds the program's dims and the grid variables."""

    def end(self, index: int) -> None:
        """The grid index has ended."""

    def iteration(self, loop: For, value: int) -> None:
        """An iteration of a loop begins."""

    def instruction(self, instr: Instr, dst: Touched, srcs: tuple[Touched | Imm, ...]) -> None:
        """An instruction has been executed."""

    def dim(self, stmt: ReadDim, source: Touched, value: int) -> None:
        """A dim has been read from a tensor."""
