"""Detectors in ONNX files.

The user sets the meaning of inputs and outputs (`OnnxSettings`), or it is inferred from names and shapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt
from torch import Tensor
from torch.nn.functional import interpolate

from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.backbones.onnx import channels_second
from diptych.vision.backbones.onnx_graph import Axis, Feed, Graph
from diptych.vision.backbones.opened import refuse_unknown, three
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import GREY
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer, corners_of_centred

LIBRARY = "onnx"
SIDE = 640  # input side in pixels, if the network accepts any size
MANY = 1000  # an output with more rows is treated as one box per cell of a map, not as boxes after NMS
BOXES = ("box", "det", "loc")  # an output whose name contains one of these holds boxes
STRIDES = (8, 16, 32)  # sides of YOLOX's cells in pixels, in the order of its output rows
Layout = Literal["apart", "rows", "columns", "chosen"]


class OnnxSettings(BaseModel):
    """Settings of an ONNX detector: how to prepare its input and how to read its outputs.

    `outputs` is the layout of the boxes. `apart`: boxes, scores and labels are separate outputs. `rows`: one table (N,
    4 + C), a box and its class scores per row. `columns`: the same table transposed (4 + C, N). `chosen`: a table (N,
    6) of selected boxes, each with score and label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    width: Annotated[int, Field(ge=1, le=8192)]  # width of the network's input in pixels
    height: Annotated[int, Field(ge=1, le=8192)]
    fit: Literal["stretch", "letterbox"]  # stretch each side, or keep the aspect ratio and pad
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)  # subtracted from colours of 0 to 1
    deviation: tuple[float, float, float] = (1.0, 1.0, 1.0)
    outputs: Layout
    boxes: str  # name of the output with boxes; the next three fields also name outputs
    scores: str | None = None
    labels: str | None = None
    features: str | None = None  # a row per box, or a feature map of the whole input
    form: Literal["xyxy", "cxcywh", "xywh", "yxyx", "yolox"]  # yolox: offsets, see `_in_pixels`
    unit: Literal["pixels", "fractions"] = "pixels"  # fractions: relative to the network's input
    activation: Literal["none", "sigmoid", "softmax"] = "none"  # function to apply to the scores
    objectness: bool = False  # in `rows` and `columns`: an objectness score precedes the class scores
    background: Literal["none", "first", "last"] = "none"  # position of the class "no object"
    classes: NonNegativeInt = 0  # number of classes, if the network outputs label numbers; 0: unknown
    first_label: NonNegativeInt = 0  # label number of the first class

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height of the network's input in pixels."""
        return self.width, self.height


