"""Beginning TDEN from BERT; `tests/parity` reads the authors' own checkpoints."""

import pytest
import torch
from safetensors.torch import save_file

from diptych.runtime.errors import CheckpointError
from diptych.systems.tden.checkpoint import start_tden
from tests.support import toy
from tests.support.exporting import export_unified_vlp


def bert(path, **changes):
    form = {"region_embedding": "official", "geometry": "official", "box_norm": "official"}
    model = toy.model("word", seed=1, segments=2, positions=40, layers=3, **form, **changes)
    theirs = {n: v.clone() for n, v in export_unified_vlp(model).items() if not n.startswith("vis_")}
    save_file(theirs, path / "model.safetensors")
    return model.state_dict()


@pytest.mark.parametrize("tied", [True, False])
def test_bert_begins_the_sentence_encoder(tmp_path, tied):
    first, model = bert(tmp_path), toy.tden("word", tied_words=tied, seed=2)
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    report = start_tden(model, tmp_path)
    ours = model.state_dict()
    for layer in range(2):
        for part in ("attention.qkv.weight", "inner.bias", "norm.weight"):
            assert torch.equal(ours[f"sentence.{layer}.{part}"], first[f"encoder.layers.{layer}.{part}"])
    assert torch.equal(ours["text.positions.weight"], first["text.positions.weight"][:16])
    assert torch.equal(ours["text.segments.weight"], first["text.segments.weight"][[0, 1, 0]])
    assert torch.equal(model.heads["word"].rows, first["text.words.weight"])
    for name in ("objects.0.inner.weight", "cross.1.outer.weight", "decoder.0.cross.qkv.weight"):
        assert torch.equal(ours[name], fresh[name])
        assert name in report.missing
    assert not any(name.startswith(("text.", "sentence.", "heads.word.dense")) for name in report.missing)
    assert any(name.startswith("sentence.2.") for name in report.left), "the third layer has no place"


def test_another_vocabulary_is_refused(tmp_path):
    bert(tmp_path)
    other = toy.tden("word", vocabulary_of=toy.VOCABULARY.__class__(30, 0, 1, 2, 3, 4))
    with pytest.raises(CheckpointError, match="has 20 words, but the model's vocabulary has 30"):
        start_tden(other, tmp_path)
