"""Open a model: the one door for every reference to a model."""

from __future__ import annotations

import os
from typing import Any

from diptych.core.folders import packaged
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.arguments import check_path, check_type, path_of
from diptych.runtime.devices import choose_device, choose_prediction, torch_unchanged
from diptych.runtime.errors import CheckpointError, RecipeError, about_argument
from diptych.runtime.plugins import load_plugins

MODEL = "a model folder, the folder of a run, user/name on the hub, a loaded model, or a Run"


class HasFolder:
    """Base class of what has a model folder: `diptych.Model`, and a `diptych.Run` that has ended."""

    def model_folder(self) -> ModelFolder:
        raise NotImplementedError


@torch_unchanged()
def open_folder(
    model: Any, name: str = "model", *, revision: str | None = None, device: str = "auto", precision: str = "auto"
) -> ModelFolder:
    """Return the model folder that `model` refers to, opened.

    Args:
        model: path of a model folder or of a run, a name on the hub (`user/name`), the name of a packaged model, such
        as `sample`, a `ModelFolder`, a loaded model, or a run.
        name: name of the argument, for errors.
        revision, device, precision: as in `diptych.load`; for a model that is open already they do not count.

    Raises CheckpointError if there is no such model.
    """
    if isinstance(model, HasFolder):
        return model.model_folder()
    if isinstance(model, ModelFolder):
        return model
    check_type(name, model, (str, os.PathLike), MODEL, CheckpointError)
    check_path(name, model, "a model folder, the folder of a run, or user/name on the hub", CheckpointError)
    for argument, given in {"device": device, "precision": precision}.items():
        check_type(argument, given, str, "a name such as 'auto'", RecipeError)
    with about_argument("device"):
        chosen = choose_device(device, "device")
    load_plugins()
    path = packaged(path_of(model))
    if revision is not None and path.exists():
        with about_argument("revision"):
            raise RecipeError(f"revision: found {revision!r}, but {model} is a folder; leave out the revision")
    if not path.exists() and not path.is_absolute() and str(model).count("/") == 1:
        from diptych.inference.hub import fetch

        path = fetch(str(model), revision)
    if not path.exists():
        raise CheckpointError(f"no model at {path}; pass a model folder, the folder of a run, or user/name on the hub")
    opened = open_model(path)
    with about_argument(None if precision == "auto" else "precision"):  # "auto" may be $DIPTYCH_PRECISION
        computed_in = choose_prediction(precision, chosen, opened.architecture.config.width)
    return opened.on(chosen, *computed_in)


def folder_or(reference: Any) -> Any:
    """Return the path of the folder of a loaded model, such as one whose detector is to be used; else `reference`."""
    return reference.model_folder().folder if isinstance(reference, HasFolder) else reference
