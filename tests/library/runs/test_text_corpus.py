"""Text without pictures: a run that learns from it too, and what is refused before a run."""

from pathlib import Path

import pytest
from rich.console import Console

from diptych.data.store.store import Store, StoreWriter
from diptych.runs.run import run
from diptych.runtime.errors import RecipeError
from diptych.systems import find_recipe
from tests.library.data.conftest import CONTRACT, record
from tests.support.learning import learner_of
from tests.support.scenes import TINY

SETTINGS = [
    *TINY, "training.batch=4", "training.steps=2", "objectives.region_classes=0", "objectives.rate=0.9",
    "training.precision=fp32", "training.log_every=1",
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with StoreWriter(tmp_path / "store", CONTRACT) as writer:
        for number in range(8):
            writer.add(record(number))
    return Store(tmp_path / "store")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "books.txt"
    path.write_text("the kite flies\n" * 9)
    return path


def test_a_run_learns_from_text_too(store: Store, text: Path, tmp_path: Path) -> None:
    recipe = find_recipe("vl-bert/small/text-too", [*SETTINGS, f"data.text={text}"])
    done = run(recipe, store, tmp_path / "run", console=Console(quiet=True))
    assert done.model.tokens.vocabulary.unknown not in done.model.tokens.encode("kite")  # its words are known
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "masked_text" in metrics
    assert "masked_language" in metrics


def test_what_cannot_read_text_alone_is_refused(store: Store, text: Path, tmp_path: Path) -> None:
    def refused(match: str, name: str, *changes: str) -> None:
        with pytest.raises(RecipeError, match=match):
            learner_of(tmp_path / "run", find_recipe(name, changes), store)

    named = f"data.text={text}"
    refused("text_alone needs texts; pass --set data.text=FILE", "vl-bert/small/text-too")
    refused("data.text is for pre-training, not for vqa", "vl-bert/small/vqa", named)
    refused(
        "unified-vlp cannot read text without an image; leave out data.text, or use .*vl-bert",
        "unified-vlp/small/pretrain",
        named,
    )
    refused(
        "has 93 positions for words, but data.text_words=94 needs 95",
        "vl-bert/small/text-too",
        named,
        "data.text_words=94",
    )
