"""Render pages of the test web as HTML, and make the URLs of their pictures."""

from html import escape
from posixpath import dirname, relpath
from random import Random

from diptych_world.web.plan import PageCase, true_caption
from diptych_world.web.templates import PARTS, page

IN_GALLERY = 9
_FOLDERS = {"metadata": "/moved", "loop": "/loop", "chain_5": "/chain5", "chain_6": "/chain6", "robots": "/closed"}
# Kind of picture -> ending of its file. Other kinds have the ending "jpg".
_ENDINGS = {"chart": "png", "text": "png", "svg": "svg", "animated": "gif", "bomb": "png"}


def picture_address(case: PageCase, number: int | None = None) -> str:
    """Return the URL of a page's picture, or of picture `number` in its gallery."""
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
    folder, _, relative = address.rpartition("/")
    if case.source == "base":
        head += f'<base href="{folder}/">'
    if case.source == "relative":  # only a picture on the same host has a relative URL
        inside = case.picture != "rebinding"
        relative = relpath(address.split(case.host, 1)[1], dirname(case.path)) if inside else address
    rest = f'alt="{alt}"' + (f' title="{title}"' if title else "")
    picture = PARTS.tag(case.source, address, relative, f"/thumbs/{case.number}.jpg", rest)
    html = page(
        case.template, host=escape(case.host), title=escape(case.title), paragraphs=[*map(escape, case.paragraphs)],
        picture="" if case.page in ("gallery", "no_picture") else picture, caption=caption, lead=near,
        thumbs=[f'<img src="/thumbs/{case.number + n}.jpg" alt="" width="150" height="150">' for n in range(1, 5)],
        shared=address, side=case.zoom * 160, head=head, lang=case.declared or "",
    )  # fmt: skip
    return html.replace("<p>", f"{_gallery(case, seed)}<p>", 1) if case.page == "gallery" else html


def _gallery(case: PageCase, seed: int) -> str:
    """Return an HTML list of IN_GALLERY pictures. The alt text of each is a true caption."""
    rng = Random(f"gallery {seed} {case.number}")
    items = "".join(
        f'<li class="item"><a href="/view/{n}"><img src="{picture_address(case, n)}" width="480" height="480" '
        f'alt="{escape(true_caption(rng, seed, case.scene + n))}"></a></li>'
        for n in range(IN_GALLERY)
    )
    return f'<ul class="pictures">{items}</ul>'
