"""Self-critical training (Rennie et al. 2017) of a model that captions: any caption recipe turned into one.

Unified VLP, Table 8: COCO, batch 64, rate 1e-6, 30 epochs on 4 Titan Xp; CIDEr 116.9 becomes 129.3 (Table 2). TDEN's
re-release: rate 5e-6, 50 epochs, times 0.8 every 18; CIDEr 132.6 (the paper: 133.4). The small size is for worlds such
as Storybook: the mean of five drawn captions is the baseline, which needs no greedy caption beside them.

    diptych finetune caption --data STORE --model CAPTIONER --out OUT --recipe unified-vlp/small/scst
"""

from __future__ import annotations

from typing import Any, Literal

from diptych.runtime.configs import derive
from diptych.systems.objectives import SelfCriticalObjectives
from diptych.systems.recipe import Recipe

Writes = Literal["queries", "decoder"]


def small_scst(caption: Recipe, writes: Writes, lr: float = 1e-4, steps: int = 300) -> Recipe:
    """For small worlds and one core. A constant rate, far below what captions are learnt with."""
    steady = {"kind": "adamw", "schedule": "constant", "warmup_share": None, "warmup_steps": 10, "weight_decay": 0.0}
    optimizer = {"lr": lr, **steady}
    training = {"steps": steps, "validate_every": 50, "checkpoint_every": 50}
    return scst(caption, SelfCriticalObjectives(writes=writes, baseline="mean", samples=5), optimizer, training)


def scst(
    caption: Recipe, objectives: SelfCriticalObjectives, optimizer: dict[str, Any], training: dict[str, Any]
) -> Recipe:
    """The same model and decoding, rewarded. `optimizer` and `training` are what changes of them."""
    name = caption.name.removesuffix("caption") + "scst"
    return derive(caption, name=name, init=None, objectives=objectives, optimizer=optimizer, training=training)
