"""Measure what the mining rules find on saved pages of the web: lead images, languages, texts, and pages per second.

Each folder has pages and their addresses (addresses.tsv: file TAB address). For the figures of languages it also has
labels made by another library or by a reader (languages.tsv: file TAB language). No page is part of the repository. The
right lead image is the page's own og:image, if an <img> shows it too. The rules read og:image themselves. So the
figures only show whether they find this image among the others. File names are compared by the code of this experiment,
not by the rules.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from diptych_mine.pages.charsets import decoded
from diptych_mine.pages.pages import Page, read_page, settle
from diptych_mine.pages.texts import Vocabularies, english
from diptych_mine.settings import MiningSettings
from experiments.figures import save

_SIZES = re.compile(r"(?:[-_@.](?:\d{2,4}[wx]\d{0,4}|\d{2,4}|scaled|thumb|large|medium|small|[2-4]x))+$", re.I)
_OFF = ("dominant", "opt_out", "language", "address")


def stem(address: str) -> str:
    """Return a file's name without its ending and size, so that resized copies have the same name. Return the path if
    the name is short."""
    path = urlsplit(address).path
    if "url=" in address:
        path = urlsplit(unquote(address.partition("url=")[2].partition("&")[0])).path
    name = _SIZES.sub("", path.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[0].lower())
    return name if len(name) > 4 else path.lower()


def leading(html: str, page: Page) -> str | None:
    """Return `right` if the rules chose the page's og:image, `other` for another image, and `none` for no image. Return
    None if the page is dropped, or if no <img> shows its og:image."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    metas = [node.attributes.get("content") or "" for node in tree.css('meta[property="og:image"]')]
    shared = {stem(urljoin(page.address, one)) for one in metas if one.strip()} - {""}
    shown = {
        stem(urljoin(page.address, part))
        for node in tree.css("img, source")
        for value in node.attributes.values()
        if value and not value.startswith("data:")
        for part in value.split()[:40]
        if "/" in part or "." in part
    }
    if page.verdict or not shared & shown:
        return None
    chosen = [row["address"] for row in page.rows if not set(row["fails"]).intersection(_OFF)]
    return ("right" if any(stem(one) in shared for one in chosen) else "other") if chosen else "none"


def read(folders: list[Path], settings: MiningSettings) -> list[tuple[str, Page, str]]:
    """Return each page with its HTML and its language label (empty without languages.tsv)."""
    pages = []
    for folder in folders:
        languages = folder / "languages.tsv"
        named = dict(line.split("\t") for line in languages.read_text().splitlines()) if languages.exists() else {}
        for line in (folder / "addresses.tsv").read_text("utf-8").splitlines():
            name, address = line.split("\t")
            body = (folder / name).read_bytes()
            page = read_page(address, body, settings, Vocabularies.of(None, None))
            pages.append((decoded(body, None), page, named.get(name, "")))
    settle([page for _, page, _ in pages], settings, Vocabularies.of(None, None))
    return pages


