"""The verbs of Diptych's own tasks. `diptych --help` lists them from here, as importing the tasks loads torch."""

from typing import NamedTuple


class TaskHelp(NamedTuple):
    """A sentence of help, and the arguments after the image."""

    help: str
    arguments: tuple[str, ...] = ()


TASK_VERBS = {
    "caption": TaskHelp("Write a sentence about a picture."),
    "entail": TaskHelp(
        "Decide whether a picture entails a sentence, contradicts it, or leaves it open.", ("hypotheses",)
    ),
    "verify": TaskHelp("Decide whether a statement is true of a picture.", ("statements",)),
    "ground": TaskHelp("Find the region that an expression refers to.", ("expression",)),
    "choose": TaskHelp("Choose the right one of some answers, and the reason for it.", ("question", "answers")),
    "ask": TaskHelp("Answer a question about a picture.", ("questions",)),
}