class OnnxProposer(Proposer):
    """A network in an ONNX file that finds boxes."""

    def __init__(
        self, name: str, graph: Graph, feed: Feed, settings: OnnxSettings, class_names: Sequence[str], size: int = 0
    ) -> None:
        super().__init__(name, class_names, size)
        self.graph, self.feed, self.settings = graph, feed, settings

    @classmethod
    def read(
        cls, path: Path, changes: Mapping[str, Any], class_names: Sequence[str], report: Callable[[str], object]
    ) -> OnnxProposer:
        """Open an ONNX file and run it once on a grey image. `report` is called with a line for each inferred setting.

        `changes`: settings by name. Raises RecipeError if the form of the boxes cannot be inferred.
        """
        graph = Graph.read(path)
        feed = Feed.guess(graph, changes)
        settings = guess(graph, feed, changes)
        proposer = cls(f"onnx:{path.stem}", graph, feed, settings, class_names or graph.class_names)
        grey = torch.full((3, settings.height, settings.width), GREY, dtype=torch.uint8)
        trial = proposer.propose([grey])[0]
        if settings.outputs == "rows" and "form" not in changes and len(trial.boxes) == len(_cells(*settings.size)):
            raise RecipeError(
                f"{path} has a box per cell of {', '.join(map(str, STRIDES))} pixels, in an unknown form; "
                "pass --set form=yolox (offsets, as YOLOX exports them) or --set form=cxcywh (decoded boxes)"
            )
        if trial.labels is not None and not proposer.class_names:
            proposer.class_names = tuple(f"class {number}" for number in range(trial.labels.shape[1]))
        if trial.features is not None:
            proposer.feature_size = trial.features.shape[1]
        elif trial.maps:
            proposer.feature_size = len(trial.maps[0])
        given = {*changes, *(SIZES if "size" in changes else ())}
        for key, value in {**feed.model_dump(), **settings.model_dump()}.items():
            if key not in given and value:
                report(f"assumed: {key}={_plain(value)}")
        return proposer

    @property
    def described(self) -> Mapping[str, Any]:
        return {
            "library": LIBRARY, "name": self.name, "bytes": self.graph.size, "feed": self.feed.model_dump(),
            "settings": self.settings.model_dump(mode="json"), "class_names": self.class_names,
            "feature_size": self.feature_size,
        }  # fmt: skip

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> OnnxProposer:
        """Build the proposer from its saved description. The content of the ONNX file is loaded later, like weights."""
        feed = Feed.model_validate(described["feed"])
        settings = OnnxSettings.model_validate_json(json.dumps(described["settings"]))
        names, graph = described["class_names"], Graph(described["bytes"])
        return cls(described["name"], graph, feed, settings, names, int(described["feature_size"]))

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        """Return the boxes of each image. Images run one by one, so that results do not depend on the batch."""
        return [self._one(picture) for picture in pictures]

    def _one(self, picture: Picture) -> Candidates:
        wanted = self.settings
        outputs, share = self._run(picture)
        boxes, scores, labels = self._parts(outputs)
        boxes = self._corners(boxes)
        if wanted.unit == "pixels":
            boxes = boxes / torch.tensor([wanted.width, wanted.height] * 2)
        features, maps = None, []
        if wanted.features is not None:
            output = outputs[wanted.features]
            if output.ndim == 4:
                maps.append(channels_second(output, self.feed.layout)[0])
            else:
                features = _rows(output, len(boxes), wanted.features)
        if scores.numel() and not (float(scores.min()) >= -1e-3 and float(scores.max()) <= 1 + 1e-3):
            raise CheckpointError(
                f"{self.name}: scores from {scores.min():g} to {scores.max():g}, expected probabilities; pass "
                "--set activation=sigmoid or --set activation=softmax"
            )
        boxes = (boxes / share.repeat(2)).clamp(0, 1)
        return Candidates(boxes, scores.clamp(0, 1), labels, features, maps, share if maps else None)

    def _corners(self, boxes: Float[Tensor, "N 4"]) -> Float[Tensor, "N 4"]:
        """Convert boxes of the form `settings.form` to corners x1 y1 x2 y2. The unit does not change."""
        wanted, form = self.settings, self.settings.form
        if form == "yxyx":
            return boxes[:, [1, 0, 3, 2]]
        if form == "yolox":
            boxes, form = _in_pixels(boxes, _cells(*wanted.size)), "cxcywh"
        if form == "cxcywh":
            return corners_of_centred(boxes)
        return boxes if form == "xyxy" else torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)

    def _run(self, picture: Picture) -> tuple[dict[str, Tensor], Float[Tensor, "2"]]:
        """Run the network on an image.

        Return the outputs by name, and the share (x, y) of the input that the image covers.
        """
        wanted = self.settings
        pixels, share = self._fitted(picture)
        if not self.feed.reads_bytes(self.graph):
            mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (wanted.mean, wanted.deviation))
            pixels = (pixels / 255 - mean) / deviation
        names = [name for name in (wanted.boxes, wanted.scores, wanted.labels, wanted.features) if name is not None]
        arrays = self.graph.run(names, self.feed.feeds(self.graph, pixels[None]))
        return {n: torch.from_numpy(a.astype(np.float32)) for n, a in zip(names, arrays, strict=True)}, share

    def _fitted(self, picture: Picture) -> tuple[Float[Tensor, "3 H W"], Float[Tensor, "2"]]:
        """Resize an image to the size of the network's input, with values 0 to 255.

        Also return the share (x, y) of the input that the image covers.
        """
        height, width = picture.shape[1:]
        inner = size = (self.settings.height, self.settings.width)
        if self.settings.fit == "letterbox":
            scale = min(size[0] / height, size[1] / width)
            inner = max(1, round(height * scale)), max(1, round(width * scale))
        pixels = torch.full((3, *size), float(GREY))
        resized = interpolate(picture[None].float().cpu(), inner, mode="bilinear", antialias=True)[0]
        pixels[:, : inner[0], : inner[1]] = resized
        return pixels, torch.tensor([inner[1] / size[1], inner[0] / size[0]])

    def _parts(self, outputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return boxes (N, 4) in the form `settings.form`, scores (N,), and class probabilities (N, C) or None."""
        wanted, table = self.settings, _table(outputs[self.settings.boxes], self.settings.boxes)
        if wanted.outputs == "apart":
            if table.shape[1] != 4:
                raise RecipeError(
                    f"{wanted.boxes} has {table.shape[1]} numbers per box, expected 4; if it also has scores, pass "
                    "--set outputs=rows, columns or chosen; otherwise export the network with decoded boxes"
                )
            if wanted.scores is None:
                return table, torch.ones(len(table)), None
            scores = outputs[wanted.scores].reshape(len(table), -1)
            if wanted.labels is None and scores.shape[1] > 1:
                return table, *self._of_classes(scores)
            labels = None if wanted.labels is None else outputs[wanted.labels].reshape(-1)
            return table, *self._of_labels(scores[:, 0], labels)
        table = table.T if wanted.outputs == "columns" else table
        if table.shape[1] < 5 + wanted.objectness or (wanted.outputs == "chosen" and table.shape[1] < 6):
            raise RecipeError(f"{wanted.boxes} has {table.shape[1]} numbers per box; expected scores after the first 4")
        if wanted.outputs == "chosen":
            filled = table[:, 4] > 0  # rows of zeros are padding
            return table[filled, :4], *self._of_labels(table[filled, 4], table[filled, 5])
        if not wanted.objectness:
            return table[:, :4], *self._of_classes(table[:, 4:])
        scores, labels = self._of_classes(table[:, 5:])
        sure = table[:, 4].sigmoid() if wanted.activation == "sigmoid" else table[:, 4]
        return table[:, :4], scores * sure, None if labels is None else labels * sure[:, None]

    def _of_classes(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        kind = self.settings.activation
        labels = scores if kind == "none" else scores.sigmoid() if kind == "sigmoid" else scores.softmax(1)
        drop = {"none": slice(None), "first": slice(1, None), "last": slice(-1)}[self.settings.background]
        labels = labels[:, drop]
        self._check_count(labels.shape[1])
        return labels.amax(1), labels.clamp(0, 1)

    def _of_labels(self, scores: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return scores, and class probabilities made from label numbers.

        The probabilities are None if the number of classes is unknown.
        """
        scores = scores.sigmoid() if self.settings.activation == "sigmoid" else scores
        count = len(self.class_names) or self.settings.classes
        if labels is None or not count:
            return scores, None
        numbers = labels.round().long() - self.settings.first_label
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise CheckpointError(
                f"{self.name}: found the class number {int(labels.max())}, expected {count} classes, numbered from "
                f"{self.settings.first_label}; pass --set classes=N, --set first_label=N, or all class names"
            )
        self._check_count(count)
        return scores, torch.zeros(len(scores), count).scatter_(1, numbers[:, None], scores[:, None])

    def _check_count(self, count: int) -> None:
        if self.class_names and len(self.class_names) != count:
            raise CheckpointError(
                f"{self.name} has {count} classes, but {len(self.class_names)} names were given; pass one per class "
                "(--class-names); if one class means no object, pass --set background=first or last"
            )


def guess(graph: Graph, feed: Feed, changes: Mapping[str, Any]) -> OnnxSettings:
    """Infer settings from the names and shapes of the outputs.

    `changes` override them; its `size` is a number or [width, height].

    Raises RecipeError for an unknown setting or output.
    """
    refuse_unknown(changes, {*OnnxSettings.model_fields, *Feed.model_fields, "size"} - SIZES, "an ONNX detector")
    outputs = graph.outputs
    for key in ("boxes", "scores", "labels", "features"):
        if changes.get(key) is not None:
            graph.named(key, str(changes[key]), outputs)
    boxes = str(changes.get("boxes") or _like(outputs, *BOXES) or next(iter(outputs)))
    features = changes.get("features") or _like([name for name in outputs if name != boxes], "feature", "feat", "embed")
    others = {name: axes for name, axes in outputs.items() if name not in (boxes, features)}
    layout = changes.get("outputs") or _layout(outputs[boxes], bool(others), len(outputs) > 1)
    dense, separate = layout in ("rows", "columns"), layout == "apart"
    width, height = _size(feed.side(graph), changes.get("size"))
    guessed = OnnxSettings(
        width=width,
        height=height,
        fit="letterbox" if dense else "stretch",
        outputs=layout if layout in get_args(Layout) else "apart",
        boxes=boxes,
        scores=_like(others, "score", "conf", "prob", "logit") if separate else None,
        labels=_like(others, "label", "class_id", "classes", "cls") if separate else None,
        features=features,
        form="cxcywh" if dense else "xyxy",
        objectness=layout == "rows",
    )
    given = {key: value for key, value in changes.items() if key in OnnxSettings.model_fields}
    given |= {key: three(key, given[key]) for key in ("mean", "deviation") if key in given}
    return derive(guessed, **given)


SIZES = {"width", "height"}


def is_backbone(path: Path, changes: Mapping[str, Any]) -> bool:
    """Return True if the ONNX file is a backbone: it outputs a map or tokens, and no output is named like boxes.

    Settings in `changes` take precedence: `map` means a backbone; `boxes`, `outputs` or `features` mean a detector.

    A feature map has four axes. Tokens have three axes, and a shape unlike that of boxes.
    """
    outputs = Graph.read(path).outputs
    if "map" in changes or {"boxes", "outputs", "features"} & changes.keys() or _like(outputs, *BOXES) is not None:
        return "map" in changes
    if any(len(axes) == 4 for axes in outputs.values()):
        return True
    tables = [axes for axes in outputs.values() if len(axes) == 3]
    if len(outputs) > 2 or not tables:
        return False
    return tables[0][-1] not in (4, 6) and max(tables[0][1] or 0, tables[0][2] or 0) < MANY


def _layout(axes: Sequence[Axis], others: bool, several: bool) -> Layout:
    """Infer the layout of boxes from the shape `axes` of their output.

    YOLOv8 has columns, YOLOv5 has rows, and exports with NMS have six numbers per box. `others`: the network has
    further outputs except features. `several`: it has further outputs, which may be features.
    """
    if (several and axes and axes[-1] == 4) or (others and (not axes or axes[-1] is None)):
        return "apart"
    across, down = (axes[-1], axes[-2]) if len(axes) >= 2 else (None, None)
    if across == 6 and (down is None or down < MANY):
        return "chosen"
    if across is not None and across >= MANY and (down is None or down < across):
        return "columns"
    return "rows" if not others else "apart"


def _size(axes: tuple[Axis, Axis], size: Any) -> tuple[int, int]:
    """Return width and height of the input in pixels.

    Raises RecipeError if the ONNX file requires a size other than `size`.
    """
    given = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, list) else None
    if size is not None and (given is None or len(given) != 2 or not all(type(one) is int for one in given)):
        raise RecipeError(f"size={size!r}; expected a number of pixels or [width,height], such as --set size=640")
    width, height = given or (axes[1] or SIDE, axes[0] or SIDE)
    if axes not in ((None, None), (height, width)) and None not in axes:
        raise RecipeError(f"size={size!r}; the ONNX file needs {axes[1]} x {axes[0]} pixels; leave out --set size=")
    return width, height


