"""TDEN against the re-release of its authors (see conftest.py and the README of the parity folder)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.core import IGNORE, Batch, Regions, Sample, Stream, collate
from diptych.models.decoder import causal, closed_of
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.models.heads import answer_probabilities
from diptych.objectives import (
    AnswerQuestion,
    GenerateText,
    MaskedLanguage,
    MaskedRegionClass,
    ScheduledSampling,
    Similarity,
)
from diptych.objectives.masked_regions import overlaps
from diptych.systems.tden.checkpoint import import_tden
from diptych.systems.tden.layers import after_each
from diptych.systems.tden.model import Tden
from tests.parity.sets import Official, weights
from tests.support.checkpoints import load_checkpoint
from tests.support.exporting import export_tden

pytestmark = pytest.mark.parity
close = partial(torch.testing.assert_close, atol=5e-6, rtol=1e-5)


class OfficialTden(Official):
    def model(self, name: str = "pretrain") -> Tden:
        theirs = weights(self.folder, f"weights_{name}", self.vocabulary_file.parent)
        model, report = load_checkpoint(Tden, import_tden, theirs, self.vocabulary_file, heads=self.config["heads"])
        assert report.missing == []
        assert set(report.left) <= {"predictor.decoder.bias"}
        return model.eval()

    def sample(self, case: str, row: int) -> Sample:
        """Of the pre-training, the question or the caption; the text without the [CLS] that the model adds."""
        inputs = {k.removeprefix(f"{case}."): v[row] for k, v in self.inputs.items() if k.startswith(f"{case}.")}
        name = str(self.config["ids"][row])
        if case == "caption":
            return Sample(str(row), name, self.regions(row, None), torch.zeros(0, dtype=torch.long))
        if case == "caption_xe":
            said = inputs["G_TARGET_IDS"][inputs["G_TARGET_IDS"] >= 0]
            objective = GenerateText(self.model().vocabulary, reads="nothing")
            return objective.prepare([Sample(str(row), name, self.regions(row, None), said)], Random(0))[0]
        length = int(inputs["TOKENS_MASKS"].sum())
        text = inputs["U_TOKENS_IDS"][1:length].long()
        if case == "vqa":
            scores = {n: float(v) for n, v in enumerate(inputs["U_TARGET_IDS"]) if v}
            return Sample(str(row), name, self.regions(row, None), text, truth={"answer_scores": scores})
        labels = inputs["U_TARGET_IDS"][1:length].long()
        masked = Sample(str(row), name, self.regions(row, inputs["V_TARGET_LABELS"] > 0), text, labels)
        return GenerateText(self.model().vocabulary, source="hidden").prepare([masked], Random(0))[0]

    def regions(self, row: int, chosen: Tensor | None) -> Regions:
        width, height = (int(n) for n in self.inputs[f"raw.image_wh.{row}"])
        boxes = self.inputs[f"raw.boxes.{row}"] / torch.tensor([width, height, width, height])
        regions = Regions(
            boxes=boxes,
            scores=torch.ones(len(boxes)),
            size=(width, height),
            classes=self.inputs["pretrain.V_TARGET"][row, : len(boxes)],
            features=self.inputs[f"raw.feats.{row}"],
        )
        if chosen is None:
            return regions
        return regions.hide(chosen[: len(boxes)])  # these vectors hide nothing that overlaps


@pytest.fixture(scope="module")
def official(parity_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> OfficialTden:
    folder = parity_folder / "tden"
    if not folder.is_dir():
        pytest.skip(f"{parity_folder} has no tden")
    return OfficialTden.of(folder, tmp_path_factory.mktemp("parity"))


@pytest.fixture(scope="module")
def model(official: OfficialTden) -> Tden:
    return official.model()


def same_layers(official: OfficialTden, ours: Stream, name: str) -> None:
    count = sum(key.startswith(f"{name}.") for key in official.outputs)
    assert len(ours.layers) == count > 0, name
    for number, states in enumerate(ours.layers, 1):
        close(states[ours.present], official.outputs[f"{name}.{number}"][ours.present])


def sentence_written(model: Tden, target: Tensor, present: Tensor) -> Stream:
    """The generation stream: the same sentence layers, each word seeing the past."""
    from diptych.models.decoder import causal

    x, layers = model.embed_words(target, 0, 1), []
    for layer in model.sentence:
        x = layer(x, causal(target.shape[1], x))
        layers.append(x)
    return Stream(tuple(layers), present)


def cut(official: OfficialTden, stream: Stream, case: str, name: str) -> None:
    """Our target is without the place after the last word, which says nothing."""
    for number, states in enumerate(stream.layers, 1):
        theirs = official.outputs[f"{case}.{name}.{number}"][:, : states.shape[1]]
        close(states[stream.present], theirs[stream.present])


def test_tden_pretraining_states(official, model):
    batch, out = official.batch("pretrain"), official.outputs
    objects, sentence = model.read_regions(batch), model.read_text(batch)
    close(model.regions(batch)[objects.present], out["pretrain.visual_embed"][objects.present])
    cls = torch.full((len(batch), 1), official.special["[CLS]"])
    words = model.embed_words(torch.cat([cls, batch.text], 1), 0, 0)
    close(words[sentence.present], out["pretrain.token_embed_u"][sentence.present])
    same_layers(official, objects, "pretrain.object_encoder")
    same_layers(official, sentence, "pretrain.sentence_encoder_u")
    cut(official, sentence_written(model, batch.target, batch.target_present), "pretrain", "sentence_encoder_g")
    states = model(batch)
    same_layers(official, states.joint[0], "pretrain.cross_encoder_visual")
    same_layers(official, states.joint[1], "pretrain.cross_encoder_text")
    x = sentence_written(model, batch.target, batch.target_present).last
    memory = states.joint[0]
    read = (memory.last, closed_of(memory.present, x))
    written = Stream(after_each(model.decoder, x, causal(x.shape[1], x), *read), batch.target_present)
    assert len(written.layers) == official.config["g_layers"]
    cut(official, written, "pretrain", "cross_decoder")
    close(states.target[batch.target_present], written.last[batch.target_present])


def test_tden_pretraining_scores(official, model):
    batch, out = official.batch("pretrain"), official.outputs
    states, said, seen = model(batch), batch.text_present, batch.regions_present
    close(model.heads["word"](states.text)[said], out["pretrain.u_logits"][:, 1:][said])
    theirs = out["pretrain.g_logits"][:, : batch.target.shape[1]]
    close(model.heads["word"](states.target)[batch.target_present], theirs[batch.target_present])
    close(model.heads["region_class"](states.regions)[seen], out["pretrain.v_logits"][:, 1:][seen])


def test_tden_inputs(official, model):
    """Overlaps are measured as there; [IMG] is the mean of what is not hidden, and its box the whole picture."""
    batch = official.batch("pretrain")
    theirs = official.inputs["pretrain.ATT_FEATS"]
    assert torch.equal(batch.regions_present & ~batch.hidden, theirs[:, 1:].abs().sum(-1) > 0)
    for row in range(len(batch)):
        regions = official.regions(row, None)
        close(overlaps(regions), official.inputs[f"raw.iou.{row}"], atol=1e-5, rtol=1e-5)
    seen = {}
    hook = model.regions.feature.register_forward_hook(lambda _, given, __: seen.update(features=given[0]))
    other = model.regions.box.register_forward_hook(lambda _, given, __: seen.update(boxes=given[0]))
    present = model.read_regions(batch).present
    hook.remove(), other.remove()
    close(seen["features"][present], theirs[present])
    close(seen["boxes"][present], official.inputs["pretrain.ATT_FEATS_LOC"][present])


OBJECTIVES = {
    "mlm_loss": MaskedLanguage,
    "msg_loss": lambda v: GenerateText(v, source="hidden"),
    "moc_loss": lambda v: MaskedRegionClass(labels="divergence"),
    "ism_triplet_loss": lambda v: Similarity("official"),
}


def mean(objective: Any, model: Tden, states: Any, batch: Batch) -> Tensor:
    return objective.loss(model, states, batch) / objective.count(batch)


def trained(official: OfficialTden) -> Tden:
    """In training mode, where batch norm reads the batch; without dropout, as the golden vectors were made."""
    model = official.model()
    for module in model.modules():
        if hasattr(module, "rate"):
            module.rate = 0.0
    return model.train()


def test_tden_losses_and_gradients(official):
    model, batch, out = trained(official), official.batch("pretrain"), official.outputs
    states, total = model(batch), torch.zeros(())
    pictures, texts = model.heads["similarity"](states)
    close(texts @ pictures.T, out["pretrain.ism_scores_train_mode"])
    model = trained(official)  # batch norm has counted one batch
    states = model(batch)
    for name, make in OBJECTIVES.items():
        loss = mean(make(model.vocabulary), model, states, batch)
        close(loss, out[f"pretrain.{name}"])
        total = total + loss
    close(total, out["pretrain.total_loss"])
    total.backward()
    buffers = export_tden(model)
    for name, wanted in out.items():
        if name.startswith("pretrain.bn_after."):
            close(buffers[name.removeprefix("pretrain.bn_after.")], wanted)
    same_gradients(model, official)


def same_gradients(model: Tden, official: OfficialTden) -> None:
    """Under the official names: the gradients take the place of the weights, which are then exported."""
    known = {name: p.grad if p.grad is not None else p * 0 for name, p in model.named_parameters()}
    model.load_state_dict(known, strict=False)
    ours = export_tden(model)
    theirs = {name.removeprefix("pretrain."): value for name, value in official.grads.items()}
    assert len(theirs) > 100, "too few gradients to compare"
    for name, wanted in theirs.items():
        off = (ours[name] - wanted).norm()
        # The gradient of a bias before softmax or batch norm is zero but for rounding: neither sees a constant.
        assert off <= 1e-4 * wanted.norm() + 1e-6, (name, float(off), float(wanted.norm()))
    for name, wanted in official.outputs.items():
        if name.startswith("pretrain.grad_norm."):
            torch.testing.assert_close(
                ours[name.removeprefix("pretrain.grad_norm.")].norm(), wanted.float(), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("margin", [0.2, 0.5])
@pytest.mark.parametrize(("form", "name"), [("official", "hardest"), ("older", "all")])
def test_tden_triplets(official, form, name, margin, distinct):
    """tden.ism, official and older: the code's losses, before they are divided by the batch."""
    scores, names = official.outputs["pretrain.ism_scores_train_mode"], official.inputs["pretrain.IDS"]
    same = torch.eye(len(names), dtype=torch.bool) if distinct else names[:, None] == names
    texts, pictures = Similarity(form, margin).costs(scores, same)
    suffix = "_distinct_ids" if distinct else ""
    close(texts.sum() + pictures.sum(), official.outputs[f"triplet.margin{margin}_{name}{suffix}"])


