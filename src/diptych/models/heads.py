"""Heads, which compute predictions from states. Objectives call them by name in `model.heads`.

`reads` names the special tokens whose states a head reads, such as "cls". If a head has no `reads`, the model computes
all states for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Batch, States, Stream
from diptych.models.dropout import Dropout
from diptych.models.pooling import AttentionPool, LayerPools
from diptych.models.system import ResolvedConfig
from diptych.models.transformer import FUSED
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.plugins import unknown_name

WORDS_MULTIPLE = 64  # on a GPU, the number of rows of the output matrix is padded to a multiple of this


@dataclass(frozen=True)
class HeadSizes:
    """Sizes and options of a model's heads."""

    width: int  # size of the states (D)
    words: int  # number of tokens in the vocabulary (V)
    classes: int = 0  # number of region classes (C)
    feature: int = 0  # size of a region feature (F)
    answers: int = 0  # number of answers (A)
    answer_slot: bool = False  # True: the head "answer" reads the [MASK] after the question
    norm_eps: float = 1e-5
    tied: bool = True  # True: the word head's output matrix is the word embedding
    similarity: int = 1024  # size of the vectors of the head "similarity" (S)
    region_layers: int = 1  # the head "similarity" reads the states of regions from the last N layers
    batch_norm: bool = False  # True: batch norm on the vectors of the head "similarity"
    answer_width: int = 0  # size of the pooled vectors of the head "answer"
    class_layers: int = 2  # number of layers of the head "region_class": 1 or 2
    class_norm: bool = True  # True: layer norm between the two layers of the head "region_class"
    dropout: float = 0.0  # dropout in the heads "choice", "nlvr" and "entailment"

    @classmethod
    def of(cls, config: ResolvedConfig, **others: Any) -> HeadSizes:
        """Take the sizes from a config. `others` are further fields."""
        own = (config.width, config.vocabulary.size, config.classes, config.feature_size, config.answers)
        return cls(*own, config.answer_slot, config.norm_eps, **others)


class WordHead(nn.Module):
    """BERT's word head: dense layer, GELU, layer norm, then the word embeddings (or a separate matrix) and a bias.

    Tied embeddings are not registered as a submodule, so that a checkpoint stores them only once.
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
        """The output matrix, with a row per word."""
        return self.tied[0].weight if self.tied else self.words.weight

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        rows, bias = self.rows, cast(Tensor, self.bias)
        more = -len(bias) % WORDS_MULTIPLE if states.device.type in FUSED else 0
        if more:  # pad the rows, because the matrix product is then faster
            rows, bias = F.pad(rows, (0, 0, 0, more)), F.pad(bias, (0, more))
        scores = F.linear(self.norm(F.gelu(self.dense(states))), rows, bias)
        return scores[..., : len(self.bias)]


class AnswerHead(nn.Module):
    """Unified VLP's answer classifier: two layers on the elementwise product of the states of [CLS] and [SEP].

    Returns logits.
    """

    reads = frozenset({"cls", "sep"})

    def __init__(self, sizes: HeadSizes) -> None:
        needs_size(sizes.answers, "answers")
        super().__init__()
        self.inner = nn.Linear(sizes.width, 2 * sizes.width)
        self.outer = nn.Linear(2 * sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        return cast(Tensor, self.outer(F.relu(self.inner(states.special["cls"] * states.special["sep"]))))


class SlotAnswerHead(nn.Module):
    """An answer classifier on the state of the [MASK] after the question (VL-BERT, section 4.2.2). Returns logits.

    It has the layers of the word head.
    """

    reads = frozenset({"slot"})

    def __init__(self, sizes: HeadSizes) -> None:
        needs_size(sizes.answers, "answers")
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.outer = nn.Linear(sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        return cast(Tensor, self.outer(self.norm(F.gelu(self.dense(states.special["slot"])))))

    @torch.no_grad()
    def begin_as(self, word: WordHead, words: Sequence[int | None]) -> None:
        """Initialise from the word head.

        `words`: the token id of each answer, or None for an answer of several tokens.
        """
        self.dense.load_state_dict(word.dense.state_dict())
        self.norm.load_state_dict(word.norm.state_dict())
        for answer, number in enumerate(words):
            if number is not None:
                self.outer.weight[answer] = word.rows[number]
                self.outer.bias[answer] = word.bias[number]


class Pooler(nn.Sequential):
    """BERT's pooler: dense layer and tanh on the state of [CLS]."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(nn.Linear(sizes.width, sizes.width), nn.Tanh())


class MatchHead(nn.Module):
    """Predict the log-odds that text and image match, by a linear layer on the state of [CLS] (ImageBERT, section 4.3,
    Task 4).
    """

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        return cast(Tensor, self.out(states.special["cls"])[:, 0])


class PooledMatchHead(nn.Module):
    """Predict the log-odds that text and image match, from two logits on the pooled [CLS] (VL-BERT v1's relation)."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.out = nn.Linear(sizes.width, 2)  # two scores: mismatched, matched

    def classes(self, states: States) -> Float[Tensor, "B 2"]:
        """Return the logits of (mismatched, matched)."""
        return cast(Tensor, self.out(self.pool(states.special["cls"])))

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores = self.classes(states)
        return scores[:, 1] - scores[:, 0]


class PooledHead(nn.Module):
    """BERT's pooler, dropout and a linear layer (as in VL-BERT's code for VCR).

    `scores`: number of logits per sample. Several logits are the classes of a sentence, such as (false, true). A single
    logit scores a candidate text (VCR).
    """

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes, scores: int) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.dropout = Dropout(sizes.dropout)
        self.out = nn.Linear(sizes.width, scores)

    def forward(self, states: States) -> Float[Tensor, "B *S"]:
        """Return logits (B, scores), or (B,) if `scores` is 1."""
        scores: Tensor = self.out(self.dropout(self.pool(states.special["cls"])))
        return scores[:, 0] if scores.shape[1] == 1 else scores


class RegionScoreHead(nn.Module):
    """Predict the log-odds that an expression describes a region, from the region's state (VL-BERT, section 4.2.3)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
        return cast(Tensor, self.out(F.gelu(self.dense(states)))[..., 0])


