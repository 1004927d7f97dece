"""Fuzz every reader of foreign bytes guided by coverage, with atheris (libFuzzer).

    uv run --with atheris --group dev python -m tests.attack.guided --seconds 600 --keep    # for each reader
    uv run --with atheris --group dev python -m tests.attack.guided --seconds 60 --only WARC

An input is a byte that chooses one of the reader's files, and its content. What a reader raises besides DiptychError is
a find, and so is 5 s of the processor or 1 GiB more of memory: its input is kept in `tests/attack/corpus/READER/`,
which test_corpus.py replays and later runs start from.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # atheris counts the branches only of modules that are imported in `fuzz`
    from tests.attack.fuzz import Fuzzer
    from tests.attack.kills import Broken

CORPUS = Path(__file__).parent / "corpus"
NAME, COMMAND = "guided", "uv run --with atheris --group dev python -m tests.attack.guided --seconds {seconds:g} --keep"
LONGEST = 2**16  # bytes of an input
MEMORY = 2**30  # bytes that a reader may ask for besides what the process has
LARGER = {"a store": 8 * MEMORY}  # safetensors loses 64 bytes at each tensor that torch reads
SECONDS = 5.0  # of the processor, that one input may take
HUNG = 300  # seconds by the clock, after which libFuzzer ends the process; much of it may go to other programs
SLOWER = 20  # a run may take this number of times its seconds by the clock
MOST_FINDS = 5  # of one reader that are kept in one run


def folder_of(name: str) -> Path:
    """The folder of a reader's finds."""
    return CORPUS / re.sub(r"[^\w]+", "-", name)


def _keep(name: str, find: bytes) -> None:
    kept = folder_of(name) / hashlib.sha256(find).hexdigest()[:12]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(find)


def replay(fuzzer: Fuzzer, inputs: list[bytes], folder: Path) -> Iterator[str | None]:
    """Read each input in place of the file that it chooses; yield what was raised besides an error of Diptych's."""
    good, tried = folder / "good", folder / "tried"
    good.mkdir()
    fuzzer.make(good)
    shutil.copytree(good, tried)
    files, before = files_of(good), resource.getrlimit(resource.RLIMIT_AS)
    _limit_memory(fuzzer.name)
    try:
        for content in inputs:
            yield raised(fuzzer, tried, good, files, content)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _limit_memory(name: str) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + LARGER.get(name, MEMORY), resource.RLIM_INFINITY))


def refound(fuzzer: Fuzzer, finds: list[Path], place: Path, number: int) -> Broken | None:
    """One find in place of a good file, as an attempt of the attack."""
    from tests.attack.kills import Broken

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (how,) = replay(fuzzer, [finds[number % len(finds)].read_bytes()], place)
    return None if how is None else Broken(fuzzer.name, finds[number % len(finds)].name, how)


def files_of(good: Path) -> list[Path]:
    return sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.stat().st_size)


def raised(fuzzer: Fuzzer, tried: Path, good: Path, files: list[Path], content: bytes) -> str | None:
    """What one input makes a reader raise besides DiptychError and an OSError with the name of a file."""
    from diptych.runtime.errors import DiptychError

    file = files[content[0] % len(files)] if content else files[0]
    (tried / file).write_bytes(content[1:])
    begun = time.process_time()
    try:
        fuzzer.read(tried)
    except DiptychError:
        pass
    except OSError as error:
        return None if error.filename is not None else _last(error)
    except Exception as error:
        return _last(error)
    finally:
        shutil.copyfile(good / file, tried / file)
    spent = time.process_time() - begun
    return f"took {spent:.1f} s of the processor" if spent > SECONDS else None


