"""A captioner rewarded, drawn from and used to write more captions, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from diptych.loading.store import Store
from tests.journeys.conftest import Told, tiny


def test_rewarded_drawn_from_and_augmented(with_eyes: Path, run: Callable[..., Told], tmp_path: Path) -> None:
    store = with_eyes.parent / "store"
    few = tiny(
        **{"training.steps": 2, "training.validate_every": "null", "model.max_regions": 8, "model.positions": 40}
    )
    arguments = ("finetune", "caption", "--data", store, "--model", with_eyes, "--out", tmp_path / "scst")
    told = run(*arguments, "--recipe", "unified-vlp/small/scst", *few, "--set", "optimizer.lr=0.01")
    assert told.code == 0, told.error
    assert "warning: learning rate 0.01 is 100 times that of unified-vlp/small/scst" in " ".join(told.error.split())
    assert (tmp_path / "scst" / "frequencies.json").is_file()

    photo = with_eyes.parent / "photos" / "000.jpg"
    drawn = ("caption", photo, "--model", tmp_path / "scst", "--sample", "--captions", 3, "--json")
    first, same, other = (json.loads(run(*drawn, "--seed", seed).said) for seed in (1, 1, 2))
    assert first == same != other
    assert len(first["others"]) == 2
    assert all(one["score"] <= first["score"] < 0 for one in first["others"])
    blocked = ("--no-repeat-ngram", 1, "--min-words", 5, "--max-words", 8, "--beams", 4, "--length-penalty", 0.7)
    said = run("caption", photo, "--model", tmp_path / "scst", "--captions", 2, *blocked)
    assert said.code == 0
    assert len(said.said.splitlines()) == 2

    told = run("augment", store, tmp_path / "more", "--model", tmp_path / "scst", "--captions", 2)
    assert told.code == 0, told.error
    more = Store(tmp_path / "more")
    written = [one for index in range(len(more)) for one in more.words(index).generated]
    assert f"{len(written)} new captions for {more.splits['train']} pictures" in told.said
    assert written
    told = run("finetune", "caption", "--data", tmp_path / "more", "--model", with_eyes, "--out", tmp_path / "b", *few)
    assert told.code == 0, told.error
    again = run("augment", store, tmp_path / "more", "--model", with_eyes, "--captions", 2)
    assert again.code == 2
    assert "holds another augmentation: by:" in again.error
