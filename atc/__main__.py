"""`python -m atc` is `atc`."""

from atc.cli import main

main()
