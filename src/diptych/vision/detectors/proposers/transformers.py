"""Detectors of transformers: DETR, RT-DETR and whatever else `AutoModelForObjectDetection` opens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_convert

from diptych.runtime.downloads import downloading
from diptych.runtime.errors import CheckpointError, DataError
from diptych.runtime.extras import requires_extra
from diptych.vision.backbones.transformers import all_there, source_of, way_out
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer

LIBRARY = "transformers"
AT_ONCE = 8  # pictures of one size through the network


class TransformersProposer(Proposer):
    """Pictures are prepared by the network's own processor; those that are then of one size go through it together, so
    that none is padded and a batch's company changes nothing."""

    def __init__(self, name: str, model: Any, processor: Any) -> None:
        names = model.config.id2label
        super().__init__(f"hf:{name}", [str(names[number]) for number in sorted(names)])
        self.model, self.processor = model.eval(), processor

    @classmethod
    def of(cls, name: str, weights: Path | None = None) -> TransformersProposer:
        """USER/MODEL[@COMMIT] of the hub, or a folder with its files in `weights`."""
        with requires_extra(f"hf:{name}", "transformers"):
            from transformers import AutoImageProcessor, AutoModelForObjectDetection
        source, revision = source_of(name, weights)
        with downloading(f"hf:{name}", way_out(name)):
            model, loaded = AutoModelForObjectDetection.from_pretrained(
                source, revision=revision, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
            )
            processor = AutoImageProcessor.from_pretrained(source, revision=revision, trust_remote_code=False)
        all_there(model, loaded, source)
        return cls(name, model, processor)

    @property
    def described(self) -> Mapping[str, Any]:
        config = json.loads(self.model.config.to_json_string(use_diff=False))
        processor = json.loads(self.processor.to_json_string())
        return {"library": LIBRARY, "name": self.name, "config": config, "processor": processor}

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> TransformersProposer:
        """The weights are still to be filled in."""
        with requires_extra(described["name"], "transformers"):
            from transformers import AutoConfig, AutoModelForObjectDetection, ImageProcessingMixin
            from transformers.models.auto.image_processing_auto import get_image_processor_class_from_name
        processor: Any = get_image_processor_class_from_name(described["processor"]["image_processor_type"])
        if not _is_a(processor, ImageProcessingMixin):
            raise ValueError(f"no processor {described['processor']['image_processor_type']!r}")
        model = AutoModelForObjectDetection.from_config(AutoConfig.for_model(**described["config"]))
        return cls(described["name"].removeprefix("hf:"), model, processor.from_dict(described["processor"]))

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        device = next(self.parameters()).device
        prepared = [self._prepared(picture) for picture in pictures]
        groups: dict[torch.Size, list[int]] = {}
        for number, pixels in enumerate(prepared):
            groups.setdefault(pixels.shape, []).append(number)
        found: dict[int, Candidates] = {}
        for numbers in groups.values():
            for start in range(0, len(numbers), AT_ONCE):
                some = numbers[start : start + AT_ONCE]
                seen = self.model(pixel_values=torch.cat([prepared[number] for number in some]).to(device))
                found.update(zip(some, map(self._candidates, seen.logits, seen.pred_boxes), strict=True))
        return [found[number] for number in range(len(pictures))]

    def _prepared(self, picture: Picture) -> Tensor:
        try:
            prepared: Tensor = self.processor(
                images=[picture], return_tensors="pt", input_data_format="channels_first"
            )["pixel_values"]
        except (ValueError, RuntimeError) as error:
            height, width = picture.shape[1:]
            raise DataError(f"{self.name} takes no picture of {width} x {height} pixels ({error})") from error
        return prepared

    def _candidates(self, logits: Tensor, centred: Tensor) -> Candidates:
        """DETR's family has one class more, for nothing; the others say yes or no to each class."""
        count = len(self.class_names)
        if logits.shape[-1] not in (count, count + 1):
            raise CheckpointError(
                f"{self.name} names {count} classes and tells {logits.shape[-1]}; get its files again"
            )
        labels = logits.softmax(-1)[:, :count] if logits.shape[-1] == count + 1 else logits.sigmoid()
        return Candidates(box_convert(centred, "cxcywh", "xyxy").clamp(0, 1), labels.amax(1), labels)


def _is_a(kind: Any, base: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)
