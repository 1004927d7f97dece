"""Images of scripts and of tags that the parser does not list, and addresses and sizes as browsers read them."""

import time

import pytest

from diptych_mine.pages.addresses import absolute, is_nothing, sources
from diptych_mine.pages.dominant import pixels
from tests.support.candidates import NEWS, chosen
from tests.support.web_pages import TEXT, page

BASE = "http://a.test/x/y.html"
WIDTHS = {"data-widths": "[180, 360, 540]"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"data-src": "boat-{width}.jpg"} | WIDTHS, "boat-540.jpg"),
        ({"data-src": "boat_{width}x.jpg?v=1"} | WIDTHS, "boat_540x.jpg?v=1"),
        ({"data-src": "boat_%7Bwidth%7Dx.jpg"} | WIDTHS, "boat_540x.jpg"),
        ({"data-src": "boat_%7b%20Width %7dx.jpg"} | WIDTHS, "boat_540x.jpg"),
        ({"data-src": "boat_{ width }x.jpg", "data-widths": "540,360"}, "boat_540x.jpg"),
        ({"data-src": "boat_{width}x.jpg", "data-widths": '["180", "360"]'}, "boat_360x.jpg"),
        ({"data-src": "boat_{width}x.jpg", "data-widths": "[180, 99999, 2048]"}, "boat_2048x.jpg"),
        ({"data-src": "boat_{width}x.jpg", "data-widths": "[9000, 8000]"}, "boat_8000x.jpg"),
        ({"data-src": "boat_{width}x.jpg", "data-widths": "[]"}, "boat_3024x.jpg"),
        ({"data-src": "boat_{width}x.jpg", "data-width": "700"}, "boat_700x.jpg"),
        ({"data-src": "boat_{width}x.jpg"}, "boat_3024x.jpg"),
        ({"data-srcset": "boat_{width}x.jpg {width}w"} | WIDTHS, "boat_540x.jpg"),
        ({"src": "boat_{width}x.jpg", "data-sizes": "auto"}, "boat_3024x.jpg"),
        ({"src": "boat_20x.jpg", "data-src": "//c.test/boat_{width}x.jpg"} | WIDTHS, "//c.test/boat_540x.jpg"),
        (
            {"data-src": "{width}/boat.jpg", "data-prefix": "/w/", "data-postfix": "?q=9"} | WIDTHS,
            "/w/540/boat.jpg?q=9",
        ),
        ({"data-src": "/{width}/b.jpg", "data-widthmap": '{"180": "s", "540": "big"}'} | WIDTHS, "/big/b.jpg"),
        ({"data-src": "b_{width}x{height}.jpg", "data-aspectratio": "1.5"} | WIDTHS, "b_540x360.jpg"),
        ({"data-src": "b_{width}x{height}.jpg", "data-aspect-ratio": "3/2"} | WIDTHS, "b_540x360.jpg"),
        ({"data-src": "b_{width}_{quality}.{format}", "data-quality": "80", "data-format": "png"}, "b_3024_80.png"),
        ({"data-full-url": "/b.jpg", "data-src": "b_{width}x{height}.jpg"} | WIDTHS, "/b.jpg"),
        ({"src": "/b.jpg", "data-src": "b-{quality}.jpg", "data-quality": "true"}, "/b.jpg"),
        ({"src": "/b.jpg", "data-src": "b_{width}.{format}"} | WIDTHS, "/b.jpg"),
        ({"src": "/b.jpg", "data-src": "/up/{{ image.url }}.jpg"}, "/b.jpg"),
        ({"src": "/b.jpg", "data-src": "/up/${name}.jpg", "data-lazy": "/<%= name %>.jpg"}, "/b.jpg"),
        ({"src": "/{3F2504E0-4F89-11D3-9A0C-0305E82C3301}.jpg"}, "/{3F2504E0-4F89-11D3-9A0C-0305E82C3301}.jpg"),
    ],
)
def test_templates_are_filled_or_are_nothing(written: dict[str, str | None], read: str) -> None:
    assert sources(written) == read


def test_an_address_with_a_template_that_no_one_fills_is_nothing() -> None:
    for one in ("boat-{quality}.jpg", "/a/%7Bformat%7D/b", "/up/{{image}}.png", "/{width}/b.jpg"):
        assert is_nothing(one)
        assert not page(NEWS % f'<img src="{one}" alt="a kite">').rows[0]["address"]


def test_a_source_takes_the_widths_of_its_picture() -> None:
    picture = '<picture><source data-srcset="/k_{width}x.jpg"><img data-widths="[90, 900]" src="/blank.gif"></picture>'
    assert chosen(NEWS % f"<figure>{picture}</figure>") == ["http://a.test/k_900x.jpg"]
    background = '<div class="hero" data-bg="/k_{width}x.jpg" data-widths="[90, 900]" title="a kite"></div>'
    assert chosen(NEWS % background) == ["http://a.test/k_900x.jpg"]


