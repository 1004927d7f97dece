"""Vectors of images and texts, and a search that another model ranks anew; the verbs `encode` and `match`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from diptych.api.model import Model, load
from diptych.cli import run_verb
from diptych.runtime.errors import DataError, ServingError
from tests.support import toy
from tests.support.search_models import opened
from tests.support.service import picture

if TYPE_CHECKING:
    from diptych_world.detector.detector import StorybookDetector


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for colour in ("red", "blue", "green", "white"):
        (tmp_path / "photos" / f"{colour}.png").write_bytes(picture(colour))
    return tmp_path


@pytest.fixture
def detector() -> StorybookDetector:
    return toy.detector()


def test_vectors_have_unit_length_and_give_the_scores(folder: Path, detector: StorybookDetector) -> None:
    towers = Model(opened(folder, detector, "tden", "similarity"))
    paths, texts = sorted((folder / "photos").iterdir()), ["a red kite", "a kite", "a beach"]
    images, words = towers.encode_image(paths), towers.encode_text(texts)
    assert (images.dtype, words.dtype) == (np.float32, np.float32)
    assert len(images) == 4
    assert words.shape == (3, images.shape[1])
    for vectors in (images, words):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(towers.encode_image(paths[1]), images[1], atol=1e-5)
    np.testing.assert_allclose(list(towers.encode_image(iter(paths))), images, atol=1e-5)
    np.testing.assert_allclose(towers.encode_text(texts[2]), words[2], atol=1e-5)
    np.testing.assert_allclose(towers.match(paths, texts), images @ words.T, atol=1e-5)
    for empty in ("", [" "]):
        with pytest.raises(ServingError, match=r"^a text is empty; write it in words"):
            towers.encode_text(empty)
        with pytest.raises(ServingError, match=r"^a text is empty"):
            towers.match(paths, empty)
    assert towers.encode_image([]).shape == towers.encode_text([]).shape == (0, images.shape[1])


@pytest.mark.parametrize("folder_of_images", [True, False])
def test_another_model_ranks_the_best_anew(folder: Path, detector: StorybookDetector, folder_of_images: bool) -> None:
    towers, pairs = Model(opened(folder / "t", detector, "tden", "similarity")), Model(opened(folder / "p", detector))
    paths = sorted((folder / "photos").iterdir())
    hits = towers.search("a red kite", folder / "photos" if folder_of_images else paths, top_k=2, rerank=pairs)
    scores = pairs.match(paths, ["a red kite"])[:, 0]
    assert [path for path, _ in hits] == [paths[at] for at in np.argsort(-scores)[:2]]
    assert [score for _, score in hits] == pytest.approx(sorted(scores, reverse=True)[:2], abs=1e-4)


def test_a_search_names_images_that_it_left_out_and_a_folder_that_is_not_there(
    folder: Path, detector: StorybookDetector
) -> None:
    towers = Model(opened(folder / "t", detector, "tden", "similarity"))
    (folder / "photos" / "cut.png").write_bytes(picture()[:200])
    with pytest.warns(
        UserWarning, match=r"^the search leaves out 1 image; the first: cannot read the image .*cut.png: "
    ):
        assert len(towers.search("a red kite", folder / "photos")) == 4
    with pytest.raises(DataError, match="fotos is not a folder; pass a folder of images with `images`"):
        towers.search("a red kite", folder / "fotos")


def test_vectors_cannot_rank_anew(folder: Path, detector: StorybookDetector) -> None:
    towers, pairs = Model(opened(folder / "t", detector, "tden", "similarity")), Model(opened(folder / "p", detector))
    with pytest.raises(ServingError, match="makes a vector of each image, so a query needs only one pass"):
        pairs.search("a red kite", sorted((folder / "photos").iterdir()), rerank=towers)


def test_the_verbs_print_the_same_and_name_what_fails(
    folder: Path, detector: StorybookDetector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    made = opened(folder, detector, "tden", "similarity").folder
    given = ("--model", str(made.save(folder / "saved").folder))
    towers, paths, texts = load(folder / "saved"), sorted(Path("photos").iterdir()), ["a red kite", "a beach"]
    assert run_verb(["encode", "photos", "--out", "v.npy", *given], debug=False) == 0
    assert capsys.readouterr().out.splitlines() == list(map(str, paths))
    np.testing.assert_allclose(np.load("v.npy"), towers.encode_image(paths), atol=1e-5)
    assert run_verb(["match", "photos/*.png", *texts, "--json", *given], debug=False) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = [(str(path), text) for path in paths for text in texts]
    assert [(line["picture"], line["text"]) for line in lines] == wanted
    scores = towers.match(paths, texts).ravel()
    np.testing.assert_allclose([line["score"] for line in lines], scores, atol=1e-5)
    Path("photos/green.png").write_text("no picture")
    assert run_verb(["encode", "photos", "--out", "w.npy", "--json", *given], debug=False) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["row"] for line in said.out.splitlines()] == [0, 1, 2]
    assert ("1 of 4 images failed" in said.err, "green.png" in said.err, len(np.load("w.npy"))) == (True, True, 3)
    assert run_verb(["match", "photos/green.png", "a beach", *given], debug=False) == 1
    assert capsys.readouterr().err.count("green.png") == 1
    pairs = opened(folder / "p", detector).folder.save(folder / "pairs").folder
    assert run_verb(["encode", "photos", "--out", "x.npy", "--model", str(pairs)], debug=False) == 1
    assert "cannot encode images and texts as vectors" in capsys.readouterr().err
    assert not Path("x.npy").exists()