def test_tden_second_pass(official):
    """tden.two_pass, official: argmax, both streams; the weights as before, for the golden vectors take no step."""
    model, batch, out = trained(official), official.batch("pretrain"), official.outputs
    vocabulary = model.vocabulary
    read = (OBJECTIVES["mlm_loss"](vocabulary), OBJECTIVES["moc_loss"](vocabulary))
    update = ScheduledSampling(
        vocabulary, read, OBJECTIVES["msg_loss"](vocabulary), Similarity("official"), form="official"
    )
    seen: list[Batch] = []
    hook = model.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    counts = update.counts(batch)
    first, second = update.losses(model, batch)
    hook.remove()
    assert set(first) - set(second) == {"similarity"}
    for name, theirs in (("masked_language", "mlm"), ("masked_region_class", "moc"), ("generate_text", "msg")):
        close(first[name] / counts[name], out[f"pretrain.{theirs}_loss"])
        close(second[name] / counts[name], out[f"pass2.{theirs}_loss"])
    close(sum(second[name] / counts[name] for name in second), out["pass2.total_loss"])
    said, written = seen[1].text_present, seen[1].target_present
    assert torch.equal(seen[1].text[said], out["pass2.U_TOKENS_IDS"][:, 1:][said])
    theirs = out["pass2.G_TOKENS_IDS"][:, : seen[1].target.shape[1]]
    assert torch.equal(seen[1].target[written], theirs[written])
    assert not torch.equal(seen[1].text[said], batch.text[said])


