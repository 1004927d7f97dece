"""VL-BERT's end-to-end path against the authors' code: a real-size ResNet-101, its weights drawn by the recipe."""

import json
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from diptych.systems.vl_bert.model import SCALE, sines
from diptych.systems.vl_bert.network import FastRCNN

pytestmark = pytest.mark.parity
TOLERANCE = {"atol": 2e-5, "rtol": 1e-5}


def drawn(name: str, shape: torch.Size, seed: int) -> Tensor:
    """As meta.json's e2e_recipe tells it."""
    generator = torch.Generator().manual_seed((zlib.crc32(name.encode()) + seed) % 2**31)
    r = torch.randn(shape, generator=generator)
    if len(shape) == 4:
        return r * 0.7 / (shape[1] * shape[2] * shape[3]) ** 0.5
    if len(shape) == 2:
        return r / shape[1] ** 0.5
    if name.endswith("running_var"):
        return 1 + 0.1 * r.abs()
    return 1 + 0.1 * r if name.endswith("weight") else 0.1 * r


@pytest.mark.large
def test_fast_rcnn(parity_folder: Path) -> None:
    folder = parity_folder / "vl_bert"
    meta, golden = json.loads((folder / "meta.json").read_text()), load_file(folder / "e2e_fast_rcnn.safetensors")
    seed = meta["torch_seed"]
    network = FastRCNN(f"resnet{meta['config']['e2e_layers']}").eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(drawn(name.replace("head.", "head.0."), value.shape, seed))
    for name, total in meta["e2e_recipe"]["checksums_sum_of_recipe_weights"].items():
        if name.startswith("backbone"):
            assert float(network.state_dict()[name].double().sum()) == pytest.approx(total, rel=1e-6)
    boxes, pixels = golden["in.boxes"], golden["in.images"]
    present = boxes[..., 0] > -1.5
    with torch.no_grad():
        maps = network.maps(pixels)
        torch.testing.assert_close(maps[:, :64], golden["out.body4_first_64_channels"], **TOLERANCE)
        rois = torch.cat([present.nonzero()[:, :1].float(), boxes[present]], 1)
        torch.testing.assert_close(
            network.cells(maps, rois)[:, :16], golden["out.roi_align_first_16_channels"], **TOLERANCE
        )
        width = 8 * 256 + network.size
        weight = drawn("obj_downsample.1.weight", torch.Size([meta["config"]["e2e_final"], width]), seed)
        bias = drawn("obj_downsample.1.bias", weight.shape[:1], seed)
        size = golden["in.im_info"][:, None, [0, 1]]
        starts, ends = boxes[..., :2], boxes[..., 2:]
        places = sines(SCALE * torch.cat([(starts + ends) / 2 / size, (ends - starts) / size], -1), 256)
        for case, masks in (("", None), ("segms.", golden["in.segms"])):
            raw = network(pixels, boxes, present, masks)
            torch.testing.assert_close(raw, golden[f"out.{case}obj_reps_raw"], **TOLERANCE)
            looks = torch.relu(torch.cat([places, raw], -1) @ weight.T + bias)
            torch.testing.assert_close(looks[present], golden[f"out.{case}obj_reps"][present], atol=5e-5, rtol=1e-5)
