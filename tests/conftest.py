"""Shapes and types of signatures are checked at run time, in tests only (support/checking.py); memory is bounded."""

import ctypes
import faulthandler
import gc
import os
import platform
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Before torch is imported: a worker gives freed memory back, and keeps code for 128 shapes of products.
os.environ |= {"DIPTYCH_MALLOC": "system", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # its own pool keeps 100 MB of what mining read

with suppress(AttributeError, OSError):  # glibc's malloc.h: one arena for all threads, blocks of 4 MiB go back at once
    LIBC = ctypes.CDLL(None)
    LIBC.mallopt(-8, 1)
    LIBC.mallopt(-3, 4 << 20)

from tests.support import checking
from tests.support.protocols import see_submodules

CHECKED = (  # where tensors are
    "core", "vision", "data.store", "objectives", "models", "metrics", "tasks",
    *(f"systems.{name}" for name in ("unified_vlp", "vl_bert", "image_bert", "tden", "xgpt")),
)  # fmt: skip
if sys.version_info >= (3, 12):
    see_submodules()
checking.install([*(f"diptych.{package}" for package in CHECKED), "diptych_world.detector"])

import psutil  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

gc.set_threshold(10_000, 20, 20)
os.fsync = lambda fd: None  # no test cuts the power: a process that is killed loses nothing of what it wrote
torch.set_num_threads(1)
os.environ.setdefault("DIPTYCH_PRECISION", "fp32")  # what processes of a test compute is the same on every machine
REPOSITORY = Path(__file__).parent.parent


MOST_MEMORY = 2.5  # GB of a worker at its peak; 2 is wanted
MUCH_MEMORY, MORE_MEMORY = 1.1e9, 0.1e9  # bytes: from which on some is given back, and how many more since last time
SLOW = 20  # tests that take as long as one marked `slow`
LONGEST = 1_000  # seconds; the limits of pytest-timeout are below
_stderr = [2]  # and where it leads while pytest replaces 2
_peaks: list[tuple[float, str]] = []  # of each process, and the module that it rose in
_kept = 0  # bytes of this process after it had given some back, which takes a fifth of a second
_risen = ""  # the module that the peak of this process rose in


def pytest_configure() -> None:
    _stderr[:] = [os.dup(2)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    checking.begin(learns=item.get_closest_marker("learns") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    """End the worker of a test that pytest-timeout's exception did not end: it may be caught, or code in C may wait."""
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=_stderr[0])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with large tests come first, while a worker is small; then those that take long, so that both end at once.

    A `slow` test takes as long as dozens of others.
    """
    counts = Counter[Path]()
    for item in items:
        counts[item.path] += SLOW if item.get_closest_marker("slow") else 1
    large = {item.path for item in items if item.get_closest_marker("large") is not None}
    items.sort(key=lambda item: (item.path not in large, -counts[item.path]))


def pytest_collection_finish() -> None:
    """A million objects of tests and modules live to the end: the collector passes them over from here on."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked `large` in a fork, whose memory goes with it."""
    if pyfuncitem.get_closest_marker("large") is None:
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with tempfile.TemporaryFile("w+") as said:
        if (child := os.fork()) == 0:
            code = 1
            try:
                pyfuncitem.obj(**given)
                code = 0
            except BaseException:
                traceback.print_exc(file=said)
                said.flush()
            finally:
                os._exit(code)
        failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        if failed:
            pytest.fail(f"in a fork, exit code {failed}:\n{said.read()}", pytrace=False)
    return True


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """glibc keeps freed blocks: 4 GB of them where a module of large models went before."""
    global _kept, _risen  # noqa: PLW0603
    before = peak()
    yield
    _risen = request.module.__name__ if peak() > before else _risen
    if memory() > max(MUCH_MEMORY, _kept + MORE_MEMORY):
        gc.collect()
        with suppress(AttributeError, OSError):
            LIBC.malloc_trim(0)
        _kept = memory()


def memory() -> int:
    """Bytes of this process."""
    resident: int = psutil.Process().memory_info().rss
    return resident


def peak() -> float:
    """GB of this process, its children left out."""
    unit = 1e9 if platform.system() == "Darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def pytest_testnodedown(node: pytest.Session) -> None:
    _peaks.append(tuple(getattr(node, "workeroutput", {}).get("peak", (0.0, ""))))


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    gc.unfreeze()  # at the interpreter's end libraries count what was not freed
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = [peak(), _risen]
        return
    _peaks.append((peak(), _risen))
    if max(_peaks)[0] > MOST_MEMORY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a test when it fails: a run goes on for minutes, and xdist prints no more than an F."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        os.write(_stderr[0], f"\nFAILED {report.nodeid}\n".encode())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    most, where = max([(peak(), _risen), *_peaks])
    wrong = most > MOST_MEMORY
    said = f"{'FAILED: ' if wrong else ''}memory of a worker at its peak: {most:.2f} GB, at most {MOST_MEMORY}; {where}"
    terminalreporter.write_line(said, red=wrong)


@pytest.fixture
def data_folder() -> Path:
    """Real files of data sets and published examples, which are not ours to hand on."""
    folder = Path(os.environ.get("DIPTYCH_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"needs real files of others, and there is no folder {folder}; DIPTYCH_SHARED_DATA names one")
    return folder