def test_tden_retrieval(official, model):
    """Vectors in evaluation mode; pictures and texts each by themselves, as a search encodes them."""
    batch, out = official.batch("pretrain"), official.outputs
    with torch.no_grad():
        pictures, texts = model.embed_pictures(batch), model.embed_texts(batch)
    close(pictures, out["ism_eval.visual_embedding"])
    close(texts, out["ism_eval.text_embedding"])
    close(texts @ pictures.T, out["ism_eval.scores_text_by_image"])


def test_tden_answers(official):
    model, batch, out = official.model("vqa"), official.batch("vqa"), official.outputs
    states = model(batch)
    for number, name in enumerate(("cross_encoder_visual", "cross_encoder_text")):
        same_layers(official, states.joint[number], f"vqa.{name}")
    same_layers(official, states.written, "vqa.cross_decoder")
    same_layers(official, model.read_text(batch), "vqa.sentence_encoder_u")
    same_layers(official, model.read_text(batch), "vqa.sentence_encoder_g")
    scores = model.heads["answer"](states)
    close(scores[:, 0], out["vqa.u_logits"])
    close(scores[:, 1], out["vqa.g_logits"])
    close(mean(AnswerQuestion(model.vocabulary), model, states, batch), out["vqa.loss_u"] + out["vqa.loss_g"])
    assert answer_probabilities(scores).argmax(-1).tolist() == out["vqa.predicted_answer"].tolist()


