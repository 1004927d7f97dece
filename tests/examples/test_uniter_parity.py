"""UNITER against the authors' code (uniter_data/meta.json says how the numbers were made)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from uniter.checkpoint import ENTAILMENT
from uniter.model import Uniter, halves
from uniter.objectives import WordRegionAlignment

from diptych.core import Objective, Regions, States, collate
from diptych.core.entailment import LABELS
from diptych.objectives import ImageTextMatching, MaskedRegionClass, MaskedRegionFeature
from diptych.runtime.errors import CheckpointError
from diptych.systems import SYSTEMS

pytestmark = pytest.mark.parity
HEADS = {"vqa": "answer", "ve": "entailment", "retrieval": "match"}


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["pretrain", "vqa", "ve", "retrieval", "nlvr2_paired"])
def test_every_key_is_accounted_for(official: Any, name: str) -> None:
    model, report = official.model(name)
    assert official.keys(name) == set(report.renamed) | set(report.left)
    assert not report.missing
    tied = {"cls.predictions.decoder.weight", "feat_regress.weight"}
    assert set(report.left) == (tied if name == "pretrain" else set())
    assert model.config.pictures == (2 if name == "nlvr2_paired" else 1)


@torch.no_grad()
def test_states_and_words(official: Any) -> None:
    model, _ = official.model("pretrain")
    batch = official.batch()
    states = model(batch)
    for row, (words, regions) in enumerate(zip(batch.counted_words(), batch.counted_regions(), strict=True)):
        parts = states.special["cls"][row, None], states.text[row, :words], states.regions[row, :regions]
        close(torch.cat(parts), official.outputs[f"{row}.states"])
    close(model.heads["word"](states.text[:, 0]), official.outputs["mlm_scores_of_first_word"])


@torch.no_grad()
def test_hidden_regions(official: Any) -> None:
    model, _ = official.model("pretrain")
    batch = official.batch(hidden=True)
    states = model(batch)
    close(model.heads["region_class"](states.regions[batch.hidden]), official.outputs["mrc_scores"])
    close(model.heads["region_feature"](states.regions[batch.hidden]), official.outputs["mrfr_predictions"])


@pytest.mark.parametrize(
    ("objective", "name", "hidden"),
    [
        (ImageTextMatching(), "itm_loss_sum", False),
        (MaskedRegionClass(labels="divergence"), "mrc_kl_loss_sum", True),
        (MaskedRegionFeature(), "mrfr_loss", True),
    ],
)
@torch.no_grad()
def test_losses(official: Any, objective: Objective, name: str, hidden: bool) -> None:
    model, _ = official.model("pretrain")
    batch = official.batch(hidden)
    loss = objective.loss(model, model(batch), batch)
    close(loss / objective.count(batch) if name == "mrfr_loss" else loss, official.outputs[name][0])


@torch.no_grad()
def test_alignment(official: Any) -> None:
    model, _ = official.model("pretrain")
    batch = official.batch()
    matched, others = official.outputs["wra_of_matched"], official.outputs["wra_of_others"]
    found = WordRegionAlignment().distances(model(batch), batch)
    close(found[batch.matched], matched)
    close(found[~batch.matched], others)
    close(WordRegionAlignment().loss(model, model(batch), batch), matched.sum() - others.sum())


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_fine_tuned_heads(official: Any, name: str) -> None:
    model, _ = official.model(name)
    scores = official.outputs[f"{name}_scores"]
    if name == "ve":
        scores = scores[:, [ENTAILMENT.index(label) for label in LABELS]]
    close(model.heads[HEADS[name]](model(official.batch())), scores)


@torch.no_grad()
def test_pairs_of_pictures(official: Any) -> None:
    """Left and right by hand, as the vectors' texts differ; then that a joined picture is read so."""
    model, _ = official.model("nlvr2_paired")
    left, right = model.read(official.batch(), torch.tensor([1, 2, 1, 2])).special["pooled"].view(2, 2, -1).unbind(1)
    none = torch.zeros(2, 0, model.config.width)
    pair = States(none, none, special={"pooled": left, "pooled right": right})
    close(model.heads["nlvr"](pair), official.outputs["nlvr2_paired_scores"])
    one, other = (official.sample(number) for number in (0, 1))
    apart = model.read(collate([one, replace(other, text=one.text)]), torch.tensor([1, 2])).special["pooled"]
    both = collate([replace(one, regions=side_by_side(one.regions, other.regions))])
    torch.testing.assert_close(halves(both).boxes[0, : len(one.regions)], one.regions.boxes)
    found = model(both).special
    close(torch.cat([found["pooled"], found["pooled right"]]), apart)


def side_by_side(left: Regions, right: Regions) -> Regions:
    half, more = torch.tensor([0.5, 1, 0.5, 1]), torch.tensor([0.5, 0, 0.5, 0])
    features = [one.features for one in (left, right) if one.features is not None]
    boxes = torch.cat([left.boxes * half, right.boxes * half + more])
    return Regions(boxes, torch.ones(len(boxes)), (200, 100), features=torch.cat(features))


def test_gradients_of_the_alignment_go_to_words_and_regions(official: Any) -> None:
    """The plan is constant: the gradient is that of the cosine distances alone, weighed by it."""
    model, _ = official.model("pretrain")
    batch = official.batch()
    states = model(batch)
    states.regions.retain_grad()
    WordRegionAlignment().loss(model, states, batch).backward()
    assert states.regions.grad is not None
    assert states.regions.grad[batch.regions_present].abs().sum(-1).min() > 0
    assert states.regions.grad[~batch.regions_present].abs().max() == 0


def test_others_are_refused(official: Any, tmp_path: Path) -> None:
    theirs = load_file(official.folder / "vqa.safetensors")
    theirs.pop("uniter.img_embeddings.mask_embedding.weight")
    save_file(theirs, tmp_path / "vqa.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks uniter\.img_embeddings\.mask_embedding\.weight"):
        replace(official, folder=tmp_path).model("vqa")


def test_half_precision_and_names_of_data_parallel_training(official: Any, tmp_path: Path) -> None:
    theirs = load_file(official.folder / "vqa.safetensors")
    save_file({f"module.{name}": value.half() for name, value in theirs.items()}, tmp_path / "vqa.safetensors")
    (tmp_path / "vocab.txt").write_text((official.folder / "vocab.txt").read_text())
    model, report = replace(official, folder=tmp_path).model("vqa")
    assert isinstance(model, Uniter)
    assert not report.missing
    assert all(name.startswith("module.") for name in report.renamed)


def test_it_begins_from_bert(official: Any, tmp_path: Path) -> None:
    """The same weights under BERT's names, without those of regions."""
    model, _ = official.model("pretrain")
    theirs = {
        name: value for name, value in load_file(official.folder / "pretrain.safetensors").items() if "img" not in name
    }
    renamed = {name.replace("uniter.", "bert."): value for name, value in theirs.items()}
    save_file(
        {name: value for name, value in renamed.items() if name.startswith(("bert.", "cls."))},
        tmp_path / "bert.safetensors",
    )
    fresh = Uniter(model.config, ("word", "match"))
    report = SYSTEMS["uniter"].start(fresh, str(tmp_path / "bert.safetensors"))
    assert all(name.startswith(("regions.", "heads.match.")) for name in report.missing)
    for name in ("text.words.weight", "encoder.layers.1.outer.weight", "heads.pooler.0.weight", "heads.word.bias"):
        torch.testing.assert_close(fresh.state_dict()[name], model.state_dict()[name])
