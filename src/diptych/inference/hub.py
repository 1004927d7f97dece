"""Download models from the Hugging Face hub by name (`user/name`), and upload them with a model card."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diptych.core.folders import DETECTOR
from diptych.data.leakage import FILE as SEEN
from diptych.data.store.tokens import FILE as TOKENS
from diptych.runs.familiarity import FILE as FAMILIAR
from diptych.runs.folder import CHECKS, CONFIG, FEATURES, VALIDATION, WEIGHTS, ModelFolder, damaged_files
from diptych.runtime.downloads import without_retries
from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.runtime.files import files_below, parse_json, refuse_links_out, text_of
from diptych.runtime.outputs import OWN, whole_folder
from diptych.runtime.plugins import refuse_missing
from diptych.systems import SYSTEMS
from diptych.systems.recipe import FILE as RECIPE
from diptych.tasks.answers import FILE as ANSWERS

CARD = "README.md"
# Files of a model folder, without the files of its detector.
FILES = (WEIGHTS, CONFIG, RECIPE, TOKENS, CHECKS, FEATURES, ANSWERS, VALIDATION, FAMILIAR, SEEN)
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def fetch(name: str, revision: str | None = None) -> Path:
    """Download the model folder `user/name` if it is not cached. Return its path.

    `revision`: a branch, tag or commit. Raises CheckpointError if the model cannot be downloaded or is not a model of
    Diptych.
    """
    from huggingface_hub import hf_hub_download, snapshot_download

    made = "`diptych demo` makes it" if name.startswith("demo/") else "copy the model folder here and pass its path"
    if siblings := [str(one) for one in Path(name).parent.glob("*") if one.is_dir()]:
        made = nearest(name, siblings)
    with _hub_errors(name, f"{made} (there is no folder {name})"), without_retries():
        config = Path(hf_hub_download(name, CONFIG, revision=revision))
        if not _is_ours(config, name):  # check the config before downloading the weights
            raise CheckpointError(
                f"{name} on the hub is not a model of Diptych (its {CONFIG} names no known system); `diptych push` "
                "uploads such models, and `diptych import` converts the checkpoints of papers' authors"
            )
        return Path(snapshot_download(name, revision=revision, allow_patterns=[CARD, *FILES, f"{DETECTOR}/*"]))


def _is_ours(config: Path, name: str) -> bool:
    try:
        settings = parse_json(text_of(config))
    except ValueError:
        return False
    if not isinstance(settings, dict):
        return False
    refuse_missing(settings.get("packages"), name)
    return settings.get("system") in SYSTEMS


def check_repository(repository: str) -> None:
    """Raise RecipeError unless the name is user/name."""
    if not NAME.fullmatch(str(repository)):
        raise RecipeError(f"invalid repository name {repository!r}; expected user/name, such as me/kites-caption")


def push(folder: ModelFolder, repository: str, card: str, private: bool = False) -> str:
    """Upload the files of a model folder (`files_of`), and its card, as one commit. Return the URL.

    Files of an earlier model in the repository are replaced. Other files are kept. Raises CheckpointError if a file is
    damaged or the hub fails, and RecipeError for an invalid name or a missing token.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    files = files_of(folder)
    if get_token() is None:
        raise RecipeError(
            "pushing to the hub needs a write token: set HF_TOKEN, or run `hf auth login`; --dry-run needs no token"
        )
    api = HfApi()
    with _hub_errors(repository, "--dry-run writes the folder"), without_retries():
        address = api.create_repo(repository, private=private or None, exist_ok=True)
        there = {name for name in api.list_repo_files(repository) if name in FILES or name.startswith(f"{DETECTOR}/")}
        operations: list[Any] = [CommitOperationDelete(name) for name in sorted(there - files.keys())]
        operations += [CommitOperationAdd(name, str(path)) for name, path in files.items()]
        operations.append(CommitOperationAdd(CARD, card.encode()))
        api.create_commit(repository, operations, commit_message=f"A model of {folder.architecture.system}")
    return str(address)


def write(folder: ModelFolder, target: Path, card: str) -> None:
    """Write the files that `push` would upload to the folder `target`."""
    with whole_folder(target, "card") as temporary:
        for name, path in files_of(folder).items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, temporary / name)
        (temporary / CARD).write_text(card, "utf-8")


def files_of(folder: ModelFolder) -> dict[str, Path]:
    """Return {name in the repository: file to upload}. The fingerprints of training images are left out, because they
    show who has an image whether the model was trained on it.

    Raises CheckpointError if a file is damaged or missing.
    """
    refuse_links_out(folder.folder)
    if hurt := damaged_files(folder.folder):
        raise CheckpointError(f"{hurt[0]}; nothing was pushed")
    files = {name: folder.folder / name for name in FILES if name != SEEN and (folder.folder / name).is_file()}
    if folder.detector is not None:
        below = (path for path in files_below(folder.detector) if path.is_file() and path.name not in OWN)
        files |= {f"{DETECTOR}/{path.relative_to(folder.detector).as_posix()}": path for path in below}
    return files


def private_paths(folder: ModelFolder) -> list[str]:
    """Return KEY=VALUE for each key of the recipe whose value is a path on this machine.

    An upload would publish these paths.
    """
    recipe = folder.recipe
    if recipe is None:
        return []
    named = {"init": recipe.init, "network_init": recipe.network_init}
    named |= {"data.vocabulary": recipe.data.vocabulary, "data.text": recipe.data.text}
    return [f"{key}={value}" for key, value in named.items() if value is not None and Path(value).is_absolute()]


@contextmanager
def _hub_errors(name: str, otherwise: str) -> Iterator[None]:
    """Convert errors of the hub and the network to CheckpointError.

    `otherwise`: advice for users without access to the hub.
    """
    from huggingface_hub import errors
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RemoteEntryNotFoundError, RepositoryNotFoundError

    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # huggingface_hub raises many kinds of errors
        match error:
            case GatedRepoError():
                why = "is gated: request access on its page on the hub, then set HF_TOKEN to your token"
            case RepositoryNotFoundError():
                why = "is not on the hub, or not visible with this token; check the name; if private, set HF_TOKEN"
            case errors.RevisionNotFoundError():
                why = f"on the hub lacks this revision; pass one of https://huggingface.co/{name}/commits, or none"
            case RemoteEntryNotFoundError():
                why = f"on the hub is not a model of Diptych (it has no {CONFIG}); `diptych push` uploads models"
            case HfHubHTTPError() if error.response.status_code in (401, 403):
                why = "was refused by the hub: HF_TOKEN is invalid or lacks permission; use another token"
            case HfHubHTTPError():
                why = f"was refused by the hub ({error.response.status_code}); try again later"
            case _:
                why = f"could not be reached on the hub ({type(error).__name__}); without a network, {otherwise}"
        raise CheckpointError(f"{name} {why}") from error