def _cells(width: int, height: int) -> Float[Tensor, "N 3"]:
    """Return x, y (in cells) and side (in pixels) of each cell of YOLOX's maps, in the order of its output rows."""
    maps = []
    for stride in STRIDES:
        down, across = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
        maps.append(torch.stack([across, down, torch.full_like(down, stride)], 2).reshape(-1, 3))
    return torch.cat(maps).float()


def _in_pixels(boxes: Float[Tensor, "N 4"], cells: Float[Tensor, "M 3"]) -> Float[Tensor, "N 4"]:
    """Convert YOLOX's boxes to pixels.

    YOLOX outputs the offset of the centre from the cell's corner, and the logarithm of each side, in cells (arXiv
    2107.08430).
    """
    if len(boxes) != len(cells):
        raise RecipeError(
            f"form=yolox needs a box for each of the {len(cells)} cells of {', '.join(map(str, STRIDES))} pixels, "
            f"found {len(boxes)}; set another form (--set form=cxcywh) or size (--set size=N)"
        )
    return torch.cat([boxes[:, :2] + cells[:, :2], boxes[:, 2:].exp()], 1) * cells[:, 2:]


def _like(names: Collection[str], *parts: str) -> str | None:
    return next((name for part in parts for name in names if part in name.lower()), None)


def _table(output: Tensor, name: str) -> Tensor:
    """Return the output for the only image of the batch as a table. Raises RecipeError if it is not a table."""
    table = output[0] if output.ndim == 3 else output
    if table.ndim != 2:
        raise RecipeError(
            f"the output {name} has the shape {tuple(output.shape)}, expected a row per box; pass --set boxes=OUTPUT"
        )
    return table


def _rows(output: Tensor, count: int, name: str) -> Tensor:
    table = _table(output, name)
    if len(table) != count:
        raise CheckpointError(f"the ONNX output {name} has {len(table)} rows for {count} boxes; export one row per box")
    return table


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(list(value) if isinstance(value, tuple) else value)
