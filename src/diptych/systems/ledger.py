r"""The ledger: every row of the tables in the papers, with the commands that reproduce it.

`systems/NAME/paper.toml` holds the tables, copied by hand. docs/papers.md and `diptych recipes --table` show them.

- A row is a list `[name, numbers, calls, note]`; empty cells at the end may be left out.
- `calls` names commands of the table `[commands]`, separated by `; `. A name may be followed by values for the {words}
  of its command, such as `run=xgpt/text`.
- A command consists of shell lines, or of further calls. `vl-bert:vqa` calls the command `vqa` of VL-BERT's paper.
- {word} is replaced by its value. {word:run} is replaced by the run folder of the recipe in the value, such as
  runs/xgpt-text. If a call gives no value, its caller's value is used, else the value in `[words]` or WORDS.
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
# {abbreviation in a table's commands: text that replaces it}. In these texts, names in capitals are placeholders for
# the user's files or stores, such as BERT for a file of weights.
WORDS = {
    "NOTHING": "--set init=none --set data.vocabulary=VOCAB",
    # BERT means bert-base-uncased, or bert-base-cased for Unified VLP.
    "BERT": "--set init=BERT --set data.vocabulary=VOCAB",
    "UNILM": "--set init=UNILM --set data.vocabulary=VOCAB",
    "FROM_NOTHING": "--init none --vocab VOCAB",
    "FROM_BERT": "--init BERT --vocab VOCAB",
    "FROM_UNILM": "--init UNILM --vocab VOCAB",
    "METRICS": "--extra-metrics METEOR --extra-metrics SPICE",
    "model": "",  # replaced by the recipe whose model the run starts from
    "begin": "",  # replaced by the options of a run that starts without a model
}
_RECIPE = re.compile(r"diptych (?:pretrain (\S+)|finetune .*?--recipe (\S+))")


class TablePart(BaseModel):
    """A group of columns of a table: the scores of one task on one split."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str  # data set and split of the table, such as COCO test
    columns: tuple[str, ...]  # names of the columns, as the paper writes them
    task: str | None = None  # name of the task that is scored; None: the columns are not scores
    # {split: the task's score in each column; "": another split's column}. Only splits that `evaluate` can score.
    scored: dict[str, tuple[str, ...]] = {}
    beams: int | None = None  # the paper's number of beams on these splits; None: that of the recipe


class WrittenTable(BaseModel):
    """A table as written in paper.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    parts: tuple[str, ...] = ()  # keys of the section `[parts]`; empty for a table of texts
    rows: tuple[Annotated[tuple[str, ...], Field(min_length=1, max_length=4)], ...]
    spaced: bool = False  # True: the cells of a row contain spaces, so ` | ` separates the cells
    systems: dict[str, str] = {}  # {name of a row: system}; default: the paper's system for rows with commands


@dataclass(frozen=True)
class PaperRow:
    """A row of a table: the numbers that the paper reports, and the commands to reproduce it."""

    name: str  # name of the row, as the paper writes it
    numbers: tuple[str, ...]  # numbers as printed, one per column; `-` if the paper does not report it
    commands: tuple[str, ...] = ()  # commands of the row, in order; empty for a system that Diptych does not have
    system: str | None = None  # system of the row; None: Diptych does not have it
    note: str = ""  # remark on the row

    @property
    def recipes(self) -> tuple[str, ...]:
        """Return the names of the recipes in the commands, without duplicates."""
        return tuple(dict.fromkeys(name for name, _ in self.trained))

    @property
    def trained(self) -> tuple[tuple[str, str], ...]:
        """Return the recipe and the line of each command that trains."""
        matches = ((_RECIPE.match(line), line) for line in dict.fromkeys(self.commands))
        return tuple((match[1] or match[2], line) for match, line in matches if match)


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper. Tables of words (comparisons, examples) have no parts. A figure is a table too."""

    number: int  # 0: a figure, or numbers of the text
    title: str  # such as Table 2
    about: str
    rows: tuple[PaperRow, ...]
    parts: tuple[TablePart, ...] = ()

    @property
    def columns(self) -> tuple[tuple[TablePart, str], ...]:
        """Return the part and the name of each column."""
        return tuple((part, column) for part in self.parts for column in part.columns)


