"""Checkpoints on disk: folders with safetensors files and a JSON file. A checkpoint is either complete or absent.

RUN/checkpoints/step-00000100/   model.safetensors, optimizer.safetensors, ema.safetensors, state.json
"""

import errno
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from diptych.runtime.errors import CheckpointError, TrainingError
from diptych.runtime.files import aside, parse_json, replacing, sha256_of, sha256_of_json, sweep, text_of
from diptych.runtime.weight_files import write_weights

STATE = "state.json"
FORMAT = 2  # format 1 had no checksum of state.json
_FILE = re.compile(r"[a-z]+\.safetensors")


class DamagedError(CheckpointError):
    """Raised for a checkpoint with missing or changed files."""

    def __init__(self, path: Path, what: str) -> None:
        self.damage = f"{path} {what}"
        advice = f"Delete {path.parent}; the same command then resumes from the previous checkpoint"
        super().__init__(f"damaged checkpoint: {self.damage}. {advice}")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory: groups of named tensors (one file per group), and other state."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # {group ("model", "optimizer" or "ema"): {name: tensor}}


def folder_of(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def steps_in(root: Path) -> list[int]:
    """Return the steps that have a checkpoint folder, in ascending order."""
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d+)", name)))


def save(root: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically: into a temporary folder, which is then renamed."""
    target = folder_of(root, checkpoint.step)
    root.mkdir(parents=True, exist_ok=True)
    what = f"checkpoint of step {checkpoint.step}"
    # A damaged checkpoint of the same step may be there.
    with _room_for(root, what, checkpoint.tensors.values()), replacing(target) as temporary:
        temporary.mkdir()
        _write(temporary, checkpoint)
    return target


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a weights file atomically."""
    with _room_for(path.parent, "file of the final weights", [tensors]), replacing(path) as temporary:
        write_weights(tensors, temporary)


@contextmanager
def _room_for(folder: Path, what: str, groups: Iterable[Mapping[str, Tensor]]) -> Iterator[None]:
    """Convert the error of a full disk to a TrainingError with the needed and free space."""
    try:
        yield
    except Exception as error:
        if not disk_is_full(error):
            raise
        wanted = sum(t.nbytes for group in groups for t in group.values())
        free = shutil.disk_usage(folder).free
        why = (
            "the file is larger than this shell allows (ulimit -f)"
            if f"os error {errno.EFBIG}" in str(error)
            else "the disk is full"
        )
        raise TrainingError(
            f"{why}: the {what} needs {megabytes(wanted)} in {folder}, which has {megabytes(free)} free. Earlier "
            "checkpoints are complete, and no incomplete checkpoint is left: free space, lower training.keep or raise "
            "the limit of the shell, and run the same command again"
        ) from error


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    files = {}
    for name, tensors in checkpoint.tensors.items():
        path = folder / f"{name}.safetensors"
        write_weights(tensors, path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    state = {"format": FORMAT, "step": checkpoint.step, "files": files, **checkpoint.state}
    (folder / STATE).write_text(json.dumps(state | {"check": sha256_of_json(state)}, indent=1))


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksums. Raises CheckpointError with the damaged file and a remedy."""
    state = read_state(folder)
    files = state.pop("files")
    for name, known in files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(path, "is missing")
        if (size := path.stat().st_size) != known["bytes"]:
            raise DamagedError(path, f"has {size} bytes, but {known['bytes']} were written")
        if sha256_of(path) != known["sha256"]:
            raise DamagedError(path, "has changed since it was written (its sha256 differs)")
    return Checkpoint(state.pop("step"), state, {Path(name).stem: load_file(folder / name) for name in files})


def read_state(folder: Path) -> dict[str, Any]:
    """Read the JSON state of a checkpoint and verify its checksum. Raises CheckpointError if it is damaged."""
    path = folder / STATE
    try:
        state = parse_json(text_of(path))
    except FileNotFoundError:
        raise DamagedError(path, "is missing") from None
    except ValueError:
        raise DamagedError(path, "is not JSON, so it was cut short or overwritten") from None
    if not isinstance(state, dict) or not {"format", "step", "files"} <= state.keys():
        raise DamagedError(path, "does not hold the state of a checkpoint")
    if state["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {state['format']!r}, expected {FORMAT}: choose another folder")
    if state.pop("check", None) != sha256_of_json(state):
        raise DamagedError(path, "has changed since it was written (its checksum differs)")
    if folder.name != f"step-{state['step']:0>8}" or not all(map(_FILE.fullmatch, state["files"])):
        raise DamagedError(path, "belongs to another checkpoint")
    return state


def load_latest(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the latest undamaged checkpoint (None if no step was saved yet), and a warning for each damaged one.

    What interrupted saves left is removed. Raises CheckpointError if all checkpoints are damaged.
    """
    sweep(root)
    warnings: list[str] = []
    for step in reversed(steps_in(root)):
        try:
            return load(folder_of(root, step)), warnings
        except CheckpointError as error:
            warnings.append(str(error))
    if warnings:
        raise CheckpointError(f"every checkpoint in {root} is damaged. Delete the folder to begin anew. {warnings[0]}")
    return None, []


def prune(root: Path, kept: Iterable[int]) -> None:
    """Remove all checkpoints except the checkpoints of the steps `kept`."""
    for step in set(steps_in(root)) - set(kept):
        # Rename the folder before deleting it, so that a killed process does not leave a partial checkpoint.
        shutil.rmtree(folder_of(root, step).rename(aside(folder_of(root, step))))


def mean_of(
    root: Path, ranking: Sequence[int], most: int, group: str
) -> tuple[dict[str, Tensor], list[int], list[str]]:
    """Average the weights of the best steps of `ranking` (at most `most` steps).

    A damaged checkpoint is replaced by the next one in the ranking.

    Return the mean, the steps used, and a warning for each damaged checkpoint. Integer tensors (counters) are not
    averaged; the best step's are used.
    """
    total: dict[str, Tensor] = {}
    first: Mapping[str, Tensor] = {}
    used: list[int] = []
    warnings: list[str] = []
    for place, step in enumerate(ranking):
        if len(used) == most:
            break
        try:
            tensors = load(folder_of(root, step)).tensors[group]
        except DamagedError as error:
            if place < most:  # no warning for lower scores, because these checkpoints may have been pruned
                warnings.append(f"the final weights do not include step {step}, one of the best: {error.damage}")
            continue
        used.append(step)
        first = first or tensors
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {n: (total[n] / len(used)).to(t.dtype) if n in total else t for n, t in first.items()}, used, warnings


def disk_is_full(error: BaseException) -> bool:
    """Return True if the error means that the disk is full, or that a file has reached the system's size limit."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError):
        return error.errno in full
    # safetensors raises its own error type, which quotes the system's message.
    return any(f"os error {number})" in str(error) for number in full)


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
