"""A model folder. It contains everything that predictions need, and no paths to other folders.

- model.safetensors: the weights
- config.json: system, sizes and heads of the model
- recipe.json: the recipe that the model was trained with
- tokenizer.json: the tokeniser
- weights.json: a CRC-32 of each file
- features.json: the feature contract, a description of the extractor of the training features
- answers.json: answer vocabulary of VQA, or the labels and name of another task
- validation.json: scores of the validation that chose these weights
- familiarity.safetensors: used to warn about unusual images (only with the drawn world's detector)
- seen.safetensors: fingerprints of the model's training images (40 bytes per image; imported checkpoints and models
  from the hub lack them)
- detector/: the detector, which extracts regions from new images
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationInfo, field_validator
from safetensors import SafetensorError

from diptych.core import FeatureContract, Task
from diptych.core.contract import Part
from diptych.core.folders import DETECTOR, INNER, PACKAGED, packaged
from diptych.data.leakage import FILE as SEEN
from diptych.data.leakage import SeenImages
from diptych.data.store.tokens import FILE as TOKENS
from diptych.data.store.tokens import Tokens
from diptych.models import ResolvedConfig, SystemModel
from diptych.models.decoding import DecodingOptions
from diptych.models.weights import load_into
from diptych.runs.familiarity import FILE as FAMILIAR
from diptych.runs.familiarity import Familiarity
from diptych.runtime import files
from diptych.runtime.configs import derive, of_json
from diptych.runtime.devices import Precision
from diptych.runtime.errors import CheckpointError, DataError, RecipeError, explained
from diptych.runtime.files import checksum, parse_json, sha256_of, text_of, write_atomically
from diptych.runtime.outputs import copy_folder, whole_folder
from diptych.runtime.plugins import comparing_versions, note_use, packages_of, refuse_missing
from diptych.runtime.weight_files import compact, read_weights, write_weights
from diptych.systems import SYSTEMS
from diptych.systems.recipe import Recipe, named_system, parse, system_of
from diptych.tasks import find_learnt, find_task
from diptych.tasks.answers import FILE as ANSWERS
from diptych.tasks.answers import Answers
from diptych.vision.detectors.weights import check_detector, read_detector
from diptych.vision.features.profile import differences

WEIGHTS, CONFIG, FEATURES, CHECKS = "model.safetensors", "config.json", "features.json", "weights.json"
VALIDATION = "validation.json"
VALIDATED = "images"  # key of the number of validation images, stored only if there are too few for reliable scores
# Keys of the calibration errors. The stored values are percentages.
UNCALIBRATED, CALIBRATED = "calibration error, uncalibrated", "calibration error"
AGAIN = "copy the model folder again as a whole"
HIGHEST = 1e6  # a validation score with a larger absolute value is invalid
_NAME = re.compile(r"[\w.-]{1,100}")


class Architecture(BaseModel):
    """The contents of config.json."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    system: str  # name of the model's system, a key of SYSTEMS
    config: SerializeAsAny[ResolvedConfig]
    heads: tuple[str, ...]
    tokens: str | None = None  # SHA-256 of tokenizer.json; None: not yet saved
    imported: bool = False  # True: the weights are those of an official checkpoint
    diptych: str | None = None  # version of Diptych that wrote the folder
    packages: dict[str, str] = {}  # {package whose plugins the model needs: version}
    # A few texts of the training data, such as questions, which the page and the model card show as examples.
    examples: tuple[Annotated[str, Field(max_length=100)], ...] = Field(default=(), max_length=8)

    @field_validator("system")
    @classmethod
    def _known(cls, system: str) -> str:
        return named_system(system)

    @field_validator("config", mode="before")
    @classmethod
    def _of_its_system(cls, value: Any, others: ValidationInfo) -> Any:
        return value if not isinstance(value, dict) else system_of(others).resolved.model_validate(value)

    def build(self) -> SystemModel:
        """Build the model with random weights."""
        note_use({"systems": [self.system], "heads": self.heads})
        return SYSTEMS[self.system].model(self.config, self.heads)


