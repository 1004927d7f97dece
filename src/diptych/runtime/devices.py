"""Choose the device and the precision of a model, for training, validation and prediction."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from math import inf
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from diptych.runtime.errors import RecipeError, nearest

Precision = Literal["fp32", "bf16"]
VARIABLE = "DIPTYCH_PRECISION"  # environment variable with the precision that `auto` selects
PROCESSOR = Path("/proc/cpuinfo")
KINDS = ("cpu", "cuda", "mps")
# On a CPU, bf16 is faster if (samples per batch) x (width squared) is at least this (experiments/LOG.md). For smaller
# matrix products, casts and kernel calls take more time than bf16 saves.
PREDICTING, TRAINING = 2**20, 2**22
MOST = 64  # a batch in prediction has at most this number of samples


def choose_device(wanted: str, setting: str = "training.device") -> torch.device:
    """Return the device named `wanted`. `auto` is a GPU if there is one, else the CPU.

    Under torchrun, each rank gets its own GPU.

    Raises RecipeError if torch does not have this device. `setting`: the name at the start of the message.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    known = "known: auto, cpu, cuda, cuda:0, mps"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise RecipeError(f"{setting}: {wanted!r} is not a device; {known}") from error
    if device.type not in KINDS:
        raise RecipeError(f"{setting}: {wanted!r} is not supported; {known}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and not count:
        raise RecipeError(f"{setting}: found {wanted!r}, but torch sees no GPU; use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RecipeError(f"{setting}: found {wanted!r}, but torch sees {count} GPUs, from cuda:0 to cuda:{count - 1}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise RecipeError(f"{setting}: found {wanted!r}, but torch sees no Apple GPU; use auto or cpu")
    if device.type == "cuda" and ":" not in wanted:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if device.index >= count:
            raise RecipeError(
                f"{setting}: this machine has more processes than GPUs (torch sees {count}); start one "
                f"process per GPU (torchrun --nproc-per-node={count}), or use cpu"
            )
    return device


def choose_ranks(wanted: str, most: int) -> int:
    """Return the number of processes with which a small model trains fastest on the device named `wanted`.

    On GPUs it is at most one per GPU; on a CPU it is `most`. Raises RecipeError for an unknown device.
    """
    kind = choose_device(wanted).type
    return min({"cpu": most, "cuda": torch.cuda.device_count()}.get(kind, 1), most)


def choose_precision(wanted: str, device: torch.device, size: float = inf) -> Precision:
    """Return the precision named `wanted`.

    `auto` is $DIPTYCH_PRECISION if set, else bf16 if it is faster on the device, else fp32.

    `size`: samples per batch x squared width. On a CPU, bf16 is faster only if `size` is large. Raises RecipeError for
    an unknown precision.
    """
    if wanted == "auto":
        gains = (device.type != "cpu" or size >= TRAINING) and gains_by_bf16(device)
        wanted = os.environ.get(VARIABLE) or ("bf16" if gains else "fp32")
        if wanted not in get_args(Precision):
            raise RecipeError(f"{VARIABLE}={wanted!r} is not a precision; {nearest(wanted, get_args(Precision))}")
    if wanted not in get_args(Precision):
        raise RecipeError(f"precision: {wanted!r} is unknown; {nearest(wanted, ('auto', *get_args(Precision)))}")
    return cast(Precision, wanted)


def choose_prediction(wanted: str, device: torch.device, width: int) -> tuple[Precision, int]:
    """Return the precision of predictions, and the smallest batch that uses it. Smaller batches are computed in fp32.

    The limit applies to `auto` on a CPU, where bf16 is faster only for large matrix products. Raises RecipeError.
    """
    precision = choose_precision(wanted, device)
    if precision == "fp32" or device.type != "cpu" or wanted != "auto" or os.environ.get(VARIABLE):
        return precision, 1
    fewest = -(-PREDICTING // width**2)
    return (precision, fewest) if fewest < MOST else ("fp32", 1)


def precision_of(model: nn.Module, samples: int) -> Precision:
    """Return the precision in which a model predicts for a batch of `samples` samples; `ModelFolder.on` sets it."""
    precision: Precision = getattr(model, "precision", "fp32")
    return precision if samples >= getattr(model, "fewest", 1) else "fp32"


def gains_by_bf16(device: torch.device) -> bool:
    """Return True if the device is faster in bf16 than in fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and _processor_gains(_read(PROCESSOR), os.environ.get("ONEDNN_MAX_CPU_ISA", ""))


def _processor_gains(described: str, limit: str) -> bool:
    """Return True for processors that are faster in bf16, by our measurements (docs/results/vlp.md).

    `described`: the text of /proc/cpuinfo.

    Compared with fp32, bf16 is several times as fast with Intel's AMX, and twice as fast with AMD's AVX512-BF16. It is
    slower on Intel processors that have only AVX512-BF16. `limit`: the instruction sets that oneDNN may use.
    """
    if limit.upper() in ("ALL", "DEFAULT"):
        limit = ""
    if re.search(r"\bamx_bf16\b", described) and "AMX" in (limit or "AMX").upper():
        return True
    amd = "AuthenticAMD" in described and re.search(r"\bavx512_bf16\b", described) is not None
    return amd and (limit or "BF16").upper().endswith(("BF16", "FP16", "AMX"))


def _read(path: Path) -> str:
    with suppress(OSError):  # other systems than Linux have no /proc/cpuinfo
        return path.read_text("utf-8", "replace")
    return ""


def to_device(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return numbers as a tensor on a device, without waiting.

    torch.tensor(..., device=device) would wait for the GPU's queue.
    """
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return a context that autocasts to bf16. For fp32 it has no effect, so an outer autocast stays.

    With bf16, no loss scaling is needed. Weights, gradients and the optimizer's state stay in fp32.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


@contextmanager
def predicting(model: nn.Module, samples: int) -> Iterator[None]:
    """Return a context in which a model predicts for a batch of `samples` samples, without gradients.

    The precision is the model's. The context uses no_grad: in inference_mode, autocast does not cache weights, and
    would cast them again for every word.
    """
    device = next(model.parameters()).device
    with torch.no_grad(), autocast(device, precision_of(model, samples)):
        yield


@contextmanager
def torch_unchanged() -> Iterator[None]:
    """Return a context that at its end restores torch's random state and number of threads."""
    threads = torch.get_num_threads()
    begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch has no type for it
    with torch.random.fork_rng([torch.cuda.current_device()] if begun else []):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
