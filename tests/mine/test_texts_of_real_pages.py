"""Texts of images on real pages: no credits, captions in tables, labels of backgrounds, titles last."""

import json
from io import BytesIO
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from diptych_mine.pages.texts import Vocabularies, is_title, judged, sentences
from diptych_mine.settings import MiningSettings, changed
from tests.support.candidates import NEWS
from tests.support.warcs import record
from tests.support.web_pages import TEXT, page

from .conftest import run

NOTHING = Vocabularies(frozenset())


def judge(text: str, kind: str = "figcaption", *given: str) -> tuple[str, list[str]]:
    found = judged(kind, text, changed(MiningSettings(), list(given)).texts, NOTHING)
    assert found is not None
    return found.text, found.fails


@pytest.mark.parametrize(
    "credit",
    [
        " Photo: Getty Images", " Photo: Kevin C. Downs/Getty Images", " (Photo: Jane Roe)", " [Image via Kite Press]",
        " | Jane Roe / AP", " – Photo by Jane Roe", " © 2020 Jane Roe", " Credit: Jane Roe/The Daily Kite",
        " (AP Photo/Jane Roe)", " Jane Roe / The Daily Kite",
    ],
)  # fmt: skip
def test_credits_after_a_caption_go(credit: str) -> None:
    assert judge(f"A red kite over the beach.{credit}") == ("A red kite over the beach.", [])


def test_a_label_before_a_caption_goes() -> None:
    assert judge("Media captionHow caravans cross the desert") == ("How caravans cross the desert", [])
    assert judge("Image caption, A red kite flies") == ("A red kite flies", [])
    assert judge("Image captions of a red kite")[0] == "Image captions of a red kite"


@pytest.mark.parametrize(
    "text",
    [
        "A red kite (above) and a boat.", "A red kite. It was made by Jane Roe.", "The kite of Jane Roe (2014)",
        "A red kite over the beach - by the sea", "Mr. Kerr and Ms. Roe at Reuters in Berlin.",
        "A red kite. On the beach, Jane Roe.",
    ],
)  # fmt: skip
def test_words_of_a_caption_stay(text: str) -> None:
    assert judge(text) == (text, [])


def test_credits_stay_in_lists_and_without_the_rule() -> None:
    text = "A red kite over the beach. Photo: Getty Images"
    assert judge(text, "caption") == (text, [])
    assert judge(text, "figcaption", "rules.boilerplate=off") == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "Anna Berg / The Kite Post", "Anna Berg / KP", "[Photo: Kites user Anna Berg]", "Image via Kite Press",
        "Photo courtesy of the Berg family", "Screenshot: Anna Berg", "Anna Berg for The Kite", "View full size",
        "Open image in gallery", "Enlarge this image", "Image for post", "No alt text provided for this image",
        "May be an image of 2 people and text", "A picture containing text, sky, outdoor",
        "Featured image for the article", "Copy of blue kite (2)", "Untitled design (3)", "Profile picture of Anna",
        "Add to basket button", "Skip to main content",
    ],
)  # fmt: skip
def test_credits_and_words_of_the_interface_are_no_captions(text: str) -> None:
    assert "boilerplate" in judge(text)[1]


@pytest.mark.parametrize(
    "text",
    [
        "Image of a red kite for sailors", "Open fields in the evening", "A view of the gallery",
        "Copy of a Roman statue",
        "Photo courtesy of NASA shows a red storm", "Kite / boat on the beach",
        "Untitled painting of a kite by the sea",
        "A basket is added to the content", "Ride for The Kite Museum opens", "View of the full moon",
    ],
)  # fmt: skip
def test_captions_that_resemble_them_stay(text: str) -> None:
    assert judge(text)[1] == []


def test_credits_take_no_time_however_they_are_made() -> None:
    for hostile in ("A. " * 600, "(" * 900, "[Photo: " * 200, "| A / " * 300, "A red kite. Photo: " + "A-" * 800 + "é"):
        assert all(judge(f"kite {hostile}") for _ in range(20))


