"""`python -m models list | get NAME ... | get NAME -o FILE | all`: shows the models, or brings them into the cache.

Prints the path of each; with -o copies one model to FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path

from acl_runtime.om.errors import PackageError
from models import registry


def main(arguments: list[str]) -> int:
    match arguments:
        case ["list"]:
            for row in registry.listing():
                print(f"{row['name']:22} {row['origin']:8} {registry.shown_dims(row):32} {row['summary']}")
            return 0
        case ["all"]:
            wanted = registry.names()
        case ["get", name, "-o", target]:
            try:
                registry.copy(name, Path(target))
            except PackageError as error:
                print(f"{error.message}: {error.remedy}", file=sys.stderr)
                return 1
            except (registry.ModelUnavailable, KeyError) as error:
                print(f"{name}: {error.args[0]}", file=sys.stderr)
                return 1
            print(target)
            return 0
        case ["get", _, *_]:
            wanted = arguments[1:]
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    failures = 0
    for name in wanted:
        try:
            print(registry.get(name), flush=True)
        except (registry.ModelUnavailable, KeyError) as error:
            failures += 1
            print(f"{name}: {error.args[0]}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
