"""Weights put into a model, with an account of every key."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, DiptychError
from diptych.runtime.weight_files import Tensors


@dataclass
class ImportReport:
    """What became of every key."""

    loaded: list[str] = field(default_factory=list)  # ours, under their own name or renamed
    renamed: dict[str, str] = field(default_factory=dict)  # theirs -> ours
    missing: list[str] = field(default_factory=list)  # ours that nothing was found for: they start fresh
    left: dict[str, str] = field(default_factory=dict)  # theirs that were not used -> why

    def lines(self) -> list[str]:
        return [
            *(f"renamed  {theirs} -> {ours}" for theirs, ours in self.renamed.items()),
            *(f"missing  {name}: starts fresh" for name in self.missing),
            *(f"left     {name}: {why}" for name, why in self.left.items()),
            f"{len(self.loaded)} loaded, {len(self.renamed)} renamed, {len(self.missing)} missing, "
            f"{len(self.left)} left",
        ]


@contextmanager
def read_as_weights(source: object) -> Iterator[None]:
    """Whatever tensors of other forms than their names say lead to becomes a CheckpointError."""
    try:
        yield
    except (DiptychError, OSError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{source} holds tensors of other forms than their names say ({type(error).__name__}: "
            f"{(str(error).splitlines() or [''])[0][:200]}); copy it again from its source"
        ) from error


def load_into(
    model: nn.Module, tensors: Tensors, report: ImportReport | None = None, *, complete: bool = False
) -> ImportReport:
    """Copy tensors into the parameters and buffers of the same name; the others keep their fresh values.

    `complete` refuses a file that lacks any. A wrong shape is always refused.
    """
    report = report or ImportReport()
    wanted = model.state_dict()
    wrong = [
        f"{name} is {_shape(tensors[name])}, wanted {_shape(value)}"
        for name, value in wanted.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if wrong:
        raise CheckpointError(
            f"{len(wrong)} tensors have other sizes than the model: {'; '.join(wrong[:3])}"
            f"{' ...' if len(wrong) > 3 else ''}; build the model with the sizes of the file"
        )
    report.missing = [name for name in wanted if name not in tensors]
    if complete and report.missing:
        raise CheckpointError(
            f"the file lacks {len(report.missing)} of the model's {len(wanted)} tensors, such as {report.missing[0]}; "
            "it belongs to another model"
        )
    report.loaded = [name for name in wanted if name in tensors]
    if not report.loaded:
        raise CheckpointError(
            f"none of the file's {len(tensors)} tensors belongs to this model: it has {_some(tensors)}, the model "
            f"{_some(wanted)}; check which system the file is of"
        )
    report.left.update({name: "not in the model" for name in tensors if name not in wanted})
    with torch.no_grad():
        for name in report.loaded:
            wanted[name].copy_(tensors[name])
    return report


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _some(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(sorted(tensors)[:2])


def digest(model: nn.Module, before: str = "") -> str:
    """sha256 of `before` and of all weights, by their names: what was computed with them can be kept under it."""
    hashed = hashlib.sha256(before.encode())
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()
