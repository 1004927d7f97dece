"""One picture under several addresses is one candidate, names count as whole words, and metadata names pictures too."""

import pytest

from diptych_mine.pages.addresses import is_nothing, picture_of, width_of
from tests.support.candidates import NEWS, chosen
from tests.support.web_pages import TEXT, page


@pytest.mark.parametrize(
    "body",
    [
        '<span><img src="data:image/gif;base64,R0"><noscript><img src="/k.jpg" alt="a kite"></noscript></span>',
        '<figure><img class="lazy" src="/grey.gif"> <noscript><img src="/k.jpg" alt="a kite"></noscript></figure>',
        '<figure><div><img src="/max/60/k.jpg?q=20"></div><div><img src="/max/1200/k.jpg" alt="a kite"></div>'
        '<noscript><img src="/max/1200/k.jpg"></noscript></figure>',
        '<img src="/k-300x200.jpg" alt="a kite"><a href="/k.jpg"><img src="/k.jpg"></a>',
        '<img src="/_next/image?url=%2Fk.jpg&amp;w=64&amp;q=1"><img src="/_next/image?url=%2Fk.jpg&amp;w=1920">',
        '<img src="null" data-src="/k.jpg" alt="a kite">',
        '<img src="/blank.gif" data-lazyload="/k.jpg" alt="a kite">',
        '<img src="/e1.gif" data-src=\'{"default":{"w":"8","src":"/k.jpg"}}\' alt="a kite">',
        '<div class="hero" style="background-image:url(\'/k.jpg\')" title="a kite"></div>',
    ],
    ids=["next", "lazy", "medium", "sizes", "resizer", "null", "lazyload", "json", "background"],
)  # fmt: skip
def test_one_picture_of_several_tags_is_one_candidate(body: str) -> None:
    found = chosen(NEWS % body)
    assert len(found) == 1
    assert "k.jpg" in found[0]
    assert "60" not in found[0]
    assert "w=64" not in found[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.test/up/k-1200x630.jpg", "http://a.test/up/k-800x600.jpg"),
        ("https://a.test/k.jpg?w=1200", "https://a.test/k.jpg"),
        ("https://cdn.b.test/cdn-cgi/image/width=640/https://a.test/up/k.jpg", "https://a.test/up/k.jpg"),
        (
            "https://res.c.test/d/image/upload/w_300,c_fill/k.jpg",
            "https://res.c.test/d/image/upload/c_fit,w_900/k.webp",
        ),
        ("https://w.test/thumb/a/ab/Kite.jpg/220px-Kite.jpg", "https://w.test/thumb/a/ab/Kite.jpg/440px-Kite.jpg"),
        ("https://i.test/max/60/1*EO-pr4RolgcAOj.png?q=20", "https://m.test/v2/1*EO-pr4RolgcAOj.png"),
    ],
)
def test_addresses_of_one_picture_have_one_name(one: str, other: str) -> None:
    assert picture_of(one) == picture_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.test/img/1.jpg", "https://a.test/img/2.jpg"),
        ("https://a.test/DSC_1234.jpg", "https://a.test/DSC_1235.jpg"),
        ("https://a.test/teams/red/k.png", "https://a.test/teams/blue/k.png"),
        ("https://a.test/show.php?id=12", "https://a.test/show.php?id=13"),
        ("https://a.test/photo-1473123456.jpg", "https://a.test/photo-1473123499.jpg"),
    ],
)
def test_addresses_of_two_pictures_have_two_names(one: str, other: str) -> None:
    assert picture_of(one) != picture_of(other)


def test_names_of_pictures_take_no_time_however_they_are_made() -> None:
    for hostile in ("w_" * 900 + "!", "w" * 1_900 + "!", "/-100x" * 300, "%2f" * 600, "k" + "-s" * 900 + "!.jpg"):
        assert all(isinstance(picture_of(f"http://a.test/{hostile}"), str) for _ in range(50))
        assert width_of(hostile) <= 5_000


@pytest.mark.parametrize("address", ["", " null", "undefined", "data:,", "DATA:image/gif;base64,R0", "{}", "#"])
def test_what_is_no_address_of_an_image(address: str) -> None:
    assert is_nothing(address)


def test_an_empty_source_is_not_the_page_itself() -> None:
    found = page(
        NEWS % '<img src="" alt="a logo"><img src="/k.jpg" alt="a red kite">', '<meta property="og:image" content="">'
    )
    assert [row["address"] for row in found.rows] == ["", "http://a.test/k.jpg"]
    assert [row["fails"] for row in found.rows] == [["address", "dominant"], []]


@pytest.mark.parametrize(
    "name",
    ["star-trek-cast.jpg", "pixel-6-review.jpg", "flag-day-parade.jpg", "loading-dock-fire.jpg", "thumbs-up.jpg"],
)
def test_words_of_a_file_or_an_alt_text_are_no_names(name: str) -> None:
    row = page(NEWS % f'<img src="/{name}" alt="Children wave flags and a star at the logo wall">').rows[0]
    assert "name" not in row["features"]
    assert row["fails"] == []


@pytest.mark.parametrize("name", ["logo.png", "site-logo.png", "icons/k.png", "blank.gif", "avatar-12.jpg", "1x1.gif"])
def test_whole_parts_of_the_address_are_names(name: str) -> None:
    assert "name" in page(NEWS % f'<img src="/{name}">').rows[0]["features"]


