"""Choosing among texts, finding what is meant, judging: losses by hand."""

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor, nn

from diptych.core import IGNORE, Batch, Regions, Sample, States, collate
from diptych.objectives import (
    Candidate,
    ChooseText,
    ClassifyStatement,
    GroundExpression,
    MaskedLanguage,
    NamedThing,
    OneForward,
    region_of,
    split_candidates,
)
from diptych.tasks.vcr import VcrObjectives
from tests.support import toy

BOX = (0.0, 0.0, 0.5, 1.0)


class Says(nn.Module):
    """A model whose head says these scores."""

    def __init__(self, head: str, scores: Tensor) -> None:
        super().__init__()
        self.provides = frozenset({"regions", "text"})
        said = nn.Identity()
        said.forward = lambda _: scores  # type: ignore[method-assign]
        self.heads = nn.ModuleDict({head: said})

    def __call__(self, batch: Batch) -> States:
        return _states(batch)


def _states(batch: Batch) -> States:
    rows, count = batch.boxes.shape[:2]
    return States(torch.zeros(rows, count, 4), torch.zeros(rows, batch.text.shape[1], 4))


def regions(*boxes: tuple[float, float, float, float]) -> Regions:
    return Regions(boxes=torch.tensor(boxes).reshape(-1, 4), scores=torch.ones(len(boxes)), size=(100, 100))


def question(key: str, right: int | None, texts: int = 4) -> Sample:
    candidates = [Candidate(torch.tensor([5, 6 + n, 3]), (NamedThing(1, 0, BOX),)) for n in range(texts)]
    truth = {"candidates": candidates, "right": right}
    return Sample(key, "p", regions(BOX), candidates[0].text, truth=truth)


def test_a_question_becomes_four_samples_of_one_group() -> None:
    four = split_candidates(question("q", 2))
    assert [s.key for s in four] == ["q/0", "q/1", "q/2", "q/3"]
    assert {s.group for s in four} == {"q"}
    assert [s.matched for s in four] == [False, False, True, False]
    assert [s.text.tolist() for s in four] == [[5, 6 + n, 3] for n in range(4)]
    assert [s.text_regions.tolist() for s in four if s.text_regions is not None] == [[IGNORE, 0, IGNORE]] * 4


def test_a_batch_may_hold_one_question_twice() -> None:
    prepared = ChooseText().prepare([question("q", 0), question("q", 1)], Random(0))
    assert len({s.group for s in prepared}) == 2
    assert int(ChooseText().count(collate(prepared))) == 2


def test_softmax_and_sigmoid_by_hand() -> None:
    """vcr_loss: the paper's softmax over four, the code's binary loss on each."""
    batch = collate(ChooseText().prepare([question("a", 1), question("b", 0, texts=2)], Random(0)))
    scores = torch.tensor([1.0, 2.0, 0.0, -1.0, 0.5, 1.5])
    model = Says("choice", scores)
    softmax = -(2 - torch.tensor([1.0, 2.0, 0.0, -1.0]).exp().sum().log()) - (
        0.5 - torch.tensor([0.5, 1.5]).exp().sum().log()
    )
    assert float(ChooseText().loss(model, _states(batch), batch)) == pytest.approx(float(softmax), abs=1e-6)
    assert int(ChooseText().count(batch)) == 2
    right = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    binary = -(right * scores.sigmoid().log() + (1 - right) * (1 - scores.sigmoid()).log()).sum()
    each = ChooseText("sigmoid")
    assert float(each.loss(model, _states(batch), batch)) == pytest.approx(float(binary), abs=1e-6)
    assert int(each.count(batch)) == 6


def test_choices_are_made_before_anything_is_hidden() -> None:
    objectives = OneForward((ChooseText(), MaskedLanguage(toy.VOCABULARY)))
    samples = objectives.prepare([question("q", 1)], Random(0))
    assert len(samples) == 4
    assert all((s.text_labels != IGNORE).any() for s in samples if s.text_labels is not None)


