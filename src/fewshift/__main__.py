"""`python -m fewshift` is the `fewshift` command."""

from fewshift.cli import main

main()
