"""Random files of the official detectors in their layouts, so small that a picture takes a moment."""

import pickle
from pathlib import Path

import torch
from torch import Tensor

STEM, INNER, OUT = 8, (4, 6, 8, 10), (16, 20, 24, 28)
CFG = """!!python/object/new:utils.collections.AttrDict
dictitems:
  MODEL: !!python/object/new:utils.collections.AttrDict
    dictitems: {BBOX_REG_WEIGHTS: !!python/tuple [10.0, 10.0, 5.0, 5.0], NUM_CLASSES: 7}
  RESNETS: !!python/object/new:utils.collections.AttrDict
    dictitems: {NUM_GROUPS: 2, STRIDE_1X1: false}
  TEST: !!python/object/new:utils.collections.AttrDict
    dictitems: {MAX_SIZE: 160, NMS: 0.5, RPN_POST_NMS_TOP_N: 20, RPN_PRE_NMS_TOP_N: 40, SCALE: 96}
"""


def butd_file(dialect: str = "caffe", classes: int = 7, attributes: int = 5, seed: int = 0) -> dict[str, Tensor]:
    """Hugging Face's layout (`hf`; airsplay's too) or MILVLG's. Counts are with background and `none`."""
    random = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}

    def layer(name: str, *shape: int, bias: bool = True) -> None:
        fan = torch.Size(shape[1:]).numel()
        made[f"{name}.weight"] = torch.randn(shape, generator=random) * (2 / fan) ** 0.5
        if bias:
            made[f"{name}.bias"] = torch.randn(shape[0], generator=random) * 0.1

    def normed(name: str, *shape: int) -> None:
        layer(name, *shape, bias=False)
        for part, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            made[f"{name}.norm.{part}"] = value + 0.1 * torch.rand(shape[0], generator=random)
        made[f"{name}.norm.num_batches_tracked"] = torch.tensor(3)

    normed("backbone.stem.conv1", STEM, 3, 7, 7)
    for number, (read, inner, out) in enumerate(zip((STEM, *OUT), INNER, OUT, strict=False), 2):
        stage = f"{'roi_heads' if number == 5 else 'backbone'}.res{number}.0"
        normed(f"{stage}.conv1", inner, read, 1, 1)
        normed(f"{stage}.conv2", inner, inner, 3, 3)
        normed(f"{stage}.conv3", out, inner, 1, 1)
        normed(f"{stage}.shortcut", out, read, 1, 1)
    rpn, head = "proposal_generator.rpn_head", "roi_heads.box_predictor"
    layer(f"{rpn}.conv", 9, OUT[2], 3, 3)
    layer(f"{rpn}.objectness_logits", 24 if dialect == "caffe" else 12, 9, 1, 1)
    layer(f"{rpn}.anchor_deltas", 48, 9, 1, 1)
    made[f"{rpn}.anchor_deltas.weight"] *= 0.1
    layer(f"{head}.cls_score", classes, OUT[3])
    layer(f"{head}.bbox_pred", 4 * (classes if dialect == "caffe" else classes - 1), OUT[3])
    if attributes:
        names = ("cls_embed", "attr_linear1", "attr_linear2")
        names = names if dialect == "caffe" else ("cls_embedding", "fc_attr", "attr_score")
        layer(f"{head}.{names[0]}", classes, 6, bias=False)
        layer(f"{head}.{names[1]}", 8, OUT[3] + 6)
        layer(f"{head}.{names[2]}", attributes, 8)
    return made


def detectron_blobs(classes: int = 7, width: int = 8, fc: int = 24, seed: int = 0) -> dict[str, Tensor]:
    """Of Unified VLP's detector, with what else its file holds."""
    random = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}

    def layer(name: str, *shape: int, bias: bool = True) -> None:
        fan = torch.Size(shape[1:]).numel()
        made[f"{name}_w"] = torch.randn(shape, generator=random) * (2 / fan) ** 0.5
        if bias:
            made[f"{name}_b"] = torch.randn(shape[0], generator=random) * 0.1

    def scaled(name: str, norm: str, *shape: int) -> None:
        layer(name, *shape, bias=False)
        made[f"{norm}_s"] = 0.8 + 0.2 * torch.rand(shape[0], generator=random)
        made[f"{norm}_b"] = 0.1 * torch.rand(shape[0], generator=random)

    scaled("conv1", "res_conv1_bn", STEM, 3, 7, 7)
    for number, (read, inner, out) in enumerate(zip((STEM, *OUT), INNER, OUT, strict=False), 2):
        for branch, shape in {
            "2a": (inner, read, 1, 1), "2b": (inner, inner // 2, 3, 3), "2c": (out, inner, 1, 1), "1": (out, read, 1, 1)
        }.items():  # fmt: skip
            scaled(f"res{number}_0_branch{branch}", f"res{number}_0_branch{branch}_bn", *shape)
        layer(f"fpn_inner_res{number}_0_sum{'' if number == 5 else '_lateral'}", width, out, 1, 1)
        layer(f"fpn_res{number}_0_sum", width, width, 3, 3)
    layer("conv_rpn_fpn2", width, width, 3, 3)
    layer("rpn_cls_logits_fpn2", 3, width, 1, 1)
    layer("rpn_bbox_pred_fpn2", 12, width, 1, 1)
    # Deltas of a trained network are below 1. At 0.1 they reached 480, and a rounding error of 3e-4 in one moved
    # a proposal by 0.007 pixels.
    made["rpn_bbox_pred_fpn2_w"] *= 1e-4
    layer("fc6", fc, width * 49)
    layer("fc7", fc, fc)
    layer("cls_score", classes, fc)
    layer("bbox_pred", 4 * classes, fc)
    return made | {"fc6_w_momentum": made["fc6_w"], "lr": torch.tensor(0.1), "attr_score_w": torch.ones(2, 2)}


def write_detectron(path: Path, blobs: dict[str, Tensor], cfg: str = CFG) -> Path:
    arrays = {name: value.numpy() for name, value in blobs.items()}
    path.write_bytes(pickle.dumps({"blobs": arrays, "cfg": cfg}, 2))
    return path


def write_airsplay(path: Path, tensors: dict[str, Tensor]) -> Path:
    arrays = {name: value.numpy() for name, value in tensors.items() if not name.endswith("num_batches_tracked")}
    path.write_bytes(pickle.dumps({"model": arrays, "__author__": "airsplay"}))
    return path
