"""VCR, referring expressions and statements: small recipes that any system has which reads picture and text together.

VL-BERT's own numbers for the first two stand in its file; Unified VLP, ImageBERT and TDEN's paper say nothing of the
last two. VCR's texts are long (a question, its answer and a rationale), and a question is read four times; in batches
of 16 it stays at chance all the same (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from diptych.runtime.configs import derive
from diptych.systems.objectives import NlvrObjectives, Objectives, ReferringObjectives, VcrObjectives
from diptych.systems.presets.small import TRAINING
from diptych.systems.recipe import Recipe

Task = Literal["vcr", "referring", "nlvr"]
_OBJECTIVES: dict[Task, Objectives] = {
    "vcr": VcrObjectives(),
    "referring": ReferringObjectives(),
    "nlvr": NlvrObjectives(),
}
TASKS: tuple[Task, ...] = tuple(_OBJECTIVES)
_MAX_WORDS = {"vcr": 48, "referring": 20, "nlvr": 24}


def small(of_system: Callable[[Any], Recipe], task: Task) -> Recipe:
    """For small worlds and one core: VCR, referring expressions or NLVR.

    It is `of_system("pretrain")` with the task's own objectives, batch and length of texts.
    """
    recipe = of_system("pretrain")
    return derive(
        recipe,
        name=f"{recipe.system}/small/{task}",
        task=task,
        objectives=_OBJECTIVES[task],
        training={"steps": TRAINING.steps, "batch": TRAINING.batch},
        data={"split": "train", "max_words": _MAX_WORDS[task]},
    )
