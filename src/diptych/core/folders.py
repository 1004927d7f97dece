"""Names of folders that several subpackages use."""

from pathlib import Path

DETECTOR, INNER = "detector", "model"  # the detector's folder in a store or model folder; the model's in a run folder
SAMPLE = Path(__file__).parents[1] / "runs" / "sample"  # the sample model; experiments/sample.py made it


def packaged(path: Path) -> Path:
    """Return the sample model's folder if `path` is "sample" and no such path exists. Otherwise return `path`."""
    return SAMPLE if path == Path("sample") and not path.exists() else path
