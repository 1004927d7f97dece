"""Draw a contact sheet of pictures with their boxes and texts."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from diptych.core import Record
from diptych.vision.image_files import write_png
from diptych_world.book import record
from diptych_world.pencil import PAINT, shade
from diptych_world.render import render
from diptych_world.world import SIDE, Scene

ZOOM = 2
COLUMNS = 4
_MARGIN = 12
_LINE = 14  # height of a line of text in pixels
_WORDS = 58  # characters per line of text
_LINES = 22  # number of lines of text below a picture


def show(scenes: Sequence[Scene], path: Path, boxes: bool = True) -> None:
    """Save a PNG of scenes with their texts. `boxes`: also draw the boxes of their objects."""
    side = SIDE * ZOOM
    cell = (side + 2 * _MARGIN, side + _LINES * _LINE + 2 * _MARGIN)
    rows = -(-len(scenes) // COLUMNS)
    sheet = Image.new("RGB", (cell[0] * min(COLUMNS, max(1, len(scenes))), max(1, cell[1] * rows)), (255, 253, 248))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=11)
    for number, scene in enumerate(scenes):
        left, top = _MARGIN + cell[0] * (number % COLUMNS), _MARGIN + cell[1] * (number // COLUMNS)
        shown = record(scene)
        sheet.paste(Image.fromarray(np.ascontiguousarray(render(scene, ZOOM))), (left, top))
        if boxes:
            _outline(draw, font, shown, left, top)
        for at, line in enumerate(_words(shown)[:_LINES]):
            draw.text((left, top + side + 6 + at * _LINE), line, fill=(48, 44, 52), font=font)
    write_png(sheet, path)


def _outline(
    draw: ImageDraw.ImageDraw, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, record: Record, left: int, top: int
) -> None:
    side = SIDE * ZOOM
    for number, thing in enumerate(record.objects):
        x1, y1, x2, y2 = (round(end * side) for end in thing.box)
        colour = shade(PAINT[thing.attributes["colour"]], 0.15)
        draw.rectangle((left + x1, top + y1, left + x2 - 1, top + y2 - 1), outline=colour)
        place, ink = (left + x1 + 2, top + y1), (255, 255, 255)
        draw.text(place, str(number), fill=ink, stroke_width=1, stroke_fill=(30, 26, 40), font=font)


def _words(record: Record) -> list[str]:
    lines = [record.key, *(f"- {caption}" for caption in record.captions)]
    for question in record.questions[::2]:
        most = max(set(question.answers), key=question.answers.count)
        lines.append(f"? {question.text}: {most}")
    lines += [f"> {expression.text}" for expression in record.expressions]
    lines += [f"?? {choices.question}: {choices.answers[choices.answer]}" for choices in record.choices]
    lines += [f"{'true' if statement.true else 'false'}: {statement.text}" for statement in record.statements[:2]]
    return [line for text in lines for line in wrap(text, _WORDS, subsequent_indent="   ")]
