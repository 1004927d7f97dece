"""Make docs/papers.md from the ledger, which lists every row of every table of the papers. A row has the recipe that
makes it, and our score if measured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diptych.systems import SYSTEMS, papers
from diptych.systems.catalogue import row_cost
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

# Images of each set, as `diptych data` and the papers state them (LAIT: those that were used).
IMAGES = {
    "CC": 3_334_173, "SBU": 1_000_000, "LAIT": 2_000_000, "COCO": 123_287, "COCO2014": 40_775, "VQA": 204_721,
    "FLICKR30K": 31_014, "VCR": 110_000,
}  # fmt: skip
# Names of stores of features. VL-BERT's have only images, and the copy with written captions is not counted again.
FEATURES = re.compile(r"-(?:X101|OVER20|TOP100)$")
REGIONS_KB = 730  # of an image with 100 regions, their 2,048 features and 1,601 classes (docs/scale.md: 2.41 TB)

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

**What a row costs** is above the tables of each paper. Hours are of one H100 at the rates of
[one GPU](results/gpu.md), in inverse proportion to the number of positions. These are rates of pre-training steps on
stored features. TDEN's rate is of two passes, so one pass takes less. XGPT, training on pixels and SCST were not
measured. Validation, decoding, extraction and waiting for the disk are not included. Mismatched pairs and choices count
as samples. On another GPU, multiply by the ratio of the peaks in bf16, which is an estimate: A100 3.2, H200 1. A V100
has no bf16. Stores have at most 730 kB for each image, if it has 100 regions ([scale](scale.md)). The images
themselves, which VL-BERT reads, are not counted.

**Addresses** are those in the authors' papers and repositories. They may no longer answer.
[What cannot be known](unknowable.md) lists what the papers leave open, and their contradictions.

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
    yield from _costs(paper)
    yield from (*markdown(("stores", "their regions"), [(f"`{k}`", v) for k, v in paper.stores.items()]), "")
    for table in (*paper.tables, *paper.others):
        yield from _table(paper, table, found)


def _costs(paper: Paper) -> Iterator[str]:
    """Yield the table of what the paper's own rows cost and need."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for entry in ledger_rows((paper,)):
        if entry.row.recipes:
            cost, text = row_cost(entry), " ".join(entry.row.commands)
            stores = dict.fromkeys(re.findall(r"--data (?:\w+=)?([A-Z][\w+-]*)", text))
            disk = (
                sum(IMAGES[store.partition("-")[0]] * REGIONS_KB * 1e3 for store in stores if FEATURES.search(store))
                / 1e12
            )
            needs = ", ".join([*stores, *dict.fromkeys(re.findall(r"\b(?:BERT|UNILM|RESNET|VOCAB|SENTENCES)\b", text))])
            hours = f"{cost.hours:.1f}" if cost.hours else "–"
            left = ", ".join(f"`{name}`" for name in cost.unmeasured)
            numbers = (
                f"{cost.samples / 1e6:.1f}",
                str(cost.positions),
                hours,
                left,
                f"{disk:.2f}" if disk else "–",
                needs,
            )
            lines.setdefault(numbers, []).append(f"{entry.table.title.removeprefix('Table ')}: {entry.row.name}")
    heads = "table: row", "samples, M", "positions", "hours, one H100", "hours without", "stores, TB", "needs"
    yield from (*markdown(heads, [("; ".join(names), *numbers) for numbers, names in lines.items()]), "")
    if paper.files:
        yield from (f"*Files of the authors.* {paper.files}", "")


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
