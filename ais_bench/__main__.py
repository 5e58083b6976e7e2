"""`python -m ais_bench`."""

import sys

from ais_bench.command import main

if __name__ == "__main__":
    sys.exit(main())
