"""Import checkpoints of VL-BERT's released code (jackroos/VL-BERT), and initialise a model from BERT or a ResNet.

Models for pre-training, VQA, VCR and RefCOCO+ share the same encoder, whose tensors have the prefix `vlbert._module` in
VCR files. The heads in a file show its task.
"""

import os
from pathlib import Path
from typing import Any

import torch

from diptych.data.store.pixels import Colours
from diptych.models.renaming import layer_table, rename
from diptych.models.system import Imported
from diptych.models.weights import ImportReport
from diptych.runtime.errors import RecipeError
from diptych.runtime.weight_files import Tensors, read_weights
from diptych.systems import bert
from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
from diptych.systems.vl_bert.network import Network, begin_from_resnet, of_torchvision
from diptych.vision.detectors.weights import weights_in

WORDS = "vlbert.word_embeddings.weight"
# {name in the file: our name}, both without the ending .weight or .bias.
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
    "vlbert.mlm_head.predictions": "heads.word",  # only a bias, because the matrix is the word embedding
    "vlbert.mlm_head.predictions.transform.dense": "heads.word.dense",
    "vlbert.mlm_head.predictions.transform.LayerNorm": "heads.word.norm",
    "vlbert.mvrc_head.transform.dense": "heads.region_class.0",
    "vlbert.mvrc_head.region_cls_pred": "heads.region_class.2",
    "vlbert.relationsip_head.caption_image_relationship": "heads.match.out",  # (sic): the files spell it this way
}
LAYERS = layer_table("vlbert.encoder.layer", "encoder.layers", bert.IN_LAYER, bert.SELF_ATTENTION)
# Heads of fine-tuned models. The pooler is stored as a part of the head that uses it.
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
HEADS = {  # {tensor that identifies the task of a file: names of its heads}; the first match counts
    "final_mlp.0.LayerNorm.weight": VQA,
    "final_mlp.1.weight": VCR,
    "final_mlp.0.dense.weight": REFCOCO,
    "vlbert.relationsip_head.caption_image_relationship.weight": PRETRAINED,
}
HIDDEN_LOOK = "object_mask_visual_embedding.weight"  # shape (1, F) in the file, (F,) in Diptych's model
NETWORK = {
    "image_feature_extractor.backbone.": "regions.network.backbone.",
    "image_feature_extractor.roi_head_feature_extractor.": "regions.network.head.",
}
UNUSED = {
    "vlbert.mlm_head.predictions.decoder.": "a copy of the word embeddings",
    "vlbert.pooler.": "a pooler that no head of this task reads",
    "image_feature_extractor.head.0.": "a copy of the network's last stage",
}
DEPTHS: dict[int, Network] = {6: "resnet50", 23: "resnet101", 36: "resnet152"}  # {number of blocks in stage 3: network}


def import_vl_bert(
    path: Path,
    vocabulary_file: Path,
    *,
    heads: int | None = None,
    feature_size: int | None = None,
    lowercase: bool = True,
) -> Imported:
    """Read an official checkpoint.

    Return our config, the names of the heads, the state dict, and a report of every key.

    Sizes are inferred from the tensors, with two exceptions. `heads` defaults to width / 64. `feature_size` is not
    stored in files of fine-tuned models. It defaults to half of the input size of the layer that reads features, or to
    2,048 if the file lacks this layer. The released models use the vocabulary of bert-base-uncased. Raises
    CheckpointError for files of other systems and for sizes that do not fit.
    """
    theirs, names_there = bert.in_full(read_weights(path), _clean)
    if WORDS not in theirs:
        bert.refuse_system(theirs, path, "a VL-BERT checkpoint", WORDS)
    own_heads = next((names for name, names in HEADS.items() if name in theirs), {})
    ours, report = rename(theirs, names_there, NAMES | LAYERS | own_heads, UNUSED)
    pixels = {name: here + name.removeprefix(s) for s, here in NETWORK.items() for name in theirs if name.startswith(s)}
    hidden = {HIDDEN_LOOK: "regions.hidden"} if HIDDEN_LOOK in theirs else {}
    for name, new in (pixels | hidden).items():
        ours[new] = theirs[name][0] if name == HIDDEN_LOOK else theirs[name]
        report.renamed[names_there[name]] = new
        del report.left[names_there[name]]
    words, width = ours["text.words.weight"].shape
    vocabulary = bert.vocabulary_for(path, words, vocabulary_file, lowercase, "bert-base-uncased")
    heads = bert.heads_for(path, width, heads)
    config = VLBertResolvedConfig(vocabulary=vocabulary, width=width, heads=heads, **_sizes(ours, feature_size))
    return config, bert.head_names(ours), ours, report