def speed(htmls: list[str], addresses: list[str], rounds: int = 3) -> dict[str, float]:
    """Return the pages read per CPU second, and this rate as a share of the HTML parser's."""
    from selectolax.lexbor import LexborHTMLParser

    bodies, words, settings = [html.encode() for html in htmls], Vocabularies.of(None, None), MiningSettings()
    english()

    def ours() -> None:
        pages = [read_page(*one, settings, words) for one in zip(addresses, bodies, strict=True)]
        settle(pages, settings, words)

    def floor() -> None:
        for body in bodies:
            LexborHTMLParser(body.decode("utf-8", "replace"))

    taken = {}
    for job in (ours, floor):
        times = []
        for _ in range(rounds):
            start = time.process_time()
            job()
            times.append(time.process_time() - start)
        taken[job.__name__] = sorted(times)[rounds // 2]
    return {
        "pages_a_second": round(len(bodies) / taken["ours"]),
        "share_of_floor": round(taken["floor"] / taken["ours"], 3),
    }


def share(count: int, total: int) -> float:
    return round(100 * count / total, 1) if total else 0.0


def figures(pages: list[tuple[str, Page, str]]) -> dict[str, Any]:
    leads = Counter(filter(None, (leading(html, page) for html, page, _ in pages)))
    english_pages = [page for _, page, language in pages if language == "en" and page.verdict != "opt_out"]
    foreign = [page for _, page, language in pages if language not in ("", "en") and page.verdict != "opt_out"]
    kept = [row for _, page, _ in pages for row in page.rows if not row["fails"]]
    kinds = Counter(next(text["kind"] for text in row["texts"] if not text["fails"]) for row in kept)
    words = [len(text["text"].split()) for row in kept for text in row["texts"] if not text["fails"]]
    total = leads.total()
    return {
        "pages": len(pages), "verdicts": dict(Counter(page.verdict or "read" for _, page, _ in pages)),
        "og_image_shown": total, "lead_right": share(leads["right"], total), "lead_other": share(leads["other"], total),
        "lead_none": share(leads["none"], total), "english_pages": len(english_pages),
        "english_lost": share(sum(page.verdict == "language" for page in english_pages), len(english_pages)),
        "foreign_pages": len(foreign),
        "foreign_dropped": share(sum(page.verdict == "language" for page in foreign), len(foreign)),
        "pairs": len(kept), "kinds_of_best_text": dict(kinds),
        "words_a_text": round(sum(words) / max(1, len(words)), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, nargs="+", default=[], help="Folders that the rules were tuned on.")
    parser.add_argument("--held", type=Path, nargs="+", default=[], help="Held-out folders.")
    parser.add_argument("--later", type=Path, nargs="+", default=[], help="Folders first read when no rule changed.")
    parser.add_argument("--sample", type=int, default=0, help="Print this many pairs to judge, and save nothing.")
    parser.add_argument("--faults", action="store_true", help="Print pages without the right lead, and save nothing.")
    options = parser.parse_args()
    found = {}
    groups = [("pages that rules were set on", options.work), ("held-out pages", options.held)]
    groups += [("further pages", options.later), *((f"further pages: {one.name}", [one]) for one in options.later)]
    for name, folders in groups:
        pages = read(folders, MiningSettings())
        if not pages:
            continue
        if options.sample:
            show(pages, options.sample)
        if options.faults:
            faults(pages)
        htmls, places = [html for html, _, _ in pages], [page.address for _, page, _ in pages]
        found[name] = figures(pages) | speed(htmls, places)
    if not options.sample and not options.faults:
        command = "uv run python -m experiments.real_pages --work FOLDERS --held FOLDERS --later FOLDERS"
        save("real_pages", command, found)
    print(json.dumps(found, indent=1))


def faults(pages: list[tuple[str, Page, str]]) -> None:
    for html, page, language in pages:
        verdict = leading(html, page)
        if verdict in ("other", "none"):
            print(f"\n{verdict} {page.address}")
            for row in sorted(page.rows, key=lambda row: -(row["dominant"] or -99))[:4]:
                print(f"  {row['dominant']} {row['lead']} {row['address'][:110]} {row['features']} {row['fails']}")
        if (language == "en") == (page.verdict == "language") and language:
            print(f"\nlanguage {language} {page.english} {page.declared} {page.address} {page.text[:100]}")


def show(pages: list[tuple[str, Page, str]], count: int) -> None:
    kept = [(page, row) for _, page, _ in pages for row in page.rows if not row["fails"]]
    for page, row in Random(0).sample(kept, min(count, len(kept))):
        print(f"\n{page.title}\n  {page.address}\n  {row['address']}")
        for text in row["texts"]:
            print(f"    {text['kind']}: {text['text']} {text['fails'] or ''}")


if __name__ == "__main__":
    main()
