"""Detectors of the package `transformers`: DETR, RT-DETR and all others that `AutoModelForObjectDetection` opens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.extras import requires_extra
from diptych.vision.backbones.transformers import load_whole, remedy_of, source_of
from diptych.vision.detectors.detector import Picture, groups_of_one_size
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer, corners_of_centred

LIBRARY = "transformers"
AT_ONCE = 8  # maximum number of images (of equal size) per forward pass


class TransformersProposer(Proposer):
    """A detector of the package `transformers`, with the image processor of its checkpoint.

    Only images of equal size after processing share a batch. No image is padded, so results do not depend on the batch.
    """

    def __init__(self, name: str, model: Any, processor: Any) -> None:
        names = model.config.id2label
        super().__init__(f"hf:{name}", [str(names[number]) for number in sorted(names)])
        self.model, self.processor = model.eval(), processor

    @classmethod
    def of(cls, name: str, weights: Path | None = None) -> TransformersProposer:
        """Open USER/MODEL[@COMMIT] from the Hugging Face hub, or from the folder `weights` with its files.

        Raises CheckpointError.
        """
        with requires_extra(f"hf:{name}", "transformers"):
            from transformers import AutoImageProcessor, AutoModelForObjectDetection
        source, revision = source_of(name, weights)
        with downloading(f"hf:{name}", remedy_of(name)):
            model = load_whole(AutoModelForObjectDetection, source, revision=revision)
            processor = AutoImageProcessor.from_pretrained(source, revision=revision, trust_remote_code=False)
        return cls(name, model, processor)

    @property
    def described(self) -> Mapping[str, Any]:
        config = json.loads(self.model.config.to_json_string(use_diff=False))
        processor = json.loads(self.processor.to_json_string())
        return {"library": LIBRARY, "name": self.name, "config": config, "processor": processor}

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> TransformersProposer:
        """Build the network from its saved description. The weights are loaded later."""
        with requires_extra(described["name"], "transformers"):
            from transformers import AutoConfig, AutoModelForObjectDetection, ImageProcessingMixin
            from transformers.models.auto.image_processing_auto import get_image_processor_class_from_name
        processor: Any = get_image_processor_class_from_name(described["processor"]["image_processor_type"])
        known = isinstance(processor, type) and issubclass(processor, ImageProcessingMixin)
        if not known:
            raise ValueError(f"unknown image processor {described['processor']['image_processor_type']!r}")
        model = AutoModelForObjectDetection.from_config(AutoConfig.for_model(**described["config"]))
        return cls(described["name"].removeprefix("hf:"), model, processor.from_dict(described["processor"]))

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        device = next(self.parameters()).device
        prepared = [self._prepared(picture) for picture in pictures]
        candidates: dict[int, Candidates] = {}
        for numbers in groups_of_one_size([pixels.shape for pixels in prepared], AT_ONCE):
            outputs = self.model(pixel_values=torch.cat([prepared[number] for number in numbers]).to(device))
            candidates.update(zip(numbers, map(self._candidates, outputs.logits, outputs.pred_boxes), strict=True))
        return [candidates[number] for number in range(len(pictures))]

    def _prepared(self, picture: Picture) -> Tensor:
        try:
            prepared: Tensor = self.processor(
                images=[picture], return_tensors="pt", input_data_format="channels_first"
            )["pixel_values"]
        except (ValueError, RuntimeError) as error:
            height, width = picture.shape[1:]
            raise DataError(f"{self.name} cannot process an image of {width} x {height} pixels ({error})") from error
        return prepared

    def _candidates(self, logits: Tensor, centred: Tensor) -> Candidates:
        """Return boxes and class probabilities: softmax if there is a class "no object" (DETR), else sigmoid."""
        count = len(self.class_names)
        if logits.shape[-1] not in (count, count + 1):
            outputs = logits.shape[-1]
            raise CheckpointError(
                f"{self.name} names {count} classes but has {outputs} outputs; download its files again"
            )
        labels = logits.softmax(-1)[:, :count] if logits.shape[-1] == count + 1 else logits.sigmoid()
        return Candidates(corners_of_centred(centred).clamp(0, 1), labels.amax(1), labels)
