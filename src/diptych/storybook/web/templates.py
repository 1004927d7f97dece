# ruff: noqa: E501
"""Twelve ways in which pages are built. Rules and weights of mining were set on the first six; the others are held out."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class PageParts:
    """What a page is made of, as HTML. `picture` is its <img>, `caption` what its figcaption says, `before` a sentence."""

    host: str
    title: str
    paragraphs: tuple[str, ...]
    picture: str
    caption: str
    before: str
    thumbs: tuple[str, ...]  # <img>s of other pages' pictures
    shared: str  # its address, for og:image
    sides: tuple[int, int]
    head: str = ""  # robots, base, ...
    lang: str = ""


def _sized(parts: PageParts, classes: str = "", sized: bool = True) -> str:
    width, height = parts.sides
    sides = f' width="{width}" height="{height}"' if sized else ""
    return parts.picture.replace("<img", f"<img{sides}{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}", 1)


def _figure(parts: PageParts, inner: str, classes: str = "") -> str:
    if not parts.picture:
        return ""
    if not parts.caption:
        return inner
    named = f' class="{classes}"' if classes else ""
    return f"<figure{named}>{inner}<figcaption>{escape(parts.caption)}</figcaption></figure>"


def _text(parts: PageParts, start: int, end: int) -> str:
    return "".join(f"<p>{escape(one)}</p>" for one in parts.paragraphs[start:end])


def _before(parts: PageParts, tag: str = "p") -> str:
    return f"<{tag}>{escape(parts.before)}</{tag}>" if parts.before else ""


def _page(parts: PageParts, head: str, body: str) -> str:
    lang = f' lang="{parts.lang}"' if parts.lang else ""
    return (
        f'<!doctype html>\n<html{lang}><head><meta charset="utf-8"><title>{escape(parts.title)}</title>{parts.head}{head}'
        f"</head>\n<body>{body}</body></html>\n"
    )


def article(p: PageParts) -> str:
    """A news page with HTML5's tags and an address for sharing."""
    head = f'<meta property="og:image" content="{p.shared}">' if p.picture else ""
    return _page(p, head, (
        f'<header><a href="/"><img src="/logo.png" alt="{p.host} logo"></a><nav><a href="/a">News</a> <a href="/b">Sport</a></nav>'
        f"</header><main><article><h1>{escape(p.title)}</h1>{_text(p, 0, 2)}{_before(p)}{_figure(p, _sized(p))}{_text(p, 2, 4)}"
        f"</article></main><aside><h2>More</h2>{''.join(f'<a href=/x>{t}</a>' for t in p.thumbs)}</aside>"
        f'<footer><img src="/footer-badge.png" width="88" height="31" alt=""></footer>'
    ))  # fmt: skip


def weblog(p: PageParts) -> str:
    """As WordPress does: a featured picture, avatars of those who comment."""
    avatars = "".join(
        f'<li class="comment"><img class="avatar" src="/avatar{n}.jpg" width="48" height="48"><p>Nice, thanks.</p></li>'
        for n in range(4)
    )
    return _page(p, '<meta name="generator" content="WordPress 6.4">', (
        f'<div id="page"><div id="masthead"><img class="custom-logo" src="/wp-content/logo.png" width="180" height="60"></div>'
        f'<div id="content"><div class="post hentry"><h1 class="entry-title">{escape(p.title)}</h1><div class="entry-content">'
        f"{_text(p, 0, 1)}{_before(p)}{_figure(p, _sized(p, 'wp-image-12 size-large'), 'wp-block-image')}{_text(p, 1, 4)}</div></div>"
        f'<ol class="comment-list">{avatars}</ol></div><div id="secondary" class="widget-area"><div class="widget">'
        f'{"".join(p.thumbs)}</div></div></div>'
    ))  # fmt: skip