@pytest.mark.parametrize(
    ("around", "aside"),
    [
        ("elementor-widget elementor-widget-image", False),
        ("has-sidebar", False),
        ("no-sidebar", False),
        ("shareable", False),
        ("adsorption", False),
        ("sidebar", True),
        ("right-sidebar", True),
        ("related-posts", True),
        ("widget widget_text", True),
        ("site-footer", True),
    ],
)
def test_classes_are_read_by_whole_words(around: str, aside: bool) -> None:
    row = page(f'{TEXT}<div class="{around}"><img src="/k.jpg" alt="a red kite"></div>').rows[0]
    assert ("aside" in row["features"]) is aside


def test_a_wrapper_of_the_page_is_no_sidebar() -> None:
    body = f'<div class="sidebar-right"><h1>Kites</h1>{TEXT}<figure><img src="/k.jpg" alt="a red kite"></figure></div>'
    assert chosen(body) == ["http://a.test/k.jpg"]


def test_the_picture_that_a_page_shares_leads_a_list_and_two_figures() -> None:
    items = "".join(f'<li><img src="/up/{name}-800x600.jpg" alt="a kite {name}"></li>' for name in "abcd")
    shared = '<meta property="og:image" content="https://cdn.a.test/up/c-1200x630.jpg?v=2">'
    assert chosen(f"{TEXT}<ul>{items}</ul>", shared) == ["http://a.test/up/c-800x600.jpg"]
    two = NEWS % '<figure><img src="/one.jpg" alt="a"></figure><p>and</p><figure><img src="/two.jpg" alt="b"></figure>'
    assert chosen(two) == ["http://a.test/one.jpg"]
    assert chosen(two, '<meta name="twitter:image" content="/two.jpg">') == ["http://a.test/two.jpg"]


def test_an_itemprop_of_every_picture_chooses_none_of_them() -> None:
    """As on a newspaper's page, whose first picture, above the text, is in no figure."""
    items = [
        f'<figure class="item"><img itemprop="contentUrl" src="/up/{name}.jpg" alt="a kite {name}"></figure>{TEXT}'
        for name in "abcd"
    ]
    first = '<div class="media"><img itemprop="contentUrl" src="/first.jpg" alt="a red kite over the sea"></div>'
    assert chosen(NEWS % "".join([first, *items])) == ["http://a.test/first.jpg"]
    for count, are_chosen in ((2, True), (3, False)):
        rows = page(NEWS % "".join(items[:count])).rows
        assert ["shared" in row["features"] for row in rows] == [are_chosen] * count
    one = '<img itemprop="contentUrl" src="/k.jpg" alt="a kite"><figure><img src="/l.jpg" alt="a boat"></figure>'
    assert chosen(NEWS % one) == ["http://a.test/k.jpg"]


LD = '<script type="application/ld+json">%s</script>'


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:image" content="/k.jpg"><meta property="og:image:alt" content="a red kite above">',
        LD % '{"@type":"NewsArticle","image":{"@type":"ImageObject","url":"/k.jpg","caption":"a red kite above"}}',
        LD % '{"@graph":[{"@type":"Organization","image":"/logo.png"},{"@type":["Recipe"],"image":["/k.jpg"]}]}'
        + '<meta property="og:title" content="a red kite above">',
    ],
    ids=["og", "article", "graph"],
)  # fmt: skip
def test_a_picture_that_only_metadata_name_is_taken_with_their_texts(head: str) -> None:
    found = page(NEWS % '<img src="/logo.png">', head)
    assert [row["address"] for row in found.rows if not row["fails"]] == ["http://a.test/k.jpg"]
    assert found.rows[-1]["texts"][0]["text"] == "a red kite above"


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:image" content="/images/default-share.png">',
        LD % '{"@type":"Organization","image":"/k.jpg"}',
        LD % ("[" * 5_000),
        LD % '{"image": [null, 7, {"url": []}]}',
    ],
)
def test_a_picture_of_the_site_and_broken_metadata_name_none(head: str) -> None:
    assert [row["address"] for row in page(NEWS % '<img src="/logo.png">', head).rows if not row["fails"]] == []


def test_names_of_a_declared_english_page_do_not_drop_it() -> None:
    names = "<p>Nnamdi Azikiwe and Chukwuemeka Ojukwu met President Goodluck Jonathan, Olusegun Obasanjo in Enugu.</p>"
    long = names + "<p>They talked about the roads of the state, and then they went home by the evening train.</p>" * 6
    assert page(names + long).verdict == ""
    assert page(long, lang="").verdict == ""


CAPTIONED = (
    '<div><div class="media"><img src="/k.jpg" width="600" height="400"></div>'
    '<p class="wp-caption-text">A red kite flies.</p></div>'
)


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (CAPTIONED, [("figcaption", "A red kite flies.")]),
        ('<div class="share-bar">Share it with all your friends.</div><img src="/k.jpg"><p>A red kite flies.</p>',
         [("near", "A red kite flies.")]),
        ('<p><a href="/b">One story of other people.</a> <a href="/c">Another of them.</a></p><img src="/k.jpg">'
         "<p>Mr. Kerr flew a kite in the U.S. capital. It rained.</p>",
         [("near", "Mr. Kerr flew a kite in the U.S. capital.")]),
    ],
    ids=["caption", "share", "links"],
)  # fmt: skip
def test_texts_are_read_by_block(body: str, texts: list[tuple[str, str]]) -> None:
    row = page(f"<main><h1>Kites</h1>{body}</main><p>{TEXT}</p>").rows[0]
    assert [(text["kind"], text["text"]) for text in row["texts"] if text["kind"] != "title"][: len(texts)] == texts
