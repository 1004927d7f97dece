"""Read a folder that `diptych storybook write` made. Its files have the formats of public data sets."""

from pathlib import Path

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats import coco, conceptual, nlvr, refcoco, snli_ve, vcr, vqa2
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips, combined, key_of, read_json

MANIFEST = "storybook.json"


class StorybookManifest(Struct):
    """The content of `storybook.json`."""

    world: int
    seed: int
    splits: dict[str, int]  # {split: number of images that are written, each with all its files}


def read_all(folder: Path, skips: Skips | None = None) -> list[Record]:
    """Read the records of all splits."""
    world = read_json(folder / MANIFEST).read(StorybookManifest)
    return [record for split in world.splits for record in read(folder, split, skips)]


def read(folder: Path, split: str, skips: Skips | None = None) -> list[Record]:
    """Read the records of one split, one per image."""
    wanted = Wanted(folder / "pictures", split, skips=Skips() if skips is None else skips)
    instances = Source(folder / f"coco/instances_{split}.json")
    if split == "web":
        table = conceptual.read(wanted, Source(folder / "conceptual/web.tsv"))
        return combined(coco.read_instances(wanted, instances), table)
    questions, answers = (Source(folder / f"vqa2/{name}_{split}.json") for name in ("questions", "annotations"))
    hypotheses = Source(folder / f"snli-ve/{split}.jsonl")
    return combined(
        coco.read_captions(wanted, Source(folder / f"coco/captions_{split}.json")),
        coco.read_instances(wanted, instances),
        vqa2.read(wanted, questions, answers, name=lambda number: f"{key_of(split, number)}.png"),
        refcoco.read(wanted, Source(folder / f"refcoco/refs_{split}.json")),
        vcr.read(wanted, Source(folder / f"vcr/{split}.jsonl"), Source(folder / "vcr")),
        nlvr.read(wanted, Source(folder / f"nlvr/{split}.jsonl")),
        snli_ve.read(wanted, hypotheses, ending=".png"),
    )
