"""The lead image where real pages differ from the templates: what they share, wrappers, previews, names of folders."""

import time

import pytest

from tests.support.candidates import NEWS, chosen
from tests.support.web_pages import TEXT, page

STEPS = "".join(
    f'{TEXT}<figure><img src="/step{n}.jpg" width="800" height="1200" alt="step {n}"></figure>' for n in "12"
)


def test_the_only_shown_image_that_a_page_shares_leads_larger_ones() -> None:
    recipe = f'<img src="/soup.jpg" alt="a bowl of soup">{STEPS}'
    assert chosen(NEWS % recipe, '<meta property="og:image" content="/soup.jpg">') == ["http://a.test/soup.jpg"]
    assert "http://a.test/soup.jpg" not in chosen(NEWS % recipe)


@pytest.mark.parametrize(
    "shared", ['<img src="/soup.jpg" class="logo">', '<aside><img src="/soup.jpg" width="90" height="90"></aside>']
)
def test_a_shared_logo_or_preview_is_not_trusted(shared: str) -> None:
    figure = '<figure><img src="/k.jpg" width="800" height="600" alt="a red kite"></figure>'
    assert chosen(NEWS % (shared + figure), '<meta property="og:image" content="/soup.jpg">') == ["http://a.test/k.jpg"]


HEAD = f'<main><h1>Kites</h1><img src="/u/anna.jpg" class="rounded" width="240" height="240" alt="Anna">{TEXT}</main>'


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:image" content="https://cdn.test/lead-1200x630.jpg">',
        '<script type="application/ld+json">{"@type":"Article","image":"https://cdn.test/lead-1200x630.jpg"}</script>',
        '<meta property="og:image" content="/fb.jpg">'
        '<meta name="twitter:image" content="//cdn.test/lead-1200x630.jpg">',
    ],
)
def test_an_image_that_only_metadata_name_competes_with_the_head_of_an_author(head: str) -> None:
    (found,) = chosen(HEAD, head)
    assert found.endswith("cdn.test/lead-1200x630.jpg")


@pytest.mark.parametrize(
    "card",
    [
        "/CRN_fb.jpg", "/i/apple-touch-icon.png", "https://opengraph.githubassets.com/1f/a/kites", "/authors/anna.jpg",
        "/headshots/anna-berg.jpg", "/brand/card.png", "/k-96x96.jpg", "/k.svg", "/images/og-card-2020.png",
    ],
)  # fmt: skip
def test_cards_icons_and_heads_of_metadata_lead_no_page(card: str) -> None:
    assert chosen(HEAD, f'<meta property="og:image" content="{card}">') == ["http://a.test/u/anna.jpg"]


def test_an_image_that_metadata_call_small_leads_no_page() -> None:
    size = '<meta property="og:image" content="/k.jpg"><meta property="og:image:width" content="%s">'
    assert chosen(HEAD, size % 90) == ["http://a.test/u/anna.jpg"]
    assert chosen(HEAD, size % 1200) == ["http://a.test/k.jpg"]


def test_a_large_figure_leads_an_image_that_only_metadata_name() -> None:
    figure = '<figure><img src="/k.jpg" width="800" height="600" alt="a red kite"></figure>'
    assert chosen(NEWS % figure, '<meta property="og:image" content="/lead.jpg">') == ["http://a.test/k.jpg"]


LONG = "<p>The council had promised a decision by the end of the month, but the talks went on into the evening.</p>"
FIGURE = '<figure><img src="/k.jpg" alt="a red kite"></figure>'


def test_a_wrapper_of_most_of_the_text_is_no_sidebar() -> None:
    body = f'<div class="l-sidebar-fixed"><div>{FIGURE}{LONG * 4}</div></div>{LONG}'
    assert "aside" not in page(f"<article>{body}</article>").rows[0]["features"]


