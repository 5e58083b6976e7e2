"""`atc explain`: one code, of openatc or of ATC."""

from __future__ import annotations

from typing import Any

from atc.foreign_codes import FOREIGN_CODES
from atc.usage import UsageError, did_you_mean
from tensor_types.error_codes import ERROR_CODES


def explanation(code: str) -> dict[str, Any]:
    """What a code means, its remedy and, where openatc gives it, the exit code. UsageError for an unknown one."""
    wanted = code.strip().upper()
    if wanted in ERROR_CODES:
        known = ERROR_CODES[wanted]
        return {"code": wanted, "meaning": known.meaning, "remedy": known.remedy, "exit code": known.exit_code}
    if wanted in FOREIGN_CODES:
        meaning, remedy = FOREIGN_CODES[wanted]
        return {"code": wanted, "meaning": meaning, "remedy": remedy}
    guess = did_you_mean(wanted, (*ERROR_CODES, *FOREIGN_CODES))
    raise UsageError(f"{code} is no code of openatc or ATC", remedy=f"{guess}docs/errors.md lists all")
