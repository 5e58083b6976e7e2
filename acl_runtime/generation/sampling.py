"""From logits to a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensor_types.errors import EnvironmentProblem


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, applied in this order.

    repetition_penalty: divides positive and multiplies negative logits of tokens that were seen (CTRL, Keskar et al.
    2019). temperature: divides the logits; 0 takes the greatest (ties: the lowest token). top_k: only the k greatest,
    0 for all. top_p: only the fewest whose probabilities reach p (Holtzman et al. 2020).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        rules = {
            "temperature": self.temperature >= 0, "top_k": self.top_k >= 0, "top_p": 0 < self.top_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0,
        }  # fmt: skip
        for name, holds in rules.items():
            if not holds or not np.isfinite(getattr(self, name)):
                raise EnvironmentProblem(
                    f"{name} is {getattr(self, name)}", where={"flag": f"--{name}"},
                    remedy="temperature and top_k from 0, top_p in (0, 1], repetition_penalty above 0",
                )  # fmt: skip

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def choose(self, logits: np.ndarray, seen: Sequence[int], random: np.random.Generator) -> int:
        """A token, of f32 logits [vocabulary]; `seen` are the tokens before it."""
        scores = logits.astype(np.float64)
        if self.repetition_penalty != 1.0 and seen:
            known = np.unique(np.asarray(seen, np.int64))
            old = scores[known]
            scores[known] = np.where(old > 0, old / self.repetition_penalty, old * self.repetition_penalty)
        if self.is_greedy:
            return int(scores.argmax())
        scores /= self.temperature
        # Best first; equal scores in the order of the tokens, so that a seed gives the same token everywhere.
        order = np.lexsort((np.arange(len(scores)), -scores))
        if self.top_k:
            order = order[: self.top_k]
        odds = np.exp(scores[order] - scores[order[0]])
        odds /= odds.sum()
        if self.top_p < 1:
            odds = odds[: int(np.searchsorted(np.cumsum(odds), self.top_p)) + 1]
        sums = np.cumsum(odds)
        at = np.searchsorted(sums, random.random() * sums[-1], side="right")
        return int(order[min(int(at), len(odds) - 1)])
