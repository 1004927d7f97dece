"""Scores of what was chosen, found and judged (VCR, referring expressions, statements), and their blind baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from diptych.core import Choices, Question, Record, Regions, Statement
from diptych.metrics.bootstrap import bootstrap_interval, paired_interval, rows_by_picture
from diptych.tasks.baselines import BlindAnswers, BlindChoice
from diptych.tasks.nlvr import statement_hits
from diptych.tasks.referring import FOUND, Box, box_hits, can_be_found, expressions_of
from diptych.tasks.scores import Baselines, Score, Scores
from diptych.tasks.vcr import hits, labelled

STATEMENT = "statement"  # the kind of such a question
FIRST = "intervals: 95%, 1,000 bootstrap draws of pictures, each with all its {what}"


def score_vcr(said: Mapping[str, int], records: Sequence[Record], baselines: Baselines | None = None) -> Scores:
    """Q->A, QA->R and Q->AR; `said` has the text chosen for `KEY/answer` and `KEY/rationale`."""
    found = hits(dict(said), records)
    if "QA->R" not in found:
        found.pop("Q->AR")
    return _scores("vcr", found, "questions", baselines)


def vcr_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Chance; and on training words, if there are any, the blind choice by the words of the texts."""
    asked = [choices for record in records for choices in labelled(record)]
    if not asked:
        return Baselines()
    chance = _joint([(1 / len(c.answers), 1 / max(1, len(c.rationales)), bool(c.rationales)) for c in asked])
    notes = [f"at random: {_told(chance)}"]
    taught = [choices for record in training for choices in labelled(record)]
    if not taught:
        return Baselines(chance, {}, ("blind: at random",))
    answers = BlindChoice.of((c.answers, c.answer) for c in taught)
    reasons = [(c.rationales, c.rationale) for c in taught if c.rationale is not None]
    by_words = BlindChoice.of(reasons) if reasons else None
    most = Counter(c.answer for c in taught).most_common(1)[0][0]
    most_reason = Counter(number for _, number in reasons).most_common(1)[0][0] if reasons else 0
    blind = _joint([_blindly(c, answers, by_words) for c in asked])
    usual = [(float(c.answer == most), float(c.rationale == most_reason), c.rationale is not None) for c in asked]
    majority = _joint(usual)
    notes.append(f"always the place that was right most often in training: {_told(majority)}")
    notes.insert(0, "blind: the text whose words were oftener in right texts than in wrong ones, no picture seen")
    return Baselines(blind, {}, (*notes, f"learnt on {len(taught)} questions"))


def _blindly(choices: Choices, answers: BlindChoice, rationales: BlindChoice | None) -> tuple[float, float, bool]:
    reasoned = rationales is not None and choices.rationale is not None
    picked = rationales.pick(choices.rationales) if rationales is not None and reasoned else None
    return float(answers.pick(choices.answers) == choices.answer), float(picked == choices.rationale), reasoned


def _joint(rows: Sequence[tuple[float, float, bool]]) -> dict[str, float]:
    """Figures of rows (answer right, rationale right, whether there is a rationale)."""
    answered = np.array([float(answer) for answer, _, _ in rows])
    reasoned = np.array([float(reason) if there else 1.0 for _, reason, there in rows])
    asked = np.array([there for _, _, there in rows])
    figures = {"Q->A": float(answered.mean()), "Q->AR": float((answered * reasoned).mean())}
    return figures | ({"QA->R": float(reasoned[asked].mean())} if asked.any() else {})


def _told(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * figures[name]:.1f}" for name in ("Q->A", "QA->R", "Q->AR") if name in figures)


def score_referring(
    said: Mapping[str, Box | None], records: Sequence[Record], baselines: Baselines | None = None
) -> Scores:
    """Accuracy at IoU 0.5; `said` has a box (corners, fractions) for each expression's key."""
    return _scores("referring", {"accuracy": box_hits(dict(said), records)}, "expressions", baselines)


