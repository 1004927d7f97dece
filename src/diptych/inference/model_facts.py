"""Collect facts about a model folder (tasks, training, scores, detector) for the service, its page and model cards."""

import re
from contextlib import suppress
from pathlib import Path

from diptych.inference.hub import CARD
from diptych.runs.folder import VALIDATED, ModelFolder
from diptych.runtime.devices import Precision
from diptych.runtime.errors import counted
from diptych.runtime.files import text_of
from diptych.tasks import tasks_by_verb
from diptych.tasks.interface import Message
from diptych.vision.detectors.load import is_drawn

LONGEST = 300  # maximum number of characters that are taken from a model card


class ModelFacts(Message):
    """Facts about a model, as the service sends them."""

    name: str
    system: str
    tasks: tuple[str, ...]  # verbs of the model's tasks, such as `caption`
    version: str  # CRC-32 of the weights
    licence: str | None  # licence of the weights, from the folder's model card
    title: str | None  # heading of the model card (README.md of the folder)
    about: str | None  # first paragraph of the model card
    examples: tuple[str, ...]  # texts like those of the training data, such as questions
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
    seen = folder.seen.content if folder.seen is not None else ()
    knows = f"images like its {counted(seen, 'training images')}" if len(seen) else "images like its training images"
    card = _card(folder.folder)
    return ModelFacts(
        name=name,
        system=folder.architecture.system,
        tasks=tasks,
        version=f"{folder.weights_checksum:08x}",
        licence=_part(r"---\n(?:.*\n)*?license: *(\S.*)\n(?:.*\n)*?---", card),
        title=_part(r"(?:.*\n)*?# +(\S.*)", card),
        about=_part(r"(?:.*\n)*?# +\S.*\n\s*((?:[^#\s].*(?:\n|$))+)", card),
        examples=folder.architecture.examples,
        knows="drawn scenes (storybook)" if is_drawn_world(folder) else knows,
        recipe=None if recipe is None else recipe.name,
        trained=trained,
        scores=f"validation: {scores}" if scores else None,
        parameters=sum(parameter.numel() for parameter in folder.model.parameters()),
        vocabulary=folder.architecture.config.vocabulary.size,
        precision=folder.model.precision,
        detector=detector,
        sees=tuple(kind for kind in folder.contract.class_names if kind != "background"),
    )


def _card(folder: Path) -> str:
    """Return the text of a folder's model card, with links replaced by their texts; "" if there is none."""
    with suppress(OSError, ValueError):
        return re.sub(r"\[([^\]\n]*)\]\([^)\n]*\)", r"\1", text_of(folder / CARD))
    return ""


def _part(pattern: str, card: str) -> str | None:
    """Return the group of a pattern that matches the start of a card, in one line of at most LONGEST characters."""
    matched = re.match(pattern, card)
    return None if matched is None else " ".join(matched[1].split())[:LONGEST]
