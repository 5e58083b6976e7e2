"""The one base of every error that a user is meant to read: code, place, cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tensor_types.error_codes import ERROR_CODES

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with characters that would steer a terminal, or that it cannot show, written as escapes.

    Names come from files: a tensor called ESC[2J must not clear the screen of whoever reads the message.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


class OpenAtcError(Exception):
    """An error with a code, the place where it arose and what to do about it.

    `where` uses the keys node, op, tensor and flag; absent ones are left out. Codes are those of `error_codes`.
    """

    default_code = "E13014"

    def __init__(
        self, message: str, *, code: str | None = None, where: Mapping[str, str] | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.where = dict(where or {})
        self.remedy = remedy

    @property
    def exit_code(self) -> int:
        """What a command that ends with this error returns."""
        return ERROR_CODES[self.code].exit_code

    def __str__(self) -> str:
        place = ", ".join(f"{key} {value}" for key, value in self.where.items())
        text = f"{self.code}: {self.message}"
        if place:
            text += f" [{place}]"
        if self.remedy:
            text += f" ({self.remedy})"
        return visible(text)


class InvalidModel(OpenAtcError):
    """The model or an input breaks a rule of ONNX or of the model itself."""


class UnsupportedOperator(OpenAtcError):
    """No kernel and no AI CPU implementation exists for a node."""

    default_code = "E16002"


class ResourceLimit(OpenAtcError):
    """Memory, disk or a stated size limit is exhausted."""

    default_code = "E14001"


class EnvironmentProblem(OpenAtcError):
    """The machine lacks something that is needed: a package, a CPU feature, a file permission."""

    default_code = "E13024"
