"""A bigram classifier of texts: the stronger blind baseline, which reads the question but not the image.

The embeddings of a text's words and bigrams are averaged; ReLU, dropout and a linear layer give the class scores. This
is fastText (Joulin et al., arXiv 1607.01759, section 2) with a ReLU and dropout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.metrics.tokenise import tokens_of
from diptych.runtime.errors import DataError

HIDDEN, DROPOUT, BATCH, LR = 64, 0.5, 64, 1e-2
MOST_GRAMS, MOST_CLASSES = 20_000, 3_000  # maximum numbers of n-grams and of classes; the most frequent ones are used
EPOCHS, STEPS = 100, 2_000  # maximum numbers of epochs and of steps; training ends at the first limit
PATIENCE = 10  # training stops if the held-out score has not improved for 10 epochs
HELD_OUT = 10  # every 10th text is held out to choose the best epoch
SEED = 0
ABOUT = f"a classifier of words and pairs of words (one hidden layer of {HIDDEN}, seed {SEED})"


def grams_of(*texts: str) -> list[str]:
    """Return the unigrams and bigrams of each text, prefixed by the text's index, such as "0 a red".

    For several texts, each word of the last text is also paired with the first word of the first text: "what / red".
    """
    grams: list[str] = []
    for place, text in enumerate(texts):
        words = ["<s>", *tokens_of(text), "</s>"]
        grams += [f"{place} {word}" for word in chain(words, map(" ".join, pairwise(words)))]
    first = next(iter(tokens_of(texts[0])), "")
    return grams + [f"{first} / {word}" for word in tokens_of(texts[-1])] if len(texts) > 1 else grams


@dataclass(frozen=True)
class BigramClassifier:
    """A classifier of texts, trained on soft targets in seconds on one thread."""

    classes: tuple[str, ...]
    grams: Mapping[str, int]  # {n-gram: row of its embedding}; row 0 is for unknown n-grams
    network: nn.Sequential

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], targets: Sequence[Mapping[str, float]]) -> BigramClassifier:
        """Fit to texts, each given as n-grams (see `grams_of`) with its soft targets: {class: 0 to 1}.

        Training is deterministic and does not change torch's random state. Raises DataError if no text has a class.
        """
        worth: Counter[str] = Counter()
        for target in targets:
            worth.update(target)
        classes = tuple(sorted(sorted(worth), key=lambda name: -worth[name])[:MOST_CLASSES])
        if not classes:
            raise DataError("no training text has a class for the blind baseline; add some")
        counts = Counter(chain.from_iterable(map(set, texts)))
        common = sorted((gram for gram, count in counts.items() if count > 1), key=lambda g: (-counts[g], g))
        grams = {gram: row for row, gram in enumerate(common[:MOST_GRAMS], start=1)}
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(SEED)
            network = nn.Sequential(
                *(nn.EmbeddingBag(len(grams) + 1, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT)),
                nn.Linear(HIDDEN, len(classes)),
            )
            made = cls(classes, grams, network)
            numbers = {name: number for number, name in enumerate(classes)}
            known = [{numbers[name]: score for name, score in one.items() if name in numbers} for one in targets]
            made._train([(text, target) for text, target in zip(texts, known, strict=True) if target])
        return made

    def _train(self, items: Sequence[tuple[Sequence[str], Mapping[int, float]]]) -> None:
        """Train the classifier; keep the weights of the epoch with the best score on held-out texts."""
        drawn = [items[at] for at in torch.randperm(len(items)).tolist()]
        held, learnt = drawn[::HELD_OUT], [one for at, one in enumerate(drawn) if at % HELD_OUT]
        learnt = learnt or list(held)
        optimizer = torch.optim.Adam(self.network.parameters(), lr=LR)
        left, best, since, kept = STEPS, -1.0, 0, self.network.state_dict()
        for epoch in range(EPOCHS):
            self.network.train()
            for rows in torch.split(torch.randperm(len(learnt)), BATCH)[:left]:
                optimizer.zero_grad()
                self._loss([learnt[row] for row in rows.tolist()]).backward()  # type: ignore[no-untyped-call]  # untyped
                optimizer.step()
                left -= 1
            right = self._right(held)
            if right > best:
                best, since = right, epoch
                kept = {name: value.clone() for name, value in self.network.state_dict().items()}
            if left <= 0 or epoch - since >= PATIENCE:
                break
        self.network.load_state_dict(kept)
        self.network.eval()

    def _loss(self, items: Sequence[tuple[Sequence[str], Mapping[int, float]]]) -> Float[Tensor, ""]:
        wanted = torch.zeros(len(items), len(self.classes))
        for at, (_, target) in enumerate(items):
            wanted[at, list(target)] = torch.tensor(list(target.values()))
        logits = self._logits([text for text, _ in items])
        return nn.functional.cross_entropy(logits, wanted / wanted.sum(1, keepdim=True))

    def _right(self, items: Sequence[tuple[Sequence[str], Mapping[int, float]]]) -> float:
        """Return the sum of the targets of the most probable classes."""
        given = self._best([text for text, _ in items])
        return sum(target.get(number, 0.0) for number, (_, target) in zip(given, items, strict=True))

    def _logits(self, texts: Sequence[Sequence[str]]) -> Float[Tensor, "N classes"]:
        rows = [[self.grams.get(gram, 0) for gram in text] or [0] for text in texts]
        offsets = torch.tensor([0, *map(len, rows[:-1])]).cumsum(0)
        bag, *rest = self.network
        logits: Tensor = nn.Sequential(*rest)(bag(torch.tensor(list(chain.from_iterable(rows))), offsets))
        return logits

    def _best(self, texts: Sequence[Sequence[str]]) -> list[int]:
        self.network.eval()
        with torch.no_grad():
            parts = (self._logits(texts[at : at + 1024]).argmax(1).tolist() for at in range(0, len(texts), 1024))
            return list(chain.from_iterable(parts))

    def answers(self, texts: Iterable[str]) -> list[str]:
        """Return the most probable class of each text."""
        return [self.classes[number] for number in self._best([grams_of(text) for text in texts])]

    def scores(self, texts: Sequence[Sequence[str]], name: str) -> Float[Tensor, "N"]:
        """Return the log-probability of the class `name` for each text. Texts are given as n-grams (see `grams_of`).

        Equal texts get equal scores: each is computed once, because in a batch, rounding depends on the row.
        """
        self.network.eval()
        rows = {text: row for row, text in enumerate(dict.fromkeys(map(tuple, texts)))}
        with torch.no_grad():
            scores = self._logits(list(rows)).log_softmax(-1)[:, self.classes.index(name)]
        return scores[[rows[tuple(text)] for text in texts]]
