"""Two passes: who reads whose guesses, how many steps, what is asked again."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from diptych.core import BIDIRECTIONAL, IGNORE, Batch, collate
from diptych.objectives import (
    GenerateText,
    MaskedLanguage,
    MaskedRegionClass,
    ScheduledSampling,
    Similarity,
    two_pass_c,
)
from diptych.runtime.errors import RecipeError
from tests.support import toy

V = toy.VOCABULARY
ENCODER, DECODER = 17, 18  # what each of them guesses, always


def parts(source: str = "words") -> dict[str, Any]:
    words = MaskedLanguage(V, rate=0.5, scheme=(1.0, 0.0, 0.0), attention=((BIDIRECTIONAL, 1.0),), hides_end=False)
    return {
        "vocabulary": V,
        "read": (words, MaskedRegionClass(rate=0.5, labels="divergence")),
        "write": GenerateText(V, source=source),
        "match": Similarity(),
    }


class Watched:
    """A model that keeps the batches that it read."""

    def __init__(self) -> None:
        self.model, self.seen, self.encoded = toy.tden(), [], []
        self.heads, self.provides = self.model.heads, self.model.provides

    def __call__(self, batch: Batch, objects: Any = None, cross: bool = True) -> Any:
        self.seen.append((batch, objects, cross))
        return self.model(batch, objects, cross)

    def read_regions(self, batch: Batch) -> Any:
        self.encoded.append(batch)
        return self.model.read_regions(batch)


def run(update: ScheduledSampling, monkeypatch: pytest.MonkeyPatch) -> tuple[Watched, Batch, list[Any]]:
    watched = Watched()

    def guess(self: Any, model: Any, states: torch.Tensor, batch: Batch, draw: int = 0) -> torch.Tensor:
        reader = torch.equal(states, watched.latest.text)
        return torch.where(batch.text_labels != IGNORE, ENCODER if reader else DECODER, batch.text)

    original = Watched.__call__

    def call(self: Watched, *given: Any, **named: Any) -> Any:
        self.latest = original(self, *given, **named)
        return self.latest

    monkeypatch.setattr(Watched, "__call__", call)
    monkeypatch.setattr(ScheduledSampling, "guess", guess)
    batch = collate(update.prepare([toy.sample(0), toy.sample(1), toy.sample(5)], Random(1)))
    return watched, batch, list(update.losses(watched, batch))


def read_and_written(batch: Batch, first: Batch) -> tuple[set[int], set[int]]:
    """What stands in the second pass where the first asked for words."""
    asked = first.text_labels != IGNORE
    later = torch.zeros_like(asked)
    later[:, 1:] = asked[:, :-1]
    later &= first.target_present
    return (
        set(batch.text[asked].tolist()) if batch.text.shape[1] else set(),
        set(batch.target[later].tolist()) if batch.target is not None else set(),
    )


@pytest.mark.parametrize(("scheme", "wanted"), [("A", ({ENCODER}, {DECODER})), ("B", ({DECODER}, {ENCODER}))])
def test_whose_guesses_the_second_pass_reads(scheme, wanted, monkeypatch):
    """tden.two_pass, A and B (Fig. 3): one joint step, each loss of the second pass beside that of the first."""
    watched, _, yielded = run(ScheduledSampling(**parts(), scheme=scheme), monkeypatch)
    (first, objects, _), (second, again, _) = watched.seen
    assert V.mask in first.text[first.text_labels != IGNORE]
    assert read_and_written(second, first) == wanted
    assert len(yielded) == 1
    names = {"masked_language", "masked_region_class", "generate_text"}
    assert set(yielded[0]) == names | {"similarity"} | {f"{name}/2" for name in names}
    assert len(watched.encoded) == 1, "the regions were encoded twice"
    assert objects is again
    assert second.text_labels is first.text_labels
    assert torch.equal(second.target_labels, first.target_labels)


def test_the_codes_two_passes_are_two_steps(monkeypatch):
    """tden.two_pass, official."""
    watched, _, yielded = run(ScheduledSampling(**parts("hidden"), form="official"), monkeypatch)
    assert [set(losses) for losses in yielded] == [
        {"masked_language", "masked_region_class", "generate_text", "similarity"},
        {"masked_language", "masked_region_class", "generate_text"},
    ]
    (first, objects, _), (second, again, _) = watched.seen
    assert objects is again is None
    assert read_and_written(second, first) == ({ENCODER}, {DECODER})
    assert V.mask not in second.target[second.target_present]


@pytest.mark.parametrize("first", ["encoder", "decoder"])
def test_two_pass_c_takes_one_path_and_keeps_ism(first, monkeypatch):
    """Eq. 3: each objective once; ISM on the text with its [MASK]s whichever way is taken."""
    update = ScheduledSampling(**parts(), scheme="C", first=first)
    watched, batch, yielded = run(update, monkeypatch)
    assert [set(losses) for losses in yielded] == [
        {"masked_language", "masked_region_class", "generate_text", "similarity"}
    ]
    assert set(update.counts(batch)) == set(yielded[0])
    (one, _, cross), (two, _, _) = watched.seen
    if first == "encoder":
        assert one.target is None
        assert cross
        assert two.text.shape[1] == 0
        assert read_and_written(two, batch)[1] == {ENCODER}
    else:
        assert not cross, "the cross-modal encoder ran for nothing"
        assert one.target is not None
        assert two.target is None
        assert read_and_written(two, batch)[0] == {DECODER}


def test_two_pass_c_draws_its_path():
    halves = two_pass_c(**parts())
    assert [(update.first, share) for update, share in halves] == [("encoder", 0.5), ("decoder", 0.5)]


def test_none_of_it_is_one_pass():
    """tden.two_pass off: what the tables call no scheduled sampling is OneForward over the same objectives."""
    from diptych.objectives import OneForward
    from diptych.systems.tden.objectives import TdenObjectives

    (update, _), *others = TdenObjectives(two_pass=None).schedule(V).updates
    assert others == []
    assert isinstance(update, OneForward)
    names = [objective.name for objective in update.objectives]
    assert names == ["masked_language", "masked_region_class", "generate_text", "similarity"]


def test_words_are_drawn_and_the_code_takes_the_likeliest():
    """tden.sampling: what is drawn differs with the seed, what is likeliest does not."""
    model = toy.tden(std=0.05)
    for form, differs in (("paper", True), ("official", False)):
        update = ScheduledSampling(**parts(), form=form)
        batch = collate(update.prepare([toy.sample(n) for n in range(6)], Random(1)))
        states, guesses = model(batch), []
        for seed in (0, 1):
            torch.manual_seed(seed)
            guesses.append(update.guess(model, states.text, batch))
        assert torch.equal(*guesses) is not differs
        asked = batch.text_labels != IGNORE
        assert torch.equal(guesses[0][~asked], batch.text[~asked])
        if not differs:
            assert torch.equal(guesses[0][asked], model.heads["word"](states.text[asked]).argmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["A", "C"])
def test_a_sample_s_guesses_are_its_own(scheme: str) -> None:
    """Whichever batch it is in, and whatever torch's generator says."""
    model, update = toy.tden(std=0.05), ScheduledSampling(**parts(), scheme=scheme)
    prepared = [
        sample for n in range(6) for sample in update.prepare([replace(toy.sample(n), seed=n * 2**50)], Random(n))
    ]

    def guess(samples: list[Any], draw: int = 0) -> torch.Tensor:
        batch = collate(samples)
        return update.guess(model, model(batch).text, batch, draw)

    whole = guess(prepared)
    for number, sample in enumerate(prepared):
        assert torch.equal(guess([sample])[0], whole[number, : len(sample.text)])
    assert not torch.equal(guess(prepared, 1), whole), "the decoder's guesses are drawn by themselves"
    asked = torch.cat([guess([replace(s, seed=n)])[0][s.text_labels != IGNORE] for n in range(9) for s in prepared])
    assert len(asked.unique()) > 5


def test_nothing_hidden_is_no_trouble():
    update = ScheduledSampling(**parts())
    batch = collate(update.prepare([toy.sample(0)], Random(0)))
    batch.text_labels = torch.full_like(batch.text_labels, IGNORE)
    (losses,) = update.losses(toy.tden(), batch)
    assert float(losses["masked_language"].detach()) == 0
    assert int(update.counts(batch)["masked_language/2"]) == 0


def test_every_part_learns_in_one_step():
    """Gradients reach all weights, the object encoder's through both passes."""
    model = toy.tden(cross_ffn="official", similarity="official").train()
    update = ScheduledSampling(**parts())
    batch = collate(update.prepare([toy.sample(n) for n in range(8)], Random(0)))
    (losses,) = update.losses(model, batch)
    sum(losses.values()).backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None]
    assert silent == []


def test_the_code_has_a_alone():
    with pytest.raises(RecipeError, match="the authors' code has only Two-Pass-A, not B"):
        ScheduledSampling(**parts(), scheme="B", form="official")
