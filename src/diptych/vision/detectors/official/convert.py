"""Convert weights files of the official detectors to our names and settings, with a report on every key.

A file's format is recognised from its keys and shapes, not from its name:

- bottom-up attention, `hf`: keys backbone., proposal_generator., roi_heads.; one logit per anchor; background last
- bottom-up attention, `caffe` (MILVLG's file): the same keys; two logits per anchor; background first
- Unified VLP's detector: Detectron's blobs conv1_w, res2_0_branch2a_w, fpn_inner_..., fc6_w
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from diptych.runtime.errors import CheckpointError, explained
from diptych.vision.detectors.official.boxes import CAFFE, DETECTRON2
from diptych.vision.detectors.official.butd import ANCHOR_RATIOS, ANCHOR_SIZES, STRIDE, ButdSettings
from diptych.vision.detectors.official.cfg import cfg_values, number, numbers
from diptych.vision.detectors.official.regions import OfficialSettings
from diptych.vision.detectors.official.resnet import batch_norm, folded
from diptych.vision.detectors.official.x101 import X101Settings

Tensors = Mapping[str, Tensor]
NORM = ("weight", "bias", "running_mean", "running_var")
BUTD_CONVOLUTION = re.compile(r"(?:backbone\.(stem)\.conv1|(?:backbone|roi_heads)\.(res\d\.\d+\.\w+))\.weight")
BUTD_LAYER = re.compile(r"(?:proposal_generator\.rpn_head|roi_heads\.box_predictor)\.(\w+)\.(weight|bias)")
BUTD_NAMES = {"conv": "rpn", "objectness_logits": "objectness", "anchor_deltas": "deltas", "cls_score": "classes",
              "bbox_pred": "boxes", "cls_embedding": "embedding", "cls_embed": "embedding",
              "fc_attr": "attribute_inner", "attr_linear1": "attribute_inner",
              "attr_score": "attributes", "attr_linear2": "attributes"}  # fmt: skip
BUTD_ANCHORS = "proposal_generator.anchor_generator.cell_anchors.0"
OBJECTNESS = "proposal_generator.rpn_head.objectness_logits.weight"
BLOB = re.compile(r"(conv1|res(\d)_(\d+)_branch(1|2a|2b|2c))_w")
BRANCHES = {"1": "shortcut", "2a": "conv1", "2b": "conv2", "2c": "conv3"}
LATERAL = re.compile(r"fpn_(inner_)?res(\d)_\d+_sum(?:_lateral)?_(w|b)")
BLOB_NAMES = {"conv_rpn_fpn2": "rpn", "rpn_cls_logits_fpn2": "objectness", "rpn_bbox_pred_fpn2": "deltas",
              "fc6": "fc6", "fc7": "fc7", "cls_score": "classes", "bbox_pred": "boxes"}  # fmt: skip
BLOB_KINDS = {"w": "weight", "b": "bias"}
FIRST_MAP = 2


@dataclass
class Converted:
    """The converted weights and settings of a file, and a report on each key."""

    tensors: dict[str, Tensor]
    settings: OfficialSettings
    renamed: dict[str, str] = field(default_factory=dict)  # key in the file -> key in Diptych's network
    left: dict[str, str] = field(default_factory=dict)  # unused key in the file -> the reason
    notes: list[str] = field(default_factory=list)  # lines that report inferred and assumed settings

    def lines(self) -> list[str]:
        """Return one line of text per key, and a last line with the counts."""
        return [
            *(f"renamed  {theirs} -> {ours}" for theirs, ours in self.renamed.items()),
            *(f"left     {name}: {why}" for name, why in self.left.items()),
            f"{len(self.tensors)} loaded, {len(self.renamed)} renamed, 0 missing, {len(self.left)} left",
        ]

    def rename(self, theirs: str, ours: str, tensor: Tensor) -> None:
        """Store the tensor `theirs` of the file under the name `ours`."""
        self.tensors[ours], self.renamed[theirs] = tensor.float(), ours

    def fold(self, weight: Tensor, scale: Tensor, shift: Tensor, ours: str) -> None:
        """Store a convolution as `ours`, with its normalisation (scale and shift) folded into the weights."""
        self.tensors[f"{ours}.weight"], self.tensors[f"{ours}.bias"] = folded(weight, scale, shift)


def convert(tensors: Tensors, cfg: str | None, source: str) -> Converted:
    """Convert a file's tensors. `cfg`: the text of Detectron's settings, if the file has it.

    Raises CheckpointError for other networks.
    """
    for name, value in tensors.items():
        if not value.numel() or not value.isfinite().all():
            fault = "holds numbers that are not finite" if value.numel() else "is empty"
            raise CheckpointError(f"{source}: the tensor {name} {fault}; copy the file again")
    half = sum(value.dtype in (torch.float16, torch.bfloat16) for value in tensors.values())
    problem = f"{source} has tensors whose sizes do not fit together"
    with explained(CheckpointError, problem, "copy the file again", RuntimeError):
        done = _known(tensors, cfg, source)
    if half:
        done.notes.append(f"{half} tensors are in half precision; the detector computes in float32")
    return done


def _known(tensors: Tensors, cfg: str | None, source: str) -> Converted:
    if OBJECTNESS in tensors:
        return _butd(tensors, source)
    if "conv1_w" in tensors and "fc6_w" in tensors:
        return _x101(tensors, cfg, source)
    there = ", ".join(sorted(tensors)[:3])
    raise CheckpointError(
        f"{source} is not a known detector: its first keys are {there}; pass bottom-up attention "
        f"(`{OBJECTNESS}`, ...) or a Detectron FPN (`conv1_w`, `fpn_inner_res5_2_sum_w`, `fc6_w`, ...)"
    )


def _take(tensors: Tensors, name: str, source: str, count: int | None = None) -> Tensor:
    """Return the tensor `name` as float32. `count`: require a vector of this length. Raises CheckpointError."""
    if name not in tensors:
        raise CheckpointError(f"{source} has no {name}; copy it again, or pass a complete file")
    if count is not None and tensors[name].shape != (count,):
        raise CheckpointError(f"{source}: {name} has shape {tuple(tensors[name].shape)}, not {(count,)}; copy it again")
    return tensors[name].float()


def _convolution(tensors: Tensors, name: str, source: str) -> Tensor:
    weight = tensors[name].float()
    if weight.ndim != 4:
        raise CheckpointError(f"{source}: {name} has shape {tuple(weight.shape)}, expected four axes (a convolution)")
    return weight


def _butd(tensors: Tensors, source: str) -> Converted:
    anchors = len(_take(tensors, "proposal_generator.rpn_head.anchor_deltas.weight", source)) // 4
    logits = len(tensors[OBJECTNESS])
    if logits not in (anchors, 2 * anchors):
        raise CheckpointError(
            f"{source} has {logits} objectness logits for {anchors} anchors; expected one per anchor (Hugging Face, "
            "airsplay) or two per anchor (Caffe, MILVLG); copy the file again"
        )
    done = Converted({}, ButdSettings.usual("hf" if logits == anchors else "caffe"))
    done.notes.append(
        f"{logits} objectness logits for {anchors} anchors: the dialect is {'hf' if logits == anchors else 'caffe'}"
    )
    for name in tensors:
        if match := BUTD_CONVOLUTION.fullmatch(name):
            theirs, ours = name.removesuffix(".weight"), match[1] or match[2]
            norm = [f"{theirs}.norm.{part}" for part in NORM]
            weight = _convolution(tensors, name, source)
            parts = [_take(tensors, part, source, len(weight)) for part in norm]
            done.fold(weight, *batch_norm(*parts), ours)
            done.renamed |= {name: f"{ours}.weight"} | dict.fromkeys(norm, f"{ours}.weight and bias")
        elif (match := BUTD_LAYER.fullmatch(name)) and match[1] in BUTD_NAMES:
            done.rename(name, f"{BUTD_NAMES[match[1]]}.{match[2]}", tensors[name])
    done.tensors["anchors"] = _anchors(tensors, anchors, done, source)
    if logits == anchors:
        _background_first(done.tensors, source)
    _account(tensors, done)
    return done


def _anchors(tensors: Tensors, count: int, done: Converted, source: str) -> Tensor:
    """Return the file's anchors, or the default anchors if the file has none.

    Raises CheckpointError if there are not `count` anchors.
    """
    convention = CAFFE if len(tensors[OBJECTNESS]) == 2 * count else DETECTRON2
    usual = convention.anchors(STRIDE, ANCHOR_SIZES, ANCHOR_RATIOS)
    if BUTD_ANCHORS in tensors:
        own = tensors[BUTD_ANCHORS].float()
        if own.shape != (count, 4):
            raise CheckpointError(f"{source}: {BUTD_ANCHORS} is {tuple(own.shape)}, not {(count, 4)}; copy it again")
        done.renamed[BUTD_ANCHORS] = "anchors"
        if own.shape != usual.shape or not torch.allclose(own, usual, atol=0.01):
            done.notes.append(f"the file's anchors differ from the default ones; the first is {own[0].tolist()}")
        return own
    if len(usual) != count:
        raise CheckpointError(
            f"{source} has {count} anchors per cell, but lacks their sizes (`{BUTD_ANCHORS}`); without sizes, expected "
            f"the {len(usual)} default anchors"
        )
    done.notes.append(f"assumed: the {count} default anchors (the file has none); the first is {usual[0].tolist()}")
    return usual


def _background_first(ours: dict[str, Tensor], source: str) -> None:
    """Move the background class from the last row (as in the port) to row 0, with box deltas of zero."""
    count = len(_take(ours, "classes.weight", source))
    for name in ("classes.weight", "classes.bias", "embedding.weight", "attributes.weight", "attributes.bias"):
        if name in ours:
            ours[name] = ours[name].roll(1, 0)
    for name in ("boxes.weight", "boxes.bias"):
        boxes = _take(ours, name, source)
        if len(boxes) == 4 * (count - 1):
            ours[name] = torch.cat([boxes.new_zeros(4, *boxes.shape[1:]), boxes])


def _x101(tensors: Tensors, cfg: str | None, source: str) -> Converted:
    done = Converted({}, X101Settings.usual())
    for name in tensors:
        if match := BLOB.fullmatch(name):
            _fold_blob(tensors, match, done, source)
        elif match := LATERAL.fullmatch(name):
            ours = f"{'inner' if match[1] else 'outer'}.{int(match[2]) - FIRST_MAP}.{BLOB_KINDS[match[3]]}"
            done.rename(name, ours, tensors[name])
        elif (stem := name[:-2]) in BLOB_NAMES and name[-2:] in ("_w", "_b"):
            done.rename(name, f"{BLOB_NAMES[stem]}.{BLOB_KINDS[name[-1]]}", tensors[name])
    done.settings = _x101_settings(cfg, done)
    _account(tensors, done)
    return done


def _fold_blob(tensors: Tensors, blob: re.Match[str], done: Converted, source: str) -> None:
    """Add a convolution of the backbone, whose name matches BLOB, with its norm folded into it."""
    ours = "stem" if blob[1] == "conv1" else f"res{blob[2]}.{blob[3]}.{BRANCHES[blob[4]]}"
    theirs = "res_conv1_bn" if blob[1] == "conv1" else f"{blob[1]}_bn"
    weight = _convolution(tensors, blob[0], source)
    scale, shift = (_take(tensors, f"{theirs}_{part}", source, len(weight)) for part in "sb")
    if (own := f"{blob[1]}_b") in tensors:  # the convolution has a bias in addition to the norm
        shift = shift + _take(tensors, own, source, len(weight)) * scale
        done.renamed[own] = f"{ours}.bias"
    done.fold(weight, scale, shift, ours)
    done.renamed |= {blob[0]: f"{ours}.weight", f"{theirs}_s": f"{ours}.weight", f"{theirs}_b": f"{ours}.bias"}


def _x101_settings(cfg: str | None, done: Converted) -> X101Settings:
    """Return the settings in the training's `cfg`.

    A missing setting gets the default of Detectron's code, and a note in `done`.
    """
    values = cfg_values(cfg or "")
    usual = X101Settings.usual()
    read: dict[str, Any] = {}
    for ours, names in {
        "shorter": ("TEST.SCALE", "TEST.SCALES"),
        "longer": ("TEST.MAX_SIZE",),
        "before_nms": ("TEST.RPN_PRE_NMS_TOP_N",),
        "after_nms": ("TEST.RPN_POST_NMS_TOP_N",),
        "proposal_overlap": ("TEST.RPN_NMS_THRESH",),
        "least_side": ("TEST.RPN_MIN_SIZE",),
        "overlaps": ("TEST.NMS",),
        "samples": ("FAST_RCNN.ROI_XFORM_SAMPLING_RATIO",),
        "anchor_size": ("FPN.RPN_ANCHOR_START_SIZE",),
    }.items():
        before = getattr(usual, ours)
        if (value := number(values, *names)) is not None:
            read[ours] = (value,) if isinstance(before, tuple) else type(before)(value)
        else:
            done.notes.append(f"assumed: {ours}={_shown(before)}, because the file's cfg has no {names[0]}")
    if (first := number(values, "RESNETS.STRIDE_1X1")) is not None:
        read["stride"] = "1x1" if first else "3x3"
    else:
        done.notes.append("assumed: stride=3x3, because the file's cfg has no RESNETS.STRIDE_1X1")
    if len(ratios := numbers(values, "FPN.RPN_ASPECT_RATIOS")) == len(usual.anchor_ratios):
        read["anchor_ratios"] = tuple(ratios)
    if len(weights := numbers(values, "MODEL.BBOX_REG_WEIGHTS")) == 4:
        read["delta_weights"] = tuple(weights)
    else:
        # The versions of Detectron without this key did not weight the deltas.
        read["delta_weights"] = (1.0,) * 4 if values else usual.delta_weights
        done.notes.append(
            f"assumed: delta_weights={_shown(read['delta_weights'])}, as the file's cfg has no MODEL.BBOX_REG_WEIGHTS"
        )
    if values:
        done.notes.append("settings are from the cfg of the training; if extraction used others, pass them with --set")
    return replace(usual, **read)


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _account(tensors: Tensors, done: Converted) -> None:
    """Record the reason why each remaining key of the file is not used."""
    for name in (name for name in tensors if name not in done.renamed):
        optimiser = name.endswith("_momentum") or name == "lr"
        counter = name.endswith("num_batches_tracked")
        done.left[name] = (
            "state of the optimizer" if optimiser else "a counter of the training" if counter else "not in the detector"
        )
