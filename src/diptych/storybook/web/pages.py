"""Pages of the test web as HTML, and the addresses of their pictures."""

from html import escape
from posixpath import dirname, relpath
from random import Random

from diptych.storybook.web.plan import PageCase, true_caption
from diptych.storybook.web.templates import PageParts

PLACEHOLDER = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
IN_GALLERY = 9
_FOLDERS = {"metadata": "/moved", "loop": "/loop", "chain_5": "/chain5", "chain_6": "/chain6", "robots": "/closed"}
_ENDINGS = {"chart": "png", "text": "png", "svg": "svg", "animated": "gif", "bomb": "png"}  # others are "jpg"


def picture_address(case: PageCase, number: int | None = None) -> str:
    """Return the address of the page's picture, or of picture `number` of its gallery."""
    host = "rebinding.test" if case.picture == "rebinding" else case.host
    part = "" if number is None else f"-{number}"
    name = f"{case.number:05d}{part}.{_ENDINGS.get(case.picture, 'jpg')}"
    return f"http://{host}{_FOLDERS.get(case.picture, '/img')}/{name}"


def html_of(case: PageCase, seed: int) -> str:
    """Return the page as HTML."""
    alt, title, caption, near = (
        escape(case.texts[kind][0]) if kind in case.texts else "" for kind in ("alt", "title", "figcaption", "near")
    )
    head = '<meta name="robots" content="noai, noimageai">' if case.page == "opt_out" else ""
    address = picture_address(case)
    if case.source == "base":
        head += f'<base href="{address.rpartition("/")[0]}/">'
    picture = "" if case.page in ("gallery", "no_picture") else _tag(case, address, alt, title)
    thumbs = tuple(f'<img src="/thumbs/{case.number + n}.jpg" alt="" width="150" height="150">' for n in range(1, 5))
    page = PageParts(
        escape(case.host), escape(case.title), tuple(map(escape, case.paragraphs)), picture, caption, near, thumbs,
        address, (case.zoom * 160, case.zoom * 160), head, case.declared or "",
    ).page(case.template)  # fmt: skip
    return page.replace("<p>", f"{_gallery(case, seed)}<p>", 1) if case.page == "gallery" else page


def _tag(case: PageCase, address: str, alt: str, title: str) -> str:
    """Return the <img> in the form of `case.source`; `alt` and `title` are escaped."""
    rest = f'alt="{alt}"' + (f' title="{title}"' if title else "")
    match case.source:
        case "lazy":
            return f'<img src="{PLACEHOLDER}" data-src="{address}" {rest} loading="lazy">'
        case "srcset":
            thumb = f"/thumbs/{case.number}.jpg"
            return f'<img src="{thumb}" srcset="{thumb} 150w, {address} 640w" {rest}>'
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
    """Return a list of IN_GALLERY pictures, each with a true caption as its alt text."""
    rng = Random(f"gallery {seed} {case.number}")
    items = "".join(
        f'<li class="item"><a href="/view/{n}"><img src="{picture_address(case, n)}" width="480" height="480" '
        f'alt="{escape(true_caption(rng, seed, case.scene + n))}"></a></li>'
        for n in range(IN_GALLERY)
    )
    return f'<ul class="pictures">{items}</ul>'
