"""Eight samples learnt by heart: pre-training, retrieval with each of its losses, questions."""

from dataclasses import replace
from random import Random

import pytest
import torch

from diptych.core import Sample, collate
from diptych.metrics.retrieval import recalls, retrieval_ranks
from diptych.models import ImageBert, ImageBertConfig
from diptych.objectives import AnswerQuestion, OneForward
from diptych.recipes.objectives import ImageBertObjectives, Retrieving
from diptych.tasks.retrieval import match_scores
from tests import toy
from tests.models.test_tden_overfit import learn

V = toy.VOCABULARY
# Of different words, so that each text belongs to one picture.
EIGHT = [replace(toy.sample(n, 1 + n % 4), text=torch.tensor([5 + n, 10 + n % 4, V.sep])) for n in range(8)]


def model(*heads: str, **changes) -> ImageBert:
    torch.manual_seed(0)
    sizes = {"width": 32, "layers": 2, "heads": 2, "ffn": 64, "positions": 16, "max_regions": 5, "feature_size": 6,
             "classes": toy.KINDS, "answers": 9, "dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.1}  # fmt: skip
    return ImageBert(ImageBertConfig(vocabulary=V, **{**sizes, **changes}), heads)


def table(one: ImageBert, samples: list[Sample]) -> list[list[float]]:
    """A row a picture, a column a text."""
    with torch.no_grad():
        return [match_scores(one, collate([replace(s, regions=p.regions) for s in samples])).tolist() for p in samples]


@pytest.mark.parametrize("region_norm", ["sum", "each"])
def test_pretraining(region_norm):
    one = model("word", "region_class", "region_feature", "match", region_norm=region_norm)
    kind = ImageBertObjectives(distance="mean")
    assert learn(one, [update for update, _ in kind.schedule(V).updates], EIGHT, 90) < 0.1


@pytest.mark.parametrize("losses", [("binary",), ("choice",), ("triplet",), ("binary", "choice", "triplet")])
def test_retrieval(losses):
    weights = {form: float(form in losses) for form in ("binary", "choice", "triplet")}
    kind, one = Retrieving(pairs=8, negatives="captions", **weights), model("match")
    assert learn(one, [update for update, _ in kind.schedule(V).updates], EIGHT, 90) < 0.05
    found = recalls(retrieval_ranks(table(one, EIGHT), list(range(8))))
    assert found["captions R@1"] == 1
    if "binary" in losses:  # the others compare the texts of one picture, never the pictures of one text
        assert found["pictures R@1"] == 1


def test_retrieval_by_pictures():
    kind, one = Retrieving(pairs=8, negatives="pictures"), model("match")
    assert learn(one, [update for update, _ in kind.schedule(V).updates], EIGHT, 90) < 0.05
    assert set(recalls(retrieval_ranks(table(one, EIGHT), list(range(8)))).values()) == {1}


@pytest.mark.parametrize("slot", [False, True])
def test_questions(slot):
    one = model("answer", "word", answer_slot=slot)
    asked = [
        replace(s, truth={"answer_scores": {1 + n: 1.0}}, text=torch.tensor([5, V.sep, *([V.mask, V.sep] * slot)]))
        for n, s in enumerate(EIGHT)
    ]
    answer = AnswerQuestion(V, form="softmax")
    assert learn(one, [OneForward((answer,))], asked, 150) < 0.05
    with torch.no_grad():
        said = one.heads["answer"](one(collate(answer.prepare(asked, Random(0)))))
    assert said.argmax(-1).tolist() == list(range(1, 9))
