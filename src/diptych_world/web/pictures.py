"""Make the picture files of the test web: scenes, and unwanted files that a crawl finds, such as charts."""

import io
from functools import lru_cache, partial
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from diptych_world.layout import scene
from diptych_world.render import render
from diptych_world.web.plan import PageCase, plan

_PALETTE = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
_WORDS = tuple("the of and to in a is that for it as was with be by on not he his but at are this have from or".split())  # noqa: SIM905


def original_of(seed: int, case: PageCase) -> int:
    """Return the page whose picture is copied: the nearest earlier page with a scene, else the nearest later one."""
    numbers: list[int] = [*range(case.number - 1, -1, -1), *range(case.number + 1, case.number + 400)]
    for number in numbers:
        other = plan(seed, number)
        if other.picture == "scene" and other.page == "page":
            return number
    return case.number


def file_of(seed: int, case: PageCase) -> tuple[bytes, str]:  # noqa: PLR0911  # a kind a line
    """Return the bytes of a page's picture, and their media type."""
    rng = Random(f"picture {seed} {case.number}")
    drawn = partial(_scene, seed, case)
    match case.picture:
        case "copy":
            return scene_file(seed, plan(seed, original_of(seed, case)))
        case "resized":
            return _resized(rng, _scene(seed, plan(seed, original_of(seed, case))))
        case kind if kind in UNNATURAL:
            return _encoded(unnatural(kind, rng), "PNG" if kind in ("chart", "text") else "JPEG")
        case "one_colour":
            return _encoded(Image.new("RGB", (400, 400), rng.choice(_PALETTE)), "PNG", pad=2200)
        case "side_300" | "side_301":
            return _encoded(drawn().resize((int(case.picture[-3:]), 400), Image.Resampling.LANCZOS), "JPEG")
        case "wide":
            return _encoded(drawn().resize((1400, 400), Image.Resampling.LANCZOS), "JPEG")
        case "truncated":
            body, media = _encoded(drawn(), "JPEG")
            return body[: len(body) // 2], media
        case "html":
            notice = "<h1>Please sign in</h1>" + "<p>This picture is for members.</p>" * 80
            return f"<!doctype html><html><body>{notice}".encode(), "image/jpeg"
        case "bomb":
            return _bomb(), "image/png"
        case "svg":
            shapes = "".join(f'<circle cx="{n * 9}" cy="{n * 7}" r="20" fill="#{n:02x}4488"/>' for n in range(60))
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480">{shapes}</svg>'
            return svg.encode(), "image/svg+xml"
        case "animated":
            other = _scene(seed, plan(seed, case.number + 1)).resize((case.zoom * 160,) * 2)
            return _encoded(drawn(), "GIF", save_all=True, append_images=[other], duration=300)
        case _:
            return scene_file(seed, case)


def scene_file(seed: int, case: PageCase) -> tuple[bytes, str]:
    """Return a page's scene as the bytes of a JPEG, PNG or WebP, and the media type."""
    return _encoded(_scene(seed, case), ("JPEG", "JPEG", "JPEG", "PNG", "WEBP")[case.number % 5])


def _scene(seed: int, case: PageCase) -> Image.Image:
    return Image.fromarray(render(scene(seed, "web", case.scene), case.zoom))


def _encoded(image: Image.Image, kind: str, pad: int = 0, **options: Any) -> tuple[bytes, str]:
    """Return an encoded image of at least `pad` bytes, and its media type. `options`: for the encoder."""
    encoded = io.BytesIO()
    image.save(encoded, kind, **{"quality": 90} | options if kind in ("JPEG", "WEBP") else options)
    return encoded.getvalue().ljust(pad, b"\0"), f"image/{kind.lower()}"


def _resized(rng: Random, image: Image.Image) -> tuple[bytes, str]:
    side = round(image.width * rng.uniform(0.96, 1.6))
    kind = rng.choice(("JPEG", "JPEG", "WEBP", "PNG"))
    quality = rng.choice((60, 75, 85))
    return _encoded(image.resize((side, side), Image.Resampling.BICUBIC), kind, quality=quality)


@lru_cache(maxsize=1)
def _bomb() -> bytes:
    return _encoded(Image.new("1", (12_000, 12_000)), "PNG")[0]


def unnatural(kind: str, rng: Random) -> Image.Image:
    """Draw a picture that is not a photograph. `kind`: one of UNNATURAL."""
    return _UNNATURAL[kind](rng, rng.randrange(360, 640), rng.randrange(320, 480))


def _chart(rng: Random, width: int, height: int) -> Image.Image:
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.line((40, 20, 40, height - 30, width - 20, height - 30), fill="black", width=2)
    for level in range(1, 6):
        y = height - 30 - level * (height - 60) // 6
        draw.line((40, y, width - 20, y), fill="#dddddd")
        draw.text((8, y - 6), str(level * rng.randrange(5, 20)), fill="black")
    if rng.random() < 0.6:
        bars = rng.randrange(4, 10)
        step = (width - 80) / bars
        for n in range(bars):
            top = rng.randrange(40, height - 60)
            draw.rectangle((50 + n * step, top, 50 + n * step + step * 0.7, height - 31), fill=rng.choice(_PALETTE))
    else:
        for colour in rng.sample(_PALETTE, 3):
            points = [(45 + x, rng.randrange(30, height - 40)) for x in range(0, width - 70, 30)]
            draw.line(points, fill=colour, width=3)
    draw.text((width // 3, 4), " ".join(rng.choices(_WORDS, k=4)), fill="black")
    return image


def _page_of_text(rng: Random, width: int, height: int) -> Image.Image:
    image = Image.new("RGB", (width, height), rng.choice(("white", "#fbf8f1", "#f0f0f0")))
    draw = ImageDraw.Draw(image)
    for y in range(20, height - 20, 14):
        if rng.random() < 0.92:
            draw.text((24, y), " ".join(rng.choices(_WORDS, k=width // 32)), fill="#222222")
    return image


def _gradient(rng: Random, width: int, height: int) -> Image.Image:
    ends = np.array([[rng.randrange(256) for _ in range(3)] for _ in range(2)], float)
    columns, rows = np.linspace(0, 1, width)[None, :, None], np.linspace(0, 1, height)[:, None, None]
    share = columns * rng.uniform(0.2, 1) + rows * rng.uniform(0.2, 1)
    share /= share.max()
    return Image.fromarray((ends[0] * (1 - share) + ends[1] * share).astype(np.uint8))


def _noise(rng: Random, width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(rng.choice((0, 0.7, 1.5))))


def _icons(rng: Random, width: int, height: int) -> Image.Image:
    image = Image.new("RGB", (width, height), rng.choice(("white", "#eeeeee", "#223344")))
    draw = ImageDraw.Draw(image)
    for y in range(20, height - 60, 80):
        for x in range(20, width - 60, 80):
            box = (x, y, x + 56, y + 56)
            shape = rng.randrange(3)
            if shape == 0:
                draw.ellipse(box, fill=rng.choice(_PALETTE))
            elif shape == 1:
                draw.rounded_rectangle(box, 12, fill=rng.choice(_PALETTE))
            else:
                draw.polygon(((x + 28, y), (x + 56, y + 56), (x, y + 56)), fill=rng.choice(_PALETTE))
    return image


_UNNATURAL = {"chart": _chart, "text": _page_of_text, "gradient": _gradient, "noise": _noise, "icons": _icons}
UNNATURAL = tuple(_UNNATURAL)
