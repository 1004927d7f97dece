"""Loading of weights into a model, with a report on every tensor."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, DiptychError, reason_of
from diptych.runtime.weight_files import Tensors


@dataclass
class ImportReport:
    """The report of an import: what happened to each tensor of the file and of the model."""

    loaded: list[str] = field(default_factory=list)  # names of the model's tensors that were loaded
    renamed: dict[str, str] = field(default_factory=dict)  # name in the file -> name in the model
    missing: list[str] = field(default_factory=list)  # names of the model's tensors that the file lacks
    left: dict[str, str] = field(default_factory=dict)  # {name of a tensor of the file that was not used: reason}

    def lines(self) -> list[str]:
        """Return the report as text: a line per renamed, missing or unused tensor, then the counts."""
        return [
            *(f"renamed  {theirs} -> {ours}" for theirs, ours in self.renamed.items()),
            *(f"missing  {name}: keeps its initial value" for name in self.missing),
            *(f"left     {name}: {why}" for name, why in self.left.items()),
            f"{len(self.loaded)} loaded, {len(self.renamed)} renamed, {len(self.missing)} missing, "
            f"{len(self.left)} left",
        ]


@contextmanager
def read_as_weights(source: object) -> Iterator[None]:
    """Convert errors in this context to a CheckpointError, because unexpected shapes raise errors of several types.

    `source` is the file.
    """
    try:
        yield
    except (DiptychError, OSError):
        raise
    except Exception as error:
        problem = f"{source} holds tensors of unexpected shapes ({type(error).__name__}: {reason_of(error)})"
        raise CheckpointError(f"{problem}; copy it again from its source") from error


def load_into(
    model: nn.Module, tensors: Tensors, report: ImportReport | None = None, *, complete: bool = False
) -> ImportReport:
    """Copy tensors into the model's parameters and buffers with the same names. Other weights keep their values.

    Raises CheckpointError if a shape is wrong, if no name matches, or if `complete` is True and a tensor is missing.
    """
    report = report or ImportReport()
    wanted = model.state_dict()
    wrong = [
        f"{name} is {_shape(tensors[name])}, expected {_shape(value)}"
        for name, value in wanted.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if wrong:
        raise CheckpointError(
            f"the file has another size for {len(wrong)} of the model's {len(wanted)} tensors: "
            f"{'; '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}; build the model with the sizes of the file"
        )
    report.missing = [name for name in wanted if name not in tensors]
    if complete and report.missing:
        raise CheckpointError(
            f"the file lacks {len(report.missing)} of the model's {len(wanted)} tensors, such as {report.missing[0]}; "
            "check which model it belongs to"
        )
    report.loaded = [name for name in wanted if name in tensors]
    if not report.loaded:
        raise CheckpointError(
            f"none of the file's {len(tensors)} tensors belongs to this model: the file has {_some(tensors)}, and the "
            f"model has {_some(wanted)}; check which system the file belongs to"
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
    """Return the SHA-256 of `before` and of all weights and their names. It identifies a model in caches."""
    hashed = hashlib.sha256(before.encode())
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()
