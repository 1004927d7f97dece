"""Heads, which turn states into predictions. Objectives name them; models hold them under these names.

A head that takes `States` has `reads`: the special tokens whose states it reads. Without `reads`, it needs all states.
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

WORDS_MULTIPLE = 64  # the number of scored words is padded to a multiple of this on a GPU


@dataclass(frozen=True)
class HeadSizes:
    """The sizes and switches of a model's heads."""

    width: int  # D
    words: int  # V
    classes: int = 0  # C
    feature: int = 0  # F
    answers: int = 0  # A
    answer_slot: bool = False  # the head "answer" reads the [MASK] behind the question
    norm_eps: float = 1e-5
    tied: bool = True  # whether the word head shares its last matrix with the word embeddings
    similarity: int = 1024  # S, size of the vectors by which images and texts are compared
    region_layers: int = 1  # number of last region layers that the similarity reads
    batch_norm: bool = False  # normalise the vectors that the similarity compares
    answer_width: int = 0  # size of the pooled vectors from which answers are predicted
    class_layers: int = 2  # layers of the head "region_class", 1 or 2
    class_norm: bool = True  # layer norm between them
    dropout: float = 0.0  # before the last layer of the heads "choice", "nlvr" and "entailment"

    @classmethod
    def of(cls, config: ResolvedConfig, **others: Any) -> HeadSizes:
        """The sizes that a config has, and `others` by name."""
        own = (config.width, config.vocabulary.size, config.classes, config.feature_size, config.answers)
        return cls(*own, config.answer_slot, config.norm_eps, **others)


