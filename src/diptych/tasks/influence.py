"""How much each region weighs on a word, measured: how much less likely the word becomes when the region is taken away.

Attention weights were the other choice. They say what a layer read, not what the word needed (Jain & Wallace 2019,
arXiv 1902.10186): averaged over heads and layers they are never negative, add up to one even where no region mattered,
and say nothing of what the residual path carries. Taking a region away asks the model itself, in log-probabilities,
the unit that it decides in. Where several regions show one thing, each by itself can be missed and would weigh little,
so regions that cover one another are taken away together, and each has the weight of all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.core import Batch, Objective, Regions, Sample, collate
from diptych.objectives.generate_text import GenerateText
from diptych.objectives.masked_queries import MaskedQueries

BATCH = 32  # pictures with a region less at a time
COVERS = 0.5  # IoU from which on two regions show one thing


def covering(regions: Regions) -> list[list[int]]:
    """Groups of regions that cover one another, each with its best region first: the best that is in no group yet, and
    those that overlap it by COVERS. Regions are ordered best first; one that none covers is a group by itself."""
    left = torch.ones(len(regions), dtype=torch.bool)
    groups = []
    for row in range(len(regions)):
        if left[row]:
            alike = left & (regions.overlaps(regions.boxes[row].tolist()) >= COVERS)
            alike[row] = True
            left &= ~alike
            groups.append(alike.nonzero()[:, 0].tolist())
    return groups


@torch.inference_mode()
def weigh_words(model: Any, regions: Regions, text: Int[Tensor, "T"]) -> Float[Tensor, "T R"]:
    """Nats by which the log-probability of each token falls without each region and those that cover it (`covering`),
    the tokens before it given.

    Negative where the region spoke against the word. A query a token, or a decoder that reads the tokens before, asks
    what decoding asked, all in one pass.
    """

    def logs(batch: Batch) -> Tensor:
        scores: Tensor = model.heads["word"](model(batch).target).float().log_softmax(-1)
        return scores.gather(-1, text.to(scores.device).expand(len(batch), -1)[..., None])[..., 0]

    if not len(text):
        return torch.zeros(0, len(regions))
    way: Objective = MaskedQueries(model.vocabulary)
    if getattr(model, "decodes", False):
        way = GenerateText(model.vocabulary, reads="nothing")
    (asked,) = way.prepare([Sample("", "", None, text)], Random(0))
    return _falls(model, regions, asked, logs)


@torch.inference_mode()
def weigh_answer(
    model: Any,
    regions: Regions,
    question: Int[Tensor, "T"],
    answer: int,
    log_probabilities: Callable[[Any, Batch], Tensor],
) -> Float[Tensor, "1 R"]:
    """The same for an answer to a question. `log_probabilities(model, batch)` are of all answers, (B, A): in what form
    they were learnt, each by itself or all against each other, the task knows."""

    def logs(batch: Batch) -> Tensor:
        return log_probabilities(model, batch)[:, answer, None]

    return _falls(model, regions, Sample("", "", None, question), logs)


def _falls(model: Any, regions: Regions, asked: Sample, logs: Callable[[Batch], Tensor]) -> Float[Tensor, "N R"]:
    device, groups = next(model.parameters()).device, covering(regions)
    of_region = torch.zeros(len(regions), dtype=torch.long)
    for number, group in enumerate(groups):
        of_region[group] = number
    seen = [regions, *(regions.take(of_region != number) for number in range(len(groups)))]
    samples = [replace(asked, regions=one) for one in seen]
    found = torch.cat([logs(collate(part).to(device)).cpu() for part in _parts(samples)])
    return (found[:1] - found[1:])[of_region].T.contiguous()


def _parts(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    return [samples[start : start + BATCH] for start in range(0, len(samples), BATCH)]
