"""The folder that `diptych storybook write` made, through the readers of the public forms."""

from pathlib import Path

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats import coco, conceptual, nlvr, refcoco, snli_ve, vcr, vqa2
from diptych.data.formats.parsing import combined, key_of, read_json

MANIFEST = "storybook.json"


class StorybookManifest(Struct):
    world: int
    seed: int
    splits: dict[str, int]  # how much of each is complete


def read_all(folder: Path) -> list[Record]:
    """All splits."""
    world = read_json(folder / MANIFEST).read(StorybookManifest)
    return [record for split in world.splits for record in read(folder, split)]


def read(folder: Path, split: str) -> list[Record]:
    """One split; one record a picture."""
    pictures = folder / "pictures"
    instances = folder / "coco" / f"instances_{split}.json"
    if split == "web":
        table = conceptual.read(folder / "conceptual" / "web.tsv", pictures, split)
        return combined(coco.read(instances=instances, pictures=pictures, split=split), table)
    hypotheses = folder / "snli-ve" / f"{split}.jsonl"
    return combined(
        coco.read(folder / "coco" / f"captions_{split}.json", instances, pictures, split),
        vqa2.read(
            folder / "vqa2" / f"questions_{split}.json",
            folder / "vqa2" / f"annotations_{split}.json",
            pictures,
            split,
            name=lambda number: f"{key_of(split, number)}.png",
        ),
        refcoco.read(folder / "refcoco" / f"refs_{split}.json", pictures, split),
        vcr.read(folder / "vcr" / f"{split}.jsonl", pictures, folder / "vcr", split),
        nlvr.read(folder / "nlvr" / f"{split}.jsonl", pictures, split),
        # Worlds drawn before there were hypotheses lack the file.
        snli_ve.read(hypotheses, pictures, split, ending=".png") if hypotheses.is_file() else (),
    )
