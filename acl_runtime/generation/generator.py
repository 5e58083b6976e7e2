"""Generation: the prompt in chunks, then token by token, or several at a time where a guess turns out right."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np

from acl_runtime.generation.batch import Batch, can_batch
from acl_runtime.generation.decoder import Decoder
from acl_runtime.generation.guesses import Draft, Guesses, PromptLookup
from acl_runtime.generation.sampling import Sampling
from acl_runtime.generation.sequence import Sequence
from tensor_types.errors import EnvironmentProblem, InvalidModel


@dataclass
class Generation:
    """What was generated. prefill_ms: time until the first token; ms_per_token: mean of the others, 0 if there are
    none; accepted: tokens that guesses gave; batched: other texts shared its steps."""

    tokens: list[int] = field(default_factory=list)
    prefill_ms: float = 0.0
    ms_per_token: float = 0.0
    accepted: int = 0
    batched: bool = False
    reason: str = ""
    """'length', 'stop' (a stop token or the caller's word) or 'capacity'."""


class Generator:
    """Generates with a decoder, or with what `Decoder.open` takes.

    chunk: tokens of the prompt that are fed at a time, 0 for all. guess: tokens that are guessed at a time, by `draft`,
    a smaller decoder, or from what the text repeats; exact under greedy choice, refused with any other.
    """

    def __init__(
        self, decoder: Decoder | str | os.PathLike[str], *, chunk: int = 0, guess: int = 0,
        draft: Decoder | str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self.decoder = decoder = decoder if isinstance(decoder, Decoder) else Decoder.open(decoder)
        self.chunk, self.guess = chunk, guess
        self._guesses: Guesses = PromptLookup()
        if draft is not None:
            self._guesses = Draft(draft if isinstance(draft, Decoder) else Decoder.open(draft), decoder)
        if guess and not decoder.roles.all_positions:
            raise EnvironmentProblem("guesses need the logits of every token, the model gives those of the last one",
                                     where={"flag": "--guess"}, remedy="leave --guess out")  # fmt: skip

    def generate(
        self,
        prompt: Many[int],
        most: int,
        sampling: Sampling | None = None,
        *,
        stop: Many[int] = (),
        seed: int = 0,
        on_token: Callable[[int], bool | None] | None = None,
        sequence: Sequence | None = None,
    ) -> tuple[Generation, Sequence]:
        """Up to `most` tokens behind `sequence` (none: an empty one) and the prompt, and the sequence that they end.

        `on_token` is called with each token; when it gives True, generation ends there. The last token is not in the
        sequence yet: it is the prompt to go on with. OpenAtcError as `Decoder.step` has it.
        """
        sampling = sampling or Sampling()
        if self.guess and not sampling.is_greedy:
            raise EnvironmentProblem("guesses are exact with greedy choice only", where={"flag": "--guess"},
                                     remedy="leave --guess or --temperature out")  # fmt: skip
        if not prompt:
            raise InvalidModel("the prompt is empty", remedy="give at least one token")
        random = np.random.default_rng(seed)
        made = Generation(reason="length")
        started = time.perf_counter()
        logits, before = self._prefill(sequence or self.decoder.empty(), prompt)
        first, current = 0.0, before
        for token, known in self._tokens(logits, before, sampling, random, made, most):
            current = known
            if not made.tokens:
                first = time.perf_counter()
            made.tokens.append(token)
            if token in stop or (on_token is not None and on_token(token)):
                made.reason = "stop"
                break
            if len(made.tokens) >= most:
                break
        ended = time.perf_counter()
        made.prefill_ms = ((first or ended) - started) * 1e3
        others = len(made.tokens) - 1
        made.ms_per_token = (ended - first) * 1e3 / others if others > 0 else 0.0
        return made, current

    def generate_batch(
        self, prompts: Many[Many[int]], most: int, sampling: Sampling | None = None, *, stop: Many[int] = (),
        seed: int = 0,
    ) -> list[Generation]:  # fmt: skip
        """As `generate` for each prompt, with the seeds seed, seed + 1, ...: the prompts one by one, then a token of
        each at a time where the decoder's inputs allow a batch (`can_batch`), else one text after the other."""
        if self.guess:
            raise EnvironmentProblem("guesses are for one text at a time", where={"flag": "--guess"},
                                     remedy="leave --guess out, or give one prompt")  # fmt: skip
        sampling, started = sampling or Sampling(), time.perf_counter()
        if not can_batch(self.decoder, [len(p) for p in prompts]) or most < 1 or not all(prompts):
            return [self.generate(p, most, sampling, stop=stop, seed=seed + n)[0] for n, p in enumerate(prompts)]
        randoms = [np.random.default_rng(seed + n) for n in range(len(prompts))]
        fed = [self._prefill(self.decoder.empty(), prompt) for prompt in prompts]
        made = [Generation(reason="length", batched=True, prefill_ms=(time.perf_counter() - started) * 1e3)
                for _ in prompts]  # fmt: skip
        batch, active = Batch(self.decoder, [s for _, s in fed]), list(range(len(prompts)))
        rows, first = np.stack([logits for logits, _ in fed]), time.perf_counter()
        capacity = self.decoder.roles.capacity
        while active:
            for logits, n in zip(rows, active, strict=True):
                known = (*prompts[n], *made[n].tokens)
                made[n].tokens.append(sampling.choose(logits, known, randoms[n]))
                made[n].ms_per_token = (time.perf_counter() - first) * 1e3 / max(len(made[n].tokens) - 1, 1)
                if made[n].tokens[-1] in stop:
                    made[n].reason = "stop"
                elif len(made[n].tokens) < most and capacity is not None and len(known) + 1 > capacity:
                    made[n].reason = "capacity"
            left = [at for at, n in enumerate(active) if made[n].reason == "length" and len(made[n].tokens) < most]
            if len(left) < len(active):
                batch.keep(left)
                active = [active[at] for at in left]
            if active:
                rows = batch.step([made[n].tokens[-1] for n in active])
        return made

    def _prefill(self, sequence: Sequence, prompt: Many[int]) -> tuple[np.ndarray, Sequence]:
        size = self.chunk or len(prompt)
        for start in range(0, len(prompt), size):
            logits, sequence = self.decoder.step(sequence, prompt[start : start + size])
        return logits[-1], sequence

    def _tokens(
        self, logits: np.ndarray, sequence: Sequence, sampling: Sampling, random: np.random.Generator,
        made: Generation, most: int,
    ) -> Iterator[tuple[int, Sequence]]:  # fmt: skip
        """Tokens, each with the sequence before it. Ends at the capacity."""
        capacity = self.decoder.roles.capacity
        if most < 1:
            return
        token = sampling.choose(logits, sequence.tokens, random)
        yield token, sequence
        while True:
            if capacity is not None and len(sequence) + 1 > capacity:
                made.reason = "capacity"
                return
            left = min(self.guess, most - len(made.tokens) - 1)
            draft = self._guesses.after((*sequence.tokens, token), left) if left > 0 else []
            if capacity is not None:
                draft = draft[: capacity - len(sequence) - 1]
            rows, longer = self.decoder.step(sequence, [token, *draft])
            for number in range(len(draft) + 1):
                known = longer.tokens[: len(sequence) + 1 + number]
                token = sampling.choose(rows[number - len(draft) - 1], known, random)
                if number < len(draft) and token == draft[number]:
                    made.accepted += 1
                    yield token, self._back(sequence, longer, len(known))
                    continue
                sequence = self._back(sequence, longer, len(known))
                yield token, sequence
                break

    def _back(self, before: Sequence, longer: Sequence, length: int) -> Sequence:
        """The first tokens of the longer sequence; those behind `before` run again where states cannot step back."""
        caches = self.decoder.roles.caches
        if length == len(longer) or not any(c.recurrent for c in caches):
            return longer.truncated(length, caches)
        return self.decoder.step(before, longer.tokens[len(before) : length])[1]
