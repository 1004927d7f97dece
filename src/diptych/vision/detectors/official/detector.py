"""The official detectors: pictures of any size in, regions out, in the order of the published files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import CheckpointError, RecipeError, nearest
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.official.butd import Butd, ButdPipeline, ButdSettings, ButdShape
from diptych.vision.detectors.official.convert import convert
from diptych.vision.detectors.official.files import read_file
from diptych.vision.detectors.official.prepare import Prepared
from diptych.vision.detectors.official.regions import OfficialSettings, RawRegions
from diptych.vision.detectors.official.resnet import sizes_of
from diptych.vision.detectors.official.x101 import X101, X101Pipeline, X101Settings, X101Shape
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import WEIGHTS, fill, fingerprint, read_weights, write_detector

KIND = "official"
AT_ONCE = 4  # pictures of one size through the trunk
BACKGROUND = "background"
Pipeline = ButdPipeline | X101Pipeline


class OfficialDetector:
    """Pictures that are of one size as the network sees them go through it together; no other do, for padding would
    change what is found."""

    needs_pictures = True

    def __init__(self, pipeline: Pipeline, class_names: Sequence[str] = ()) -> None:
        self.pipeline, self.class_names = pipeline, tuple(class_names)
        # Channels last: a trunk in bfloat16 is 2.3 times as fast so, one in float32 by nothing to a tenth
        # (benchmarks/official_detectors.py, on a CPU).
        pipeline.network.eval().to(memory_format=torch.channels_last)

    @classmethod
    def of(
        cls, tensors: dict[str, Tensor], settings: OfficialSettings, class_names: Sequence[str], source: str
    ) -> OfficialDetector:
        """From weights under our names. `class_names`: without the background; where there are none, numbers are."""
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
            raise CheckpointError(f"{source} lacks {error}; it is damaged, or of another network") from error
        except (IndexError, ZeroDivisionError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{source} has sizes that fit no such network ({error}); copy it again") from error
        if (classes := sizes["classes.weight"][0]) < 2:
            raise CheckpointError(f"{source} knows no class but the background; it is damaged, or of another network")
        return cls(pipeline, _names(class_names, classes - 1))

    @property
    def network(self) -> Butd | X101:
        return self.pipeline.network

    @property
    def settings(self) -> OfficialSettings:
        return self.pipeline.settings

    @cached_property
    def contract(self) -> FeatureContract:
        settings, precision = self.settings, "" if self.settings.precision == "float32" else " bfloat16"
        return FeatureContract(
            extractor=f"{self.network_name} at {settings.shorter} to {settings.longer} pixels{precision}",
            weights=fingerprint(self.pipeline.network),
            feature_size=self.pipeline.network.feature_size,
            class_names=self.class_names,
            selection=str(settings),
        )

    @property
    def network_name(self) -> str:
        """Which network and, of bottom-up attention, which dialect."""
        stages = self.pipeline.network.shape.trunk.stages
        layers = 3 * sum(stage.blocks for stage in stages) + 2
        groups = f"-{stages[0].groups}x{stages[0].inner // stages[0].groups}d" if stages[0].groups > 1 else ""
        if isinstance(self.settings, ButdSettings):
            return f"bottom-up attention ({self.settings.dialect}) ResNet-{layers}{groups}-C4"
        return f"Detectron ResNe{'X' if groups else ''}t-{layers}{groups}-FPN"

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        return [self._regions(picture, found) for picture, found in zip(pictures, self.find(pictures), strict=True)]

    @torch.no_grad()
    def find(self, pictures: Sequence[Picture]) -> list[RawRegions]:
        """All that the detector says of each picture, attributes too; boxes in pixels."""
        device = next(self.pipeline.network.parameters()).device
        prepared = [self.pipeline.prepare(picture.to(device)) for picture in pictures]
        found: list[RawRegions | None] = [None] * len(prepared)
        for numbers in _of_one_size(prepared):
            some = [prepared[number] for number in numbers]
            images = torch.stack([one.image for one in some]).contiguous(memory_format=torch.channels_last)
            with _precision(self.settings, device):
                seen = self.pipeline.find(images, some)
            for number, one in zip(numbers, seen, strict=True):
                found[number] = one
        return [one for one in found if one is not None]

    def _regions(self, picture: Picture, found: RawRegions) -> Regions:
        height, width = picture.shape[1:]
        boxes = found.boxes / found.boxes.new_tensor([width, height] * 2)
        return Regions(
            boxes=boxes.clamp(0, 1).cpu(),
            scores=found.scores.cpu(),
            size=(width, height),
            classes=found.probabilities.cpu(),
            features=found.features.cpu(),
        )

    def save(self, folder: Path) -> None:
        network = "butd" if isinstance(self.settings, ButdSettings) else "x101"
        described = {
            "kind": KIND, "network": network, "settings": asdict(self.settings), "class_names": self.class_names[1:],
        }  # fmt: skip
        write_detector(folder, described, self.pipeline.network)

    @classmethod
    def from_request(cls, request: DetectorRequest) -> OfficialDetector:
        """From a file of Detectron (.pkl), airsplay (.pkl), MILVLG (.pth) or Hugging Face (.bin, .safetensors), known
        by what is in it. Settings of the request replace those of the file or of the code."""
        tensors, cfg = read_file(Path(request.name))
        done = convert(tensors, cfg, request.name)
        settings = with_settings(done.settings, request.settings)
        detector = cls.of(done.tensors, settings, request.class_names, request.name)
        said = tuple(f"assumed: {name}=" for name in request.settings)
        for line in (*done.lines(), *(note for note in done.notes if not note.startswith(said))):
            request.report(line)
        return detector

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> OfficialDetector:
        settings: type[OfficialSettings] = {"butd": ButdSettings, "x101": X101Settings}[described["network"]]
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in described["settings"].items()
        }
        weights = read_weights(folder, described)
        return cls.of(weights, settings(**values), described["class_names"], str(folder / WEIGHTS))


def _names(names: Sequence[str], count: int) -> tuple[str, ...]:
    names = names or [f"class {number}" for number in range(1, count + 1)]
    if len(names) != count:
        raise CheckpointError(
            f"{len(names)} names of classes were given, and the network knows {count}, besides the background; give "
            "the list that came with its weights, a name a line"
        )
    return (BACKGROUND, *names)


def _of_one_size(prepared: Sequence[Prepared]) -> Iterator[list[int]]:
    """Numbers of pictures that can go through the network together."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, one in enumerate(prepared):
        groups.setdefault(one.size, []).append(number)
    for numbers in groups.values():
        for start in range(0, len(numbers), AT_ONCE):
            yield numbers[start : start + AT_ONCE]


