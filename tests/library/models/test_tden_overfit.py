"""Eight samples learnt by heart: each objective, each structure, each task."""

import pytest
import torch

from diptych.core import Sample, collate
from diptych.models.decoding import DecodingOptions, decode
from diptych.models.heads import answer_probabilities
from diptych.objectives import AnswerQuestion, OneForward
from diptych.systems.tden.objectives import TdenObjectives
from diptych.tasks.caption import CaptionObjectives
from tests.support import toy
from tests.support.overfitting import learn

pytestmark = pytest.mark.learns

V = toy.VOCABULARY
EIGHT = [toy.sample(seed) for seed in (0, 1, 2, 3, 5, 6, 8, 9)]


@pytest.mark.parametrize(
    ("structure", "two_pass"),
    [
        ("decoupled", None),
        ("two-stream", None),
        ("single-stream", "A"),
    ],
)
def test_pretraining(structure, two_pass):
    model = toy.tden("word", "region_class", "similarity", structure=structure, std=0.1)
    schedule = TdenObjectives(two_pass=two_pass).schedule(V)
    updates = [update for update, _ in schedule.updates]
    assert learn(model, updates, EIGHT, 90, enough=0.35) < 0.35


def test_pretraining_as_the_code_does_it():
    official = {"decoder_memory": "official", "cross_ffn": "official", "similarity": "official", "tied_words": False}
    model = toy.tden("word", "region_class", "similarity", std=0.1, **official)
    kind = TdenObjectives(matching="official", sampling="official", msg_input="official", region_suppression="official")
    assert learn(model, [update for update, _ in kind.schedule(V).updates], EIGHT, 60, enough=0.35) < 0.35


@pytest.mark.parametrize("row", [1, 2, 3])
def test_the_first_rows_of_table_2(row):
    """The encoder alone, the decoder alone, without matching."""
    changes = {
        1: ({"decoder_layers": 0}, {"writing": False}),
        2: ({"cross_layers": 0}, {"words": False, "regions": False}),
        3: ({}, {"matching": None}),
    }
    shape, kinds = changes[row]
    model = toy.tden("word", "region_class", "similarity", std=0.1, **shape)
    updates = [update for update, _ in TdenObjectives(two_pass=None, **kinds).schedule(V).updates]
    assert learn(model, updates, EIGHT, 90, enough=0.3) < 0.3


def test_captioning():
    model = toy.tden("word", std=0.1)
    learn(model, [update for update, _ in CaptionObjectives(label_smoothing=0.1).schedule(V).updates], EIGHT, 120)
    for beams in (1, 2):
        found = decode(model, collate(EIGHT), DecodingOptions(beams=beams, max_words=8))
        assert [f[0].tokens for f in found] == [sample.text[:-1].tolist() for sample in EIGHT]


def test_questions():
    """tden.vqa_fusion: the answer is how many regions there are, which no word of the question says."""
    asked = [
        Sample(s.key, s.picture, s.regions, torch.tensor([5, V.sep]), truth={"answer_scores": {len(s.regions): 1.0}})
        for s in EIGHT
    ]
    model = toy.tden("answer", std=0.1, vqa_fusion="paper", cross_ffn="paper")
    learn(model, [OneForward((AnswerQuestion(V),))], asked, 150)
    with torch.no_grad():
        said = answer_probabilities(model.heads["answer"](model(collate(asked)))).argmax(-1)
    assert said.tolist() == [len(s.regions) for s in EIGHT]


@pytest.mark.parametrize("form", ["official", "older"])
def test_retrieval(form):
    different = [toy.sample(seed) for seed in (0, 1, 2, 3, 5, 6, 8)]
    texts = {tuple(s.text.tolist()) for s in different}
    assert len(texts) == len(different)
    model = toy.tden("similarity", std=0.1, similarity="official")
    kind = TdenObjectives(words=False, regions=False, writing=False, two_pass=None, matching=form)
    learn(model, [update for update, _ in kind.schedule(V).updates], different, 120, lr=2e-3)
    batch = collate(different)
    with torch.no_grad():
        table = model.embed_texts(batch) @ model.embed_pictures(batch).T
    assert table.argmax(1).tolist() == table.argmax(0).tolist() == list(range(len(different)))