def _last(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = [one for one in traceback.extract_tb(error.__traceback__) if "diptych" in one.filename] or [frame]
    return f"{type(error).__name__}: {str(error)[:100]} ({Path(ours[-1].filename).name}:{ours[-1].lineno})"


def fuzz(name: str, world: Path, seconds: float, folder: Path) -> None:
    """Fuzz one reader in this process for `seconds` of the processor, or until a find ends it.

    Its figures are in `folder`.
    """
    atheris: Any = import_module("atheris")
    good, tried, found = folder / "good", folder / "tried", dict[str, bytes]()
    good.mkdir()
    with atheris.instrument_imports(include=["diptych"]):
        from tests.attack.samples import fuzzers

        fuzzer = next(one for one in fuzzers(world) if one.name == name)
        fuzzer.make(good)
        shutil.copytree(good, tried)
        fuzzer.read(tried)
    files, seeds, runs = files_of(good), folder / "seeds", 0
    seeds.mkdir()
    for number, file in enumerate(files):
        (seeds / str(number)).write_bytes(bytes([number % 256]) + (good / file).read_bytes())

    def one(content: bytes) -> None:
        nonlocal runs
        runs += 1
        if (how := raised(fuzzer, tried, good, files, content)) is not None:
            found.setdefault(how.rpartition("(")[2], content)
        spent = time.process_time() - begun
        if runs % 20 == 0 or how is not None or spent > seconds:
            figures = {"inputs": runs, "seconds": round(spent), "finds": sorted(found)}
            (folder / "figures").write_text(json.dumps(figures))
            for find in list(found.values())[:MOST_FINDS]:
                _keep(fuzzer.name, find)
        if spent > seconds:
            os._exit(0)

    _limit_memory(name)
    kept = [str(folder_of(name))] if folder_of(name).exists() else []
    options = [f"-max_total_time={SLOWER * seconds:.0f}", f"-timeout={HUNG}", f"-max_len={LONGEST}", "-rss_limit_mb=0"]
    atheris.Setup(["guided", str(seeds), *kept, *options, f"-artifact_prefix={folder}/", "-print_final_stats=1"], one)
    begun = time.process_time()
    atheris.Fuzz()


def _each(
    names: list[str], world: Path, seconds: float, table: dict[str, Any], keep: Callable[[dict[str, Any]], object]
) -> None:
    """Fuzz each reader in a process of its own, which imports it anew; its row in the table is kept."""
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="guided-"))
        child = get_context("spawn").Process(target=_alone, args=(name, world, seconds, folder))
        child.start()
        child.join()
        row = json.loads((folder / "figures").read_text()) if (folder / "figures").exists() else {"inputs": 0}
        log = (folder / "log").read_text("utf-8", "replace")
        for path in (one for kind in ("crash", "timeout", "oom") for one in folder.glob(f"{kind}-*")):
            row["finds"] = [*row.get("finds", []), path.name]  # what ended the process
            _keep(name, path.read_bytes())
        covered = re.findall(r"cov: (\d+)", log)
        table[name] = row | {"edges": int(covered[-1]) if covered else 0, "code": child.exitcode}
        print(f"{name}: {table[name]}{'' if covered else log[-1500:]}", flush=True)
        keep(table)
        shutil.rmtree(folder, ignore_errors=True)


def _alone(name: str, world: Path, seconds: float, folder: Path) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    fuzz(name, world, seconds, folder)


def main() -> None:
    from benchmarks.machine import RESULTS, save_result

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of the processor, for each reader")
    parser.add_argument("--only", default="", help="part of the names of readers")
    parser.add_argument("--keep", action="store_true", help=f"resume benchmarks/results/{NAME}.json, reader by reader")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--world", type=Path, help="the attack's world; made by default")
    given = parser.parse_args()
    if given.one:
        folder = Path(tempfile.mkdtemp(prefix="guided-"))
        print(folder, flush=True)
        fuzz(given.one, given.world, given.seconds, folder)
        return
    from tests.attack.forks import import_all
    from tests.attack.samples import fuzzers
    from tests.attack.verbs import make_world

    with tempfile.TemporaryDirectory(prefix="guided-world-") as place:
        world = given.world or Path(place) / "world"
        if given.world is None:
            import_all()
            make_world(world)
        kept = RESULTS / f"{NAME}.json"
        table: dict[str, Any] = json.loads(kept.read_text())["figures"] if given.keep and kept.exists() else {}
        names = [one.name for one in fuzzers(world) if given.only in one.name and one.name not in table]

        def keep(table: dict[str, Any]) -> None:
            if given.keep:
                save_result(NAME, COMMAND.format(seconds=given.seconds), table)

        _each(names, world, given.seconds, table, keep)
    raise SystemExit(1 if any(row.get("finds") for row in table.values()) else 0)


if __name__ == "__main__":
    main()
