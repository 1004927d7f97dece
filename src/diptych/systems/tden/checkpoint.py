"""Checkpoints of TDEN's released code (YehLi/xmodaler) -> ours, and back.

Pre-training, captioning, retrieval, VQA and VCR models share their encoders' names; each lacks the parts that its task
does not use, and says so by the layers and heads that are there.
"""

import os
import re
from pathlib import Path
from typing import Any

import torch

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
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems.tden.model import Tden, TdenResolvedConfig

WORDS = "token_embed.embeddings.weight"
# Theirs -> ours, without the ending .weight or .bias. `#` is a layer's number.
NAMES = {
    "token_embed.embeddings": "text.words",
    "token_embed.embeddings_pos.position_embeddings": "text.positions",
    "token_embed.embeddings_token_type": "text.segments",
    "token_embed.embeddings_norm": "text.norm",
    "visual_embed.embeddings": "regions.feature",
    "visual_embed.embeddings_pos": "regions.box",
    "visual_embed.embeddings_norm": "regions.norm",
    "predictor": "heads.word",  # its bias
    "predictor.transform.dense": "heads.word.dense",
    "predictor.transform.LayerNorm": "heads.word.norm",
    "predictor.decoder": "heads.word.words",
    "v_predictor.transform.dense": "heads.region_class.0",
    "v_predictor.transform.LayerNorm": "heads.region_class.2",
    "v_predictor.decoder": "heads.region_class.3",
    "predictor.u_logits.0": "heads.answer.read.out.0",
    "predictor.u_logits.1": "heads.answer.read.out.1",
    "predictor.g_logits.0": "heads.answer.out.0",
    "predictor.g_logits.1": "heads.answer.out.1",
}
CROSS_LAYER = {
    "biattention.output.dense": "attention.out",
    "biattention.output.LayerNorm": "attention_norm",
    "t_intermediate.dense": "inner",
    "t_output.dense": "outer",
    "t_output.LayerNorm": "norm",
    "v_intermediate.dense": "region_inner",
    "v_output.dense": "region_outer",
    "v_output.LayerNorm": "region_norm",
}
DECODER_LAYER = {
    "self_attn.output.dense": "layer.attention.out",
    "self_attn.output.LayerNorm": "layer.attention_norm",
    "x_att.output.dense": "cross.out",
    "x_att.output.LayerNorm": "cross_norm",
    "intermediate.dense": "layer.inner",
    "output.dense": "layer.outer",
    "output.LayerNorm": "layer.norm",
}
# A stack there -> its name here, its layers' names, and its attentions, whose three projections are one here.
STACKS = {
    "encoder.layers": ("sentence", IN_LAYER, {"attention.self": "attention"}),
    "encoder.v_layers": ("objects", IN_LAYER, {"attention.self": "attention"}),
    "decoder.u_layers": ("cross", CROSS_LAYER, {"biattention.self": "attention"}),
    "decoder.g_layers": ("decoder", DECODER_LAYER, {"self_attn.self": "layer.attention", "x_att.self": "cross"}),
}
POOLS = {
    "similarity_predictor.t_pooler": "heads.similarity.text",
    "similarity_predictor.v_pooler.#": "heads.similarity.regions.layers.#",
    "predictor.u_pooler": "heads.answer.read.text",
    "predictor.v_pooler.#": "heads.answer.read.regions.layers.#",
    "predictor.g_pooler": "heads.answer.pool",
}
IN_POOL = {"att.0": "inner", "att.3": "weigh", "embed": "out", "bn": "norm"}
QKV = ("query", "key", "value")
TWICE = "predictor.decoder.bias"  # one parameter under two names


def import_tden(
    path: Path, vocabulary_file: Path, *, heads: int | None = None, lowercase: bool = True
) -> tuple[TdenResolvedConfig, tuple[str, ...], Tensors, ImportReport]:
    """An official checkpoint -> our config, the names of its heads, our state dict, and what became of every key.

    Sizes are read from the tensors. Not in the file: the number of attention heads (width / 64 unless told). The
    vocabulary of the released models is bert-base-uncased.
    """
    theirs, there = in_full(read_weights(path), lambda name: name.removeprefix("module.").removeprefix("model."))
    if WORDS not in theirs or "visual_embed.embeddings.weight" not in theirs:
        raise CheckpointError(
            f"{path} is no TDEN checkpoint of xmodaler: it lacks {WORDS} or visual_embed (it has "
            f"{', '.join(sorted(theirs)[:3])}); name the system that it is of"
        )
    ours, report = _renamed(theirs)
    report.renamed = {there[name]: new for name, new in report.renamed.items()}
    report.left = {there[name]: why for name, why in report.left.items()}
    words, width = ours["text.words.weight"].shape
    vocabulary = vocabulary_for(path, words, vocabulary_file, lowercase, "bert-base-uncased")
    heads = heads_for(path, width, heads)
    config = TdenResolvedConfig(vocabulary=vocabulary, width=width, heads=heads, **_sizes(ours, path))
    return config, head_names(ours), ours, report


def start_tden(model: Tden, source: str | os.PathLike[str]) -> ImportReport:
    """Begin the sentence encoder, the word embeddings and the word head from BERT; all else starts fresh.

    How the authors fill the other stacks is in a prepared file that they did not release.
    """
    path, ours, report = read_bert(source)
    config = model.config
    check_words(path, ours, config.vocabulary)
    ours["text.positions.weight"] = fit_positions(ours["text.positions.weight"], config.positions)
    ours["text.segments.weight"] = fit_positions(ours["text.segments.weight"], config.segments)
    ours = {name.replace("encoder.layers.", "sentence."): value for name, value in ours.items()}
    report.renamed = {old: new.replace("encoder.layers.", "sentence.") for old, new in report.renamed.items()}
    if not config.tied_words and "heads.word.dense.weight" in ours:
        ours["heads.word.words.weight"] = ours["text.words.weight"]
    return load_known(model, ours, report)


