"""The ledger: what a table of a paper is made of, and the rows that can be looked up.

`diptych.systems.*.paper` holds the tables, copied by hand once; docs/papers.md and `diptych recipes` show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NOT_REPORTED = "-"
_RECIPE = re.compile(r"diptych (?:pretrain (\S+)|finetune .*?--recipe (\S+))")


@dataclass(frozen=True)
class Part:
    """Columns of a table that are scores of one task on one split."""

    title: str
    """Data and split, such as COCO test."""
    columns: tuple[str, ...]
    """As the paper names them."""
    task: str | None = None
    """Task of Diptych that is scored; None: nothing is."""


@dataclass(frozen=True)
class Row:
    """One row, with what the paper reports and what to type for it."""

    name: str
    """As the paper has it."""
    numbers: tuple[str, ...]
    """As printed, one a column; `-` where the paper reports none."""
    commands: tuple[str, ...] = ()
    """What makes it, in order; none where it is another system's."""
    system: str | None = None
    """System of Diptych that it is of; None: another system's."""
    note: str = ""
    """What has to be known beside the commands."""

    @property
    def recipes(self) -> tuple[str, ...]:
        """Recipes that its commands train by, each once."""
        found = [match[1] or match[2] for command in self.commands if (match := _RECIPE.match(command))]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Table:
    """One table; tables without numbers (comparisons in words, examples) have no parts."""

    number: int
    about: str
    rows: tuple[Row, ...]
    parts: tuple[Part, ...] = ()

    @property
    def columns(self) -> tuple[tuple[Part, str], ...]:
        return tuple((part, column) for part in self.parts for column in part.columns)

    def reported(self, row: Row) -> dict[str, dict[str, str]]:
        """Numbers that the paper reports of a row, by part and column."""
        told: dict[str, dict[str, str]] = {}
        for (part, column), number in zip(self.columns, row.numbers, strict=True):
            if number != NOT_REPORTED:
                told.setdefault(part.title, {})[column] = number
        return told


@dataclass(frozen=True)
class Paper:
    """The tables of one paper."""

    system: str
    cite: str
    tables: tuple[Table, ...]
    costs: Mapping[str, str] = field(default_factory=dict)
    """What the authors' own run of a recipe took, as the paper says it."""


@dataclass(frozen=True)
class Entry:
    """A row with the paper and the table that it stands in."""

    paper: Paper
    table: Table
    row: Row

    @property
    def id(self) -> str:
        """Such as `xgpt/table-2/cc-ic-imlm`."""
        slug = re.sub(r"[^a-z0-9+]+", "-", self.row.name.lower().replace("*", " star")).strip("-")
        return f"{self.paper.system}/table-{self.table.number}/{slug}"

    @property
    def reported(self) -> dict[str, dict[str, str]]:
        return self.table.reported(self.row)


def entries(papers: tuple[Paper, ...]) -> Iterator[Entry]:
    """All rows, in the papers' order."""
    for paper in papers:
        for table in paper.tables:
            for row in table.rows:
                yield Entry(paper, table, row)


def numbers(text: str) -> tuple[str, ...]:
    """A row's numbers as they stand in a line; `|` between parts is for the eye."""
    return tuple(text.replace("|", " ").split())
