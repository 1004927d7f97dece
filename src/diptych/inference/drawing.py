"""Draw an image with its regions, next to a table of each region's influence on each word.

Each region with an influence has a number and a colour, on the image and above its column of the table. Each row of the
table is a word. A cell shows by how many nats the word's log-probability drops if the region is removed. Larger drops
have a stronger colour. Regions that overlap strongly are removed together; the most confident region represents them.
The detector's labels are below the table.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from diptych.core import Regions
from diptych.tasks.influence import covering
from diptych.tasks.interface import GroundedText
from diptych.vision.detectors.detector import Picture

COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#e67700", "#0b8a8f", "#c2189b", "#7a5230")  # one per column
HEIGHT, MARGIN, ROW, CELL = 480, 16, 28, 58
LEAST_WEIGHT = 0.1  # in nats; no number is shown for smaller weights
NOTE = "nats that a word loses without the region"
INK, FAINT, PAPER = "#1b1b1b", "#8a8a8a", "#ffffff"


def draw(prediction: GroundedText, picture: Picture) -> Image.Image:
    """Draw the explanation of a prediction. Up to eight regions have a colour; the other boxes are thin and grey."""
    weights = prediction.weights
    groups = influential(prediction.regions, weights)
    chosen = [group[0] for group in groups]
    panel = _boxed(picture, prediction.regions, chosen)
    names = [label_of(prediction, group) for group in groups]
    table = _table(prediction, weights[:, chosen], panel.height, names)
    title = _wrapped(prediction.text or "(no words)", panel.width + table.width, _font(20))
    top = 2 * MARGIN + 26 * len(title)
    size = panel.width + table.width + 3 * MARGIN, top + max(panel.height, table.height) + MARGIN
    sheet = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, line in enumerate(title):
        pen.text((MARGIN, MARGIN + 26 * number), line, INK, _font(20))
    sheet.paste(panel, (MARGIN, top))
    sheet.paste(table, (panel.width + 2 * MARGIN, top))
    return sheet


def influential(regions: Regions, weights: Float[Tensor, "W R"]) -> list[list[int]]:
    """Return the rows of each group of overlapping regions with an influence, at most eight, the largest first.

    The place of a group gives its number and colour. The first row of a group is its most confident region.
    """
    most = weights.abs().amax(0) if len(weights) else torch.zeros(len(regions))
    groups = [group for group in covering(regions) if most[group[0]] >= LEAST_WEIGHT]
    return sorted(groups, key=lambda group: -float(most[group[0]]))[: len(COLOURS)]


def draw_box(picture: Picture, box: Sequence[float], title: str) -> Image.Image:
    """Draw a box (x1, y1, x2, y2 in fractions of the image) on an image, with a title above the box."""
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    pen = ImageDraw.Draw(image)
    wide = max(2, round(max(image.size) / 200))
    x1, y1, x2, y2 = corners = _inside([end * side for end, side in zip(box, 2 * image.size, strict=True)], image)
    pen.rectangle((x1 - wide, y1 - wide, x2 + wide, y2 + wide), outline=PAPER, width=wide)
    pen.rectangle(corners, outline=COLOURS[0], width=wide)
    lines = _wrapped(title, max(image.width, 160), _font(16))
    sheet = Image.new("RGB", (max(image.width, 160), image.height + 24 * len(lines)), PAPER)
    writing = ImageDraw.Draw(sheet)
    for number, line in enumerate(lines):
        writing.text((4, 2 + 24 * number), line, INK, _font(16))
    sheet.paste(image, (0, 24 * len(lines)))
    return sheet


def _boxed(picture: Picture, regions: Regions, chosen: list[int]) -> Image.Image:
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    width = max(1, round(image.width * HEIGHT / image.height))
    wide = width > 2 * HEIGHT
    image = image.resize((2 * HEIGHT, round(HEIGHT * 2 * HEIGHT / width)) if wide else (width, HEIGHT))
    pen = ImageDraw.Draw(image)
    corners = (regions.boxes * torch.tensor([image.width, image.height] * 2)).tolist()
    for row, box in enumerate(corners):
        if row not in chosen:
            pen.rectangle(_inside(box, image), outline=FAINT, width=1)
    taken: list[tuple[float, float]] = []
    for place, row in reversed(list(enumerate(chosen))):
        x1, y1, x2, y2 = _inside(corners[row], image)
        pen.rectangle((x1, y1, x2, y2), outline=PAPER, width=5)
        pen.rectangle((x1 + 1, y1 + 1, x2 - 1, y2 - 1), outline=COLOURS[place], width=3)
    for place, row in enumerate(chosen):
        x1, y1, _, _ = _inside(corners[row], image)
        while any(abs(x1 - x) < 22 and abs(y1 - y) < 22 for x, y in taken) and x1 < image.width - 46:
            x1 += 23
        taken.append((x1, y1))
        _number(pen, x1, min(y1, image.height - 22), place)
    return image


def label_of(prediction: GroundedText, group: list[int]) -> str:
    """Return the label of a group of overlapping regions: `dog 0.83, and 2 regions that cover it`."""
    classes, name = prediction.regions.classes, "region"
    if classes is not None and prediction.class_names:
        best = int(classes[group[0]].argmax())
        name = f"{prediction.class_names[best]} {float(classes[group[0], best]):.2f}"
    return with_covering(name, len(group) - 1)


def with_covering(name: str, more: int) -> str:
    """Return the label of a region with the number of `more` regions that overlap it."""
    cover = "1 region that covers" if more == 1 else f"{more} regions that cover"
    return f"{name}, and {cover} it" if more else name


def _inside(box: list[float], image: Image.Image) -> tuple[float, float, float, float]:
    """Move a box (in pixels) into the image, and enlarge it to at least 8 pixels per side, so that it is visible."""
    x1, y1 = min(box[0], image.width - 9), min(box[1], image.height - 9)
    return x1, y1, min(max(box[2], x1 + 8), image.width - 1), min(max(box[3], y1 + 8), image.height - 1)


def _number(pen: Any, x: float, y: float, place: int) -> None:
    pen.rectangle((x, y, x + 21, y + 21), fill=COLOURS[place])
    pen.text((x + 11, y + 11), str(place + 1), PAPER, _font(15), anchor="mm")


def _table(prediction: GroundedText, weights: Float[Tensor, "W K"], height: int, names: Sequence[str]) -> Image.Image:
    words = [word if len(word) <= 18 else f"{word[:17]}…" for word in prediction.words]
    label = max([60, *(round(_font(17).getlength(word)) for word in words)]) + 12
    most = float(weights.max()) if weights.numel() else 0.0
    note = NOTE if weights.numel() else f"no region alone changes a word by {LEAST_WEIGHT} nats"
    widest = max([_font(13).getlength(note), *(ROW + _font(15).getlength(name) for name in names)])
    wide = max(label + CELL * weights.shape[1], round(widest) + 4)
    table = Image.new("RGB", (wide, max(height, ROW * (len(words) + len(names) + 2) + 8)), PAPER)
    pen = ImageDraw.Draw(table)
    for place in range(weights.shape[1]):
        _number(pen, label + CELL * place + CELL // 2 - 11, 2, place)
    full = max(most, 1.0)
    for line, (word, row) in enumerate(zip(words, weights.tolist(), strict=True), start=1):
        pen.text((0, ROW * line + ROW // 2), word, INK, _font(17), anchor="lm")
        for place, weight in enumerate(row):
            left, upper = label + CELL * place, ROW * line
            colour = _mixed(COLOURS[place], max(weight, 0.0) / full)
            pen.rectangle((left + 1, upper + 1, left + CELL - 2, upper + ROW - 2), fill=colour)
            if abs(weight) >= LEAST_WEIGHT:
                ink = PAPER if weight / full > 0.5 else INK
                pen.text((left + CELL // 2, upper + ROW // 2), f"{weight:+.1f}", ink, _font(14), anchor="mm")
    pen.text((0, ROW * (len(words) + 1) + 6), note, FAINT, _font(13))
    for place, name in enumerate(names):
        upper = ROW * (len(words) + 2 + place)
        _number(pen, 0, upper, place)
        pen.text((ROW, upper + 11), name, INK, _font(15), anchor="lm")
    return table


def _mixed(colour: str, share: float) -> tuple[int, int, int]:
    """Mix a colour with light grey. `share`: the weight of the colour, 0 to 1."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return round(244 + (red - 244) * share), round(244 + (green - 244) * share), round(244 + (blue - 244) * share)


def _wrapped(text: str, width: int, font: Any) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