KITE = '&lt;img src="/k.jpg" alt="a &amp;amp; b" width="520" height="400"&gt;'
COPY = '<img src="/k.jpg" alt="a kite" width="520" height="400">'


@pytest.mark.parametrize(
    "body",
    [
        f"<noscript>{KITE}</noscript>",
        f'<img src="/blank.gif" alt="a kite" width="520" height="400"><noscript>{KITE}</noscript>',
        f'<a><img data-x="1"></a> <noscript>\n<!-- late --> {KITE} \n</noscript>',
        f"<noscript>{KITE.replace('&lt;', '&#60;').replace('&gt;', '&#x3E;')}</noscript>",
        f"<noscript>{KITE.replace('&', '&amp;')}</noscript>",
        f"<noscript>{KITE.replace('img', 'IMG')}</noscript>",
        f"<noscript>&lt;picture&gt;&lt;source srcset=&quot;/k.jpg&quot;&gt;{KITE.replace('/k.jpg', '')}</noscript>",
        f"<template>{COPY}</template>",
        f'<template id="a>b" shadowrootmode="open"><slot></slot><picture>{COPY}</picture></template>',
        f'<img src="/blank.gif" width="520" height="400"><template>{COPY}</template>',
        f"<template><p>b</p><template>{COPY}</template></template>",
        f"<template><noscript>{KITE}</noscript></template>",
        f"<TEMPLATE>{COPY}</TEMPLATE>",
        f"<noscript><p>b</p>{KITE}</noscript>",
        f'<template><base href="/z/"><title>Z</title>{COPY.replace("/k", "../k")}</template>',
    ],
)
def test_images_that_the_parser_does_not_list_are_found(body: str) -> None:
    found = page(NEWS % f"<figure>{body}<figcaption>A red kite flies.</figcaption></figure>")
    (kite,) = [row for row in found.rows if not row["fails"]]
    assert kite["address"] == "http://a.test/k.jpg"
    assert {"article", "figure"} <= set(kite["features"])
    assert kite["texts"][0]["text"] == "A red kite flies."
    assert found.title == "Kites"


def test_a_template_of_a_slider_has_images_of_its_own() -> None:
    rows = page(NEWS % f"<figure>{COPY}<template>{COPY.replace('/k', '/next')}</template></figure>").rows
    assert [row["address"] for row in rows] == ["http://a.test/k.jpg", "http://a.test/next.jpg"]
    assert all(row["dominant"] is not None for row in rows)


def test_templates_without_an_address_change_nothing() -> None:
    bare = page(NEWS % COPY)
    for more in ('<template><img :src="a.b"><img src="{{ a }}"></template>', "<noscript>&lt;p&gt;</noscript>"):
        assert page(NEWS % (COPY + more)).rows == bare.rows


LARGER = (
    "data-full-url", "data-zoom-image", "data-large_image", "data-large-image", "data-zoom-src", "data-orig-file",
    "data-large-file", "data-hi-res-src", "data-original-src", "data-zoom", "data-full", "data-large", "data-hires",
    "data-old-hires", "data-a-hires", "data-magnify-src", "data-src-retina", "data-at2x", "data-orig-src", "zoomfile",
    "data-image-src", "data-full-size", "data-src-large", "data-highres", "data-full-image", "data-real-src",
    "data-image-large-src", "data-full-size-image-url", "data-large-img-url", "data-zoom-img", "data-zoomsrc",
    "data-fullsrc", "data-srclarge", "data-hd-src", "data-big", "data-rjs", "data-imgsrc", "data-img-url", "data-raw",
)  # fmt: skip


@pytest.mark.parametrize("name", LARGER)
def test_the_larger_file_of_a_script_is_read(name: str) -> None:
    for small in ("", "/blank.gif", "/k-150x150.jpg", "k.thumb.jpg"):
        for large in ("/up/k.jpg", "k.jpg", "k.webp?v=3", "\\up\\k.jpg"):
            assert absolute(BASE, sources({"src": small, name: large})) == absolute(BASE, large)
    for value in ("true", "1.5", "2", "", "zoom-in"):
        assert sources({"src": "/k.jpg", name: value}) == "/k.jpg"


@pytest.mark.parametrize("name", ["data-original-filename", "data-full-caption", "data-zoom-title", "data-large-thumb"])
def test_names_of_texts_and_small_files_are_passed_over(name: str) -> None:
    assert sources({"src": "/k.jpg", name: "boat.jpg"}) == "/k.jpg"
    assert sources({"src": "/k.jpg", "data-full-url": "/photo/5", "data-zoom": "/a.jpg.html"}) == "/k.jpg"


