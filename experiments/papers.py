"""Make docs/papers.md from the ledger, which lists every row of every table of the papers. A row has the recipe that
makes it, and our score if measured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diptych.systems import SYSTEMS, papers
from diptych.systems.ledger import NOT_REPORTED, LedgerRow, Paper, PaperTable, ledger_rows
from experiments.studies import page_of
from experiments.tables import Path, at_chance, leaves, markdown, shown


@dataclass(frozen=True)
class Ours:
    """Figures of a result file: the named `scores` below `path`. `about` is the title of their link."""

    about: str
    file: str
    path: Path
    scores: tuple[str, ...]


CAPTIONS, RECALLS, CHOICES = (
    ("CIDEr", "BLEU-4"),
    ("image retrieval R@1", "text retrieval R@1"),
    ("Q->A", "QA->R", "Q->AR"),
)


def _captions(system: str) -> Ours:
    return Ours("captions", "systems", ("caption", system), CAPTIONS)


def _answers(system: str) -> Ours:
    return Ours("VQA", "systems", ("vqa", system), ("accuracy",))


def _choices(system: str) -> Ours:
    return Ours("VCR", "systems", ("vcr", system), CHOICES)


def _search(system: str, when: str = "") -> Ours:
    return Ours("retrieval", "systems", (f"retrieval{when}", system), RECALLS)


def _labelled(arm: str) -> tuple[Ours, ...]:
    return (
        Ours("captions, 300 labelled scenes", "thorough", ("caption", "300 scenes", arm), CAPTIONS),
        Ours("VQA", "thorough", ("vqa", "300 scenes", arm), ("accuracy",)),
    )


def _written(arm: str) -> tuple[Ours, ...]:
    return (
        Ours("ImageBERT from scratch", "captions_as_data", (arm,), tuple(f"image retrieval R@{k}" for k in (1, 5, 10))),
    )


def _rewarded(system: str) -> Ours:
    return Ours("captions, SCST", f"scst_{system.replace('-', '_')}", ("self-critical",), CAPTIONS)


# By the id of a ledger's row: our scores with the same configuration at small size, on Storybook's test scenes.
MEASURED: Mapping[str, tuple[Ours, ...]] = {
    "unified-vlp/table-2/unified-vlp": (_captions("unified-vlp"), _answers("unified-vlp")),
    "unified-vlp/table-3/unified-vlp": (_rewarded("unified-vlp"),),
    "unified-vlp/table-4/from-scratch": _labelled("from scratch"),
    "unified-vlp/table-4/unified-vlp": _labelled("pre-trained"),
    "vl-bert/table-2/vl-bert": (_choices("vl-bert"),),
    "vl-bert/table-3/vl-bert": (_answers("vl-bert"),),
    "vl-bert/table-4/vl-bert": (Ours("referring, detected", "systems", ("referring", "vl-bert"), ("accuracy",)),),
    "image-bert/table-1/1k-imagebert": (_search("image-bert", ", zero-shot"),),
    "image-bert/table-2/1k-imagebert": (_search("image-bert"),),
    "xgpt/table-2/cc-ic-+-imlm-+-ida-+-tifg": (_captions("xgpt"),),
    "xgpt/table-5/vilbert": _written("people's captions alone"),
    "xgpt/table-5/vilbert-+-augmentation": _written("people's and written captions"),
    "tden/table-1/tden-two-stream-decoupled": (
        _captions("tden"),
        _rewarded("tden"),
        _answers("tden"),
        _search("tden"),
        _choices("tden"),
    ),
}

HEAD = """# The papers' tables

Made by `make docs` from `systems/NAME/paper.toml` and the committed results. A test (`tests/guards/test_papers.py`)
compares the numbers with the papers' texts and checks every command. Of {count} rows, {own} belong to the five systems
and {other} to other systems. {measured} rows have a score of ours.

**Relation to the published scores.** Outputs equal those of the authors' code, with weights in its layout (Unified VLP,
VL-BERT, TDEN: `tests/parity`). No published score has been reproduced, because neither the data nor the weights are
available here. If you have them, run the commands below each table. [Official checkpoints](official-checkpoints.md)
lists the commands that score released weights.

**The column "ours"** is never the paper's experiment. It has scores of small models on drawn test scenes, trained as
[results](results.md) states. They show whether the parts work together; † marks chance. Nothing has been trained here
at the papers' size and on their data. [Small models](claims.md) test the papers' claims about differences.

