"""VL-BERT begun from BERT's weights, as the released code begins it."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from diptych.systems.vl_bert.checkpoint import start_vl_bert
from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
from tests.support import toy
from tests.support.exporting import export_unified_vlp


def test_starting_from_bert(tmp_path: Path) -> None:
    """BERT: two segments, more positions, a pooler, no regions."""
    sizes = {"width": 64, "heads": 1, "segments": 2, "positions": 60, "region_embedding": "official"}
    forms = {"geometry": "official", "box_norm": "official", "hidden_regions": "official"}
    bert = toy.model("word", "pooler", **sizes, **forms, seed=1)
    theirs = {name: value.clone() for name, value in export_unified_vlp(bert).items() if not name.startswith("vis_")}
    save_file(theirs, tmp_path / "model.safetensors")
    config = VLBertResolvedConfig(
        vocabulary=toy.VOCABULARY,
        width=64,
        layers=bert.config.layers,
        heads=1,
        ffn=bert.config.ffn,
        positions=40,
        coordinates=4,
        feature_size=6,
        classes=toy.KINDS,
    )
    torch.manual_seed(2)
    model = VLBert(config, ("word", "match"))
    regions = model.text.segments.weight[2].detach().clone()
    report = start_vl_bert(model, tmp_path)
    ours, first = model.state_dict(), bert.state_dict()
    for name in ("encoder.layers.1.attention.qkv.weight", "text.words.weight", "text.norm.bias", "heads.word.bias"):
        assert torch.equal(ours[name], first[name]), name
    assert torch.equal(ours["heads.match.pool.0.weight"], first["heads.pooler.0.weight"])
    assert torch.equal(ours["text.positions.weight"], first["text.positions.weight"][:40])
    assert torch.equal(ours["text.segments.weight"][:2], first["text.segments.weight"])
    assert torch.equal(ours["text.segments.weight"][2], regions)
    assert not any(name.startswith(("text.", "encoder.", "heads.word")) for name in report.missing)
    assert {"image.weight", "regions.out.weight", "heads.match.out.weight"} <= set(report.missing)
