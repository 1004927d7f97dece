"""Official checkpoints, with weights made up here; `tests/parity` holds real outputs against ours."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from diptych.core import TEXT_AFTER_REGIONS, Batch, collate
from diptych.runtime.errors import CheckpointError
from diptych.systems.bert import fit_positions, fit_segments, start_from_bert
from diptych.systems.unified_vlp.checkpoint import import_unified_vlp
from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.support import toy
from tests.support.checkpoints import load_checkpoint
from tests.support.exporting import export_unified_vlp
from tests.support.official_weights import official


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(5, 20))]))
    return path


def a_batch() -> Batch:
    batch = collate([toy.sample(0), toy.sample(3)])
    batch.attention = [TEXT_AFTER_REGIONS] * 2
    return batch


@pytest.mark.parametrize("wrapped", ["plain", "module.", "gamma"])
def test_there_and_back(tmp_path, vocabulary, wrapped):
    model = official()
    theirs = export_unified_vlp(model)
    if wrapped == "module.":
        theirs = {f"module.{name}": value for name, value in theirs.items()}
    if wrapped == "gamma":
        theirs = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
            for name, value in theirs.items()
        }
    torch.save(theirs, tmp_path / "model.bin")
    again, report = load_checkpoint(UnifiedVLP, import_unified_vlp, tmp_path / "model.bin", vocabulary, max_regions=5)
    assert again.config == model.config.model_copy(update={"dropout": 0.1, "attention_dropout": 0.1, "init_std": 0.02})
    ours = model.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in again.state_dict().items())
    assert report.missing == []
    assert set(report.renamed) | set(report.left) == set(theirs)
    assert list(report.left.values()) == ["a copy of the word embeddings"]


def test_half_precision_is_read_as_single(tmp_path, vocabulary):
    model = official()
    torch.save({name: value.half() for name, value in export_unified_vlp(model).items()}, tmp_path / "model.bin")
    again, _ = load_checkpoint(UnifiedVLP, import_unified_vlp, tmp_path / "model.bin", vocabulary, max_regions=5)
    batch = a_batch()
    ours, theirs = model(batch).text[batch.text_present], again.eval()(batch).text[batch.text_present]
    assert ours.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.02)
    assert not torch.equal(ours, theirs)


def test_the_heads_present_are_the_heads_made(tmp_path, vocabulary):
    torch.save(export_unified_vlp(official("word")), tmp_path / "model.bin")
    config, heads, tensors, _ = import_unified_vlp(tmp_path / "model.bin", vocabulary, max_regions=5)
    assert heads == ("word",)
    assert config.answers == 0
    assert "heads.answer.inner.weight" not in tensors


def test_a_missing_fc7_starts_fresh_and_is_told(tmp_path, vocabulary):
    theirs = export_unified_vlp(official())
    del theirs["vis_embed.0.weight"], theirs["vis_embed.0.bias"]
    torch.save(theirs, tmp_path / "model.bin")
    _, report = load_checkpoint(UnifiedVLP, import_unified_vlp, tmp_path / "model.bin", vocabulary, max_regions=5)
    assert report.missing == ["regions.feature.0.weight", "regions.feature.0.bias"]


def test_wrong_files_are_refused_with_a_way_out(tmp_path, vocabulary):
    path = tmp_path / "model.bin"

    def refused(tensors: dict[str, torch.Tensor], match: str) -> None:
        torch.save(tensors, path)
        with pytest.raises(CheckpointError, match=match):
            import_unified_vlp(path, vocabulary, max_regions=5)

    theirs = export_unified_vlp(official())
    refused({"vlbert.word_embeddings.weight": torch.ones(2)}, "is a VL-BERT checkpoint; pass a Unified VLP")
    refused({"v_predictor.bias": torch.ones(2)}, "is a TDEN checkpoint")
    refused({"conv1.weight": torch.ones(2)}, r"of an unknown system \(it has conv1.weight\)")
    bert = {name: value for name, value in theirs.items() if not name.startswith("vis_")}
    refused(bert, "is a BERT or UniLM checkpoint, without region layers; pass it as --init")
    key = "bert.encoder.layer.1.attention.self.key.weight"
    refused({name: value for name, value in theirs.items() if name != key}, f"has no {key}")
    refused({n: v for n, v in theirs.items() if "position_emb" not in n}, "has no bert.embeddings.position_embeddings")
    torch.save(theirs, path)
    with pytest.raises(CheckpointError, match=r"24 positions, too few for 100 regions; lower max"):
        import_unified_vlp(path, vocabulary)
    vocabulary.write_text(vocabulary.read_text() + "\none-more")
    with pytest.raises(CheckpointError, match=r"has 20 words, but the vocabulary file has 21; .* bert-base-cased"):
        import_unified_vlp(path, vocabulary)


def test_segments_and_positions_are_fitted_as_the_authors_do():
    two, rows = torch.tensor([[0.0], [1.0]]), torch.arange(4.0)[:, None]
    assert fit_segments(two, 6).flatten().tolist() == [0, 1, 0, 0, 0, 1]
    assert fit_segments(torch.arange(6.0)[:, None], 2).flatten().tolist() == [0, 1]
    with pytest.raises(CheckpointError, match="found 3 segment embeddings, expected 2 or 6"):
        fit_segments(torch.ones(3, 1), 6)
    assert fit_positions(rows, 6).flatten().tolist() == [0, 1, 2, 3, 0, 1]
    assert fit_positions(rows, 3).flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("bare", [True, False])
def test_starting_from_bert(tmp_path, bare):
    """BERT: two segments, more positions, a next-sentence head, no region layers; a bare one has no `bert.`."""
    bert = official("word", segments=2, positions=40, seed=1)
    theirs = {n: v for n, v in export_unified_vlp(bert).items() if not n.startswith("vis_")}
    if bare:
        theirs = {n.removeprefix("bert."): v for n, v in theirs.items() if n.startswith("bert.")}
    else:
        theirs["cls.seq_relationship.weight"] = torch.ones(2, 64)
    save_file({name: value.clone() for name, value in theirs.items()}, tmp_path / "model.safetensors")
    model = official("word", region_embedding="paper", seed=2)
    report = start_from_bert(model, tmp_path)
    ours, first = model.state_dict(), bert.state_dict()
    for name in ("encoder.layers.1.attention.qkv.weight", "text.words.weight", "text.norm.bias"):
        assert torch.equal(ours[name], first[name])
    assert torch.equal(ours["text.segments.weight"][4:], first["text.segments.weight"])
    assert torch.equal(ours["text.positions.weight"], first["text.positions.weight"][:24])
    fresh = {name for name in ours if name.startswith("regions.")}
    assert set(report.missing) == fresh | ({n for n in ours if n.startswith("heads.word.")} if bare else set())
    if not bare:
        assert "next-sentence head" in report.left["cls.seq_relationship.weight"]


def test_starting_from_a_wide_unilm_keeps_its_seq2seq_slice(tmp_path):
    theirs = {n: v for n, v in export_unified_vlp(official("word")).items() if not n.startswith("vis_")}
    slices = torch.arange(4.0)
    for name in ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias"):
        key = f"cls.predictions.transform.{name}"
        theirs[key] = torch.cat([torch.full_like(theirs[key], float(n)) for n in slices])
    torch.save(theirs, tmp_path / "unilm.bin")
    model = official("word")
    report = start_from_bert(model, tmp_path / "unilm.bin")
    for part in ("dense.weight", "dense.bias", "norm.weight", "norm.bias"):
        assert (model.state_dict()[f"heads.word.{part}"] == 3).all()
    assert any("relaxed projection" in why for why in report.left.values())


def test_starting_from_another_vocabulary_is_refused(tmp_path):
    theirs = export_unified_vlp(official("word"))
    theirs["bert.embeddings.word_embeddings.weight"] = torch.ones(30, 64)
    torch.save(theirs, tmp_path / "bert.bin")
    with pytest.raises(CheckpointError, match="has 30 words, but the model's vocabulary has 20"):
        start_from_bert(official("word"), tmp_path / "bert.bin")


def test_only_the_official_form_can_be_exported():
    with pytest.raises(CheckpointError, match="region_embedding=official"):
        export_unified_vlp(toy.model())
