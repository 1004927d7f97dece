"""The second way to answer: what the model would say at a [MASK] behind the question."""

import torch

from diptych.core import BIDIRECTIONAL, Batch, Sample, collate
from diptych.models.heads import SlotAnswerHead, WordHead
from tests.support import toy

MASK, SEP = toy.VOCABULARY.mask, toy.VOCABULARY.sep


def _batch() -> Batch:
    asked = [[7, SEP, MASK, SEP], [8, 9, 5, SEP, MASK, SEP]]
    return collate(
        [
            Sample(f"q{n}", f"p{n}", toy.regions(3, n), torch.tensor(text), attention=BIDIRECTIONAL)
            for n, text in enumerate(asked)
        ]
    )


def test_the_slot_is_the_mask_of_each_question_however_long() -> None:
    model, batch = toy.model("word", "answer", answer_slot=True), _batch()
    states = model(batch)
    for row, place in enumerate((2, 4)):
        assert batch.text[row, place] == MASK
        assert torch.equal(states.special["slot"][row], states.text[row, place])


def test_it_begins_by_saying_what_the_word_head_would_say() -> None:
    model, batch = toy.model("word", "answer", answer_slot=True), _batch()
    head, word = model.heads["answer"], model.heads["word"]
    assert isinstance(head, SlotAnswerHead)
    assert isinstance(word, WordHead)
    torch.nn.init.normal_(word.bias)
    own = head.outer.weight[0].clone()
    head.begin_as(word, [None, 7, 11, 5, 6, 12, None])
    states = model(batch)
    of_words, of_answers = word(states.special["slot"]), head(states)
    assert torch.allclose(of_answers[:, 1:6], of_words[:, [7, 11, 5, 6, 12]], atol=1e-6)
    assert torch.equal(head.outer.weight[0], own)  # an answer of several words begins as it was made
