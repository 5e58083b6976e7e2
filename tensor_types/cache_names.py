"""Names of a decoder's caches: the input that takes what a run before has kept, and the output that gives it on.

Exporters call them alike but for one word: `past_key_values.3.key` and `present.3.key`, `cache_in_0` and `cache_out_0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PAST = re.compile(r"past_key_values|past_key_value|past_kv|past_states?|past|cache_in", re.I)
_PRESENT = re.compile(r"present_key_values|present_key_value|present_kv|present_states?|present|past|cache_out", re.I)


def paired(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """By input, the output whose name is the same behind the word for past or present; inputs without one left out."""
    presents = {_rest(_PRESENT, name): name for name in outputs if _PRESENT.search(name)}
    pasts = {name: _rest(_PAST, name) for name in inputs if _PAST.search(name)}
    return {name: presents[rest] for name, rest in pasts.items() if rest in presents}


def _rest(word: re.Pattern[str], name: str) -> str:
    return word.sub("", name, count=1).strip("._/")
