"""Every field of `Record`, through all that is done to records: a new one needs no edit there."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.core import Choices, Object, Question, Record, TaskItem
from diptych.core.entailment import ENTAILMENT, LABELS
from diptych.core.record import READ, WORDED
from diptych.data.check import check
from diptych.data.formats import jsonl
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import combined
from diptych.data.store.mirror import mirrored, swapped
from diptych.data.store.store import Store, StoreWriter
from diptych.runs.words import training_texts, words_of
from tests.library.data.conftest import CONTRACT
from tests.library.data.conftest import record as seen

BY_BEARTYPE = "ignore:Do not use the `random` module"  # which looks at random items of what a record is made of
SIDES = 64  # boxes are multiples of it, which a mirror gives back without rounding
# Of JSON lines the image's name is the key; what extraction and relations add is not written there.
NOT_IN_LINES = {"key", "split", "image", "relations", "regions", "fingerprint"}
PLAIN = {"key", "split", "kind", "by", "attributes", "caption_ids"}  # strings that are no words of a person
HINTS = get_type_hints(Record, include_extras=True)
TEXTS = st.lists(st.sampled_from(("left", "RIGHT", "dog", "[0]", "été", "x")), min_size=1, max_size=4).map(" ".join)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, ...]:
    x1, x2, y1, y2 = (draw(st.integers(low, low + 31)) / SIDES for low in (0, 32, 0, 32))
    return x1, y1, x2, y2


MARKED = {
    **dict.fromkeys(("text", "tagged", "label"), TEXTS),
    "box": boxes(),
    "cells": st.just(("#..", ".##")),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type as `Record` has them, none of them empty."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return MARKED[hint.__metadata__[0]]
    if hint is Choices:
        four = st.tuples(*[TEXTS] * 4)
        numbers = st.integers(0, 3)
        return st.builds(Choices, st.just("k"), TEXTS, four, numbers, four, numbers)
    if is_dataclass(hint):
        return st.builds(hint, **{name: values(one) for name, one in get_type_hints(hint, include_extras=True).items()})  # type: ignore[arg-type]
    if kind is tuple:
        several = st.lists(values(inner[0]), min_size=1, max_size=2).map(tuple)
        return several if inner[-1] is Ellipsis else st.tuples(*map(values, inner))
    if kind is Mapping:
        return st.dictionaries(st.sampled_from((ENTAILMENT, "any name")), values(inner[1]), min_size=1).map(_judged)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.sampled_from(("word", "other")), bool: st.booleans(), int: st.integers(0, 0),
        float: st.sampled_from((0.5, 1.0)), Path: st.just(Path("/pictures/a.png")),
    }  # fmt: skip
    return plain[hint] if hint in plain else values(inner[0])  # X | None


def _judged(more: dict[str, Any]) -> dict[str, Any]:
    """With labels as entailment has them, where the values are items of tasks."""
    return more | {
        name: tuple(replace(item, answers=LABELS[:1]) for item in items)
        for name, items in more.items()
        if name == ENTAILMENT and isinstance(items[0], TaskItem)
    }


HINTS.pop("regions")  # a Record of ours gets some that a store gives back as they are


def records() -> st.SearchStrategy[Record]:
    own = {
        "key": st.just("a"),
        "split": st.just("train"),
        "size": st.just((SIDES, SIDES)),
        "objects": values(HINTS["objects"]),
    }
    return st.builds(Record, **{name: own[name] if name in own else values(hint) for name, hint in HINTS.items()})


def whole(record: Record) -> Record:
    """With regions, and what a model wrote as one of the captions."""
    generated = tuple(replace(one, text=record.captions[0]) for one in record.generated)
    ids = tuple(f"{number}" for number, _ in enumerate(record.captions))
    return replace(record, generated=generated, caption_ids=ids, regions=seen(1).regions)


def same(one: Record, other: Record) -> None:
    assert replace(one, regions=None) == replace(other, regions=None)
    assert one.regions is not None
    assert other.regions is not None
    assert torch.allclose(one.regions.boxes, other.regions.boxes, atol=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings(BY_BEARTYPE)
@given(records())
@settings(max_examples=25, deadline=None)
def test_every_field_goes_everywhere(record: Record) -> None:
    record = whole(record)
    assert all(getattr(record, one.name) not in (None, (), {}) for one in fields(Record))
    bare = Record("a")
    same(record, mirrored(mirrored(record)))
    spoken = record.marked("text", "tagged", "label")
    assert mirrored(record).marked("text", "tagged", "label") == list(map(swapped, spoken))
    for joined in (combined([record], [bare]), combined([bare], [record])):
        same(joined[0], record)
    with TemporaryDirectory() as folder:
        with StoreWriter(Path(folder) / "store", CONTRACT) as writer:
            writer.add(record)
        store = Store(Path(folder) / "store")
        same(store.record(0), record)
        words = {word for text in training_texts(store) for word in text.split()}
        assert words == {word for text in words_of(record) for word in text.split()}
    assert len(words_of(record)) == len(record.marked(*READ))
    found = check([record], pictures=False)
    assert found.coverage == dict.fromkeys(sorted((*WORDED, *record.more, "regions")), 100.0)
    outside = record.changed({"box": lambda box: (box[2], box[1], box[0], box[3])})
    (wrong,) = (one for one in check([outside], pictures=False).findings if one.kind == "true box wrong")
    assert wrong.count == len(record.marked("box"))


@pytest.mark.filterwarnings(BY_BEARTYPE)
@given(records())
@settings(max_examples=25, deadline=None)
def test_every_field_is_read_from_lines(record: Record) -> None:
    record = whole(record)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.jsonl"
        path.write_text("".join(f"{json.dumps({'image': 'a', **line})}\n" for line in lines_of(record)))
        (read,) = jsonl.read(Wanted(split="train"), Source(path))
    for one in (one for one in fields(Record) if one.name not in NOT_IN_LINES):
        assert in_lines(getattr(read, one.name)) == in_lines(getattr(record, one.name)), one.name


def lines_of(record: Record) -> list[dict[str, Any]]:
    def pixels(box: tuple[float, ...]) -> list[float]:
        x1, y1, x2, y2 = (side * SIDES for side in box)
        return [x1, y1, x2 - x1, y2 - y1]

    more = {
        name: [{"text": i.text, "answers": list(i.answers), "boxes": list(map(pixels, i.boxes))} for i in items]
        for name, items in record.more.items()
    }
    lines: list[dict[str, Any]] = [
        {
            "captions": list(record.captions),
            "caption_ids": list(record.caption_ids),
            "generated": [asdict(one) for one in record.generated],
        },
        *({"question": one.text, "answers": list(one.answers)} for one in record.questions),
        *({"expression": one.text, "box": pixels(one.box)} for one in record.expressions),
        *(asdict(c) | {"choices": list(c.answers), "answers": [], "answer": c.answer} for c in record.choices),
        *({"statement": one.text, "true": one.true} for one in record.statements),
        {"objects": [{"kind": one.kind, "box": pixels(one.box)} for one in record.objects]},
        {"more": more},
    ]
    return [{"width": SIDES, "height": SIDES, "image_id": record.image_id, **line} for line in lines]


def in_lines(value: Any) -> Any:
    """As far as lines have it: they number the keys, and what is known of objects alone is not theirs."""
    if isinstance(value, dict):
        return {name: in_lines(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(in_lines, value))
    unknown = {
        "key": "",
        "attributes": {},
        "visible": 1.0,
        "mask": (),
        **({"kind": ""} if isinstance(value, Question) else {}),
    }
    return {**asdict(value), **unknown} if is_dataclass(value) and not isinstance(value, type) else value


@pytest.mark.parametrize("hint", [Record, *(get_args(HINTS[name])[0] for name in WORDED[1:]), Object])
def test_what_people_say_is_marked(hint: type) -> None:
    """Else it would be neither mirrored nor read."""
    assert {name for name, one in get_type_hints(hint, include_extras=True).items() if unmarked(one)} <= PLAIN


def unmarked(hint: Any) -> bool:
    if get_origin(hint) is Annotated or is_dataclass(hint):
        return False
    if get_origin(hint) is Mapping:
        return unmarked(get_args(hint)[1])
    return hint is str or any(map(unmarked, get_args(hint)))
