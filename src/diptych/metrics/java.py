"""METEOR (Denkowski and Lavie, 2014) and SPICE (Anderson et al., 2016).

The authors' Java programs are in pycocoevalcap. Both scores are 0 to 1. They need Java and the extra `java-metrics`.
SPICE also needs Stanford CoreNLP 3.6.0, which pycocoevalcap's wheel lacks. Nothing is downloaded here; an error states
what to install.
"""

import contextlib
import io
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from diptych.metrics.tokenise import Tokens
from diptych.runtime.errors import DiptychError, RecipeError, nearest
from diptych.runtime.extras import install_hint

JAVA_METRICS = ("METEOR", "SPICE")


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
    written = {key: [" ".join(tokens)] for key, tokens in predictions.items()}
    truths = {key: [" ".join(tokens) for tokens in references[key]] for key in predictions}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return _meteor(truths, written) if name == "METEOR" else _spice(truths, written)
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        raise DiptychError(f"{name}'s Java program stopped ({error}); free {_MEMORY[name]} of memory for it") from error


_MEMORY = {"METEOR": "2 GB", "SPICE": "8 GB"}


def _meteor(truths: Mapping[str, list[str]], written: Mapping[str, list[str]]) -> float:
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    try:
        return float(scorer.compute_score(truths, written)[0])
    finally:
        # After a failure, pycocoevalcap still holds its lock. Its destructor would wait for this lock forever.
        if scorer.lock.locked():
            scorer.lock.release()
        process: subprocess.Popen[bytes] = scorer.meteor_p
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(OSError):  # the Java process that reads this pipe has ended
                pipe.close()


def _spice(truths: Mapping[str, list[str]], written: Mapping[str, list[str]]) -> float:
    from pycocoevalcap.spice.spice import Spice

    return float(Spice().compute_score(truths, written)[0])
