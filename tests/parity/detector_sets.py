"""Sets of golden vectors of the official detectors: those in this repository, and all below the folder DIPTYCH_PARITY.

A set is a folder `butd...` or `vlp_x101...` with a `meta.json`. Nothing is hard-coded: sizes, depth, pictures and what
is there come from the files (the committed sets lack some).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from diptych.vision.detectors.official.convert import Converted, convert
from diptych.vision.detectors.official.detector import OfficialDetector
from tests.parity.sets import COMMITTED, SETS

SELECTION, OUTPUTS, INPUTS, WEIGHTS = (f"{name}.safetensors" for name in ("selection", "outputs", "inputs", "weights"))
HEADS = ("proposal_generator.", "roi_heads.box_predictor.")


def sets(kind: str) -> list[Path]:
    found = [path.parent for root in SETS.values() for path in sorted(root.rglob("meta.json"))]
    return [folder for folder in found if folder.name.startswith(kind)]


def names(folder: Path, file: str) -> list[str]:
    if not (folder / file).is_file():
        return []
    with safe_open(folder / file, "pt") as opened:
        return list(opened.keys())


def label(folder: Path) -> str:
    return f"{'committed' if folder.is_relative_to(COMMITTED) else folder.parent.name}-{folder.name}"


def cases(kind: str, file: str, *parts: str) -> list[Any]:
    """(set, prefix) for each prefix under which the file holds all of these tensors."""
    made = []
    for folder in sets(kind):
        there = names(folder, file)
        endings = [name.removesuffix(parts[0]).rstrip(".") for name in there if f".{name}".endswith(f".{parts[0]}")]
        for prefix in endings:
            if all(f"{prefix}.{part}".lstrip(".") in there for part in parts):
                made.append(pytest.param(folder, prefix, id=f"{label(folder)}-{prefix}"))
    return made


@dataclass(frozen=True)
class Golden:
    folder: Path

    @cached_property
    def meta(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "meta.json").read_text()))

    @cached_property
    def config(self) -> dict[str, Any]:
        return dict(self.meta["config"])

    @cached_property
    def outputs(self) -> dict[str, Tensor]:
        return load_file(self.folder / OUTPUTS)

    @cached_property
    def selection(self) -> dict[str, Tensor]:
        return load_file(self.folder / SELECTION)

    def of(self, prefix: str) -> dict[str, Tensor]:
        return under(self.outputs, prefix)

    def picture(self, prefix: str) -> Tensor:
        """The input of `hf.0` or `0`: RGB (3, H, W)."""
        name = f"picture.{prefix.rpartition('.')[2]}"
        return load_file(self.folder / INPUTS)[name].permute(2, 0, 1).contiguous()


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def butd_weights(golden: Golden, dialect: str) -> dict[str, Tensor]:
    """As Hugging Face's and airsplay's files, or MILVLG's."""
    weights = load_file(golden.folder / WEIGHTS)
    if dialect == "hf":
        return weights
    own = load_file(golden.folder / "weights_caffe_layout.safetensors")
    return {name: value for name, value in weights.items() if not name.startswith(HEADS)} | own


def butd(golden: Golden, dialect: str) -> OfficialDetector:
    config, fixed = golden.config, golden.meta["fixed"]
    done = convert(butd_weights(golden, dialect), None, "golden")
    overlaps = config["hf_nms_thresholds"] if dialect == "hf" else [config["caffe_nms"]]
    settings = replace(
        done.settings,
        shorter=config["shorter"],
        longer=config["longer"],
        before_nms=fixed["pre_nms"],
        after_nms=config["post_nms"],
        proposal_overlap=fixed["rpn_nms"],
        least_side=float(fixed["caffe_min_size"]) if dialect == "caffe" else 0.0,
        least=config[f"{dialect}_min"],
        most=config[f"{dialect}_max"],
        confidence=config["caffe_confidence"],
        overlaps=tuple(overlaps),
    )
    return OfficialDetector.of(done.tensors, settings, (), "golden")


