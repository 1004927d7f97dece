# ruff: noqa: E501  # a table of HTML
"""Measure how well the mining rules find the lead image on templates of modern pages, whose truth is known.

There are twelve templates of our own, each with random words and addresses: React with <noscript>, lazy WordPress,
Elementor, AMP, JSON-LD, a wiki's infobox, a shop, og:image alone, a CSS background, Medium, two figures, <picture>. The
same person wrote the templates and the rules. So the figures show which constructions are read, not how often they
occur on the web.
"""

from __future__ import annotations

import argparse
import json
from random import Random
from typing import Any

from diptych_mine.pages.pages import read_page, settle
from diptych_mine.pages.texts import Vocabularies
from diptych_mine.settings import MiningSettings
from experiments.figures import save

DATA = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
PROSE = (
    "We had planned this trip for months, and then all of it came otherwise.",
    "The weather changed in the afternoon, so everybody went home by the evening train.",
    "None in the town could say who had built the tower, or why it was left alone.",
    "In the morning the market was full of people who talked about the price of bread.",
)
NOISE = """<header class="site-header"><a href="/"><img src="/assets/logo.svg" alt="Site"></a></header>
<aside class="sidebar"><div class="widget"><img src="/ads/side-300x250.jpg" width="300" height="250"></div></aside>"""
RELATED = '<div class="related-posts"><ul>{}</ul></div>'
OG = '<meta property="og:image" content="{site}/up/{k}-1200x630.jpg"><meta property="og:title" content="{alt}">'
# Head and body of each template. {k} is the name of the lead image, {alt} its caption, {a} and {b} name other images.
TEMPLATES = {
    "react": ("", '<main><h1>{t}</h1><span style="box-sizing:border-box"><img src="{data}" alt="{alt}" data-nimg="1"><noscript>'
              '<img src="/_next/image?url=%2Fup%2F{k}.jpg&amp;w=1920&amp;q=75" alt="{alt}"></noscript></span>{p}</main>'),
    "wordpress": ("", '<main class="has-sidebar"><article class="post"><h1>{t}</h1><div class="post-thumbnail"><img class="lazy" '
                  'src="/grey.gif" data-lazy-src="/up/{k}-1024x683.jpg" width="1024" height="683" alt="{alt}"><noscript>'
                  '<img src="/up/{k}-1024x683.jpg" alt="{alt}"></noscript></div>{p}</article></main>'),
    "elementor": ("", '<div class="elementor"><section class="elementor-section"><div class="elementor-widget elementor-widget-image">'
                  '<img src="/up/{k}-1024x683.jpg" width="1024" height="683" class="attachment-large" alt="{alt}"></div>'
                  '<div class="elementor-widget-text-editor"><h1>{t}</h1>{p}</div></section></div>'),
    "amp": ("", '<article><h1>{t}</h1><figure><amp-img src="/up/{k}.jpg" width="1200" height="800" layout="responsive" alt="{alt}">'
            "</amp-img><figcaption>{alt}</figcaption></figure>{p}</article>"),
    "json-ld": ('<script type="application/ld+json">{{"@type":"NewsArticle","headline":"{t}","image":{{"@type":"ImageObject",'
                '"url":"{site}/up/{k}.jpg","caption":"{alt}"}}}}</script>', "<div id=root><h1>{t}</h1>{p}</div>"),
    "infobox": ("", '<div id="content"><h1>{t}</h1><table class="infobox vcard"><tr><td><a href="/wiki/File:{k}.jpg"><img alt="{alt}" '
                'src="/thumb/a/ab/{k}.jpg/220px-{k}.jpg" width="220" height="293"></a></td></tr></table>{p}'
                '<img src="/icons/edit.svg" width="20" height="20"></div>'),
    "shop": (OG, '<main><div class="product-gallery"><img src="/up/{k}-800x800.jpg" alt="{alt}" width="800" height="800"></div><div '
             'class="thumbs"><img src="/up/{k}-100x100.jpg" width="100" height="100"><img src="/up/{a}-100x100.jpg" width="100" '
             'height="100"><img src="/up/{b}-100x100.jpg" width="100" height="100"></div><h1>{t}</h1>{p}</main>'),
    "og only": (OG, "<main><h1>{t}</h1>{p}</main>"),
    "background": ("", '<main><div class="hero" role="img" aria-label="{alt}" title="{alt}" style="background-image:url(/up/{k}.jpg)">'
                   "</div><h1>{t}</h1>{p}</main>"),
    "medium": ("", '<article><h1>{t}</h1><figure><div><img src="/max/60/1*{k}abcdef.jpg?q=20" width="60" height="40"></div><div><img '
               'src="/max/1200/1*{k}abcdef.jpg" width="1200" height="800"></div><figcaption>{alt}</figcaption></figure>{p}</article>'),
    "two figures": (OG, '<article><h1>{t}</h1><figure><img src="/up/{k}-800x600.jpg"><figcaption>{alt}</figcaption></figure>{p}'
                    '<figure><img src="/up/{a}-800x600.jpg"><figcaption>Another picture here</figcaption></figure></article>'),
    "picture": ("", '<main><h1>{t}</h1><picture class="lead-image"><source srcset="/up/{k}-640.webp 640w, /up/{k}-1280.webp 1280w">'
                '<img src="{data}" alt="{alt}"></picture>{p}</main>'),
}  # fmt: skip


