"""A folder of pictures ranked by a text, and its contact sheet."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from rich.console import Console

from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.data.store.store import Store
from diptych.inference.contact_sheet import write_sheet
from diptych.inference.predictor import Predictor
from diptych.runs.evaluation.retrieve import Extent, retrieve
from diptych.runs.folder import ModelFolder
from diptych.runtime.errors import DataError, DiptychError, RecipeError, ServingError
from diptych.systems import find_recipe
from diptych.tasks.two_towers import choose
from diptych.vision.detectors.selection import Selection
from tests.support import toy
from tests.support.search_models import opened

if TYPE_CHECKING:
    from diptych_world.detector.detector import StorybookDetector


COLOURS = ("red", "green", "blue", "white", "black")


@pytest.fixture
def detector() -> StorybookDetector:
    return toy.detector()


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


@pytest.mark.parametrize(("system", "head"), [("image-bert", "match"), ("tden", "similarity")])
def test_the_order_is_that_of_the_scores_one_by_one(tmp_path, photos, detector, system, head):
    predictor, cache = opened(tmp_path, detector, system, head), tmp_path / "cache"
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


def test_what_was_seen_is_kept_until_the_file_changes(tmp_path, photos, detector, monkeypatch):
    predictor, cache = opened(tmp_path, detector), tmp_path / "cache"
    first = predictor.search("a red kite", photos, cache)
    looked: list[int] = []
    detect = type(predictor.detector).detect
    monkeypatch.setattr(
        type(predictor.detector), "detect", lambda self, p, r: looked.extend([1] * len(p)) or detect(self, p, r)
    )
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


def test_a_second_search_by_vectors_encodes_no_picture(tmp_path, photos, detector):
    predictor, cache, passes = opened(tmp_path, detector, "tden", "similarity"), tmp_path / "cache", []
    predictor.folder.model.objects[0].register_forward_hook(lambda _, given, __: passes.append(len(given[0])))
    first = predictor.search("a red kite", photos, cache)
    assert sum(passes) == 5
    passes.clear()
    assert predictor.search("a red kite", photos, cache).hits == first.hits
    predictor.search("a beach", photos, cache)
    assert not passes, "a query costs one pass, of its words"
    Image.effect_noise((48, 40), 99).convert("RGB").save(photos / "new.png")
    third = predictor.search("a red kite", photos, cache)
    assert sum(passes) == 1, "the new picture alone"
    # The vectors are the same; with another number of rows, BLAS may add up their products in another order, so that
    # a cosine in fp32 differs by an ulp of its terms, which are below 1.
    assert {hit.picture.name: hit.score for hit in third.hits if hit.picture.name != "new.png"} == pytest.approx(
        {hit.picture.name: hit.score for hit in first.hits}, rel=0, abs=2e-7
    )
    other = opened(tmp_path, detector, "tden", "similarity", ffn=32)
    other.folder.model.objects[0].register_forward_hook(lambda _, given, __: passes.append(len(given[0])))
    passes.clear()
    other.search("a red kite", photos, cache)
    assert sum(passes) == 6, "another model's vectors are its own"


def test_vectors_that_are_damaged_are_made_anew(tmp_path, photos, detector):
    predictor, cache = opened(tmp_path, detector, "tden", "similarity"), tmp_path / "cache"
    first = predictor.search("a red kite", photos, cache)
    (kept,) = (cache / "vectors").glob("*.safetensors")
    kept.write_bytes(kept.read_bytes()[:100])
    assert predictor.search("a red kite", photos, cache).hits == first.hits


@pytest.mark.parametrize(("system", "head"), [("image-bert", "match"), ("tden", "similarity")])
def test_a_model_reads_the_best_regions_where_the_detector_finds_more(tmp_path, photos, detector, system, head):
    detector.selection = Selection(most=4, least=4)
    found = opened(tmp_path, detector, system, head, max_regions=2).search("a red kite", photos, tmp_path / "cache")
    assert len(found.hits) == 5


@pytest.mark.parametrize(("system", "head"), [("image-bert", "match"), ("tden", "similarity")])
def test_a_control_is_shown_blank_regions(tmp_path, photos, detector, system, head):
    recipe = find_recipe(f"{system}/small/retrieval", ["data.images=false"])
    control = Predictor(replace(opened(tmp_path, detector, system, head).folder, recipe=recipe))
    hits = control.search("a red kite", photos, tmp_path / "cache").hits
    assert len(hits) == 5
    assert len({round(hit.score, 4) for hit in hits}) == 1


def test_two_towers_pick_the_shortlist_that_another_model_ranks(tmp_path, photos, detector):
    pairs, towers = opened(tmp_path, detector), opened(tmp_path, detector, "tden", "similarity")
    cache = tmp_path / "cache"
    whole, picked = pairs.search("a red kite", photos, cache), towers.search("a red kite", photos, cache).hits[:2]
    read: list[int] = []
    pairs.folder.model.heads["match"].register_forward_hook(lambda _, __, out: read.append(len(out)))
    found = pairs.search("a red kite", photos, cache, shortlist=2, by=towers)
    assert sum(read) == 2
    among = {hit.picture for hit in picked}
    assert [hit.picture for hit in found.hits] == [hit.picture for hit in whole.hits if hit.picture in among]
    assert (found.readable, len(found.hits)) == (5, 2)
    assert len(pairs.search("a red kite", photos, cache, shortlist=50, by=towers).hits) == 5


def test_two_towers_pick_the_shortlist_of_an_evaluation(tmp_path, photos, detector):
    paths = sorted([*photos.glob("*.png"), *photos.glob("below/*.png")])
    records = [Record(p.stem, "test", p, captions=(f"a {p.stem} kite",)) for p in paths if p.stem in COLOURS]
    extract(records, detector, tmp_path / "store")
    store, pairs = Store(tmp_path / "store"), opened(tmp_path, detector).folder
    towers = opened(tmp_path, detector, "tden", "similarity").folder
    said, scores = retrieve(pairs, store, "test", Extent(shortlist=2, by=towers), console=Console(quiet=True))
    seen, texts = [store.record(index) for index in range(5)], [record.captions[0] for record in records]
    _, of_captions = choose(towers.model, towers.tokens, seen, texts, 2)
    found = {told["caption"]: set(told["first"]) for told in said if told["asks"] == "pictures"}
    assert found == {text: {seen[n].key for n in row} for text, row in zip(texts, of_captions, strict=True)}
    assert any("with a shortlist of 2 per query" in note for note in scores.notes)
    with pytest.raises(RecipeError, match="pass both"):
        retrieve(pairs, store, "test", Extent(by=towers))


@pytest.fixture
def captioned(tmp_path, photos, detector) -> tuple[Store, list[str]]:
    """The five kites, two captions each, and their keys."""
    paths = sorted([*photos.glob("*.png"), *photos.glob("below/*.png")])
    records = [
        Record(p.stem, "test", p, captions=(f"a {p.stem} kite", f"the {p.stem} one"))
        for p in paths
        if p.stem in COLOURS
    ]
    extract(records, detector, tmp_path / "store")
    return Store(tmp_path / "store"), [record.key for record in records]


def counted(pairs: ModelFolder) -> list[int]:
    """The pairs that it is asked, batch by batch."""
    read: list[int] = []
    pairs.model.heads["match"].register_forward_hook(lambda _, __, out: read.append(len(out)))
    return read


@pytest.mark.parametrize(("asks", "asked", "way"), [("captions", 2 * 10, "text"), ("pictures", 5 * 2, "image")])
def test_one_way_alone_is_asked(tmp_path, captioned, detector, asks, asked, way):
    """Two of 5 pictures and 10 captions: nothing is read for the other way, nor for its candidates of a shortlist."""
    store, pairs = captioned[0], opened(tmp_path, detector).folder
    read, quiet = counted(pairs), Console(quiet=True)
    said, scores = retrieve(pairs, store, "test", Extent(queries=2, asks=asks), console=quiet)
    both, _ = retrieve(pairs, store, "test", Extent(queries=2), console=quiet)
    assert sum(read[:1]) == asked
    assert said == [told for told in both if told["asks"] == asks]
    assert [score.name for score in scores.scores] == [f"{way} retrieval R@{at}" for at in (1, 5, 10)]
    towers = opened(tmp_path, detector, "tden", "similarity").folder
    for extent in (Extent(queries=1, shortlist=2, by=towers, asks=asks), Extent(folds=2, asks=asks)):
        read.clear()
        said, scores = retrieve(pairs, store, "test", extent, console=quiet)
        if extent.shortlist:  # one exactly, and two candidates of each, of which it has some
            exact, candidates = asked // 2, 2 * {"captions": 5, "pictures": 10}[asks]
            assert candidates < sum(read) <= exact + candidates
        assert {told["asks"] for told in said} == {asks}
        assert (len(said), len(scores.scores)) == ({"captions": 5, "pictures": 10}[asks], 3)


def test_folds_are_galleries_of_their_own(tmp_path, captioned, detector):
    """As COCO's 1k test set is five of the 5,000 pictures: of each fold nothing but its own is looked at."""
    (store, keys), pairs = captioned, opened(tmp_path, detector).folder
    read = counted(pairs)
    said, scores = retrieve(pairs, store, "test", Extent(folds=2), console=Console(quiet=True))
    assert sum(read) == 3 * 6 + 2 * 4
    for told in said:
        fold = keys[:3] if told["picture"] in keys[:3] else keys[3:]
        found = told["first"] if told["asks"] == "pictures" else [key.split("#")[0] for key in told["first"]]
        assert set(found[: len(fold)]) <= set(fold)
        assert told["rank"] < (len(fold) if told["asks"] == "pictures" else 2 * len(fold))
    assert any("into 2 galleries" in note for note in scores.notes)
    with pytest.raises(RecipeError, match="leave out --queries and --shortlist"):
        retrieve(pairs, store, "test", Extent(folds=2, queries=1))
    with pytest.raises(RecipeError, match="the gallery has 5 images; pass fewer folds"):
        retrieve(pairs, store, "test", Extent(folds=6))


