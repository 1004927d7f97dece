"""Boxes of transformers' detectors, features of any backbone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_selection
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.open import open_detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer
from diptych.vision.detectors.selection import Selection
from tests.support.proposed import RECORDS, SQUARE, WIDE, grid_folder

RT_DETR = {
    "encoder_in_channels": [16, 24, 32], "encoder_hidden_dim": 16, "encoder_ffn_dim": 16, "encoder_attention_heads": 2,
    "encoder_layers": 1, "d_model": 16, "decoder_in_channels": [16, 16, 16], "decoder_ffn_dim": 16, "decoder_layers": 1,
    "decoder_attention_heads": 2, "num_queries": 20, "num_denoising": 0, "id2label": {0: "cat", 1: "dog", 2: "kite"},
}  # fmt: skip
TRUNK = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
DETR = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_queries": 7, "id2label": {0: "cat", 1: "dog"},
}  # fmt: skip


def rt_detr(folder: Path) -> Any:
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrImageProcessor, RTDetrResNetConfig

    torch.manual_seed(0)
    trunk = RTDetrResNetConfig(**TRUNK, out_features=["stage2", "stage3", "stage4"])
    model = RTDetrForObjectDetection(RTDetrConfig(backbone_config=trunk, **RT_DETR)).eval()
    model.save_pretrained(folder)
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return model


def detr(folder: Path) -> Any:
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessor, ResNetConfig

    torch.manual_seed(0)
    trunk = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])
    model = DetrForObjectDetection(DetrConfig(backbone_config=trunk, **DETR)).eval()
    model.save_pretrained(folder)
    DetrImageProcessor(size={"shortest_edge": 32, "longest_edge": 64}).save_pretrained(folder)
    return model


@pytest.mark.parametrize("make", [rt_detr, detr])
def test_detectors_of_transformers_with_features_of_a_backbone(make: Any, tmp_path: Path) -> None:
    model = make(tmp_path / "hf")
    backbone = str(grid_folder(tmp_path / "grid"))
    detector = open_detector(
        "hf:user/name", [], weights=tmp_path / "hf", backbone=backbone, select=find_selection("image-bert-36")
    )
    both = detector.detect([WIDE, SQUARE], RECORDS)
    assert isinstance(detector, PooledDetector)
    # As transformers' own post-processing says it: the best box and what is in it.
    processor = detector.proposer.processor
    with torch.no_grad():
        seen = model(**processor(images=[WIDE], return_tensors="pt"))
    (own,) = processor.post_process_object_detection(seen, threshold=0.0, target_sizes=[(40, 80)])
    best = own["scores"].argmax()
    at = both[0].scores.argmax()
    torch.testing.assert_close(both[0].scores[at], own["scores"][best])
    scale = torch.tensor([80.0, 40, 80, 40])
    torch.testing.assert_close(both[0].boxes[at], (own["boxes"][best] / scale).clamp(0, 1))
    assert both[0].classes is not None
    assert both[0].classes.shape[1] == len(model.config.id2label) == len(detector.contract.class_names)
    assert int(both[0].classes[at].argmax()) == int(own["labels"][best])
    # Alone a picture gives the same.
    (alone,) = detector.detect([SQUARE], RECORDS[1:])
    torch.testing.assert_close(alone.features, both[1].features)
    narrow = torch.zeros(3, 4000, 4, dtype=torch.uint8)  # DETR's processor keeps the shape, RT-DETR's does not
    if make is detr:
        with pytest.raises(DataError, match="cannot process an image of 4 x 4000 pixels"):
            detector.detect([narrow], RECORDS[:1])
    else:
        assert len(detector.detect([narrow], RECORDS[:1])[0]) > 0
    detector.save(tmp_path / "kept")
    again = load_detector(tmp_path / "kept")
    assert again.contract == detector.contract
    for one, other in zip(both, again.detect([WIDE, SQUARE], RECORDS), strict=True):
        torch.testing.assert_close(one, other)
    assert "resnet at 64 pixels" in detector.contract.extractor


class Fixed(Proposer):
    """It always finds the same."""

    def __init__(self, boxes: list[list[float]]) -> None:
        super().__init__("fixed", ["cat"])
        self.boxes = torch.tensor(boxes)

    def propose(self, pictures: Any) -> list[Candidates]:
        scores = torch.linspace(0.9, 0.1, len(self.boxes))
        return [Candidates(self.boxes, scores, scores[:, None]) for _ in pictures]


def test_a_feature_is_the_mean_of_the_map_inside_its_box(tmp_path: Path) -> None:
    backbone = Backbone.of("timm/test_resnet", 128, pretrained=False).eval()
    boxes = [[0.0, 0, 1, 1], [0.25, 0.5, 0.5, 1], [0.5, 0.5, 0.5, 0.9]]
    detector = PooledDetector(Fixed(boxes), backbone, Selection(most=9))  # type: ignore[arg-type]
    (found,) = detector.detect([WIDE], RECORDS[:1])
    assert found.boxes.tolist() == boxes[:2]  # the third has no extent
    with torch.no_grad():
        squares, _ = letterbox([WIDE], 128)
        cells = backbone(squares)[0]  # 4 x 4, of which the upper half shows the picture
    assert found.features is not None
    assert cells.shape[1:] == (4, 4)
    from torchvision.ops import roi_align

    pooled = roi_align(cells[None], [torch.tensor([[0.0, 0, 4, 2], [1, 1, 2, 2]])], 7, 1, 2, aligned=True)
    torch.testing.assert_close(found.features, pooled.mean((2, 3)), rtol=1e-4, atol=1e-5)


def test_a_proposer_needs_a_backbone(tmp_path: Path) -> None:
    rt_detr(tmp_path / "hf")
    with pytest.raises(RecipeError, match=r"finds boxes but computes no features; .*--backbone timm/NAME"):
        open_detector("hf:user/name", [], weights=tmp_path / "hf")
    with pytest.raises(RecipeError, match="--backbone does not apply to --detector grid:resnet18; leave it out"):
        open_detector("grid:resnet18", [], backbone="resnet18")


def test_a_detector_of_the_hub_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(
        CheckpointError, match=r"cannot get hf:PekingU/rtdetr_r18vd .*; download config.json, .*--weights"
    ):
        open_detector("hf:PekingU/rtdetr_r18vd", [], backbone="resnet18")
