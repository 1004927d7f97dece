"""`python -m diptych.cli`."""

from diptych.cli import main

main()
