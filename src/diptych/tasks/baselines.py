"""What a score is compared with: the blind baseline, which has no picture, and the ceiling, what a person gets.

Pure functions of words. A blind baseline is learnt on training words alone; the words that are scored choose nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from diptych.core import Choices, Question, Record
from diptych.metrics.bleu import bleu_counts
from diptych.metrics.captions import CaptionItems
from diptych.metrics.cider import CiderD, DocumentFrequencies
from diptych.metrics.rouge import rouge_l
from diptych.metrics.tokenise import ORDERS, Tokens, ngrams, tokens_of
from diptych.metrics.vqa import normalise_answer, soft_targets
from diptych.runtime.errors import DataError
from diptych.tasks.scores import Baselines

FINALISTS = 30  # captions that are scored in full, of all that the training pictures have
JUDGES = 200  # training pictures that they are scored against, spread evenly
ROUNDS = 5  # of the ceiling, at most: COCO's pictures have five captions
Words = tuple[str, ...]
CAUTION = (1, 2, 3, 5, 10, 20, 50)  # how often words must have been asked before their answers count


def most_frequent_caption(training: Iterable[Collection[str]]) -> str:
    """The caption that most pictures have, as its words count; of equals the first in the alphabet."""
    counts = Counter(chain.from_iterable({" ".join(tokens_of(text)) for text in captions} for captions in training))
    if not counts:
        raise DataError("no training captions, so no blind baseline")
    return min(counts, key=lambda text: (-counts[text], text))


def best_blind_caption(training: Sequence[Sequence[str]]) -> str:
    """The training caption with the best mean CIDEr when it is said of every training picture.

    All captions are ranked by how much of the usual weight of n-grams they have; the first FINALISTS and the most
    frequent caption are scored in full, against JUDGES pictures.
    """
    pictures = [[tokens_of(text) for text in captions] for captions in training if captions]
    if not pictures:
        raise DataError("no training captions, so no blind baseline")
    frequencies = DocumentFrequencies.of(pictures)
    candidates: set[Words] = {tuple(tokens) for captions in pictures for tokens in captions}
    finalists = sorted(candidates, key=lambda tokens: (-_usual(tokens, frequencies), tokens))[:FINALISTS]
    finalists.append(tuple(tokens_of(most_frequent_caption(training))))
    step = max(1, len(pictures) // JUDGES)
    judges = {str(number): captions for number, captions in enumerate(pictures[::step][:JUDGES])}
    scorer = CiderD(frequencies, judges)
    worth = [sum(scorer.score(key, tokens) for key in judges) for tokens in finalists]
    return " ".join(finalists[int(np.argmax(worth))])


def _usual(caption: Tokens, frequencies: DocumentFrequencies) -> float:
    """The dot product of CIDEr with the sum of all pictures, over the caption's own norm: the mean cosine, nearly."""
    total = 0.0
    for order in ORDERS:
        product = square = 0.0
        for gram, count in Counter(ngrams(caption, order)).items():
            pictures = frequencies.counts[gram]
            weight = count * float(np.log(frequencies.pictures / pictures))
            product += weight * weight * pictures
            square += weight * weight
        total += product / square**0.5 if square else 0.0
    return total


def caption_ceiling(references: Mapping[str, Sequence[str]], rounds: int = ROUNDS) -> dict[str, float] | None:
    """One person's caption against the others', by the name of the score; None where no picture has two captions.

    Round n gives each picture's n-th caption for the prediction and the others for references; scores are means over
    rounds, each over the pictures that have an n-th caption and another. N-grams weigh as they do when a model is
    scored: document frequencies are those of all references, the one held out among them. BLEU's and ROUGE's best
    match is taken among one reference fewer than a model has, which is to the ceiling's disadvantage.
    """
    tokens = {key: [tokens_of(text) for text in captions] for key, captions in references.items()}
    frequencies = DocumentFrequencies.of(tokens.values())
    several = {key: captions for key, captions in tokens.items() if len(captions) > 1}
    most = min(rounds, max(map(len, several.values()), default=0))
    scored = [_one_against_others(several, number, frequencies).scores() for number in range(most)]
    return {name: float(np.mean([scores[name] for scores in scored])) for name in scored[0]} if scored else None


def _one_against_others(
    tokens: Mapping[str, Sequence[Tokens]], number: int, frequencies: DocumentFrequencies
) -> CaptionItems:
    there = {key: captions for key, captions in tokens.items() if len(captions) > number}
    others = {key: [*captions[:number], *captions[number + 1 :]] for key, captions in there.items()}
    scorer = CiderD(frequencies, others)
    return CaptionItems(
        keys=tuple(there),
        bleu=np.stack([bleu_counts(captions[number], others[key]) for key, captions in there.items()]),
        rouge=np.array([rouge_l(captions[number], others[key]) for key, captions in there.items()]),
        cider=scorer.scores(there, (captions[number] for captions in there.values())),
    )


