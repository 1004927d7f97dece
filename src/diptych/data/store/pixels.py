"""Read and normalise the images of a store's records, for models that read pixels (VL-BERT end to end)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.vision.pictures import open_picture

Colours = Literal["rgb", "bgr"]
# torchvision's weights need RGB from 0 to 1. Caffe's weights, which VL-BERT starts from, need BGR from 0 to 255.
MEANS: dict[Colours, tuple[float, float, float]] = {"rgb": (0.485, 0.456, 0.406), "bgr": (102.9801, 115.9465, 122.7717)}
SPREADS: dict[Colours, tuple[float, float, float]] = {"rgb": (0.229, 0.224, 0.225), "bgr": (1.0, 1.0, 1.0)}


@dataclass(frozen=True)
class Pixels:
    """Scales and normalises images. The shorter side gets `shorter` pixels, unless the longer would exceed `longer`."""

    shorter: int = 600
    longer: int = 1000
    colours: Colours = "rgb"
    blank: bool = False  # True: replace every image by the mean colour (blind baseline)

    def of(self, record: Record) -> Float[Tensor, "3 H W"]:
        """Return the scaled and normalised image of a record. Raises DataError if it cannot be read."""
        if record.image is None:
            raise DataError("this model reads image files, but the record has none; add its image", key=record.key)
        return self.read(open_picture(record.image))

    def read(self, picture: UInt8[Tensor, "3 height width"]) -> Float[Tensor, "3 H W"]:
        """Scale an RGB image and normalise its colours, so that the mean colour becomes 0."""
        height, width = picture.shape[1:]
        scale = min(self.shorter / min(height, width), self.longer / max(height, width))
        size = [max(round(height * scale), 1), max(round(width * scale), 1)]
        values = picture[None].float()
        if size != [height, width]:
            values = F.interpolate(values, size, mode="bilinear", align_corners=False, antialias=scale < 1)
        values = values[0] / 255 if self.colours == "rgb" else values[0].flip(0)
        mean, spread = (torch.tensor(t[self.colours])[:, None, None] for t in (MEANS, SPREADS))
        return torch.zeros_like(values) if self.blank else (values - mean) / spread

    def added_to(self, record: Record) -> Record:
        """Return the record with its pixels added to its regions. A record without regions is returned unchanged."""
        if record.regions is None or not len(record.regions):
            return record
        return replace(record, regions=replace(record.regions, pixels=self.of(record)))
