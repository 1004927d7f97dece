"""VL-BERT end to end: the network learns with the rest, and what is hidden is hidden in the pixels."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import torch
from PIL import Image

from diptych.core import BIDIRECTIONAL, Record, Sample, collate
from diptych.data.store.pixels import Pixels
from diptych.objectives import MaskedRegionClass
from diptych.runtime.errors import DataError
from diptych.systems import find_recipe
from diptych.systems.vl_bert.model import VLBert, VLBertConfig, VLBertResolvedConfig
from diptych.systems.vl_bert.network import FastRCNN
from diptych.training.config import OptimizerConfig
from diptych.training.optimizer import MULTIPLIER, parameter_groups
from tests.support import toy


def model(**changes: Any) -> VLBert:
    torch.manual_seed(0)
    sizes = {"width": 32, "layers": 2, "heads": 2, "ffn": 64, "positions": 80, "coordinates": 4, "feature_size": 6}
    config = VLBertResolvedConfig(
        vocabulary=toy.VOCABULARY,
        **{**sizes, "classes": toy.KINDS, "init_std": 0.2, "network": "resnet18", "dropout": 0.0, **changes},
    )
    return VLBert(config, ("word", "region_class")).eval()


def sample(seed: int = 0, height: int = 48, width: int = 64) -> Sample:
    seen = toy.sample(seed, 3)
    assert seen.regions is not None
    pixels = torch.rand(3, height, width, generator=torch.Generator().manual_seed(seed))
    return replace(seen, regions=replace(seen.regions, features=None, pixels=pixels), attention=BIDIRECTIONAL)


def test_no_pixel_of_a_hidden_region_reaches_any_state() -> None:
    vlbert, seen = model(), sample()
    assert seen.regions is not None
    assert seen.regions.pixels is not None
    box = torch.tensor([10.3, 5.2, 30.1, 20.7])  # between pixels: a line of them would leak
    boxes = seen.regions.boxes.clone()
    boxes[1] = box / torch.tensor([64, 48, 64, 48])
    regions = replace(seen.regions, boxes=boxes)
    other = seen.regions.pixels.clone()
    other[:, 5:21, 10:31] = 7.0  # every pixel that the box touches
    hidden = torch.tensor([False, True, False])

    def states(pixels: torch.Tensor, hide: bool) -> list[torch.Tensor]:
        whole = replace(regions, pixels=pixels)
        found = vlbert(collate([replace(seen, regions=whole.hide(hidden) if hide else whole)]))
        return [found.text, found.regions, *found.special.values()]

    for ours, theirs in zip(states(seen.regions.pixels, True), states(other, True), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.allclose(states(seen.regions.pixels, False)[0], states(other, False)[0])


def test_the_network_learns_and_its_early_stages_do_not() -> None:
    vlbert = model(network_frozen=2).train()
    objective = MaskedRegionClass(rate=1.0, labels="soft")
    seen = collate(objective.prepare([sample(n) for n in range(2)], Random(0)))
    before = {name: value.clone() for name, value in vlbert.state_dict().items() if "network" in name}
    groups = parameter_groups(vlbert, OptimizerConfig(lr_multipliers={"regions.network.": 0.1}))
    of_network = [p for group in groups if group[MULTIPLIER] == 0.1 for p in group["params"]]
    trained = [p for name, p in vlbert.named_parameters() if "network" in name and p.requires_grad]
    assert {id(p) for p in of_network} == {id(p) for p in trained}
    optimizer = torch.optim.SGD(groups, lr=0.1)
    objective.loss(vlbert, vlbert(seen), seen).backward()
    optimizer.step()
    moved = {name for name, value in vlbert.state_dict().items() if "network" in name and (value != before[name]).any()}
    convolutions = {name for name in before if "conv" in name or "downsample.0" in name}
    frozen = {name for name in convolutions if ".backbone.conv1" in name or ".layer1." in name}
    assert moved == convolutions - frozen  # no norm either, neither scale nor statistics


@pytest.mark.parametrize(("name", "trained"), [("vl-bert/pretrain", True), ("vl-bert/official/end-to-end", False)])
def test_all_parameters_are_trained_as_in_the_paper_or_the_early_ones_are_not(name: str, trained: bool) -> None:
    """Figure 1: "All parameters in this architecture [...] are jointly trained"; statistics are no parameters."""
    shape = cast(VLBertConfig, find_recipe(name, ["model.network=resnet18"]).model)
    network = FastRCNN("resnet18", shape.network_frozen, 1, "1x1", shape.network_norms_frozen).train()
    early = {name for name, part in network.named_parameters() if not part.requires_grad}
    assert ("backbone.conv1.weight" in early) is not trained
    assert ("head.0.bn1.weight" in early) is not trained
    assert bool(early) is not trained
    before = network.state_dict()["backbone.bn1.running_mean"].clone()
    network.maps(torch.rand(1, 3, 32, 32)).sum().backward()
    assert torch.equal(network.state_dict()["backbone.bn1.running_mean"], before)
    assert (network.get_parameter("backbone.bn1.weight").grad is not None) is trained


def test_company_of_the_same_size_changes_nothing() -> None:
    """Beside a larger picture it would: convolutions see the padding, as they do in the authors' code."""
    vlbert = model()
    alone, beside = vlbert(collate([sample(0)])), vlbert(collate([sample(0), sample(1)]))
    torch.testing.assert_close(alone.text[0], beside.text[0, : alone.text.shape[1]], atol=1e-5, rtol=1e-5)


