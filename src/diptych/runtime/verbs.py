"""The verbs of Diptych's own tasks. `diptych --help` lists them from here, as importing the tasks loads torch."""

from typing import NamedTuple


class TaskHelp(NamedTuple):
    """A verb, a sentence of help, and the arguments after the image."""

    verb: str
    help: str
    arguments: tuple[str, ...] = ()


_HELPS = (
    TaskHelp("caption", "Write a sentence about an image."),
    TaskHelp(
        "entail", "Decide whether an image entails a sentence, contradicts it, or leaves it open.", ("hypotheses",)
    ),
    TaskHelp("verify", "Decide whether a statement is true of an image.", ("statements",)),
    TaskHelp("ground", "Find the region that an expression refers to.", ("expression",)),
    TaskHelp("choose", "Choose the right one of some answers, and the reason for it.", ("question", "answers")),
    TaskHelp("classify", "Classify an image with a text, by labels of the training data.", ("texts",)),
    TaskHelp("ask", "Answer a question about an image.", ("questions",)),
)
TASK_VERBS = {one.verb: one for one in _HELPS}
