"""The tags of a picture that loads late are one candidate, with the address of the picture itself."""

import time

import pytest

from diptych_mine.pages.addresses import is_nothing, sources
from tests.support.candidates import NEWS, chosen
from tests.support.web_pages import page

ALT = 'alt="a red kite over a beach"'
SIZED = f'{ALT} width="520" height="400"'
TINY = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP"
LATE = [
    f'<img {SIZED}><img src="/k.jpg" {SIZED}>',
    f'<img src="" {SIZED}><img src="/k.jpg" {SIZED}>',
    f'<img src="#" {SIZED}><img src="/k.jpg" {SIZED}>',
    f'<img src="y.html" {SIZED}><img src="/k.jpg" {SIZED}>',
    f'<img src="{{{{ image.url }}}}" {SIZED}><img src="/k.jpg" {SIZED}>',
    f'<img src="/tiny.jpg?q=20" {SIZED}><img {SIZED}><noscript><img src="/k.jpg" {SIZED}></noscript>',
    f'<div><img src="/m/1.jpg" {ALT}></div><!-- a --><canvas></canvas><noscript><img src="/k.jpg" {SIZED}></noscript>',
    f'<div><img src="/k-lqip.jpg" {ALT}></div><div><img {SIZED}></div><noscript><img src="/k.jpg" {SIZED}></noscript>',
    f'<img src="{TINY}" {SIZED}><noscript><img src="/k.jpg" {SIZED}></noscript>',
    f'<img src="/o.blur.jpg" alt=""><img data-src="/k.jpg" {SIZED}>',
    f'<img data-src="/k.jpg" {SIZED}><img src="/preview_9.jpg" {ALT}>',
    f'<img src="/w.jpg?w=20" {ALT}><img src="/b.jpg" {ALT}><noscript><img src="/k.jpg" {SIZED}></noscript>',
    f'<img src="/k.jpg" {SIZED}><noscript><img src="https://count.test/p.gif" width="1" height="1"></noscript>',
    f'<picture><source data-srcset="/k.jpg 900w" type="image/jpeg"><img src="{TINY}" {SIZED}></picture>',
    f'<picture><source srcset="{TINY}" data-src="/k.jpg"><img src="/spacer.png" {SIZED}></picture>',
    f'<picture><source data-lazy-srcset="/s.jpg 90w, /k.jpg 900w"><img src="/loading.svg" {SIZED}></picture>',
    f'<picture><source srcset="/o.avif" type="image/avif"><source srcset="/k.jpg"><img {SIZED}></picture>',
    f'<img src="/k.jpg" data-url="/share/photo-of-the-day" {SIZED}>',
    f'<img src="/k.jpg" data-url="https://a.test/post.html" data-image="4711" data-lazy="true" {SIZED}>',
    f'<img src="/k.jpg" data-src="https://f.test/sharer/?u=1" {SIZED}>',
    f'<img data-url="/share/photo" src="/k.jpg" data-image="/x/y" {SIZED}>',
    f'<img src="/k.jpg" data-src=\'{{"id": 7, "share": "/share/x"}}\' {SIZED}>',
    f'<img src="/grey.gif" data-src=\'{{"share": "/share/x", "url": "\\/k.jpg"}}\' {SIZED}>',
    f'<img data-a-dynamic-image=\'{{"/k.jpg?w=900": [900, 600], "/k.jpg?w=90": [90, 60]}}\' src="{TINY}" {SIZED}>',
    f'<img data-interchange="[/s.jpg, small], [/k.jpg, (large)]" src="/blank.gif" {SIZED}>',
    f'<img data-interchange="[/k.jpg?w=90, small], [/k.jpg?w=900, large], [/k.jpg?w=400, medium]" {SIZED}>',
    f'<img data-interchange="[/k.jpg, (default)], [/part.html, (large)]" src="{TINY}" {SIZED}>',
]  # fmt: skip


SPELLINGS = (
    "data-src", "data-original", "data-original-src", "data-actualsrc", "data-lazy-src", "data-lazy", "data-lazyload",
    "data-url", "data-echo", "data-hi-res-src", "data-image", "data-orig-file", "data-delayed-url", "data-native-src",
    "data-pagespeed-lazy-src", "data-defer-src", "data-img", "data-wood-src", "data-td-src", "data-src-large",
    "data-full-url", "data-srcset", "data-lazy-srcset", "srcset", "lazy-src", "original", "file", "zoomfile",
    "real_src", "_src", "ng-src", "v-lazy", "loadsrc", "data-defer", "data-full", "lazy-srcset", "data-lazy-set",
)  # fmt: skip


@pytest.mark.parametrize("body", LATE, ids=range(len(LATE)))
def test_a_late_picture_is_one_candidate_with_its_address(body: str) -> None:
    (address,) = chosen(NEWS % f"<figure>{body}</figure>")
    assert address.partition("?")[0] == "http://a.test/k.jpg"
    assert not address.endswith("=90")


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("source", ["", "/blank.gif", "/img/placeholder-9.png", TINY, "about:blank"])
def test_every_spelling_is_read(name: str, source: str) -> None:
    assert sources({"src": source, name: " /up/k.jpg"}) == "/up/k.jpg"
    assert sources({"src": source}, [{name: "/up/k.jpg"}]) == "/up/k.jpg"
    assert sources({"src": source, name: "null"}) == source


@pytest.mark.parametrize(
    "name", ["data-thumb", "data-pin-url", "data-share-image", "data-holder-src", "data-href", "alt", "onload"]
)
def test_attributes_of_other_images_are_passed_over(name: str) -> None:
    assert sources({"src": "", name: "/k.jpg"}) == ""
    assert sources({"src": "/p.jpg", name: "/k.jpg"}) == "/p.jpg"


def test_an_image_of_a_program_is_an_address_too() -> None:
    assert sources({"src": "/blank.gif", "data-src": "/image.php?id=5"}) == "/image.php?id=5"
    assert sources({"src": "/image.php?id=5", "data-url": "/posts/5"}) == "/image.php?id=5"
    assert sources({"src": "/s.jpg", "data-src": "/image/5"}) == "/image/5"
    assert is_nothing("blob:http://a.test/5")


def test_two_pictures_side_by_side_stay_two() -> None:
    two = '<figure><img src="/a.jpg" alt="a kite"><img src="/b.jpg" alt="a kite"></figure>'
    small = '<figure><img src="/tiny.jpg" alt="a dog"><img src="/b.jpg" alt="a kite"></figure>'
    for body in (two, small):
        assert all(row["dominant"] is not None for row in page(NEWS % body).rows)
        assert len({row["dominant"] for row in page(NEWS % body).rows}) == 2


def test_what_is_hostile_takes_no_time() -> None:
    start = time.perf_counter()
    assert page("<p><img src=/a.jpg><b><noscript><img src=/b.jpg></noscript></b></p>" * 500).rows
    assert page(f'<img src="/{"tiny." * 390}/" data-{"src" * 300}x="{"[" * 1900}">' * 900).rows
    assert time.perf_counter() - start < 5
