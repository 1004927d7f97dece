"""Every row of the papers' tables runs as printed: its commands are typed, at tiny size, on stores of the right form.

A store has the printed name, such as COCO-X101; each detector (X101, TOP100, ...) has weights and classes of its own,
and VCR and REFCOCO+ have annotated boxes. BERT, UNILM, RESNET and VOCAB are seeded files of the official layouts. Only
sizes, steps and metrics that need Java differ from what is printed.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.models import resnet18
from transformers import BertConfig, BertForPreTraining

from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.systems import find_stages, papers
from diptych.systems.ledger import LedgerRow, ledger_rows
from diptych.vision.detectors.ground_truth import GroundTruth
from tests.journeys.conftest import Result
from tests.support import toy

ROWS = {row.id: row for row in ledger_rows(papers()) if row.row.commands}
IN_SUITE = {
    "unified-vlp/table-5/init-from-unilm",
    "xgpt/table-3/tiny-enc",
    "image-bert/table-3/cc",
}
COUNTS = {"train": 12, "val": 4, "test": 5, "testA": 3, "testB": 3}
STORE = re.compile(r"(?:^|=)([A-Z0-9+]+(?:-[A-Z0-9]+)*)$")
SMALL = {
    "unified-vlp": "width=32 heads=2 ffn=64 layers=1",
    "image-bert": "width=32 heads=2 ffn=64 layers=1",
    "xgpt": "width=32 heads=2 ffn=64 layers=1",
    "vl-bert": "width=32 heads=2 ffn=64 layers=1 network=resnet18 network_cells=2",
    "tden": "width=32 heads=2 ffn=64 object_layers=1 sentence_layers=1 cross_layers=1 decoder_layers=1",
}
LAYERS = {"single-stream": ("cross_layers",), "two-stream": ("object_layers", "sentence_layers", "cross_layers")}


def scenes(folder: Path) -> list[Record]:
    """Drawn scenes with annotations for all tasks, and their images."""
    from diptych_world.book import record
    from diptych_world.layout import scene
    from diptych_world.render import render

    made = []
    for number, split in enumerate(split for split, count in COUNTS.items() for _ in range(count)):
        drawn = scene(0, "train", number)
        Image.fromarray(render(drawn)).save(folder / f"{number}.png")
        of = record(drawn)
        questions = tuple(
            replace(one, key=f"{1 + number}{at:03d}") for at, one in enumerate(of.questions)
        )  # as VQA v2's
        made.append(replace(of, split=split, image=folder / f"{number}.png", questions=questions))
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands name."""
    folder = tmp_path_factory.mktemp("rows")
    records = scenes(folder)
    texts = sorted({text for one in records for text in one.captions})
    (folder / "SENTENCES").write_text("".join(f"{text}\n" for text in texts * 3))
    words = sorted({word for text in texts for word in re.findall(r"\w+", text)})
    letters = [f"{mark}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789" for mark in ("", "##")]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*letters, *words, *".,?'!-[]"])]
    (folder / "VOCAB").write_text("".join(f"{word}\n" for word in vocabulary))
    torch.manual_seed(0)
    for name in ("BERT", "UNILM"):
        config = BertConfig(
            vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
        (folder / name).mkdir()
        weights = {key: one.clone() for key, one in BertForPreTraining(config).state_dict().items()}
        save_file(weights, folder / name / "model.safetensors")
        shutil.copy(folder / "VOCAB", folder / name / "vocab.txt")
    network = {key: one for key, one in resnet18(weights=None).state_dict().items() if not key.startswith("fc.")}
    torch.save(network, folder / "RESNET")
    _add_stores(folder, records)
    return folder


def _add_stores(folder: Path, records: Sequence[Record]) -> None:
    """Write the stores that the commands name, each under its printed name."""
    kinds = dict[str, Path]()
    for seed, kind in enumerate(("X101", "TOP100", "OVER20", "OVER50")):
        detector = toy.detector()
        for weights in detector.network.parameters():
            weights.data += 0.01 * seed
        kinds[kind] = folder / f"store-{kind}"
        extract(records, detector, kinds[kind])
        (kinds[kind] / "detector").mkdir()
        detector.save(kinds[kind] / "detector")
    annotated = GroundTruth.of(records)
    kinds["VCR"] = kinds["REFCOCO+"] = folder / "store-annotated"
    extract(records, annotated, kinds["VCR"])
    kinds["REFCOCO+DETECTED"] = kinds["X101"]
    for name in {name for row in ROWS.values() for line in row.row.commands for name in named(line)}:
        if not name.endswith("-MORE"):  # `augment` writes it
            (folder / name).symlink_to(kinds.get(name) or kinds[name.rpartition("-")[2]])


def named(line: str) -> Iterator[str]:
    """Yield the names of stores in a printed command."""
    words = shlex.split(line)
    for before, word in pairwise(words):
        if before in ("--data", "--store") and (match := STORE.search(word)):
            yield match[1]


def tiny(line: str) -> list[str]:
    """Return the words of a printed command after `diptych`, with small sizes."""
    words = shlex.split(line)[1:]
    while "--extra-metrics" in words:  # they need Java
        at = words.index("--extra-metrics")
        del words[at : at + 2]
    if words[0] not in ("pretrain", "finetune"):
        return words
    name = words[1] if words[0] == "pretrain" else words[words.index("--recipe") + 1]
    recipe = find_stages(name).recipes[0]
    settings = ["training.steps=2", "training.batch=4", "training.validate_every=null", "training.average_best=0",
                f"training.micro_batch={'null' if recipe.objectives.improves else 4}"]  # fmt: skip
    if recipe.system == "vl-bert":
        settings += ["data.pixels_shorter=32", "data.pixels_longer=64", "optimizer.warmup_steps=1"]
    settings += ["optimizer.milestones=[1]"] * bool(recipe.optimizer.milestones)
    settings += ["optimizer.decay_every=1"] * bool(recipe.optimizer.decay_every)
    if "--model" not in words:
        sizes = SMALL[recipe.system].split()
        kept = next((layers for kind, layers in LAYERS.items() if kind in name), None)
        settings += [f"model.{one}" for one in sizes if kept is None or "layers" not in one or one.startswith(kept)]
        settings += ["model.similarity_width=16"] * (recipe.system == "tden")
    return [*words, *(word for one in settings for word in ("--set", one))]


DONE = dict[str, str]()  # command -> error, "" if it ran to its end


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=name, marks=[] if name in IN_SUITE else pytest.mark.thorough) for name, row in ROWS.items()],
)
def test_the_commands_of_a_row_run_to_their_end(
    row: LedgerRow, place: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for line in row.row.commands:
        if line not in DONE:
            result: Any = run(*tiny(line))
            DONE[line] = result.error if result.code else ""
        assert not DONE[line], line


def test_the_rows_in_the_suite_are_of_three_systems() -> None:
    assert ROWS.keys() >= IN_SUITE
    assert len({name.partition("/")[0] for name in IN_SUITE}) == 3
