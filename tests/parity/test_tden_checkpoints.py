"""Random checkpoints with every key that the authors' models have: all of them small, pre-training at its size too."""

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from diptych.core import Regions, Sample, collate
from diptych.models.weights import load_into
from diptych.runtime.errors import CheckpointError
from diptych.runtime.weight_files import read_weights
from diptych.systems.tden.checkpoint import import_tden
from diptych.systems.tden.model import Tden
from tests.parity.checkpoints import SMALL, Keys, check_refusals, random, sections, vocabulary
from tests.support.checkpoints import load_checkpoint
from tests.support.exporting import export_tden

pytestmark = pytest.mark.parity
TWICE = "predictor.decoder.bias"


def tden(keys: Keys, sizes: dict[int, int], half: bool = False) -> dict[str, Tensor]:
    made = random(keys, sizes, half)
    return made | ({TWICE: made["predictor.bias"]} if TWICE in made else {})


def a_batch(features: int) -> object:
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.9], [0.0, 0.2, 1.0, 1.0]])
    regions = Regions(boxes=boxes, scores=torch.tensor([0.9, 0.8]), size=(640, 480), features=torch.rand(2, features))
    return collate([Sample("k", "p", regions, torch.tensor([10, 20, 3]), target=torch.tensor([2, 10, 20]))])


@pytest.mark.parametrize("wrapped", ["", "module."])
@pytest.mark.parametrize("section", ["PRETRAIN", "VQA", "CAPTION", "RETRIEVAL", "VCR"])
def test_every_key_is_read_and_told(parity_folder, tmp_path, section, wrapped):
    torch.manual_seed(0)
    theirs = tden(sections(parity_folder / "tden" / "keys.txt")[section], SMALL)
    torch.save({"model": {wrapped + name: value for name, value in theirs.items()}}, tmp_path / "model.pth")
    model, report = load_checkpoint(Tden, import_tden, tmp_path / "model.pth", vocabulary(tmp_path, SMALL[30522]))
    assert report.missing == []
    assert set(report.renamed) | set(report.left) == {wrapped + name for name in theirs}
    assert set(report.left) <= {wrapped + TWICE}
    exported = export_tden(model)
    assert exported.keys() == theirs.keys()
    assert all(torch.equal(exported[name], value) for name, value in theirs.items())
    save_file(model.state_dict(), tmp_path / "ours.safetensors")
    again = Tden(model.config, tuple(model.heads))
    load_into(again, read_weights(tmp_path / "ours.safetensors"), complete=True)
    batch = a_batch(SMALL[2048])
    if "decode" not in model.provides:
        batch.target = None
    ours, reloaded = model.eval()(batch), again.eval()(batch)
    assert ours.text.isfinite().all()
    assert torch.equal(ours.text, reloaded.text)
    heads = {
        "PRETRAIN": {"word", "region_class", "similarity"},
        "VQA": {"answer"},
        "CAPTION": {"word"},
        "RETRIEVAL": {"similarity"},
        "VCR": {"choice"},
    }
    assert set(model.heads) == heads[section]


@pytest.mark.large
@pytest.mark.thorough
@pytest.mark.parametrize("parity_folder", ["committed"], indirect=True)  # the keys of all sets are the same
def test_the_real_size_in_half_precision(parity_folder, tmp_path):
    torch.manual_seed(0)
    theirs = tden(sections(parity_folder / "tden" / "keys.txt")["PRETRAIN"], {}, half=True)
    torch.save({"model": theirs}, tmp_path / "model.pth")
    model, report = load_checkpoint(Tden, import_tden, tmp_path / "model.pth", vocabulary(tmp_path, 30522))
    assert report.missing == []
    assert set(report.left) == {TWICE}
    config = model.config
    assert (config.object_layers, config.sentence_layers, config.cross_layers, config.decoder_layers) == (6, 12, 6, 6)
    assert (config.heads, config.classes, config.feature_size, config.similarity_width) == (12, 1601, 2048, 1024)
    exported = export_tden(model)
    for name, value in theirs.items():
        assert torch.equal(exported[name], value.float() if value.is_floating_point() else value), name
    states = model.eval()(a_batch(2048))
    assert states.target.isfinite().all()


def test_what_is_wrong_is_refused_with_a_way_out(parity_folder, tmp_path):
    theirs = tden(sections(parity_folder / "tden" / "keys.txt")["CAPTION"], SMALL)
    key = "encoder.layers.1.attention.self.key.weight"
    lost = {key: key, "embeddings_pos": "text.positions.weight"}
    check_refusals(Tden, import_tden, tmp_path, theirs, "TDEN checkpoint of xmodaler", lost)


def test_only_the_codes_form_can_be_exported():
    from tests.support import toy

    with pytest.raises(CheckpointError, match="have a counterpart in the authors' code"):
        export_tden(toy.tden())
