"""Checkpoints of the authors' code, of UniLM and of BERT -> ours, and back.

They all descend from Google's BERT, so one table of names serves the three. What differs: TensorFlow's gamma and beta,
a `module.` from data-parallel training, half precision, two segments instead of six, other numbers of positions, and
UniLM's word head that is four times as wide (one slice a task).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.core import Vocabulary
from diptych.errors import CheckpointError
from diptych.loading.tokens import Tokens
from diptych.models.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.models.weights import Report, Tensors, find_weights, load_into, read_weights

WORDS = "bert.embeddings.word_embeddings.weight"
TIED = "cls.predictions.decoder.weight"
NAMES = {
    "bert.embeddings.word_embeddings": "text.words",
    "bert.embeddings.position_embeddings": "text.positions",
    "bert.embeddings.token_type_embeddings": "text.segments",
    "bert.embeddings.LayerNorm": "text.norm",
    "bert.pooler.dense": "heads.pooler.0",
    "cls.predictions.transform.dense": "heads.word.dense",
    "cls.predictions.transform.LayerNorm": "heads.word.norm",
    "cls.predictions": "heads.word",  # its bias
    "vis_embed.0": "regions.look.0",
    "vis_embed.2": "regions.look.2",
    "vis_pe_embed.0": "regions.place.0",
    "ans_classifier.0": "heads.answer.inner",
    "ans_classifier.2": "heads.answer.outer",
}
IN_LAYER = {
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "inner",
    "output.dense": "outer",
    "output.LayerNorm": "norm",
}
LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")
QKV = ("query", "key", "value")
UNUSED = {
    "cls.seq_relationship": "next-sentence head, which Unified VLP does not have",
    "crit_mask_lm_smoothed": "a constant of the loss",
    "bert.embeddings.position_ids": "a constant",
}
# What tells another system's checkpoint.
OTHERS = {"vlbert.": "VL-BERT", "v_predictor.": "TDEN", "similarity_predictor.": "TDEN", "visual_embed.": "TDEN"}
# Without these the sizes are not known.
SIZED = (
    "bert.embeddings.token_type_embeddings.weight",
    "bert.embeddings.position_embeddings.weight",
    "bert.encoder.layer.0.intermediate.dense.weight",
)
SEQ2SEQ_TASK = 3  # UniLM's slice of a wide word head (run_img2txt_dist.py:315)


def import_unified_vlp(
    path: Path, vocabulary_file: Path, *, heads: int | None = None, max_regions: int = 100, lowercase: bool = False
) -> tuple[UnifiedVLPResolvedConfig, tuple[str, ...], Tensors, Report]:
    """An official checkpoint -> our config, the names of its heads, our state dict, and what became of every key.

    Sizes are read from the tensors. Not in the file: the number of attention heads (width / 64 unless told) and of
    regions. The vocabulary of the released models is bert-base-cased.
    """
    theirs, names_there = _cleaned(read_weights(path))
    _check_system(theirs, path)
    vocabulary = Tokens.from_vocabulary(vocabulary_file, lowercase=lowercase).vocabulary
    config = _config(theirs, vocabulary, path, heads, max_regions)
    ours, report = _renamed(theirs, names_there)
    _narrow_word_head(ours, config.width, report)
    names = tuple(sorted({name.split(".")[1] for name in ours if name.startswith("heads.")}))
    return config, names, ours, report


def load_unified_vlp(path: Path, vocabulary_file: Path, **sizes: Any) -> tuple[UnifiedVLP, Report]:
    """The same as a model."""
    config, names, tensors, report = import_unified_vlp(path, vocabulary_file, **sizes)
    model = UnifiedVLP(config, names)
    return model, load_into(model, tensors, report)


def start_from(model: Any, source: str | os.PathLike[str]) -> Report:
    """Initialise from BERT, UniLM or Unified VLP: a file, a folder, or a hub id. What it lacks starts fresh.

    `model` is a Unified VLP or an ImageBERT: their words and their encoder have the same names.
    Missing segments are copied as the authors do: 2, 3 and 4 from 0, and 5 from 1. Missing positions repeat the ones
    that are there.
    """
    path, ours, report = read_bert(source)
    config = model.config
    check_words(path, ours, config.vocabulary)
    ours["text.segments.weight"] = fit_segments(ours["text.segments.weight"], config.segments)
    ours["text.positions.weight"] = fit_positions(ours["text.positions.weight"], config.positions)
    _narrow_word_head(ours, config.width, report)
    return load_known(model, ours, report)


def check_words(path: Path, ours: Tensors, vocabulary: Vocabulary) -> None:
    words = len(ours["text.words.weight"])
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, the model's vocabulary has {vocabulary.size}; use the vocabulary that comes "
            "with the checkpoint"
        )


def load_known(model: nn.Module, ours: Tensors, report: Report) -> Report:
    """What the model has of these; the others are told as left."""
    known = model.state_dict()
    report.left |= {name: "not in the model" for name in ours if name not in known}
    return load_into(model, {name: value for name, value in ours.items() if name in known}, report)


def read_bert(source: str | os.PathLike[str]) -> tuple[Path, Tensors, Report]:
    """The tensors of BERT, UniLM or Unified VLP under the names of our Unified VLP."""
    path = find_weights(source)
    theirs, names_there = _cleaned(read_weights(path))
    if WORDS not in theirs:
        _refuse_system(theirs, path, "a BERT, UniLM or Unified VLP checkpoint")
    ours, report = _renamed(theirs, names_there)
    return path, ours, report


def export_official(model: UnifiedVLP) -> Tensors:
    """Our weights under the authors' names, for their code and for round trips. The region form must be theirs."""
    if model.config.region_embedding != "official":
        raise CheckpointError("only region_embedding=official has a counterpart in the authors' code")
    outward = {ours: theirs for theirs, ours in NAMES.items()}
    in_layer = {ours: theirs for theirs, ours in IN_LAYER.items()}
    exported: Tensors = {}
    for name, value in model.state_dict().items():
        stem, kind = name.rsplit(".", 1)
        if stem in outward:
            exported[f"{outward[stem]}.{kind}"] = value
        elif match := re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", stem):
            layer = f"bert.encoder.layer.{match[1]}"
            if match[2] == "attention.qkv":
                for part, rows in zip(QKV, value.chunk(3), strict=True):
                    exported[f"{layer}.attention.self.{part}.{kind}"] = rows
            else:
                exported[f"{layer}.{in_layer[match[2]]}.{kind}"] = value
    if "word" in model.heads:
        exported[TIED] = exported[WORDS]
    return exported