def test_a_wrapper_of_the_heading_and_half_of_the_paragraphs_is_no_sidebar() -> None:
    body = f'<div class="sidebar-left"><div><h1>Kites</h1></div>{FIGURE}<div>{LONG * 2}</div></div>{LONG * 2}'
    assert "aside" not in page(body).rows[0]["features"]


@pytest.mark.parametrize(
    "body",
    [
        f'{LONG}<div class="comments">{FIGURE}{LONG * 9}</div>',
        f'<div class="sidebar">{FIGURE}<p>More of this.</p></div>{LONG * 3}',
        f'<div class="masthead"><h1>The Daily Kite</h1>{FIGURE}</div>{LONG * 3}',
    ],
    ids=["comments", "sidebar", "masthead"],
)
def test_what_stands_aside_stays_aside(body: str) -> None:
    assert "aside" in page(body).rows[0]["features"]


@pytest.mark.parametrize(
    "small", ["/p/kites.jpg?width=96", "/kites-on-beach-1940-small.jpg?width=96&amp;q=9", "/p/kites-150x150.jpg"]
)
def test_a_preview_takes_the_large_address_that_the_page_shares(small: str) -> None:
    large = small.replace("width=96", "width=1200").replace("-150x150", "-1200x630")
    body = NEWS % f'<figure><img src="{small}" alt="a red kite"></figure>'
    found = chosen(body, f'<meta property="og:image" content="https://c.test{large}">')
    assert found == [f"https://c.test{large.replace('&amp;', '&')}"]


def test_a_large_image_keeps_its_address() -> None:
    body = NEWS % '<figure><img src="/kites-on-beach.jpg?width=1200" alt="a red kite"></figure>'
    head = '<meta property="og:image" content="https://c.test/kites-on-beach.jpg?width=600">'
    assert chosen(body, head) == ["http://a.test/kites-on-beach.jpg?width=1200"]


@pytest.mark.parametrize(
    ("address", "size", "named"),
    [
        ("/news/flags/parliament-2020.jpg", "", False),
        ("/banners/kite.jpg", "", False),
        ("/img/star.jpg", "", False),
        ("/queen-fashion-icon.jpg", "", False),
        ("/logos/kite.jpg", 'width="800" height="600"', False),
        ("/icons/k.png", 'width="300" height="200"', False),
        ("/flags/fr.jpg", 'width="40" height="30"', True),
        ("/flags/fr.png", "", True),
        ("/logos/kite.jpg", "", True),
        ("/site-logo.png", 'width="800" height="600"', True),
    ],
)  # fmt: skip
def test_names_of_folders_and_files_count_for_small_images_or_of_unknown_size(
    address: str, size: str, named: bool
) -> None:
    row = page(NEWS % f'<img src="{address}" {size} alt="a red kite over the beach">').rows[0]
    assert ("name" in row["features"]) is named


def test_an_icon_in_the_words_of_a_photograph_is_no_icon() -> None:
    named = {
        one: page(NEWS % f'<img src="/{one}" alt="Fashion icon">').rows[0]["features"] for one in ("k.jpg", "k.png")
    }
    assert ["name" in one for one in named.values()] == [False, True]


def test_a_srcset_in_the_source_of_a_noscript_is_read() -> None:
    copy = '<noscript><img src="/k-900.jpg 900w, /k-1440.jpg 1440w," alt="a red kite"></noscript>'
    assert chosen(NEWS % f'<figure><img src="/blank.gif">{copy}</figure>') == ["http://a.test/k-1440.jpg"]


def test_nested_wrappers_take_no_more_time_than_other_tags() -> None:
    taken = {}
    for called in ("kite", "sidebar"):
        body = f'<div class="{called}"><img src="/k.jpg"><p>{"</p><p>" * 99}{LONG}' * 200
        start = time.process_time()
        assert len(page(f"<article>{body}").rows) == 200
        taken[called] = time.process_time() - start
    assert taken["sidebar"] < 2 * taken["kite"] + 0.5
