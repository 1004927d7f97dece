"""Freed memory stays with the process, unless it is told otherwise."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from diptych.memory import keep_memory
print(keep_memory())
import torch
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(1 << 24)
before = faults()
for _ in range(5):
    torch.ones(1 << 24)  # 64 MiB: 16,384 pages
print(faults() - before)
"""


def faults(**environment: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's malloc, and this is another")
def test_freed_memory_is_used_again() -> None:
    kept, few = faults()
    left, many = faults(DIPTYCH_MALLOC="system", MALLOC_MMAP_THRESHOLD_="1048576")
    assert (kept, left) == ("True", "False")
    assert few < many / 10
