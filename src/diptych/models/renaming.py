"""Rename the tensors of an official checkpoint to Diptych's names.

A table maps the authors' names to ours, without the suffix `.weight` or `.bias`. In both names, `#` is a
number, such as a layer's. Our models store query, key and value of an attention as one tensor `qkv`. So the table maps
three of the authors' names to `qkv`.
"""

import re
from collections.abc import Mapping

import torch

from diptych.models.weights import ImportReport
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import Tensors

QKV = ("query", "key", "value")
_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def layer_table(
    theirs: str, ours: str, modules: Mapping[str, str], attentions: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return a table for numbered layers that maps `theirs.#.MODULE` to `ours.#.MODULE`.

    `attentions` are modules whose query, key and value are joined.
    """
    joint = {f"{there}.{part}": f"{here}.qkv" for there, here in (attentions or {}).items() for part in QKV}
    return {f"{theirs}.#.{there}": f"{ours}.#.{here}" for there, here in {**modules, **joint}.items()}


def new_name(name: str, table: Mapping[str, str]) -> str | None:
    """Return our name of a tensor, or None if the table does not have the tensor."""
    stem, _, kind = name.rpartition(".")
    number = _NUMBER.search(stem)
    known = stem if stem in table or number is None else _NUMBER.sub(".#", stem, count=1)
    return f"{table[known].replace('#', number[1] if number else '#')}.{kind}" if known in table else None


def rename(
    theirs: Tensors, names_there: Mapping[str, str], table: Mapping[str, str], unused: Mapping[str, str]
) -> tuple[Tensors, ImportReport]:
    """Return the tensors under our names, and a report.

    `names_there` maps names in `theirs` to names in the file, for the report.

    `unused`: {prefix of names that our models do not use: reason}. Raises CheckpointError if a query, key or value is
    missing.
    """
    ours: Tensors = {}
    report = ImportReport()
    for name, value in theirs.items():
        new = new_name(name, table)
        if new is None:
            report.left[names_there[name]] = next((why for s, why in unused.items() if name.startswith(s)), "unknown")
            continue
        report.renamed[names_there[name]] = new
        if ".qkv." not in new:
            ours[new] = value
        elif new not in ours:
            ours[new] = _joined(theirs, name)
    return ours, report


def _joined(theirs: Tensors, name: str) -> torch.Tensor:
    parts = parts_of(name)
    if missing := [part for part in parts if part not in theirs]:
        raise CheckpointError(f"the checkpoint has no {missing[0]}; copy it again, or import it with another system")
    return torch.cat([theirs[part] for part in parts])


def parts_of(name: str) -> list[str]:
    """Return the names of query, key and value, given one of them."""
    before, _, kind = name.rsplit(".", 2)
    return [f"{before}.{part}.{kind}" for part in QKV]