class Paper(BaseModel):
    """The tables of one paper, with complete commands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str
    cite: str
    parts: dict[str, TablePart] = {}
    words: dict[str, str] = {}
    commands: dict[str, str] = {}
    # {suffix of a store's name: origin of its regions}. The origin names the detector, the selection rule and the
    # section of the paper.
    stores: dict[str, str] = {}
    costs: dict[str, str] = {}  # {recipe: cost of the authors' run, as their paper reports it}
    files: str = ""  # the authors' code and files: where they are, and when the address was last known to answer
    written: dict[int, WrittenTable] = Field(alias="tables")  # {number of a table: table}
    written_others: dict[str, WrittenTable] = Field(
        {}, alias="others"
    )  # {a figure, or the part of the text that has numbers: its rows}

    @cached_property
    def tables(self) -> tuple[PaperTable, ...]:
        """Return all tables. Raises KeyError if an abbreviation, a part of a table or a command is not defined in the
        file."""
        return tuple(self._table(number, f"Table {number}", table) for number, table in self.written.items())

    @cached_property
    def others(self) -> tuple[PaperTable, ...]:
        """Return figures and numbers of the text, in the form of tables. Raises KeyError like `tables`."""
        return tuple(self._table(0, title, table) for title, table in self.written_others.items())

    def expand(self, calls: str, given: Mapping[str, str]) -> Iterator[str]:
        """Yield the command lines of `calls`. `given`: values of the {words}."""
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

    def _table(self, number: int, title: str, table: WrittenTable) -> PaperTable:
        rows = []
        for name, cells, calls, note in ((*row, *[""] * (4 - len(row))) for row in table.rows):
            commands = tuple(self.expand(calls, self._values()))
            system = table.systems.get(name, self.system if commands else "") or None
            values = tuple(cells.split(" | ")) if table.spaced else numbers(cells)
            rows.append(PaperRow(name, values, commands, system, note.format_map(self._values())))
        return PaperTable(number, title, table.about, tuple(rows), tuple(self.parts[part] for part in table.parts))


class _Word(str):
    """A value of a {word}.

    `{word:run}` gives the run folder of the recipe, and `{word:start}` the options to start from its model.

    Rows that share a pre-training therefore also share its run folder.
    """

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        if spec == "start":
            return f"--model {self}" if self else "--from-scratch"
        return "runs/" + self.replace("/", "-") if spec == "run" else str(self)


@cache
def read_paper(system: str, path: Path) -> Paper:
    """Read the paper.toml of a system. Raises RecipeError if it is invalid."""
    try:
        paper = Paper.model_validate({"system": system, **tomllib.loads(text_of(path))})
        paper.tables, paper.others  # noqa: B018  # expanded here, so that a missing name is reported with its file
    except ValueError as error:
        raise RecipeError(f"{path}: {first_problem(error)}") from error
    except KeyError as error:
        problem = f"no word, part or command {error}; add it to [words], [parts] or [commands]"
        raise RecipeError(f"{path}: {problem}") from error
    return paper


def paper_of(system: str) -> Paper:
    """Return the paper of a system. Raises RecipeError if Diptych does not have the tables of this paper."""
    path = SYSTEMS[system].tables
    if path is None:
        raise RecipeError(f"Diptych has no tables of {system}'s paper")
    return read_paper(system, path)


def papers() -> tuple[Paper, ...]:
    """Return the papers of all systems that have tables, sorted by year."""
    by_year = sorted(SYSTEMS.values(), key=lambda system: system.paper[:2])
    return tuple(paper_of(system.name) for system in by_year if system.tables is not None)


@dataclass(frozen=True)
class LedgerRow:
    """A row, with the paper and the table that contain it."""

    paper: Paper
    table: PaperTable
    row: PaperRow

    @property
    def id(self) -> str:
        """Return an id such as `xgpt/table-2/cc-ic-imlm`."""
        return f"{self.paper.system}/{self.table.title.lower().replace(' ', '-')}/{_slug(self.row.name)}"

    def scored(self, task: str, split: str, data: str = "") -> dict[str, tuple[TablePart, str, str]]:
        """Return the part, column and printed number with which each score of `task` on `split` can be compared.

        `data`: how the part's id begins, such as `coco`, if the table has several data sets. Raises RecipeError if the
        row has no such number, or two of one score.
        """
        chosen: dict[str, tuple[TablePart, str, str]] = {}
        parts: dict[str, None] = {}  # the parts that can be scored, for the errors
        for (part, column), cell in zip(self.table.columns, self.row.numbers, strict=True):
            number = cell.partition("/")[0]  # the second number of a cell is an evaluation server's
            known = {of: names[part.columns.index(column)] for of, names in part.scored.items()}
            if number == NOT_REPORTED:
                continue
            parts |= {f"{self.id}/{_slug(part.title)} ({part.task}, --split {of})": None for of in known if known[of]}
            if part.task == task and (name := known.get(split)) and _slug(part.title).startswith(data):
                if name in chosen:
                    raise RecipeError(f"{self.id} has two numbers of {name}; choose one of: {', '.join(parts)}")
                chosen[name] = (part, column, number)
        if not chosen:
            raise RecipeError(f"{self.id} has no {task} number on split {split}; known: {', '.join(parts) or 'none'}")
        return chosen

    @property
    def reported(self) -> dict[str, dict[str, str]]:
        """Return the numbers that the paper reports, by part title and column name."""
        numbers: dict[str, dict[str, str]] = {}
        for (part, column), number in zip(self.table.columns, self.row.numbers, strict=True):
            if number != NOT_REPORTED:
                numbers.setdefault(part.title, {})[column] = number
        return numbers


def ledger_rows(papers: tuple[Paper, ...]) -> Iterator[LedgerRow]:
    """Yield all rows of all tables, in the order of the papers."""
    for paper in papers:
        for table in (*paper.tables, *paper.others):
            yield from (LedgerRow(paper, table, row) for row in table.rows)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9+]+", "-", title.lower().replace("*", " star")).strip("-")


def numbers(text: str) -> tuple[str, ...]:
    """Split the numbers of a row at spaces. A `|` between parts is ignored."""
    return tuple(text.replace("|", " ").split())
