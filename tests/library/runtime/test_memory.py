"""Freed memory stays with the process, unless it is told otherwise."""

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from diptych import cli
from diptych.runtime.memory import VARIABLE, is_spent, wait_briefly
from tests.support import zygote

# Of tests/conftest.py, which has its own.
PLAIN = {name: value for name, value in os.environ.items() if name not in {VARIABLE, "LRU_CACHE_CAPACITY"}}
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
FAULTS = """
import resource, sys
from diptych.runtime.memory import keep_freed_memory
print(keep_freed_memory())
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
        [sys.executable, "-c", FAULTS],  # an interpreter: malloc as it starts
        env=PLAIN | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's malloc, and this is another")
def test_freed_memory_is_used_again() -> None:
    kept, few = faults()
    left, many = faults(DIPTYCH_MALLOC="system", MALLOC_MMAP_THRESHOLD_="1048576")
    assert (kept, left) == ("True", "False")
    assert few < many / 10


ARENAS = """
import sys, threading, xml.etree.ElementTree as tree, ctypes, tempfile
from diptych.runtime.memory import share_one_arena
if sys.argv[1] == "shared":
    assert share_one_arena()
held, done = [], threading.Barrier(9)
def allocate():
    held.append(bytes(100))
    held.append(bytearray(100_000))
    done.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
done.wait()
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    written = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(written))
    libc.fclose(ctypes.c_void_p(written))
    print(len(tree.parse(file.name).findall("heap")))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's malloc, and this is another")
def test_threads_allocate_from_one_place() -> None:
    def arenas(way: str) -> int:
        command = [sys.executable, "-c", ARENAS, way]  # an interpreter: malloc as it starts
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=PLAIN)
        return int(done.stdout)

    assert arenas("apart") > 1
    assert arenas("shared") == 1


@pytest.mark.parametrize("verb", ["pretrain", "serve"])
def test_threads_of_every_verb_wait_briefly(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    for name in WAITING:
        monkeypatch.setenv(name, "")  # so that both are set back
        monkeypatch.delenv(name)
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: True)
    monkeypatch.setattr("sys.argv", ["diptych", verb, "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert os.environ["GOMP_SPINCOUNT"] == "3000"


@pytest.mark.parametrize("given", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_wait_as_the_user_has_set(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    monkeypatch.setattr(os, "environ", dict(given))
    wait_briefly()
    assert os.environ == given


LIMITED = """
import resource, sys
from pathlib import Path
from diptych import cli
# What is imported late.
import json, rich, typer, torch._dynamo, diptych.runs.evaluation.evaluate, diptych.runs.reports.tables
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.argv = ["diptych", "score", sys.argv[1], "--references", sys.argv[1]]
cli.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit as Linux has it")
def test_memory_at_its_limit_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text("[" + "[1, 2], " * 3_000_000 + "1]")
    done = zygote.run(["-c", LIMITED, tmp_path / "large.json"])
    assert done.returncode == 1
    assert done.stderr.startswith("diptych: memory is at its limit (MemoryError); use less at once: ")
    assert done.stderr.count("\n") == 1


def test_all_words_for_want_of_memory_are_known() -> None:
    with pytest.raises(RuntimeError) as by_torch:
        torch.empty(2**50)
    assert is_spent(by_torch.value)
    assert is_spent(MemoryError())
    assert is_spent(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not is_spent(RuntimeError("shapes differ"))
    assert not is_spent(OSError(errno.ENOSPC, "No space left on device"))
