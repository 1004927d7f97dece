"""Train the small detector on Storybook scenes, which are drawn during training."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console
from torch import nn

from diptych.core import Record
from diptych.runtime.configs import derive
from diptych.runtime.devices import torch_unchanged
from diptych.training import OptimizerConfig, TrainingConfig, train
from diptych.training.feeding import Updates
from diptych.vision.detectors.detection_batch import DetectionBatch
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.faster_rcnn import FasterRCNN, FasterRCNNConfig, FasterRCNNDetection, Layer
from diptych.vision.detectors.selection import STORYBOOK, Selection
from diptych_world.book import thing
from diptych_world.detector.detector import StorybookDetector
from diptych_world.detector.network import DetectorConfig, SmallDetector
from diptych_world.detector.training import Detection, detection_batch
from diptych_world.kinds import COLOURS, KINDS, PLACES, SIZES
from diptych_world.layout import scene
from diptych_world.render import render
from diptych_world.world import Scene

# Prefixes of the parameters that Muon trains: the feature layer, and all convolutions except the last ones, which have
# 1 and 4 channels.
MUON_PARAMETERS = ("fine", "stem", "quarter", "eighth", "sixteenth", "down_to_", "mix_", "look_", "describe_region.3")
POSES = tuple(sorted({pose for kind in KINDS.values() for pose in kind.poses}))
SCENE = {"place": PLACES, "time": ("day", "night"), "weather": ("clear", "rain", "snow")}


def storybook_shape() -> DetectorConfig:
    """Return the detector's config: the classes and attributes of the drawn world."""
    return DetectorConfig(tuple(KINDS), {"colour": COLOURS, "size": tuple(SIZES), "pose": POSES}, SCENE)


class DetectorRecipe(BaseModel):
    """The recipe of the small detector: 900 steps with 6 new scenes each. docs/results.md reports its accuracy.

    In experiments/LOG.md, Muon needed half as many steps as AdamW, and small batches needed fewer scenes in total.
    Train it in one process, so that batch norm sees the whole batch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = 0  # seed from which scenes are drawn
    split: str = "train"
    first: PositiveInt = 1_000_000  # index of the first scene; scenes of the demo's splits have lower indices
    optimizer: OptimizerConfig = OptimizerConfig(
        kind="muon",
        muon_params=MUON_PARAMETERS,
        lr=3e-3,
        betas=(0.9, 0.99),
        weight_decay=1e-2,
        clip=10,
        schedule="cosine",
        warmup_steps=30,
    )
    training: TrainingConfig = TrainingConfig(
        steps=900,
        batch=6,
        ema=0.99,
        checkpoint_every=250,
        log_every=25,
        loading_threads=0,  # a loading thread slows a step on two cores from 100 to 155 ms
    )

    @classmethod
    def of(cls, steps: int | None, seed: int, **others: Any) -> Self:
        """Return the recipe with this seed and number of steps (None: the default). `others` are further fields."""
        default = cls(**others)
        return derive(default, seed=seed, training={"seed": seed} | ({"steps": steps} if steps is not None else {}))

    def network(self) -> tuple[nn.Module, Updates]:
        """Build the network with random weights. Return it with the update that computes its losses."""
        return SmallDetector(storybook_shape()), Detection()

    def detector(self, network: Any, selection: Selection) -> StorybookDetector | FasterRCNN:
        """Make a detector from the trained network. `selection` chooses the regions that it returns."""
        return StorybookDetector(network, selection)


@dataclass(frozen=True)
class SceneBatches:
    """Training batches of drawn scenes. A batch depends only on the step, and no scene occurs twice."""

    shape: DetectorConfig
    recipe: DetectorRecipe

    def at(self, step: int, part: int, parts: int) -> DetectionBatch:
        batch = self.recipe.training.batch
        numbers = range(batch * part // parts, batch * (part + 1) // parts)
        return scene_batch(
            self.shape,
            [scene(self.recipe.seed, self.recipe.split, self.recipe.first + step * batch + i) for i in numbers],
        )


def scene_batch(shape: DetectorConfig, scenes: Sequence[Scene]) -> DetectionBatch:
    words = [{"place": s.place, "time": s.time, "weather": s.weather} for s in scenes]
    return detection_batch(shape, [drawn(s) for s in scenes], [truth(s) for s in scenes], words)


def truth(of: Scene) -> Record:
    """Return a record with the scene's objects but no texts.

    Generating texts would take as long as drawing the image.
    """
    return Record(of.key, of.split, objects=tuple(thing(figure) for figure in of.figures))


def drawn(of: Scene) -> Picture:
    return torch.from_numpy(render(of)).permute(2, 0, 1)


class FasterRCNNRecipe(DetectorRecipe):
    """A short training of torchvision's Faster R-CNN from random weights.

    Its purpose is to test the code, not accuracy.
    """

    architecture: str = "resnet18_fpn"
    layer: Layer = "fc7"
    # Shorter side of the resized images. Larger images are slower, but small objects are detected better.
    shorter: PositiveInt = 160
    optimizer: OptimizerConfig = OptimizerConfig(
        lr=5e-4, weight_decay=1e-2, clip=10, schedule="cosine", warmup_steps=20
    )
    training: TrainingConfig = TrainingConfig(steps=300, batch=6, ema=0.98, checkpoint_every=50, log_every=10)

    # Number of proposals per image in training; with torchvision's 2,000, a step takes 4 times as long.
    proposals: PositiveInt = 200
    # Number of proposals per image for the box head; torchvision's 512 are for COCO's 80 classes.
    regions: PositiveInt = 64

    def network(self) -> tuple[nn.Module, Updates]:
        built = self._shape.build()
        built.rpn._pre_nms_top_n["training"] = 2 * self.proposals
        built.rpn._post_nms_top_n["training"] = self.proposals
        built.roi_heads.fg_bg_sampler.batch_size_per_image = self.regions
        return built, FasterRCNNDetection()

    def detector(self, network: Any, selection: Selection) -> FasterRCNN:
        return FasterRCNN(network, self._shape, selection)

    @property
    def _shape(self) -> FasterRCNNConfig:
        kinds = storybook_shape().class_names
        return FasterRCNNConfig(self.architecture, kinds, self.layer, self.shorter, self.shorter)


@torch_unchanged()
def train_detector(
    recipe: DetectorRecipe, folder: Path, selection: Selection = STORYBOOK, console: Console | None = None
) -> StorybookDetector | FasterRCNN:
    """Train a detector with checkpoints in `folder`, or resume from them. Save it to `folder/detector`."""
    torch.manual_seed(recipe.training.seed)
    network, updates = recipe.network()
    train(
        network,
        updates,
        SceneBatches(storybook_shape(), recipe),
        optimizer=recipe.optimizer,
        training=recipe.training,
        folder=folder,
        fingerprint=recipe.model_dump_json(),
        console=console,
    )
    detector = recipe.detector(network.cpu(), selection)
    if os.environ.get("RANK", "0") == "0":
        detector.save(folder / "detector")
    return detector
