"""The official detectors: find the regions of images, in the same order as in the published feature files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.configs import of_json
from diptych.runtime.errors import CheckpointError
from diptych.vision.detectors.detector import BACKGROUND, NetworkDetector, Picture, groups_of_one_size, regions_of
from diptych.vision.detectors.official.butd import Butd, ButdPipeline, ButdSettings, ButdShape
from diptych.vision.detectors.official.convert import convert
from diptych.vision.detectors.official.files import read_file
from diptych.vision.detectors.official.prepare import Prepared
from diptych.vision.detectors.official.regions import OfficialSettings, RawRegions, with_settings
from diptych.vision.detectors.official.resnet import sizes_of
from diptych.vision.detectors.official.x101 import X101, X101Pipeline, X101Settings, X101Shape
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import WEIGHTS, fill, read_detector_weights, write_detector

KIND = "official"
AT_ONCE = 4  # maximum number of images (of equal size) per pass through the trunk
Pipeline = ButdPipeline | X101Pipeline


class OfficialDetector(NetworkDetector[Butd | X101]):
    """A detector with the network and settings of bottom-up attention or of Detectron's ResNeXt-101.

    Only images of equal size after resizing share a batch, because padding would change their regions.
    """

    def __init__(self, pipeline: Pipeline, class_names: Sequence[str] = ()) -> None:
        self.pipeline, self.network, self.class_names = pipeline, pipeline.network, tuple(class_names)
        # On a CPU, channels_last makes the trunk 2.3 times as fast in bfloat16 and up to 10% faster in float32
        # (benchmarks/official_detectors.py).
        self.network.eval().to(memory_format=torch.channels_last)

    @classmethod
    def of(
        cls, tensors: dict[str, Tensor], settings: OfficialSettings, class_names: Sequence[str], source: str
    ) -> OfficialDetector:
        """Build the detector from weights under our names.

        `class_names`: the names without the background; None: classes are named by number.

        Raises CheckpointError for weights or names that do not fit the network.
        """
        sizes = sizes_of(tensors)
        pipeline: Pipeline
        try:
            if isinstance(settings, ButdSettings):
                shape = ButdShape.of(sizes, source)
                pipeline = ButdPipeline(fill(Butd(shape), tensors, source), settings)
            else:
                assert isinstance(settings, X101Settings)
                pyramid = X101Shape.of(sizes, source)
                pipeline = X101Pipeline(fill(X101(pyramid, settings.stride), tensors, source), settings)
        except KeyError as error:
            raise CheckpointError(f"{source} has no {error}; copy it again, or pass a complete file") from error
        except (IndexError, ZeroDivisionError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{source} has tensors whose sizes do not fit together ({error}); copy the file again"
            ) from error
        if (classes := sizes["classes.weight"][0]) < 2:
            raise CheckpointError(
                f"{source} has no class except the background; copy it again, or pass the file of another detector"
            )
        return cls(pipeline, _names(class_names, classes - 1))

    @property
    def settings(self) -> OfficialSettings:
        return self.pipeline.settings

    @property
    def selection(self) -> OfficialSettings:
        """The detector's settings, among them the numbers of regions (`least`, `most`).

        Assign new settings only before the first image is processed.
        """
        return self.settings

    @selection.setter
    def selection(self, settings: Any) -> None:
        self.pipeline.settings = settings

    @cached_property
    def contract(self) -> FeatureContract:
        settings, precision = self.settings, "" if self.settings.precision == "float32" else " bfloat16"
        return FeatureContract(
            extractor=f"{self.network_name} at {settings.shorter} to {settings.longer} pixels{precision}",
            weights=self.fingerprint,
            feature_size=self.network.feature_size,
            class_names=self.class_names,
            selection=str(settings),
        )

    @property
    def network_name(self) -> str:
        """The network's name, followed by the dialect for bottom-up attention."""
        stages = self.network.shape.trunk.stages
        layers = 3 * sum(stage.blocks for stage in stages) + 2
        groups = f"-{stages[0].groups}x{stages[0].inner // stages[0].groups}d" if stages[0].groups > 1 else ""
        if isinstance(self.settings, ButdSettings):
            return f"bottom-up attention ({self.settings.dialect}) ResNet-{layers}{groups}-C4"
        return f"Detectron ResNe{'X' if groups else ''}t-{layers}{groups}-FPN"

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        return [self._regions(*of_one) for of_one in zip(pictures, self.find(pictures), strict=True)]

    @torch.no_grad()
    def find(self, pictures: Sequence[Picture]) -> list[RawRegions]:
        """Return the regions of each image: features, class and attribute scores, and boxes in pixels."""
        prepared = [self.pipeline.prepare(picture.to(self.device)) for picture in pictures]
        regions: dict[int, RawRegions] = {}
        for numbers in groups_of_one_size([one.size for one in prepared], AT_ONCE):
            some = [prepared[number] for number in numbers]
            images = torch.stack([one.image for one in some]).contiguous(memory_format=torch.channels_last)
            regions.update(zip(numbers, self._found(images, some), strict=True))
        return [regions[number] for number in range(len(prepared))]

    def _found(self, images: Float[Tensor, "B 3 h w"], prepared: Sequence[Prepared]) -> list[RawRegions]:
        """Return the regions of a batch of prepared images of equal size.

        Computes in the `precision` of the settings. With float32, convolutions and matrix products do not use TF32.
        """
        pipeline: Any = self.pipeline
        short = torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16")
        with short, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            maps, boxes = pipeline.propose(images, prepared)
            counts = [len(of_one) for of_one in boxes]
            outputs = (torch.split(output.float(), counts) for output in pipeline.describe(maps, boxes))
            return [pipeline.choose(*of_one) for of_one in zip(prepared, boxes, *outputs, strict=True)]

    def _regions(self, picture: Picture, raw: RawRegions) -> Regions:
        boxes = raw.boxes / raw.boxes.new_tensor([picture.shape[2], picture.shape[1]] * 2)
        return regions_of(picture, boxes.clamp(0, 1), raw.scores, classes=raw.probabilities, features=raw.features)

    def save(self, folder: Path) -> None:
        network = "butd" if isinstance(self.settings, ButdSettings) else "x101"
        described = {"kind": KIND, "network": network, "settings": asdict(self.settings)}
        write_detector(folder, described | {"class_names": self.class_names[1:]}, self.network)

    @classmethod
    def from_request(cls, request: DetectorRequest) -> OfficialDetector:
        """Open a weights file of Detectron or airsplay (.pkl), MILVLG (.pth) or Hugging Face (.bin, .safetensors).

        The format is recognised from the file's content. Settings in the request override the settings in the file and
        the defaults.
        """
        tensors, cfg = read_file(Path(request.name))
        done = convert(tensors, cfg, request.name)
        settings = with_settings(done.settings, request.settings)
        detector = cls.of(done.tensors, settings, request.class_names, request.name)
        given = tuple(f"assumed: {name}=" for name in request.settings)
        for line in (*done.lines(), *(note for note in done.notes if not note.startswith(given))):
            request.report(line)
        return detector

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> OfficialDetector:
        settings: type[OfficialSettings] = {"butd": ButdSettings, "x101": X101Settings}[described["network"]]
        values, weights = of_json(settings, described["settings"]), read_detector_weights(folder, described)
        return cls.of(weights, values, described["class_names"], str(folder / WEIGHTS))


def _names(names: Sequence[str], count: int) -> tuple[str, ...]:
    names = names or [f"class {number}" for number in range(1, count + 1)]
    if len(names) != count:
        raise CheckpointError(
            f"{len(names)} class names were given, but the network has {count} classes without the background; "
            "pass the list that came with its weights, one name per line"
        )
    return (BACKGROUND, *names)
