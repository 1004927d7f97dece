"""SIGKILL for the whole tree of a `diptych mine run` that fetches, at drawn moments of each of its stages.

    uv run python -m tests.attack.mining --moments 5 --pages 120

The same command, given again, must leave records, verdicts and funnel byte for byte as an undisturbed run does and no
partial file, and fetch nothing twice but what the shards under way had asked for: the server's own log says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from diptych_mine.fetch.fetching import OPT_OUTS
from diptych_mine.pages.addresses import host_of
from diptych_world import web
from diptych_world.web.serve import Server
from tests.mine.conftest import digest
from tests.support import zygote
from tests.support.webs import Live

STAGES = ("pages", "index", "measured", "joined", "decisions")
QUICK = ("status_404", "opt_out_header", "chain_5", "chain_6", "loop", "metadata")  # what answers at once
PATIENCE = 300.0  # seconds for a run, and for a stage to begin
# Small shards, so that each stage has many. The plan is this process's alone, so its workers need not know.
COMMAND = """
import sys
from diptych.cli import main
from diptych_mine.fetch import gathering
from diptych_mine.pages import inputs
gathering.ADDRESSES, gathering.HOSTS, inputs.IN_A_SHARD = 6, 6, 12
if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True)
class Undisturbed:
    """`shards` that a stage leaves, and the `seconds` that it takes."""

    digest: str
    asked: Counter[str]
    shards: dict[str, int]
    seconds: dict[str, float]


def command(folder: Path, server: Server, out: Path) -> list[str]:
    script = folder / "mine.py"
    script.write_text(COMMAND)
    return [
        str(script), "mine", "run", str(folder / "web" / "html"), "--out", str(out), "--processes", "2",
        "--skip-nsfw-check", "--allow", "127.0.0.0/8", "--resolve", f"*.test=127.0.0.1:{server.port}", "--rate",
        "100000",
        "--contact", "test",
    ]  # fmt: skip


def run(folder: Path, server: Server, out: Path) -> zygote.Popen:
    return zygote.Popen(command(folder, server, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def whole(out: Path, stage: str) -> set[str]:
    """Names of the stage's shards that are whole."""
    place, ending = (out / stage, ".parquet") if stage == "decisions" else (out / "work" / stage, ".json")
    if not place.is_dir():
        return set()
    names = {path.name.removesuffix(ending) for path in place.iterdir() if path.name.endswith(ending)}
    return {name for name in names if not name.startswith(".") and not name.endswith(".times")}


def asked_of(server: Server) -> Counter[str]:
    """How often each address was asked for; steps of a chain of redirects are one's."""
    return Counter(f"http://{one.host}{one.path.partition('?')[0]}" for one in server.log if one.path != "/robots.txt")


def undisturbed(folder: Path, server: Server) -> Undisturbed:
    out = folder / "whole"
    server.log.clear()
    with run(folder, server, out) as started:
        began, counts = dict[str, float](), dict[str, int]()
        ended = dict[str, float]()
        while started.poll() is None:
            for stage in STAGES:
                if (count := len(whole(out, stage))) and count != counts.get(stage):
                    began.setdefault(stage, time.monotonic())
                    counts[stage], ended[stage] = count, time.monotonic()
            if (out / "mine.json").exists():
                began.setdefault("run", time.monotonic())
            time.sleep(0.005)
    if started.returncode != 0:
        raise RuntimeError(f"an undisturbed run ended with {started.returncode}")
    edges = [began["run"], *(ended[stage] for stage in STAGES)]
    seconds = {stage: edges[n + 1] - edges[n] for n, stage in enumerate(STAGES)}
    return Undisturbed(digest(out), asked_of(server), {stage: len(whole(out, stage)) for stage in STAGES}, seconds)


def broken_by(stage: str, seed: str, found: Undisturbed, folder: Path, server: Server) -> tuple[str | None, str]:
    """What did not hold, if anything, and how far the run was when it was killed."""
    out = folder / "out" / seed.replace("/", "-")
    before = STAGES[STAGES.index(stage) - 1] if stage != STAGES[0] else None
    server.log.clear()
    with run(folder, server, out) as started:
        _wait(lambda: (out / "mine.json").exists() if before is None else
              len(whole(out, before)) >= found.shards[before], started)  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            started.wait(Random(seed).uniform(0.0, found.seconds[stage]))
        kill_tree(started)
    done = {one: len(whole(out, one)) for one in STAGES}
    far = ", ".join(f"{one} {count}/{found.shards[one]}" for one, count in done.items())
    under_way = asked_by_shards_under_way(out)
    again = zygote.run(command(folder, server, out), timeout=PATIENCE)
    if again.returncode != 0:
        return f"then it ended with {again.returncode}: {again.stderr[-300:]}", far
    if digest(out) != found.digest:
        return "records, verdicts or funnel differ", far
    if partial := [*out.glob("records/.*"), *out.glob("decisions/.*"), *out.rglob(".*.partial")]:
        return f"left {partial[0].relative_to(out)}", far
    more = {one for one, count in asked_of(server).items() if count > found.asked[one]}
    if twice := sorted(more - under_way):
        return f"fetched again: {', '.join(twice[:3])}", far
    return None, far


def asked_by_shards_under_way(out: Path) -> set[str]:
    """Addresses of shards that were planned and are not whole, and the files of opt-outs of their hosts."""
    found, had = set[str](), whole(out, "index")
    for path in (out / "work" / "plan").glob("*.json") if (out / "work" / "plan").is_dir() else ():
        with suppress(ValueError):
            plan = json.loads(path.read_text("utf-8"))
            for name, wanted in zip(plan.get("shards", ()), plan.get("wanted", ()), strict=False):
                if name not in had:
                    found |= {address.partition("?")[0] for address, _ in wanted}
                    found |= {f"http://{host_of(address)}{path}" for address, _ in wanted for path in OPT_OUTS}
    return found


def kill_tree(started: zygote.Popen) -> None:
    """The process and all that it started, at once."""
    with suppress(psutil.Error):
        own = psutil.Process(started.pid)
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error):
                process.kill()
    started.wait()


def _wait(ready: Callable[[], bool], started: zygote.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while not ready() and started.poll() is None:
        if time.monotonic() > end:
            raise RuntimeError("a stage did not begin in time")
        time.sleep(0.001)


def attempts(pages: int, moments: int, stages: Sequence[str] = STAGES) -> Iterator[tuple[str, str | None, str]]:
    """Of each the seed, what did not hold, and how far the run was."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        web.write(folder / "web", pages, seed=5)
        with Live(folder / "web") as server:
            server.faults = {where: kind for where, kind in server.faults.items() if kind in QUICK}
            found = undisturbed(folder, server)
            for stage in stages:
                for number in range(moments):
                    seed = f"{stage}/{number}"
                    yield seed, *broken_by(stage, seed, found, folder, server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=5, help="of each stage")
    parser.add_argument("--pages", type=int, default=120)
    parser.add_argument("--stages", default=",".join(STAGES), help="some of them, with commas between")
    given = parser.parse_args()
    broken = 0
    for seed, how, far in attempts(given.pages, given.moments, given.stages.split(",")):
        print(f"{seed}: {how or 'held'} ({far})", flush=True)
        broken += how is not None
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
