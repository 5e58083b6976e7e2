"""`atc generate`: opens a decoder in any of its forms, and a tokenizer where there is one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acl_runtime import InferSession
from acl_runtime.generation import Decoder, Names
from acl_runtime.generation.folder import TOKENIZER, read_folder
from atc.conversion import convert
from atc.options import Options
from atc.usage import UsageError
from tensor_types.array_files import read_array
from tensor_types.errors import EnvironmentProblem, InvalidModel

_NO_STATES = "E10064"


@dataclass(frozen=True)
class OpenedModel:
    """A decoder ready to run, tokens that end a text, and the tokenizer's file."""

    decoder: Decoder
    stop: tuple[int, ...]
    tokenizer: Path | None


def open_decoder(
    path: Path, threads: int, precision_mode: str, cleanup: ExitStack, capacity: int = 0
) -> OpenedModel:
    """A package, an ONNX file, or a folder with genai_config.json. OpenAtcError as `atc convert` has it.

    Caches of an ONNX file become states of `capacity` rows where they are written and not joined; 0: none does.
    """
    folder = read_folder(path) if path.is_dir() else None
    file = folder.decoder if folder else path
    if file.suffix == ".onnx":
        place = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "decoder.om"
        mode = {"precision_mode": precision_mode} if precision_mode else {}
        try:
            convert(file, place, Options.of({**mode, "cache_capacity": str(capacity)}))
        except InvalidModel as error:
            if error.code != _NO_STATES:
                raise
            convert(file, place, Options.of(mode))
        file = place
    session = InferSession(0, file, threads=threads)
    if folder:
        return OpenedModel(Decoder(session, folder.names), folder.stop, folder.tokenizer)
    beside = path.parent / TOKENIZER
    return OpenedModel(Decoder(session, Names()), (), beside if beside.is_file() else None)


def read_tokens(path: Path) -> list[int]:
    """Token ids of an .npy file of integers, of any shape with one row. UsageError."""
    try:
        array = read_array(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", where={"flag": "--prompt-tokens"},
                         remedy="give an .npy file of token ids") from error  # fmt: skip
    if array.dtype.kind not in "iu" or array.size != max(array.shape, default=1) or not array.size:
        raise UsageError(
            f"{path} holds {array.dtype}{list(array.shape)}", where={"flag": "--prompt-tokens"},
            remedy="give one row of integers",
        )  # fmt: skip
    return [int(t) for t in array.reshape(-1)]


class Words:
    """Text and tokens of a `tokenizer.json`. EnvironmentProblem without the `tokenizers` package."""

    def __init__(self, path: Path | None) -> None:
        if path is None:
            raise UsageError("there is no tokenizer.json beside the model", where={"flag": "--prompt"},
                             remedy="put it there, or give --prompt-tokens p.npy")  # fmt: skip
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise EnvironmentProblem(
                "text needs the package tokenizers", where={"flag": "--prompt"},
                remedy="pip install openatc[text], or give --prompt-tokens",
            ) from error  # fmt: skip
        self._path = path
        with self._asked():
            self._tokenizer: Any = Tokenizer.from_file(str(path))
            # A prompt is as long as its text, whatever training left in the file.
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()

    def tokens(self, text: str) -> list[int]:
        with self._asked():
            return list(self._tokenizer.encode(text).ids)

    def text(self, tokens: Sequence[int]) -> str:
        with self._asked():
            return str(self._tokenizer.decode(list(tokens)))

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # bare Exceptions of the package, and panics, which are none
            raise InvalidModel(f"{self._path} is no tokenizer: {error}",
                               remedy="export the tokenizer again") from error  # fmt: skip


class Stream:
    """The text of tokens as they come, told piece by piece, until a stop string is in it."""

    def __init__(self, words: Words, stops: Sequence[str]) -> None:
        self._words, self._stops = words, stops
        self._tokens: list[int] = []
        self.text = ""

    def add(self, token: int) -> tuple[str, bool]:
        """What the token adds, and whether a stop string ended the text. An unfinished character waits."""
        self._tokens.append(token)
        whole = self._words.text(self._tokens)
        ends = [at for s in self._stops if (at := whole.find(s)) >= 0]
        if ends:
            whole = whole[: min(ends)]
        elif whole.endswith("\ufffd"):
            return "", False
        piece, self.text = whole[len(self.text) :], whole
        return piece, bool(ends)
