"""The import of official checkpoints that several systems share: they all descend from Google's BERT.

One table of names serves BERT, UniLM and Unified VLP. They differ in TensorFlow's gamma and beta, a `module.` from
data-parallel training, half precision, two segments instead of six, the number of positions, and UniLM's word head,
which is four times as wide (one slice per task). Code for a single system is in the system's folder.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from diptych.core import Vocabulary
from diptych.data.store.tokens import Tokens
from diptych.models.renaming import layer_table, rename
from diptych.models.system import SystemModel
from diptych.models.weights import ImportReport, load_into
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.weight_files import Tensors, find_weights, read_weights
from diptych.systems.system import SYSTEMS

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
    "vis_embed.0": "regions.feature.0",
    "vis_embed.2": "regions.feature.2",
    "vis_pe_embed.0": "regions.place.0",
    "ans_classifier.0": "heads.answer.inner",
    "ans_classifier.2": "heads.answer.outer",
}
IN_LAYER = {  # names inside an encoder layer, the same in all these checkpoints
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "inner",
    "output.dense": "outer",
    "output.LayerNorm": "norm",
}
SELF_ATTENTION = {"attention.self": "attention"}  # its query, key and value are one tensor here
TABLE = NAMES | layer_table("bert.encoder.layer", "encoder.layers", IN_LAYER, SELF_ATTENTION)
UNUSED = {
    TIED: "the word embeddings once more",
    "cls.seq_relationship": "next-sentence head, which Unified VLP does not have",
    "crit_mask_lm_smoothed": "a constant of the loss",
    "bert.embeddings.position_ids": "a constant",
}
# Tensors from which sizes are read.
SIZED = ("bert.embeddings.token_type_embeddings.weight", "bert.embeddings.position_embeddings.weight")
SEQ2SEQ_TASK = 3  # UniLM's slice of a wide word head (run_img2txt_dist.py:315)


def start_from_bert(model: SystemModel, source: str | os.PathLike[str]) -> ImportReport:
    """Initialise a model from BERT, UniLM or Unified VLP: a file, a folder, or a hub id. Missing weights stay random.

    `model` needs the parameter names of our Unified VLP, as ImageBERT has: `text.words`, `text.segments`,
    `encoder.layers`. Its config needs `segments`, the number of segment embeddings. Missing segments are copied as the
    authors do: 2, 3 and 4 from 0, and 5 from 1. Missing positions repeat the existing ones. Raises CheckpointError for
    a file that does not fit, RecipeError for a config without `segments`.
    """
    path, ours, report = read_bert(source)
    config = model.config
    check_words(path, ours, config.vocabulary)
    segments = getattr(config, "segments", None)
    if segments is None:
        raise RecipeError(
            f"{type(model).__name__} cannot start from BERT: its config has no `segments`; add the number of its "
            "segment embeddings as a field or a property"
        )
    ours["text.segments.weight"] = fit_segments(ours["text.segments.weight"], segments)
    ours["text.positions.weight"] = fit_positions(ours["text.positions.weight"], config.positions)
    narrow_word_head(ours, config.width, report)
    return load_known(model, ours, report)


def read_bert(source: str | os.PathLike[str]) -> tuple[Path, Tensors, ImportReport]:
    """Read the tensors of BERT, UniLM or Unified VLP under the names of our Unified VLP. Raises CheckpointError."""
    path = find_weights(source)
    theirs, names_there = in_full(read_weights(path), bert_name)
    if WORDS not in theirs:
        refuse_system(theirs, path, "a BERT, UniLM or Unified VLP checkpoint")
    if missing := [name for name in SIZED if name not in theirs]:
        raise CheckpointError(f"{path} lacks {missing[0]}; it is damaged or of another system")
    ours, report = renamed(theirs, names_there)
    return path, ours, report


def check_words(path: Path, ours: Tensors, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError if the word embeddings of a file do not fit the model's vocabulary."""
    words = len(ours["text.words.weight"])
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, the model's vocabulary has {vocabulary.size}; use the vocabulary that comes "
            "with the checkpoint"
        )


