"""The ledger: what a table of a paper is made of, and the rows that can be looked up.

`systems/NAME/paper.toml` holds the tables, copied by hand once; docs/papers.md and `diptych recipes` show them. A row
stands there as `[name, numbers, what makes it, note]`, what is empty at its end left out. What makes it: names of
`[commands]`, one after the other by `;`, each with what its {words} are (`run=xgpt/text`). A command is lines to type,
or other names, of another system's paper as `vl-bert:vqa`. {word} is as it stands, {word:run} the folder of the run of
such a recipe. Words are those of the call, of those that called it, of `[words]`, and WORDS.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from diptych.runtime.configs import first_problem
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import text_of
from diptych.systems.system import SYSTEMS

NOT_REPORTED = "-"
# Names in capitals are the user's: stores made by `diptych extract`, files of weights.
WORDS = {
    "NOTHING": "--set init=none",
    "BERT": "--set init=BERT --set data.vocabulary=VOCAB",  # bert-base-uncased, or -cased for Unified VLP
    "UNILM": "--set init=UNILM --set data.vocabulary=VOCAB",
    "FROM_NOTHING": "--init none",
    "FROM_BERT": "--init BERT --vocab VOCAB",
    "FROM_UNILM": "--init UNILM --vocab VOCAB",
    "METRICS": "--extra-metrics METEOR --extra-metrics SPICE",
    "model": "none",  # that a run starts from
    "begin": "",  # options of a run that starts from no model
}
_RECIPE = re.compile(r"diptych (?:pretrain (\S+)|finetune .*?--recipe (\S+))")


class TablePart(BaseModel):
    """Columns of a table that are scores of one task on one split."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    title: str
    """Data and split, such as COCO test."""
    columns: tuple[str, ...]
    """As the paper names them."""
    task: str | None = None
    """Task of Diptych that is scored; None: nothing is."""


class WrittenTable(BaseModel):
    """A table as the file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    number: int
    about: str
    parts: tuple[str, ...] = ()
    """Keys of `[parts]`; tables without numbers (comparisons in words, examples) have none."""
    rows: tuple[Annotated[tuple[str, ...], Field(min_length=1, max_length=4)], ...]
    spaced: bool = False
    """Whether numbers have spaces in them, so that `|` alone parts them; else it is for the eye."""
    systems: dict[str, str] = {}
    """Systems of rows, by name: others are the paper's own if commands make them, and else no system's."""


class Written(BaseModel):
    """A paper as its file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    cite: str
    parts: dict[str, TablePart] = {}
    words: dict[str, str] = {}
    commands: dict[str, str] = {}
    costs: dict[str, str] = {}
    """What the authors' own run of a recipe took, as the paper says it."""
    tables: tuple[WrittenTable, ...]


@dataclass(frozen=True)
class PaperRow:
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
class PaperTable:
    """One table; tables without numbers (comparisons in words, examples) have no parts."""

    number: int
    about: str
    rows: tuple[PaperRow, ...]
    parts: tuple[TablePart, ...] = ()

    @property
    def columns(self) -> tuple[tuple[TablePart, str], ...]:
        return tuple((part, column) for part in self.parts for column in part.columns)

    def reported(self, row: PaperRow) -> dict[str, dict[str, str]]:
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
    written: Written

    @property
    def cite(self) -> str:
        return self.written.cite

    @property
    def costs(self) -> Mapping[str, str]:
        return self.written.costs

    @cached_property
    def tables(self) -> tuple[PaperTable, ...]:
        return tuple(map(self._table, self.written.tables))

    def commands(self, called: str, given: Mapping[str, str]) -> Iterator[str]:
        """What is to be typed for some names of commands."""
        for line in re.split(r"\n|; ", called.strip()):
            if not line or line.startswith("diptych "):
                yield from [" ".join(line.format_map(given).split())] if line else []
                continue
            name, *words = line.split()
            own = {key: _Word(value.format_map(given)) for key, _, value in (word.partition("=") for word in words)}
            system, _, name = name.rpartition(":")
            paper = paper_of(system) if system else self
            yield from paper.commands(paper.written.commands[name], {**(paper.words if system else given), **own})

    @property
    def words(self) -> dict[str, str]:
        return {name: _Word(word) for name, word in (WORDS | self.written.words).items()}

    def _table(self, table: WrittenTable) -> PaperTable:
        rows = []
        for name, cells, made, note in ((*row, *[""] * (4 - len(row))) for row in table.rows):
            commands = tuple(self.commands(made, self.words))
            system = table.systems.get(name, self.system if commands else "") or None
            cut = tuple(re.split(r" \| ", cells)) if table.spaced else numbers(cells)
            rows.append(PaperRow(name, cut, commands, system, note.format_map(self.words)))
        return PaperTable(
            table.number, table.about, tuple(rows), tuple(self.written.parts[part] for part in table.parts)
        )


class _Word(str):
    """`{word:run}` is the folder of a recipe's run: rows that share a pre-training share its folder."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "runs/" + self.replace("/", "-") if spec == "run" else str(self)


@cache
def read_paper(system: str, path: Path) -> Paper:
    """Raises RecipeError where the file is no such paper."""
    try:
        paper = Paper(system, Written.model_validate(tomllib.loads(text_of(path))))
        paper.tables  # noqa: B018  # expanded, so that a name which is not there is found here
    except ValueError as error:
        raise RecipeError(f"{path}: {first_problem(error)}") from error
    except KeyError as error:
        raise RecipeError(
            f"{path}: no word, part or command {error}; add it to [words], [parts] or [commands]"
        ) from error
    return paper


def paper_of(system: str) -> Paper:
    """The paper of a system that has tables."""
    path = SYSTEMS[system].tables
    if path is None:
        raise RecipeError(f"no tables of the paper of {system} are kept")
    return read_paper(system, path)


def papers() -> tuple[Paper, ...]:
    """The tables of the systems' papers, by year."""
    by_year = sorted(SYSTEMS.values(), key=lambda system: system.paper[:2])
    return tuple(paper_of(system.name) for system in by_year if system.tables is not None)


@dataclass(frozen=True)
class LedgerRow:
    """A row with the paper and the table that it stands in."""

    paper: Paper
    table: PaperTable
    row: PaperRow

    @property
    def id(self) -> str:
        """Such as `xgpt/table-2/cc-ic-imlm`."""
        slug = re.sub(r"[^a-z0-9+]+", "-", self.row.name.lower().replace("*", " star")).strip("-")
        return f"{self.paper.system}/table-{self.table.number}/{slug}"

    @property
    def reported(self) -> dict[str, dict[str, str]]:
        return self.table.reported(self.row)


def entries(papers: tuple[Paper, ...]) -> Iterator[LedgerRow]:
    """All rows, in the papers' order."""
    for paper in papers:
        for table in paper.tables:
            for row in table.rows:
                yield LedgerRow(paper, table, row)


def numbers(text: str) -> tuple[str, ...]:
    """A row's numbers as they stand in a line; `|` between parts is for the eye."""
    return tuple(text.replace("|", " ").split())
