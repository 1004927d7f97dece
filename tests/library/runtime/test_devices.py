"""Where a model computes, and in which precision."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from diptych.runtime import devices
from diptych.runtime.devices import (
    autocast,
    choose_device,
    choose_precision,
    choose_prediction,
    choose_ranks,
    precision_of,
    predicting,
)
from diptych.runtime.errors import RecipeError

CPU = torch.device("cpu")
AMX = "vendor_id : GenuineIntel\nflags : fpu avx512_bf16 amx_bf16 amx_tile"
WITHOUT_AMX = "vendor_id : GenuineIntel\nflags : fpu avx512_bf16"
AMD = "vendor_id : AuthenticAMD\nflags : fpu avx512_bf16"


@pytest.mark.parametrize(("wanted", "message"), [
    ("cpux", "is not a device"), ("meta", "not supported"), ("cuda", "torch sees no GPU"), ("mps", "no Apple GPU"),
])  # fmt: skip
def test_devices(wanted: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(RecipeError, match=f"--device: .*{message}"):
        choose_device(wanted, "--device")


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 1)
    assert choose_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(RecipeError, match="torch sees 2 GPUs"):
        choose_device("cuda:2")
    assert [choose_ranks("auto", most) for most in (1, 4)] == [1, 2]
    assert choose_ranks("cpu", 4) == 4
    monkeypatch.setenv("LOCAL_RANK", "2")
    for wanted in ("auto", "cuda"):
        with pytest.raises(RecipeError, match=r"training.device: .*more processes .* sees 2\);.*--nproc-per-node=2"):
            choose_device(wanted)


@pytest.mark.parametrize(("described", "limit", "wanted"), [
    (AMX, "", "bf16"), (AMX, "ALL", "bf16"), (AMX, "AVX512_CORE_AMX", "bf16"), (AMX, "AVX512_CORE_BF16", "fp32"),
    (WITHOUT_AMX, "", "fp32"), (AMD, "", "bf16"), (AMD, "AVX2", "fp32"), (AMD.replace("_bf16", "f"), "", "fp32"),
    ("", "", "fp32"),
])  # fmt: skip
def test_bf16_where_the_processor_gains(
    described: str, limit: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(described)
    monkeypatch.setattr(devices, "PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.delenv(devices.VARIABLE)
    assert choose_precision("auto", CPU) == wanted
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"
    monkeypatch.setenv(devices.VARIABLE, "bf16")
    assert choose_precision("auto", CPU) == "bf16"


def test_a_precision_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"^precision: 'bf17' is unknown; did you mean bf16"):
        choose_precision("bf17", CPU)
    monkeypatch.setenv(devices.VARIABLE, "half")
    with pytest.raises(RecipeError, match="DIPTYCH_PRECISION='half' is not a precision"):
        choose_precision("auto", CPU)


def test_a_model_predicts_as_it_was_opened() -> None:
    """Around a model of fp32 the trainer's precision stays: validation is in that of the run."""
    model = nn.Linear(4, 4)
    with predicting(model, 1):
        assert model(torch.ones(1, 4)).dtype == torch.float32
    with autocast(CPU, "bf16"), predicting(model, 1):
        assert model(torch.ones(1, 4)).dtype == torch.bfloat16
    model.precision = "bf16"
    with predicting(model, 1):
        found = model(torch.ones(1, 4))
    assert found.dtype == torch.bfloat16
    assert not found.requires_grad
    model.fewest = 3
    assert [precision_of(model, count) for count in (1, 2, 3, 64)] == ["fp32", "fp32", "bf16", "bf16"]
    with predicting(model, 2):
        assert model(torch.ones(2, 4)).dtype == torch.float32


@pytest.mark.parametrize(("width", "wanted"), [(64, ("fp32", 1)), (128, ("fp32", 1)), (256, ("bf16", 16)),
                                               (768, ("bf16", 2))])  # fmt: skip
def test_auto_knows_how_large_a_batch_has_to_be(
    width: int, wanted: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gains_by_bf16", lambda _device: True)
    monkeypatch.delenv(devices.VARIABLE)
    assert choose_prediction("auto", CPU, width) == wanted
    assert choose_prediction("bf16", CPU, width) == ("bf16", 1)
    assert choose_prediction("fp32", CPU, width) == ("fp32", 1)
    assert choose_prediction("auto", torch.device("cuda"), width) == ("bf16", 1)
    monkeypatch.setenv(devices.VARIABLE, "bf16")
    assert choose_prediction("auto", CPU, width) == ("bf16", 1)
    monkeypatch.setattr(devices, "gains_by_bf16", lambda _device: False)
    monkeypatch.delenv(devices.VARIABLE)
    assert choose_prediction("auto", CPU, width) == ("fp32", 1)


@pytest.mark.parametrize(("batch", "width", "wanted"), [(64, 128, "fp32"), (16, 256, "fp32"), (64, 256, "bf16"),
                                                        (8, 768, "bf16")])  # fmt: skip
def test_auto_knows_what_is_too_small_to_train_in_bf16(
    batch: int, width: int, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gains_by_bf16", lambda _device: True)
    monkeypatch.delenv(devices.VARIABLE)
    assert choose_precision("auto", CPU, batch * width**2) == wanted
    assert choose_precision("auto", torch.device("cuda"), batch * width**2) == "bf16"
    assert choose_precision("bf16", CPU, batch * width**2) == "bf16"
    monkeypatch.setenv(devices.VARIABLE, "bf16")
    assert choose_precision("auto", CPU, batch * width**2) == "bf16"


def test_a_weight_is_cast_once_a_batch() -> None:
    """As often as it is used, a search would cast all weights for every word."""
    model = nn.Linear(4, 4)
    model.precision = "bf16"
    with predicting(model, 1), profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(5):
            model(torch.ones(1, 4, dtype=torch.bfloat16))
    casts = sum(event.count for event in seen.key_averages() if event.key == "aten::_to_copy")
    assert casts == 2, "weight and bias"
