"""Import checkpoints of TDEN's released code (YehLi/xmodaler), and initialise a model from BERT.

Models for pre-training, captioning, retrieval, VQA and VCR use the same tensor names for their encoders. A file has
only the parts that its task needs. So the task is recognised by the layers and heads in the file.
"""

import os
import re
from pathlib import Path
from typing import Any

from diptych.models.renaming import layer_table, rename
from diptych.models.system import Imported
from diptych.models.weights import ImportReport
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems import bert
from diptych.systems.tden.model import Tden, TdenResolvedConfig

WORDS = "token_embed.embeddings.weight"
# {name in the file: our name}, both without the ending .weight or .bias.
NAMES = {
    "token_embed.embeddings": "text.words",
    "token_embed.embeddings_pos.position_embeddings": "text.positions",
    "token_embed.embeddings_token_type": "text.segments",
    "token_embed.embeddings_norm": "text.norm",
    "visual_embed.embeddings": "regions.feature",
    "visual_embed.embeddings_pos": "regions.box",
    "visual_embed.embeddings_norm": "regions.norm",
    "predictor": "heads.word",  # only a bias, because the matrix is the word embedding
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
DECODER_ATTENTIONS = {"self_attn.self": "layer.attention", "x_att.self": "cross"}
POOLS = {
    "similarity_predictor.t_pooler": "heads.similarity.text",
    "similarity_predictor.v_pooler.#": "heads.similarity.regions.layers.#",
    "predictor.u_pooler": "heads.answer.read.text",
    "predictor.v_pooler.#": "heads.answer.read.regions.layers.#",
    "predictor.g_pooler": "heads.answer.pool",
}
IN_POOL = {"att.0": "inner", "att.3": "weigh", "embed": "out", "bn": "norm"}
TABLE = (
    NAMES
    | layer_table("encoder.layers", "sentence", bert.IN_LAYER, bert.SELF_ATTENTION)
    | layer_table("encoder.v_layers", "objects", bert.IN_LAYER, bert.SELF_ATTENTION)
    | layer_table("decoder.u_layers", "cross", CROSS_LAYER, {"biattention.self": "attention"})
    | layer_table("decoder.g_layers", "decoder", DECODER_LAYER, DECODER_ATTENTIONS)
    | {f"{pool}.{there}": f"{POOLS[pool]}.{here}" for pool in POOLS for there, here in IN_POOL.items()}
)
# In VCR checkpoints, tensors whose names begin with READ belong to CHOICE, the head that scores one choice.
READ, CHOICE = "heads.answer.read.", "heads.choice."
BIAS, BIAS_AGAIN = "predictor.bias", "predictor.decoder.bias"  # the file stores this parameter under two names


def import_tden(path: Path, vocabulary_file: Path, *, heads: int | None = None, lowercase: bool = True) -> Imported:
    """Read an official checkpoint.

    Return our config, the names of the heads, the state dict, and a report of every key.

    Sizes are inferred from the tensors, except the number of attention heads: `heads` defaults to width / 64. The
    released models use the vocabulary of bert-base-uncased. Raises CheckpointError for files of other systems and for
    sizes that do not fit.
    """
    theirs, names_there = bert.in_full(
        read_weights(path), lambda name: name.removeprefix("module.").removeprefix("model.")
    )
    for name in (WORDS, "visual_embed.embeddings.weight"):
        if name not in theirs:
            bert.refuse_system(theirs, path, "a TDEN checkpoint of xmodaler", name)
    twice = BIAS in theirs and theirs.pop(BIAS_AGAIN, None) is not None
    ours, report = rename(theirs, names_there, TABLE, {})
    if twice:
        report.left[names_there[BIAS_AGAIN]] = f"a copy of {BIAS}"
    if len(theirs.get("predictor.u_logits.1.weight", ())) == 1:
        ours = {name.replace(READ, CHOICE): value for name, value in ours.items()}
        report.renamed = {there: name.replace(READ, CHOICE) for there, name in report.renamed.items()}
    words, width = ours["text.words.weight"].shape
    vocabulary = bert.vocabulary_for(path, words, vocabulary_file, lowercase, "bert-base-uncased")
    heads = bert.heads_for(path, width, heads)
    config = TdenResolvedConfig(vocabulary=vocabulary, width=width, heads=heads, **_sizes(ours, path))
    return config, bert.head_names(ours), ours, report


def start_tden(model: Tden, source: str | os.PathLike[str]) -> ImportReport:
    """Initialise the sentence encoder, the word embeddings and the word head from BERT.

    All other weights stay unchanged. The authors initialise the other encoders from a file that they did not release.
    """
    path, ours, report = bert.read_bert(source)
    config = model.config
    bert.check_words(path, ours, config.vocabulary)
    ours["text.positions.weight"] = bert.fit_positions(ours["text.positions.weight"], config.positions)
    ours["text.segments.weight"] = bert.fit_positions(ours["text.segments.weight"], config.segments)
    ours = {name.replace("encoder.layers.", "sentence."): value for name, value in ours.items()}
    report.renamed = {old: new.replace("encoder.layers.", "sentence.") for old, new in report.renamed.items()}
    if not config.tied_words and "heads.word.dense.weight" in ours:
        ours["heads.word.words.weight"] = ours["text.words.weight"]
    return bert.load_known(model, ours, report)


def _sizes(ours: Tensors, path: Path) -> dict[str, Any]:
    def layers(stack: str) -> int:
        return len({match[1] for name in ours if (match := re.match(rf"{stack}\.(\d+)\.", name))})

    def rows(name: str, default: int) -> int:
        return len(ours.get(name, range(default)))

    for name in ("text.positions.weight", "text.segments.weight", "sentence.0.inner.weight"):
        if name not in ours:
            raise CheckpointError(f"{path} has no {name}; copy it again, or import it with another system")
    pool = "heads.choice.text.out.weight" if "heads.choice.text.out.weight" in ours else "heads.answer.pool.out.weight"
    stacks = {f"{name}_layers": layers(name) for name in ("sentence", "cross", "decoder")}
    official = ("decoder_memory", "cross_ffn", "vqa_fusion", "similarity")
    return {
        "ffn": len(ours["sentence.0.inner.weight"]),
        "object_layers": layers("objects"),
        "positions": len(ours["text.positions.weight"]),
        "segments": len(ours["text.segments.weight"]),
        "feature_size": ours["regions.feature.weight"].shape[1],
        "classes": rows("heads.region_class.3.bias", 1601),
        "answers": rows("heads.answer.out.1.bias", 0),
        "answer_width": rows(pool, 0) or None,
        "similarity_width": rows("heads.similarity.text.out.bias", 1024),
        "tied_words": False,
        **stacks,
        **dict.fromkeys(official, "official"),
    }