def texts(body: str, head: str = "") -> list[tuple[str, str]]:
    (row,) = (row for row in page(body, head).rows if row["texts"])
    return [(text["kind"], text["text"]) for text in row["texts"] if text["kind"] != "near"]


@pytest.mark.parametrize("cell", ["td", "th"])
def test_a_caption_in_the_cell_of_an_infobox_is_read(cell: str) -> None:
    image = '<a href="/wiki/File:K.jpg"><img src="/k.jpg" width="350" height="320" alt=""></a>'
    row = f'<tr><{cell}>{image}<div class="infobox-caption">A red kite flies.</div></{cell}></tr>'
    other = '<tr><td><div class="infobox-caption">Another text of it.</div></td></tr>'
    table = f'<table class="infobox">%s</table>{TEXT}'
    assert texts(NEWS % table % (row + other)) == [("figcaption", "A red kite flies.")]
    bare = f"<tr><{cell}>{image}</{cell}></tr>{other}"
    assert not texts_or_none(NEWS % table % bare)


def texts_or_none(body: str) -> list[tuple[str, str]]:
    return [(text["kind"], text["text"]) for text in page(body).rows[0]["texts"] if text["kind"] != "near"]


def test_the_label_of_a_background_is_its_alt() -> None:
    hero = '<div class="hero" style="background-image:url(/k.jpg)" role="img" aria-label="A red kite flies."></div>'
    assert texts(f"<main>{hero}<h1>Kites</h1>{TEXT}</main>") == [("alt", "A red kite flies.")]


def test_the_longest_alt_of_an_image_comes_first() -> None:
    body = '<img src="/k-300x200.jpg" alt="Kites fly again"><img src="/k.jpg" alt="A red kite over the beach at night">'
    assert texts(NEWS % body) == [("alt", "A red kite over the beach at night"), ("alt", "Kites fly again")]


@pytest.mark.parametrize(
    ("text", "title", "same"),
    [
        ("A red kite", "A red kite", True), ("a Red kite", "A red kite | The Daily", True),
        ("A red kite", "A red kite - The Daily", True), ("A red kite", "A red kite flies", False),
        ("A red kite", "", False), ("A red kite flies", "A red kite", False), ("", "A red kite", False),
    ],
)  # fmt: skip
def test_a_text_is_the_title_of_its_page_also_without_the_name_of_the_site(text: str, title: str, same: bool) -> None:
    assert is_title(text, title) is same


def test_a_text_that_is_not_the_title_of_the_page_is_kept(tmp_path: Path) -> None:
    image = '<img src="/k.jpg" alt="A red kite over the wide beach" title="A small kite">'
    figure = f"<figure>{image}<figcaption>Kites of the year</figcaption></figure>"
    html = f'<html lang="en"><title>Kites of the year | Daily</title><body>{NEWS % figure}'
    file, noise = BytesIO(), Random(0).randbytes(144)
    Image.frombytes("RGB", (8, 6), noise).resize((640, 480)).save(file, "JPEG")
    (tmp_path / "x.warc").write_bytes(record(0, html.encode()) + record("k.jpg", file.getvalue(), media="image/jpeg"))
    run(tmp_path / "out", tmp_path / "x.warc")
    (line,) = (tmp_path / "out" / "records" / "00000.jsonl").read_text().splitlines()
    assert json.loads(line)["captions"] == ["A red kite over the wide beach"]


@pytest.mark.parametrize(
    "text",
    [
        "It is approx. 30 m long.", "See vol. 2, ed. Jane Roe, for more.", "It is in Fig. 3 on p. 12 of the book.",
        "Nobody left. (Not even Jane.)",
    ],
)  # fmt: skip
def test_abbreviations_and_parentheses_continue_a_sentence(text: str) -> None:
    assert sentences(text) == [text]


def test_a_sentence_that_ends_in_no_ends() -> None:
    assert sentences("She said no. We went home.") == ["She said no.", "We went home."]
