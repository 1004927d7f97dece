"""`python -m diptych`, and `torchrun --nproc-per-node 2 -m diptych`."""

from diptych.cli import main

main()
