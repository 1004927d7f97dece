"""What a model can be asked, and what is known of it: the facts that a service tells of its models."""

from diptych.runs.folder import ModelFolder
from diptych.runtime.devices import Precision
from diptych.storybook.detector.detector import KIND as STORYBOOK
from diptych.tasks import tasks_by_verb
from diptych.tasks.interface import Message


class ModelFacts(Message):
    """A model of a service."""

    name: str
    system: str
    tasks: tuple[str, ...]  # verbs
    knows: str  # what its pictures were like
    recipe: str | None  # the recipe that trained it; an imported checkpoint has none
    trained: str | None
    scores: str | None  # on the records that chose its weights
    parameters: int
    vocabulary: int  # words and pieces of words
    precision: Precision  # in which it predicts
    detector: str
    sees: tuple[str, ...]  # classes of the detector


def taught(folder: ModelFolder) -> tuple[str, ...]:
    """Verbs of the tasks that the model has learnt, in the order of `TASKS`."""
    trained_for = None if folder.recipe is None else folder.recipe.task
    return tuple(verb for verb, spec in tasks_by_verb().items() if spec.offered_by(folder.model, trained_for))


def draws_its_pictures(folder: ModelFolder) -> bool:
    """Whether it was trained on the drawn world."""
    return folder.contract.extractor == STORYBOOK


def facts(name: str, folder: ModelFolder, tasks: tuple[str, ...]) -> ModelFacts:
    recipe, sees = folder.recipe, tuple(kind for kind in folder.contract.class_names if kind != "background")
    drawn = draws_its_pictures(folder)
    return ModelFacts(
        name=name,
        system=folder.architecture.system,
        tasks=tasks,
        knows="drawn scenes (storybook)" if drawn else f"pictures of the kind that {folder.contract.extractor} sees",
        recipe=None if recipe is None else recipe.name,
        trained=None if recipe is None else _trained(folder),
        scores=_scores(folder),
        parameters=sum(parameter.numel() for parameter in folder.model.parameters()),
        vocabulary=folder.architecture.config.vocabulary.size,
        precision=folder.model.precision,
        detector=folder.contract.extractor,
        sees=sees,
    )


def _trained(folder: ModelFolder) -> str:
    assert folder.recipe is not None
    training = folder.recipe.training
    return f"{folder.recipe.task}: up to {training.steps} steps of {training.batch} samples, seed {training.seed}"


def _scores(folder: ModelFolder) -> str | None:
    if not folder.validation:
        return None
    return "validation: " + ", ".join(f"{name} {score:.1f}" for name, score in folder.validation.items())
