"""A captioner rewarded, drawn from and used to write more captions, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from diptych.data.store.store import Store
from tests.journeys.conftest import Result, tiny


def test_rewarded_drawn_from_and_augmented(with_detector: Path, run: Callable[..., Result], tmp_path: Path) -> None:
    store = with_detector.parent / "store"
    few = tiny(
        **{"training.steps": 2, "training.validate_every": "null", "model.max_regions": 8, "model.positions": 40}
    )
    arguments = ("finetune", "caption", "--data", store, "--model", with_detector, "--out", tmp_path / "scst")
    result = run(*arguments, "--recipe", "unified-vlp/small/scst", *few, "--set", "optimizer.lr=0.01")
    assert result.code == 0, result.error
    assert "warning: learning rate 0.01 is 100 times that of unified-vlp/small/scst" in " ".join(result.error.split())
    assert (tmp_path / "scst" / "frequencies.json").is_file()

    photo = with_detector.parent / "photos" / "000.jpg"
    drawn = ("caption", photo, "--model", tmp_path / "scst", "--temperature", 1, "--num-captions", 3, "--json")
    first, same, other = (json.loads(run(*drawn, "--seed", seed).out) for seed in (1, 1, 2))
    assert first == same != other
    assert len(first["others"]) == 2
    assert all(one["score"] <= first["score"] < 0 for one in first["others"])
    blocked = ("--no-repeat-ngram", 1, "--min-words", 5, "--max-words", 8, "--beams", 4, "--length-penalty", 0.7)
    said = run("caption", photo, "--model", tmp_path / "scst", "--num-captions", 2, *blocked)
    assert said.code == 0
    assert len(said.out.splitlines()) == 2

    result = run("augment", store, "--out", tmp_path / "more", "--model", tmp_path / "scst", "--num-captions", 2)
    assert result.code == 0, result.error
    more = Store(tmp_path / "more")
    written = [one for index in range(len(more)) for one in more.words(index).generated]
    assert f"{len(written)} new captions for {more.splits['train']} images" in result.out
    assert written
    result = run(
        "finetune", "caption", "--data", tmp_path / "more", "--model", with_detector, "--out", tmp_path / "b", *few
    )
    assert result.code == 0, result.error
    again = run("augment", store, "--out", tmp_path / "more", "--model", with_detector, "--num-captions", 2)
    assert again.code == 2
    assert "holds another augmentation:\n  by:" in again.error