@pytest.mark.parametrize("cross", [True, False])
def test_tden_captioner_cross_entropy(official, cross):
    """The captioner has no cross-modal encoder. With one, nothing changes: without a text it rests."""
    model, batch, out = official.model(), official.batch("caption_xe"), official.outputs
    if not cross:
        config = model.config.model_copy(update={"cross_layers": 0})
        captioner = Tden(config, ("word",)).eval()
        captioner.load_state_dict({k: v for k, v in model.state_dict().items() if k in captioner.state_dict()})
        model = captioner
    same_layers(official, model.read_regions(batch), "caption_xe.object_encoder")
    cut(official, sentence_written(model, batch.target, batch.target_present), "caption_xe", "sentence_encoder_g")
    states = model(batch)
    scores = model.heads["word"](states.target)
    close(scores[batch.target_present], out["caption_xe.g_logits"][:, : scores.shape[1]][batch.target_present])
    close(mean(GenerateText(model.vocabulary), model, states, batch), out["caption_xe.cross_entropy"])
    smoothed = GenerateText(model.vocabulary, label_smoothing=0.1)
    close(mean(smoothed, model, states, batch), out["caption_xe.label_smoothing_0.1"])


def paths(frames: Any, row: int) -> Iterator[tuple[list[int], list[float]]]:
    """Each beam of the last frame: its words and the score of each."""
    for beam in range(frames.words[-1].shape[1]):
        words, totals, place = [], [], beam
        for n in range(len(frames) - 1, -1, -1):
            words.append(int(frames.words[n][row, place]))
            totals.append(float(frames.scores[n][row, place]))
            place = int(frames.parents[n][row, place])
        totals = [*totals[::-1]]
        yield words[::-1], [now - before for before, now in zip([0.0, *totals[:-1]], totals, strict=True)]


@pytest.mark.parametrize("beams", [2, 3, 5])
def test_tden_beams(official, model, beams):
    ids, logs = (official.outputs[f"caption.beam{beams}.{name}"] for name in ("ids", "token_logprobs"))
    options = DecodingOptions(beams=beams, max_words=ids.shape[-1], ended="kept", stop_early=False)
    batch, sep = official.batch("caption"), official.special["[SEP]"]
    frames = search(model, batch, options)
    for row in range(len(batch)):
        found = sorted(paths(frames, row), key=lambda path: -sum(path[1]))
        for (words, scores), theirs, their_scores in zip(found, ids[row].tolist(), logs[row].tolist(), strict=True):
            assert words == theirs
            assert scores == pytest.approx(their_scores, abs=1e-5)
    for early in (True, False):
        written = decode(model, batch, options.model_copy(update={"stop_early": early}))
        for hypotheses, theirs in zip(written, ids.tolist(), strict=True):
            wanted = [row[: row.index(sep)] if sep in row else row for row in theirs]
            assert [hypothesis.tokens for hypothesis in hypotheses] == wanted


def test_tden_greedy(official, model):
    ids, logs = official.outputs["caption.greedy.ids"], official.outputs["caption.greedy.logprobs"]
    batch, sep = official.batch("caption"), official.special["[SEP]"]
    frames = search(model, batch, DecodingOptions(max_words=ids.shape[-1], stop_early=False))
    for row in range(len(batch)):
        ((words, scores),) = paths(frames, row)
        end = words.index(sep) + 1 if sep in words else len(words)
        assert words[:end] == ids[row].tolist()[:end]
        assert scores[:end] == pytest.approx(logs[row].tolist()[:end], abs=1e-5)
        assert set(ids[row].tolist()[end:]) <= {sep}


def test_tden_padding_and_company_change_nothing(official, model):
    for row in range(official.config["batch"]):
        sample = replace(official.sample("pretrain", row))
        alone, together = model(collate([sample])), model(official.batch("pretrain"))
        close(alone.text[0], together.text[row, : len(sample.text)])
        close(alone.target[0], together.target[row, : len(sample.text)])
        assert IGNORE in sample.text_labels