@contextmanager
def _precision(settings: OfficialSettings, device: torch.device) -> Iterator[None]:
    """float32 means it: no shorter numbers inside convolutions and products."""
    short = settings.precision == "bfloat16"
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=short),
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False),
    ):
        yield


def with_settings(settings: OfficialSettings, changes: Mapping[str, Any]) -> OfficialSettings:
    """The same with some of them changed; an unknown name or a value of another kind is refused."""
    known = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name != "dialect"}
    values = asdict(settings)
    for name, value in changes.items():
        if name not in known:
            raise RecipeError(f"no setting {name!r} of this detector; {nearest(name, known)}")
        values[name] = _like(name, value, known[name])
    return type(settings)(**values)


def _like(name: str, value: Any, usual: Any) -> Any:
    if isinstance(usual, tuple) and isinstance(value, list) and all(isinstance(v, int | float) for v in value):
        return tuple(float(v) for v in value)
    if isinstance(usual, str) and isinstance(value, str):
        return value
    kinds = int | float if isinstance(usual, float) else int
    if isinstance(usual, int | float) and isinstance(value, kinds) and not isinstance(value, bool):
        return type(usual)(value)
    raise RecipeError(f"{name}={value!r}, wanted something like {list(usual) if isinstance(usual, tuple) else usual!r}")
