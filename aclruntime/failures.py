"""The one kind of exception that leaves the module."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from acl_runtime.device import DeviceError
from tensor_types.errors import OpenAtcError

_F = TypeVar("_F", bound=Callable[..., Any])


def runtime_errors(body: _F) -> _F:
    """Lets a function raise RuntimeError, with the code in the text, instead of the runtime's own kinds."""

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return body(*args, **kwargs)
        except DeviceError as error:
            raise RuntimeError(f"[{int(error.code)}] {error.message}") from error
        except OpenAtcError as error:
            raise RuntimeError(str(error)) from error

    return call  # type: ignore[return-value]
