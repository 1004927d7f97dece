"""Checkpoints of VL-BERT's released code (jackroos/VL-BERT) -> ours, and back.

Pre-training, VQA, VCR and RefCOCO+ models share one core; VCR's lies under `vlbert._module`. The heads that are there
say which task it is of. `.#.` is a layer's number.
"""

import os
import re
from pathlib import Path
from typing import Any

import torch

from diptych.data.store.pixels import Colours
from diptych.models.checkpoint import (
    IN_LAYER,
    check_words,
    fit_positions,
    head_names,
    heads_for,
    in_full,
    joined,
    load_known,
    projections,
    read_bert,
    vocabulary_for,
)
from diptych.models.weights import ImportReport
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
from diptych.systems.vl_bert.network import Network, begin_from_resnet, of_torchvision
from diptych.vision.detectors.weights import read_detector
from diptych.vision.detectors.weights import read_weights as read_detector_weights

WORDS = "vlbert.word_embeddings.weight"
LOOKS = "image_feature_extractor.obj_downsample.1.weight"
# Theirs -> ours, without the ending .weight or .bias.
NAMES = {
    "vlbert.word_embeddings": "text.words",
    "vlbert.position_embeddings": "text.positions",
    "vlbert.token_type_embeddings": "text.segments",
    "vlbert.embedding_LayerNorm": "text.norm",
    "vlbert.end_embedding": "end",
    "vlbert.visual_ln_text": "word_norm",
    "vlbert.visual_ln_object": "region_norm",
    "object_linguistic_embeddings": "image",
    "object_mask_word_embedding": "hidden",
    "aux_text_visual_embedding": "alone",
    "image_feature_extractor.obj_downsample.1": "regions.out",
    "vlbert.mlm_head.predictions": "heads.word",  # its bias
    "vlbert.mlm_head.predictions.transform.dense": "heads.word.dense",
    "vlbert.mlm_head.predictions.transform.LayerNorm": "heads.word.norm",
    "vlbert.mvrc_head.transform.dense": "heads.region_class.0",
    "vlbert.mvrc_head.region_cls_pred": "heads.region_class.2",
    "vlbert.relationsip_head.caption_image_relationship": "heads.match.out",  # so spelt
}
# Of the heads that fine-tuning adds, by their names there; the pooler is a part of the head that reads it.
VQA = {
    "final_mlp.0.dense": "heads.answer.dense",
    "final_mlp.0.LayerNorm": "heads.answer.norm",
    "final_mlp.2": "heads.answer.outer",
}
VCR = {
    "vlbert.pooler.dense": "heads.choice.pool.0",
    "final_mlp.1": "heads.choice.out",
    "cnn_loss_reg.0.dense": "heads.region_class.0",
    "cnn_loss_reg.2": "heads.region_class.2",
}
REFCOCO = {"final_mlp.0.dense": "heads.region_score.dense", "final_mlp.2": "heads.region_score.out"}
PRETRAINED = {"vlbert.pooler.dense": "heads.match.pool.0"}
HIDDEN_LOOK = "object_mask_visual_embedding.weight"  # (1, F) there, (F,) here
TIED = "vlbert.mlm_head.predictions.decoder.weight"
NETWORK = {
    "image_feature_extractor.backbone.": "regions.network.backbone.",
    "image_feature_extractor.roi_head_feature_extractor.": "regions.network.head.",
}
HEAD_AGAIN = "image_feature_extractor.head.0."  # the same tensors under the name of what pools them
DEPTHS: dict[int, Network] = {6: "resnet50", 23: "resnet101", 36: "resnet152"}  # blocks of stage 3
LAYER = re.compile(r"vlbert\.encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")


def import_vl_bert(
    path: Path,
    vocabulary_file: Path,
    *,
    heads: int | None = None,
    feature_size: int | None = None,
    lowercase: bool = True,
) -> tuple[VLBertResolvedConfig, tuple[str, ...], Tensors, ImportReport]:
    """An official checkpoint -> our config, the names of its heads, our state dict, and what became of every key.

    Sizes are read from the tensors. Not in the file: the number of attention heads (width / 64 unless told); in
    fine-tuned models the size of a region's feature (half of what its layer reads, unless told), and where that layer
    is missing the code's sizes are taken. The vocabulary of the released models is bert-base-uncased.
    """
    theirs, there = in_full(read_weights(path), _clean)
    if WORDS not in theirs:
        raise CheckpointError(
            f"{path} is no VL-BERT checkpoint: it lacks {WORDS} (it has {', '.join(sorted(theirs)[:3])}); name the "
            "system that it is of"
        )
    ours, report = _renamed(theirs, there)
    words, width = ours["text.words.weight"].shape
    vocabulary = vocabulary_for(path, words, vocabulary_file, lowercase, "bert-base-uncased")
    heads = heads_for(path, width, heads)
    config = VLBertResolvedConfig(vocabulary=vocabulary, width=width, heads=heads, **_sizes(ours, feature_size))
    return config, head_names(ours), ours, report