**Figures and numbers of the text** are below the tables of Unified VLP, the only paper that has such results. Its
Figure 3 shows captions with their CIDEr. `diptych evaluate --out FILE.json` writes this score of each caption as
`item_score`, and the report sorts images by it.

In the commands, names in capitals are yours:

- Stores, made by `diptych data` and `diptych extract` ([public sets](public-sets.md)): CC, SBU, LAIT, COCO, COCO2014
  (the images of the test server), FLICKR30K, VQA, VCR and REFCOCO+. A name may end with the kind of its regions, such
  as `COCO-X101`, because papers extract the same images with different detectors. Each paper lists its stores.
- Files: the weights BERT and UNILM with their vocabulary VOCAB, the ResNet RESNET of a detector, and the text file
  SENTENCES.

`diptych recipes --system xgpt --table 2` prints a table in the terminal.
"""


def page(found: Mapping[str, Any], of: tuple[Paper, ...] | None = None) -> str:
    """Return docs/papers.md. `found` has the saved results by name. `of` lists the papers to show (default: those of
    all systems)."""
    shown = papers() if of is None else of
    rows = list(ledger_rows(shown))
    own = sum(entry.row.system is not None for entry in rows)
    if lost := MEASURED.keys() - {entry.id for entry in rows}:
        raise ValueError(f"the ledger has no row {min(lost)}; correct its id in MEASURED (experiments/papers.py)")
    head = HEAD.format(count=len(rows), own=own, other=len(rows) - own, measured=len(MEASURED))
    return "\n".join([head, *(line for paper in shown for line in _paper(paper, found))])


def _paper(paper: Paper, found: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {SYSTEMS[paper.system].title} ({paper.cite})", "")
    if paper.costs:
        yield from (*markdown(("recipe", "the authors' run"), [(f"`{k}`", v) for k, v in paper.costs.items()]), "")
    yield from (*markdown(("stores", "their regions"), [(f"`{k}`", v) for k, v in paper.stores.items()]), "")
    for table in (*paper.tables, *paper.others):
        yield from _table(paper, table, found)


def _table(paper: Paper, table: PaperTable, found: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### {table.title}: {table.about}", "")
    rows = [LedgerRow(paper, table, row) for row in table.rows]
    heads = [f"{part.title}: {name}" if name == part.columns[0] else name for part, name in table.columns]
    measured = any(entry.id in MEASURED for entry in rows)
    lines = [
        (
            entry.row.name,
            *("–" if number == NOT_REPORTED else number for number in entry.row.numbers),
            _made_by(entry),
            *([_ours(entry, found)] if measured else []),
        )
        for entry in rows
    ]
    yield from (*markdown(("row", *heads, "made by", *(["ours"] if measured else [])), lines), "")
    notes: dict[str, list[str]] = {}
    for entry in rows:
        if entry.row.note:
            notes.setdefault(entry.row.note, []).append(entry.row.name)
    for note, names in notes.items():
        yield textwrap.fill(f"- {'; '.join(names)}: {note}", 140, subsequent_indent="  ", break_on_hyphens=False)
    if notes:
        yield ""
    yield from _commands(rows)


def _commands(rows: list[LedgerRow]) -> Iterator[str]:
    if not any(entry.row.commands for entry in rows):
        return
    yield from ("<details><summary>Commands</summary>", "", "```sh")
    for entry in rows:
        if entry.row.commands:
            yield from (f"# {entry.row.name}", *entry.row.commands)
    yield from ("```", "", "</details>", "")


def _made_by(entry: LedgerRow) -> str:
    if entry.row.system is None:
        return "another system" + (", command below" if entry.row.commands else "")
    return ", ".join(f"`{recipe}`" for recipe in entry.row.recipes) or "see below"


def _ours(entry: LedgerRow, found: Mapping[str, Any]) -> str:
    told = []
    for ours in MEASURED.get(entry.id, ()):
        known = dict(leaves(found[ours.file]["figures"]))
        figures = [(name, known[(*ours.path, name)]) for name in ours.scores]
        marked = (f"{name} {shown(leaf)}{' †' if at_chance(leaf) else ''}" for name, leaf in figures)
        told.append(f"[{ours.about}]({page_of(ours.file)}): {', '.join(marked)}")
    return "; ".join(told)
