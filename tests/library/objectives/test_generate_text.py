from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.core import BIDIRECTIONAL, IGNORE, TARGET_AFTER_BOTH, Sample, States, collate
from diptych.objectives import GenerateText, MaskedLanguage
from tests.support import toy

V = toy.VOCABULARY


def text_of(*words: int) -> Sample:
    return Sample("k", "p", None, torch.tensor([*words, V.sep]))


@given(words=st.lists(st.integers(5, 14), max_size=12), source=st.sampled_from(["words", "hidden"]))
def test_each_place_is_asked_for_the_next_word(words, source):
    (sample,) = GenerateText(V, source=source).prepare([text_of(*words)], Random(0))
    assert sample.target.tolist() == [V.cls, *words]
    assert sample.target_labels.tolist() == [*words, V.sep]
    assert sample.text.tolist() == [*words, V.sep]
    assert sample.attention is TARGET_AFTER_BOTH


def test_msg_reads_the_words_of_the_sentence():
    """tden.msg_input, paper: what was hidden from the encoder is not hidden from the decoder."""
    masked = MaskedLanguage(V, rate=0.5, scheme=(1.0, 0.0, 0.0), attention=((BIDIRECTIONAL, 1.0),))
    (hidden,) = masked.prepare([text_of(5, 6, 7, 8, 9, 10)], Random(3))
    (sample,) = GenerateText(V, source="words").prepare([hidden], Random(0))
    assert sample.target.tolist() == [V.cls, 5, 6, 7, 8, 9, 10]
    assert sample.target_labels.tolist() == [5, 6, 7, 8, 9, 10, V.sep]
    assert (sample.text == V.mask).sum() == 3
    assert torch.equal(sample.text_labels, hidden.text_labels)


def test_msg_reads_the_masks_of_the_code():
    """tden.msg_input, official (conceptual_captions.py:105): the decoder reads the same [MASK]s."""
    masked = MaskedLanguage(V, rate=0.5, scheme=(1.0, 0.0, 0.0), attention=((BIDIRECTIONAL, 1.0),))
    (hidden,) = masked.prepare([text_of(5, 6, 7, 8, 9, 10)], Random(3))
    (sample,) = GenerateText(V, source="hidden").prepare([hidden], Random(0))
    assert sample.target.tolist() == [V.cls, *hidden.text[:-1].tolist()]
    assert V.mask in sample.target
    assert sample.target_labels.tolist() == [5, 6, 7, 8, 9, 10, V.sep]


def test_to_caption_the_encoder_reads_no_text():
    (sample,) = GenerateText(V, reads="nothing").prepare([text_of(5, 6)], Random(0))
    assert sample.text.tolist() == []
    assert sample.target_labels.tolist() == [5, 6, V.sep]
    batch = collate([sample])
    assert batch.text.shape == (1, 0)
    assert batch.text_present.shape == (1, 0)


def test_a_mismatched_caption_is_not_asked_for():
    unlike = Sample("k", "p", None, torch.tensor([5, V.sep]), matched=False)
    (sample,) = GenerateText(V, only_matched=True).prepare([unlike], Random(0))
    assert sample.target_labels.tolist() == [IGNORE, IGNORE]
    assert int(GenerateText(V).count(collate([sample]))) == 0


def test_the_loss_by_hand():
    """Scores are the states themselves: two words of three guessed at, padding apart."""
    model = toy.model("word")
    model.heads["word"] = torch.nn.Identity()
    batch = collate(GenerateText(V).prepare([text_of(1), text_of()], Random(0)))
    states = States(torch.zeros(2, 0, 20), torch.zeros(2, 2, 20), target=torch.zeros(2, 2, 20))
    states.target[0, 0, 1] = 2.0  # the word itself
    objective = GenerateText(V)
    assert int(objective.count(batch)) == 3
    e2 = float(torch.tensor(2.0).exp())
    wanted = -2 + float(torch.tensor(e2 + 19).log()) + 2 * float(torch.tensor(20.0).log())
    assert float(objective.loss(model, states, batch)) == pytest.approx(wanted, rel=1e-6)
