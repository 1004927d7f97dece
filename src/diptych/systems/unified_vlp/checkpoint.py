"""Import of checkpoints by the authors of Unified VLP.

Tensor names are BERT's, with additional layers for regions and answers.
"""

from pathlib import Path

from diptych.data.store.pixels import Colours
from diptych.models.system import Imported
from diptych.models.weights import ImportReport, load_into
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems import bert
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.vision.detectors.weights import read_detector, weights_in

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


def start_fc7(model: UnifiedVLP, source: str, _: Colours) -> ImportReport:
    """Initialise the first layer of region features as fc7 of a detector. `source`: its folder or a file of weights.

    Raises CheckpointError if the file has no fc7 of this size, or if the features of the detector are fc7's output.
    """
    path, size, ours = Path(source), model.config.feature_size, "regions.feature.0."
    read = read_detector(path).get("shape", {}).get("layer", "fc6") if path.is_dir() else "fc6"
    named = ((name.split("."), value) for name, value in weights_in(path).items())
    layer = {ours + name[-1]: value for name, value in named if name[-2:-1] == ["fc7"]}
    wanted = {f"{ours}weight": (size, size), f"{ours}bias": (size,)}
    if {name: tuple(value.shape) for name, value in layer.items()} != wanted or read != "fc6":
        raise CheckpointError(f"{source} has no layer fc7 that reads features of {size} values and returns as many")
    return load_into(model, layer)


def _check_system(theirs: Tensors, path: Path) -> None:
    if bert.WORDS not in theirs:
        bert.refuse_system(theirs, path, "a Unified VLP checkpoint")
    if "vis_pe_embed.0.weight" not in theirs or "vis_embed.2.weight" not in theirs:
        raise CheckpointError(f"{path} is a BERT or UniLM checkpoint, without region layers; pass it as --init")
    if missing := [name for name in (*bert.SIZED, INNER) if name not in theirs]:
        raise CheckpointError(f"{path} has no {missing[0]}; copy it again, or import it with another system")