def test_what_the_switches_of_vcr_add() -> None:
    """vlbert.vcr_loss: masked region classification (paper), or the class of every region, none hidden (code)."""
    names = lambda **switches: [o.name for o in VcrObjectives(**switches).schedule(toy.VOCABULARY).objectives]  # noqa: E731
    assert names() == ["choose"]
    assert names(words=0.5, region_classes="masked") == ["choose", "masked_language", "masked_region_class"]
    (update,) = (
        u for u, _ in VcrObjectives(vcr_loss="sigmoid", region_classes="every").schedule(toy.VOCABULARY).updates
    )
    assert update.objectives[0] == ChooseText("sigmoid")
    four = update.prepare([replace(question("q", 1), regions=toy.regions(3))], Random(0))
    for one in four:
        assert one.regions is not None
        assert one.regions.chosen is not None
        assert one.regions.hidden is not None
        assert one.regions.chosen.all()
        assert not one.regions.hidden.any()


def test_v1_hides_all_that_it_masks_in_vcr_too() -> None:
    def kept(**switches: object) -> tuple[int, int]:
        """Words that are asked and not [MASK], and regions that are asked and not hidden."""
        objectives = VcrObjectives(words=1.0, region_classes="masked", rate=0.5, **switches)
        (update,) = (u for u, _ in objectives.schedule(toy.VOCABULARY).updates)
        asked = [replace(question(f"q{n}", 1), regions=toy.regions(5, n)) for n in range(40)]
        made = collate(update.prepare(asked, Random(0)))
        words = (made.text_labels >= 0) & (made.text != toy.VOCABULARY.mask)
        return int(words.sum()), int((made.chosen & ~made.hidden).sum())

    assert kept() == (0, 0)
    assert min(kept(masking="official", region_hidden=0.9)) > 0


@pytest.mark.parametrize(
    ("thing", "boxes", "wanted"),
    [
        (1, [BOX, BOX], 1),  # given boxes: by number, though two are equal
        (0, [(0.5, 0.0, 1.0, 1.0), (0.0, 0.0, 0.4, 1.0)], 1),  # detected: the one that overlaps most
        (0, [(0.5, 0.0, 1.0, 1.0), (0.4, 0.0, 0.9, 1.0)], IGNORE),  # none shows it
        (0, [(0.3125, 0.0, 0.625, 1.0)], 0),  # IoU 0.3, no less
        (7, [BOX], 0),  # fewer regions than objects
        (0, [], IGNORE),
        (0, [(float("nan"),) * 4], IGNORE),
    ],
)
def test_a_thing_is_shown_by_a_region(thing: int, boxes: list[tuple[float, ...]], wanted: int) -> None:
    assert region_of(thing, BOX, regions(*boxes)) == wanted  # type: ignore[arg-type]


def expression(*boxes: tuple[float, float, float, float]) -> Sample:
    return Sample("e", "p", regions(*boxes), torch.tensor([5, 3]), truth={"box": BOX})


def test_each_region_is_asked_by_itself() -> None:
    """IoU 1, 0.5 (not over it) and 0; a picture without a right region is left out, padding too."""
    hit = expression(BOX, (0.0, 0.0, 1.0, 1.0), (0.6, 0.0, 1.0, 1.0))
    lost = expression((0.5, 0.0, 1.0, 1.0))
    ground = GroundExpression()
    batch = collate(ground.prepare([hit, lost], Random(0)))
    assert ground.right(batch).tolist() == [[True, False, False], [False, False, False]]
    assert int(ground.count(batch)) == 3
    scores = torch.tensor([[2.0], [-1.0], [0.5]])
    wanted = -(scores[0].sigmoid().log() + (1 - scores[1:].sigmoid()).log().sum())
    loss = ground.loss(Says("region_score", scores), _states(batch), batch)
    assert float(loss) == pytest.approx(float(wanted), abs=1e-6)
    alone = collate(ground.prepare([lost], Random(0)))
    assert int(ground.count(alone)) == 0
    assert float(ground.loss(Says("region_score", torch.zeros(0, 1)), _states(alone), alone)) == 0


def test_a_statement_is_one_of_two_classes() -> None:
    judge = ClassifyStatement()
    said = [Sample("s", "p", regions(BOX), torch.tensor([5, 3]), truth={"class": int(true)}) for true in (True, False)]
    batch = collate(judge.prepare(said, Random(0)))
    scores = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    wanted = -(scores[0].log_softmax(0)[1] + scores[1].log_softmax(0)[0])
    assert float(judge.loss(Says("nlvr", scores), _states(batch), batch)) == pytest.approx(float(wanted), abs=1e-6)
    assert int(judge.count(batch)) == 2
