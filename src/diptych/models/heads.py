"""Heads: what turns states into predictions. Objectives name them; models hold them under these names.

A head that is handed `States` has `reads`: the special tokens whose states it reads. Without it a head reads all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Batch, States
from diptych.models.dropout import Dropout
from diptych.models.pooling import SimilarityHead
from diptych.models.system import ResolvedConfig
from diptych.models.transformer import FUSED
from diptych.runtime.errors import RecipeError, nearest

WORDS_MULTIPLE = 64  # of the words that are scored on a GPU


@dataclass(frozen=True)
class HeadSizes:
    """What the heads of a model are built of."""

    width: int  # D
    words: int  # V
    classes: int = 0  # C
    feature: int = 0  # F
    answers: int = 0  # A
    answer_slot: bool = False  # the head "answer" reads [MASK] behind the question
    norm_eps: float = 1e-5
    tied: bool = True  # whether the word head ends with the word embeddings
    similarity: int = 1024  # size of the vectors by which pictures and texts are compared
    region_layers: int = 1  # how many of the last layers over regions the similarity reads
    batch_norm: bool = False  # over those vectors
    answer_width: int = 0  # of the pooled vectors from which answers are told
    class_layers: int = 2  # of the head "region_class"
    class_norm: bool = True  # between them
    dropout: float = 0.0  # before the last layer of the heads "choice", "nlvr" and "entailment"

    @classmethod
    def of(cls, config: ResolvedConfig, **others: Any) -> HeadSizes:
        """Those that a config tells; `others` by name."""
        own = (config.width, config.vocabulary.size, config.classes, config.feature_size, config.answers)
        return cls(*own, config.answer_slot, config.norm_eps, **others)


class WordHead(nn.Module):
    """BERT's: dense, GELU, norm, then the word embeddings once more (or rows of its own), and a bias per word.

    The embeddings are held but not registered, so that a checkpoint stores them once.
    """

    def __init__(self, sizes: HeadSizes, words: nn.Embedding) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.bias = nn.Parameter(torch.zeros(sizes.words))
        self.tied = (words,) if sizes.tied else ()
        if not sizes.tied:
            self.words = nn.Linear(sizes.width, sizes.words, bias=False)

    @property
    def rows(self) -> Float[Tensor, "V D"]:
        """A row a word, by which its score is told."""
        return self.tied[0].weight if self.tied else self.words.weight

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        rows, bias = self.rows, cast(Tensor, self.bias)
        more = -len(bias) % WORDS_MULTIPLE if states.device.type in FUSED else 0
        if more:  # a product of such a size is faster, though it has words that nobody asks for
            rows, bias = F.pad(rows, (0, 0, 0, more)), F.pad(bias, (0, more))
        scores = F.linear(self.norm(F.gelu(self.dense(states))), rows, bias)
        return scores[..., : len(self.bias)]


class AnswerHead(nn.Module):
    """Unified VLP's answer classifier: scores, before the sigmoid, of the product of the states of [CLS] and [SEP]."""

    reads = frozenset({"cls", "sep"})

    def __init__(self, sizes: HeadSizes) -> None:
        _needs_size(sizes.answers, "answers")
        super().__init__()
        self.inner = nn.Linear(sizes.width, 2 * sizes.width)
        self.outer = nn.Linear(2 * sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        scores: Tensor = self.outer(F.relu(self.inner(states.special["cls"] * states.special["sep"])))
        return scores


class SlotAnswerHead(nn.Module):
    """The word head once more, over answers: what stands at the [MASK] behind the question (VL-BERT, section 4.2)."""

    reads = frozenset({"slot"})

    def __init__(self, sizes: HeadSizes) -> None:
        _needs_size(sizes.answers, "answers")
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.outer = nn.Linear(sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        scores: Tensor = self.outer(self.norm(F.gelu(self.dense(states.special["slot"]))))
        return scores

    @torch.no_grad()
    def begin_as(self, word: WordHead, words: Sequence[int | None]) -> None:
        """Say at first what the word head would say; `words` has an answer's word, None where it is not one word."""
        self.dense.load_state_dict(word.dense.state_dict())
        self.norm.load_state_dict(word.norm.state_dict())
        for answer, number in enumerate(words):
            if number is not None:
                self.outer.weight[answer] = word.rows[number]
                self.outer.bias[answer] = word.bias[number]


class Pooler(nn.Sequential):
    """BERT's: dense and tanh over the state of [CLS]."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(nn.Linear(sizes.width, sizes.width), nn.Tanh())


class MatchHead(nn.Module):
    """Whether text and picture belong together: log-odds, one layer over the state of [CLS] (ImageBERT, Task 4)."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores: Tensor = self.out(states.special["cls"])[:, 0]
        return scores


class PooledMatchHead(nn.Module):
    """The same from two classes over the pooled [CLS] (VL-BERT v1, "Sentence-Image Relationship Prediction")."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.out = nn.Linear(sizes.width, 2)  # does not belong, belongs

    def classes(self, states: States) -> Float[Tensor, "B 2"]:
        scores: Tensor = self.out(self.pool(states.special["cls"]))
        return scores

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores = self.classes(states)
        return scores[:, 1] - scores[:, 0]


class PooledHead(nn.Module):
    """Scores from the pooled state of [CLS]: dropout and one layer over BERT's pooler (VL-BERT's code on VCR)."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes, scores: int) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.dropout = Dropout(sizes.dropout)
        self.out = nn.Linear(sizes.width, scores)

    def scores(self, states: States) -> Float[Tensor, "B S"]:
        scores: Tensor = self.out(self.dropout(self.pool(states.special["cls"])))
        return scores


class ChoiceHead(PooledHead):
    """How well a text fits, beside others that are asked of the same picture (VCR)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(sizes, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        return self.scores(states)[:, 0]


class SentenceClassHead(PooledHead):
    """The class of a sentence about the picture, such as false (first) or true."""

    def forward(self, states: States) -> Float[Tensor, "B S"]:
        return self.scores(states)


class RegionScoreHead(nn.Module):
    """Whether an expression means a region, as log-odds from the region's state (VL-BERT on RefCOCO+)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
        scores: Tensor = self.out(F.gelu(self.dense(states)))[..., 0]
        return scores


def region_feature(sizes: HeadSizes) -> nn.Module:
    """A region's own feature, from its state: one layer (ImageBERT, Task 3)."""
    _needs_size(sizes.feature, "region features")
    return nn.Linear(sizes.width, sizes.feature)


def region_class(sizes: HeadSizes) -> nn.Module:
    """The detector's classes, from the state of a region."""
    _needs_size(sizes.classes, "classes")
    if sizes.class_layers == 1:
        return nn.Linear(sizes.width, sizes.classes)
    norm = [nn.LayerNorm(sizes.width, sizes.norm_eps)] if sizes.class_norm else []
    inner = nn.Linear(sizes.width, sizes.width)
    return nn.Sequential(inner, nn.GELU(), *norm, nn.Linear(sizes.width, sizes.classes))


def answer_slot_state(text: Float[Tensor, "B T D"], batch: Batch) -> dict[str, Float[Tensor, "B D"]]:
    """The state before the last [SEP] as `States.special["slot"]`; nothing where a text has no place for it."""
    if text.shape[1] < 2:
        return {}
    return {"slot": text[torch.arange(text.shape[0], device=text.device), answer_slot(batch)]}


def answer_slot(batch: Batch) -> Int[Tensor, "B"]:
    """The place in the text before its last [SEP]."""
    return (batch.text_present.sum(1) - 2).clamp(min=0)


def answer_probabilities(scores: Float[Tensor, "B *two A"], exclusive: bool = False) -> Float[Tensor, "B A"]:
    """Of what a head "answer" says: each answer by itself, or `exclusive`: one against the others. Two classifiers
    (B, 2, A) give the mean of their softmaxes, as TDEN's code does."""
    if scores.dim() == 3:
        return scores.float().softmax(-1).mean(1)
    return scores.float().softmax(-1) if exclusive else scores.float().sigmoid()


HEADS: dict[str, Callable[[HeadSizes, nn.Embedding], nn.Module]] = {
    "word": WordHead,
    "region_class": lambda sizes, _: region_class(sizes),
    "answer": lambda sizes, _: SlotAnswerHead(sizes) if sizes.answer_slot else AnswerHead(sizes),
    "pooler": lambda sizes, _: Pooler(sizes),
    "match": lambda sizes, _: MatchHead(sizes),
    "region_feature": lambda sizes, _: region_feature(sizes),
    "similarity": lambda sizes, _: SimilarityHead(sizes),
    "choice": lambda sizes, _: ChoiceHead(sizes),
    "region_score": lambda sizes, _: RegionScoreHead(sizes),
    "nlvr": lambda sizes, _: SentenceClassHead(sizes, 2),
    "entailment": lambda sizes, _: SentenceClassHead(sizes, 3),
}


def make_heads(
    names: Iterable[str],
    sizes: HeadSizes,
    words: nn.Embedding,
    own: Mapping[str, Callable[[], nn.Module]] | None = None,
) -> nn.ModuleDict:
    """`own` are the heads that a model makes otherwise than the table."""
    heads, own = nn.ModuleDict(), own or {}
    for name in sorted(set(names)):
        if name not in HEADS and name not in own:
            raise RecipeError(f"no head is called {name!r}; {nearest(name, HEADS)}")
        heads[name] = own[name]() if name in own else HEADS[name](sizes, words)
    return heads


def _needs_size(size: int, name: str) -> None:
    if size < 1:
        raise RecipeError(f"a head over {name} was asked for, but the model's config says {name}={size}; set it")