def test_a_shortlist_that_cannot_be_is_refused(tmp_path, photos, detector):
    pairs, towers, cache = (
        opened(tmp_path, detector),
        opened(tmp_path, detector, "tden", "similarity"),
        tmp_path / "cache",
    )
    with pytest.raises(ServingError, match="pass both --shortlist N and --shortlist-by MODEL"):
        pairs.search("a kite", photos, cache, shortlist=2)
    with pytest.raises(ServingError, match=r"cannot pick a shortlist: expected a two-tower model"):
        pairs.search("a kite", photos, cache, shortlist=2, by=pairs)
    with pytest.raises(ServingError, match=r"a query needs only one pass.*leave out --shortlist"):
        towers.search("a kite", photos, cache, shortlist=2, by=towers)
    detector.selection = Selection(most=3, least=1)
    other = opened(tmp_path / "other", detector, "tden", "similarity")
    with pytest.raises(DataError, match=r"differ from those of the model .*: selection: "):
        pairs.search("a kite", photos, cache, shortlist=2, by=other)


def test_a_model_that_looks_at_pixels_searches(tmp_path, photos, detector):
    recipe = find_recipe("vl-bert/small/end-to-end", ["data.pixels_shorter=32", "data.pixels_longer=64"])
    assert recipe.model.network is not None
    with_network = opened(tmp_path, detector, "vl-bert", "match", network=recipe.model.network)
    looking = Predictor(replace(with_network.folder, recipe=recipe))
    found = looking.search("a red kite", photos, tmp_path / "cache")
    assert len({hit.score for hit in found.hits}) == 5


