"""The commands of docs/public-sets.md, in their order, on small files in the layouts of the sets."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.data.store.store import Store
from tests.conftest import REPOSITORY
from tests.journeys.conftest import Result
from tests.support.given_features import small

PAGE = (REPOSITORY / "docs" / "public-sets.md").read_text()
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^    (diptych .*)$", PAGE, re.MULTILINE)]
SIDE = 160
COUNT = 12
SPLITS = {"train": "train2014", "val": "val2014"}
THINGS = ("dog", "kite")


def written(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def drawn(path: Path, number: int) -> None:
    """Each of a colour of its own, or two splits would have one picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIDE, SIDE), (number, 100, 100)).save(path, "PNG")


def features(path: Path, seed: int) -> None:
    """Two regions, at the places of the two things."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    np.savez(path, features=random.random((2, 12), np.float32), classes=random.random((2, 3), np.float32),
             boxes=np.array([[0, 0, 80, 80], [80, 80, 160, 160]]), width=SIDE, height=SIDE)  # fmt: skip


def coco(folder: Path) -> None:
    """Karpathy's file, VQA v2's four, RefCOCO+'s two."""
    images, karpathy, refs = [], [], []
    for number, (split, subset) in ((n, item) for n in range(COUNT) for item in SPLITS.items()):
        image_id = number + (0 if split == "train" else 100)
        name = f"COCO_{subset}_{image_id:012d}.jpg"
        if image_id != 3:  # one picture is not there
            drawn(folder / subset / name, image_id)
        features(folder.parent / "features" / f"{Path(name).stem}.npz", image_id)
        images.append({"id": image_id, "file_name": name, "width": SIDE, "height": SIDE})
        sentences = [{"raw": "a dog under a kite"}] * 2
        karpathy.append({"filepath": subset, "filename": name, "split": split, "sentences": sentences})
        for at, thing in enumerate(THINGS if split == "train" or number < 3 else ()):
            key = image_id * 2 + at
            said = [{"sent_id": key, "sent": f"the {thing}"}]
            refs.append({"ref_id": key, "image_id": image_id, "ann_id": key, "split": split, "sentences": said})
    notes = [
        {"id": image["id"] * 2 + at, "image_id": image["id"], "category_id": 1, "bbox": [80 * at, 80 * at, 80, 80]}
        for image in images
        for at in (0, 1)
    ]
    written(folder / "dataset_coco.json", {"images": karpathy})
    written(
        folder / "refcoco+/instances.json",
        {"images": images, "annotations": notes, "categories": [{"id": 1, "name": "dog"}]},
    )
    (folder / "refcoco+/refs(unc).p").write_bytes(pickle.dumps(refs, 2))
    for subset in SPLITS.values():
        mine = [image["id"] for image in images if subset in str(image["file_name"])]
        asked = [{"image_id": one, "question_id": one, "question": "what is this?"} for one in mine]
        answered = [
            {"question_id": one, "answer_type": "other", "answers": [{"answer": THINGS[one % 2]}] * 10} for one in mine
        ]
        written(folder / f"v2_OpenEnded_mscoco_{subset}_questions.json", {"data_subtype": subset, "questions": asked})
        written(folder / f"v2_mscoco_{subset}_annotations.json", {"annotations": answered})


def vcr(folder: Path) -> None:
    for split in SPLITS:
        lines = []
        for number in range(COUNT):
            name = f"film/{split}{number}"
            drawn(folder / f"vcr1images/{name}.jpg", number + 20 * (split == "val"))
            boxes = [[0, 0, 80, 80, 0.9], [80, 80, 160, 160, 0.9]]
            result = {"names": ["person", "dog"], "width": SIDE, "height": SIDE, "segms": [[], []], "boxes": boxes}
            written(folder / f"vcr1images/{name}.json", result)
            features(folder.parent / f"vcr-features/{name}.npz", number)
            choices = [[[0], "is", word] for word in ("here", "there", "up", "down")]
            line = {"annot_id": f"{split}-{number}", "img_fn": f"{name}.jpg", "metadata_fn": f"{name}.json"}
            line |= {"objects": ["person", "dog"], "question": ["where", "is", [1], "?"], "answer_choices": choices}
            lines.append(line | {"answer_label": 1, "rationale_choices": choices, "rationale_label": 2})
        written(folder / f"{split}.jsonl", "\n".join(map(json.dumps, lines)))


@pytest.mark.slow
def test_the_page_from_top_to_bottom(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    coco(tmp_path / "coco")
    vcr(tmp_path / "vcr")
    said = {}
    for command in COMMANDS:
        batch = ["--set", "training.batch=8"] if command[0] == "finetune" else []
        result = run(*small(command), *batch)
        assert result.code == 0, (command, result.error)
        said[" ".join(command)] = result.out
    assert "23 of 24 images exist" in said["data vqa2 coco --out vqa.json"]
    stores = {name: Store(tmp_path / "stores" / name) for name in ("coco", "vqa", "refcoco", "vcr")}
    assert stores["vqa"].splits == {"train": COUNT, "val": COUNT}
    assert stores["refcoco"].splits == {"train": COUNT, "val": 3}
    (questions, choices, expressions) = (stores[name].record(0) for name in ("vqa", "vcr", "refcoco"))
    assert questions.questions[0].answers == ("dog",) * 10
    assert (choices.choices[0].named, [thing.kind for thing in choices.objects]) == ([0, 1], ["person", "dog"])
    assert expressions.expressions[0].text == "the dog"
    for name in ("vqa", "vcr", "referring"):
        assert (tmp_path / "runs" / name / "model").is_dir()
