"""Parts shared by the presets of all systems: small recipes, recipes for photographs, self-critical training.

Small recipes are for data such as Storybook, with captions of about ten words and a vocabulary of a few hundred words.
They train in minutes on two cores. docs/photographs-reference.md has the measurements behind the recipes for
photographs.
"""

from collections.abc import Iterator
from typing import Literal

from diptych.runtime.configs import derive
from diptych.systems.preset import Preset
from diptych.tasks import TASKS
from diptych.tasks.entailment import ENTAILMENT
from diptych.tasks.retrieval import RETRIEVAL
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.tasks.vqa import VQA
from diptych.training.config import OptimizerConfig, TrainingConfig

ADAMW = OptimizerConfig(
    kind="adamw", lr=1e-3, weight_decay=0.01, betas=(0.9, 0.98), clip=1.0, schedule="linear", warmup_share=0.05
)
TRAINING = TrainingConfig(steps=1200, batch=64, validate_every=200, checkpoint_every=200)
# Dropout of 0.1 harms networks this small. Without dropout, VQA needs half as many steps, and pre-training predicts
# words better at the same step (experiments/LOG.md).
NO_DROPOUT: dict[str, float] = {"dropout": 0.0, "attention_dropout": 0.0}
PHOTO_WORDS = 30  # maximum number of tokens of a caption
# Tasks that are trained for EPOCHS on photographs.
ANSWERING = tuple(spec.name for spec in (VQA, RETRIEVAL, ENTAILMENT))
EPOCHS = 6.0


def muon(*stacks: str) -> OptimizerConfig:
    """Return the config of Muon for small recipes.

    `stacks`: prefixes of the parameters that Muon trains, such as `encoder.layers.`.

    On Storybook, Muon needs half as many steps as AdamW and ends at a lower loss (experiments/LOG.md).
    """
    return derive(ADAMW, kind="muon", muon_params=stacks, lr=2e-3)


def small_task(pretrain: Preset, task: str) -> Preset:
    """Return the preset `SYSTEM/small/TASK`: `pretrain`, with the changes in the task's `TaskSpec.training.small`.

    Raises ValueError if `TaskSpec.training.small` is None.
    """
    spec = TASKS[task]
    if spec.training.small is None:
        raise ValueError(f"the task {task} has no small recipe; set TaskSpec.training.small")
    return pretrain.but(
        pretrain.name.replace("/small/pretrain", f"/small/{task}"),
        f"{spec.title}, for small worlds and one core.",
        task=task,
        objectives=spec.training.small.objectives,
        training={"steps": TRAINING.steps, "batch": spec.training.small.batch},
        data={"max_words": spec.training.small.max_words},
    )


def photos(*presets: Preset) -> Iterator[Preset]:
    """Yield recipes for a few thousand photographs. Texts may be longer than in small recipes, and a run ends when the
    validation score stops improving.

    `presets`: small recipes; the first must be pre-training. Recipes for the tasks ANSWERING are derived from the first
    one if they are not given. The recipes run for EPOCHS, and are validated on the whole split.
    """
    given = {preset.name.rpartition("/")[2] for preset in presets}
    for preset in (*presets, *(small_task(presets[0], task) for task in ANSWERING if task not in given)):
        brief = preset.name.endswith(ANSWERING)
        every = 100 if brief else 500
        title = TASKS[preset.name.rpartition("/")[2]].title
        yield preset.but(
            preset.name.replace("/small/", "/photos/"),
            f"{title}, for a few thousand photographs: longer captions; ends when validation stops improving.",
            model={"positions": 96, "dropout": 0.1, "attention_dropout": 0.1},
            training={
                "steps": 6000,
                "epochs": EPOCHS if brief else None,
                "validate_every": every,
                "checkpoint_every": every,
                "patience": 4,
            },
            data={"max_words": PHOTO_WORDS, "validation_records": None if brief else 500},
            decoding={"beams": 3, "max_words": PHOTO_WORDS, "no_repeat_ngram": 3},
        )


def small_scst(caption: Preset, writes: Literal["queries", "decoder"]) -> Preset:
    """Return a recipe of self-critical training (SCST, Rennie et al. 2017) for a small captioner.

    The learning rate is constant, and much lower than in training on reference captions. The baseline is the mean
    reward of five sampled captions, so that no greedy caption is needed. The command is:

    diptych finetune caption --data STORE --model CAPTIONER --out OUT --recipe unified-vlp/small/scst
    """
    constant = {"schedule": "constant", "warmup_share": None, "warmup_steps": 10}
    return caption.but(
        caption.name.removesuffix("caption") + "scst",
        "Self-critical training (SCST) of a trained captioner, for small worlds and one core.",
        init=None,
        objectives=SelfCriticalObjectives(writes=writes, baseline="mean", samples=5),
        optimizer={"kind": "adamw", "lr": 1e-4, "weight_decay": 0.0, **constant},
        training={"steps": 300, "validate_every": 50, "checkpoint_every": 50},
    )
