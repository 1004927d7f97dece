"""Collect facts about a model folder (tasks, training, scores, detector) for the service, its page and model cards."""

import re
from pathlib import Path

from diptych.inference.hub import CARD
from diptych.runs.folder import VALIDATED, ModelFolder
from diptych.runtime.devices import Precision
from diptych.runtime.errors import counted
from diptych.runtime.files import text_of
from diptych.tasks import tasks_by_verb
from diptych.tasks.interface import Message
from diptych.vision.detectors.load import is_drawn


class ModelFacts(Message):
    """Facts about a model, as the service sends them."""

    name: str
    system: str
    tasks: tuple[str, ...]  # verbs of the model's tasks, such as `caption`
    version: str  # CRC-32 of the weights
    licence: str | None  # licence of the weights, from the folder's model card
    knows: str  # kind of images that the model was trained on
    recipe: str | None  # name of the recipe; None for an imported checkpoint
    trained: str | None  # description of the training: task, steps, batch and seed
    scores: str | None  # scores on the validation split, by which the weights were chosen
    parameters: int
    vocabulary: int  # number of tokens
    precision: Precision  # precision in which predictions are computed
    detector: str
    sees: tuple[str, ...]  # class names of the detector


def offered_tasks(folder: ModelFolder) -> tuple[str, ...]:
    """Return the verbs, such as `caption`, of the tasks that the model was trained for, in the order of `TASKS`."""
    trained_for = None if folder.recipe is None else folder.recipe.task
    return tuple(
        verb
        for verb, spec in tasks_by_verb().items()
        if spec.offered_by(folder.model, trained_for) and spec.may_read(folder.answers)
    )


def is_drawn_world(folder: ModelFolder) -> bool:
    """Return True if the model was trained on the drawn world (Storybook)."""
    return is_drawn(folder.contract.extractor)


def model_facts(name: str, folder: ModelFolder, tasks: tuple[str, ...]) -> ModelFacts:
    """Return the facts of a model that is served under `name` for these tasks (verbs)."""
    recipe, detector, trained = folder.recipe, folder.contract.extractor, None
    if recipe is not None:
        training = recipe.training
        steps, samples = counted(training.steps, "steps"), counted(training.batch, "samples")
        trained = f"{recipe.task}: up to {steps} of {samples}, seed {training.seed}"
    validated = dict(folder.validation or {})
    few = validated.pop(VALIDATED, None)
    scores = ", ".join(f"{metric} {score:.1f}" for metric, score in validated.items())
    if few is not None and scores:
        scores += f" (of {counted(int(few), 'images')} only: too few for a reliable score)"
    return ModelFacts(
        name=name,
        system=folder.architecture.system,
        tasks=tasks,
        version=f"{folder.weights_checksum:08x}",
        licence=_licence(folder.folder / CARD),
        knows="drawn scenes (storybook)" if is_drawn_world(folder) else f"images like those that {detector} detects in",
        recipe=None if recipe is None else recipe.name,
        trained=trained,
        scores=f"validation: {scores}" if scores else None,
        parameters=sum(parameter.numel() for parameter in folder.model.parameters()),
        vocabulary=folder.architecture.config.vocabulary.size,
        precision=folder.model.precision,
        detector=detector,
        sees=tuple(kind for kind in folder.contract.class_names if kind != "background"),
    )


def _licence(card: Path) -> str | None:
    """Return the licence in the metadata of a model card; None if the card does not state a licence."""
    try:
        stated = re.match(r"---\n(?:.*\n)*?license: *(\S.*)\n(?:.*\n)*?---", text_of(card))
    except (OSError, ValueError):
        return None
    return None if stated is None else stated[1]