def vocabulary_for(path: Path, words: int, file: Path, lowercase: bool, released: str) -> Vocabulary:
    """Read a vocab.txt, which must have `words` words.

    Raises CheckpointError, which names the authors' file (`released`).
    """
    vocabulary = Tokens.from_vocabulary(file, lowercase=lowercase).vocabulary
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, the vocabulary file {vocabulary.size}; the released models use that of "
            f"{released}"
        )
    return vocabulary


def heads_for(path: Path, width: int, heads: int | None) -> int:
    """Number of attention heads, which checkpoints do not store: as given, or width / 64. Raises CheckpointError."""
    heads = heads or max(width // 64, 1)
    if width % heads:
        raise CheckpointError(
            f"{path} has a width of {width}, which is not divisible by {heads} attention heads; pass heads"
        )
    return heads


def head_names(ours: Tensors) -> tuple[str, ...]:
    """The names of the heads whose weights are among the tensors."""
    return tuple(sorted({name.split(".")[1] for name in ours if name.startswith("heads.")}))


def load_known(model: nn.Module, ours: Tensors, report: ImportReport) -> ImportReport:
    """Load the tensors that the model has; the others are reported as left."""
    known = model.state_dict()
    report.left |= {name: "not in the model" for name in ours if name not in known}
    return load_into(model, {name: value for name, value in ours.items() if name in known}, report)


def fit_segments(rows: Tensor, count: int) -> Tensor:
    """Extend two segments to six as the authors do (modeling.py:674), or keep the first `count`."""
    if len(rows) == 2 and count == 6:
        return rows[[0, 1, 0, 0, 0, 1]]
    if len(rows) < count:
        raise CheckpointError(
            f"the checkpoint has {len(rows)} segment embeddings; this model needs a checkpoint with 2 or {count}"
        )
    return rows[:count]


def fit_positions(rows: Tensor, count: int) -> Tensor:
    """The first `count` position embeddings, repeated from the first if there are too few (modeling.py:690)."""
    return rows[torch.arange(count) % len(rows)]


def in_full(tensors: Tensors, clean: Callable[[str], str]) -> tuple[Tensors, dict[str, str]]:
    """Tensors in float32 under cleaned names, and a table from cleaned names to those of the file."""
    full = {clean(name): value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    return full, {clean(name): name for name in tensors}


def bert_name(name: str) -> str:
    """The name of a tensor as in PyTorch's BERT with heads."""
    new = name.removeprefix("module.").replace("gamma", "weight").replace("beta", "bias")
    bare = new.startswith(("embeddings.", "encoder.layer.", "pooler."))  # a BertModel without heads
    return f"bert.{new}" if bare else new


def renamed(theirs: Tensors, names_there: dict[str, str]) -> tuple[Tensors, ImportReport]:
    """The tensors of a BERT, UniLM or Unified VLP by Diptych's names, and a report that uses the file's names."""
    return rename(theirs, names_there, TABLE, UNUSED)


def refuse_system(theirs: Tensors, path: Path, wanted: str) -> None:
    """Raise CheckpointError that names the system to which a file belongs."""
    prefixed = ((one.title, one.importer.key_prefixes) for one in SYSTEMS.values() if one.importer is not None)
    system = next((title for title, prefixes in prefixed if any(name.startswith(prefixes) for name in theirs)), None)
    what = f"a {system} checkpoint" if system else f"none that is known (it has {', '.join(sorted(theirs)[:3])})"
    raise CheckpointError(f"{path} is {what}; expected {wanted}, which has {WORDS}")


def narrow_word_head(ours: Tensors, width: int, report: ImportReport) -> None:
    """Keep the seq2seq task's slice of UniLM's relaxed projection, which has one slice per task."""
    wide = ours.get("heads.word.dense.weight")
    if wide is None or len(wide) == width:
        return
    for name in ("dense.weight", "dense.bias", "norm.weight", "norm.bias"):
        key = f"heads.word.{name}"
        ours[key] = ours[key].view(-1, width, *ours[key].shape[1:])[SEQ2SEQ_TASK]
    report.left["cls.predictions.transform (other tasks)"] = "slices of a relaxed projection that seq2seq does not use"
