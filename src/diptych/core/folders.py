"""Names of folders that several subpackages use."""

from pathlib import Path

# Names of subfolders: the detector's in a store or a model folder, and the model's in a run folder.
DETECTOR, INNER = "detector", "model"
PACKAGED = Path(__file__).parents[1] / "inference" / "packaged"  # folder of the models that come with Diptych


MADE = (".diptych", "config.json", "detector.json")  # a folder with one of these is a model, a run or a detector


def packaged(path: Path) -> Path:
    """Return the folder of a packaged model if `path` is its name, such as `photos`, and no model of that name is here.

    A folder of images may have that name. Otherwise return `path`.
    """
    own = PACKAGED / path.name
    named = path == Path(path.name) and own.is_dir()
    return own if named and not any((path / one).exists() for one in MADE) else path
