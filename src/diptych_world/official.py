"""Convert records of Storybook to JSON values in the formats of public data sets."""

from collections.abc import Sequence
from typing import Any

from diptych.core import Expression, Object, Record
from diptych.core.entailment import ENTAILMENT
from diptych.data.formats.vcr import tokens
from diptych_world.kinds import KINDS, NAMES
from diptych_world.world import SIDE

Json = dict[str, Any]
_MOST = 1000  # limit of annotations per picture: ids are picture * 1000 + index, as in VQA v2
_INFO = {"description": "Storybook, the drawn world of Diptych", "version": "1"}


def number_of(record: Record) -> int:
    """Return the number of a record's picture in its split."""
    return int(record.key.rpartition("/")[2])


def file_of(record: Record) -> str:
    """Return the path of a record's picture below the folder `pictures`."""
    return f"{record.key}.png"


def _id(record: Record, place: int) -> int:
    return number_of(record) * _MOST + place


def _box(box: tuple[float, float, float, float]) -> list[int]:
    """Convert a box in fractions to COCO's form: left, top, width, height in pixels."""
    x1, y1, x2, y2 = (round(end * SIDE) for end in box)
    return [x1, y1, x2 - x1, y2 - y1]


def _images(records: Sequence[Record]) -> list[Json]:
    return [{"id": number_of(r), "file_name": file_of(r), "width": SIDE, "height": SIDE} for r in records]


def captions(records: Sequence[Record]) -> Json:
    """Return the content of a COCO caption file."""
    annotations = [
        {"id": _id(record, place), "image_id": number_of(record), "caption": caption}
        for record in records
        for place, caption in enumerate(record.captions)
    ]
    return {"info": _INFO, "licenses": [], "images": _images(records), "annotations": annotations}


def instances(records: Sequence[Record]) -> Json:
    """Return the content of a COCO instance file.

    It also has attributes, visible shares and relations, which other programs ignore.
    """
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
    x, y, width, height = _box(thing.box)
    # The outline is the box, because the exact outline is not known.
    outline = [x, y, x + width, y, x + width, y + height, x, y + height]
    return {
        "id": _id(record, place), "image_id": number_of(record), "category_id": NAMES.index(thing.kind) + 1,
        "bbox": [x, y, width, height], "area": width * height, "segmentation": [outline], "iscrowd": 0,
        "attributes": dict(thing.attributes), "visible": thing.visible,
    }  # fmt: skip


def questions(records: Sequence[Record], split: str) -> tuple[Json, Json]:
    """Return the contents of VQA v2's two files: the questions, and the answers of the annotators."""
    texts, annotations = [], []
    for record in records:
        for place, question in enumerate(record.questions):
            ids = {"image_id": number_of(record), "question_id": _id(record, place)}
            texts.append(ids | {"question": question.text})
            answers = [
                {"answer": answer, "answer_confidence": "yes", "answer_id": at}
                for at, answer in enumerate(question.answers, start=1)
            ]
            most = max(question.answers, key=question.answers.count)
            kinds = {"question_type": " ".join(question.text.split()[:2]), "answer_type": question.kind}
            annotations.append(ids | kinds | {"multiple_choice_answer": most, "answers": answers})
    head = {"info": _INFO, "task_type": "Open-Ended", "data_type": "storybook", "data_subtype": split, "license": {}}
    return head | {"questions": texts}, head | {"annotations": annotations}


def refs(records: Sequence[Record]) -> Json:
    """Return RefCOCO's list of expressions."""
    refs = [_ref(record, place, one) for record in records for place, one in enumerate(record.expressions)]
    return {"info": _INFO, "images": _images(records), "refs": refs}


def _ref(record: Record, place: int, expression: Expression) -> Json:
    number = _id(record, place)
    thing = next(at for at, thing in enumerate(record.objects) if thing.box == expression.box)
    return {
        "ref_id": number, "image_id": number_of(record), "ann_id": _id(record, thing),
        "category": record.objects[thing].kind, "split": record.split, "bbox": _box(expression.box),
        "sentences": [{"sent_id": number, "sent": expression.text}],
    }  # fmt: skip


def vcr_lines(records: Sequence[Record]) -> list[Json]:
    """Return the lines of a VCR annotation file."""
    return [
        {
            "movie": "storybook", "objects": [thing.kind for thing in record.objects], "img_fn": file_of(record),
            "metadata_fn": f"{record.key}.json", "question": tokens(choices.question),
            "answer_choices": list(map(tokens, choices.answers)), "answer_label": choices.answer,
            "rationale_choices": list(map(tokens, choices.rationales)), "rationale_label": choices.rationale,
            "img_id": record.key, "question_number": place, "annot_id": choices.key,
        }
        for record in records
        for place, choices in enumerate(record.choices)
    ]  # fmt: skip


def vcr_metadata(record: Record) -> Json:
    """Return the content of VCR's metadata file for a picture: boxes, outlines and names of its objects."""
    boxes = [[round(end * SIDE) for end in thing.box] for thing in record.objects]
    return {
        "boxes": [[*map(float, box), 1.0] for box in boxes],
        "segms": [[[[x1, y1], [x2, y1], [x2, y2], [x1, y2]]] for x1, y1, x2, y2 in boxes],
        "names": [thing.kind for thing in record.objects], "width": SIDE, "height": SIDE,
    }  # fmt: skip


def hypotheses(records: Sequence[Record]) -> list[Json]:
    """Return the lines of an SNLI-VE file. The premise is the picture with its first caption."""
    return [
        {
            "Flickr30K_ID": record.key, "pairID": hypothesis.key, "sentence1": record.captions[0],
            "sentence2": hypothesis.text, "gold_label": hypothesis.answers[0],
        }
        for record in records
        for hypothesis in record.more.get(ENTAILMENT, ())
    ]  # fmt: skip


def statements(records: Sequence[Record]) -> list[Json]:
    """Return the lines of an NLVR file, with one picture per statement."""
    return [
        {"identifier": one.key, "sentence": one.text, "label": str(one.true), "image": file_of(record)}
        for record in records
        for one in record.statements
    ]
