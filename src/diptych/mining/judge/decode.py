"""A picture's bytes measured: its type by content, header first, then one decode; every bound before the pixels."""

import hashlib
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from diptych.mining.judge.judges import judged, load_judge
from diptych.mining.pages import licences
from diptych.mining.settings import PictureRules

TYPES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
MEASURED = (
    "sha256", "type", "bytes", "width", "height", "frames", "one_colour", "dhash", "file_licence", *("realism", "nsfw"),
    "why",
)  # fmt: skip
TURNED = 0x0112

Measures = dict[str, Any]


def measure(content: bytes, rules: PictureRules) -> tuple[Measures, list[str], Image.Image | None]:
    """What is known of it, the rules that it breaks, and the decoded picture for judges. Never raises for data."""
    found: Measures = dict.fromkeys(MEASURED)
    found["sha256"], found["bytes"] = hashlib.sha256(content).hexdigest(), len(content)
    fails: list[str] = []
    if rules.small_file is not None and len(content) < rules.small_file:
        fails.append("small_file")
    if rules.large_file is not None and len(content) > rules.large_file:
        fails.append("large_file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=list(TYPES)) as image:
                return _of(image, content, found, fails, rules)
    except Image.DecompressionBombError:
        return found, [*fails, "pixels"], None
    except Exception as error:  # Pillow raises of many kinds on damaged files
        found["why"] = f"{type(error).__name__}: {error}"[:200].encode("utf-8", "replace").decode()
        if isinstance(error, UnidentifiedImageError):
            found["why"] = "not a picture"
        return found, [*fails, "unreadable"], None


def _of(
    image: Image.Image, content: bytes, found: Measures, fails: list[str], rules: PictureRules
) -> tuple[Measures, list[str], Image.Image | None]:
    width, height = image.size
    turned = image.getexif().get(TURNED, 1)
    if turned in (5, 6, 7, 8):
        width, height = height, width
    found |= {"type": TYPES.get(image.format or ""), "width": width, "height": height}
    if width * height > rules.pixels:
        return found, [*fails, "pixels"], None
    if rules.sides is not None and not (width > rules.sides and height > rules.sides):
        fails.append("sides")
    if rules.ratio is not None and max(width, height) > rules.ratio * min(width, height):
        fails.append("ratio")
    found["file_licence"] = licences.of_file(content)
    if fails:
        return found, fails, None  # what is dropped by its header is never decoded
    found["frames"] = getattr(image, "n_frames", 1)
    if rules.animation and found["frames"] > 1:
        fails.append("animation")
    image.seek(0)
    image.load()
    upright = _rgb(ImageOps.exif_transpose(image) if turned != 1 else image)
    extrema: Any = upright.getextrema()  # a pair a band
    found["one_colour"] = all(low == high for low, high in extrema)
    found["dhash"] = dhash(upright)
    if rules.one_colour and found["one_colour"]:
        fails.append("one_colour")
    return found, fails, upright


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def dhash(image: Image.Image) -> int:
    """64 bits: whether each of 8 x 8 grey cells is brighter than the one to its left (Krawetz' difference hash)."""
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.LANCZOS), dtype=np.int16)
    bits = (grey[:, 1:] > grey[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes())


def judge_all(
    images: Sequence[Image.Image], judges: Mapping[str, str], rules: PictureRules
) -> list[tuple[dict[str, float], list[str]]]:
    """For each picture its scores by place, and the rules that it breaks."""
    found: list[tuple[dict[str, float], list[str]]] = [({}, []) for _ in images]
    for place, name in judges.items():
        judge = load_judge(name)
        rule = getattr(rules, place)
        least = judge.least if rule is None else rule
        for (scores, fails), score in zip(found, judged(judge, images), strict=True):
            if score is not None:
                scores[place] = round(score, 6)
                if score < least:
                    fails.append(place)
    return found