class WordHead(nn.Module):
    """BERT's word head: dense, GELU, norm, then the word embeddings (or a matrix of its own), and a bias per word.

    Tied embeddings are held but not registered as a module, so that a checkpoint stores them once.
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
        """The output matrix: a row per word."""
        return self.tied[0].weight if self.tied else self.words.weight

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        rows, bias = self.rows, cast(Tensor, self.bias)
        more = -len(bias) % WORDS_MULTIPLE if states.device.type in FUSED else 0
        if more:  # the product is faster at this size, though some rows are not needed
            rows, bias = F.pad(rows, (0, 0, 0, more)), F.pad(bias, (0, more))
        scores = F.linear(self.norm(F.gelu(self.dense(states))), rows, bias)
        return scores[..., : len(self.bias)]


class AnswerHead(nn.Module):
    """Unified VLP's answer classifier: two layers over the product of the states of [CLS] and [SEP]; returns logits."""

    reads = frozenset({"cls", "sep"})

    def __init__(self, sizes: HeadSizes) -> None:
        _needs_size(sizes.answers, "answers")
        super().__init__()
        self.inner = nn.Linear(sizes.width, 2 * sizes.width)
        self.outer = nn.Linear(2 * sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        return cast(Tensor, self.outer(F.relu(self.inner(states.special["cls"] * states.special["sep"]))))


class SlotAnswerHead(nn.Module):
    """A word head over answers, which reads the [MASK] behind the question (VL-BERT, section 4.2.2); returns logits."""

    reads = frozenset({"slot"})

    def __init__(self, sizes: HeadSizes) -> None:
        _needs_size(sizes.answers, "answers")
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.outer = nn.Linear(sizes.width, sizes.answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        return cast(Tensor, self.outer(self.norm(F.gelu(self.dense(states.special["slot"])))))

    @torch.no_grad()
    def begin_as(self, word: WordHead, words: Sequence[int | None]) -> None:
        """Initialise from the word head. `words` has the token of each answer, None if an answer is several tokens."""
        self.dense.load_state_dict(word.dense.state_dict())
        self.norm.load_state_dict(word.norm.state_dict())
        for answer, number in enumerate(words):
            if number is not None:
                self.outer.weight[answer] = word.rows[number]
                self.outer.bias[answer] = word.bias[number]


class Pooler(nn.Sequential):
    """BERT's pooler: dense and tanh over the state of [CLS]."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__(nn.Linear(sizes.width, sizes.width), nn.Tanh())


class MatchHead(nn.Module):
    """Log-odds that text and image match: one layer over the state of [CLS] (ImageBERT, section 4.3, Task 4)."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        return cast(Tensor, self.out(states.special["cls"])[:, 0])


class PooledMatchHead(nn.Module):
    """Log-odds of a match from two classes of the pooled [CLS] (VL-BERT v1, Sentence-Image Relationship Prediction)."""

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.out = nn.Linear(sizes.width, 2)  # does not belong, belongs

    def classes(self, states: States) -> Float[Tensor, "B 2"]:
        """Logits of the two classes."""
        return cast(Tensor, self.out(self.pool(states.special["cls"])))

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores = self.classes(states)
        return scores[:, 1] - scores[:, 0]


class PooledHead(nn.Module):
    """Dropout and one layer over BERT's pooler (VL-BERT's code on VCR).

    `scores`: number of logits of a sample. Several logits are for the classes of a sentence about an image, such as
    false (first) and true. A single logit is for one text among the candidates of an image (VCR).
    """

    reads = frozenset({"cls"})

    def __init__(self, sizes: HeadSizes, scores: int) -> None:
        super().__init__()
        self.pool = Pooler(sizes)
        self.dropout = Dropout(sizes.dropout)
        self.out = nn.Linear(sizes.width, scores)

    def forward(self, states: States) -> Float[Tensor, "B *S"]:
        """Logits (B, scores), or (B,) if `scores` is 1."""
        scores: Tensor = self.out(self.dropout(self.pool(states.special["cls"])))
        return scores[:, 0] if scores.shape[1] == 1 else scores


class RegionScoreHead(nn.Module):
    """Log-odds that an expression means a region, from the region's state (VL-BERT, section 4.2.3)."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(sizes.width, sizes.width)
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
        return cast(Tensor, self.out(F.gelu(self.dense(states)))[..., 0])


class SimilarityHead(nn.Module):
    """Image-sentence matching before cross-modal attention (TDEN's ISM): vectors of length 1 for images and texts.

    The score of a pair is their dot product. Neither needs the other, so a gallery is encoded once.
    """

    reads = frozenset[str]()  # no state behind cross-modal attention

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.regions = LayerPools(sizes.region_layers, sizes.width, sizes.similarity, sizes.batch_norm)
        self.text = AttentionPool(sizes.width, sizes.similarity, sizes.batch_norm)

    def forward(self, states: States) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """The vectors of the images, and of the texts."""
        assert states.unimodal is not None
        regions, text = states.unimodal
        return self.of_pictures(regions), self.of_texts(text)

    def of_pictures(self, stream: Stream) -> Float[Tensor, "B S"]:
        """Vectors of images, from the states of their regions."""
        return F.normalize(self.regions(stream).float(), dim=-1)

    def of_texts(self, stream: Stream) -> Float[Tensor, "B S"]:
        """Vectors of texts."""
        return F.normalize(self.text(stream.last, stream.present).float(), dim=-1)


def region_feature(sizes: HeadSizes) -> nn.Module:
    """Make the head that predicts a region's feature: one layer (ImageBERT, section 4.3, Task 3)."""
    _needs_size(sizes.feature, "region features")
    return nn.Linear(sizes.width, sizes.feature)


def region_class(sizes: HeadSizes) -> nn.Module:
    """Make the head that predicts the detector's class of a region. Raises RecipeError if there are no classes."""
    _needs_size(sizes.classes, "classes")
    if sizes.class_layers == 1:
        return nn.Linear(sizes.width, sizes.classes)
    norm = [nn.LayerNorm(sizes.width, sizes.norm_eps)] if sizes.class_norm else []
    inner = nn.Linear(sizes.width, sizes.width)
    return nn.Sequential(inner, nn.GELU(), *norm, nn.Linear(sizes.width, sizes.classes))


def answer_slot_state(text: Float[Tensor, "B T D"], batch: Batch) -> dict[str, Float[Tensor, "B D"]]:
    """`States.special` with "slot", the state before the last [SEP]; empty if the texts are too short to have one."""
    if text.shape[1] < 2:
        return {}
    return {"slot": text[torch.arange(text.shape[0], device=text.device), answer_slot(batch)]}


def answer_slot(batch: Batch) -> Int[Tensor, "B"]:
    """The position in the text before its last [SEP]."""
    return (batch.text_present.sum(1) - 2).clamp(min=0)


def answer_probabilities(scores: Float[Tensor, "B *two A"], exclusive: bool = False) -> Float[Tensor, "B A"]:
    """Probabilities from the logits of a head "answer": sigmoids, or a softmax over answers if `exclusive`.

    Two classifiers (B, 2, A) give the mean of their softmaxes, as in TDEN's code.
    """
    if scores.dim() == 3:
        return scores.float().softmax(-1).mean(1)
    return scores.float().softmax(-1) if exclusive else scores.float().sigmoid()


def label_head(sizes: HeadSizes, _: nn.Embedding) -> nn.Module:
    """Make the head of a task whose labels the data name: logits over the model's list of them."""
    _needs_size(sizes.answers, "answers")
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
    """Make heads by name, from `own` (the model's own makers) or from HEADS. Raises RecipeError for unknown names."""
    heads, own = nn.ModuleDict(), own or {}
    for name in sorted(set(names)):
        if name not in HEADS and name not in own:
            raise unknown_name(f"no head is called {name!r}; {nearest(name, HEADS)}")
        heads[name] = own[name]() if name in own else HEADS[name](sizes, words)
    return heads


def _needs_size(size: int, name: str) -> None:
    if size < 1:
        raise RecipeError(
            f"a head over {name} was requested, but the model's config has {name}={size}; set the number of {name}"
        )