def photo_page(p: PageParts) -> str:
    """Little but the picture."""
    return _page(p, "", (
        f'<div class="top"><a href="/"><img src="/icons/home.png" alt="home" width="24" height="24"></a></div><div class="photo">'
        f"{_before(p)}{_figure(p, _sized(p, sized=False))}</div><div class=text>{_text(p, 0, 3)}</div>"
    ))  # fmt: skip


def wiki(p: PageParts) -> str:
    """An encyclopaedia: the picture in a box that floats, icons in the margin."""
    return _page(p, "", (
        f'<div id="mw-head"><img src="/static/images/icons/wiki.png" width="50" height="50" alt=""></div><div id="content" role="main">'
        f'<h1>{escape(p.title)}</h1><div class="thumb tright"><div class="thumbinner">{_before(p, "div")}'
        f'<a href="/File:x.jpg">{_figure(p, _sized(p, "thumbimage"))}</a></div></div>{_text(p, 0, 4)}</div>'
        f'<div id="footer"><ul><li><img src="/static/poweredby.png" width="88" height="31" alt="Powered by"></li></ul></div>'
    ))  # fmt: skip


def old_table(p: PageParts) -> str:
    """A page of 1999: tables, no tag with a meaning."""
    return _page(p, "", (
        f'<table width="100%"><tr><td colspan="2"><img src="/banner.gif" width="468" height="60" alt="banner"></td></tr><tr>'
        f'<td width="120"><a href="/1"><img src="/button1.gif" width="100" height="20"></a><br><a href="/2"><img src="/button2.gif" '
        f'width="100" height="20"></a></td><td><font size="5">{escape(p.title)}</font>{_text(p, 0, 2)}{_before(p)}<center>'
        f'{_figure(p, _sized(p))}</center>{_text(p, 2, 4)}<img src="/counter.gif" width="90" height="20"></td></tr></table>'
    ))  # fmt: skip


def travel(p: PageParts) -> str:
    """A story with a large picture on top and a strip of small ones that lead elsewhere."""
    strip = "".join(f'<li class="card"><a href="/t{n}">{t}<span>More</span></a></li>' for n, t in enumerate(p.thumbs))
    return _page(p, "", (
        f'<header class="site"><img src="/img/logo.svg" class="logo" alt=""></header><section class="story"><div class="hero-image">'
        f'{_before(p)}{_figure(p, _sized(p, "hero", sized=False))}</div><h1>{escape(p.title)}</h1>{_text(p, 0, 4)}</section>'
        f'<section class="related"><h3>Related</h3><ul>{strip}</ul></section><footer>{escape(p.host)}</footer>'
    ))  # fmt: skip


def shop(p: PageParts) -> str:
    """A product: one large picture, others of the range below."""
    range_ = "".join(
        f'<div class="product-item"><a href="/i{n}">{t}</a><span>Product</span></div>' for n, t in enumerate(p.thumbs)
    )
    return _page(p, "", (
        f'<div class="nav-bar"><img src="/assets/brand-logo.png" height="40"></div><div class="product"><div class="product-gallery">'
        f'{_before(p, "div")}<div class="product-main">{_figure(p, _sized(p, "product-photo"))}</div></div><div class="product-info"><h1>'
        f'{escape(p.title)}</h1><div itemprop="description">{_text(p, 0, 3)}</div><button><img src="/assets/cart.png" width="16" '
        f'height="16" alt="cart"></button></div></div><div class="you-may-like">{range_}</div>'
    ))  # fmt: skip


def forum(p: PageParts) -> str:
    """A thread: the first post shows the picture; everyone has a small portrait."""
    posts = "".join(
        f'<div class="message"><div class="user"><img src="/u/{n}.png" width="96" height="96" alt="user{n}"></div><div class="body">'
        f"<p>{escape(one)}</p></div></div>"
        for n, one in enumerate(p.paragraphs[2:4])
    )
    return _page(p, "", (
        f'<h2 class="thread-title">{escape(p.title)}</h2><div class="message first"><div class="user"><img src="/u/op.png" width="96" '
        f'height="96" alt="op"></div><div class="body">{_text(p, 0, 2)}{_before(p)}{_figure(p, _sized(p, "bbCodeImage", sized=False))}'
        f"<p>{escape(p.paragraphs[1])}</p></div></div>{posts}<div class=footer><img src=/rss.gif></div>"
    ))  # fmt: skip


