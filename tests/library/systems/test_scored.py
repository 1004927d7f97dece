"""Which numbers of the papers' rows a model can be scored against on this machine."""

import pytest

from diptych.metrics.retrieval import RECALLS
from diptych.runtime.errors import RecipeError
from diptych.systems import papers
from diptych.systems.catalogue import find_row

# Names of scores as the tasks give them.
NAMES = {
    "caption": {"BLEU-4", "METEOR", "CIDEr", "SPICE"},
    "vqa": {"accuracy", "accuracy yes/no", "accuracy number", "accuracy other"},
    "vcr": {"Q->A", "QA->R", "Q->AR"},
    "referring": {"accuracy"},
    "retrieval": {f"{asks} R@{at}" for asks in RECALLS.values() for at in (1, 5, 10)},
}


def test_each_column_has_the_name_of_a_score_of_its_task() -> None:
    parts = [part for paper in papers() for part in paper.parts.values() if part.scored]
    assert len(parts) > 15
    for part in parts:
        for split, names in part.scored.items():
            assert len(names) == len(part.columns), part.title
            assert {*names} - {""} <= NAMES[str(part.task)], part.title
            assert split not in ("test-dev", "test-std"), "only a server has these answers"


def test_the_numbers_are_those_of_the_table() -> None:
    entry, data = find_row("unified-vlp/table-2/unified-vlp/coco") or pytest.fail("no row")
    assert {name: printed for name, (_, _, printed) in entry.scored("caption", "test", data).items()} == {
        "BLEU-4": "36.5", "METEOR": "28.4", "CIDEr": "116.9", "SPICE": "21.2",
    }  # fmt: skip
    best, _ = find_row("tden/table-1/tden-two-stream-decoupled") or pytest.fail("no row")
    assert {name: printed for name, (_, _, printed) in best.scored("vcr", "val").items()} == {
        "Q->A": "75.2", "QA->R": "76.7", "Q->AR": "58.1",
    }  # fmt: skip
    given, data = find_row("vl-bert/table-4/vl-bert/refcoco+-ground") or pytest.fail("no row")
    assert [
        number
        for split in ("val", "testA", "testB")
        for _, _, number in given.scored("referring", split, data).values()
    ] == ["78.44", "81.30", "71.18"]
    web, _ = find_row("unified-vlp/text/lambda-1-30-epochs") or pytest.fail("no row")
    assert [(printed, part.beams) for part, _, printed in web.scored("caption", "val").values()] == [("77.2", 1)]


def test_a_choice_between_data_sets_is_left_to_the_user() -> None:
    entry, data = find_row("unified-vlp/table-2/unified-vlp") or pytest.fail("no row")
    with pytest.raises(RecipeError, match=r"two numbers of BLEU-4.*/table-2/unified-vlp/coco-test \(caption"):
        entry.scored("caption", "test", data)
    with pytest.raises(RecipeError, match=r"no vqa number on split test.*/flickr30k-test \(caption, --split"):
        entry.scored("vqa", "test", data)


def test_what_has_not_the_form_of_a_row_is_none() -> None:
    assert [find_row(name) for name in ("runs/caption", "user/name", "runs/of/caption")] == [None] * 3
    with pytest.raises(RecipeError, match="no row 'tdn/table-2/2-msg-ism'; did you mean tden/table-2/2-msg-ism"):
        find_row("tdn/table-2/2-msg-ism")
