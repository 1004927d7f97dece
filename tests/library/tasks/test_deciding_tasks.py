"""VCR, referring expressions and statements: what is read, what is counted, what is held against it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.core import IGNORE, Choices, Expression, Object, Record, Statement, TaskItem, collate, iou
from diptych.runtime.errors import DataError
from diptych.tasks import ENTAILMENT, NLVR, verdicts
from diptych.tasks.baselines import BlindChoice, vcr_baselines
from diptych.tasks.referring import Referring, referring_baselines, score_referring
from diptych.tasks.spec import TaskOptions
from diptych.tasks.vcr import Vcr, chosen, cut, names_of, score_vcr
from tests.support.deciding import ANSWERS, REASONS, RECORDS, TOKENS

VERDICTS = [spec.build(TaskOptions(TOKENS)) for spec in (NLVR, ENTAILMENT)]
SEP = TOKENS.vocabulary.sep
LEFT, RIGHT = (0.0, 0.0, 0.4, 1.0), (0.6, 0.0, 1.0, 1.0)


def words(sample: Any) -> list[str]:
    """The text as words, [SEP] as a bar."""
    pieces: list[list[int]] = [[]]
    for token in sample.text.tolist():
        if token == SEP:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [TOKENS.decode(piece) for piece in pieces[:-1]]


def test_the_texts_of_vcr() -> None:
    """Question and answer apart; question and right answer together, and the rationale apart. Tags are named."""
    record = RECORDS[0]
    names = names_of(record.objects)
    asked = Vcr(TOKENS).queries(record)
    assert [s.group for s in asked] == ["p0/0/answer"] * 4 + ["p0/0/rationale"] * 4

    def told(text: str) -> str:
        for number, name in enumerate(names):
            text = text.replace(f"[{number}]", name.lower())
        return text

    question = told("what does [0] do")
    assert [words(s) for s in asked[:4]] == [[question, told(answer)] for answer in ANSWERS]
    assert [words(s) for s in asked[4:]] == [[f"{question} {told(ANSWERS[0])}", told(reason)] for reason in REASONS]
    assert [s.matched for s in asked] == [True, False, False, False, False, True, False, False]


def test_a_named_thing_points_at_its_region() -> None:
    first = Vcr(TOKENS).queries(RECORDS[0])[0]
    assert first.text_regions is not None
    names = names_of(RECORDS[0].objects)
    pointing = [
        (TOKENS.decode([token]).lower().removeprefix("##"), region)
        for token, region in zip(first.text.tolist(), first.text_regions.tolist(), strict=True)
        if region != IGNORE
    ]
    assert [region for _, region in pointing if region == 1]
    assert {region for _, region in pointing} == {0, 1}
    assert all(piece in names[region].lower() for piece, region in pointing)


def test_people_have_names_that_tell_no_gender() -> None:
    objects = [Object(kind, LEFT) for kind in ("person", "dog", "person")]
    assert names_of(objects) == ["Casey", "dog", "Riley"]
    assert names_of([Object("person", LEFT)] * 14)[13] == "Casey"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 20))
def test_the_longer_sentence_is_cut(first: int, second: int, most: int) -> None:
    one, two = cut([(1, None)] * first, [(2, None)] * second, most)
    assert len(one) + len(two) == min(most, first + second)
    if first + second > most:  # popping the longer one, one by one, as VL-BERT's code does
        lengths = [first, second]
        while sum(lengths) > most:
            lengths[0 if lengths[0] > lengths[1] else 1] -= 1
        assert [len(one), len(two)] == lengths


def test_without_labels_answers_are_asked_and_rationales_are_not() -> None:
    unlabelled = replace(RECORDS[0], choices=(Choices("c", "what", ANSWERS, -1, REASONS),))
    task = Vcr(TOKENS)
    assert task.samples(unlabelled) == []
    assert {s.group for s in task.queries(unlabelled)} == {"c/answer"}


def vcr(*right: tuple[int, int | None]) -> list[Record]:
    return [
        Record(f"r{n}", choices=(Choices(f"q{n}", "w", ANSWERS, a, REASONS if r is not None else (), r),))
        for n, (a, r) in enumerate(right)
    ]


def test_q_to_ar_wants_both() -> None:
    records = vcr((0, 1), (2, 2), (3, 0))
    said = {"q0/answer": 0, "q0/rationale": 1, "q1/answer": 2, "q1/rationale": 0, "q2/answer": 1, "q2/rationale": 0}
    scores = score_vcr(said, records, vcr_baselines(records))
    assert [round(scores[name].value, 1) for name in ("Q->A", "QA->R", "Q->AR")] == [66.7, 66.7, 33.3]
    assert [scores[name].blind for name in ("Q->A", "QA->R", "Q->AR")] == [25, 25, 6.25]
    assert (scores.task, scores.pictures, scores.items) == ("vcr", 3, 3)
    bare = score_vcr({"q0/answer": 0}, vcr((0, None)))
    assert [score.name for score in bare.scores] == ["Q->A"]
    with pytest.raises(DataError, match="no question has choices and a known answer"):
        score_vcr({}, [Record("a")])


def test_the_best_of_a_group_is_chosen() -> None:
    said = [{"group": g, "choice": n, "score": s} for g, n, s in [("a", 0, 1.0), ("b", 0, 0.0), ("a", 1, 2.0)]]
    assert chosen(said) == {"a": 1, "b": 0}


def test_words_alone_are_the_blind_choice() -> None:
    training = vcr(*[(0, 1)] * 3)
    blind = BlindChoice.of((c.answers, c.answer) for r in training for c in r.choices)
    assert blind.pick(ANSWERS) == 0
    baselines = vcr_baselines(vcr((0, 1), (1, 1)), training)
    assert baselines.blind == {"Q->A": 0.5, "QA->R": 1.0, "Q->AR": 0.5}
    assert any("Q->A 25.0" in note for note in baselines.notes)
    untaught = vcr_baselines(vcr((0, 1), (1, 1)), vcr(*[(0, None)] * 3))
    assert untaught.blind == {"Q->A": 0.5, "QA->R": 0.25, "Q->AR": 0.125}, "of reasons that nobody taught, chance"
    with pytest.raises(DataError, match="no training record"):
        BlindChoice.of([])


def test_a_box_counts_from_iou_one_half() -> None:
    assert iou(LEFT, LEFT) == pytest.approx(1)
    assert iou(LEFT, RIGHT) == 0
    assert iou((0.0, 0.0, 1.0, 1.0), (0.5, 0.0, 1.5, 1.0)) == pytest.approx(1 / 3)
    assert iou((0.0, 0.0, 1.0, 1.0), (2.0, 2.0, 3.0, 3.0)) == 0
    record = Record("r", expressions=(Expression("e", "the left one", (0.0, 0.0, 1.0, 1.0)),))
    assert score_referring({"e": (0.0, 0.0, 0.5, 1.0)}, [record])["accuracy"].value == 100
    assert score_referring({"e": (0.0, 0.0, 0.49, 1.0)}, [record])["accuracy"].value == 0
    assert score_referring({"e": None}, [record])["accuracy"].value == 0
    with pytest.raises(DataError, match="no record has expressions"):
        score_referring({}, [Record("r")])


def test_blind_and_ceiling_of_expressions() -> None:
    """Blind does not read; the ceiling is what the regions allow."""
    record = RECORDS[0]
    lost = replace(record, expressions=(Expression("x", "nowhere", (0.0, 0.0, 0.001, 0.001)), *record.expressions))
    baselines = referring_baselines([lost], RECORDS)
    assert baselines.ceiling["accuracy"] == pytest.approx(2 / 3)
    assert baselines.blind["accuracy"] in (0, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert any("1 of 3 expressions have none" in note for note in baselines.notes)


def test_verdicts_beside_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        Record(f"r{n}", statements=(Statement(f"s{n}", "there is a dog" if n < 2 else "it rains", n < 2),))
        for n in range(4)
    ]
    baselines = NLVR.scoring.baselines
    assert baselines is not None
    said = {"s0": True, "s1": True, "s2": True, "s3": False}
    scores = NLVR.scoring.score(said, records, baselines(records, records * 3))
    assert (scores["accuracy"].value, scores["accuracy"].blind) == (75, 100)
    assert NLVR.scoring.gain is not None
    assert NLVR.scoring.gain(said, dict.fromkeys(said, True), records).value == -25
    with monkeypatch.context() as patch:
        patch.setattr(verdicts, "learnt_answers", lambda _, asked: {one.key: one.answers[0] for one in asked})
        assert baselines(records, records[2:] * 3).predicted == {f"s{n}": n < 2 for n in range(4)}, "of the better one"
    assert NLVR.scoring.score(said, records, baselines(records, []))["accuracy"].blind == 50
    with pytest.raises(DataError, match="no record has statements"):
        NLVR.scoring.score({}, [Record("a")], None)


def test_hypotheses_of_three_classes() -> None:
    """What has no label that people agreed on is asked, and neither learnt nor scored."""
    labels = ("entailment", "neutral", "contradiction")
    known = [
        Record(f"r{n}", more={"entailment": (TaskItem(f"h{n}", "a dog sleeps", (label,)),)})
        for n, label in enumerate(labels)
    ]
    records = [*known, Record("r3", more={"entailment": (TaskItem("h3", "a dog"), TaskItem("h4", "a dog", ("-",)))})]
    task = ENTAILMENT.build(TaskOptions(TOKENS))
    assert [[len(task.queries(one)), len(task.samples(one))] for one in records] == [[1, 1]] * 3 + [[2, 0]]
    assert [task.samples(one)[0].truth for one in known] == [{"class": number} for number in range(3)]
    said = {"h0": "entailment", "h1": "entailment", "h2": "contradiction", "h3": "neutral", "h4": "neutral"}
    assert ENTAILMENT.scoring.baselines is not None
    blind = ENTAILMENT.scoring.baselines(records, [known[1]])
    scores = ENTAILMENT.scoring.score(said, records, blind)
    assert (scores["accuracy"].value, scores["accuracy"].blind) == pytest.approx((200 / 3, 100 / 3))
    assert ENTAILMENT.scoring.baselines(records, []).blind == {"accuracy": pytest.approx(1 / 3)}
    assert ENTAILMENT.texts(records[0]) == ["a dog sleeps"]


class Broken:
    """A model that has read NaN."""

    def __init__(self) -> None:
        nan = float("nan")
        self.heads = {
            "choice": lambda states: torch.full((states,), nan),
            "nlvr": lambda states: torch.full((states, 2), nan),
            "entailment": lambda states: torch.full((states, 3), nan),
            "region_score": lambda states: torch.full((len(states), 5, 1), nan)[:, : states.shape[1]],
        }

    def __call__(self, batch: Any) -> Any:
        class Rows(int):
            regions = torch.zeros(len(batch), batch.boxes.shape[1], 1)

        return Rows(len(batch))


@pytest.mark.parametrize("task", [Vcr(TOKENS), Referring(TOKENS), *VERDICTS], ids=lambda t: t.name)
def test_features_that_are_not_finite_are_named(task: Any) -> None:
    with pytest.raises(DataError, match=r"scores are not finite.*diptych check.*record p1"):
        task.predict(Broken(), collate(task.queries(RECORDS[1])))


def test_nothing_is_found_where_nothing_was_seen() -> None:
    record = replace(RECORDS[0], regions=RECORDS[0].regions.first(0) if RECORDS[0].regions is not None else None)
    model: Any = Broken()
    (first, _) = Referring(TOKENS).predict(model, collate(Referring(TOKENS).queries(record)))
    assert first["box"] is None


def test_labels_of_entailment_are_read_in_any_case() -> None:
    items = tuple(TaskItem(f"t{at}", "a dog", (label,)) for at, label in enumerate(("Neutral", " ENTAILMENT", "maybe")))
    samples = VERDICTS[1].queries(Record("p", more={"entailment": items}))
    assert [one.truth for one in samples] == [
        one.truth
        for one in VERDICTS[1].queries(
            Record(
                "p",
                more={
                    "entailment": (
                        TaskItem("t0", "a dog", ("neutral",)),
                        TaskItem("t1", "a dog", ("entailment",)),
                        TaskItem("t2", "a dog", ()),
                    )
                },
            )
        )
    ]
