"""Checkpoints of the released code -> ours. `uniter.` stands where BERT has `bert.` (scripts/convert_ckpt.py), so
Diptych's table of BERT's names serves all but the parts below.
"""

from __future__ import annotations

from pathlib import Path

import torch

from diptych.plugin import CheckpointError, ImportReport, bert, read_weights
from uniter.model import UniterResolvedConfig

Tensors = dict[str, torch.Tensor]
WORDS = "bert.embeddings.word_embeddings.weight"
REGIONS = "bert.img_embeddings."
# Theirs -> ours, without the ending .weight or .bias.
NAMES = {
    f"{REGIONS}img_linear": "regions.feature",
    f"{REGIONS}img_layer_norm": "regions.feature_norm",
    f"{REGIONS}pos_linear": "regions.place",
    f"{REGIONS}pos_layer_norm": "regions.place_norm",
    f"{REGIONS}LayerNorm": "regions.norm",
    "feat_regress": "heads.region_feature",  # its bias
    "feat_regress.net.0": "heads.region_feature.net.0",
    "feat_regress.net.2": "heads.region_feature.net.2",
    "region_classifier.net.0": "heads.region_class.0",
    "region_classifier.net.2": "heads.region_class.2",
    "region_classifier.net.3": "heads.region_class.3",
    "itm_output": "heads.match.layers.0",
    "nlvr2_output": "heads.nlvr.layers.0",
}
MASK = f"{REGIONS}mask_embedding.weight"  # two rows; the first, of regions that are not hidden, is zero
OURS = ("entailment", "neutral", "contradiction")  # Diptych's order
TIED = "feat_regress.weight"
ENTAILMENT = ("contradiction", "entailment", "neutral")  # model/ve.py, utils/misc.py; the head has the name of VQA's


def import_uniter(
    path: Path, vocabulary_file: Path, *, heads: int | None = None, lowercase: bool = False
) -> tuple[UniterResolvedConfig, tuple[str, ...], Tensors, ImportReport]:
    """An official checkpoint -> our config, the names of its heads, our state dict, and what became of every key.

    Sizes are read from the tensors; the number of attention heads is not in the file (width / 64 unless given). The
    vocabulary of the released models is bert-base-cased.
    """
    theirs, there = bert.in_full(read_weights(path), _clean)
    if missing := [name for name in (WORDS, MASK) if name not in theirs]:
        raise CheckpointError(
            f"{path} is not a UNITER checkpoint: it lacks {missing[0].replace('bert.', 'uniter.')} (it has "
            f"{', '.join(sorted(there.values())[:3])}); name the system that it is of"
        )
    names = NAMES | _answers(theirs)
    own = {name: value for name, value in theirs.items() if name.rpartition(".")[0] in names and name != TIED}
    ours, report = bert.renamed({name: value for name, value in theirs.items() if name not in own}, there)
    for name, value in own.items():
        stem, _, kind = name.rpartition(".")
        in_order = [ENTAILMENT.index(label) for label in OURS] if names[stem] == "heads.entailment.layers.3" else ...
        _take(ours, report, there[name], f"{names[stem]}.{kind}", value[in_order])
    _take(ours, report, there[MASK], "regions.hidden", theirs[MASK][1])
    if TIED in theirs:
        report.left[there[TIED]] = "regions.feature's weight once more"
    _rank(theirs, there, ours, report)
    words, width = theirs[WORDS].shape
    config = UniterResolvedConfig(
        vocabulary=bert.vocabulary_for(path, words, vocabulary_file, lowercase, "bert-base-cased"),
        width=width,
        heads=bert.heads_for(path, width, heads),
        layers=len({name.split(".")[2] for name in ours if name.startswith("encoder.layers.")}),
        ffn=len(ours["encoder.layers.0.inner.bias"]),
        positions=len(ours["text.positions.weight"]),
        pictures=2 if len(ours["text.segments.weight"]) > 2 else 1,
        feature_size=len(ours["regions.hidden"]),
        classes=len(ours.get("heads.region_class.3.bias", range(1601))),
        answers=len(ours.get("heads.answer.layers.3.bias", ())),
    )
    return config, bert.head_names(ours), ours, report


def _clean(name: str) -> str:
    return name.removeprefix("module.").replace("uniter.", "bert.", 1)


def _answers(theirs: Tensors) -> dict[str, str]:
    head = "entailment" if len(theirs.get("vqa_output.3.bias", ())) == len(ENTAILMENT) else "answer"
    return {f"vqa_output.{layer}": f"heads.{head}.layers.{layer}" for layer in (0, 2, 3)}


def _take(ours: Tensors, report: ImportReport, name: str, new: str, value: torch.Tensor) -> None:
    ours[new] = value
    report.renamed[name] = new
    report.left.pop(name, None)


def _rank(theirs: Tensors, there: dict[str, str], ours: Tensors, report: ImportReport) -> None:
    """Retrieval's score (model/itm.py) is our head "match" with nothing to say for "does not"; of the two heads that a
    fine-tuned model has, it is the one that was trained."""
    for kind in ("weight", "bias"):
        name = f"rank_output.{kind}"
        if name in theirs:
            for before in [old for old, new in report.renamed.items() if new == f"heads.match.layers.0.{kind}"]:
                del report.renamed[before]
                report.left[before] = "what rank_output began as"
            _take(
                ours,
                report,
                there[name],
                f"heads.match.layers.0.{kind}",
                torch.cat([torch.zeros_like(theirs[name]), theirs[name]]),
            )
