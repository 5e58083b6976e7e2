"""Native code for the tile programs of a package: from this machine's cache, else compiled here.

Beside each object the cache keeps the facts of its program (`KernelFacts`), taken from the verified text, so that
loading needs neither parse nor lower anything. Object files in a package run only if their digest is trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acl_runtime.om import PackageError, trust
from acl_runtime.om.trust import is_trusted, record_trusted
from codegen.llvm.bounds_checks import CHECKED, sanitised
from codegen.llvm.cache import ObjectCache
from codegen.llvm.kernel_image import KernelFacts, unpack_image
from codegen.llvm.sound_program import read_program

if TYPE_CHECKING:
    from acl_runtime.executor import LoadedCode

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A program's code in this process and its facts; the code stays loaded as long as this object lives, and so does
    that of the programs that were loaded with it."""

    facts: KernelFacts
    code: LoadedCode

    @property
    def address(self) -> int:
        return self.code[self.facts.symbol]


_loaded: weakref.WeakValueDictionary[tuple[str, str], Kernel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class ProgramCompilation:
    """Program texts on their way to kernel images: from the cache, or compiled into it in the background.

    `compiled` of them are not from the cache. What is compiled here is trusted from now on.
    """

    def __init__(self, texts: Iterable[str], host: str) -> None:
        self._texts, self._host = list(dict.fromkeys(texts)), host
        self._images = ObjectCache().begin([t.encode() for t in self._texts], host)
        self.compiled = len(self._images.missing)

    def result(self) -> dict[str, bytes]:
        """The images by text. InvalidModel or VerifyError for a text that is no sound program, CompileError for one
        that cannot be compiled."""
        images = dict(zip(self._texts, self._images.result(), strict=True))
        for text, image in images.items():
            # Without a safe, writable cache nothing is trusted: images are made again when the package is loaded.
            with contextlib.suppress(PackageError):
                record_trusted(trust_digest(text, self._host, image))
        return images


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
    texts: Sequence[str], host: str, images: Callable[[], Sequence[bytes]] | None = None, signature: bytes | None = None
) -> tuple[list[Kernel], int]:
    """Kernels of program texts, and how many programs had to be compiled for that.

    `images` gives those of the package, in the same order, and is asked if the cache lacks one; each is used only if it
    is trusted, all of them if `signature` is. With OPENATC_SANITISE all code is made here, and checks every access.
    InvalidModel or VerifyError if a text is no sound program.
    """
    from acl_runtime.executor import load_objects  # with LLVM, which compiling elsewhere does not need here

    if sanitised():
        host, images = host + CHECKED, None  # those of the package check nothing
    with _lock:
        loaded = {t: kernel for t in dict.fromkeys(texts) if (kernel := _loaded.get((t, host))) is not None}
        found = _images(texts, host, images, signature, known=loaded)
        missing = [t for t in dict.fromkeys(texts) if t not in loaded and t not in found]
        made = ProgramCompilation(missing, host).result()
        found.update((text, unpack_image(image)) for text, image in made.items())
        if found:
            code = load_objects([c for _, c in found.values()], [facts.symbol for facts, _ in found.values()])
            for text, (facts, _) in found.items():
                loaded[text] = _loaded[text, host] = Kernel(facts, code)
    return [loaded[t] for t in texts], len(missing)


def _images(
    texts: Sequence[str], host: str, images: Callable[[], Sequence[bytes]] | None, signature: bytes | None,
    known: Collection[str],
) -> dict[str, tuple[KernelFacts, bytes]]:
    """Facts and objects of the texts that the cache or the package has code for that may run."""
    cache = ObjectCache()
    found: dict[str, tuple[KernelFacts, bytes]] = {}
    signed: trust.Verdict | None = None
    held: Sequence[bytes] | None = None
    for number, text in enumerate(texts):
        if text in found or text in known:
            continue
        image = cache.get(text.encode(), host)
        if image is None and images is not None:
            held = images() if held is None else held
            if is_trusted(trust_digest(text, host, held[number])):
                image = held[number]
            elif signature is not None:
                if signed is None:
                    signed = signature_verdict(texts, host, held, signature)
                if signed:
                    read_program(text, host)  # who signs vouches for the code, not for the program
                    image = held[number]
        if image is not None:
            with contextlib.suppress(ValueError):  # of an older version: it is made again
                found[text] = unpack_image(image)
    if signed is not None and not signed:
        _log.warning("the package's native code is made again: %s", signed.reason)
    return found
