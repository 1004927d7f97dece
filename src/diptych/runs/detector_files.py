"""A detector's official file, on disk or on the hub -> a detector."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.core import FeatureContract
from diptych.models.weights import Report
from diptych.runtime import unpickle
from diptych.runtime.configs import assignment, value_of
from diptych.runtime.downloads import without_retries
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.files import holds_something, text_of, whole_folder
from diptych.runtime.weight_files import HUB_FILES, Tensors, read_weights
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.official.convert import convert
from diptych.vision.detectors.official.detector import OfficialDetector, with_settings
from diptych.vision.detectors.weights import DETECTOR, WEIGHTS

HUB = "hub:"
HUB_NAME = re.compile(r"hub:([\w.-]+/[\w.-]+)@([0-9a-f]{40})")


@dataclass(frozen=True)
class OpenedFile:
    detector: OfficialDetector
    report: Report
    notes: Sequence[str]  # what was found out, and which settings were assumed


def open_file(path: Path, settings: Sequence[str] = (), class_names: Path | None = None) -> OpenedFile:
    """Of Detectron (.pkl), airsplay (.pkl), MILVLG (.pth) or Hugging Face (.bin, .safetensors), told by what is in it.

    `settings`: KEY=VALUE that replace what the file or the code says. `class_names`: a file with a name a line.
    """
    changes = settings_of(settings)
    tensors, cfg = _read(path)
    done = convert(tensors, cfg, str(path))
    report = Report(loaded=sorted(done.tensors), renamed=done.renamed, left=done.left)
    detector = OfficialDetector.of(
        done.tensors, with_settings(done.settings, changes), names_of(class_names), str(path)
    )
    notes = [note for note in done.notes if not any(note.startswith(f"assumed: {name}=") for name in changes)]
    return OpenedFile(detector, report, notes)


def import_detector(path: Path, out: Path, settings: Sequence[str] = (), class_names: Path | None = None) -> list[str]:
    """Write the detector folder `out`; hands back a line for each key and for what was found out or assumed."""
    refuse_existing(out)
    opened = open_file(path, settings, class_names)
    save_whole(opened.detector, out)
    return [*opened.report.lines(), *opened.notes, line_of(opened.detector.contract)]


def refuse_existing(out: Path) -> None:
    if holds_something(out):
        raise RecipeError(f"{out} is there already; give another folder, or delete it")


def line_of(contract: FeatureContract) -> str:
    """What a detector is, in a line."""
    classes = f"{len(contract.class_names)} classes" if contract.class_names else "no classes"
    return f"{contract.extractor}: {contract.selection}; {contract.feature_size} values a region, {classes}"


def from_hub(name: str) -> Detector:
    """`hub:USER/NAME@COMMIT`: a detector folder of ours, or the weights of an official detector."""
    path = fetched(name)
    return load_detector(path) if path.is_dir() else open_file(path).detector


def fetched(name: str) -> Path:
    """The detector folder, or the file of weights, that `hub:USER/NAME@COMMIT` has."""
    if (found := HUB_NAME.fullmatch(name)) is None:
        raise RecipeError(
            f"{name!r} names no fixed version; wanted hub:USER/NAME@COMMIT with the 40 digits of the commit (on the "
            "page of the files, under History): what a branch means can change, and the features with it"
        )
    repository, revision = found[1], found[2]
    if (described := _fetched(repository, revision, DETECTOR)) is not None:
        _fetched(repository, revision, WEIGHTS)
        return described.parent
    for file in HUB_FILES:
        if (path := _fetched(repository, revision, file)) is not None:
            return path
    raise CheckpointError(f"{name} has neither {DETECTOR} nor {' nor '.join(HUB_FILES)}; wanted one of them")


def _fetched(repository: str, revision: str, file: str) -> Path | None:
    """None where the repository has no such file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        with without_retries():
            return Path(hf_hub_download(repository, file, revision=revision))
    except LocalEntryNotFoundError as error:  # also an EntryNotFoundError: it has to be asked first
        raise CheckpointError(
            f"the hub cannot be reached for {file} of {repository}; where there is a network download {DETECTOR} and "
            f"{WEIGHTS} and give their folder, or {' or '.join(HUB_FILES)}, then: diptych import detector FILE OUT"
        ) from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise CheckpointError(
            f"fetching {file} of {repository}@{revision[:12]} failed ({type(error).__name__}); check both names, or "
            f"download it elsewhere, then: diptych import detector {file} OUT"
        ) from error


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE each, the value as JSON where it is some."""
    return {key: value_of(value) for key, value in (assignment(text, "least=36") for text in texts)}


def _read(path: Path) -> tuple[Tensors, str | None]:
    """Tensors by their names in the file, and the text of Detectron's settings where there is one."""
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "missing"
        raise CheckpointError(f"{path} is {kind}; wanted a detector's official file (.pkl, .pth, .bin or .safetensors)")
    if path.suffix != ".pkl":
        return read_weights(path), None
    held = unpickle.load(path)
    inner = next((held[name] for name in ("blobs", "model") if isinstance(held, dict) and name in held), held)
    if not isinstance(inner, Mapping) or not any(isinstance(value, np.ndarray) for value in inner.values()):
        raise CheckpointError(f"{path} holds no table of arrays; wanted Detectron's `blobs` or airsplay's `model`")
    arrays = {str(k): np.asarray(v) for k, v in inner.items() if isinstance(v, np.ndarray | np.generic)}
    wrong = next((name for name, value in arrays.items() if value.dtype.kind not in "fiu"), None)
    if wrong is not None:
        raise CheckpointError(f"{path}: {wrong} is an array of {arrays[wrong].dtype}, wanted numbers; copy it again")
    cfg = held.get("cfg")
    return {name: torch.from_numpy(value) for name, value in arrays.items()}, cfg if isinstance(cfg, str) else None


def names_of(path: Path | None) -> list[str]:
    """Visual Genome's list has a line for each class but the background."""
    if path is None:
        return []
    try:
        names = [line.strip() for line in text_of(path, "utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"cannot read the names of classes in {path} ({error}); wanted a text, a name a line"
        ) from error
    return names[1:] if names and names[0].strip("_").lower() == "background" else names


def save_whole(detector: Detector, out: Path) -> None:
    """Whole or not at all."""
    try:
        with whole_folder(out) as temporary:
            detector.save(temporary)
    except OSError as error:
        raise CheckpointError(f"cannot write the detector to {out}: {error.strerror}; choose another place") from error