class SimilarityHead(nn.Module):
    """Compute unit vectors of images and texts from states before cross-modal attention (TDEN's ISM).

    The score of a pair is the dot product. Each vector depends only on the image or only on the text, so a gallery is
    encoded once.
    """

    reads = frozenset[str]()  # the head reads only `States.unimodal`

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.regions = LayerPools(sizes.region_layers, sizes.width, sizes.similarity, sizes.batch_norm)
        self.text = AttentionPool(sizes.width, sizes.similarity, sizes.batch_norm)

    def forward(self, states: States) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """Return the vectors of the images, and of the texts."""
        assert states.unimodal is not None
        regions, text = states.unimodal
        return self.of_pictures(regions), self.of_texts(text)

    def of_pictures(self, stream: Stream) -> Float[Tensor, "B S"]:
        """Return unit vectors of images, from the states of their regions."""
        return F.normalize(self.regions(stream).float(), dim=-1)

    def of_texts(self, stream: Stream) -> Float[Tensor, "B S"]:
        """Return unit vectors of texts, from the states of their tokens."""
        return F.normalize(self.text(stream.last, stream.present).float(), dim=-1)


def region_feature(sizes: HeadSizes) -> nn.Module:
    """Make the head that predicts a region's feature: a linear layer (ImageBERT, section 4.3, Task 3)."""
    needs_size(sizes.feature, "region features")
    return nn.Linear(sizes.width, sizes.feature)


def region_class(sizes: HeadSizes) -> nn.Module:
    """Make the head that predicts the detector's class of a region.

    Raises RecipeError if the features have no classes.
    """
    needs_size(sizes.classes, "classes")
    if sizes.class_layers == 1:
        return nn.Linear(sizes.width, sizes.classes)
    norm = [nn.LayerNorm(sizes.width, sizes.norm_eps)] if sizes.class_norm else []
    inner = nn.Linear(sizes.width, sizes.width)
    return nn.Sequential(inner, nn.GELU(), *norm, nn.Linear(sizes.width, sizes.classes))


def answer_slot_state(text: Float[Tensor, "B T D"], batch: Batch) -> dict[str, Float[Tensor, "B D"]]:
    """Return {"slot": state of the position before the last [SEP]} for `States.special`.

    Return an empty dict if the texts are too short.
    """
    if text.shape[1] < 2:
        return {}
    return {"slot": text[torch.arange(text.shape[0], device=text.device), answer_slot(batch)]}


def answer_slot(batch: Batch) -> Int[Tensor, "B"]:
    """Return the position before the last [SEP] of each text."""
    return (batch.text_present.sum(1) - 2).clamp(min=0)


def answer_probabilities(scores: Float[Tensor, "B *two A"], exclusive: bool = False) -> Float[Tensor, "B A"]:
    """Convert logits of the head "answer" to probabilities: by sigmoid, or by softmax if `exclusive`.

    For logits of two classifiers (B, 2, A), return the mean of their softmaxes, as in TDEN's code.
    """
    if scores.dim() == 3:
        return scores.float().softmax(-1).mean(1)
    return scores.float().softmax(-1) if exclusive else scores.float().sigmoid()


def label_head(sizes: HeadSizes, _: nn.Embedding) -> nn.Module:
    """Make the head of a classification task whose labels come from the data. It has one logit per label."""
    needs_size(sizes.answers, "answers")
    return PooledHead(sizes, sizes.answers)


HEADS: dict[str, Callable[[HeadSizes, nn.Embedding], nn.Module]] = {
    "word": WordHead,
    "region_class": lambda sizes, _: region_class(sizes),
    "answer": lambda sizes, _: SlotAnswerHead(sizes) if sizes.answer_slot else AnswerHead(sizes),
    "pooler": lambda sizes, _: Pooler(sizes),
    "match": lambda sizes, _: MatchHead(sizes),
    "region_feature": lambda sizes, _: region_feature(sizes),
    "similarity": lambda sizes, _: SimilarityHead(sizes),
    "choice": lambda sizes, _: PooledHead(sizes, 1),
    "region_score": lambda sizes, _: RegionScoreHead(sizes),
    "nlvr": lambda sizes, _: PooledHead(sizes, 2),
    "entailment": lambda sizes, _: PooledHead(sizes, 3),
    "classify": label_head,
}


def make_heads(
    names: Iterable[str],
    sizes: HeadSizes,
    words: nn.Embedding,
    own: Mapping[str, Callable[[], nn.Module]] | None = None,
) -> nn.ModuleDict:
    """Make heads by name.

    `own` has the model's own constructors, which are used instead of those in HEADS. Raises RecipeError for unknown
    names.
    """
    heads, own = nn.ModuleDict(), own or {}
    for name in sorted(set(names)):
        if name not in HEADS and name not in own:
            raise unknown_name(f"no head has the name {name!r}; {nearest(name, HEADS)}")
        heads[name] = own[name]() if name in own else HEADS[name](sizes, words)
    return heads


def needs_size(size: int, name: str) -> None:
    """Raise RecipeError if the config lacks the size of what a head predicts."""
    if size < 1:
        raise RecipeError(
            f"a head that predicts {name} was requested, but the model's config has {name}={size}; set it above 0"
        )
