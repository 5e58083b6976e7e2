"""Several sequences in one batch, each with a length of its own: one step gives one token to each.

Growing caches are as long as the longest sequence. A decoder that is told positions has the padding in front, so that
new rows stand at the end of all; one that counts the mask (GroupQueryAttention) has it behind, and writes each
sequence's row at its own end.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np

from acl_runtime.generation.decoder import Decoder
from acl_runtime.generation.roles import Cache
from acl_runtime.generation.sequence import Sequence


def can_batch(decoder: Decoder, lengths: Many[int]) -> bool:
    """Whether sequences of these lengths may share a batch of the decoder."""
    roles = decoder.roles
    open_batch = roles.tokens.shape is None or isinstance(roles.tokens.shape[0], str)
    if not open_batch or roles.states or not roles.caches or roles.branch is not None or len(lengths) < 2:
        return False
    flat = roles.positions is not None and roles.positions.shape is not None and len(roles.positions.shape) == 1
    recurrent = all(c.recurrent for c in roles.caches)
    return recurrent or len(set(lengths)) == 1 or (roles.mask is not None and not flat)


class Batch:
    """Sequences that go on together. A step that fails leaves them as they were."""

    def __init__(self, decoder: Decoder, sequences: Many[Sequence]) -> None:
        self.decoder = decoder
        self.lengths = [len(s) for s in sequences]
        self.rows = max(self.lengths)
        """Extent of caches that grow; rows in use of those that do not."""
        self._grows = any(c.axis is not None for c in decoder.roles.caches)
        self._in_front = decoder.roles.positions is not None and self._grows
        self._caches = [
            np.concatenate([self._padded(s.caches[k], kind) for s in sequences])
            for k, kind in enumerate(decoder.roles.caches)
        ]

    def step(self, tokens: Many[int]) -> np.ndarray:
        """Logits f32 [sequences, vocabulary] behind one more token of each. OpenAtcError as `Decoder.step` has it."""
        roles = self.decoder.roles
        self.decoder.check_tokens(tokens, max(self.lengths) + 1)
        feeds: dict[str, np.ndarray] = {roles.tokens.name: np.array(tokens, roles.tokens.dtype)[:, None]}
        ends = np.array(self.lengths)[:, None] + 1
        if roles.mask is not None:
            fixed = roles.mask.shape[1] if roles.mask.shape is not None else None
            places = np.arange(fixed if isinstance(fixed, int) else self.rows + 1)[None]
            seen = places >= self.rows + 1 - ends if self._in_front else places < ends
            feeds[roles.mask.name] = seen.astype(roles.mask.dtype)
        if roles.positions is not None:
            flat = roles.positions.shape is not None and len(roles.positions.shape) == 1
            feeds[roles.positions.name] = (ends[0] - 1 if flat else ends - 1).astype(roles.positions.dtype)
        feeds.update(zip((c.past for c in roles.caches), self._caches, strict=True))
        outputs = self.decoder.session.infer(feeds)
        logits = np.asarray(outputs[roles.logits], np.float32)[:, -1]
        self.decoder.check_logits(logits, self.rows + 1)
        self._caches = [outputs[c.output] for c in roles.caches]
        self.lengths, self.rows = [n + 1 for n in self.lengths], self.rows + 1
        return logits

    def keep(self, rows: Many[int]) -> None:
        """Goes on with these sequences alone."""
        self._caches = [c[list(rows)] for c in self._caches]
        self.lengths = [self.lengths[r] for r in rows]
        if not self._grows:
            self.rows = max(self.lengths, default=0)

    def _padded(self, array: np.ndarray, kind: Cache) -> np.ndarray:
        if kind.axis is None:
            return array
        missing = self.rows - array.shape[kind.axis]
        pads = [(0, 0)] * array.ndim
        pads[kind.axis] = (missing, 0) if self._in_front else (0, missing)
        return np.pad(array, pads)
