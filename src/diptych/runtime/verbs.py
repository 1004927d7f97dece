"""The verbs of the tasks that Diptych defines, and the names of its systems.

`diptych --help` lists them from here, because importing the tasks or systems would load torch.
"""

from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

from diptych.runtime.decoding import SETTINGS


class TaskHelp(NamedTuple):
    """The help of a verb: its sentence, its arguments after the image, and the options that only some verbs have."""

    verb: str
    help: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


_SHARED = ("model", "server", "json", "out", "features", "device", "precision", "revision", "force", "help")
SHARED_OPTIONS = ("-h", *(f"--{name}" for name in _SHARED))
WRITING = (*(f"--{name.replace('_', '-')}" for name in SETTINGS), "--sample", "--seed")
_HELPS = (
    TaskHelp("caption", "Write a sentence about an image.", (), ("--num-captions", *WRITING, "--show")),
    TaskHelp(
        "entail", "Decide whether an image entails a sentence, contradicts it, or leaves it open.", ("hypotheses",)
    ),
    TaskHelp("verify", "Decide whether a statement is true of an image.", ("statements",)),
    TaskHelp("ground", "Find the region that an expression refers to.", ("expression",), ("--show",)),
    TaskHelp("choose", "Choose the right one of some answers, and the reason for it.", ("question", "answers"),
             ("--rationale",)),
    TaskHelp("classify", "Classify an image with a text, by labels of the training data.", ("texts",)),
    TaskHelp("ask", "Answer a question about an image.", ("questions",), ("--show",)),
)  # fmt: skip
TASK_VERBS = {one.verb: one for one in _HELPS}
# Names of the built-in systems: each system is a subpackage of diptych.systems.
OWN_SYSTEMS = tuple(
    one.name.replace("_", "-") for one in iter_modules([str(Path(__file__).parents[1] / "systems")]) if one.ispkg
)
