"""One step of a decoder: tokens and a sequence in, logits and the longer sequence out."""

from __future__ import annotations

import os
from collections.abc import Sequence as Many
from pathlib import Path

import numpy as np

from acl_runtime.generation.folder import read_folder
from acl_runtime.generation.held_caches import HeldCaches
from acl_runtime.generation.roles import Names, roles_of
from acl_runtime.generation.sequence import Sequence
from acl_runtime.session import InferSession
from tensor_types.errors import InvalidModel, ResourceLimit


class Decoder:
    """A session seen as a decoder. A step that fails leaves the sequence that it was given as it was."""

    def __init__(self, session: InferSession, names: Names | None = None) -> None:
        self.session = session
        self.roles = roles_of(session, names)

    @classmethod
    def open(cls, path: str | os.PathLike[str], threads: int = 1) -> Decoder:
        """The decoder of a package, an ONNX model, or a folder with genai_config.json."""
        folder = read_folder(Path(path)) if Path(path).is_dir() else None
        return cls(InferSession(0, folder.decoder if folder else path, threads), folder.names if folder else None)

    def empty(self) -> Sequence:
        """A sequence without tokens."""
        held = HeldCaches.new(self.session) if self.roles.states else None
        return Sequence((), tuple(c.empty() for c in self.roles.caches), held)

    def step(self, sequence: Sequence, tokens: Many[int]) -> tuple[np.ndarray, Sequence]:
        """Logits f32 [rows, vocabulary] (of every token, or of the last one as the model gives them), and the sequence
        with the tokens. InvalidModel for a token outside of the vocabulary or logits that are no numbers, ResourceLimit
        beyond the capacity."""
        self._check(sequence, tokens)
        roles = self.roles
        history = sequence.tokens if not (roles.caches or roles.states) else ()
        fed = np.array([[*history, *tokens]], roles.tokens.dtype)
        start, count = len(sequence) - len(history), fed.shape[1]
        feeds: dict[str, np.ndarray] = {roles.tokens.name: fed}
        if roles.mask is not None:
            # One extent for all steps where the model lets it be: sizes that stay need no new binding.
            whole = roles.capacity is not None and (roles.states or _is_fixed(roles.mask.shape))
            total = roles.capacity if whole and roles.capacity is not None else start + count
            mask = np.zeros((1, total), roles.mask.dtype)
            mask[:, : start + count] = 1
            feeds[roles.mask.name] = mask
        if roles.positions is not None:
            places = np.arange(start, start + count).astype(roles.positions.dtype)
            one_axis = roles.positions.shape is not None and len(roles.positions.shape) == 1
            feeds[roles.positions.name] = places if one_axis else places[None]
        if roles.branch is not None:
            feeds[roles.branch.name] = np.full(_static(roles.branch.shape), start > 0, roles.branch.dtype)
        for cache, array in zip(roles.caches, sequence.caches if roles.caches else (), strict=True):
            feeds[cache.past] = array
        held = self._buffers(sequence)
        outputs = self.session.infer(feeds, state=held.state if held is not None else None)
        logits = np.asarray(outputs[roles.logits], np.float32)[0]
        self.check_logits(logits[-1:], start + count)
        caches = tuple(outputs[c.output] for c in roles.caches)
        return logits, Sequence((*sequence.tokens, *tokens), caches, held)

    def _buffers(self, sequence: Sequence) -> HeldCaches | None:
        """Where the caches of the longer sequence are written; None if they are outputs."""
        if sequence.held is not None:
            return sequence.held.to_continue(sequence)
        if not self.roles.states:
            return None
        held = HeldCaches.new(self.session)
        held.fill(sequence.caches)  # one that was saved
        return held

    def _check(self, sequence: Sequence, tokens: Many[int]) -> None:
        roles = self.roles
        if not tokens:
            raise InvalidModel("there is no token to go on with", remedy="give at least one")
        self.check_tokens(tokens, len(sequence) + len(tokens))
        stateless = len(sequence.caches) == len(roles.caches or roles.states) and sequence.held is None
        if not stateless and (sequence.held is None or not roles.states):
            raise InvalidModel("the sequence is of another model", remedy="start with an empty one")

    def check_logits(self, logits: np.ndarray, length: int) -> None:
        """InvalidModel where a row of logits behind that many tokens has NaN, or nothing finite."""
        if np.isnan(logits).any() or not np.isfinite(logits).any(axis=-1).all():
            raise InvalidModel(
                f"the logits behind token {length} are no numbers",
                where={"tensor": self.session.get_outputs()[self.roles.logits].name},
                remedy="atc compare tells where they are born; another --precision_mode may help",
            )

    def check_tokens(self, tokens: Many[int], length: int) -> None:
        """InvalidModel for a token outside of the vocabulary, ResourceLimit for more tokens than caches hold."""
        roles = self.roles
        for token in tokens:
            if token < 0 or (roles.vocabulary is not None and token >= roles.vocabulary):
                raise InvalidModel(
                    f"the token {token} is outside of the vocabulary of {roles.vocabulary}",
                    where={"tensor": roles.tokens.name}, remedy="use the tokenizer of this model",
                )  # fmt: skip
        if roles.capacity is not None and length > roles.capacity:
            raise ResourceLimit(
                f"{length} tokens do not fit into caches of {roles.capacity}",
                where={"tensor": (*roles.caches, *roles.states)[0].past},
                remedy="shorten the prompt, or convert or export with larger caches",
            )


def _is_fixed(shape: tuple[int | str, ...] | None) -> bool:
    return shape is not None and all(isinstance(d, int) for d in shape[1:])


def _static(shape: tuple[int | str, ...] | None) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 for d in shape or ())
