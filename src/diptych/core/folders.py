"""Names of folders that several subpackages use."""

from pathlib import Path

# Names of subfolders: the detector's in a store or a model folder, and the model's in a run folder.
DETECTOR, INNER = "detector", "model"
SAMPLE = Path(__file__).parents[1] / "runs" / "sample"  # folder of the sample model (see experiments/sample.py)


def packaged(path: Path) -> Path:
    """Return the sample model's folder if `path` is "sample" and no such path exists. Otherwise return `path`."""
    return SAMPLE if path == Path("sample") and not path.exists() else path
