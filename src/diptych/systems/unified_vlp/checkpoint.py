"""Import of checkpoints by the authors of Unified VLP.

Tensor names are BERT's, with additional layers for regions and answers.
"""

from pathlib import Path

from diptych.models.system import Imported
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems import bert
from diptych.systems.unified_vlp.model import UnifiedVLPResolvedConfig

INNER = "bert.encoder.layer.0.intermediate.dense.weight"


def import_unified_vlp(
    path: Path, vocabulary_file: Path, *, heads: int | None = None, max_regions: int = 100, lowercase: bool = False
) -> Imported:
    """Read an official checkpoint.

    Return our config, the names of the heads, the state dict, and a report of every key.

    Sizes are inferred from the tensors, with two exceptions. `heads` defaults to width / 64, and `max_regions` must be
    the value of the training run. The released models use the vocabulary of bert-base-cased. Raises CheckpointError for
    files of other systems and for sizes that do not fit.
    """
    theirs, names_there = bert.in_full(read_weights(path), bert.bert_name)
    _check_system(theirs, path)
    vocabulary = bert.vocabulary_for(path, len(theirs[bert.WORDS]), vocabulary_file, lowercase, "bert-base-cased")
    width, segments, positions = theirs[bert.WORDS].shape[1], len(theirs[bert.SIZED[0]]), len(theirs[bert.SIZED[1]])
    if segments not in (2, 6):
        raise CheckpointError(f"{path} has {segments} segment embeddings; pass a Unified VLP model, which has 6 or 2")
    heads = bert.heads_for(path, width, heads)
    if positions < max_regions + 3:
        raise CheckpointError(f"{path} has {positions} positions, too few for {max_regions} regions; lower max_regions")
    ours, report = bert.renamed(theirs, names_there)
    bert.narrow_word_head(ours, width, report)
    config = UnifiedVLPResolvedConfig(
        vocabulary=vocabulary,
        width=width,
        layers=len({name.split(".")[2] for name in ours if name.startswith("encoder.layers.")}),
        heads=heads,
        ffn=len(theirs[INNER]),
        positions=positions,
        max_regions=max_regions,
        feature_size=theirs["vis_embed.2.weight"].shape[1],
        classes=theirs["vis_pe_embed.0.weight"].shape[1] - 6,
        answers=len(theirs.get("ans_classifier.2.weight", ())),
        segments=6 if segments == 6 else 2,
        region_embedding="official",
        box_norm="official",
        geometry="official",
        hidden_regions="official",
    )
    return config, bert.head_names(ours), ours, report


def _check_system(theirs: Tensors, path: Path) -> None:
    if bert.WORDS not in theirs:
        bert.refuse_system(theirs, path, "a Unified VLP checkpoint")
    if "vis_pe_embed.0.weight" not in theirs or "vis_embed.2.weight" not in theirs:
        raise CheckpointError(f"{path} is a BERT or UniLM checkpoint, without region layers; pass it as --init")
    if missing := [name for name in (*bert.SIZED, INNER) if name not in theirs]:
        raise CheckpointError(f"{path} has no {missing[0]}; copy it again, or import it with another system")