@dataclass(frozen=True)
class BlindAnswers:
    """Answers from the words of a question alone: the usual answer to these words, else to fewer of its first ones.

    Of words that were asked fewer than `at_least` times nothing is concluded.
    """

    at_least: int
    overall: str
    by_kind: Mapping[str, str]
    by_words: Mapping[Words, tuple[str, int]]  # the usual answer, and how often it was asked

    @classmethod
    def of(cls, questions: Iterable[Question], at_least: int | None = None) -> BlindAnswers:
        """Learnt on training questions. `at_least` is the best of CAUTION: each half teaches, the other is asked."""
        known = [question for question in questions if question.answers]
        if not known:
            raise DataError("no training questions with answers, so no blind baseline")
        return cls._taught(known, _caution(known) if at_least is None else at_least)

    @classmethod
    def _taught(cls, questions: Sequence[Question], at_least: int) -> BlindAnswers:
        worth: dict[Words, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        kinds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        asked: Counter[Words] = Counter()
        for question in questions:
            starts = _starts(question.text)
            asked.update(starts)
            for answer, score in soft_targets(question.answers).items():
                kinds[question.kind][answer] += score
                for start in starts:
                    worth[start][answer] += score
        by_words = {start: (_dearest(answers), asked[start]) for start, answers in worth.items()}
        by_kind = {kind: _dearest(answers) for kind, answers in kinds.items()}
        return cls(at_least, by_words[()][0] if by_words else "", by_kind, by_words)

    def answer(self, question: Question) -> str:
        for start in _starts(question.text):
            usual, asked = self.by_words.get(start, ("", 0))
            if asked >= self.at_least:
                return usual
        return self.overall

    def answers(self, questions: Iterable[Question]) -> dict[str, str]:
        """Question only."""
        return {question.key: self.answer(question) for question in questions}

    def majority(self, questions: Iterable[Question]) -> dict[str, str]:
        """One answer to everything."""
        return {question.key: self.overall for question in questions}

    def majority_by_kind(self, questions: Iterable[Question]) -> dict[str, str]:
        """One answer to each kind of question; whoever answers so must be told the kind."""
        return {question.key: self.by_kind.get(question.kind, self.overall) for question in questions}


@lru_cache(maxsize=100_000)
def _starts(text: str) -> tuple[Words, ...]:
    """All its words, then ever fewer of the first, at last none."""
    words = tuple(tokens_of(text))
    return tuple(words[:length] for length in range(len(words), -1, -1))


def _dearest(worth: Mapping[str, float]) -> str:
    return min(worth, key=lambda answer: (-worth[answer], answer))


def _caution(questions: Sequence[Question]) -> int:
    right: dict[int, float] = dict.fromkeys(CAUTION, 0.0)
    for learnt, tried in ((questions[::2], questions[1::2]), (questions[1::2], questions[::2])):
        taught, wanted = BlindAnswers._taught(learnt, 1), [soft_targets(question.answers) for question in tried]
        for at_least in CAUTION:
            blind = replace(taught, at_least=at_least)
            right[at_least] += sum(w.get(blind.answer(q), 0.0) for q, w in zip(tried, wanted, strict=True))
    return max(CAUTION, key=right.__getitem__)


@dataclass(frozen=True)
class BlindChoice:
    """Picks the text whose words were oftener in right texts than in wrong ones (naive Bayes), without a picture."""

    odds: Mapping[str, float]  # of a word: the logarithm of how much oftener

    @classmethod
    def of(cls, groups: Iterable[tuple[Sequence[str], int]]) -> BlindChoice:
        """Learnt on groups of texts, and which of each is right."""
        right: Counter[str] = Counter()
        wrong: Counter[str] = Counter()
        for texts, number in groups:
            for at, text in enumerate(texts):
                (right if at == number else wrong).update(set(tokens_of(text)))
        if not right:
            raise DataError("no training texts of which one is known to be right, so no blind baseline")
        words = right.keys() | wrong.keys()
        rights, wrongs = right.total() + len(words), wrong.total() + len(words)
        return cls({w: float(np.log((right[w] + 1) / rights) - np.log((wrong[w] + 1) / wrongs)) for w in words})

    def pick(self, texts: Sequence[str]) -> int:
        """Of equals, the first."""
        worth = [sum(self.odds.get(word, 0.0) for word in sorted(set(tokens_of(text)))) for text in texts]
        return int(np.argmax(worth))


def answer_ceiling(questions: Iterable[Question]) -> dict[str, float] | None:
    """One person's answer against the nine others', all and by kind; None where a question has fewer than two answers.

    A person scores min(1, others who said the same / 3), as a model does when one of the ten is left out.
    """
    by_kind: dict[str, list[float]] = {"all": []}
    for question in questions:
        people = len(question.answers)
        if people < 2:
            return None
        counts = Counter(map(normalise_answer, question.answers))
        enough = (people - 1) / 3  # three of nine others, or the same share of fewer
        agreed = sum(said_so * min(1.0, (said_so - 1) / enough) for said_so in counts.values()) / people
        by_kind["all"].append(agreed)
        by_kind.setdefault(question.kind, []).append(agreed)
    return {kind: float(np.mean(scores)) for kind, scores in by_kind.items()} if by_kind["all"] else None


def labelled(record: Record) -> list[Choices]:
    return [choices for choices in record.choices if choices.answer >= 0]


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
    answered = float(answers.pick(choices.answers) == choices.answer)
    if choices.rationale is None:
        return answered, 0.0, False
    if rationales is None:  # none was taught
        return answered, 1 / len(choices.rationales), True
    return answered, float(rationales.pick(choices.rationales) == choices.rationale), True


def _joint(rows: Sequence[tuple[float, float, bool]]) -> dict[str, float]:
    """Figures of rows (answer right, rationale right, whether there is a rationale)."""
    answered = np.array([float(answer) for answer, _, _ in rows])
    reasoned = np.array([float(reason) if there else 1.0 for _, reason, there in rows])
    asked = np.array([there for _, _, there in rows])
    figures = {"Q->A": float(answered.mean()), "Q->AR": float((answered * reasoned).mean())}
    return figures | ({"QA->R": float(reasoned[asked].mean())} if asked.any() else {})


def _told(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * figures[name]:.1f}" for name in ("Q->A", "QA->R", "Q->AR") if name in figures)
