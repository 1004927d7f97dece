"""Blind baselines, which do not see the image, and ceilings, which are human scores.

They depend on texts only. Blind baselines are fitted to training texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from diptych.metrics.vqa import normalise_answer, soft_targets, vqa_scores
from diptych.runtime.errors import DataError, counted
from diptych.tasks.answers import answered_questions
from diptych.tasks.bigrams import ABOUT, BigramClassifier, grams_of
from diptych.tasks.scores import Baselines

FINALISTS = 30  # number of candidate captions that are scored exactly
JUDGES = 200  # number of training images, evenly spaced, against which a candidate caption is scored
ROUNDS = 5  # maximum number of captions per image that are held out in turn for the ceiling; COCO has five
Words = tuple[str, ...]
CAUTION = (1, 2, 3, 5, 10, 20, 50)  # values that are tried for `BlindAnswers.at_least`


def most_frequent_caption(training: Iterable[Collection[str]]) -> str:
    """Return the caption that the largest number of images have, in lower case.

    On a tie, it is the alphabetically first caption.
    """
    counts = Counter(chain.from_iterable({" ".join(tokens_of(text)) for text in captions} for captions in training))
    if not counts:
        raise DataError("found no training captions, which the blind baseline needs; add some")
    return min(counts, key=lambda text: (-counts[text], text))


def best_blind_caption(training: Sequence[Sequence[str]]) -> str:
    """Return the training caption with the best mean CIDEr over the training images.

    All captions are ranked by an approximate score. The best captions (FINALISTS of them) and the most frequent one are
    then scored exactly, against JUDGES training images.
    """
    pictures = [[tokens_of(text) for text in captions] for captions in training if captions]
    if not pictures:
        raise DataError("found no training captions, which the blind baseline needs; add some")
    frequencies = DocumentFrequencies.of(pictures)
    candidates: set[Words] = {tuple(tokens) for captions in pictures for tokens in captions}
    finalists = sorted(candidates, key=lambda tokens: (-_mean_cosine(tokens, frequencies), tokens))[:FINALISTS]
    finalists.append(tuple(tokens_of(most_frequent_caption(training))))
    step = max(1, len(pictures) // JUDGES)
    judges = {str(number): captions for number, captions in enumerate(pictures[::step][:JUDGES])}
    scorer = CiderD(frequencies, judges)
    worth = [sum(scorer.score(key, tokens) for key in judges) for tokens in finalists]
    return " ".join(finalists[int(np.argmax(worth))])


def _mean_cosine(caption: Tokens, frequencies: DocumentFrequencies) -> float:
    """Approximate the mean cosine similarity of a caption's n-gram TF-IDF vector to the images' reference captions."""
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
    """Score reference captions against the other captions of their image.

    Return {name of the score: value from 0 to 1 (CIDEr: 0 to 10)}, or None if no image has two captions.

    In round n, each image's n-th caption is the prediction and its other captions are the references. Images without
    these captions are left out. The rounds are averaged. As for a model, CIDEr's document frequencies count all
    captions. A prediction has one reference fewer than a model's, which lowers BLEU and ROUGE.
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
    """A blind baseline of VQA: the most frequent training answer to questions that begin with the same words.

    The longest prefix that at least `at_least` training questions share is used.
    """

    at_least: int
    overall: str
    by_kind: Mapping[str, str]
    # {first words of a question: (most frequent answer, number of questions)}.
    by_words: Mapping[Words, tuple[str, int]]

    @classmethod
    def of(cls, questions: Iterable[Question], at_least: int | None = None) -> BlindAnswers:
        """Fit to training questions. By default, two-fold cross-validation chooses `at_least` from CAUTION."""
        known = [question for question in questions if question.answers]
        if not known:
            raise DataError("no training question has answers for the blind baseline; add some")
        return cls._fit(known, _caution(known) if at_least is None else at_least)

    @classmethod
    def _fit(cls, questions: Sequence[Question], at_least: int) -> BlindAnswers:
        worth: dict[Words, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        kinds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        numbers: Counter[Words] = Counter()
        for question in questions:
            prefixes = _prefixes(question.text)
            numbers.update(prefixes)
            for answer, score in soft_targets(question.answers).items():
                kinds[question.kind][answer] += score
                for prefix in prefixes:
                    worth[prefix][answer] += score
        by_words = {prefix: (_best(answers), numbers[prefix]) for prefix, answers in worth.items()}
        by_kind = {kind: _best(answers) for kind, answers in kinds.items()}
        return cls(at_least, by_words[()][0] if by_words else "", by_kind, by_words)

    def answer(self, question: Question) -> str:
        """Answer one question."""
        for prefix in _prefixes(question.text):
            best, number = self.by_words.get(prefix, ("", 0))
            if number >= self.at_least:
                return best
        return self.overall

    def answers(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return the answer to each question, by the question's key."""
        return {question.key: self.answer(question) for question in questions}

    def majority(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return {question's key: the most frequent training answer}, which is the same for all questions."""
        return {question.key: self.overall for question in questions}

    def majority_by_kind(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return {question's key: the most frequent training answer to its kind of question, such as "yes/no"}."""
        return {question.key: self.by_kind.get(question.kind, self.overall) for question in questions}


def learnt_answers(training: Sequence[Question], questions: Sequence[Question]) -> dict[str, str]:
    """Train a bigram classifier on `training` and return its answers to `questions`, by the question's key."""
    texts = [grams_of(question.text) for question in training]
    learnt = BigramClassifier.of(texts, [soft_targets(question.answers) for question in training])
    return dict(zip([q.key for q in questions], learnt.answers(q.text for q in questions), strict=True))


def text_probabilities(training: Sequence[Question], questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """Train a bigram classifier on `training` and return {key: {answer: probability}} for `questions`."""
    targets = [soft_targets(question.answers) for question in training]
    learnt = BigramClassifier.of([grams_of(question.text) for question in training], targets)
    texts = [grams_of(question.text) for question in questions]
    by_name = {name: learnt.scores(texts, name).exp().tolist() for name in learnt.classes}
    return {one.key: {name: by_name[name][at] for name in by_name} for at, one in enumerate(questions)}


def stronger(rule: float, learnt: float, about: str) -> tuple[bool, str]:
    """Compare two blind baselines by score (0 to 1).

    Return True if the bigram classifier (`learnt`) is better, and a note.
    """
    scores = f"{100 * rule:.1f} and {100 * learnt:.1f}"
    return learnt > rule, f"blind: words only, the better of {about}, and {ABOUT}: {scores}"


@lru_cache(maxsize=100_000)
def _prefixes(text: str) -> tuple[Words, ...]:
    """Return all prefixes of a text's words, from the longest to the empty prefix."""
    words = tuple(tokens_of(text))
    return tuple(words[:length] for length in range(len(words), -1, -1))


def _best(worth: Mapping[str, float]) -> str:
    return min(worth, key=lambda answer: (-worth[answer], answer))


def _caution(questions: Sequence[Question]) -> int:
    """Choose `BlindAnswers.at_least` from CAUTION by two-fold cross-validation."""
    right: dict[int, float] = dict.fromkeys(CAUTION, 0.0)
    for learnt, tried in ((questions[::2], questions[1::2]), (questions[1::2], questions[::2])):
        fitted, wanted = BlindAnswers._fit(learnt, 1), [soft_targets(question.answers) for question in tried]
        for at_least in CAUTION:
            blind = replace(fitted, at_least=at_least)
            right[at_least] += sum(w.get(blind.answer(q), 0.0) for q, w in zip(tried, wanted, strict=True))
    return max(CAUTION, key=right.__getitem__)


@dataclass(frozen=True)
class BlindChoice:
    """Naive Bayes over words: choose the candidate text whose words are most typical of right texts in training."""

    odds: Mapping[str, float]  # {word: log ratio of its frequencies in right and in wrong texts}

    @classmethod
    def of(cls, groups: Iterable[tuple[Sequence[str], int]]) -> BlindChoice:
        """Fit to pairs (candidate texts, index of the right text). Raises DataError if there are no right texts."""
        right: Counter[str] = Counter()
        wrong: Counter[str] = Counter()
        for texts, number in groups:
            for at, text in enumerate(texts):
                (right if at == number else wrong).update(set(tokens_of(text)))
        if not right:
            raise DataError("no training record has a right text for the blind baseline; add some")
        words = right.keys() | wrong.keys()
        rights, wrongs = right.total() + len(words), wrong.total() + len(words)
        return cls({w: float(np.log((right[w] + 1) / rights) - np.log((wrong[w] + 1) / wrongs)) for w in words})

    def pick(self, texts: Sequence[str]) -> int:
        """Return the index of the chosen text; on ties, the first."""
        worth = [sum(self.odds.get(word, 0.0) for word in sorted(set(tokens_of(text)))) for text in texts]
        return int(np.argmax(worth))


def answer_ceiling(questions: Iterable[Question]) -> dict[str, float] | None:
    """Return the human VQA accuracy, 0 to 1, by kind of question and for "all" questions.

    Return None if a question has fewer than two answers.

    Each person is scored against the others. An answer scores min(1, n / 3) if n of the nine other people gave it. This
    is how VQA scores a model.
    """
    by_kind: dict[str, list[float]] = {"all": []}
    for question in questions:
        people = len(question.answers)
        if people < 2:
            return None
        counts = Counter(map(normalise_answer, question.answers))
        # In VQA's rule, an answer is right if 3 of the 9 other people agree. With fewer people, a third is enough.
        enough = (people - 1) / 3
        agreed = sum(count * min(1.0, (count - 1) / enough) for count in counts.values()) / people
        by_kind["all"].append(agreed)
        by_kind.setdefault(question.kind, []).append(agreed)
    return {kind: float(np.mean(scores)) for kind, scores in by_kind.items()} if by_kind["all"] else None


def labelled(record: Record) -> list[Choices]:
    """Return the multiple-choice questions of a record for which the right answer is known."""
    return [choices for choices in record.choices if choices.answer >= 0]


def vcr_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Return VCR's blind baseline: the better of `BlindChoice` and a bigram classifier, or chance without training."""
    scored = [choices for record in records for choices in labelled(record)]
    if not scored:
        return Baselines()
    chance = _joint([(1 / len(c.answers), 1 / max(1, len(c.rationales)), bool(c.rationales)) for c in scored])
    learnt = [choices for record in training for choices in labelled(record)]
    if not learnt:
        return Baselines(chance, {}, ("blind: at random",))
    pickers = _pickers(learnt)
    rows = [[_blindly(c, *pair) for c in scored] for pair in pickers]
    rule, classifier = map(_joint, rows)
    better, about = stronger(rule["Q->AR"], classifier["Q->AR"], "the text with the words most typical of right texts")
    most = Counter(c.answer for c in learnt).most_common(1)[0][0]
    reasons = Counter(c.rationale for c in learnt if c.rationale is not None)
    most_reason = reasons.most_common(1)[0][0] if reasons else 0
    usual = [(float(c.answer == most), float(c.rationale == most_reason), c.rationale is not None) for c in scored]
    notes = (
        about,
        f"at random: {_summary(chance)}",
        f"always the position that was right most often in training: {_summary(_joint(usual))}",
    )
    return Baselines(classifier if better else rule, {}, (*notes, f"learnt on {counted(learnt, 'questions')}"))


# Chooses a candidate for a question: (question, candidates) -> index of the candidate.
Picker = Callable[[str, Sequence[str]], int]


def _pickers(learnt: Sequence[Choices]) -> list[tuple[Picker, Picker | None]]:
    """Fit two blind baselines: `BlindChoice`, then the bigram classifier.

    Each is a pair of functions: the first picks answers, the second rationales. The second is None if no training
    question has rationales.
    """
    answers = [(c.question, c.answers, c.answer) for c in learnt]
    reasons = [(_answered(c), c.rationales, c.rationale) for c in learnt if c.rationale is not None]
    return [(make(answers), make(reasons) if reasons else None) for make in (_by_odds, _by_classifier)]


def _answered(choices: Choices) -> str:
    return f"{choices.question} {choices.answers[choices.answer]}"


def _by_odds(groups: Sequence[tuple[str, Sequence[str], int]]) -> Picker:
    """Fit a `BlindChoice`, which ignores the question."""
    learnt = BlindChoice.of((texts, number) for _, texts, number in groups)
    return lambda _, texts: learnt.pick(texts)


def _by_classifier(groups: Sequence[tuple[str, Sequence[str], int]]) -> Picker:
    """Train a bigram classifier to predict from a question and a candidate if the candidate is right."""
    texts = [grams_of(question, text) for question, candidates, _ in groups for text in candidates]
    rights = [at == number for _, candidates, number in groups for at in range(len(candidates))]
    learnt = BigramClassifier.of(texts, [{"right" if right else "wrong": 1.0} for right in rights])
    return lambda question, candidates: int(
        learnt.scores([grams_of(question, text) for text in candidates], "right").argmax()
    )


def _blindly(choices: Choices, answers: Picker, rationales: Picker | None) -> tuple[float, float, bool]:
    answered = float(answers(choices.question, choices.answers) == choices.answer)
    if choices.rationale is None:
        return answered, 0.0, False
    if rationales is None:  # without rationales in training, the expected score is that of a random choice
        return answered, 1 / len(choices.rationales), True
    return answered, float(rationales(_answered(choices), choices.rationales) == choices.rationale), True


def _joint(rows: Sequence[tuple[float, float, bool]]) -> dict[str, float]:
    """Return Q->A, Q->AR and QA->R from 0 to 1.

    A row is (answer is right, rationale is right, has rationales), 1 for right.
    """
    answered = np.array([float(answer) for answer, _, _ in rows])
    reasoned = np.array([float(reason) if there else 1.0 for _, reason, there in rows])
    has_rationale = np.array([there for _, _, there in rows])
    figures = {"Q->A": float(answered.mean()), "Q->AR": float((answered * reasoned).mean())}
    return figures | ({"QA->R": float(reasoned[has_rationale].mean())} if has_rationale.any() else {})


def _summary(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * figures[name]:.1f}" for name in ("Q->A", "QA->R", "Q->AR") if name in figures)


def vqa_baselines(records: Sequence[Record], training: Sequence[Question] = ()) -> Baselines:
    """Return the blind baseline and the ceiling of answers.

    `training`: questions with answers. Without training questions, there is no blind baseline.
    """
    questions = answered_questions(records)
    blind, ceiling, notes, predicted = {}, answer_ceiling(questions) or {}, [], None
    if training:
        rule = BlindAnswers.of(training)
        given = [rule.answers(questions), learnt_answers(training, questions)]
        blind, learnt = (vqa_scores(answers, questions) for answers in given)
        majority = vqa_scores(rule.majority(questions), questions)["all"]
        by_kind = vqa_scores(rule.majority_by_kind(questions), questions)
        overall = by_kind.pop("all")
        shares = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in by_kind.items())
        often = "once" if rule.at_least == 1 else f"{rule.at_least} times"
        usual = f"the most frequent answer by first words (the longest that occur at least {often} in training)"
        better, about = stronger(blind["all"], learnt["all"], usual)
        blind, predicted = (learnt if better else blind), given[better]
        notes += [
            about,
            f"learnt on {counted(training, 'questions')}; “{rule.overall}” to every question gets {100 * majority:.1f}"
            f"; the most frequent answer to each kind of question gets {100 * overall:.1f} ({shares})",
        ]
    if ceiling:
        notes.append("ceiling: one person's answer scored against those of the other annotators")
    else:
        notes.append("no ceiling: it needs two or more answers to each question")
    return Baselines(blind, ceiling, tuple(notes), predicted)