def test_any_attribute_may_have_the_file_that_a_placeholder_waits_for() -> None:
    for value in ("k.jpg", "k.webp?v=1", "\\k.png", "s.jpg 90w, k.jpg 900w", "s.jpg 1x, k.jpg 2x"):
        for name in ("data-x", "data-src", "nitro-lazy-src", "data-td"):
            assert "k." in sources({"src": "/blank.gif", name: value})[:6]
    assert sources({"src": "/blank.gif", "data-x": "k.jpg of a kite", "aria-label": "k.jpg"}) == "/blank.gif"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"\photos\a.jpg", "http://a.test/photos/a.jpg"),
        (r"photos\a.jpg", "http://a.test/x/photos/a.jpg"),
        (r"..\a.jpg", "http://a.test/a.jpg"),
        (r"\\c.test\a.jpg", "http://c.test/a.jpg"),
        (r"/\c.test/a.jpg", "http://c.test/a.jpg"),
        (r"http:\\example.com\a.jpg", "http://example.com/a.jpg"),
        (r"HTTPS:\\example.com/b\a.jpg", "https://example.com/b/a.jpg"),
        ("http:////example.com/a.jpg", "http://example.com/a.jpg"),
        ("/pho\n  tos/a.jpg", "http://a.test/pho%20%20tos/a.jpg"),
        ("/pho\r\ntos/\ta.jpg", "http://a.test/photos/a.jpg"),
        (" \t/a.jpg\n ", "http://a.test/a.jpg"),
        ("\x01 /a.jpg\x1f", "http://a.test/a.jpg"),
        ("ht\ntp://c.test/a.jpg", "http://c.test/a.jpg"),
        (r"\a.php?f=b\c.jpg", r"http://a.test/a.php?f=b\c.jpg"),
    ],
)
def test_an_address_is_read_as_browsers_read_it(written: str, read: str) -> None:
    assert absolute(BASE, written) == read
    assert absolute(BASE, sources({"src": written})) == read
    assert absolute(BASE, sources({"src": "/blank.gif", "data-src": written})) == read


@pytest.mark.parametrize("style", [r"url(\/up\/k.jpg)", r"url('\2f up/k.jpg')", r'url("/up/k\.jpg")'])
def test_escapes_of_a_style_are_read(style: str) -> None:
    quoted = style.replace('"', "&quot;")
    found = page(NEWS % f'<div class="hero" style="background:{quoted}" title="a kite"></div>').rows
    assert [row["address"] for row in found] == ["http://a.test/up/k.jpg"]


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("32", 32), (" 32px", 32), ("32.0", 32), ("32.9", 32), ("1e3", 1), ("32 px", 32), ("32em", 32), ("1,024", 1),
        ("0032", 32), ("0", 0), ("0.5", 0), ("5.", 5), ("100%", None), ("33.3%", None), ("auto", None), ("-5", None),
        (".5", None), ("+5", None), ("٣٢", None), ("", None), ("9" * 7, None), ("0" * 9_000 + "x", 0), (None, None),
    ],
)  # fmt: skip
def test_a_size_is_read_by_the_rule_of_html(value: str | None, size: int | None) -> None:
    assert pixels(value) == size


def test_sizes_of_a_tag_are_whole_pixels() -> None:
    row = page(NEWS % '<img src="/k.jpg" width="640.5" height="100%" style="height: 480.25px" alt="a kite">').rows[0]
    assert (row["declared_width"], row["declared_height"]) == (640, 480)
    small = page(NEWS % '<img src="/k.jpg" width="32.0" height="32.0"><img src="/p.jpg" width="0px" height="0">').rows
    assert all("small" in row["features"] for row in small)
    assert "small" not in page(NEWS % '<img src="/k.jpg" width="50%" height="100%">').rows[0]["features"]


def test_hidden_markup_that_is_hostile_takes_no_time() -> None:
    start = time.process_time()
    deep = "&lt;div&gt;" * 30_000 + KITE
    nested = "<template>" * 400 + COPY + "</template>" * 400
    for body in (f"<noscript>{deep}</noscript>", nested, f"<template>{COPY * 30}</template>" * 600):
        assert page(NEWS % body).address
    for one in ("{" * 20_000, "{ " * 10_000, "%7b%20" * 5_000 + "width", " " * 90_000 + "{width}"):
        assert isinstance(sources({"src": "/blank.gif", "data-src": one, "data-srcset": one}), str)
    assert page(TEXT + '<img data-src="{width}" data-widths="[' + "1," * 50_000 + '"]>').rows
    assert time.process_time() - start < 5
