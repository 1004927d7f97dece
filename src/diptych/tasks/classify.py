"""Classification of pairs of an image and a text, such as memes (Hateful Memes, arXiv 2005.04790)."""

from diptych.core.labels import CLASSIFY as NAME
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks.classifier import classifier

CLASSIFY = classifier(
    NAME,
    title="Classes",
    learns="classify",
    verb="classify",
    help=TASK_VERBS["classify"].help,
    does="assigns a label of its training data to an image with a text",
)
