"""Write a contact sheet of the images that a search found, as a PNG and as an HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment
from PIL import Image, ImageDraw, ImageFont

from diptych.inference.search import Hit, Searched
from diptych.runs.reports.html import picture_uri
from diptych.runtime.errors import DataError
from diptych.runtime.files import write_atomically
from diptych.vision.image_files import write_png
from diptych.vision.pictures import open_picture

COLUMNS, SIDE, GAP, LINE = 4, 240, 10, 20
PAPER, INK, FAINT = "#FFFFFF", "#202124", "#70757A"

_PAGE = Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ query }}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body { font: 16px sans-serif; margin: 2em; color: #202124 }
ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1em; padding: 0 }
li { list-style-position: inside } img { max-width: 100%; display: block }
small { color: #70757A; overflow-wrap: anywhere }
</style></head><body>
<h1>“{{ query }}”</h1>
<p>{{ hits | length }} of {{ of }} images, the best first{% if refused %}; {{ refused | length }} could not be read{%
endif %}</p>
<ol>
{% for hit, uri in hits %}<li><b>{{ "%.3f" | format(hit.score) }}</b> <small>{{ hit.picture }}</small>
<img src="{{ uri }}" alt="{{ hit.picture.name }}"></li>
{% endfor %}</ol>
{% if refused %}<h2>Not read</h2>
<ul>{% for path, why in refused.items() %}<li>{{ path }}: {{ why }}</li>{% endfor %}</ul>{% endif %}
</body></html>
"""
)


def write_sheet(searched: Searched, path: Path, most: int = 12) -> tuple[Path, Path]:
    """Write the best hits, at most `most`, to the PNG `path` and to an HTML page of the same name.

    Return both paths.
    """
    hits = searched.hits[:most]
    path.parent.mkdir(parents=True, exist_ok=True)
    picture, page = path.with_suffix(".png"), path.with_suffix(".html")
    write_png(draw_sheet(searched.query, hits), picture)
    shown = [(hit, picture_uri(hit.picture)) for hit in hits]
    html = _PAGE.render(query=searched.query, hits=shown, of=searched.readable, refused=searched.refused)
    write_atomically(page, html.encode("utf-8", "replace"))
    return picture, page


def draw_sheet(query: str, hits: Sequence[Hit]) -> Image.Image:
    """Draw each image in a square, with its rank, score and name below."""
    across, cell = max(1, min(COLUMNS, len(hits))), SIDE + LINE + GAP
    height = LINE + 2 * GAP + -(-len(hits) // across) * cell
    sheet = Image.new("RGB", (across * (SIDE + GAP) + GAP, height), PAPER)
    pen: Any = ImageDraw.Draw(sheet)
    pen.text((GAP, GAP), _short(f"“{query}”", sheet.width - 2 * GAP, 17), INK, ImageFont.load_default(17))
    for number, hit in enumerate(hits):
        row, column = divmod(number, across)
        left, upper = GAP + column * (SIDE + GAP), LINE + 2 * GAP + row * cell
        small = _thumbnail(hit.picture)
        sheet.paste(small, (left + (SIDE - small.width) // 2, upper + (SIDE - small.height) // 2))
        label, font = f"{number + 1}  {hit.score:.3f}  ", ImageFont.load_default(13)
        pen.text((left, upper + SIDE + 3), label, INK, font)
        start = font.getlength(label)
        pen.text((left + start, upper + SIDE + 3), _short(hit.picture.name, SIDE - round(start), 13), FAINT, font)
    return sheet


def _thumbnail(path: Path) -> Image.Image:
    try:
        image = Image.fromarray(open_picture(path).permute(1, 2, 0).numpy())
    except DataError:  # the image was deleted after the search
        return Image.new("RGB", (SIDE, SIDE), "#E8EAED")
    image.thumbnail((SIDE, SIDE))
    return image


def _short(text: str, width: int, size: int) -> str:
    font, shown = ImageFont.load_default(size), text
    while text and font.getlength(shown) > width:
        text = text[:-1]
        shown = f"{text}…"
    return shown
