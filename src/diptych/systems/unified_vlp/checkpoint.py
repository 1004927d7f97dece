"""Checkpoints of Unified VLP's authors -> ours, and back. Their names are BERT's, with regions and answers beside."""

import re
from pathlib import Path

from diptych.core import Vocabulary
from diptych.models.checkpoint import (
    IN_LAYER,
    LAYER,
    NAMES,
    SIZED,
    TIED,
    WORDS,
    bert_name,
    head_names,
    in_full,
    narrow_word_head,
    projections,
    refuse_system,
    renamed,
    vocabulary_for,
)
from diptych.models.weights import ImportReport
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig

INNER = "bert.encoder.layer.0.intermediate.dense.weight"


def import_unified_vlp(
    path: Path, vocabulary_file: Path, *, heads: int | None = None, max_regions: int = 100, lowercase: bool = False
) -> tuple[UnifiedVLPResolvedConfig, tuple[str, ...], Tensors, ImportReport]:
    """An official checkpoint -> our config, the names of its heads, our state dict, and what became of every key.

    Sizes are read from the tensors. Not in the file: the number of attention heads (width / 64 unless told) and of
    regions. The vocabulary of the released models is bert-base-cased.
    """
    theirs, names_there = in_full(read_weights(path), bert_name)
    _check_system(theirs, path)
    vocabulary = vocabulary_for(path, len(theirs[WORDS]), vocabulary_file, lowercase, "bert-base-cased")
    config = _config(theirs, vocabulary, path, heads, max_regions)
    ours, report = renamed(theirs, names_there)
    narrow_word_head(ours, config.width, report)
    return config, head_names(ours), ours, report


def export_unified_vlp(model: UnifiedVLP) -> Tensors:
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
                names = projections(f"{layer}.attention.self.query.{kind}")
                exported |= dict(zip(names, value.chunk(3), strict=True))
            else:
                exported[f"{layer}.{in_layer[match[2]]}.{kind}"] = value
    if "word" in model.heads:
        exported[TIED] = exported[WORDS]
    return exported


def _check_system(theirs: Tensors, path: Path) -> None:
    if WORDS not in theirs:
        refuse_system(theirs, path, "a Unified VLP checkpoint")
    if "vis_pe_embed.0.weight" not in theirs or "vis_embed.2.weight" not in theirs:
        raise CheckpointError(
            f"{path} is a BERT or UniLM checkpoint: it has no region layers (vis_embed, vis_pe_embed); to begin "
            "pre-training from it, give it as --init"
        )


def _config(
    theirs: Tensors, vocabulary: Vocabulary, path: Path, heads: int | None, max_regions: int
) -> UnifiedVLPResolvedConfig:
    width = theirs[WORDS].shape[1]
    if missing := [name for name in (*SIZED, INNER) if name not in theirs]:
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
        ffn=len(theirs[INNER]),
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