def start_vl_bert(model: VLBert, source: str | os.PathLike[str]) -> ImportReport:
    """Initialise word embeddings, encoder, word head and poolers from BERT. `source`: a file, a folder, or a hub id.

    All other weights stay unchanged. The third segment embedding (of the regions) also stays unchanged, because BERT
    has only two (as in common/visual_linguistic_bert.py).
    """
    path, ours, report = bert.read_bert(source)
    bert.check_words(path, ours, model.config.vocabulary)
    ours["text.positions.weight"] = bert.fit_positions(ours["text.positions.weight"], model.config.positions)
    segments = ours["text.segments.weight"][:3]
    ours["text.segments.weight"] = torch.cat([segments, model.text.segments.weight.detach()[len(segments) :]])
    pools = [name for name in model.state_dict() if name.startswith("heads.") and ".pool.0." in name]
    for kind in ("weight", "bias"):
        pooler = ours.pop(f"heads.pooler.0.{kind}", None)
        if pooler is not None:
            ours |= {name: pooler for name in pools if name.endswith(f".{kind}")}
    return bert.load_known(model, ours, report)


def start_network(model: VLBert, source: str, colours: Colours) -> ImportReport:
    """Initialise the network that reads pixels. `source`: a detector folder or a file of weights.

    torchvision's weights need RGB images and the stride in 3 x 3 convolutions. Raises RecipeError if the recipe has
    other settings.
    """
    network = model.regions.network
    assert network is not None
    tensors = weights_in(Path(source))
    if of_torchvision(tensors):
        wanted = {"data.pixels_colours=rgb": colours == "rgb"}
        if network.bottlenecks:
            wanted["model.network_stride=3x3"] = model.config.network_stride == "3x3"
        if other := [setting for setting, met in wanted.items() if not met]:
            raise RecipeError(f"{source} holds torchvision's weights, which need --set {' --set '.join(other)}")
    return begin_from_resnet(network, tensors, source)


def _clean(name: str) -> str:
    """Return a name without `module.` (from data-parallel training) and `_module.` (from VCR files)."""
    return name.removeprefix("module.").replace("vlbert._module.", "vlbert.")


def _sizes(ours: Tensors, feature: int | None) -> dict[str, Any]:
    layers = {name.split(".")[2] for name in ours if name.startswith("encoder.layers.")}
    blocks = {name.split(".")[4] for name in ours if name.startswith("regions.network.backbone.layer3.")}
    read = ours.get("regions.out.weight")
    if "regions.hidden" in ours:
        feature = len(ours["regions.hidden"])
    if read is not None and feature is None:
        # The layer reads the coordinates, followed by the feature. The authors' code gives both the same size.
        feature = read.shape[1] // 2
    official = ("geometry", "visual_norm_init", "hidden_regions", "end_visual")
    return {
        "layers": len(layers),
        "ffn": len(ours["encoder.layers.0.inner.bias"]),
        "positions": len(ours["text.positions.weight"]),
        "feature_size": feature or 2048,
        "coordinates": (read.shape[1] - feature) // 8 if read is not None and feature is not None else 256,
        "classes": len(ours.get("heads.region_class.2.bias", range(1601))),
        "answers": len(ours.get("heads.answer.outer.bias", ())),
        "network": DEPTHS.get(len(blocks)),
        **dict.fromkeys(official, "official"),
    }