def vlp_cfg(config: dict[str, Any]) -> str:
    """As Detectron writes its settings: AttrDicts, with what could be mistaken for the right key beside it."""
    value = {name.split(" ")[0]: value for name, value in config.items()}
    return f"""!!python/object/new:utils.collections.AttrDict
dictitems:
  FAST_RCNN: !!python/object/new:utils.collections.AttrDict
    dictitems: {{MLP_HEAD_DIM: {value["MLP_HEAD_DIM"]}, ROI_BOX_HEAD: fast_rcnn_heads.add_roi_2mlp_head,
      ROI_XFORM_METHOD: RoIAlign, ROI_XFORM_RESOLUTION: 7, ROI_XFORM_SAMPLING_RATIO: 2}}
    state: {{__immutable__: true}}
  FPN: !!python/object/new:utils.collections.AttrDict
    dictitems:
      DIM: {value["FPN.DIM"]}
      RPN_ANCHOR_START_SIZE: {value["RPN_ANCHOR_START_SIZE"]}
      RPN_ASPECT_RATIOS: !!python/tuple
      - 0.5
      - 1
      - 2
  MODEL: !!python/object/new:utils.collections.AttrDict
    dictitems:
      BBOX_REG_WEIGHTS: !!python/tuple {value["BBOX_REG_WEIGHTS"]}
      NUM_CLASSES: {value["classes_with_background"]}
  RESNETS: !!python/object/new:utils.collections.AttrDict
    dictitems: {{NUM_GROUPS: {value["NUM_GROUPS"]}, STRIDE_1X1: {str(value["STRIDE_1X1"]).lower()}}}
  TEST: !!python/object/new:utils.collections.AttrDict
    dictitems:
      BBOX_AUG: !!python/object/new:utils.collections.AttrDict
        dictitems: {{MAX_SIZE: 4000, SCALES: !!python/tuple [], SCALE_H_FLIP: false}}
      DATASETS: &id001 !!python/tuple [vg_val]
      MAX_SIZE: {value["TEST.MAX_SIZE"]}
      NMS: {value["TEST.NMS"]}
      RPN_MIN_SIZE: {value["RPN_MIN_SIZE"]}
      RPN_NMS_THRESH: {value["RPN_NMS"]}
      RPN_POST_NMS_TOP_N: {value["RPN_POST_NMS_TOP_N"]}
      RPN_PRE_NMS_TOP_N: {value["RPN_PRE_NMS_TOP_N"]}
      SCALE: {value["TEST.SCALE"]}
      SOFT_NMS: !!python/object/new:utils.collections.AttrDict
        dictitems: {{ENABLED: false, METHOD: linear, SIGMA: 0.5}}
  TRAIN: !!python/object/new:utils.collections.AttrDict
    dictitems: {{MAX_SIZE: 77, RPN_NMS_THRESH: 0.9, RPN_POST_NMS_TOP_N: 7, RPN_PRE_NMS_TOP_N: 8,
      SCALES: !!python/tuple [66]}}
"""


def vlp_converted(golden: Golden) -> Converted:
    return convert(load_file(golden.folder / WEIGHTS), vlp_cfg(golden.config), "golden")


def vlp(golden: Golden) -> OfficialDetector:
    done = vlp_converted(golden)
    config = golden.config
    chosen = {name: config[name] for name in ("least", "most", "confidence")}
    return OfficialDetector.of(done.tensors, replace(done.settings, **chosen), (), "golden")


def close(ours: Tensor, theirs: Tensor, share: float, of: str = "") -> None:
    """To a share of the largest value."""
    assert ours.shape == theirs.shape, f"{of}: {tuple(ours.shape)}, theirs {tuple(theirs.shape)}"
    worst = (ours - theirs).abs().max() / theirs.abs().max()
    assert worst <= share, f"{of}: off by {worst:.1e} of the largest value, allowed {share:.0e}"


def near(ours: Tensor, theirs: Tensor, most: float, of: str = "") -> None:
    assert ours.shape == theirs.shape, f"{of}: {tuple(ours.shape)}, theirs {tuple(theirs.shape)}"
    worst = (ours - theirs).abs().max() if len(theirs) else torch.zeros(())
    assert worst <= most, f"{of}: off by {worst:.1e}, allowed {most:.0e}"


def mirrored_and_same(picture: Tensor) -> Iterator[Tensor]:
    yield picture
    yield picture.flip(2)
