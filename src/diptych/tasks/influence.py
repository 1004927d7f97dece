"""Measure how much each region influences a word: how much less likely the word becomes without the region.

Attention weights were the alternative. They show what a layer read, not what the word needed (Jain & Wallace 2019,
arXiv 1902.10186): averaged over heads and layers they are never negative, and they add up to one even if no region
mattered. They also ignore the residual path. Removing a region measures the model itself in log-probabilities, the
unit that it decides in. If several regions show one thing, removing one of them changes little. Regions that cover each
other are therefore removed together, and each gets the weight of all.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.core import Batch, Objective, Regions, Sample, collate
from diptych.objectives.generate_text import GenerateText
from diptych.objectives.masked_queries import MaskedQueries

BATCH = 32  # copies of the image, each without one group of regions, in one pass
COVERS = 0.5  # IoU from which two regions count as one thing


def covering(regions: Regions) -> list[list[int]]:
    """Group regions that cover each other; return row indices, the best region of each group first.

    A group is the best region that is in no group yet, and those that overlap it with an IoU of COVERS or more.
    Regions are ordered best first. A region that no other covers is a group by itself.
    """
    left = torch.ones(len(regions), dtype=torch.bool)
    groups = []
    for row in range(len(regions)):
        if left[row]:
            group = left & (regions.overlaps(regions.boxes[row].tolist()) >= COVERS)
            group[row] = True
            left &= ~group
            groups.append(group.nonzero()[:, 0].tolist())
    return groups


@torch.inference_mode()
def weigh_words(model: Any, regions: Regions, text: Int[Tensor, "T"]) -> Float[Tensor, "T R"]:
    """Return the nats of log-probability that each token loses without each region and those that cover it.

    Each token is conditioned on those before it. A negative value means that the region made the token less likely.
    One [MASK] query per token, or a decoder that reads the earlier tokens, scores all tokens in one pass.
    """

    def logs(batch: Batch) -> Tensor:
        scores: Tensor = model.heads["word"](model(batch).target).float().log_softmax(-1)
        return scores.gather(-1, text.to(scores.device).expand(len(batch), -1)[..., None])[..., 0]

    if not len(text):
        return torch.zeros(0, len(regions))
    objective: Objective = MaskedQueries(model.vocabulary)
    if getattr(model, "decodes", False):
        objective = GenerateText(model.vocabulary, reads="nothing")
    (query,) = objective.prepare([Sample("", "", None, text)], Random(0))
    return _losses(model, regions, query, logs)


@torch.inference_mode()
def weigh_answer(
    model: Any,
    regions: Regions,
    question: Int[Tensor, "T"],
    answer: int,
    log_probabilities: Callable[[Any, Batch], Tensor],
) -> Float[Tensor, "1 R"]:
    """Like `weigh_words`, for the answer with index `answer`.

    `log_probabilities(model, batch)` has all answers, B A.
    """

    def logs(batch: Batch) -> Tensor:
        return log_probabilities(model, batch)[:, answer, None]

    return _losses(model, regions, Sample("", "", None, question), logs)


def _losses(model: Any, regions: Regions, query: Sample, logs: Callable[[Batch], Tensor]) -> Float[Tensor, "N R"]:
    device, groups = next(model.parameters()).device, covering(regions)
    of_region = torch.zeros(len(regions), dtype=torch.long)
    for number, group in enumerate(groups):
        of_region[group] = number
    kept = [regions, *(regions.take(of_region != number) for number in range(len(groups)))]
    samples = [replace(query, regions=one) for one in kept]
    parts = [collate(samples[first : first + BATCH]) for first in range(0, len(samples), BATCH)]
    scores = torch.cat([logs(part.to(device)).cpu() for part in parts])
    return (scores[:1] - scores[1:])[of_region].T.contiguous()
