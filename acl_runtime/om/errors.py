"""The error of the package layer."""

from __future__ import annotations

from tensor_types.errors import OpenAtcError


class PackageError(OpenAtcError):
    """A package cannot be read, written or trusted; the remedy says what to do about it."""

    default_code = "E13005"
