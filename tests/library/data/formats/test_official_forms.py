"""Files in the whole form that each data set documents: small ones made by hand, and real ones where they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from diptych.core import Record
from diptych.data.formats import flickr30k, nlvr, vcr, vqa2
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips
from diptych.data.formats.table import read
from diptych.metrics.vqa import answer_accuracy
from diptych.runtime.errors import DataError

DATA = Path(__file__).parent / "data"


def test_vqa2() -> None:
    records = vqa2.read(Wanted(), Source(DATA / "vqav2/questions.json"), Source(DATA / "vqav2/annotations.json"))
    assert [record.key for record in records] == ["COCO_val2014_000000000042", "COCO_val2014_000000000139"]
    rug, rain = records[0].questions
    (kites,) = records[1].questions
    assert (rug.key, rug.text, rug.kind) == ("42000", "What is the dog standing on?", "other")
    assert (rain.kind, kites.kind) == ("yes/no", "number")
    assert kites.answers == ("3",) * 6 + ("2",) * 4
    # Of ten people three said mat, one carpet; of the ten ways to leave one out, three leave out a mat.
    assert [answer_accuracy(said, rug.answers) for said in ("Rug", "mat", "carpet", "cat")] == [1, 0.9, 0.3, 0]


def test_vcr() -> None:
    (one,) = vcr.read(Wanted(), Source(DATA / "vcr/train.jsonl"), Source(DATA / "vcr/metadata"))
    (choices,) = one.choices
    assert (one.key, one.size) == ("by_hand/garden@0", (200, 120))
    assert choices.question == "What are [0] and [1] doing ?"
    assert choices.answers[1] == "[0] throws a ball to [2] ."
    assert choices.rationales[2] == "[0] and [1] sit down ."
    assert (choices.answer, choices.rationale) == (1, 0)


def test_nlvr2() -> None:
    pairs = nlvr.read_pairs(Wanted(), Source(DATA / "nlvr2/dev.json"))
    assert [pair.key for pair in pairs] == ["dev-12-0", "dev-12-3"]
    said = [statement for pair in pairs for statement in pair.statements]
    assert [statement.key for statement in said] == ["dev-12-0-0", "dev-12-0-1", "dev-12-3-0"]
    assert [statement.true for statement in said] == [False, True, True]


def test_flickr30k_entities() -> None:
    folder = DATA / "flickr30k_entities"
    (one,) = flickr30k.read(Wanted(), Source(folder), Source(folder / "test.txt"))
    assert (one.key, one.split) == ("36979", "test")
    assert one.captions == (
        "Two men fly a red kite over the beach .",
        "Friends hold the string of a kite , laughing .",
        "On a windy day , a kite is up .",
        "A pair of men in yellow coats look up .",
        "A beach with # 1 kite .",
    )


def read_of(folder: Path, content: Any) -> tuple[list[Record], Skips]:
    (folder / "f.json").write_text(json.dumps(content))
    return read(folder / "f.json", need_pictures=False, skips=(skips := Skips())), skips


@pytest.mark.parametrize("mark", ["is_rejected", "is_precanned"])
def test_captions_that_vizwiz_marks_are_left_out(mark: str, tmp_path: Path) -> None:
    plain = {"image_id": 0, "is_precanned": False, "is_rejected": False, "text_detected": False}
    notes = [plain | {"id": 0, "caption": "a red block"}, plain | {"id": 1, "caption": "Quality issues", mark: True}]
    images = [{"id": 0, "file_name": "VizWiz_train_00000000.jpg", "vizwiz_url": "x"}]
    (one,), skips = read_of(tmp_path, {"images": images, "annotations": notes})
    assert (one.captions, one.caption_ids) == (("a red block",), ("0",))
    assert skips.counts == {"captions marked as rejected or precanned": 1}


def test_vizwiz_vqa(tmp_path: Path) -> None:
    """A question of each image, with ten answers; the test set has none."""
    given = [{"answer": text, "answer_confidence": "yes"} for text in ("cup", "", "unanswerable", "cup")]
    name = "VizWiz_val_00000000.jpg"
    asked = {"image": name, "question": "What is this?"}
    (one,), skips = read_of(tmp_path, [asked | {"answers": given, "answer_type": "other", "answerable": 1}])
    (question,) = one.questions
    assert (one.key, question.key, question.kind) == ("VizWiz_val_00000000", name, "other")
    assert question.answers == ("cup", "unanswerable", "cup")
    assert skips.counts == {"empty answers": 1}
    (one,), _ = read_of(tmp_path, [asked])
    assert one.questions[0].answers == ()
    with pytest.raises(DataError, match="is not data that Diptych reads"):
        read_of(tmp_path, [asked | {"answer": "a list of ones own"}])


def test_a_okvqa(tmp_path: Path) -> None:
    """Two questions of an image of COCO, one of which has no answer but its choices."""
    asked = {
        "split": "val", "image_id": 299207, "question": "What does he wait for?", "choices": ["a", "b", "c", "d"],
        "correct_choice_idx": 3, "direct_answers": ["yes"] * 9 + ["a ride"], "rationales": ["x"],
    }  # fmt: skip
    first, hard, again = ({"question_id": f"22{n}"} for n in "aba")
    listed = [asked | first, asked | hard | {"difficult_direct_answer": True}, asked | again]
    (one,), skips = read_of(tmp_path, listed)
    assert (one.key, one.split) == ("000000299207", "val")
    assert [(each.key, each.kind, len(each.answers)) for each in one.questions] == [("22a", "yes/no", 10)]
    assert skips.counts["questions marked as difficult_direct_answer"] == 1
    assert "found the question id 22a a second time" in str(skips)


def test_real_samples(data_folder: Path) -> None:
    """What real files have that nobody would think of, such as `Texas A&M` in a phrase."""
    folder = data_folder / "formats"
    records = vqa2.read(Wanted(), Source(folder / "vqav2/questions.json"), Source(folder / "vqav2/annotations.json"))
    questions = [question for one in records for question in one.questions]
    assert [len(question.answers) for question in questions] == [10, 10, 10]
    assert questions[0].text == "What is this photo taken looking through?"
    assert answer_accuracy("Net", questions[0].answers) == 1
    (one,) = vcr.read(Wanted(), Source(folder / "vcr/train_one.jsonl"))
    assert one.choices[0].question == "Does [2] feel comfortable ?"
    assert (one.choices[0].answer, one.choices[0].rationale) == (1, 1)
    pairs = nlvr.read_pairs(Wanted(), Source(folder / "nlvr2/tiny-dev.json"))
    assert [(pair.statements[0].key, pair.statements[0].true) for pair in pairs[:2]] == [
        ("dev-850-0-0", False),
        ("dev-850-2-0", True),
    ]
    sentences = folder / "flickr30k_entities"
    records = flickr30k.read(Wanted(), Source(sentences), Source(sentences / "test.txt"))
    assert len(records[0].captions) == 5
    assert records[0].captions[0].startswith("On a sunny , dry day , wearing full football gear , a Texas A&M football")
