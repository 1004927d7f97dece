"""Shards on engines: results in the order of their names, errors with their exit codes, and no call to anybody."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from socket import create_server, gethostbyname, gethostname
from threading import Thread

import pytest

from diptych.runtime.engine import quiet, run
from diptych.runtime.engine.on_ray import STARTS
from diptych.runtime.engine.outcome import Counts, counts_of, outcome_of
from diptych.runtime.engine.stopping import SIGNALS, stoppable
from diptych.runtime.errors import DiptychError, RecipeError


def length(name: str) -> Counts:
    return {"name": name, "length": len(name), "process": os.getpid()}


def fails(name: str) -> Counts:
    raise RecipeError(f"{name} cannot be; pass another")


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_names(workers: int) -> None:
    names = ["ccc", "a", "bb"]
    assert [one["name"] for one in run(length, names, "local", workers)] == names
    assert list(run(length, [], "local", workers)) == []


def test_one_worker_is_this_process() -> None:
    """Another takes seconds to start, for each stage."""
    found = list(run(length, ["ccc", "a", "bb"]))
    assert [one["length"] for one in found] == [3, 1, 2]
    assert {one["process"] for one in found} == {os.getpid()}


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_shard_raises_is_raised_here(workers: int) -> None:
    with pytest.raises(RecipeError, match="a cannot be"):
        list(run(fails, ["a"], "local", workers))


def test_an_error_goes_through_an_engine_as_data() -> None:
    assert counts_of(outcome_of(length, "ab")) == length("ab")
    with pytest.raises(DiptychError, match="a cannot be") as raised:
        counts_of(outcome_of(fails, "a"))
    assert raised.value.exit_code == RecipeError.exit_code


def test_signals_are_the_programs_again_when_shards_are_made() -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with stoppable():
        assert [signal.getsignal(one) for one in SIGNALS] != before
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_an_engine_that_is_none_is_named() -> None:
    with pytest.raises(RecipeError, match="did you mean local"):
        list(run(length, ["a"], "locl"))
    with pytest.raises(RecipeError, match="no engine 'daft'; known: local, ray"):
        list(run(length, ["a"], "daft"))


def test_ray_that_cannot_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="needs the extra ray")

    asked = list[object]()

    def init(*address: object, **_: object) -> None:
        asked.extend(address)
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(DiptychError, match=r"timed out during startup.*--engine local"):
        list(run(length, ["a"], "ray"))
    assert asked == ["local"] * STARTS


OTHER = """
import ray
from diptych.runtime.engine import on_ray
from diptych.runtime.errors import DiptychError
if __name__ == "__main__":
    with on_ray.cluster(1):
        on_ray._same_versions(ray)
        on_ray.version = lambda package: "9.9"  # of this process alone
        try:
            on_ray._same_versions(ray)
        except DiptychError as refused:
            print(refused)
"""


@pytest.mark.thorough
def test_a_cluster_of_another_version_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    script = tmp_path / "other.py"
    script.write_text(OTHER)
    # an interpreter: Ray starts others like it
    told = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True, timeout=800)
    assert re.search(r"Ray workers on \S+ have .*'diptych': '0.*expected .*'9\.9'.*install the expected", told.stdout)


def test_nothing_is_reported_to_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    quiet()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


CALLS = """
import os, sys, urllib.request
from diptych.runtime.engine import run
def work(name):
    return {"name": name}
if __name__ == "__main__":
    engine = sys.argv[1]
    if engine == "none":
        try:
            urllib.request.urlopen("http://usage.example.org/", timeout=5)
        except OSError:
            pass
    else:
        assert [one["name"] for one in run(work, ["a", "b"], engine, 2)] == ["a", "b"]
"""


UV_RUN = (uv, "run", "--no-sync") if (uv := which("uv")) else ()
# Of the machine's own cloud, link-local: Ray asks for its name with its statistics off, too (usage_stats_head.py).
METADATA = (b"//169.254.169.254/", b"//metadata.google.internal/")


@pytest.mark.parametrize(("engine", "calls"), [("none", 1), pytest.param("ray", 0, marks=pytest.mark.thorough)])
def test_no_engine_calls_home(tmp_path: Path, engine: str, calls: int) -> None:
    """All ways out lead to a server here; `none` shows that a call would be seen."""
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    with counting_server() as (address, seen):
        ways = dict.fromkeys(
            ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address
        )
        here = f"127.0.0.1,localhost,{gethostbyname(gethostname())}"  # Ray's own processes talk to each other
        ways |= {"no_proxy": here, "NO_PROXY": here}
        # `uv run` is the parent that users have: Ray would build its workers another environment.
        # an interpreter: Ray starts others like it
        command = [*UV_RUN, sys.executable, str(script), engine]
        clean = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_UV_RUN_RUNTIME_ENV"}
        subprocess.run(command, check=True, env=clean | ways, timeout=800)
        assert len([one for one in seen if not any(name in one for name in METADATA)]) == calls


@contextmanager
def counting_server() -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and the first bytes of every connection, which it then closes."""
    seen: list[bytes] = []
    server = create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                seen.append(connection.recv(4096))

    thread = Thread(target=answer)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
    finally:
        server.shutdown(2)
        server.close()
        thread.join()
