"""Names of folders that several subpackages use."""

from pathlib import Path

# Names of subfolders: the detector's in a store or a model folder, and the model's in a run folder.
DETECTOR, INNER = "detector", "model"
PACKAGED = Path(__file__).parents[1] / "inference" / "packaged"  # folder of the models that come with Diptych


def packaged(path: Path) -> Path:
    """Return the folder of a packaged model if `path` is its name, such as `sample`, and no such path exists.

    Otherwise return `path`.
    """
    own = PACKAGED / path.name
    return own if path == Path(path.name) and not path.exists() and own.is_dir() else path