def page_of(name: str, rng: Random) -> tuple[str, str]:
    """Return a page's HTML, and the name that the address of its lead image contains."""
    key, other, third = (f"{rng.choice(('kite', 'tower', 'market', 'harbour'))}-{rng.randrange(10**5)}q" for _ in "abc")
    alt = f"A {rng.choice(('red', 'blue', 'old'))} {key.partition('-')[0]} near the {rng.choice(('sea', 'river', 'wall'))}"
    about = {
        "k": key, "a": other, "b": third, "alt": alt, "t": f"A story of the {key.partition('-')[0]}", "data": DATA,
        "site": "https://cdn.site.example", "p": "".join(f"<p>{one}</p>" for one in rng.sample(PROSE, 3)),
    }  # fmt: skip
    head, body = (part.format(**about) for part in TEMPLATES[name])
    related = "".join(
        f'<li><a href="/{n}"><img src="/up/more-{rng.randrange(10**5)}-150x150.jpg"></a></li>' for n in range(4)
    )
    parts = [body, NOISE] if rng.random() < 0.5 else [NOISE, body]
    if rng.random() < 0.5:
        parts.append(RELATED.format(related))
    language = rng.choice((' lang="en"', ' lang="en-GB"', ""))
    return f"<html{language}><head><title>{about['t']}</title>{head}</head><body>{''.join(parts)}</body></html>", key


def figures(pages: int) -> dict[str, dict[str, float]]:
    """Return the precision and recall of the lead image by template, in percent. An image counts as found if it breaks
    no rule."""
    settings, words, table = MiningSettings(), Vocabularies.of(None, None), dict[str, dict[str, float]]()
    for name in TEMPLATES:
        right = wrong = 0
        for number in range(pages):
            html, key = page_of(name, Random(f"{name} {number}"))
            page = read_page(f"http://site{number}.example/story", html.encode(), settings, words)
            settle([page], settings, words)
            chosen = [row["address"] for row in page.rows if not row["fails"]]
            right += any(key in one for one in chosen)
            wrong += sum(key not in one for one in chosen)
        precision = 100 * right / (right + wrong) if right + wrong else 0.0
        table[name] = {"pages": pages, "precision": round(precision, 1), "recall": round(100 * right / pages, 1)}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40, help="Pages of each template.")
    table: dict[str, Any] = figures(parser.parse_args().pages)
    save("page_templates", "uv run python -m experiments.page_templates", table)
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