def test_text_alone_beside_pictures() -> None:
    vlbert = model()
    text = Sample("t", "t", None, torch.tensor([7, 8, 9]), attention=BIDIRECTIONAL)
    beside, alone = vlbert(collate([text, sample()])), vlbert(collate([text]))
    torch.testing.assert_close(alone.text[0], beside.text[0, :3], atol=1e-5, rtol=1e-5)


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(DataError, match=r"model.network=resnet18 reads pixels, but some images lack them"):
        model()(collate([toy.sample(0)]))


def test_pictures_are_read_as_the_networks_weights_want_them(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20), (255, 0, 51)).save(tmp_path / "a.png")
    record = Record("a", image=tmp_path / "a.png", regions=toy.regions(1))
    rgb = Pixels(shorter=10, longer=100).of(record)
    assert rgb.shape == (3, 10, 20)
    torch.testing.assert_close(rgb[:, 3, 3], torch.tensor([(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]))
    bgr = Pixels(shorter=20, longer=30, colours="bgr").of(record)
    assert bgr.shape == (3, 15, 30)  # the longer side has a limit
    torch.testing.assert_close(bgr[:, 3, 3], torch.tensor([51 - 102.9801, -115.9465, 255 - 122.7717]))
    beside = Pixels(10, 100).added_to(record).regions
    assert beside is not None
    assert beside.pixels is not None
    assert torch.equal(beside.pixels, rgb)
    with pytest.raises(DataError, match="this model reads image files, but the record has none"):
        Pixels().of(Record("b"))


def masked(cells: torch.Tensor) -> Sample:
    seen = sample()
    assert seen.regions is not None
    return replace(seen, regions=replace(seen.regions, masks=cells))


def test_fewer_cells_of_a_region_cost_less_and_are_as_open_as_what_they_cover() -> None:
    network = FastRCNN("resnet18", cells=2).eval()
    seen: list[torch.Size] = []
    network.head.register_forward_hook(lambda _, read, made: seen.append(made.shape))
    pixels, boxes = torch.randn(1, 3, 64, 64), torch.tensor([[[0.0, 0.0, 40.0, 40.0]]])
    present, upper = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, 14, 14)
    upper[..., :7, :] = 1
    whole, half = network(pixels, boxes, present), network(pixels, boxes, present, upper)
    assert [shape[2:] for shape in seen] == [(2, 2), (2, 2)]
    cells = network.head(network.cells(network.maps(pixels), torch.tensor([[0.0, 0.0, 0.0, 40.0, 40.0]])))
    torch.testing.assert_close(whole[0, 0], cells[0].mean((1, 2)))
    torch.testing.assert_close(half[0, 0], cells[0, :, :1].sum((1, 2)) / 4)  # the lower two are closed


def test_instance_masks_are_multiplied_with_the_cells_of_a_region() -> None:
    """As in the authors' code (tests/parity has its numbers): from the batch to the states."""
    vlbert = model()
    network = vlbert.regions.network
    assert network is not None
    cells = torch.ones(3, 14, 14, dtype=torch.bool)
    cells[1, :, 7:] = False
    batch = collate([masked(cells), masked(torch.ones_like(cells))])
    assert batch.masks is not None
    assert batch.masks.dtype == torch.float32
    assert batch.pixels is not None
    looks = vlbert.regions._from_pixels(batch, network)
    rois = torch.cat([torch.zeros(3, 1), batch.boxes[0] * torch.tensor([64.0, 48.0, 64.0, 48.0])], 1)
    felt = network.head(network.cells(network.maps(batch.pixels[:1]), rois))
    torch.testing.assert_close(looks[0, 2], felt[1, :, :, :7].sum((1, 2)) / 14**2, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(looks[0, [0, 1, 3]], looks[1, [0, 1, 3]])  # the whole picture has all of its cells
    assert not torch.allclose(looks[0, 2], looks[1, 2])
    open_, none = vlbert(batch), vlbert(collate([sample()]))
    torch.testing.assert_close(open_.text[1], none.text[0], atol=1e-5, rtol=1e-5)  # all cells: as without masks
    assert not torch.allclose(open_.text[0], open_.text[1])


def test_masks_of_another_size_are_refused() -> None:
    with pytest.raises(DataError, match="masks have 7 x 7 cells, expected 14 x 14"):
        model()(collate([masked(torch.ones(3, 7, 7, dtype=torch.bool))]))
