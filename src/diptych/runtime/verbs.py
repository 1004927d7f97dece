"""The verbs of Diptych's own tasks, and the names of its systems.

`diptych --help` lists them from here, as importing the tasks or systems loads torch.
"""

from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

from diptych.runtime.decoding import SETTINGS


class TaskHelp(NamedTuple):
    """A verb, a sentence of help, the arguments after the image, and the options that not every such verb has."""

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
# Each system is a folder of their room.
OWN_SYSTEMS = tuple(
    one.name.replace("_", "-") for one in iter_modules([str(Path(__file__).parents[1] / "systems")]) if one.ispkg
)
