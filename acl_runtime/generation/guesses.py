"""What may come next: tokens that a decoder then verifies several at a time. A wrong guess costs time, no token."""

from __future__ import annotations

from abc import ABC, abstractmethod

from acl_runtime.generation.decoder import Decoder
from acl_runtime.generation.sequence import Sequence
from tensor_types.errors import InvalidModel

_LONGEST_GRAM = 3
"""A guess continues the last place where up to this many last tokens stood before."""
_KEPT = 64
"""Steps that a draft with a recurrent state can go back at most; before that it begins anew."""


class Guesses(ABC):
    """Gives tokens that may follow a text."""

    @abstractmethod
    def after(self, tokens: tuple[int, ...], most: int) -> list[int]:
        """Up to `most` tokens."""


class PromptLookup(Guesses):
    """What stood behind the last place where the last tokens stood before (prompt lookup, Saxena 2023)."""

    def after(self, tokens: tuple[int, ...], most: int) -> list[int]:
        for size in range(min(_LONGEST_GRAM, len(tokens) - 1), 0, -1):
            if most <= 0:
                break
            tail = tokens[-size:]
            for at in range(len(tokens) - size - 1, -1, -1):
                if tokens[at : at + size] == tail:
                    return list(tokens[at + size : at + size + most])
        return []


class Draft(Guesses):
    """What a smaller decoder of the same vocabulary finds likeliest (Leviathan et al. 2023)."""

    def __init__(self, decoder: Decoder, model: Decoder) -> None:
        """InvalidModel if the tokens of the draft are not those of the model that verifies them."""
        mine, wanted = decoder.roles.vocabulary, model.roles.vocabulary
        if mine is not None and wanted is not None and mine != wanted:
            raise InvalidModel(f"the draft has a vocabulary of {mine}, the model one of {wanted}",
                               remedy="use a draft with the same tokenizer")  # fmt: skip
        self.decoder = decoder
        self._recurrent = any(c.recurrent for c in decoder.roles.caches)
        self._trail = [decoder.empty()]
        """Sequences that it can go on from, each a beginning of the next: the last one, which steps back, or, where a
        state is recurrent, that of each step."""

    def after(self, tokens: tuple[int, ...], most: int) -> list[int]:
        capacity = self.decoder.roles.capacity
        sequence = self._beginning(tokens)
        self._trail = [s for s in self._trail if len(s) <= len(sequence)] if self._recurrent else []
        found: list[int] = []
        fresh = tokens[len(sequence) :]
        while len(found) < most and (capacity is None or len(sequence) + len(fresh) <= capacity):
            logits, sequence = self.decoder.step(sequence, fresh)
            self._trail.append(sequence)
            found.append(int(logits[-1].argmax()))
            fresh = (found[-1],)
        self._trail = self._trail[-_KEPT if self._recurrent else -1 :] or [sequence]
        return found

    def _beginning(self, tokens: tuple[int, ...]) -> Sequence:
        """The longest sequence at hand that all tokens but the last one, or fewer, make."""
        if self._recurrent:
            fits = [s for s in self._trail if len(s) < len(tokens) and s.tokens == tokens[: len(s)]]
            return fits[-1] if fits else self.decoder.empty()
        last = self._trail[-1]
        pairs = enumerate(zip(last.tokens, tokens, strict=False))
        common = next((k for k, (a, b) in pairs if a != b), len(last))
        return last.truncated(min(common, len(tokens) - 1), self.decoder.roles.caches)
