"""Texts of an image are those that a browser shows beside it, and no others."""

import pytest

from diptych_mine.pages.texts import clean
from diptych_mine.settings import MiningSettings, changed
from tests.support.web_pages import TEXT, page

IMAGE = '<img src="/one.jpg" width="600" height="400">'
OTHER = '<img src="/two.jpg" width="300" height="200">'
SHOWN = "Barack Obama's dog (Canis lupus) drinks H2O by the White House"
MARKUP = (
    "<style>.css-1{color:red}</style><a href=/x>Barack Obama</a>'s dog (<i>Canis lupus</i>)<br>drinks H<sub>2</sub>O "
    "by the <b><em>W</em>h</b>ite House<script>var a=1;</script><noscript>Please enable JavaScript</noscript>"
    "<template>a template</template>"
)
SILENT_LAST = MARKUP.replace("<style>.css-1{color:red}</style>", "").replace("<script>var a=1;</script>", "")


def texts_of(body: str, name: str = "one.jpg") -> list[tuple[str, str]]:
    """All images have their texts here, not only the dominant one."""
    settings = changed(MiningSettings(), ["rules.dominant=off"])
    rows = page(f"<article><h1>A title</h1>{body}{TEXT}</article>", settings=settings).rows
    return [(t["kind"], t["text"]) for row in rows if row["address"].endswith(name) for t in row["texts"]]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (f"<figure>{IMAGE}<figcaption>{MARKUP}</figcaption></figure>", "figcaption"),
        (f"<figure>{IMAGE}<div><figcaption><p>{MARKUP}</p></figcaption></div></figure>", "figcaption"),
        (f'<div>{IMAGE}<p class="wp-caption-text">{MARKUP}</p></div>', "figcaption"),
        (f"<div>{IMAGE}</div><p>{SILENT_LAST}</p>", "near"),
        (f"<div>{IMAGE}{MARKUP}</div>", "near"),
        (f"<div>{MARKUP}{IMAGE}</div>", "near"),
        (f"<div><p>{SILENT_LAST}</p></div><div>{IMAGE}</div>", "near"),
    ],
)
def test_a_text_is_read_as_it_is_shown(body: str, kind: str) -> None:
    assert texts_of(body)[0] == (kind, SHOWN)


def test_blocks_and_line_breaks_separate_words() -> None:
    caption = "<div>A brown dog</div><p>runs<br>in</p><ul><li>the</li><li>green</li></ul>park"
    assert texts_of(f"<figure>{IMAGE}<figcaption>{caption}</figcaption></figure>")[0] == (
        "figcaption", "A brown dog runs in the green park"
    )  # fmt: skip


@pytest.mark.parametrize("own", ["<figcaption>{}</figcaption>", '<p class="caption">{}</p>'])
def test_a_figure_inside_a_figure_keeps_its_caption(own: str) -> None:
    inner = f'<figure>{OTHER}<figcaption class="caption">The second tiny picture of a bird</figcaption></figure>'
    body = f"<figure>{IMAGE}{inner}<div>{own.format('The first large picture of a dog')}</div></figure>"
    assert texts_of(body)[0] == ("figcaption", "The first large picture of a dog")
    assert texts_of(f"<figure>{IMAGE}{inner}</figure>")[:1] == [("near", TEXT[3:-4])]


def test_a_caption_block_of_another_image_is_not_taken() -> None:
    row = f'<div>{IMAGE}</div><div>{OTHER}<p class="caption">A grey cat sits on the red sofa</p></div>'
    assert texts_of(f"<div>{row}</div>")[:1] == [("near", TEXT[3:-4])]


@pytest.mark.parametrize(
    "other",
    [
        f"<figure>{OTHER}<figcaption>A grey cat sits on the red sofa</figcaption></figure>",
        f"{OTHER}<p>A grey cat sits on the red sofa</p>",
        "<amp-img src=/two.jpg></amp-img><p>A grey cat sits on the red sofa</p>",
    ],
)
def test_a_sentence_next_to_another_image_is_not_taken(other: str) -> None:
    assert texts_of(f"<div>{IMAGE}</div><div>{other}</div>") == []
    assert texts_of(f"<div>{other}</div><div>{IMAGE}</div><p>A red kite flies.</p>") == [("near", "A red kite flies.")]


def test_raised_digits_do_not_join_a_number() -> None:
    caption = "A lake of 10<sup>2</sup> km in the green park since 1990<sup><a href=#n>3</a></sup>, the 5<sup>th</sup>"
    assert texts_of(f"<figure>{IMAGE}<figcaption>{caption}</figcaption></figure>")[0] == (
        "figcaption", "A lake of 10² km in the green park since 1990³, the 5th"
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "A dog eats 2½ bowls of 10² km", "Snow where 3 < 5 and cats > dogs in the park", "a <3 of dogs > cats",
        "It´s a dog on 2① of 10 ㎡", "CO₂ in the park",
    ],
)  # fmt: skip
def test_cleaning_leaves_numbers_and_signs(text: str) -> None:
    assert clean(text) == text
    assert texts_of(IMAGE.replace("src", f'alt="{text}" src'))[0] == ("alt", text)


def test_cleaning_folds_letters_and_takes_out_tags() -> None:
    assert clean("ｆｕｌｌ ﬁne １２ \u00a0Ⅳ") == "full fine 12 IV"
    assert clean("<!-- a --><p class=x>The <B>W</B>hite House's CO<sub>2</sub></p><br/>10<sup>2</sup> km") == (
        "The White House's CO2 10 2 km"
    )


def test_entities_are_read_once() -> None:
    """The parser of HTML has decoded the texts of tags. In JSON and TSV, entities may still be there."""
    assert texts_of(IMAGE.replace("src", 'alt="fish &amp;notes of &amp;amp; a dog" src'))[0][1] == (
        "fish &notes of &amp; a dog"
    )
    assert clean("fish &notes &amp; a dog&#8217;s &frac12;") == "fish &notes & a dog’s ½"
    script = '{"@type": "Article", "image": {"url": "/one.jpg", "caption": "Tom &amp; Jerry &notes on a hill"}}'
    body = f'<script type="application/ld+json">{script}</script>{IMAGE}'
    assert texts_of(body)[0] == ("figcaption", "Tom & Jerry &notes on a hill")
