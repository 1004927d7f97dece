"""METEOR (Denkowski and Lavie, 2014) and SPICE (Anderson et al., 2016).

The authors' Java programs are in pycocoevalcap. Both scores are 0 to 1. They need Java and the extra `java-metrics`.
SPICE also needs Stanford CoreNLP 3.6.0, which pycocoevalcap's wheel lacks. Nothing is downloaded here; an error states
what to install.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from threading import Timer
from typing import IO

from diptych.metrics.tokenise import Tokens
from diptych.runtime.errors import DiptychError, RecipeError, nearest
from diptych.runtime.extras import install_hint
from diptych.runtime.files import text_of

JAVA_METRICS = ("METEOR", "SPICE")
# METEOR cannot read its own numbers in a locale with decimal commas. Java's warnings must not be among the answers.
JAVA = ("java", "-Duser.language=en", "-Duser.country=US", "-XX:+DisplayVMOutputToStderr", "-jar")
LIMIT = 60.0  # seconds to wait for a line of METEOR: the first took 5 s on a busy core, the others some ms
_MEMORY = {"METEOR": "2 GB", "SPICE": "8 GB"}
_SPENT = re.compile("OutOfMemory|Could not (reserve|allocate)|insufficient memory|Not enough space|Cannot allocate")
_EMPTY = re.compile(r"\s|$|Picked up |Error: (Could not create|A fatal)")  # lines of Java's errors without a cause


def unavailable(name: str, *, required: bool = False) -> str | None:
    """Return why METEOR or SPICE cannot run on this machine and what to install; None if it can run.

    If `required`, raise RecipeError with this reason.
    """
    reason = _reason(name)
    if reason and required:
        raise RecipeError(reason)
    return reason


def _reason(name: str) -> str | None:
    if name not in JAVA_METRICS:
        return f"no caption score {name!r}; {nearest(name, JAVA_METRICS)}"
    without = "; the other scores need neither"
    package = find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        return f"{name} needs pycocoevalcap, of the extra `java-metrics`: {install_hint('java-metrics')}{without}"
    if shutil.which("java") is None:
        return f"{name} needs Java on the PATH, such as Debian's default-jre-headless{without}"
    return None if name == "METEOR" else without_models(Path(next(iter(package.submodule_search_locations))))


def without_models(package: Path) -> str | None:
    """Return how to install Stanford CoreNLP, which SPICE needs; None if the package has it."""
    if list((package / "spice" / "lib").glob("stanford-corenlp-3.6.0*.jar")):
        return None
    return (
        "SPICE needs Stanford CoreNLP 3.6.0; with a network, pycocoevalcap fetches it (some 400 MB): "
        "python -c 'from pycocoevalcap.spice.get_stanford_models import get_stanford_models as get; get()'"
    )


def java_score(name: str, predictions: Mapping[str, Tokens], references: Mapping[str, Sequence[Tokens]]) -> float:
    """Return METEOR or SPICE of a corpus.

    Both dicts are by image: `predictions` has a tokenised caption, `references` several.

    Call `unavailable` first. Raises DiptychError if the Java program fails.
    """
    package = find_spec("pycocoevalcap")
    assert package is not None
    folder = Path(next(iter(package.submodule_search_locations or ()))) / name.lower()
    written = {key: " ".join(tokens) for key, tokens in predictions.items()}
    truths = {key: [" ".join(tokens) for tokens in references[key]] for key in predictions}
    with tempfile.TemporaryFile() as errors:  # not a pipe, because a full pipe would stop Java
        try:
            return (_meteor if name == "METEOR" else _spice)(folder, truths, written, errors)
        except (OSError, ValueError, RuntimeError) as error:
            errors.seek(0)
            printed = errors.read().decode(errors="replace")
            last = [line for line in printed.splitlines() if not _EMPTY.match(line)][-1:]
            cause = ": ".join([str(error), *last])
            spent = _SPENT.search(printed) or "by a signal" in str(error)
            advice = f"free {_MEMORY[name]} of memory for it" if spent else "check `java` and JAVA_TOOL_OPTIONS"
            raise DiptychError(f"{name}'s Java program stopped ({cause}); {advice}") from error


def _meteor(folder: Path, truths: Mapping[str, list[str]], written: Mapping[str, str], errors: IO[bytes]) -> float:
    process = subprocess.Popen(
        [*JAVA, "-Xmx2G", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"], cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
    )  # fmt: skip
    try:
        cleaned = {key: text.replace("|||", "").replace("  ", " ") for key, text in written.items()}  # as pycocoevalcap
        counts = [_answer(process, ["SCORE", *truths[key], cleaned[key]]) for key in written]
        _answer(process, ["EVAL", *counts])
        return float([_answer(process) for _ in written][-1])
    finally:
        _kill(process.pid)
        process.communicate()


def _answer(process: subprocess.Popen[bytes], request: Sequence[str] = ()) -> str:
    """Return METEOR's next line, after a request if there is one. Raises RuntimeError if it is not of numbers."""
    assert process.stdin is not None
    assert process.stdout is not None
    timer, begun = Timer(LIMIT, _kill, (process.pid,)), time.monotonic()
    timer.start()
    try:
        with contextlib.suppress(BrokenPipeError):  # the program has ended, so its answer is empty
            process.stdin.write(f"{' ||| '.join(request)}\n".encode() if request else b"")
            process.stdin.flush()
        line = process.stdout.readline()
        code = 0 if line else process.wait()
    finally:
        timer.cancel()
    if time.monotonic() - begun >= LIMIT:
        raise RuntimeError(f"no answer in {LIMIT:g} s")
    _check(code)
    answer = line.decode(errors="replace").strip()
    if not re.fullmatch(r"[-+\d.eE ]+|NaN", answer):
        raise RuntimeError(f"answered {answer[:100]!r}, not numbers")
    return answer


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _check(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"exit code {code}" if code >= 0 else f"ended by a signal, {signal.Signals(-code).name}")


def _spice(folder: Path, truths: Mapping[str, list[str]], written: Mapping[str, str], errors: IO[bytes]) -> float:
    (folder / "cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        given, made = Path(place) / "given.json", Path(place) / "made.json"
        given.write_text(json.dumps([{"image_id": key, "test": written[key], "refs": truths[key]} for key in written]))
        options = [str(given), "-cache", "cache", "-out", str(made), "-subset", "-silent"]
        command = [*JAVA, "-Xmx8G", "spice-1.0.jar", *options]
        _check(subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, check=False).returncode)
        return fmean(float(one["scores"]["All"]["f"]) for one in json.loads(text_of(made)))
