"""The third stage: measure and judge each fetched image.

The header of a file is read first. Its pixels are decoded once, after the limits of size were checked.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DataError
from diptych.vision.decoder import shared_decoders
from diptych.vision.fingerprints import perceptual_hash
from diptych.vision.image_files import read_header
from diptych.vision.upright import TooManyPixels, UnknownFormat
from diptych_mine.checking import Measured, read_json
from diptych_mine.job import MiningJob
from diptych_mine.judge.judges import load_judge, scores_by
from diptych_mine.judge.statistics import small
from diptych_mine.layout import RunLayout
from diptych_mine.pages import licences
from diptych_mine.rules import VERSION
from diptych_mine.settings import PictureRules
from diptych_mine.tables import Row, digest, read_rows, write_shard

AT_ONCE = 64  # number of images per call of a judge
TYPES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
MEASURED = ("sha256", "type", "bytes", "width", "height", "frames", "one_colour", "phash", "file_licence", "realism",
            "nsfw", "why")  # fmt: skip


@dataclass(frozen=True)
class DecodeStage:
    """Measure the images in each shard of `index`, and write a shard of `measured` for it.

    `judges`: rule -> name of its judge.
    """

    job: MiningJob
    judges: Mapping[str, str]

    def run(self, indexes: Sequence[str]) -> list[str]:
        job = self.job
        same = [digest(job.about["pictures"]), job.about["judges"], VERSION]
        plans = {digest("measured", one, *same): {"index": one} for one in indexes}
        return job.make("decode", "measured", Decode(job.layout, job.settings.pictures, dict(self.judges)), plans)


def measure(content: bytes, rules: PictureRules) -> tuple[Row, list[str], Image.Image | None]:
    """Return the measures of an image file, the names of the rules that it breaks, and the image for judges.

    The image is None if it was not decoded, because its header breaks a rule. Never raises an error for bad data.
    """
    measures: Row = dict.fromkeys(MEASURED)
    measures["sha256"], measures["bytes"] = hashlib.sha256(content).hexdigest(), len(content)
    fails: list[str] = []
    if rules.small_file is not None and len(content) < rules.small_file:
        fails.append("small_file")
    if rules.large_file is not None and len(content) > rules.large_file:
        fails.append("large_file")
    try:
        return _measure(content, measures, fails, rules)
    except TooManyPixels:
        return measures, [*fails, "pixels"], None
    except DataError as error:
        why = "not a picture" if isinstance(error, UnknownFormat) else str(error)
        measures["why"] = why[:200].encode("utf-8", "replace").decode()
        return measures, [*fails, "unreadable"], None


def _measure(
    content: bytes, measures: Row, fails: list[str], rules: PictureRules
) -> tuple[Row, list[str], Image.Image | None]:
    form, width, height = read_header(content, "the file")
    if form not in TYPES:
        raise UnknownFormat(form)
    measures |= {"type": TYPES[form], "width": width, "height": height}
    if width * height > rules.pixels:
        return measures, [*fails, "pixels"], None
    if rules.sides is not None and not (width > rules.sides and height > rules.sides):
        fails.append("sides")
    if rules.ratio is not None and max(width, height) > rules.ratio * min(width, height):
        fails.append("ratio")
    measures["file_licence"] = licences.of_file(content)
    if fails:
        return measures, fails, None
    pixels, measures["frames"] = shared_decoders().read_frames(content, "the file", rules.pixels)
    if rules.animation and measures["frames"] > 1:
        fails.append("animation")
    upright = Image.fromarray(pixels)
    extrema: Any = upright.getextrema()  # (lowest, highest) value of each channel
    measures["one_colour"] = all(low == high for low, high in extrema)
    measures["phash"] = perceptual_hash(upright)
    if rules.one_colour and measures["one_colour"]:
        fails.append("one_colour")
    return measures, fails, upright


def judge_all(
    images: Sequence[Image.Image], judges: Mapping[str, str], rules: PictureRules
) -> list[tuple[dict[str, float], list[str]]]:
    """Return for each image a dict rule -> score of the rule's judge, and a list of the rules that it breaks."""
    verdicts: list[tuple[dict[str, float], list[str]]] = [({}, []) for _ in images]
    for place, name in judges.items():
        judge, rule = load_judge(name), getattr(rules, place)
        least = judge.least if rule is None else rule
        for (scores, fails), score in zip(verdicts, scores_by(judge, images), strict=True):
            scores[place] = round(score, 6)
            if score < least:
                fails.append(place)
    return verdicts


@dataclass(frozen=True)
class Decode:
    """Measures the images of a shard. `judges`: rule (`realism` or `nsfw`) -> name of its judge."""

    layout: RunLayout
    rules: PictureRules
    judges: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, name: str) -> Counts:
        index = read_json(self.layout.plan(name), Measured).index
        rows: list[Row] = []
        waiting: list[tuple[Row, Image.Image]] = []
        with self.layout.blob(index).open("rb") as file:
            for entry in read_rows(self.layout.table("index", index), "index", ["address", "offset", "length"]):
                if not entry["length"]:
                    rows.append({"address": entry["address"], "fails": []})
                    continue
                file.seek(entry["offset"])
                measures, fails, image = measure(file.read(entry["length"]), self.rules)
                row = {"address": entry["address"], **measures, "fails": fails}
                rows.append(row)
                if image is not None and self.judges:
                    waiting.append((row, small(image)))
                if len(waiting) == AT_ONCE:
                    self._judge(waiting)
        self._judge(waiting)
        measured, dropped = (sum(1 for row in rows if row.get(key)) for key in ("sha256", "fails"))
        return write_shard(self.layout, "measured", name, rows, {"measured": measured, "dropped": dropped})

    def _judge(self, waiting: list[tuple[Row, Image.Image]]) -> None:
        if waiting:
            judged = judge_all([image for _, image in waiting], self.judges, self.rules)
            for (row, _), (scores, fails) in zip(waiting, judged, strict=True):
                row.update(scores)
                row["fails"] = [*row["fails"], *fails]
            waiting.clear()
