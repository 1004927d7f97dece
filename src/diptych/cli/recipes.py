"""The verbs `recipes` (list recipes and the papers' figures) and `plugins` (list what packages add)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from diptych.cli.app import AsJson, console

if TYPE_CHECKING:
    from diptych.systems import ledger
    from diptych.systems.catalogue import CatalogueEntry


def recipes(
    pattern: str | None = Argument(
        None, help="Recipe to show, or part of a name or pattern ('tden/*/pretrain') to list; default: all."
    ),
    system: str | None = Option(None, help="List the recipes of one system, or its paper's tables: such as xgpt."),
    task: str | None = Option(None, help="List the recipes that train or score one task, such as caption."),
    table: int | None = Option(None, min=1, help="List rows of the papers' tables of this number, with commands."),
    as_json: bool = Option(False, "--json", help="Print the list as one JSON array."),
) -> None:
    """List recipes or rows of the papers' tables, or show a recipe with all keys that `--set` can change."""
    from diptych.systems.catalogue import entries, row_to_json, rows

    if table is not None:
        listed_rows = rows(table, pattern or "", system, task)
        if as_json:
            _print_array(map(row_to_json, listed_rows))
        else:
            _print_rows(listed_rows)
        return
    listed = {entry.name: entry for entry in entries(pattern or "", system, task)}
    if pattern in listed:
        _print_recipe(listed[pattern])
    elif as_json:
        _print_array(map(asdict, listed.values()))
    else:
        _print_list(listed.values())


def _print_recipe(entry: CatalogueEntry) -> None:
    from diptych.systems.catalogue import settings

    _print_about(entry)
    lines = [f"  {json.dumps(key)}: {_json(value)}" for key, value in settings(entry.name).items()]
    print("{\n" + ",\n".join(lines) + "\n}")


def plugins(as_json: AsJson = False) -> None:
    """List the installed packages that extend Diptych, and what each adds, such as systems and tasks."""
    from diptych.runtime.plugins import PluginError
    from diptych.runtime.plugins import plugins as installed

    for plugin in installed():
        error = None if plugin.error is None else f"{type(plugin.error).__name__}: {plugin.error}"
        if as_json:
            print(_json({"package": plugin.package, "version": plugin.version, "adds": plugin.adds, "error": error}))
            continue
        added = [f"  {word}: {', '.join(names)}" for word, names in plugin.adds.items() if names]
        print("\n".join([plugin.title, *(added if error is None else [f"  failed: {error}"])]))
    if not installed() and not as_json:
        print("no installed package extends Diptych (docs/from-outside.md describes how one does)")
    for plugin in installed():
        if plugin.error is not None:
            raise PluginError(plugin) from plugin.error


def _print_list(listed: Iterable[CatalogueEntry]) -> None:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("recipe", "task"):
        shown.add_column(column, no_wrap=True)
    for column in ("what it is", "rows in"):
        shown.add_column(column, overflow="fold")
    for column in ("steps", "batch"):
        shown.add_column(column, justify="right", no_wrap=True)
    rows = [(e.name, e.task, e.about, "; ".join(e.tables), _length(e), f"{e.batch:,}") for e in listed]
    if not (out := console(stderr=False)).is_terminal:  # columns with tabs, for other programs
        print("\n".join("\t".join(row) for row in ([str(column.header) for column in shown.columns], *rows)))
        return
    for row in rows:
        shown.add_row(*row)
    out.print(shown)


def _length(entry: CatalogueEntry) -> str:
    return f"{entry.steps:,}" if entry.epochs is None else f"{entry.epochs:g} epochs"


def _print_about(entry: CatalogueEntry) -> None:
    """Print the description of a recipe to standard error, because standard output is only for the keys."""
    from diptych.systems.catalogue import made

    lines = [entry.about, f"type: {entry.command}", f"reads {entry.samples:,} samples in {_length(entry)} steps"]
    if entry.epochs is not None:
        lines[-1] = f"reads the training samples in {_length(entry)}"
    if entry.authors:
        lines.append(f"the authors' run: {entry.authors}")
    lines += [f"{row.id}: {_reported(row, entry.task)}".removesuffix(": ") for row in made(entry.name)]
    for line in lines:
        console().print(line, markup=False, highlight=False, soft_wrap=True)


def _print_rows(listed: Sequence[ledger.LedgerRow]) -> None:
    from diptych.systems import SYSTEMS
    from diptych.systems.catalogue import row_cost

    out = console(stderr=False)
    for (system, title), group in groupby(listed, key=lambda row: (row.paper.system, row.table.title)):
        rows = list(group)
        out.print(f"{SYSTEMS[system].title}, {title}: {rows[0].table.about}", markup=False, style="bold")
        for store, regions in rows[0].paper.stores.items():
            out.print(f"{store}: {regions}", markup=False, highlight=False, soft_wrap=True)
        for row in rows:
            out.print(f"\n{row.row.name}", markup=False, highlight=False)
            lines = [
                _reported(row),
                row.row.note,
                *row.row.commands,
                f"cost: {row_cost(row)}" if row.row.recipes else "",
                f"id: {row.id}",
                "" if row.row.system or row.row.commands else "another system's",
            ]
            for line in filter(None, lines):
                out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        out.print()


def _reported(row: ledger.LedgerRow, task: str | None = None) -> str:
    """Format the figures that a paper reports, such as `COCO test: C 116.9, B@4 36.5; VQA 2.0 test-std: Overall 70.7`.

    If there are figures for `task`, only these are included.
    """
    own = {part.title for part in row.table.parts if part.task == task} or set(row.reported)
    parts = (
        f"{part}: {', '.join(f'{column} {number}' for column, number in numbers.items())}"
        for part, numbers in row.reported.items()
        if part in own
    )
    return "; ".join(parts)


def _print_array(values: Iterable[dict[str, Any]]) -> None:
    print("[\n" + ",\n".join(f"  {_json(value)}" for value in values) + "\n]")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