def fit_segments(rows: Tensor, count: int) -> Tensor:
    """Two rows -> six as the authors fill them (modeling.py:674), or the first `count` of them."""
    if len(rows) == 2 and count == 6:
        return rows[[0, 1, 0, 0, 0, 1]]
    if len(rows) < count:
        raise CheckpointError(f"the checkpoint has {len(rows)} segments, the model {count}; wanted 2, or {count}")
    return rows[:count]


def fit_positions(rows: Tensor, count: int) -> Tensor:
    """The first `count`, begun again from the first where there are too few (modeling.py:690)."""
    return rows[torch.arange(count) % len(rows)]


def _cleaned(tensors: Tensors) -> tuple[Tensors, dict[str, str]]:
    """Without `module.`, in full precision, with PyTorch's names; and new name -> old where they differ."""
    cleaned, old = {}, {}
    for name, value in tensors.items():
        new = name.removeprefix("module.").replace("gamma", "weight").replace("beta", "bias")
        if new.startswith(("embeddings.", "encoder.layer.", "pooler.")):  # a bare BertModel
            new = f"bert.{new}"
        cleaned[new] = value.float() if value.is_floating_point() else value
        old[new] = name
    return cleaned, old


def _renamed(theirs: Tensors, names_there: dict[str, str]) -> tuple[Tensors, Report]:
    """Under our names; the report speaks of the names in the file."""
    ours, report = {}, Report()
    for name, value in theirs.items():
        stem, _, kind = name.rpartition(".")
        match = LAYER.fullmatch(name)
        if name == TIED:
            report.left[name] = "the word embeddings once more"
        elif reason := next((why for start, why in UNUSED.items() if name.startswith(start)), None):
            report.left[name] = reason
        elif match and match[2] in IN_LAYER:
            report.renamed[name] = f"encoder.layers.{match[1]}.{IN_LAYER[match[2]]}.{match[3]}"
        elif match and match[2].startswith("attention.self."):
            report.renamed[name] = f"encoder.layers.{match[1]}.attention.qkv.{match[3]}"
            continue  # joined below
        elif stem in NAMES:
            report.renamed[name] = f"{NAMES[stem]}.{kind}"
        else:
            report.left[name] = "unknown"
        if name in report.renamed:
            ours[report.renamed[name]] = value
    for match in filter(None, map(LAYER.fullmatch, theirs)):
        if match[2] == "attention.self.query":
            parts = [f"bert.encoder.layer.{match[1]}.attention.self.{part}.{match[3]}" for part in QKV]
            if missing := [part for part in parts if part not in theirs]:
                raise CheckpointError(f"the checkpoint lacks {missing[0]}; it is damaged or of another system")
            ours[report.renamed[match[0]]] = torch.cat([theirs[part] for part in parts])
    report.renamed = {names_there[name]: new for name, new in report.renamed.items()}
    report.left = {names_there[name]: why for name, why in report.left.items()}
    return ours, report


