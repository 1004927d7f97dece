"""A model folder: all that captions a picture, and nothing that points outside it.

model.safetensors   the weights            config.json     what builds the model around them
recipe.json         how it was trained     tokenizer.json  words to ids
features.json       the feature contract   answers.json    what it can answer (VQA alone)
detector/               the detector, so that a picture is enough
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializeAsAny, ValidationInfo, field_validator
from safetensors.torch import save_file

from diptych.configs import derive
from diptych.core import FeatureContract
from diptych.errors import CheckpointError, DataError
from diptych.files import copy_folder, whole_folder, write_atomically
from diptych.loading.store import DETECTOR
from diptych.loading.tokens import FILE as TOKENS
from diptych.loading.tokens import Tokens
from diptych.models import SYSTEMS, ResolvedConfig, SystemModel
from diptych.models.weights import load_into, read_weights
from diptych.recipes.recipe import Recipe, named_system, parse
from diptych.tasks.answers import FILE as ANSWERS
from diptych.tasks.answers import Answers
from diptych.vision.given import KIND as GIVEN
from diptych.vision.weights import check_detector

WEIGHTS, CONFIG, FEATURES = "model.safetensors", "config.json", "features.json"
INNER = "model"  # where a run folder keeps its model folder


class Architecture(BaseModel):
    """config.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str  # a name in SYSTEMS
    config: SerializeAsAny[ResolvedConfig]
    heads: tuple[str, ...]
    tokens: str | None = None  # sha256 of tokenizer.json; folders of before have none
    imported: bool = False  # the weights are those of an official checkpoint, as it was

    @field_validator("system")
    @classmethod
    def _known(cls, system: str) -> str:
        return named_system(system)

    @field_validator("config", mode="before")
    @classmethod
    def _of_its_system(cls, value: Any, others: ValidationInfo) -> Any:
        system = others.data.get("system")
        if not isinstance(value, dict):
            return value
        if system is None:
            raise ValueError("cannot be read without the system it belongs to; see system")
        return SYSTEMS[system].resolved.model_validate(value)

    def build(self) -> SystemModel:
        return SYSTEMS[self.system].model(self.config, self.heads)


@dataclass(frozen=True)
class ModelFolder:
    """An open model folder; `model` has its weights and is in evaluation mode."""

    folder: Path
    model: SystemModel
    architecture: Architecture
    tokens: Tokens
    contract: FeatureContract
    recipe: Recipe | None = None  # of an imported checkpoint: the one that its authors trained it by, as far as known
    answers: Answers | None = None
    detector: Path | None = None

    def save(self, folder: Path) -> ModelFolder:
        """Write it whole, then put it in place of what was there; hands back the folder as opened there."""
        try:
            with whole_folder(folder) as temporary:
                self._write(temporary)
        except OSError as error:
            raise CheckpointError(
                f"cannot write the model to {folder}: {error}; make room or choose another --out"
            ) from error
        return replace(self, folder=folder, detector=folder / DETECTOR if self.detector is not None else None)

    def _write(self, folder: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}, folder / WEIGHTS)
        self.tokens.save(folder)
        architecture = derive(self.architecture, tokens=_digest(folder / TOKENS))
        write_atomically(folder / CONFIG, architecture.model_dump_json(indent=1).encode())
        write_atomically(folder / FEATURES, json.dumps(self.contract.to_json(), indent=1).encode())
        if self.recipe is not None:
            self.recipe.save(folder)
        if self.answers is not None:
            self.answers.save(folder)
        if self.detector is not None:
            copy_folder(self.detector, folder / DETECTOR)

    @property
    def untrained(self) -> bool:
        """Whether it was imported and has not been trained here."""
        return self.architecture.imported

    def accept(self, contract: FeatureContract, where: object) -> None:
        """Refuse features that were made in another way than those it was trained on.

        What made those of an imported checkpoint is not told unless a detector was imported with it, so of these the
        size alone counts.
        """
        if self.untrained and not self.contract.weights:
            if not self.architecture.config.reads_pixels and contract.feature_size != self.contract.feature_size:
                raise DataError(
                    f"the features in {where} have {contract.feature_size} values each, and the imported model "
                    f"{self.folder} reads {self.contract.feature_size} ({self.contract.extractor}); extract with a "
                    "detector of such features, or give your own: diptych extract DATA OUT --detector given "
                    "--features FOLDER"
                )
            return
        if different := self.contract.differences(contract):
            again = (
                f"diptych extract DATA OUT --detector given --features FOLDER, {self.contract.feature_size} values each"
                if self.contract.extractor == GIVEN
                else f"diptych extract DATA OUT --detector {self.detector or 'DETECTOR, the folder of its detector'}"
            )
            raise DataError(
                f"the features in {where} are not what the model {self.folder} was trained on: {'; '.join(different)}; "
                f"make them anew: {again}"
                + ("; or import the checkpoint without --detector, to take others" if self.untrained else "")
            )


def open_model(path: Path) -> ModelFolder:
    """From a model folder, or from the folder of the run that made it."""
    folder = path / INNER if (path / INNER / CONFIG).is_file() else path
    if not (folder / CONFIG).is_file():
        unfinished = (path / "checkpoints").is_dir()
        raise CheckpointError(
            f"{path} is the folder of a run that has not ended; run its command again to go on with it"
            if unfinished
            else f"{path} is no model folder: it has no {CONFIG}; `diptych pretrain`, `finetune` and `import` make one"
        )
    architecture = parse(Architecture, _json(folder / CONFIG), str(folder / CONFIG))
    tokens = Tokens.load(folder)
    if tokens.vocabulary != architecture.config.vocabulary or architecture.tokens not in (
        None,
        _digest(folder / TOKENS),
    ):
        raise CheckpointError(
            f"{folder / TOKENS} ({tokens.vocabulary.size} words) is not the tokeniser that the weights beside it were "
            f"trained with ({architecture.config.vocabulary.size} words): the same ids would mean other words; copy "
            "the model folder again as a whole"
        )
    contract = FeatureContract.from_json(_json(folder / FEATURES))
    detector = folder / DETECTOR if (folder / DETECTOR).is_dir() else None
    if detector is not None:
        check_detector(detector, contract.weights, files=False)  # who opens the detector reads them
    model = architecture.build()
    load_into(model, read_weights(folder / WEIGHTS), complete=True)
    return ModelFolder(
        folder=folder,
        model=model.eval(),
        architecture=architecture,
        tokens=tokens,
        contract=contract,
        recipe=Recipe.load(folder) if (folder / "recipe.json").is_file() else None,
        answers=Answers.load(folder) if (folder / ANSWERS).is_file() else None,
        detector=detector,
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); copy the model folder again") from error