@dataclass(frozen=True)
class ModelFolder:
    """A loaded model folder. `model` has the folder's weights and is in evaluation mode."""

    folder: Path
    model: SystemModel
    architecture: Architecture
    tokens: Tokens
    contract: FeatureContract
    recipe: Recipe | None = None  # for an imported checkpoint: the most similar recipe of its system
    answers: Answers | None = None
    detector: Path | None = None
    validation: Mapping[str, float] | None = None  # scores of these weights on the validation split
    familiarity: Familiarity | None = None
    seen: SeenImages | None = None  # images that the model was trained on; None: unknown

    @property
    def name(self) -> str:
        """The value of --model that opens this model: its folder, or its name if it comes with Diptych (`sample`)."""
        return self.folder.name if self.folder.parent == PACKAGED else str(self.folder)

    def on(self, device: torch.device, precision: Precision, fewest: int = 1) -> ModelFolder:
        """Set device and precision of predictions. Batches of fewer than `fewest` samples run in fp32."""
        self.model.to(device).precision, self.model.fewest = precision, fewest
        return self

    def save(self, folder: Path) -> ModelFolder:
        """Write the model to `folder` atomically, replacing a model there.

        Return the new `ModelFolder`. Raises CheckpointError.
        """
        problem, remedy = f"cannot write {folder}", "free disk space or choose another --out"
        with explained(CheckpointError, problem, remedy, SafetensorError), whole_folder(folder, "model") as temporary:
            self._write(temporary)
        return replace(self, folder=folder, detector=folder / DETECTOR if self.detector is not None else None)

    def task(self, name: str | None = None) -> Task:
        """Build the task `name`; default: the task that the model was trained for.

        Raises RecipeError if the model has not learnt it.
        """
        if self.recipe is None:
            raise RecipeError(f"{self.name} was imported and has no task; run diptych finetune {name or 'caption'}")
        spec = find_learnt(name) if name is not None else find_task(self.recipe.task)
        if not spec.has_learnt(self.model):
            what = name or f"a task ({self.architecture.system} has no decoder for captions)"
            command = f"diptych finetune {name or 'TASK'} --data DATA --model {self.name} --out RUN"
            call = f'diptych.finetune("{spec.name}", data, "{self.name}").model'
            raise RecipeError(f"{self.name} was not trained for {what}; run {command}, or in Python {call}")
        return self.recipe.task_with(self.tokens, self.answers, spec)

    def _write(self, folder: Path) -> None:
        write_weights(compact(self.model.state_dict()), folder / WEIGHTS)
        self.tokens.save(folder)
        architecture = derive(self.architecture, tokens=sha256_of(folder / TOKENS), packages=self._packages())
        write_atomically(folder / CONFIG, architecture.model_dump_json(indent=1).encode())
        write_atomically(folder / FEATURES, json.dumps(self.contract.to_json(), indent=1).encode())
        if self.recipe is not None:
            self.recipe.save(folder)
        if self.answers is not None:
            self.answers.save(folder)
        if self.validation is not None:
            write_atomically(folder / VALIDATION, json.dumps(dict(self.validation), indent=1).encode())
        if self.familiarity is not None:
            self.familiarity.save(folder)
        if self.seen is not None:
            self.seen.save(folder)
        checks = {path.name: checksum(path) for path in sorted(folder.iterdir()) if path.name != files.MARKER}
        write_atomically(folder / CHECKS, json.dumps(checks, indent=1).encode())
        if self.detector is not None:
            copy_folder(self.detector, folder / DETECTOR, "detector")

    def _packages(self) -> dict[str, str]:
        made = {"systems": [self.architecture.system], "heads": self.architecture.heads}
        if self.recipe is not None:
            made |= {"tasks": [self.recipe.task], "objectives": [self.recipe.objectives.kind]}
        if self.detector is not None:
            made["detectors"] = [str(read_detector(self.detector)["kind"])]
        return packages_of(made)

    @property
    def weights_checksum(self) -> int:
        """CRC-32 of the weights. It identifies the model in stored scores."""
        return int(_json(self.folder / CHECKS)[WEIGHTS])

    @property
    def untrained(self) -> bool:
        """True if the model was imported and has not been trained since."""
        return self.architecture.imported

    @property
    def decoding(self) -> DecodingOptions:
        """The decoding options of the recipe. Without a recipe, decoding is greedy."""
        return DecodingOptions() if self.recipe is None else self.recipe.decoding

    @property
    def calibration(self) -> str | None:
        """A note on the calibration error of the model's answers on the validation records.

        None if it was not measured.
        """
        errors = self.validation or {}
        if CALIBRATED not in errors or UNCALIBRATED not in errors:
            return None
        return (
            f"calibration error of the answers' probabilities (ECE, 15 bins, on the validation split): "
            f"{errors[UNCALIBRATED]:.1f} before temperature scaling, {errors[CALIBRATED]:.1f} after"
        )

    def accept(self, contract: FeatureContract, where: object, parts: Collection[Part] | None = None) -> None:
        """Raise DataError if features were made by another extractor than the model's training features.

        `where`: the folder of the features. `parts`: the parts of regions that are compared; None: those that the model
        reads.

        If a checkpoint was imported without a detector, only the feature size is compared.
        """
        parts = self.architecture.config.reads if parts is None else parts
        if self.untrained and not self.contract.weights:
            if "features" in parts and contract.feature_size != self.contract.feature_size:
                raise DataError(
                    f"the features in {where} have {contract.feature_size} values each, but the imported model "
                    f"{self.folder} needs {self.contract.feature_size} ({self.contract.extractor}); extract with that "
                    "detector, or pass features of that size: diptych extract DATA --out OUT --detector given "
                    "--features PATH"
                )
            return
        if different := differences(self.contract, contract, parts):
            again = (
                f"diptych extract DATA --out OUT --detector given --features PATH, {self.contract.feature_size} values"
                if self.contract.is_given
                else f"diptych extract DATA --out OUT --detector {self.detector or 'DETECTOR, its detector folder'}"
            )
            raise DataError(
                f"the features in {where} differ from those of the model {self.folder}: {'; '.join(different)}; "
                f"extract them again: {again}"
                + ("; or import the checkpoint without --detector, to allow other features" if self.untrained else "")
            )