def _check_system(theirs: Tensors, path: Path) -> None:
    if WORDS not in theirs:
        _refuse_system(theirs, path, "a Unified VLP checkpoint")
    if "vis_pe_embed.0.weight" not in theirs or "vis_embed.2.weight" not in theirs:
        raise CheckpointError(
            f"{path} is a BERT or UniLM checkpoint: it has no region layers (vis_embed, vis_pe_embed); to begin "
            "pre-training from it, name it as start_from"
        )


def _refuse_system(theirs: Tensors, path: Path, wanted: str) -> None:
    system = next((s for start, s in OTHERS.items() for name in theirs if name.startswith(start)), None)
    what = f"a {system} checkpoint" if system else f"none that is known (it has {', '.join(sorted(theirs)[:3])})"
    raise CheckpointError(f"{path} is {what}; wanted {wanted}, which has {WORDS}")


def _config(
    theirs: Tensors, vocabulary: Vocabulary, path: Path, heads: int | None, max_regions: int
) -> UnifiedVLPResolvedConfig:
    words, width = theirs[WORDS].shape
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, the vocabulary file {vocabulary.size}; the released models use that of "
            "bert-base-cased"
        )
    if missing := [name for name in SIZED if name not in theirs]:
        raise CheckpointError(f"{path} lacks {missing[0]}; it is damaged or of another system")
    segments = len(theirs["bert.embeddings.token_type_embeddings.weight"])
    if segments not in (2, 6):
        raise CheckpointError(f"{path} has {segments} segments; Unified VLP has 6, or 2 without --new_segment_ids")
    positions = len(theirs["bert.embeddings.position_embeddings.weight"])
    heads = heads or max(width // 64, 1)
    if positions < max_regions + 3 or width % heads:
        raise CheckpointError(
            f"{path} has {positions} positions and a width of {width}, which do not fit {max_regions} regions and "
            f"{heads} attention heads; give max_regions and heads as it was trained with"
        )
    answers = theirs.get("ans_classifier.2.weight")
    layers = 1 + max((int(m[1]) for m in filter(None, map(LAYER.fullmatch, theirs))), default=-1)
    return UnifiedVLPResolvedConfig(
        vocabulary=vocabulary,
        width=width,
        layers=layers,
        heads=heads,
        ffn=len(theirs["bert.encoder.layer.0.intermediate.dense.weight"]),
        positions=positions,
        max_regions=max_regions,
        feature_size=theirs["vis_embed.2.weight"].shape[1],
        classes=theirs["vis_pe_embed.0.weight"].shape[1] - 6,
        answers=0 if answers is None else len(answers),
        segments=6 if segments == 6 else 2,
        region_embedding="official",
        box_norm="official",
        geometry="official",
        hidden_regions="official",
    )


def _narrow_word_head(ours: Tensors, width: int, report: Report) -> None:
    """UniLM's relaxed projection: keep the slice of its seq2seq task."""
    wide = ours.get("heads.word.dense.weight")
    if wide is None or len(wide) == width:
        return
    for name in ("dense.weight", "dense.bias", "norm.weight", "norm.bias"):
        key = f"heads.word.{name}"
        ours[key] = ours[key].view(-1, width, *ours[key].shape[1:])[SEQ2SEQ_TASK]
    report.left["cls.predictions.transform (other tasks)"] = "slices of a relaxed projection that seq2seq does not use"
