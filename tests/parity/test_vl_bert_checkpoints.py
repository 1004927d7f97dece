"""Random checkpoints with every key that VL-BERT's authors have."""

import pytest
import torch
from torch import Tensor

from diptych.core import BIDIRECTIONAL, Regions, Sample, collate
from diptych.systems.vl_bert.checkpoint import import_vl_bert
from diptych.systems.vl_bert.model import VLBert
from tests.parity.checkpoints import SMALL, Keys, check_refusals, random, sections, vocabulary
from tests.support.checkpoints import load_checkpoint

pytestmark = pytest.mark.parity
# 4,096 numbers go into a look: 2,048 of coordinates, which stay 8 x 256 / k, and 2,048 of the feature.
SIZES = SMALL | {4096: 48}
HEADS = {
    "PRETRAIN": {"match", "word", "region_class"},
    "VQA": {"answer"},
    "VCR": {"choice", "region_class"},
    "RefCOCO+": {"region_score"},
}
PIXELS = "image_feature_extractor."


def drawn(keys: Keys) -> dict[str, Tensor]:
    """Small, but the network has the one size that torchvision builds; of its tensors one number is stored."""
    network = any(name.startswith(f"{PIXELS}backbone") for name in keys)
    theirs = random({n: k for n, k in keys.items() if not (network and n.startswith(PIXELS))}, SIZES, half=False)
    for name, (shape, kind) in keys.items():
        if name not in theirs:
            value = torch.full([], 7 if kind == "int64" else 0.01).to(getattr(torch, kind))
            theirs[name] = value.expand([64 if size == 768 else size for size in shape])
    return theirs


@pytest.mark.parametrize("wrapped", ["", "module."])
@pytest.mark.parametrize("section", HEADS)
def test_every_key_is_read_and_told(parity_folder, tmp_path, section, wrapped):
    torch.manual_seed(0)
    theirs = drawn(sections(parity_folder / "vl_bert" / "keys.txt")[section])
    torch.save({"state_dict": {wrapped + name: value for name, value in theirs.items()}}, tmp_path / "model.pth")
    model, report = load_checkpoint(VLBert, import_vl_bert, tmp_path / "model.pth", vocabulary(tmp_path, SMALL[30522]))
    assert set(report.renamed) | set(report.left) == {wrapped + name for name in theirs}
    left = {name.removeprefix(wrapped) for name in report.left}
    pixels = {name for name in theirs if name.startswith(PIXELS) and ".head.0." not in name}
    assert pixels.isdisjoint(left)  # with the network, where there is one
    assert model.config.network == ("resnet101" if section in ("VCR", "RefCOCO+") else None)
    expected = {"vlbert.mlm_head.predictions.decoder.weight", "vlbert.pooler.dense.weight", "vlbert.pooler.dense.bias"}
    assert all(name in expected or name.startswith(PIXELS) for name in left)
    assert set(model.heads) == HEADS[section]
    assert not any(name.startswith(("encoder", "text", "heads", "word_norm", "region_norm")) for name in report.missing)
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.9], [0.0, 0.2, 1.0, 1.0]])
    features = torch.rand(2, model.config.feature_size)
    pixels = torch.rand(3, 48, 64) if model.config.network is not None else None
    regions = Regions(boxes, torch.tensor([0.9, 0.8]), (640, 480), features=features, pixels=pixels)
    sample = Sample("k", "p", regions, torch.tensor([10, 20, 3, 4, 3]), attention=BIDIRECTIONAL)
    assert model.eval()(collate([sample])).text.isfinite().all()


@pytest.mark.large
@pytest.mark.thorough
@pytest.mark.parametrize("parity_folder", ["committed"], indirect=True)  # the keys of all sets are the same
def test_the_real_size_in_half_precision(parity_folder, tmp_path):
    theirs = random(sections(parity_folder / "vl_bert" / "keys.txt")["PRETRAIN"], {}, half=True)
    torch.save({"state_dict": theirs}, tmp_path / "model.pth")
    model, report = load_checkpoint(VLBert, import_vl_bert, tmp_path / "model.pth", vocabulary(tmp_path, 30522))
    assert report.missing == []
    config = model.config
    assert (config.layers, config.heads, config.ffn, config.positions) == (12, 12, 3072, 512)
    assert (config.feature_size, config.coordinates, config.classes) == (2048, 256, 1601)
    ours = model.state_dict()
    layer = theirs["vlbert.encoder.layer.3.intermediate.dense.weight"]
    assert torch.equal(ours["encoder.layers.3.inner.weight"], layer.float())


def test_what_is_wrong_is_refused_with_a_way_out(parity_folder, tmp_path):
    theirs = random(sections(parity_folder / "vl_bert" / "keys.txt")["VQA"], SIZES, half=False)
    key = "vlbert.encoder.layer.1.attention.self.key.weight"
    check_refusals(VLBert, import_vl_bert, tmp_path, theirs, "VL-BERT checkpoint", {key: key})
