"""Judges are classifiers that score images, for realism (ImageBERT, Figure 3) or for safety.

Diptych does not include a trained judge.
"""

import hashlib
import importlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, DiptychError, RecipeError, explained


@runtime_checkable
class Judge(Protocol):
    """Scores images from 0 to 1. Images with a score below `least` are dropped."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def least(self) -> float: ...

    def judge(self, pictures: Sequence[Any]) -> Sequence[float]:
        """Return a score for each image. Images are uint8 tensors (3, H, W)."""
        ...


def scores_by(judge: Judge, images: Sequence[Any]) -> list[float]:
    """Return a judge's scores of PIL images. Raises DiptychError if the judge fails, or a score is not from 0 to 1."""
    from diptych.vision.pictures import to_picture

    pictures = [to_picture(image) for image in images]
    try:
        scores = [float(score) for score in judge.judge(pictures)]
    except Exception as error:
        why = f"failed on {len(pictures)} images: {type(error).__name__}: {error}"
        raise DiptychError(f"the image judge {judge.name} {why}; correct its code, or do not pass it") from error
    if len(scores) != len(pictures) or not all(0 <= score <= 1 for score in scores):
        why = f"returned {scores[:3]}... for {len(pictures)} images; expected a number from 0 to 1 for each"
        raise DiptychError(f"the image judge {judge.name} {why}; correct its code, or do not pass it")
    return scores


@cache
def load_judge(name: str) -> Judge:
    """Load a judge by name: a folder that `diptych mine judge` wrote, `hub:ID`, `onnx:FILE` or `module:function`.

    `module:function` runs other people's code, so accept it only from the command line, never from a file. Raises
    RecipeError or CheckpointError if the judge cannot be loaded.
    """
    from diptych_mine.judge.picture_judge import FILE, PictureJudge  # not at the top, because it imports torch

    folder = Path(name)
    if name.startswith("onnx:"):
        from diptych_mine.judge.onnx_judge import OnnxJudge

        return OnnxJudge.load(Path(name.removeprefix("onnx:")))
    if name.startswith("hub:"):
        folder = _from_hub(name.removeprefix("hub:"), FILE)
    elif ":" in name and not folder.exists():
        module, _, made = name.partition(":")
        remedy = "pass MODULE:FUNCTION, a folder, onnx:FILE or hub:ID"
        with explained(RecipeError, f"cannot load the image judge {name}", remedy, ImportError):
            judge = getattr(importlib.import_module(module), made)()
        if not isinstance(judge, Judge):
            raise RecipeError(f"{name} must return an object with `name`, `version`, `least` and `judge()`; add these")
        return judge
    if not (folder / FILE).is_file():
        raise CheckpointError(f"{folder / FILE} is missing; train a judge: diptych mine judge FOLDER --out {folder}")
    return cast(Judge, PictureJudge.load(folder))


def _from_hub(name: str, file: str) -> Path:
    from huggingface_hub import snapshot_download

    with downloading(f"the image judge {name} from the hub", f"copy {file} and its weights to a folder, and pass that"):
        return Path(snapshot_download(name, allow_patterns=[file, "*.safetensors", "backbone/*.json"]))


def identity(name: str) -> str:
    """Return the identifier of a judge in mine.json: its name, version and threshold.

    Cached verdicts are valid only for the same identifier.
    """
    judge = load_judge(name)
    identity = json.dumps([judge.name, judge.version, judge.least])
    return f"{judge.name}/{judge.version}/{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
