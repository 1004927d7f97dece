"""Pages by hand: opt-outs, language, the dominant picture, where its address stands, its texts, its licence."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from diptych_mine.pages.addresses import absolute, largest, usable
from diptych_mine.pages.charsets import decoded
from diptych_mine.pages.dominant import Ancestors, features
from diptych_mine.pages.pages import MOST_PICTURES, forbids, read_page, settle
from diptych_mine.settings import MiningSettings, changed
from tests.support.web_pages import NOTHING, TEXT, page

PICTURE = '<img src="/kite.jpg" alt="a red kite over a beach" width="640" height="480">'


def test_the_large_picture_of_an_article_leads_and_has_its_texts() -> None:
    found = page(
        f'<header><img src="/logo.png"></header><article>{TEXT}<p>It was windy. We had a kite.</p><figure>'
        f'<img src="/kite.jpg" alt="a red kite over a beach" title="our new kite" width="640" height="480">'
        f"<figcaption>The kite flies high</figcaption></figure><p>Then it rained. We went home.</p></article>"
    )
    logo, kite = found.rows
    assert logo["fails"] == ["dominant"]
    assert kite["fails"] == []
    assert kite["address"] == "http://a.test/kite.jpg"
    assert [(text["kind"], text["text"]) for text in kite["texts"]] == [
        ("figcaption", "The kite flies high"),
        ("alt", "a red kite over a beach"),
        ("title", "our new kite"),
        ("near", "We had a kite."),
        ("near", "Then it rained."),
    ]


def test_of_a_gallery_none_leads() -> None:
    items = "".join(
        f'<li><a href="/{n}"><img src="/{n}.jpg" width="480" height="480" alt="kite {n}"></a></li>' for n in range(5)
    )
    assert {row["fails"][0] for row in page(f"{TEXT}<ul>{items}</ul>").rows} == {"dominant"}


def test_two_alike_do_not_lead_each_other_and_the_margin_is_a_switch() -> None:
    two = f"{TEXT}<div>{PICTURE}</div><section>{PICTURE.replace('kite.jpg', 'other.jpg')}</section>"
    assert all("dominant" in row["fails"] for row in page(two).rows)
    loose = page(two, settings=changed(MiningSettings(), ["rules.dominant=0.1"]))
    assert sum("dominant" in row["fails"] for row in loose.rows) == 1


@pytest.mark.parametrize(
    "head",
    [
        '<meta name="robots" content="noai">',
        '<meta name="ROBOTS" content="index, noimageai">',
        '<meta name="diptych" content="none">',
        '<meta name="tdm-reservation" content="1">',
    ],
)
def test_a_page_that_opts_out_is_left_alone(head: str) -> None:
    found = page(TEXT + PICTURE, head)
    assert found.verdict == "opt_out"
    assert [row["fails"] for row in found.rows] == [["opt_out"]]
    assert page(TEXT + PICTURE, head, settings=changed(MiningSettings(), ["rules.opt_out=off"])).verdict == ""


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("noai", True),
        ("noindex, nofollow", True),
        ("diptych: noimageai", True),
        ("otherbot: noai", False),
        ("nofollow", False),
        ("max-image-preview: large", False),
        ("max-video-preview: -1", False),
        ("max-video-preview: -1, noindex", True),
    ],
)
def test_the_header_speaks_to_all_or_to_us(value: str, refused: bool) -> None:
    assert forbids([("X-Robots-Tag", value)]) is refused


def test_the_tdm_header_is_heard() -> None:
    assert forbids([("TDM-Reservation", "1")])
    assert not forbids([("TDM-Reservation", "0")])


GERMAN = "<p>Wir hatten diese Reise seit Monaten geplant, und am Ende kam doch alles ganz anders.</p>"


@pytest.mark.parametrize(
    ("body", "lang", "verdict"),
    [
        (TEXT, ' lang="en"', ""),
        (TEXT, "", ""),
        (TEXT, ' lang="de"', ""),  # the text outweighs a wrong declaration
        (GERMAN, ' lang="de"', "language"),
        (GERMAN, "", "language"),
        (GERMAN, ' lang="en-GB"', "language"),
        ("", ' lang="en"', ""),
        ("", ' lang="de"', "language"),
    ],
)
def test_english_is_told_by_lang_and_text(body: str, lang: str, verdict: str) -> None:
    assert page(f'{body}<img src="/kite.jpg">'.replace("Kites", ""), lang=lang).verdict == verdict


@pytest.mark.parametrize(
    ("tag", "address"),
    [
        ('<img src="k.jpg">', "http://a.test/x/k.jpg"),
        ('<img src="data:image/gif;base64,AA" data-src="/k.jpg">', "http://a.test/k.jpg"),
        ('<img src="/s.jpg" srcset="/s.jpg 150w, /k,1.jpg 640w">', "http://a.test/k,1.jpg"),
        ('<img src="/s.jpg" srcset="/s.jpg 1x, //b.test/k.jpg 2x">', "http://b.test/k.jpg"),
        ('<picture><source srcset="/k.webp 640w"><img src="data:,"></picture>', "http://a.test/k.webp"),
    ],
)
def test_where_the_address_of_a_picture_stands(tag: str, address: str) -> None:
    assert page(TEXT + tag).rows[0]["address"] == address


@given(
    st.sampled_from(["http://a.test", "http://a.test/x/y.html", "https://b.test:81/x/?q=/..", "http://u:p@c.test/x"]),
    st.lists(
        st.sampled_from(["/", "//", ".", "..", "a", "B-_", "k.jpg", "?", "#", "q=1", "&", ";", "%20", "~", "@", ":80",
                         "http://", "https://", "HTTP:", "h.test", ":0", " ", "\u00e4", "\\", "\n", ",", "[::1]"]),
        max_size=7,
    ).map("".join),
)  # fmt: skip
def test_what_is_plain_is_joined_as_urllib_does(base: str, address: str) -> None:
    joined = absolute(base, address)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("diptych_mine.pages.addresses._PLAIN", re.compile(r"(?!)"))
        assert absolute(base, address) == joined
        slowly = usable(joined)
    assert usable(joined) is slowly


def test_a_base_moves_relative_addresses() -> None:
    assert page(TEXT + '<img src="k.jpg">', '<base href="/img/">').rows[0]["address"] == "http://a.test/img/k.jpg"


def test_addresses_that_cannot_be_used_are_told() -> None:
    for bad in (
        "data:image/png;base64,AAAA",
        "javascript:alert(1)",
        f"http://a.test/{'x' * 10_000}",
        "http://u:p@a.test/k.jpg",
    ):
        row = page(f'{TEXT}<img src="{bad}" alt="a red kite over a beach">').rows[0]
        assert "address" in row["fails"], bad
        assert len(row["address"]) <= 2_001
    assert absolute("http://a.test/", "http://b\u00fccher.test/\u00e4.jpg") == "http://xn--bcher-kva.test/%C3%A4.jpg"
    assert not usable("ftp://a.test/k.jpg")


@pytest.mark.parametrize(
    ("srcset", "found"),
    [
        ("", None),
        (" ,, /k.jpg", "/k.jpg"),
        ("/a.jpg, /k.jpg 1.5x", "/k.jpg"),
        ("/a.jpg 1..5x, /k.jpg .5x", "/a.jpg"),
        ("/a.jpg 300w 200h, /k.jpg 400w", "/k.jpg"),
        (" " * 20_000 + "!", None),
        ("a" * 19_000 + " !", "a" * 19_000),
    ],
)
def test_a_srcset_is_read_once_however_it_is_made(srcset: str, found: str | None) -> None:
    assert all(largest(srcset) == found for _ in range(100))


def test_what_tags_are_called_is_kept_only_so_far() -> None:
    tree = LexborHTMLParser(f'<div class="{"x" * 50_000}" id="{"y" * 50_000}"><img></div>')
    found = features(tree.css_first("img"), {}, 0, "", Ancestors())
    assert 1_000 < sum(len(str(part)) for part in found.likeness) < 3_000


def test_licences_near_the_picture_come_first() -> None:
    near = f'<figure>{PICTURE}<a rel="license" href="https://creativecommons.org/licenses/by-sa/4.0/">CC</a></figure>'
    far = '<footer><a href="https://creativecommons.org/publicdomain/zero/1.0/">x</a></footer>'
    assert page(TEXT + near + far).rows[0]["licence"] == "cc-by-sa-4.0"
    assert page(TEXT + PICTURE + far).rows[0]["licence"] == "cc-0-1.0"
    assert page(TEXT + PICTURE).rows[0]["licence"] == "unknown"


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 32_000,
        "<div>" * 16_000 + "</div>" * 16_000,
        "<div></x>" * 32_000,  # closes nothing
        "<DIV>words <b>and " * 32_000,
        "".join(f"<p><b id={n}>" for n in range(4_000)),
        "<ul><li>" * 32_000,
        "<select>" + "<option>" * 100_000,
        "<optgroup>" * 32_000,
        "".join(f"<div><b id={n}></div>" for n in range(4_000)),
        "<!-- <script> -->" + "<div>" * 32_000,
        f"<div {' '.join(f'a{n}=1' for n in range(32_000))}>",
    ],
    ids=["open", "balanced", "stray", "mixed", "format", "lists", "options", "groups", "again", "comment", "many"],
)
def test_a_page_made_to_be_slow_is_not_parsed_and_counted(body: str) -> None:
    found = page(body + PICTURE)
    assert (found.verdict, found.rows) == ("too deep", [])


def test_pages_of_many_tags_and_of_long_ones_are_read() -> None:
    many = "<div><p>kite<br><img src=/a.png><ul><li>one<li>two</ul></div>" * 3_000
    long = f"<div data-state='{'{&quot;a&quot;: 1, ' * 9_000}'></div><script>{'if (a < b) x = y; ' * 9_000}</script>"
    script = f"<script>{'x = a<b && {c: 1, d: 2}; ' * 9_000}</script>"
    unclosed = "<div><my-item><my-part></div>" * 2_000
    countries = f"<select>{'<option>Kenya' * 250}</select>" * 20
    for body in (many, long, script, unclosed, countries, "<div>" * 900):
        assert page(body + PICTURE).verdict != "too deep"


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_a_byte_order_mark_is_heard(coding: str) -> None:
    html = f'<html lang="en"><body>{TEXT}{PICTURE}</body></html>'
    body = html.encode(coding) if coding != "utf-16-be" else b"\xfe\xff" + html.encode(coding)
    found = read_page("http://a.test/", body, MiningSettings(), NOTHING, charset="iso-8859-1")
    settle([found], MiningSettings(), NOTHING)
    assert (found.verdict, found.rows[0]["address"]) == ("", "http://a.test/kite.jpg")


def test_an_opt_out_is_heard_after_any_number_of_metas() -> None:
    many = '<meta name="x" content="y">' * 600
    assert page(TEXT + PICTURE, f'{many}<meta name="robots" content="noai">').verdict == "opt_out"


def test_what_is_hostile_is_read_to_an_end() -> None:
    deep = page("<div>" * 900 + PICTURE)
    assert len(deep.rows) == 1
    many = page(TEXT + '<img src="/k.jpg">' * (MOST_PICTURES + 7))
    assert (len(many.rows), many.more_pictures) == (MOST_PICTURES, 7)
    odd = page(
        TEXT + PICTURE.replace("kite", "ki\0te\ud83d".encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    )
    assert odd.rows[0]["texts"][0]["text"].encode()


def test_charsets_that_are_wrong_or_no_text_are_survived() -> None:
    assert decoded("kité".encode("latin-1"), "utf-8") == "kité"
    assert decoded("kité".encode(), None) == "kité"
    assert decoded('<meta charset="iso-8859-1">é'.encode("latin-1"), None).endswith("é")
    for charset in ("zip", "rot13", "unicode_escape", "no-such", "idna"):
        assert decoded(b"kite \\x41", charset) == "kite \\x41"
