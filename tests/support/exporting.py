"""Our weights under the names of the systems' authors, to be imported again and to be read by their code."""

from collections.abc import Mapping

from diptych.models.renaming import new_name, parts_of
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors
from diptych.systems import bert
from diptych.systems.tden.checkpoint import BIAS, BIAS_AGAIN, CHOICE, READ, TABLE
from diptych.systems.tden.model import Tden
from diptych.systems.unified_vlp.model import UnifiedVLP


def export(tensors: Tensors, table: Mapping[str, str]) -> Tensors:
    """Return our tensors under the authors' names. Raises CheckpointError for a tensor that the table lacks."""
    outward: dict[str, str] = {}
    for there, here in table.items():
        outward.setdefault(here, there)  # of query, key and value the first
    exported: Tensors = {}
    for name, value in tensors.items():
        new = new_name(name, outward)
        if new is None:
            raise CheckpointError(f"{name} has no counterpart in the authors' code")
        names = parts_of(new) if ".qkv." in name else [new]
        exported |= dict(zip(names, value.chunk(len(names)), strict=True)) if len(names) > 1 else {new: value}
    return exported


def export_tden(model: Tden) -> Tensors:
    """Return our weights under the authors' names. Raises CheckpointError for a form that their code lacks."""
    config = model.config
    if config.structure != "decoupled" or config.cross_ffn != "official" or config.tied_words:
        raise CheckpointError(
            "only structure=decoupled, cross_ffn=official and tied_words=false have a counterpart in the authors' code"
        )
    exported = export({name.replace(CHOICE, READ): value for name, value in model.state_dict().items()}, TABLE)
    return exported | ({BIAS_AGAIN: exported[BIAS]} if BIAS in exported else {})


def export_unified_vlp(model: UnifiedVLP) -> Tensors:
    """Return our weights under the authors' names. Raises CheckpointError for the paper's form of the regions."""
    if model.config.region_embedding != "official":
        raise CheckpointError("only region_embedding=official has a counterpart in the authors' code")
    exported = export(model.state_dict(), bert.TABLE)
    return exported | ({bert.TIED: exported[bert.WORDS]} if "word" in model.heads else {})