def start_vl_bert(model: VLBert, source: str | os.PathLike[str]) -> ImportReport:
    """Begin words, encoder, word head and poolers from BERT: a file, a folder, or a hub id; all else starts fresh.

    So does the third row of segments, that of regions, where there are two (common/visual_linguistic_bert.py).
    """
    path, ours, report = read_bert(source)
    check_words(path, ours, model.config.vocabulary)
    ours["text.positions.weight"] = fit_positions(ours["text.positions.weight"], model.config.positions)
    segments = ours["text.segments.weight"][:3]
    ours["text.segments.weight"] = torch.cat([segments, model.text.segments.weight.detach()[len(segments) :]])
    pools = [name for name in model.state_dict() if name.startswith("heads.") and ".pool.0." in name]
    for kind in ("weight", "bias"):
        pooler = ours.pop(f"heads.pooler.0.{kind}", None)
        if pooler is not None:
            ours |= {name: pooler for name in pools if name.endswith(f".{kind}")}
    return load_known(model, ours, report)


def start_network(model: VLBert, source: str, colours: Colours) -> ImportReport:
    """Begin the part that reads pixels from a detector folder or a file of weights; the rest stays as it is."""
    network = model.regions.network
    assert network is not None
    path = Path(source)
    tensors = read_detector_weights(path, read_detector(path)) if path.is_dir() else read_weights(path)
    if of_torchvision(tensors):
        wanted = {"data.pixels_colours=rgb": colours == "rgb"}
        if network.bottlenecks:
            wanted["model.network_stride=3x3"] = model.config.network_stride == "3x3"
        if other := [setting for setting, met in wanted.items() if not met]:
            raise RecipeError(f"{source} holds weights of torchvision's kind; they want --set {' --set '.join(other)}")
    return begin_from_resnet(network, tensors, source)


def _clean(name: str) -> str:
    """Without `module.` (data-parallel training) and `_module.` (VCR)."""
    return name.removeprefix("module.").replace("vlbert._module.", "vlbert.")


def _renamed(theirs: Tensors, there: dict[str, str]) -> tuple[Tensors, ImportReport]:
    ours: Tensors = {}
    report = ImportReport()
    names = NAMES | _heads(theirs)
    for name, tensor in theirs.items():
        stem, _, kind = name.rpartition(".")
        value = tensor
        if layer := LAYER.fullmatch(name):
            number, inner, kind = layer.groups()
            if inner.startswith("attention.self."):
                continue  # the three are one here, below
            new = f"encoder.layers.{number}.{IN_LAYER[inner]}.{kind}"
        elif name == HIDDEN_LOOK:
            new, value = "regions.hidden", tensor[0]
        elif name == TIED:
            report.left[there[name]] = "the word embeddings once more"
            continue
        elif stem in names:
            new = f"{names[stem]}.{kind}"
        elif start := next((start for start in NETWORK if name.startswith(start)), None):
            new = NETWORK[start] + name.removeprefix(start)
        else:
            report.left[there[name]] = _why(name)
            continue
        ours[new] = value
        report.renamed[there[name]] = new
    _join_projections(theirs, there, ours, report)
    return ours, report


def _heads(theirs: Tensors) -> dict[str, str]:
    if "final_mlp.0.LayerNorm.weight" in theirs:
        return VQA
    if "final_mlp.1.weight" in theirs:
        return VCR
    if "final_mlp.0.dense.weight" in theirs:
        return REFCOCO
    return PRETRAINED if "vlbert.relationsip_head.caption_image_relationship.weight" in theirs else {}


def _why(name: str) -> str:
    if name.startswith("vlbert.pooler."):
        return "a pooler that no head of this task reads"
    if name.startswith(HEAD_AGAIN):
        return "the network's last stage once more"
    return "not known"


def _join_projections(theirs: Tensors, there: dict[str, str], ours: Tensors, report: ImportReport) -> None:
    layers = sorted({match[1] for name in theirs if (match := LAYER.fullmatch(name))}, key=int)
    for number in layers:
        for kind in ("weight", "bias"):
            query = f"vlbert.encoder.layer.{number}.attention.self.query.{kind}"
            new = f"encoder.layers.{number}.attention.qkv.{kind}"
            ours[new] = joined(theirs, query)
            report.renamed |= {there[part]: new for part in projections(query)}


def _sizes(ours: Tensors, feature: int | None) -> dict[str, Any]:
    layers = {name.split(".")[2] for name in ours if name.startswith("encoder.layers.")}
    read = ours.get("regions.out.weight")
    blocks = {name.split(".")[4] for name in ours if name.startswith("regions.network.backbone.layer3.")}
    if "regions.hidden" in ours:
        feature = len(ours["regions.hidden"])
    if read is not None and feature is None:
        # Coordinates come first, and the code gives them as many numbers as the feature has.
        feature = read.shape[1] // 2
    return {
        "layers": len(layers),
        "ffn": len(ours["encoder.layers.0.inner.bias"]),
        "positions": len(ours["text.positions.weight"]),
        "feature_size": feature or 2048,
        "coordinates": (read.shape[1] - feature) // 8 if read is not None and feature is not None else 256,
        "classes": len(ours.get("heads.region_class.2.bias", range(1601))),
        "answers": len(ours["heads.answer.outer.bias"]) if "heads.answer.outer.bias" in ours else 0,
        "network": DEPTHS.get(len(blocks)),
        "geometry": "official",
        "visual_norm_init": "official",
        "hidden_regions": "official",
        "end_visual": "official",
    }