def test_the_default_cache_is_one_for_each_folder_and_each_way_of_seeing(tmp_path, photos, detector, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    opened(tmp_path, detector).search("a kite", photos)
    opened(tmp_path, detector).search("a beach", photos)
    made = list((tmp_path / "home" / "diptych" / "galleries").iterdir())
    assert len(made) == 1
    detector.selection = Selection(most=3, least=1)
    opened(tmp_path, detector).search("a kite", photos)
    assert len(list((tmp_path / "home" / "diptych" / "galleries").iterdir())) == 2
    assert not [name for name in os.listdir(photos) if name.startswith(".")], "nothing is written among the pictures"


def test_a_cache_that_cannot_be_made_is_named_with_its_ways_out(tmp_path, photos, detector, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.devnull)
    wanted = (
        r"cannot make /dev/null/.cache/diptych/galleries/\w+, in .*: Not a directory; pass --cache FOLDER, or set XDG_"
    )
    with pytest.raises(DiptychError, match=wanted):
        opened(tmp_path, detector).search("a kite", photos)
    assert opened(tmp_path, detector).search("a kite", photos, tmp_path / "cache").hits


def test_bad_galleries_are_refused(tmp_path, photos, detector):
    predictor = opened(tmp_path, detector)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images to search in .*expected files ending in"):
        predictor.search("a kite", tmp_path / "empty", tmp_path / "c1")
    with pytest.raises(DataError, match=r"is not a folder; .*--images"):
        predictor.search("a kite", tmp_path / "nowhere", tmp_path / "c1")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 1 images in .* can be read"):
        predictor.search("a kite", tmp_path / "bad", tmp_path / "c2")
    with pytest.raises(ServingError, match="the query is empty"):
        predictor.search("  ", photos, tmp_path / "c3")
    with pytest.raises(ServingError, match="has no word of 'жжж' in its vocabulary; use other words"):
        predictor.search("жжж", photos, tmp_path / "c4")


def test_a_model_that_cannot_match_is_refused(tmp_path, photos, detector):
    with pytest.raises(ServingError, match=r"was not trained to match images and texts.*finetune retrieval"):
        opened(tmp_path, detector, head="region_class").search("a kite", photos, tmp_path / "cache")


def test_the_contact_sheet(tmp_path, photos, detector):
    query = "a <b>red</b> kite & a very long query that has to be cut somewhere before the sheet ends"
    found = opened(tmp_path, detector).search(query, photos, tmp_path / "cache")
    picture, page = write_sheet(found, tmp_path / "out" / "sheet.png", most=4)
    with Image.open(picture) as sheet:
        assert sheet.width > 4 * 200
        assert len(sheet.getcolors(sheet.width * sheet.height)) > 50, "the pictures are on it"
    text = page.read_text()
    assert page.suffix == ".html"
    assert text.count("data:image/jpeg;base64,") == 4
    assert "&lt;b&gt;red&lt;/b&gt;" in text
    assert "<b>red" not in text
    assert "4 of 5 images" in text
    assert "2 could not be read" in text
    assert "cut.png" in text
    for hit in found.hits[:4]:
        assert f"{hit.score:.3f}" in text
        assert hit.picture.name in text


def test_a_copy_is_found_without_being_looked_at(tmp_path, photos, detector):
    predictor, cache, passes = opened(tmp_path, detector, "tden", "similarity"), tmp_path / "cache", []
    first = predictor.search("a red kite", photos, cache)
    predictor.folder.model.objects[0].register_forward_hook(lambda _, given, __: passes.append(len(given[0])))
    (photos / "again.png").write_bytes((photos / "red.png").read_bytes())
    (photos / "below" / "green.png").rename(photos / "renamed.png")
    second = predictor.search("a red kite", photos, cache)
    assert not passes
    assert {hit.picture.stem for hit in second.hits} == {"red", "again", "renamed", "blue", "white", "black"}
    scores = {hit.picture.stem: hit.score for hit in second.hits}
    assert scores["red"] == scores["again"]
    assert second.readable == first.readable + 1


def test_images_that_were_swapped_are_found_without_being_looked_at(tmp_path, photos, detector):
    predictor, cache = opened(tmp_path, detector), tmp_path / "cache"
    first = predictor.search("a red kite", photos, cache)
    one, two = photos / "red.png", photos / "blue.png"
    one.rename(tmp_path / "red")
    two.rename(one)
    (tmp_path / "red").rename(two)
    second = predictor.search("a red kite", photos, cache)
    assert second.readable == first.readable
    renamed = {one: two, two: one}
    scores = {renamed.get(hit.picture, hit.picture): hit.score for hit in second.hits}
    assert scores == pytest.approx({hit.picture: hit.score for hit in first.hits})


def test_a_gallery_wants_a_model_that_makes_vectors(tmp_path, photos, detector):
    with pytest.raises(ServingError, match=r"--gallery stores vectors, but .* has none"):
        opened(tmp_path, detector).search("a red kite", photos, tmp_path / "cache", gallery="postgresql://x/y")
