"""VL-BERT against the authors' code (see conftest.py and the README of the parity folder)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, IGNORE, Batch, Regions, Sample, States, collate
from diptych.models.heads import PooledMatchHead
from diptych.models.renaming import QKV
from diptych.models.weights import ImportReport
from diptych.objectives import AnswerQuestion, ImageTextMatching, MaskedLanguage, MaskedRegionClass
from diptych.systems.vl_bert.checkpoint import import_vl_bert
from diptych.systems.vl_bert.model import VLBert, sines
from tests.parity.sets import Official, weights
from tests.support.checkpoints import load_checkpoint

pytestmark = pytest.mark.parity
close = partial(torch.testing.assert_close, atol=2e-5, rtol=1e-5)
WITHIN = 0.1  # of 1: regions whose labels sum to something else are not asked (misc.py:124-143)


class OfficialVLBert(Official):
    def model(self, name: str) -> tuple[VLBert, ImportReport]:
        theirs = weights(self.folder, f"weights_{name}", self.vocabulary_file.parent)
        sizes = {"heads": self.config["heads"], "feature_size": self.config["feat_dim"]}
        model, report = load_checkpoint(VLBert, import_vl_bert, theirs, self.vocabulary_file, **sizes)
        model.config = model.config.model_copy(update={"whole": "given"})
        model.regions.config = model.config
        model.keep_layers = True
        return model.eval(), report

    def regions(self, row: int, **more: Any) -> Regions:
        """All but the first, which is the whole picture."""
        count = self.config["num_boxes"][row]
        width, height = (int(n) for n in self.inputs["im_info"][row, :2])
        boxes = self.inputs["boxes"][row, :count].clone()
        return Regions(
            boxes=boxes[1:, :4] / torch.tensor([width, height, width, height]),
            scores=torch.ones(count - 1),
            size=(width, height),
            features=boxes[1:, 4:],
            whole=boxes[0, 4:],
            **more,
        )

    def pretrain(self, row: int) -> Sample:
        count, length = self.config["num_boxes"][row], self.config["text_lens"][row]
        labels = self.inputs["pretrain.mvrc_labels"][row, 1:count]
        hidden = self.inputs["pretrain.mvrc_ops"][row, 1:count].bool()
        regions = self.regions(row, classes=labels).hide(hidden, chosen=labels.sum(-1) > 0)
        text, wanted = (self.inputs[f"pretrain.{name}"][row, 1:length] for name in ("text", "mlm_labels"))
        matched = bool(self.inputs["pretrain.relationship_label"][row])
        return Sample(str(row), str(row), regions, text, wanted, attention=BIDIRECTIONAL, matched=matched)

    def asked(self, row: int, words: Tensor, *behind: int) -> Sample:
        text = torch.tensor([*words.tolist(), self.special["[SEP]"], *behind])
        return Sample(str(row), str(row), self.regions(row), text, attention=BIDIRECTIONAL)


@pytest.fixture(scope="module")
def official(parity_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> OfficialVLBert:
    return OfficialVLBert.of(parity_folder / "vl_bert", tmp_path_factory.mktemp("vl_bert"))


def same_layers(official: OfficialVLBert, case: str, states: States, batch: Batch) -> None:
    """Each layer's states, put into the order of the authors' seamless sequence."""
    for number, layer in enumerate(states.layers):
        theirs = official.outputs[f"{case}.hidden.{number}"]
        count = batch.boxes.shape[1] + 2
        for row, hidden in enumerate(layer):
            words = hidden[count : count + 1 + int(batch.text_present[row].sum())]
            objects = hidden[: 1 + int(batch.regions_present[row].sum())]
            seamless = torch.cat([words, objects, hidden[count - 1 : count]])
            close(seamless, theirs[row, : len(seamless)])


def test_pretraining(official: OfficialVLBert) -> None:
    model, _ = official.model("pretrain")
    batch = collate([official.pretrain(row) for row in range(official.config["batch"])])
    states = model(batch)
    same_layers(official, "pretrain", states, batch)
    match = model.heads["match"]
    assert isinstance(match, PooledMatchHead)
    close(match.pool(states.special["cls"]), official.outputs["pretrain.pooled"])
    close(match.classes(states), official.outputs["pretrain.relationship_logits"])
    asked = batch.text_labels != IGNORE
    close(model.heads["word"](states.text)[asked], official.outputs["pretrain.mlm_logits"][:, 1:][asked])
    close(
        model.heads["region_class"](states.regions)[batch.regions_present],
        official.outputs["pretrain.mvrc_logits"][:, 1 : 1 + batch.boxes.shape[1]][batch.regions_present],
    )


def test_losses_and_gradients_of_pretraining(official: OfficialVLBert) -> None:
    model, report = official.model("pretrain")
    batch = collate([official.pretrain(row) for row in range(official.config["batch"])])
    states = model(batch)
    objectives = {
        "relationship": ImageTextMatching(),
        "mlm": MaskedLanguage(model.config.vocabulary),
        "mvrc": MaskedRegionClass(labels="soft", within=WITHIN),
    }
    losses = {n: o.loss(model, states, batch) / o.count(batch) for n, o in objectives.items()}
    for name, loss in losses.items():
        close(loss, official.outputs[f"pretrain.{name}_loss"])
    total = sum(losses.values(), torch.zeros(()))
    close(total, official.outputs["pretrain.total_loss"])
    total.backward()
    ours = dict(model.named_parameters())
    compared = 0
    for name, theirs in official.grads.items():
        if name not in report.renamed:
            assert name == "vlbert.mlm_head.predictions.decoder.weight", name
            continue
        grad = ours[report.renamed[name]].grad
        assert grad is not None, name
        if ".self." in name:
            grad = grad.chunk(3)[QKV.index(name.split(".")[-2])]
        close(grad.view_as(theirs), theirs, atol=2e-6, rtol=1e-4)
        compared += 1
    assert compared == len(report.renamed) - ("aux_text_visual_embedding.weight" in report.renamed)


def test_means_by_sample(official: OfficialVLBert) -> None:
    """`MLM_LOSS_NORM_IN_BATCH_FIRST` and `MVRC_LOSS_NORM_IN_BATCH_FIRST`."""
    model, _ = official.model("pretrain")
    batch = collate([official.pretrain(row) for row in range(official.config["batch"])])
    states = model(batch)
    words = MaskedLanguage(model.config.vocabulary, by_sample=True)
    for name, objective in (("mlm", words), ("mvrc", MaskedRegionClass(labels="soft", within=WITHIN, by_sample=True))):
        loss = objective.loss(model, states, batch) / objective.count(batch)
        close(loss, official.outputs[f"pretrain.{name}_loss_norm_in_batch_first"])
        assert not torch.allclose(loss, official.outputs[f"pretrain.{name}_loss"], atol=1e-4)


def test_text_alone_beside_pairs(official: OfficialVLBert) -> None:
    model, _ = official.model("pretrain")
    pairs = [official.pretrain(row) for row in range(official.config["batch"])]
    texts, labels = (official.inputs[f"multitask.aux_{name}"] for name in ("text", "mlm_labels"))
    alone = [
        Sample(f"text {row}", f"text {row}", None, text[text > 0], label[text > 0], attention=BIDIRECTIONAL)
        for row, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    batch = collate([*pairs, *alone])
    states = model(batch)
    words = MaskedLanguage(model.config.vocabulary)
    asked = (labels != IGNORE) & (texts > 0)
    scores = model.heads["word"](states.text[len(pairs) :, : texts.shape[1]])
    close(scores[asked], official.outputs["multitask.mlm_logits_aux"][asked])
    for part, name in ((slice(len(pairs)), "wvc"), (slice(len(pairs), None), "aux")):
        chosen = collate([*pairs, *alone][part])
        loss = words.loss(model, model(chosen), chosen) / words.count(chosen)
        close(loss, official.outputs[f"multitask.mlm_loss_{name}"])


def test_vqa(official: OfficialVLBert) -> None:
    model, report = official.model("vqa")
    assert sorted(report.missing) == ["alone.weight", "hidden.weight", "regions.hidden"]
    mask, sep = official.special["[MASK]"], official.special["[SEP]"]
    samples = [
        replace(
            official.asked(row, official.inputs["vqa.question"][row, :length], mask, sep),
            truth={"answer_scores": {n: float(v) for n, v in enumerate(official.inputs["vqa.label"][row])}},
        )
        for row, length in enumerate(official.config["q_lens"])
    ]
    batch = collate(samples)
    states = model(batch)
    same_layers(official, "vqa", states, batch)
    close(model.heads["answer"](states), official.outputs["vqa.logits"])
    answer = AnswerQuestion(model.config.vocabulary)
    close(answer.loss(model, states, batch) / answer.count(batch), official.outputs["vqa.loss"])


def test_referring_expressions(official: OfficialVLBert) -> None:
    model, _ = official.model("refcoco")
    words = official.inputs["refcoco.expression"]
    batch = collate([official.asked(row, expression[expression > 0]) for row, expression in enumerate(words)])
    states = model(batch)
    same_layers(official, "refcoco", states, batch)
    all_states = torch.cat([states.special["whole"][:, None], states.regions], 1)
    there = torch.cat([torch.ones(len(batch), 1, dtype=torch.bool), batch.regions_present], 1)
    scores, theirs = model.heads["region_score"](all_states), official.outputs["refcoco.logits"]
    close(scores[there], theirs[:, : there.shape[1]][there])
    wanted = official.inputs["refcoco.label"][:, : there.shape[1]]
    close(F.binary_cross_entropy_with_logits(scores[there], wanted[there]), official.outputs["refcoco.loss"])


class Given(nn.Module):
    """The authors' stub: looks that are handed in, the whole picture's first."""

    def __init__(self, looks: Tensor) -> None:
        super().__init__()
        self.looks = looks

    def features(self, batch: Batch) -> Tensor:
        return self.looks[:, : batch.boxes.shape[1] + 1]

    def forward(self, batch: Batch, features: Tensor, seen: Tensor) -> Tensor:
        return features


def test_vcr(official: OfficialVLBert) -> None:
    model, report = official.model("vcr")
    assert all(name.startswith(("alone", "hidden", "regions")) for name in report.missing)
    sep, rows, samples = official.special["[SEP]"], official.config["batch"], []
    for row, length in enumerate(official.config["q_lens"]):
        question = official.inputs["vcr.question"][row, :length]
        for number, choice in enumerate(official.inputs["vcr.answer_choices"][row]):
            answer = choice[choice[:, 0] > 0]
            text = [*question[:, 0].tolist(), sep, *answer[:, 0].tolist(), sep]
            named = [*question[:, 1].tolist(), 0, *answer[:, 1].tolist(), 0]
            samples.append(
                Sample(
                    f"{row}/{number}",
                    str(row),
                    official.regions(row),
                    torch.tensor(text),
                    text_regions=torch.tensor(named) - 1,  # 0 stands for the whole picture
                    attention=BIDIRECTIONAL,
                )
            )
    model.regions = Given(official.inputs["vcr.obj_reps"].repeat_interleave(4, 0))  # type: ignore[assignment]
    batch = collate(samples)
    states = model(batch)
    same_layers(official, "vcr", states, batch)
    scores = model.heads["choice"](states).view(rows, 4)
    close(scores, official.outputs["vcr.logits"])
    right = official.inputs["vcr.answer_label"]
    close(F.cross_entropy(scores, right), official.outputs["vcr.ans_loss_softmax"])
    close(F.binary_cross_entropy_with_logits(scores, F.one_hot(right, 4).float()), official.outputs["vcr.ans_loss"])
    kinds = official.inputs["vcr.boxes"][..., 4].long().repeat_interleave(4, 0)[:, : batch.boxes.shape[1] + 1]
    there = torch.cat([torch.ones(len(batch), 1, dtype=torch.bool), batch.regions_present], 1)
    all_states = torch.cat([states.special["whole"][:, None], states.regions], 1)
    loss = F.cross_entropy(model.heads["region_class"](all_states[there]), kinds[there])
    close(loss, official.outputs["vcr.cnn_regularization_loss"])


def test_sines_of_coordinates(official: OfficialVLBert) -> None:
    x1, y1, x2, y2, width, height = official.inputs["coord.boxes_and_image_size"].unbind(-1)
    numbers = torch.stack([(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height], -1)
    for name, count in (("dim256", 256), ("tiny_dim", official.config["coord_dim"])):
        theirs = official.outputs[f"coord.embeddings_{name}"]
        close(sines(100 * numbers[None], count)[0].view_as(theirs), theirs, atol=1e-4, rtol=0.0)