def recipe(p: PageParts) -> str:
    """Schema.org's itemprop, a list of steps, badges."""
    steps = "".join(f"<li>{escape(one)}</li>" for one in p.paragraphs[1:3])
    return _page(p, "", (
        f'<div itemscope itemtype="http://schema.org/Article"><h1 itemprop="name">{escape(p.title)}</h1><div class="stars"><img '
        f'src="/i/star.png"><img src="/i/star.png"><img src="/i/star.png"></div><p>{escape(p.paragraphs[0])}</p>{_before(p)}'
        f'{_figure(p, _sized(p).replace("<img", "<img itemprop=" + chr(34) + "image" + chr(34), 1))}<ol>{steps}</ol>'
        f'<p>{escape(p.paragraphs[3])}</p></div><div class="partners">{"".join(p.thumbs)}</div>'
    ))  # fmt: skip


def framework(p: PageParts) -> str:
    """What a build tool leaves: divs with class names that say nothing, pictures without sides."""
    cards = "".join(
        f'<div class="sc-b9x"><div class="sc-k2l"><a href="/c{n}">{t}</a></div></div>' for n, t in enumerate(p.thumbs)
    )
    return _page(p, '<script>window.__DATA__={"image":"/x.jpg"}</script>', (
        f'<div id="__next"><div class="sc-a1f"><div class="sc-q7"><img src="/_next/static/logo.4f2.svg" alt="logo"></div></div>'
        f'<div class="sc-c3d"><div class="sc-h1">{escape(p.title)}</div><div class="sc-d4e">{_text(p, 0, 1)}{_before(p)}'
        f'<div class="sc-e5f"><span class="sc-f6">{_figure(p, _sized(p, "sc-g7", sized=False))}</span></div>{_text(p, 1, 4)}</div></div>'
        f'<div class="sc-z9">{cards}</div></div>'
    ))  # fmt: skip


def mobile(p: PageParts) -> str:
    """AMP: its own tag for pictures."""
    picture = _sized(p).replace("<img", '<amp-img layout="responsive"', 1)
    picture = f"{picture}</amp-img>" if p.picture else ""
    return _page(p, '<script async src="https://cdn.ampproject.org/v0.js"></script>', (
        f'<header><amp-img src="/amp-logo.png" width="120" height="30" alt="logo"></amp-img></header><div class="amp-article"><h1>'
        f'{escape(p.title)}</h1>{_text(p, 0, 1)}{_before(p)}{_figure(p, picture)}{_text(p, 1, 4)}</div><div class="amp-more">'
        f'{"".join(p.thumbs)}</div>'
    ))  # fmt: skip


def plain(p: PageParts) -> str:
    """What a converter makes of Markdown: paragraphs, and a picture in one of them."""
    inner = _figure(p, _sized(p, sized=False))
    return _page(p, "", (
        f'<h1>{escape(p.title)}</h1>{_text(p, 0, 2)}{_before(p)}<p>{inner}</p>{_text(p, 2, 4)}<hr><p>Built with <a href="/g"><img '
        f'src="/generator-badge.svg" alt="generator badge"></a></p>'
    ))  # fmt: skip


TEMPLATES: tuple[Callable[[PageParts], str], ...] = (
    article, shop, weblog, forum, photo_page, recipe, wiki, framework, old_table, mobile, travel, plain,
)  # fmt: skip
HELD_OUT = frozenset({"shop", "forum", "recipe", "framework", "mobile", "plain"})
