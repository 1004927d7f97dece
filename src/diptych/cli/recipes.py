"""The verb that lists what can be trained: recipes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from diptych.cli.app import app, console


@app.command()
def recipes(
    pattern: Annotated[
        str | None,
        typer.Argument(
            help="Part of a name or pattern such as 'tden/*/pretrain' to list, or a whole name to show; default: all."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON array.")] = False,
) -> None:
    """List the recipes, or show one with all its keys as `--set` takes them, their defaults and what they mean."""
    from diptych.recipes import RECIPES, STAGED
    from diptych.recipes.catalogue import entries, settings

    if pattern in RECIPES or pattern in STAGED:
        lines = [f"  {json.dumps(key)}: {_json(value)}" for key, value in settings(pattern).items()]
        print("{\n" + ",\n".join(lines) + "\n}")
        return
    found = entries(pattern or "")
    if as_json:
        print("[\n" + ",\n".join(f"  {_json(asdict(entry))}" for entry in found) + "\n]")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("recipe", "system", "task"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for column in ("steps", "batch"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in found:
        table.add_row(entry.name, entry.system, entry.task, entry.about, f"{entry.steps:,}", f"{entry.batch:,}")
    console(stderr=False).print(table)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
