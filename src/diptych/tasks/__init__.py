"""What a user wants of a picture. `TASKS` lists it all: a file and a line each (docs/add-a-task.md)."""

from diptych.runtime.errors import RecipeError, nearest
from diptych.tasks.caption import CAPTION, PRETRAIN
from diptych.tasks.entailment import ENTAILMENT
from diptych.tasks.nlvr import NLVR
from diptych.tasks.referring import REFERRING
from diptych.tasks.retrieval import RETRIEVAL
from diptych.tasks.spec import TaskSpec
from diptych.tasks.vcr import VCR
from diptych.tasks.vqa import VQA

__all__ = [
    "CAPTION",
    "ENTAILMENT",
    "NLVR",
    "PRETRAIN",
    "REFERRING",
    "RETRIEVAL",
    "TASKS",
    "VCR",
    "VQA",
    "TaskSpec",
    "asked_tasks",
    "find_learnt",
    "find_task",
]

TASKS: dict[str, TaskSpec] = {
    spec.name: spec for spec in (PRETRAIN, CAPTION, VQA, REFERRING, VCR, NLVR, ENTAILMENT, RETRIEVAL)
}


def find_task(name: str) -> TaskSpec:
    """Raises RecipeError, with the nearest name."""
    if name not in TASKS:
        raise RecipeError(f"no task {name!r}; {nearest(name, TASKS)}")
    return TASKS[name]


def asked_tasks() -> dict[str, TaskSpec]:
    """The tasks that can be asked, by their verbs."""
    return {spec.asking.verb: spec for spec in TASKS.values() if spec.asking is not None}


def find_learnt(name: str) -> TaskSpec:
    """A task that models are fine-tuned for and asked. Raises RecipeError, with the nearest name."""
    learnt = [spec.name for spec in TASKS.values() if not spec.pretrains]
    if name not in learnt:
        raise RecipeError(f"no task {name!r} is fine-tuned for; {nearest(name, learnt)}")
    return TASKS[name]
