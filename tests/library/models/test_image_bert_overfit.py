"""Eight samples learnt by heart: pre-training, questions."""

from dataclasses import replace
from random import Random

import pytest
import torch

from diptych.core import collate
from diptych.objectives import AnswerQuestion, OneForward
from diptych.systems.image_bert.model import ImageBert, ImageBertResolvedConfig
from diptych.systems.image_bert.objectives import ImageBertObjectives
from tests.support import toy
from tests.support.overfitting import learn

pytestmark = pytest.mark.learns

V = toy.VOCABULARY
# Of different words, so that each text belongs to one picture.
EIGHT = [replace(toy.sample(n, 1 + n % 4), text=torch.tensor([5 + n, 10 + n % 4, V.sep])) for n in range(8)]


def model(*heads: str, **changes) -> ImageBert:
    torch.manual_seed(0)
    sizes = {"width": 32, "layers": 2, "heads": 2, "ffn": 64, "positions": 16, "max_regions": 5, "feature_size": 6,
             "classes": toy.KINDS, "answers": 9, "dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.1}  # fmt: skip
    return ImageBert(ImageBertResolvedConfig(vocabulary=V, **{**sizes, **changes}), heads)


@pytest.mark.parametrize("region_norm", ["sum", "each"])
def test_pretraining(region_norm):
    one = model("word", "region_class", "region_feature", "match", region_norm=region_norm)
    kind = ImageBertObjectives()
    assert learn(one, [update for update, _ in kind.schedule(V).updates], EIGHT, 90, enough=0.1) < 0.1


@pytest.mark.parametrize("slot", [False, True])
def test_questions(slot):
    one = model("answer", "word", answer_slot=slot)
    asked = [
        replace(s, truth={"answer_scores": {1 + n: 1.0}}, text=torch.tensor([5, V.sep, *([V.mask, V.sep] * slot)]))
        for n, s in enumerate(EIGHT)
    ]
    answer = AnswerQuestion(V, form="softmax")
    assert learn(one, [OneForward((answer,))], asked, 150, enough=0.05) < 0.05
    with torch.no_grad():
        said = one.heads["answer"](one(collate(answer.prepare(asked, Random(0)))))
    assert said.argmax(-1).tolist() == list(range(1, 9))
