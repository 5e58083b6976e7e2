"""`python -m ais_bench`."""

import signal
import sys

from ais_bench.command import main
from tensor_types.interrupts import end_promptly

if __name__ == "__main__":
    end_promptly({signal.SIGINT: 130})
    sys.exit(main())
