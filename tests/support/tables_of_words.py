"""A decoder that reads its scores from a table."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from diptych.core import Batch, Vocabulary, collate
from tests.support import toy

END, WORDS = 3, 5


@dataclass
class Table:
    """Scores of the next word by the words so far, drawn anew for each sequence and picture."""

    seed: int = 0
    sharp: float = 2.0
    end: float = 0.0  # added to the score of [SEP]
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary(WORDS, 0, 1, 2, END, 4))
    steps: int = 0

    def scores(self, picture: int, words: tuple[int, ...]) -> Tensor:
        random = torch.Generator().manual_seed(hash((self.seed, picture, words)) % 2**31)
        scores = torch.randn(WORDS, generator=random) * self.sharp
        scores[END] += self.end
        return scores

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, list[list[tuple[int, ...]]]]:
        self.steps = 1
        memory = [[()] for _ in range(len(batch))]
        return torch.stack([self.scores(b, ()) for b in range(len(batch))]), memory

    def follow(self, memory: list[list[tuple[int, ...]]], words: Tensor, parents: Tensor) -> Tensor:
        self.steps += 1
        for b, (said, of) in enumerate(zip(words.tolist(), parents.tolist(), strict=True)):
            memory[b] = [(*memory[b][parent], word) for word, parent in zip(said, of, strict=True)]
        return torch.stack([torch.stack([self.scores(b, m) for m in row]) for b, row in enumerate(memory)])


def pictures(count: int) -> Batch:
    return collate([toy.sample(n, 1) for n in range(count)])
