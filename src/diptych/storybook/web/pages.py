"""A case as HTML, and where its picture is to be had."""

from html import escape
from posixpath import dirname, relpath
from random import Random

from diptych.storybook.web.plan import PageCase, true_caption
from diptych.storybook.web.templates import TEMPLATES, PageParts

PLACEHOLDER = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
IN_GALLERY = 9
OTHER_NAMES = {"metadata": "/moved", "loop": "/loop", "chain_5": "/chain5", "chain_6": "/chain6", "robots": "/closed"}
BUILD = {template.__name__: template for template in TEMPLATES}


def picture_address(case: PageCase, number: int | None = None) -> str:
    """Of its picture, or of one of its gallery's."""
    host = "rebinding.test" if case.picture == "rebinding" else case.host
    folder = OTHER_NAMES.get(case.picture, "/img")
    part = "" if number is None else f"-{number}"
    return f"http://{host}{folder}/{case.number:05d}{part}.{_ending(case)}"


def _ending(case: PageCase) -> str:
    ending: str = {"chart": "png", "text": "png", "svg": "svg", "animated": "gif", "bomb": "png"}.get(
        case.picture, "jpg"
    )
    return ending


def html_of(case: PageCase, seed: int) -> str:
    alt = case.texts.get("alt", ("", False, None))[0]
    title = case.texts.get("title", ("", False, None))[0]
    caption = case.texts.get("figcaption", ("", False, None))[0]
    near = case.texts.get("near", ("", False, None))[0]
    side = case.zoom * 160
    head = '<meta name="robots" content="noai, noimageai">' if case.page == "opt_out" else ""
    address, base = picture_address(case), ""
    if case.source == "base":
        base, _, _ = address.rpartition("/")
        head += f'<base href="{base}/">'
    has_picture = case.page not in ("gallery", "no_picture")
    parts = PageParts(
        case.host, case.title, case.paragraphs, _tag(case, address, alt, title) if has_picture else "", caption, near,
        tuple(f'<img src="/thumbs/{case.number + n}.jpg" alt="" width="150" height="150">' for n in range(1, 5)),
        address, (side, side), head, case.declared or "",
    )  # fmt: skip
    page = BUILD[case.template](parts)
    return page.replace("<p>", f"{_gallery(case, seed)}<p>", 1) if case.page == "gallery" else page


def _tag(case: PageCase, address: str, alt: str, title: str) -> str:
    title_attribute = f' title="{escape(title)}"' if title else ""
    rest = f'alt="{escape(alt)}"{title_attribute}'
    match case.source:
        case "lazy":
            return f'<img src="{PLACEHOLDER}" data-src="{address}" {rest} loading="lazy">'
        case "srcset":
            return (
                f'<img src="/thumbs/{case.number}.jpg" srcset="/thumbs/{case.number}.jpg 150w, {address} 640w" {rest}>'
            )
        case "base":
            return f'<img src="{address.rpartition("/")[2]}" {rest}>'
        case "relative" if case.picture != "rebinding":
            path = address.split(case.host, 1)[1]
            return f'<img src="{relpath(path, dirname(case.path))}" {rest}>'
        case "picture":
            return f'<picture><source srcset="{address}" type="image/webp"><img src="{address}" {rest}></picture>'
        case _:
            return f'<img src="{address}" {rest}>'


def _gallery(case: PageCase, seed: int) -> str:
    rng = Random(f"gallery {seed} {case.number}")
    items = "".join(
        f'<li class="item"><a href="/view/{n}"><img src="{picture_address(case, n)}" width="480" height="480" '
        f'alt="{escape(true_caption(rng, seed, case.scene + n))}"></a></li>'
        for n in range(IN_GALLERY)
    )
    return f'<ul class="pictures">{items}</ul>'