def open_model(path: Path) -> ModelFolder:
    """Open a model folder, or the model folder in a run's folder.

    Raises CheckpointError if it is damaged or incomplete.
    """
    path = packaged(path)
    files.check_name(path)
    folder = model_in(path)
    if folder is None:
        unfinished = (path / "checkpoints").is_dir()
        raise CheckpointError(
            f"{path} is the folder of a run that has not ended; repeat the run's command to resume it"
            if unfinished
            else f"{path} is not a model folder: it has no {CONFIG}; `diptych pretrain`, `finetune`, `import` make one"
        )
    _refuse_damaged(folder, weights=True)
    described = _json(folder / CONFIG)
    packages = described.get("packages") if isinstance(described, dict) else None
    refuse_missing(packages, folder)
    with comparing_versions(packages, folder):
        return _opened(folder, described)


def _opened(folder: Path, described: Any) -> ModelFolder:
    """Open a model folder. Packages with its plugins must be loaded already."""
    architecture = parse(Architecture, described, str(folder / CONFIG))
    tokens = Tokens.load(folder)
    changed = architecture.tokens != sha256_of(folder / TOKENS)
    if changed or tokens.vocabulary != architecture.config.vocabulary:
        raise _damaged(
            f"{folder / TOKENS} ({tokens.vocabulary.size} tokens) is not the tokeniser of these weights, which were "
            f"trained with another ({architecture.config.vocabulary.size} tokens): the same ids would mean other tokens"
        )
    contract = _contract(folder / FEATURES)
    _refuse_damaged(folder, weights=False)  # checked last, because the readers above raise more specific errors
    detector = folder / DETECTOR if (folder / DETECTOR).is_dir() else None
    if detector is not None:
        # The detector's files are checked only when the detector is opened.
        check_detector(detector, contract.weights, files=False)
    answers = Answers.load(folder) if (folder / ANSWERS).is_file() else None
    if answers is not None and len(answers.names) != architecture.config.answers:
        raise _damaged(
            f"{folder / ANSWERS} has {len(answers.names)} answers, but the model has {architecture.config.answers}"
        )
    _refuse_larger(folder, architecture.config)
    model = architecture.build()
    load_into(model, read_weights(folder / WEIGHTS), complete=True)
    recipe = Recipe.load(folder) if (folder / "recipe.json").is_file() else None
    validation = _validation(folder / VALIDATION)
    known = Familiarity.load(folder, contract.feature_size) if (folder / FAMILIAR).is_file() else None
    return ModelFolder(
        folder, model.eval(), architecture, tokens, contract, recipe, answers, detector, validation, known,
        SeenImages.load(folder),
    )  # fmt: skip


