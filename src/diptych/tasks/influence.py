"""Measure the influence of each region on a word: how much the word's log-probability falls without the region.

Attention weights are not used: they show what a layer read, not what the word depends on (Jain & Wallace 2019, arXiv
1902.10186). Averaged attention weights are never negative, sum to one even if no region mattered, and ignore the
residual path. If several regions show the same object, removing only one of them changes little. Overlapping regions
are therefore removed together, and each gets the influence of the whole group.
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

BATCH = 32  # number of copies of the image per forward pass; each copy lacks one group of regions
COVERS = 0.5  # minimum IoU of two regions that count as the same object


def covering(regions: Regions) -> list[list[int]]:
    """Group overlapping regions. Return the row indices of each group, its best region first.

    Regions are ordered best first. The best ungrouped region starts a group with all ungrouped regions that have an IoU
    of COVERS or more with it.
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
    """Return how much each token's log-probability (nats) falls if a region and its overlapping regions are removed.

    A token is conditioned on the earlier tokens. A negative value means that the region made the token less likely. All
    tokens are scored in one pass: by a decoder, or with one [MASK] query per token.
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
    """Return the same as `weigh_words`, for the answer with index `answer` instead of tokens.

    `log_probabilities(model, batch)` returns the log-probabilities of all answers, (B, A).
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
