"""Masking of words, and the loss of predicted words. Several objectives use these functions."""

from collections.abc import Iterable, Sequence
from random import Random

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from diptych.core import IGNORE, Places, StateModel, Vocabulary

Scheme = tuple[float, float, float]  # shares of the chosen words: (becomes [MASK], becomes random, stays)


def hide_words(
    text: Int[Tensor, "T"], words: Iterable[Sequence[int]], vocabulary: Vocabulary, scheme: Scheme, rng: Random
) -> Int[Tensor, "T"]:
    """Mask words as in BERT.

    `words` lists the positions of each word's pieces. All pieces of a word are treated alike.

    Random tokens are drawn from the whole vocabulary, including special tokens, as in the authors' code.
    """
    hidden = text.clone()
    for word in words:
        (action,) = rng.choices(("mask", "random", "keep"), scheme)
        for place in word:
            if action == "mask":
                hidden[place] = vocabulary.mask
            elif action == "random":
                hidden[place] = rng.randrange(vocabulary.size)
    return hidden


def whole_words(text: Int[Tensor, "T"], vocabulary: Vocabulary) -> list[list[int]]:
    """Group the positions of word pieces by word. Special tokens are left out."""
    special = {vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask}
    words: list[list[int]] = []
    for place, piece in enumerate(text.tolist()):
        if piece in vocabulary.inner and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        elif piece not in special:
            words.append([place])
    return words


def with_least(chosen: Bool[Tensor, "N"], least: int, rng: Random) -> Bool[Tensor, "N"]:
    """Set random positions of the mask `chosen` to True until at least `least` (or all) are True."""
    if (missing := least - int(chosen.sum())) <= 0:
        return chosen
    others = (~chosen).nonzero()[:, 0].tolist()
    added = chosen.clone()
    added[rng.sample(others, min(missing, len(others)))] = True
    return added


def mean_by_sample(losses: Float[Tensor, "n"], chosen: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the sum over samples of each sample's mean loss. The matching count is the number of samples with targets.

    This is VL-BERT's `*_LOSS_NORM_IN_BATCH_FIRST` (resnet_vlbert_for_pretraining.py), where both means add 1e-4 to the
    divisor. `losses` has the losses at the True positions of `chosen`, row by row.
    """
    counts = chosen.sum(1)
    sums = losses.new_zeros(chosen.shape).masked_scatter(chosen, losses).sum(1)
    samples = (counts > 0).sum()
    return (sums / (counts + 1e-4)).sum() * samples / (samples + 1e-4)


def word_losses(
    model: StateModel,
    states: Float[Tensor, "B T D"],
    labels: Int[Tensor, "B T"],
    smoothing: float = 0.0,
    ignored: int | None = None,
    places: Places | None = None,
) -> Float[Tensor, "n"]:
    """Return the cross-entropy of each labelled word, row by row.

    `places`: the labelled positions, if they are known without a wait for the GPU.

    The head is computed only at labelled positions, because it is as wide as the vocabulary. `smoothing` and `ignored`:
    see `smoothed`.
    """
    chosen = (labels != IGNORE).nonzero(as_tuple=True) if places is None else places
    scores = model.heads["word"](states[chosen]).float()
    wanted = labels[chosen]
    if smoothing:
        return smoothed(scores, wanted, smoothing, ignored)
    return F.cross_entropy(scores, wanted, reduction="none")


def smoothed(
    scores: Float[Tensor, "n V"], wanted: Int[Tensor, "n"], smoothing: float, ignored: int | None
) -> Float[Tensor, "n"]:
    """Return the KL divergence from the smoothed target distribution (Unified VLP's pytorch_pretrained_bert/loss.py).

    The right word has probability 1 - smoothing. The rest is spread over all other words except `ignored` ([PAD]). The
    loss is 0 if `ignored` is the right word.
    """
    logs = scores.log_softmax(-1)
    others = scores.shape[-1] - (1 if ignored is None else 2)
    share, sure = smoothing / others, 1 - smoothing
    entropy = others * _xlogx(share) + _xlogx(sure)
    of_word = logs.gather(-1, wanted[:, None])[:, 0]
    of_others = logs.sum(-1) - of_word - (0 if ignored is None else logs[:, ignored])
    cost = entropy - sure * of_word - share * of_others
    return cost if ignored is None else cost.masked_fill(wanted == ignored, 0)


def _xlogx(x: float) -> float:
    return x * float(torch.tensor(x, dtype=torch.float64).log()) if x else 0.0
