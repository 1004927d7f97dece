"""The tasks, such as captioning. Each task is one file and one entry of `TASKS` (docs/add-a-task.md)."""

from diptych.runtime.errors import nearest
from diptych.runtime.plugins import unknown_name
from diptych.tasks.caption import CAPTION, PRETRAIN
from diptych.tasks.classify import CLASSIFY
from diptych.tasks.entailment import ENTAILMENT
from diptych.tasks.interface import TaskInterface
from diptych.tasks.nlvr import NLVR
from diptych.tasks.referring import REFERRING
from diptych.tasks.retrieval import RETRIEVAL
from diptych.tasks.spec import TaskSpec
from diptych.tasks.vcr import VCR
from diptych.tasks.vqa import VQA

__all__ = [
    "CAPTION",
    "CLASSIFY",
    "ENTAILMENT",
    "NLVR",
    "PRETRAIN",
    "REFERRING",
    "RETRIEVAL",
    "TASKS",
    "VCR",
    "VQA",
    "TaskInterface",
    "TaskSpec",
    "find_learnt",
    "find_task",
    "interfaces",
    "tasks_by_verb",
]

TASKS: dict[str, TaskSpec] = {
    spec.name: spec for spec in (PRETRAIN, CAPTION, VQA, REFERRING, VCR, NLVR, ENTAILMENT, CLASSIFY, RETRIEVAL)
}


def find_task(name: str) -> TaskSpec:
    """Return the task `name`, such as "vqa".

    For an unknown name, raises a RecipeError that suggests the most similar one.
    """
    if name not in TASKS:
        raise unknown_name(f"no task {name!r}; {nearest(name, TASKS)}")
    return TASKS[name]


def tasks_by_verb() -> dict[str, TaskSpec]:
    """Return the tasks that have a command, by the name of the command (such as "ask")."""
    return {spec.interface.verb: spec for spec in TASKS.values() if spec.interface is not None}


def interfaces() -> dict[str, TaskInterface]:
    """Return the user interfaces of the tasks that have a command, by the command's name (such as "ask")."""
    return {verb: spec.required_interface for verb, spec in tasks_by_verb().items()}


def find_learnt(name: str) -> TaskSpec:
    """Return the task `name` if models can be fine-tuned for it.

    Otherwise, raises a RecipeError that suggests the most similar task.
    """
    learnt = [spec.name for spec in TASKS.values() if not spec.pretrains]
    if name not in learnt:
        raise unknown_name(f"{name!r} is not a task for fine-tuning; {nearest(name, learnt)}")
    return TASKS[name]
