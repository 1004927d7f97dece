"""Storybook's records in the forms of the public data sets, as JSON values."""

from collections.abc import Sequence
from typing import Any

from diptych.core import Expression, Object, Record
from diptych.core.entailment import ENTAILMENT
from diptych.data.formats.vcr import tokens
from diptych.storybook.kinds import KINDS, NAMES
from diptych.storybook.world import SIDE

Json = dict[str, Any]
_MOST = 1000  # words of one sort and picture: ids are picture * 1000 + place, as in VQA v2
_INFO = {"description": "Storybook, the drawn world of Diptych", "version": "1"}


def number_of(record: Record) -> int:
    return int(record.key.rpartition("/")[2])


def file_of(record: Record) -> str:
    return f"{record.key}.png"


def _box(box: tuple[float, float, float, float]) -> list[int]:
    """COCO's left, top, width, height in pixels."""
    x1, y1, x2, y2 = (round(end * SIDE) for end in box)
    return [x1, y1, x2 - x1, y2 - y1]


def _images(records: Sequence[Record]) -> list[Json]:
    return [{"id": number_of(r), "file_name": file_of(r), "width": SIDE, "height": SIDE} for r in records]


def captions(records: Sequence[Record]) -> Json:
    annotations = [
        {"id": number_of(record) * _MOST + place, "image_id": number_of(record), "caption": caption}
        for record in records
        for place, caption in enumerate(record.captions)
    ]
    return {"info": _INFO, "licenses": [], "images": _images(records), "annotations": annotations}


def instances(records: Sequence[Record]) -> Json:
    """With attributes, visible shares and relations, which COCO lacks and its readers pass over."""
    images = [
        image | {"relations": [list(relation) for relation in record.relations]}
        for image, record in zip(_images(records), records, strict=True)
    ]
    categories = [
        {"id": number, "name": kind.name, "supercategory": kind.family}
        for number, kind in enumerate(KINDS.values(), start=1)
    ]
    annotations = [_instance(record, place, thing) for record in records for place, thing in enumerate(record.objects)]
    return {"info": _INFO, "licenses": [], "images": images, "categories": categories, "annotations": annotations}


def _instance(record: Record, place: int, thing: Object) -> Json:
    left, top, width, height = _box(thing.box)
    return {
        "id": number_of(record) * _MOST + place,
        "image_id": number_of(record),
        "category_id": NAMES.index(thing.kind) + 1,
        "bbox": [left, top, width, height],
        "area": width * height,
        "segmentation": [_outline(left, top, left + width, top + height)],
        "iscrowd": 0,
        "attributes": dict(thing.attributes),
        "visible": thing.visible,
    }


def _outline(x1: int, y1: int, x2: int, y2: int) -> list[int]:
    """The box as a polygon: outlines are not known more closely."""
    return [x1, y1, x2, y1, x2, y2, x1, y2]


def questions(records: Sequence[Record], split: str) -> tuple[Json, Json]:
    """VQA v2's two files: what is asked, and what people answered."""
    asked, answered = [], []
    for record in records:
        for place, question in enumerate(record.questions):
            ids = {"image_id": number_of(record), "question_id": number_of(record) * _MOST + place}
            asked.append(ids | {"question": question.text})
            answers = [
                {"answer": answer, "answer_confidence": "yes", "answer_id": at}
                for at, answer in enumerate(question.answers, start=1)
            ]
            most = max(question.answers, key=lambda answer, given=question.answers: given.count(answer))  # type: ignore[misc]
            kinds = {"question_type": " ".join(question.text.split()[:2]), "answer_type": question.kind}
            answered.append(ids | kinds | {"multiple_choice_answer": most, "answers": answers})
    head = {"info": _INFO, "task_type": "Open-Ended", "data_type": "storybook", "data_subtype": split, "license": {}}
    return head | {"questions": asked}, head | {"annotations": answered}


def refs(records: Sequence[Record]) -> Json:
    found = [
        _ref(record, place, expression) for record in records for place, expression in enumerate(record.expressions)
    ]
    return {"info": _INFO, "images": _images(records), "refs": found}


def _ref(record: Record, place: int, expression: Expression) -> Json:
    number = number_of(record) * _MOST + place
    thing = next(at for at, thing in enumerate(record.objects) if thing.box == expression.box)
    return {
        "ref_id": number,
        "image_id": number_of(record),
        "ann_id": number_of(record) * _MOST + thing,
        "category": record.objects[thing].kind,
        "split": record.split,
        "bbox": _box(expression.box),
        "sentences": [{"sent_id": number, "sent": expression.text}],
    }


def vcr_lines(records: Sequence[Record]) -> list[Json]:
    return [
        {
            "movie": "storybook",
            "objects": [thing.kind for thing in record.objects],
            "img_fn": file_of(record),
            "metadata_fn": f"{record.key}.json",
            "question": tokens(choices.question),
            "answer_choices": [tokens(answer) for answer in choices.answers],
            "answer_label": choices.answer,
            "rationale_choices": [tokens(rationale) for rationale in choices.rationales],
            "rationale_label": choices.rationale,
            "img_id": record.key,
            "question_number": place,
            "annot_id": choices.key,
        }
        for record in records
        for place, choices in enumerate(record.choices)
    ]


def vcr_metadata(record: Record) -> Json:
    boxes = [[round(end * SIDE) for end in thing.box] for thing in record.objects]
    return {
        "boxes": [[*map(float, box), 1.0] for box in boxes],
        "segms": [[[[x1, y1], [x2, y1], [x2, y2], [x1, y2]]] for x1, y1, x2, y2 in boxes],
        "names": [thing.kind for thing in record.objects],
        "width": SIDE,
        "height": SIDE,
    }


def hypotheses(records: Sequence[Record]) -> list[Json]:
    """SNLI-VE's lines: the premise is the first caption, and its picture."""
    return [
        {
            "Flickr30K_ID": record.key,
            "pairID": hypothesis.key,
            "sentence1": record.captions[0],
            "sentence2": hypothesis.text,
            "gold_label": hypothesis.answers[0],
        }
        for record in records
        for hypothesis in record.more.get(ENTAILMENT, ())
    ]


def statements(records: Sequence[Record]) -> list[Json]:
    return [
        {
            "identifier": statement.key,
            "sentence": statement.text,
            "label": str(statement.true),
            "image": file_of(record),
        }
        for record in records
        for statement in record.statements
    ]
