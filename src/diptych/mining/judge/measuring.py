"""The third stage: each fetched image is measured and judged. The table has a row per answer, in their order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from diptych.mining.checking import Measured, read_json
from diptych.mining.judge.decode import judge_all, measure
from diptych.mining.judge.statistics import small
from diptych.mining.layout import RunLayout
from diptych.mining.settings import PictureRules
from diptych.mining.tables import Row, read_rows, write_shard
from diptych.runtime.engine.outcome import Counts

AT_ONCE = 64  # images in one call of a judge


@dataclass(frozen=True)
class Decode:
    """The work on a shard. `judges`: names of judges by rule, `realism` or `nsfw`."""

    out: Path
    rules: PictureRules
    judges: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, name: str) -> Counts:
        layout = RunLayout(self.out)
        index = read_json(layout.plan(name), Measured).index
        rows: list[Row] = []
        waiting: list[tuple[Row, Image.Image]] = []
        with layout.blob(index).open("rb") as file:
            for entry in read_rows(layout.table("index", index), "index", ["address", "offset", "length"]):
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
        return write_shard(layout, "measured", name, rows, {"measured": measured, "dropped": dropped})

    def _judge(self, waiting: list[tuple[Row, Image.Image]]) -> None:
        if waiting:
            judged = judge_all([image for _, image in waiting], self.judges, self.rules)
            for (row, _), (scores, fails) in zip(waiting, judged, strict=True):
                row.update(scores)
                row["fails"] = [*row["fails"], *fails]
            waiting.clear()