def model_in(path: Path) -> Path | None:
    """Return `path` if it is a model folder, or the model folder in it if it is a run's folder.

    Return None if `path` is neither.
    """
    return next((folder for folder in (path, path / INNER) if (folder / CONFIG).is_file()), None)


def _refuse_damaged(folder: Path, weights: bool) -> None:
    if hurt := _damaged_files(folder, weights):
        raise _damaged(hurt[0])


def _damaged(what: str) -> CheckpointError:
    return CheckpointError(f"{what}; {AGAIN}")


def damaged_files(folder: Path) -> list[str]:
    """Return a line for each missing or changed file of a model folder and its detector."""
    lines = _damaged_files(folder)
    if (folder / DETECTOR).is_dir() and (folder / CHECKS).exists():
        try:
            check_detector(folder / DETECTOR, _contract(folder / FEATURES).weights)
        except CheckpointError as error:
            lines.append(str(error))
    return lines


def _damaged_files(folder: Path, weights: bool | None = None) -> list[str]:
    """Return a line for each missing or changed file.

    `weights`: True checks only the weights, False all other files, None all.
    """
    if not (folder / CHECKS).exists():
        return [
            f"{folder} has no {CHECKS}: if an older version of Diptych wrote it, make it again with this one (`diptych "
            "pretrain` or `finetune` into a new folder, or `diptych import`); otherwise some of its files are missing"
        ]
    checks = _json(folder / CHECKS)
    if not isinstance(checks, dict) or WEIGHTS not in checks or not all(map(_NAME.fullmatch, checks)):
        return [f"{folder / CHECKS} is damaged"]
    # SEEN may be missing: it is private, and no part of published models.
    lines = [f"{folder / name} is missing" for name in checks if name != SEEN and not (folder / name).is_file()]
    for name in checks:
        if weights in (None, name == WEIGHTS) and (folder / name).is_file() and checksum(folder / name) != checks[name]:
            lines.append(f"{folder / name} has changed since it was written (its checksum differs from {CHECKS})")
    return lines


def _contract(path: Path) -> FeatureContract:
    with explained(CheckpointError, f"{path} is damaged", AGAIN):
        return of_json(FeatureContract, parse_json(text_of(path)))


def _refuse_larger(folder: Path, config: ResolvedConfig) -> None:
    """Raise CheckpointError if the weights file is too small for the config.

    It is called before memory is allocated.
    """
    layers = max((value for name, value in config if name.endswith("layers")), default=1)
    # Lower bound of the weights' size in bytes, in half precision.
    least = 2 * layers * config.width * (config.width + config.ffn)
    if (size := (folder / WEIGHTS).stat().st_size) < least:
        wanted = f"{folder / CONFIG} describes a model of at least {least / 2**20:,.0f} MiB"
        raise _damaged(f"{wanted}, but {WEIGHTS} has {size / 2**20:,.1f} MiB")


def _validation(path: Path) -> Mapping[str, float] | None:
    scores = _json(path) if path.is_file() else None
    if scores is not None and not (isinstance(scores, dict) and all(map(_is_score, scores.values()))):
        raise _damaged(f"{path} is damaged (expected a number for each score)")
    return scores


def _is_score(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= HIGHEST  # the comparison is False for NaN


def _json(path: Path) -> Any:
    with explained(CheckpointError, f"{path} is damaged", AGAIN):
        return parse_json(text_of(path))
