"""Tokens in, tokens out: decoders of language models, however their caches are spelt.

Takes packages and token ids, gives token ids. Knows sessions and numpy; a tokenizer and a folder's configuration are
read on request.
"""

from acl_runtime.generation.decoder import Decoder
from acl_runtime.generation.generator import Generation, Generator
from acl_runtime.generation.roles import Names
from acl_runtime.generation.sampling import Sampling
from acl_runtime.generation.sequence import Sequence

__all__ = ["Decoder", "Generation", "Generator", "Names", "Sampling", "Sequence"]
