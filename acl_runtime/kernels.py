"""Native code for the tile programs of a package: from this machine's cache, else compiled here.

Beside each object the cache keeps the facts of its program (`KernelFacts`), taken from the verified text, so that
loading needs neither parse nor lower anything. Object files in a package run only if their digest is trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from acl_runtime.executor import LoadedCode, load_object
from acl_runtime.om import PackageError, trust
from acl_runtime.om.trust import is_trusted, record_trusted
from codegen.llvm.cache import ObjectCache
from codegen.llvm.lower import scratch_bytes, symbol_name
from codegen.targets import target
from codegen.tile.ir import Param, Program
from codegen.tile.text import parse_program, program_to_text
from codegen.tile.verifier import verify
from tensor_types.dims import Dim, parse, product
from tensor_types.errors import InvalidModel

_FACTS = b"facts 1\n"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KernelFacts:
    """What binding has to know of a program: (role, bytes) of parameters, (name, low, high) of dims, the grid."""

    symbol: str
    scratch_bytes: int
    params: tuple[tuple[str, Dim], ...]
    dims: tuple[tuple[str, int, int | None], ...]
    grid: Dim

    def to_json(self) -> bytes:
        return json.dumps(
            [self.symbol, self.scratch_bytes, [[r, str(b)] for r, b in self.params], self.dims, str(self.grid)]
        ).encode()

    @staticmethod
    def from_json(data: bytes) -> KernelFacts:
        symbol, scratch, params, dims, grid = json.loads(data)
        return KernelFacts(
            symbol,
            scratch,
            tuple((r, parse(b)) for r, b in params),
            tuple((n, lo, hi) for n, lo, hi in dims),
            parse(grid),
        )


@dataclass(frozen=True, eq=False)
class Kernel:
    """A program's code in this process and its facts; the code stays loaded as long as this object lives."""

    facts: KernelFacts
    code: LoadedCode

    @property
    def address(self) -> int:
        return self.code[self.facts.symbol]


_loaded: weakref.WeakValueDictionary[tuple[str, str], Kernel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def compile_programs(texts: Sequence[str], host: str, workers: int | None = None) -> list[bytes]:
    """Objects of program texts, in order, from the cache or compiled into it."""
    cache = ObjectCache()
    objects = cache.compile([t.encode() for t in texts], host, workers)
    for text, code in zip(texts, objects, strict=True):
        _facts(text, host, cache)
        # Without a safe, writable cache nothing is trusted: the objects are made again when the package is loaded.
        with contextlib.suppress(PackageError):
            record_trusted(trust_digest(text, host, code))
    return objects


def trust_digest(text: str, host: str, code: bytes) -> str:
    """What is trusted is an object for its own program and class: a genuine object beside another text is not."""
    parts = (hashlib.sha256(part).digest() for part in (text.encode(), host.encode(), code))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def objects_digest(texts: Sequence[str], host: str, objects: Sequence[bytes]) -> str:
    """What a package's signature signs: every object for its own program and class, in order."""
    digests = "".join(trust_digest(t, host, o) for t, o in zip(texts, objects, strict=True))
    return hashlib.sha256(b"objects\0" + digests.encode()).hexdigest()


def signature_verdict(texts: Sequence[str], host: str, objects: Sequence[bytes], signature: bytes) -> trust.Verdict:
    """Whether a key that the user trusts signed the objects of a package, and why or why not."""
    if len(objects) != len(texts):
        return trust.Verdict(False, "it has not one object per program")
    return trust.verify(objects_digest(texts, host, objects), signature, trust.trusted_keys())


def load_kernels(
    texts: Sequence[str], host: str, objects: Sequence[bytes] | None = None, signature: bytes | None = None
) -> tuple[list[Kernel], int]:
    """Kernels of program texts, and how many programs had to be compiled for that.

    `objects` are those of the package, in the same order; each is used only if it is trusted, all of them if
    `signature` is. InvalidModel if a text is no sound program.
    """
    cache = ObjectCache()
    with _lock:
        facts = {t: _facts(t, host, cache) for t in dict.fromkeys(texts)}
        found: dict[str, bytes] = {}
        signed: trust.Verdict | None = None
        for number, text in enumerate(texts):
            if text in found or (text, host) in _loaded:
                continue
            code = cache.get(text.encode(), host)
            if code is None and objects is not None:
                if is_trusted(trust_digest(text, host, objects[number])):
                    code = objects[number]
                elif signature is not None:
                    if signed is None:
                        signed = signature_verdict(texts, host, objects, signature)
                    code = objects[number] if signed else None
            if code is not None:
                found[text] = code
        if signed is not None and not signed:
            _log.warning("the package's native code is made again: %s", signed.reason)
        missing = [t for t in facts if t not in found and (t, host) not in _loaded]
        found.update(zip(missing, cache.compile([t.encode() for t in missing], host), strict=True))
        kernels: dict[str, Kernel] = {}
        for text, fact in facts.items():
            kernel = _loaded.get((text, host))
            if kernel is None:
                kernel = Kernel(fact, load_object(found[text], [fact.symbol]))
                _loaded[text, host] = kernel
            kernels[text] = kernel
    return [kernels[t] for t in texts], len(missing)


def _facts(text: str, host: str, cache: ObjectCache) -> KernelFacts:
    key = _FACTS + text.encode()
    known = cache.get(key, host)
    if known is not None:
        return KernelFacts.from_json(known)
    program = _verified(text, host)
    facts = KernelFacts(
        symbol_name(program),
        scratch_bytes(program, host),
        tuple((p.role, _bytes(p)) for p in program.params),
        tuple((d.name, d.low, d.high) for d in program.dims),
        program.grid_size(),
    )
    cache.put(key, host, facts.to_json())
    return facts


def _verified(text: str, host: str) -> Program:
    """The program of a text, if it is its canonical text and passes the verifier."""
    try:
        program = parse_program(text)
    except ValueError as error:
        raise InvalidModel(
            f"a tile program of the package is not valid: {error}", remedy="convert the model again"
        ) from error
    if program_to_text(program) != text:
        raise InvalidModel("a tile program of the package is not in canonical form", remedy="convert the model again")
    verify(program, target(host))
    return program


def _bytes(param: Param) -> Dim:
    """Bytes from the first to the last element of a parameter."""
    if param.strides is None:
        return product(param.shape) * param.dtype.bytes
    last: Dim = 0
    for extent, stride in zip(param.shape, param.strides, strict=True):
        last = last + (extent - 1) * stride
    return (last + 1) * param.dtype.bytes
