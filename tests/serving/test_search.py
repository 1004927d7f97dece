"""A folder of pictures ranked by a text, and its contact sheet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from diptych.errors import DataError, ServingError
from diptych.loading.store import Store
from diptych.loading.tokens import Tokens
from diptych.models import MODELS
from diptych.recipes.folder import Architecture, ModelFolder
from diptych.serving import Predictor
from diptych.serving.contact_sheet import write_sheet
from diptych.vision.selection import Selection
from diptych.vision.small_detector import DetectorShape, SmallDetector
from diptych.vision.storybook_detector import StorybookDetector

COLOURS = ("red", "green", "blue", "white", "black")
TOKENS = Tokens.train(["a red kite over a beach"], 60)


@pytest.fixture
def eyes() -> StorybookDetector:
    torch.manual_seed(0)
    shape = DetectorShape(("dog", "bird"), side=32, feature_size=16, widths=(8, 8, 8))
    return StorybookDetector(SmallDetector(shape), Selection(most=4, least=2))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Five that can be read, one cut short, one that is a text."""
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    for number, colour in enumerate(COLOURS):
        place = folder / "below" if number % 2 else folder
        image = Image.effect_noise((48, 40), 60 + number).convert("RGB")
        image.paste(colour, (4, 4, 20 + number, 30))
        image.save(place / f"{colour}.png")
    (folder / "cut.png").write_bytes((folder / "red.png").read_bytes()[:300])
    (folder / "text.jpg").write_text("no picture")
    (folder / "notes.txt").write_text("not even called one")
    return folder


def opened(folder: Path, eyes: StorybookDetector, system: str = "image-bert", head: str = "match") -> Predictor:
    torch.manual_seed(1)
    sizes = {"width": 32, "heads": 2, "ffn": 64, "positions": 24, "init_std": 0.3}
    sizes |= {"layers": 1} if system == "image-bert" else {"object_layers": 1, "sentence_layers": 1, "cross_layers": 1}
    config = MODELS[system].config(
        vocabulary=TOKENS.vocabulary, feature_size=16, classes=len(eyes.contract.class_names), **sizes
    )
    architecture = Architecture(system=system, config=config, heads=(head, "word"))
    model = architecture.build().eval()
    eyes.save(folder / "detector")
    return Predictor(
        ModelFolder(folder / "model", model, architecture, TOKENS, eyes.contract, eyes=folder / "detector")
    )


@pytest.mark.parametrize(("system", "head"), [("image-bert", "match"), ("tden", "similarity")])
def test_the_order_is_that_of_the_scores_one_by_one(tmp_path, photos, eyes, system, head):
    predictor, cache = opened(tmp_path, eyes, system, head), tmp_path / "cache"
    found = predictor.search("a red kite", photos, cache)
    assert {hit.picture.name for hit in found.hits} == {f"{colour}.png" for colour in COLOURS}
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 5
    for hit in found.hits:
        alone = tmp_path / f"alone-{hit.picture.stem}"
        alone.mkdir()
        (alone / hit.picture.name).write_bytes(hit.picture.read_bytes())
        (again,) = predictor.search("a red kite", alone, tmp_path / f"cache-{hit.picture.stem}").hits
        assert again.score == pytest.approx(hit.score, abs=2e-3)  # features are kept in half precision either way
    assert {path.name for path in found.refused} == {"cut.png", "text.jpg"}
    assert all(found.refused.values())


def test_what_was_seen_is_kept_until_the_file_changes(tmp_path, photos, eyes, monkeypatch):
    predictor, cache = opened(tmp_path, eyes), tmp_path / "cache"
    first = predictor.search("a red kite", photos, cache)
    looked: list[int] = []
    see = type(predictor.eyes).see
    monkeypatch.setattr(type(predictor.eyes), "see", lambda self, p, r: looked.extend([1] * len(p)) or see(self, p, r))
    again = predictor.search("a red kite", photos, cache)
    assert again.hits == first.hits
    assert again.refused.keys() == first.refused.keys(), "what could not be read is tried and told again"
    assert not looked
    Image.new("RGB", (30, 30), "yellow").save(photos / "red.png")
    (photos / "below" / "green.png").unlink()
    third = predictor.search("a red kite", photos, cache)
    assert len(looked) == 1
    assert {hit.picture.stem for hit in third.hits} == {"red", "blue", "white", "black"}
    assert len(Store(cache)) == 6


def test_the_default_cache_is_one_for_each_folder_and_each_way_of_seeing(tmp_path, photos, eyes, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    opened(tmp_path, eyes).search("a kite", photos)
    opened(tmp_path, eyes).search("a beach", photos)
    made = list((tmp_path / "home" / "diptych" / "galleries").iterdir())
    assert len(made) == 1
    eyes.selection = Selection(most=3, least=1)
    opened(tmp_path, eyes).search("a kite", photos)
    assert len(list((tmp_path / "home" / "diptych" / "galleries").iterdir())) == 2
    assert not [name for name in os.listdir(photos) if name.startswith(".")], "nothing is written among the pictures"


def test_bad_galleries_are_refused(tmp_path, photos, eyes):
    predictor = opened(tmp_path, eyes)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"an empty gallery: no pictures in .*wanted files ending in"):
        predictor.search("a kite", tmp_path / "empty", tmp_path / "c1")
    with pytest.raises(DataError, match=r"no folder .*--pictures DIR"):
        predictor.search("a kite", tmp_path / "nowhere", tmp_path / "c1")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 1 pictures in .* can be read"):
        predictor.search("a kite", tmp_path / "bad", tmp_path / "c2")
    with pytest.raises(ServingError, match="the query is empty"):
        predictor.search("  ", photos, tmp_path / "c3")


def test_a_model_that_cannot_match_is_refused(tmp_path, photos, eyes):
    with pytest.raises(ServingError, match=r"has learnt no matching.*finetune retrieval"):
        opened(tmp_path, eyes, head="region_class").search("a kite", photos, tmp_path / "cache")


def test_the_contact_sheet(tmp_path, photos, eyes):
    query = "a <b>red</b> kite & a very long query that has to be cut somewhere before the sheet ends"
    found = opened(tmp_path, eyes).search(query, photos, tmp_path / "cache")
    picture, page = write_sheet(found, tmp_path / "out" / "sheet.png", most=4)
    with Image.open(picture) as sheet:
        assert sheet.width > 4 * 200
        assert len(sheet.getcolors(sheet.width * sheet.height)) > 50, "the pictures are on it"
    text = page.read_text()
    assert page.suffix == ".html"
    assert text.count("data:image/jpeg;base64,") == 4
    assert "&lt;b&gt;red&lt;/b&gt;" in text
    assert "<b>red" not in text
    assert "4 of 5 pictures" in text
    assert "2 could not be read" in text
    assert "cut.png" in text
    for hit in found.hits[:4]:
        assert f"{hit.score:.3f}" in text
        assert hit.picture.name in text
