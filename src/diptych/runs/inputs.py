"""Digests of a run's data and of the files that its recipe names. A run resumes only if they have not changed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diptych.core.folders import INNER
from diptych.data.store.several import SeveralStores
from diptych.data.store.store import Store
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.files import parse_json, sha256_of, text_of, write_atomically
from diptych.runtime.weight_files import find_weights
from diptych.systems.recipe import Recipe
from diptych.vision.detectors.weights import WEIGHTS

FILE = "inputs.json"


def checked_inputs(folder: Path, recipe: Recipe, store: Store) -> dict[str, str]:
    """Return a digest of each store and of each file that the recipe names.

    Raises DataError if the run in the folder began with others. Files that are missing are not compared.
    """
    stores = store.stores if isinstance(store, SeveralStores) else {"": store}
    digests = {f"data {name}".strip(): (one.folder, one.content) for name, one in stores.items()}
    digests |= {setting: (path, sha256_of(path)) for setting, path in files_of(recipe)}
    try:
        before = parse_json(text_of(folder / FILE))
    except (OSError, ValueError):  # a new run
        before = {}
    if changed := [str(path) for name, (path, digest) in digests.items() if before.get(name, digest) != digest]:
        raise DataError(
            f"{', '.join(changed)} changed after the run in {folder} began; choose another --out (to train this run's "
            f"model further, start from {folder / INNER})"
        )
    return {name: digest for name, (_, digest) in digests.items()}


def save_inputs(folder: Path, inputs: dict[str, str]) -> None:
    """Write the digests to a run's folder, unless it has some."""
    if not (folder / FILE).exists():
        write_atomically(folder / FILE, json.dumps(inputs, indent=1).encode())


def files_of(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield the setting and the path of each file on this machine that the recipe names."""
    init, data = recipe.init, recipe.data
    sources = {"network_init": recipe.network_init, "data.vocabulary": data.vocabulary, "data.text": data.text}
    for setting, source in {"init": init, **sources}.items():
        path = Path(source or "")
        if source is not None and path.is_dir():
            with suppress(CheckpointError):  # a folder without weights is refused later
                path = find_weights(path) if setting == "init" else path / WEIGHTS
        if source is not None and path.is_file():
            yield setting, path