def referring_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Of records with regions. Blind is who does not read: which box is best without words is learnt on training."""
    asked = [(expression, record.regions) for record, expression in expressions_of(records)]
    if not asked:
        return Baselines()
    learnt = [(e, r.regions) for r, e in expressions_of(training) if r.regions is not None] or asked
    rates = {name: [_is_hit(e.box, r, rule(r)) for e, r in learnt] for name, rule in _RULES.items()}
    name = max(rates, key=lambda rule: float(np.mean(rates[rule])))
    blind = float(np.mean([_is_hit(e.box, r, _RULES[name](r)) for e, r in asked]))
    chance = float(np.mean([_share(e.box, r) for e, r in asked]))
    ceiling = float(np.mean([can_be_found(e, r) for e, r in asked]))
    notes = (
        f"blind: {name}, whatever the words are; a region at random: {100 * chance:.1f}",
        f"ceiling: some region overlaps the true box by IoU {FOUND} or more; "
        f"{sum(not can_be_found(e, r) for e, r in asked)} of {len(asked)} expressions have none and count as wrong",
    )
    return Baselines({"accuracy": blind}, {"accuracy": ceiling}, notes)


def _largest(regions: Regions | None) -> int | None:
    if regions is None or not len(regions):
        return None
    return int((regions.boxes[:, 2:] - regions.boxes[:, :2]).prod(-1).argmax())


def _surest(regions: Regions | None) -> int | None:
    return None if regions is None or not len(regions) else int(regions.scores.argmax())


_RULES = {"the largest region": _largest, "the region of which the detector is surest": _surest}


def _is_hit(box: Box, regions: Regions | None, number: int | None) -> bool:
    return regions is not None and number is not None and bool(regions.overlaps(box)[number] >= FOUND)


def _share(box: Box, regions: Regions | None) -> float:
    if regions is None or not len(regions):
        return 0.0
    return float((regions.overlaps(box) >= FOUND).float().mean())


def score_nlvr(said: Mapping[str, bool], records: Sequence[Record], baselines: Baselines | None = None) -> Scores:
    return _scores("nlvr", {"accuracy": statement_hits(dict(said), records)}, "statements", baselines)


def nlvr_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Words alone, as for questions: the usual verdict in training on the same first words."""
    asked = [statement for record in records for statement in record.statements]
    taught = [statement for record in training for statement in record.statements]
    if not asked or not taught:
        return Baselines({"accuracy": 0.5} if asked else {}, {}, ("blind: at random",) if asked else ())
    known = BlindAnswers.of(map(as_question, taught))
    said = [known.answer(Question(s.key, s.text, ())) for s in asked]
    right = float(np.mean([one == _word(s.true) for one, s in zip(said, asked, strict=True)]))
    majority = float(np.mean([known.overall == _word(s.true) for s in asked]))
    notes = (
        "blind: words only, the usual verdict in training on the same first words; at random: 50.0",
        f"learnt on {len(taught)} statements; “{known.overall}” to every statement gets {100 * majority:.1f}",
    )
    return Baselines({"accuracy": right}, {}, notes)


def nlvr_gain(first: Mapping[str, bool], second: Mapping[str, bool], records: Sequence[Record]) -> Score:
    """Accuracy of the second minus the first; a bootstrap draw takes both, a picture with all its statements."""
    ours, theirs = (rows_by_picture(*statement_hits(dict(said), records)) for said in (second, first))
    found = paired_interval(ours, theirs)
    return Score("accuracy", 100 * found.value, 100 * found.low, 100 * found.high)


def as_question(statement: Statement) -> Question:
    """Ten people say yes or no."""
    return Question(f"{statement.key}/{STATEMENT}", statement.text, (_word(statement.true),) * 10, STATEMENT)


def _word(true: bool) -> str:
    return "yes" if true else "no"


def _scores(
    task: str, found: Mapping[str, tuple[ArrayLike, list[str]]], what: str, baselines: Baselines | None
) -> Scores:
    baselines = baselines or Baselines()
    scores = []
    for name, (right, pictures) in found.items():
        interval = bootstrap_interval(rows_by_picture(right, pictures))
        ends = 100 * interval.low, 100 * interval.high
        blind, ceiling = (
            None if b is None else 100 * b for b in (baselines.blind.get(name), baselines.ceiling.get(name))
        )
        scores.append(Score(name, 100 * interval.value, *ends, blind, ceiling))
    _, pictures = next(iter(found.values()))
    notes = (FIRST.format(what=what), *baselines.notes)
    return Scores(task, tuple(scores), len(set(pictures)), len(pictures), notes=notes)
