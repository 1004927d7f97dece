"""Import an official checkpoint as a model folder."""

import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from diptych.core import FeatureContract
from diptych.data.store.tokens import Tokens
from diptych.models import ResolvedConfig
from diptych.models.weights import load_into, read_as_weights
from diptych.runs.folder import Architecture, ModelFolder
from diptych.runs.start import fit_to
from diptych.runtime import unpickle
from diptych.runtime.errors import CheckpointError, RecipeError, explained, nearest
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.outputs import refuse_folder
from diptych.systems import RECIPES, SYSTEMS, Importer, find_recipe
from diptych.systems.recipe import ANY_WORDS
from diptych.tasks import TASKS
from diptych.tasks.answers import Answers
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.open import open_detector


def import_checkpoint(
    system: str,
    file: Path,
    out: Path,
    vocabulary: Path,
    lowercase: bool | None = None,
    detector: str | None = None,
    answers: Path | None = None,
    any_detector: bool = False,
) -> list[str]:
    """Write the model folder `out`. Return a line for each weight that was renamed, left out or missing.

    `lowercase`: by default as in the system's released models. `detector`: folder or name of the detector for new
    images. Unless `any_detector` is set, it must be the detector of the released models. `answers`: file with the
    answers of the answer head, in its order. Raises RecipeError and CheckpointError.
    """
    importers = {name: entry.importer for name, entry in SYSTEMS.items() if entry.importer is not None}
    if system not in importers:
        raise RecipeError(f"no importer for {system!r}; {nearest(system, [*importers, 'detector'])}")
    refuse_folder(out, None)
    importer = importers[system]
    lowercase = importer.lowercase if lowercase is None else lowercase
    tokens = Tokens.from_vocabulary(vocabulary, lowercase)
    with read_as_weights(file):
        config, heads, tensors, report = importer.read(file, vocabulary, lowercase=lowercase)
        architecture = Architecture(system=system, config=config, heads=tuple(sorted(heads)), imported=True,
                                    diptych=version("diptych"))  # fmt: skip
        made = ModelFolder(out, architecture.build(), architecture, tokens, _released(importer, config))
        load_into(made.model, tensors, report)
    made = replace(made, recipe=fit_to(find_recipe(_recipe_name(made)), made))
    if answers is not None:
        made = replace(made, answers=_answers(answers, made))
    if detector is None:
        made.save(out)
        return report.lines()
    opened = open_detector(detector, ())
    _check_fit(made, opened, None if any_detector else importer.detector)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        opened.save(Path(folder))
        replace(made, contract=opened.contract, detector=Path(folder)).save(out)
    return [*report.lines(), f"detector: {opened.contract.extractor}, {opened.contract.selection}"]


def _released(importer: Importer, config: ResolvedConfig) -> FeatureContract:
    """Return the feature contract of the released models, as far as it is known."""
    return FeatureContract(
        extractor=importer.extractor,
        weights="",
        feature_size=config.feature_size,
        class_names=tuple(f"class {number}" for number in range(config.classes)),
        selection=importer.selection,
    )


def _recipe_name(made: ModelFolder) -> str:
    """Return the name of the recipe whose heads differ least from the model's.

    On ties, recipes of tasks are preferred to pre-training, and recipes of the official code to those of the paper.
    """
    system, heads = made.architecture.system, set(made.architecture.heads)
    tasks = [spec.name for spec in sorted(TASKS.values(), key=lambda spec: spec.pretrains)]
    named = [name for task in tasks for name in (f"{system}/official/{task}", f"{system}/{task}") if name in RECIPES]
    return min(named, key=lambda name: len(heads ^ set(RECIPES[name]().objectives.schedule(ANY_WORDS).heads)))


def _check_fit(made: ModelFolder, detector: Detector, wanted: str | None) -> None:
    """Raise RecipeError if the detector does not fit the model.

    The detector's name must begin with `wanted` (None: any name).
    """
    system, config, contract = made.architecture.system, made.architecture.config, detector.contract
    if not detector.needs_pictures:
        raise RecipeError(f"{contract.extractor} cannot find regions in new images; pass the folder of a detector")
    if wanted is not None and not contract.extractor.startswith(wanted):
        raise RecipeError(
            f"{system}'s released models need features of the detector {wanted}..., but this detector is "
            f"{contract.extractor}. With its features, the model runs but is less accurate. Import the right detector "
            "(`diptych import detector`) and pass its folder, or pass --any-detector to use this detector anyway"
        )
    sizes = {}
    if not config.reads_pixels:
        sizes["values per region"] = (contract.feature_size, config.feature_size)
    if config.reads_classes or "region_class" in made.architecture.heads:
        sizes["classes"] = (len(contract.class_names), config.classes)
    if other := [f"{has} {name}, the model reads {reads}" for name, (has, reads) in sizes.items() if has != reads]:
        raise RecipeError(
            f"{contract.extractor} does not fit: its features have {'; '.join(other)}; pass another detector"
        )


def _answers(path: Path, made: ModelFolder) -> Answers:
    """Read answers from a text file with one per line (answers_vqa.txt), or from a JSON file or pickle.

    A JSON file or pickle must hold a list of answers, or a dict from answers to numbers.
    """
    if "answer" not in made.architecture.heads:
        raise RecipeError(f"{path} has answers, but the checkpoint has no head for answers; leave out --answers")
    with explained(CheckpointError, f"cannot read answers in {path}", "expected a text file with one answer per line"):
        if path.suffix in (".json", ".pkl"):
            read = parse_json(text_of(path)) if path.suffix == ".json" else unpickle.load(path)
        else:
            read = text_of(path).splitlines()
    if isinstance(read, dict) and all(isinstance(number, int) for number in read.values()):
        read = sorted(read, key=read.__getitem__)
    if not isinstance(read, list) or not all(isinstance(name, str) for name in read):
        raise CheckpointError(f"{path} has no list of answers; expected a list, or a dict from answers to numbers")
    if len(read) != made.architecture.config.answers:
        raise CheckpointError(
            f"{path} has {len(read)} answers, but the head has {made.architecture.config.answers}; pass the list "
            "of this checkpoint"
        )
    return Answers(tuple(name.strip() for name in read))
