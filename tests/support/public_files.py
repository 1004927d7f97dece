"""Small files of public sets."""

# ruff: noqa: E501  a table is read by its columns
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

IMAGES = [{"id": 7, "file_name": "a.jpg", "width": 100, "height": 50}]


CAPTIONS = {"images": IMAGES, "annotations": [{"id": 1, "image_id": 7, "caption": "A dog. "}]}


INSTANCES = {
    "images": IMAGES,
    "categories": [{"id": 18, "name": "dog"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 18, "bbox": [10, 10, 20, 20], "iscrowd": 0}],
}


REFS = {
    "images": IMAGES,
    "refs": [{"ref_id": 1, "image_id": 7, "bbox": [0, 0, 50, 50], "sentences": [{"sent_id": 3, "sent": "the dog"}]}],
}


VCR = {
    "objects": ["person", "dog"], "img_fn": "x/a.jpg", "metadata_fn": "x/a.json", "annot_id": "train-0",
    "question": ["Why", "is", [0, 1], "here", "?"], "answer_choices": [["Because", "."]] * 4, "answer_label": 2,
    "rationale_choices": [[[0], "is", "."]] * 4, "rationale_label": 0,
}  # fmt: skip


METADATA = {"names": ["person", "dog"], "boxes": [[0, 0, 50, 50, 0.9], [10, 0, 90, 40, 0.8]], "segms": [[], []],
            "width": 100, "height": 50}  # fmt: skip


NLVR = {"identifier": "dev-1-0-0", "sentence": "there is a dog", "label": "True", "image": "a.jpg"}


def saved(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def changed(value: Any, *path: Any, to: Any = None) -> Any:
    """A copy with one place changed; without `to`, taken out."""
    value = json.loads(json.dumps(value))
    at = value
    for step in path[:-1]:
        at = at[step]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return value


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "images", "image"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, inner in steps for place in [(*here, step), *places(inner, (*here, step))]]


NAME = "COCO_val2014_000000000007"


IMAGES = [{"id": 7, "file_name": f"{NAME}.jpg", "width": 100, "height": 50}]


QUESTIONS = {"data_subtype": "val2014", "questions": [{"image_id": 7, "question_id": 70, "question": "What?"}]}


ANSWERS = {
    "data_subtype": "val2014",
    "annotations": [{"question_id": 70, "answer_type": "other", "answers": [{"answer": "dog"}] * 10}],
}


KARPATHY = {"dataset": "coco", "images": [
    {"filepath": "val2014", "filename": f"{NAME}.jpg", "split": "restval", "cocoid": 7, "sentences": [{"raw": "A dog."}, {"raw": " "}]},
    {"filepath": "val2014", "filename": "b.jpg", "split": "test", "cocoid": 8, "sentences": [{"raw": "A cat."}]}]}  # fmt: skip


OFFICIAL = [{"ref_id": 1, "image_id": 7, "ann_id": 1, "category_id": 18, "split": "testA", "sent_ids": [3], "file_name": f"{NAME}_1.jpg",
             "sentences": [{"sent_id": 3, "sent": "the dog", "raw": "The dog", "tokens": ["the", "dog"]}]}]  # fmt: skip
