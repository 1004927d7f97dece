"""Draw a detector's regions on images, and arrange the images on one sheet."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from diptych.core import Regions
from diptych.vision.detectors.detector import BACKGROUND, Picture
from diptych.vision.image_files import write_png

# Okabe and Ito's colours, which are distinct on light and dark images, and for most people with colour blindness.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#FFFFFF")
GAP = 6


def detection_sheet(
    pictures: Sequence[Picture],
    regions: Sequence[Regions],
    class_names: Sequence[str],
    path: Path,
    columns: int = 4,
    side: int = 320,
    least_score: float = 0.0,
) -> None:
    """Write a PNG of all images with their boxes, classes and scores in percent.

    Each image gets a square of `side` pixels.
    """
    rows = -(-len(pictures) // columns)
    across = min(columns, len(pictures))
    sheet = Image.new("RGB", (across * (side + GAP) + GAP, rows * (side + GAP) + GAP), "#202124")
    for number, (picture, of_one) in enumerate(zip(pictures, regions, strict=True)):
        drawn = with_boxes(picture, of_one, class_names, side, least_score)
        row, column = divmod(number, columns)
        sheet.paste(drawn, (GAP + column * (side + GAP), GAP + row * (side + GAP)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_png(sheet, path)


def with_boxes(
    picture: Picture, regions: Regions, class_names: Sequence[str], side: int, least_score: float = 0.0
) -> Image.Image:
    """Return an image, resized to `side` pixels, with boxes drawn on it.

    The best boxes are drawn last, so that no other box covers their labels. Boxes with scores below `least_score` are
    left out.
    """
    image = Image.fromarray(picture.permute(1, 2, 0).numpy())
    scale = side / max(image.size)
    image = image.resize(
        (max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.LANCZOS
    )
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(max(9, side // 28))
    for row in reversed(range(len(regions))):
        score = float(regions.scores[row])
        if score < least_score:
            continue
        name, kind = class_shown(regions, row, class_names)
        colour = COLOURS[kind % len(COLOURS)]
        x1, y1, x2, y2 = (regions.boxes[row] * regions.boxes.new_tensor([image.width, image.height] * 2)).tolist()
        pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=colour, width=2)
        words = f"{name} {100 * score:.0f}".strip()
        left, _, right, bottom = pen.textbbox((0, 0), words, font)
        # The label is above the box if there is room, else inside it, and never outside the image.
        x = min(max(0, x1), max(0, image.width - (right - left) - 4))
        y = y1 - bottom - 3 if y1 - bottom - 3 >= 0 else y1
        pen.rectangle((x, y, x + right - left + 4, y + bottom + 3), fill=colour)
        pen.text((x + 2 - left, y + 1), words, "black", font)
    return image


def class_shown(regions: Regions, row: int, class_names: Sequence[str]) -> tuple[str, int]:
    """Return the name and index of a region's most probable class, ignoring the background."""
    if regions.classes is None:
        return "", 0
    order = regions.classes[row].argsort(descending=True).tolist()
    kind = next(k for k in order if class_names[k] not in (BACKGROUND, "__background__"))
    return class_names[kind], kind