def export_tden(model: Tden) -> Tensors:
    """Our weights under the authors' names, for their code and for round trips."""
    config = model.config
    if config.structure != "decoupled" or config.cross_ffn != "official" or config.tied_words:
        raise CheckpointError(
            "only structure=decoupled, cross_ffn=official and tied_words=false have a counterpart in the authors' code"
        )
    exported: Tensors = {}
    for name, value in model.state_dict().items():
        for theirs, part in _outward(name, value):
            exported[theirs] = part
    if "heads.word.bias" in model.state_dict():
        exported[TWICE] = exported["predictor.bias"]
    return exported


def _renamed(theirs: Tensors) -> tuple[Tensors, ImportReport]:
    ours, report = {}, ImportReport()
    choice = len(theirs.get("predictor.u_logits.1.weight", ())) == 1  # VCR: a score a choice, and no decoder
    for name, value in theirs.items():
        new = _inward(name)
        if name == TWICE and "predictor.bias" in theirs:
            report.left[name] = "predictor.bias once more"
        elif new is None:
            report.left[name] = "unknown"
        else:
            report.renamed[name] = new.replace("heads.answer.read.", "heads.choice.") if choice else new
            if ".qkv." not in new:
                ours[report.renamed[name]] = value
    for name, new in report.renamed.items():
        if ".query." in name:
            ours[new] = joined(theirs, name)
    return ours, report


def _inward(name: str) -> str | None:
    """Our name of one of their tensors; the three projections of an attention have one name."""
    stem, _, kind = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    if match := re.fullmatch(r"(encoder\.v_layers|encoder\.layers|decoder\.[ug]_layers)\.(\d+)\.(.+)", stem):
        stack, layer, attentions = STACKS[match[1]]
        attention, _, part = match[3].rpartition(".")
        if part in QKV and attention in attentions:
            return f"{stack}.{match[2]}.{attentions[attention]}.qkv.{kind}"
        return f"{stack}.{match[2]}.{layer[match[3]]}.{kind}" if match[3] in layer else None
    for theirs, ours in POOLS.items():
        if match := re.fullmatch(theirs.replace(".", r"\.").replace("#", r"(\d+)") + r"\.(.+)", stem):
            *number, part = match.groups()
            if part in IN_POOL:
                return f"{ours.replace('#', number[0] if number else '#')}.{IN_POOL[part]}.{kind}"
    return None


def _outward(name: str, value: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Their names of one of our tensors, and what stands there."""
    stem, _, kind = name.replace("heads.choice.", "heads.answer.read.").rpartition(".")
    outward = {ours: theirs for theirs, ours in NAMES.items()}
    if stem in outward:
        return [(f"{outward[stem]}.{kind}", value)]
    for theirs, (stack, layer, attentions) in STACKS.items():
        if match := re.fullmatch(rf"{stack}\.(\d+)\.(.+)", stem):
            if match[2].endswith(".qkv"):
                attention = next(t for t, o in attentions.items() if f"{o}.qkv" == match[2])
                names = projections(f"{theirs}.{match[1]}.{attention}.query.{kind}")
                return list(zip(names, value.chunk(3), strict=True))
            inner = next(t for t, o in layer.items() if o == match[2])
            return [(f"{theirs}.{match[1]}.{inner}.{kind}", value)]
    for theirs, ours in POOLS.items():
        if match := re.fullmatch(ours.replace(".", r"\.").replace("#", r"(\d+)") + r"\.(\w+)", stem):
            *number, part = match.groups()
            inner = next(t for t, o in IN_POOL.items() if o == part)
            return [(f"{theirs.replace('#', number[0] if number else '#')}.{inner}.{kind}", value)]
    raise CheckpointError(f"{name} has no counterpart in the authors' code")


def _sizes(ours: Tensors, path: Path) -> dict[str, Any]:
    def layers(stack: str) -> int:
        return 1 + max((int(m[1]) for name in ours if (m := re.match(rf"{stack}\.(\d+)\.", name))), default=-1)

    def rows(name: str, otherwise: int) -> int:
        return len(ours[name]) if name in ours else otherwise

    for name in ("text.positions.weight", "text.segments.weight", "sentence.0.inner.weight"):
        if name not in ours:
            raise CheckpointError(f"{path} lacks what is {name} here; it is damaged or of another system")
    pool = "heads.choice.text.out.weight" if "heads.choice.text.out.weight" in ours else "heads.answer.pool.out.weight"
    return {
        "ffn": len(ours["sentence.0.inner.weight"]),
        "object_layers": layers("objects"),
        "sentence_layers": layers("sentence"),
        "cross_layers": layers("cross"),
        "decoder_layers": layers("decoder"),
        "positions": len(ours["text.positions.weight"]),
        "segments": len(ours["text.segments.weight"]),
        "feature_size": ours["regions.feature.weight"].shape[1],
        "classes": rows("heads.region_class.3.bias", 1601),
        "answers": rows("heads.answer.out.1.bias", 0),
        "answer_width": rows(pool, 0) or None,
        "similarity_width": rows("heads.similarity.text.out.bias", 1024),
        "decoder_memory": "official",
        "cross_ffn": "official",
        "vqa_fusion": "official",
        "similarity": "official",
        "tied_words": False,
    }
