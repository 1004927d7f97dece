"""Where a model computes and in which precision: one choice, for training, validation and prediction alike."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from diptych.runtime.errors import RecipeError, nearest

Precision = Literal["fp32", "bf16"]
VARIABLE = "DIPTYCH_PRECISION"  # what `auto` means; unset: bf16 where the device gains by it
PROCESSOR = Path("/proc/cpuinfo")
KINDS = ("cpu", "cuda", "mps")
# Samples of a batch times the squared width from which on bf16 gains on a CPU (docs/log.md): small products cost less
# than the casts and the kernels' calls around them.
PREDICTING, TRAINING = 2**20, 2**22
MOST = 64  # samples of a batch where models predict


def choose_device(wanted: str, setting: str = "training.device") -> torch.device:
    """`auto`: a GPU where there is one. Under torchrun each rank takes its own. Raises RecipeError."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise RecipeError(f"{setting}: {wanted!r} is no device; known: auto, cpu, cuda, cuda:0, mps") from error
    if device.type not in KINDS:
        raise RecipeError(f"{setting}: {wanted!r} is not supported; known: auto, cpu, cuda, cuda:0, mps")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError(f"{setting}: {wanted!r} was asked for, but torch sees no GPU; take auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise RecipeError(f"{setting}: {wanted!r} was asked for, and torch sees {count} GPUs, counted from cuda:0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise RecipeError(f"{setting}: {wanted!r} was asked for, but torch sees no Apple GPU; take auto or cpu")
    if device.type == "cuda" and ":" not in wanted:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def choose_precision(wanted: str, device: torch.device, size: float = inf) -> Precision:
    """`auto`: what $DIPTYCH_PRECISION says, else bf16 where the device gains by it.

    A CPU gains where the `size` of what is trained is large: samples of a batch times squared width.
    Raises RecipeError.
    """
    if wanted == "auto":
        gains = (device.type != "cpu" or size >= TRAINING) and gains_by_bf16(device)
        wanted = os.environ.get(VARIABLE) or ("bf16" if gains else "fp32")
        if wanted not in get_args(Precision):
            raise RecipeError(f"{VARIABLE}={wanted!r} is no precision; {nearest(wanted, get_args(Precision))}")
    if wanted not in get_args(Precision):
        raise RecipeError(f"{wanted!r} is no precision; {nearest(wanted, ('auto', *get_args(Precision)))}")
    return cast(Precision, wanted)


def choose_prediction(wanted: str, device: torch.device, width: int) -> tuple[Precision, int]:
    """For a model that predicts, and the samples from which on a batch is computed so, smaller ones in fp32: where
    `auto` is ours to say, products have to be large before a CPU gains. Raises RecipeError."""
    precision = choose_precision(wanted, device)
    if precision == "fp32" or device.type != "cpu" or wanted != "auto" or os.environ.get(VARIABLE):
        return precision, 1
    fewest = -(-PREDICTING // width**2)
    return (precision, fewest) if fewest < MOST else ("fp32", 1)


def precision_of(model: nn.Module, samples: int) -> Precision:
    """In which a model predicts for a batch of so many samples (`ModelFolder.on`)."""
    precision: Precision = getattr(model, "precision", "fp32")
    return precision if samples >= getattr(model, "fewest", 1) else "fp32"


def gains_by_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and _processor_gains(_read(PROCESSOR), os.environ.get("ONEDNN_MAX_CPU_ISA", ""))


def _processor_gains(described: str, limit: str) -> bool:
    """Where it was measured (docs/results/vlp.md): Intel's AMX multiplies several times as fast in bf16, AMD's
    AVX512-BF16 twice; Intel's AVX512-BF16 alone is slower than fp32. A `limit` of oneDNN switches units off."""
    if limit.upper() in ("ALL", "DEFAULT"):
        limit = ""
    if re.search(r"\bamx_bf16\b", described) and "AMX" in (limit or "AMX").upper():
        return True
    amd = "AuthenticAMD" in described and re.search(r"\bavx512_bf16\b", described) is not None
    return amd and (limit or "BF16").upper().endswith(("BF16", "FP16", "AMX"))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # no Linux
        return ""


def to_device(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers as a tensor on its way to a device: torch.tensor(..., device=device) would wait for all that a GPU has
    still to do."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """bf16 needs no loss scaling; weights, gradients and the optimizer's state stay in fp32. Where it is fp32, what a
    caller has chosen around it stays."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


@contextmanager
def predicting(model: nn.Module, samples: int) -> Iterator[None]:
    """Without gradients, in the precision that the model was opened in for such a batch.

    Not in inference mode, where autocast keeps no weight and casts each anew for every word.
    """
    device = next(model.parameters()).device
    with torch.no_grad(), autocast(device, precision_of(model, samples)):
        yield
