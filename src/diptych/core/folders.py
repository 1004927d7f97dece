"""Folders that several rooms name."""

from pathlib import Path

DETECTOR, INNER = "detector", "model"  # folder of the detector in a store or a model; folder of the model in a run
SAMPLE = Path(__file__).parents[1] / "runs" / "sample"  # a captioner of drawn scenes, by experiments/sample.py


def packaged(path: Path) -> Path:
    """Return the folder of the sample model for the name `sample`, unless such a path exists; else the path."""
    return SAMPLE if path == Path("sample") and not path.exists() else path
