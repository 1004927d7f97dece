"""One caption from the command line loads what it needs: `benchmarks/startup.py` measures what that costs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from diptych.data.store.tokens import Tokens
from diptych.runs.folder import Architecture, ModelFolder
from diptych.systems import SYSTEMS, find_recipe
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.pooled import PooledDetector
from diptych.vision.detectors.proposers.nanodet import NanodetProposer, NanodetShape
from diptych.vision.detectors.selection import Selection
from tests.support import toy

# Of our own what trains, scores, reports and draws; of others what is slow to import and not needed.
UNWANTED = (
    "diptych.training.trainer", "diptych.training.optimizer", "diptych.training.distribution", "diptych.training.log",
    "diptych.runs.evaluation", "diptych.runs.reports", "diptych_world.demo", "diptych.runs.run", "diptych.runs.learner",
    "diptych.runs.stages", "diptych.inference.drawing", "diptych.inference.contact_sheet", "diptych.inference.search",
    "diptych.data.formats", "torchvision", "torch._dynamo", "torch._inductor", "sympy", "jinja2", "scipy",
    "huggingface_hub", "rich.console", "tensorboard", "faiss", "timm", "pycocotools", "sacremoses",
)  # fmt: skip
CODE = """
import sys
from diptych.cli import main
try:
    main()
finally:
    print("loaded", *sys.modules, file=sys.stderr)
    import torch
    import diptych.vision.detectors.official.detector, diptych.vision.backbones.onnx
    assert "torchvision" not in sys.modules and "torch._dynamo" not in sys.modules
    from torchvision.ops import nms  # its operators are loaded already
    assert nms(torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0.9]]), torch.tensor([0.5, 0.6]), 0.5).tolist() == [1]
"""


def drawn_detector() -> Detector:
    return toy.detector(64)


def detector_of_photographs() -> Detector:
    """NanoDet and EfficientNet-Lite without their weights: what is loaded does not depend on them."""
    shape = NanodetShape(side=64, stem=8, pyramid=8, classes=3)
    proposer = NanodetProposer(shape, ("dog", "bird", "mat"), {})
    backbone = Backbone.of("timm/tf_efficientnet_lite0", 64, pretrained=False)
    return PooledDetector(proposer, backbone, Selection(most=4, least=2))


@pytest.mark.parametrize("made", [drawn_detector, detector_of_photographs])
def test_a_caption_loads_no_training_report_or_drawing_code(tmp_path: Path, made: Callable[[], Detector]) -> None:
    torch.manual_seed(0)
    tokens = Tokens.train(["a dog and a bird on a red mat"], size=60)
    detector = made()
    detector.save(tmp_path / "detector")
    config = SYSTEMS["unified-vlp"].resolved(
        vocabulary=tokens.vocabulary, feature_size=detector.contract.feature_size, classes=3, width=32, heads=2,
        ffn=64, layers=1, max_regions=8, positions=40,
    )  # fmt: skip
    architecture = Architecture(system="unified-vlp", config=config, heads=("word",))
    recipe = find_recipe("unified-vlp/small/caption", ["decoding.max_words=3"])
    model = architecture.build().eval()
    folder = ModelFolder(tmp_path, model, architecture, tokens, detector.contract, recipe, None, tmp_path / "detector")
    folder.save(tmp_path / "model")
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")

    arguments = ["caption", str(tmp_path / "red.png"), "--model", str(tmp_path / "model")]
    # an interpreter: what is imported when
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'red.png'}: ")
    loaded = set(done.stderr.rpartition("loaded ")[2].split())
    assert {"torch", "diptych.inference.predictor"} <= loaded
    assert not loaded & set(UNWANTED), "a caption waits for these"
