"""Weights under the names of the authors."""

from collections.abc import Mapping

from torch import Tensor

from diptych.models.renaming import QKV
from diptych.systems.bert import IN_LAYER
from diptych.systems.vl_bert.checkpoint import HIDDEN_LOOK, NAMES
from diptych.systems.vl_bert.model import VLBert


def under_their_names(model: VLBert, fine_tuned: Mapping[str, str] = NAMES, without: str = "none") -> dict[str, Tensor]:
    """`fine_tuned`: the names of the heads that fine-tuning added."""
    names, in_layer = (
        {ours: theirs for theirs, ours in table.items()} for table in ({**NAMES, **fine_tuned}, IN_LAYER)
    )
    theirs: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        stem, _, kind = name.rpartition(".")
        if name.startswith(without):
            continue
        if name == "regions.hidden":
            theirs[HIDDEN_LOOK] = value[None]
        elif stem.startswith("encoder.layers."):
            number, inner = stem.removeprefix("encoder.layers.").split(".", 1)
            layer = f"vlbert.encoder.layer.{number}."
            if inner == "attention.qkv":
                parts = zip(QKV, value.chunk(3), strict=True)
                theirs |= {f"{layer}attention.self.{part}.{kind}": third for part, third in parts}
            else:
                theirs[f"{layer}{in_layer[inner]}.{kind}"] = value
        else:
            theirs[f"{names[stem]}.{kind}"] = value
    return theirs
