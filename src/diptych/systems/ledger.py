r"""The ledger: every row of the papers' tables, with the commands that reproduce it.

`systems/NAME/paper.toml` holds the tables, copied by hand. docs/papers.md and `diptych recipes` show them.

- A row is `[name, numbers, calls, note]`; empty cells at its end are left out.
- `calls` names entries of the table `[commands]`, separated by `; `. Each name is followed by values for the {words} of
  its command, such as `run=xgpt/text`.
- A command consists of lines to type, or of further calls. `vl-bert:vqa` calls a command of another system's paper.
- {word} is replaced by its value. {word:run} is replaced by the run folder of the recipe that the value names. Values
  come from the call, then from its callers, then from `[words]`, then from WORDS.
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
    "model": "",  # model that a run starts from
    "begin": "",  # options of a run that starts from no model
}
_RECIPE = re.compile(r"diptych (?:pretrain (\S+)|finetune .*?--recipe (\S+))")


class TablePart(BaseModel):
    """Columns of a table that are scores of one task on one split."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str  # data and split, such as COCO test
    columns: tuple[str, ...]  # as the paper names them
    task: str | None = None  # the task that is scored; None: the columns are no scores


class WrittenTable(BaseModel):
    """A table as it is in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    parts: tuple[str, ...] = ()  # keys of `[parts]`; none for tables in words
    rows: tuple[Annotated[tuple[str, ...], Field(min_length=1, max_length=4)], ...]
    spaced: bool = False  # True if numbers contain spaces and are separated by ` | `
    systems: dict[str, str] = {}  # by name of a row; default: the paper's own system if the row has commands


@dataclass(frozen=True)
class PaperRow:
    """One row, with the numbers that the paper reports and the commands to reproduce it."""

    name: str  # as in the paper
    numbers: tuple[str, ...]  # as printed, one per column; `-` if the paper reports none
    commands: tuple[str, ...] = ()  # in order; none for other systems
    system: str | None = None  # None: no system of Diptych
    note: str = ""  # what a reader needs to know in addition to the commands

    @property
    def recipes(self) -> tuple[str, ...]:
        """Recipes that the commands train by, each once."""
        matches = filter(None, map(_RECIPE.match, self.commands))
        return tuple(dict.fromkeys(match[1] or match[2] for match in matches))


@dataclass(frozen=True)
class PaperTable:
    """One table; tables in words (comparisons, examples) have no parts."""

    number: int
    about: str
    rows: tuple[PaperRow, ...]
    parts: tuple[TablePart, ...] = ()

    @property
    def columns(self) -> tuple[tuple[TablePart, str], ...]:
        """Each column's part and name."""
        return tuple((part, column) for part in self.parts for column in part.columns)


class Paper(BaseModel):
    """The tables of one paper, with the commands in full."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str
    cite: str
    parts: dict[str, TablePart] = {}
    words: dict[str, str] = {}
    commands: dict[str, str] = {}
    stores: dict[str, str] = {}  # regions by the end of a store's name: the detector, its rule, the paper's section
    costs: dict[str, str] = {}  # cost of the authors' run of a recipe, as reported in the paper
    written: dict[int, WrittenTable] = Field(alias="tables")  # by number

    @cached_property
    def tables(self) -> tuple[PaperTable, ...]:
        """All tables. Raises KeyError for a word, part or command that the file lacks."""
        return tuple(self._table(number, table) for number, table in self.written.items())

    def expand(self, calls: str, given: Mapping[str, str]) -> Iterator[str]:
        """Yield the command lines of some calls; {words} get the values that are `given`."""
        for line in re.split(r"\n|; ", calls.strip()):
            if line.startswith("diptych "):
                yield " ".join(line.format_map(given).split())
            elif line:
                name, *words = line.split()
                own = {key: _Word(value.format_map(given)) for key, _, value in (word.partition("=") for word in words)}
                system, _, name = name.rpartition(":")
                paper = paper_of(system) if system else self
                yield from paper.expand(paper.commands[name], {**(paper._values() if system else given), **own})

    def _values(self) -> dict[str, str]:
        return {name: _Word(word) for name, word in (WORDS | self.words).items()}

    def _table(self, number: int, table: WrittenTable) -> PaperTable:
        rows = []
        for name, cells, calls, note in ((*row, *[""] * (4 - len(row))) for row in table.rows):
            commands = tuple(self.expand(calls, self._values()))
            system = table.systems.get(name, self.system if commands else "") or None
            values = tuple(cells.split(" | ")) if table.spaced else numbers(cells)
            rows.append(PaperRow(name, values, commands, system, note.format_map(self._values())))
        return PaperTable(number, table.about, tuple(rows), tuple(self.parts[part] for part in table.parts))


class _Word(str):
    """A value whose `{word:run}` is the folder of a recipe's run, and `{word:start}` the options to start from it.

    Rows that share a pre-training share its folder.
    """

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "start":
            return f"--model {self}" if self else "--from-scratch"
        return "runs/" + self.replace("/", "-") if spec == "run" else str(self)


@cache
def read_paper(system: str, path: Path) -> Paper:
    """Read a paper's file. Raises RecipeError if it is invalid."""
    try:
        paper = Paper.model_validate({"system": system, **tomllib.loads(text_of(path))})
        paper.tables  # noqa: B018  # expanded here, so that a missing name is reported with its file
    except ValueError as error:
        raise RecipeError(f"{path}: {first_problem(error)}") from error
    except KeyError as error:
        problem = f"no word, part or command {error}; add it to [words], [parts] or [commands]"
        raise RecipeError(f"{path}: {problem}") from error
    return paper


def paper_of(system: str) -> Paper:
    """Return the paper of a system. Raises RecipeError if the system has no tables."""
    path = SYSTEMS[system].tables
    if path is None:
        raise RecipeError(f"Diptych has no tables of {system}'s paper")
    return read_paper(system, path)


def papers() -> tuple[Paper, ...]:
    """Return the papers of all systems that have tables, by year."""
    by_year = sorted(SYSTEMS.values(), key=lambda system: system.paper[:2])
    return tuple(paper_of(system.name) for system in by_year if system.tables is not None)


@dataclass(frozen=True)
class LedgerRow:
    """A row with its paper and its table."""

    paper: Paper
    table: PaperTable
    row: PaperRow

    @property
    def id(self) -> str:
        """An id such as `xgpt/table-2/cc-ic-imlm`."""
        slug = re.sub(r"[^a-z0-9+]+", "-", self.row.name.lower().replace("*", " star")).strip("-")
        return f"{self.paper.system}/table-{self.table.number}/{slug}"

    @property
    def reported(self) -> dict[str, dict[str, str]]:
        """The numbers that the paper reports, by title of the part and name of the column."""
        numbers: dict[str, dict[str, str]] = {}
        for (part, column), number in zip(self.table.columns, self.row.numbers, strict=True):
            if number != NOT_REPORTED:
                numbers.setdefault(part.title, {})[column] = number
        return numbers


def ledger_rows(papers: tuple[Paper, ...]) -> Iterator[LedgerRow]:
    """Yield all rows, in the papers' order."""
    for paper in papers:
        for table in paper.tables:
            yield from (LedgerRow(paper, table, row) for row in table.rows)


def numbers(text: str) -> tuple[str, ...]:
    """Split a row's numbers; `|` between parts is ignored."""
    return tuple(text.replace("|", " ").split())
