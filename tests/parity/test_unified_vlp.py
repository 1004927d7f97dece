"""Unified VLP against the authors' code (see conftest.py and the README of the parity folder)."""

from functools import partial
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from diptych.core import Batch, Regions, Sample, attention_mask, collate
from diptych.models.decoding import DecodingOptions, decode, search
from diptych.models.visual import place_input
from diptych.models.weights import load_into
from diptych.objectives import AnswerQuestion, MaskedLanguage, RegionContrast
from diptych.runtime.weight_files import read_weights
from diptych.systems.unified_vlp.checkpoint import import_unified_vlp
from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.support.checkpoints import load_checkpoint
from tests.support.exporting import export_unified_vlp

pytestmark = pytest.mark.parity
CASES = ("s2s", "bi", "s2s_vismask", "bi_vismask")
close = partial(torch.testing.assert_close, atol=8e-6, rtol=1e-5)  # meta.json, suggested_tolerance
BEAM_TOLERANCE = {"atol": 2e-3, "rtol": 1e-5}


def mean(objective: Any, official: Any, batch: Batch) -> Tensor:
    """As the authors divide: by the count and a little more."""
    states = official.model(batch)
    return objective.loss(official.model, states, batch) / (objective.count(batch) + 1e-5)


@pytest.mark.parametrize("case", [*CASES, "vqa"])
def test_unified_vlp_hidden_states(unified_vlp, case):
    official, batch, valid = unified_vlp, unified_vlp.batch(case), unified_vlp.valid(case)
    official.model.keep_layers = True
    states = official.model(batch)
    assert len(states.layers) == official.config["layers"] + 1
    for number, ours in enumerate(states.layers):
        theirs = official.outputs[f"{case}.hidden.{number}"][:, : valid.shape[1]]
        close(ours[valid], theirs[valid])
    close(states.embedded["regions"], official.outputs[f"{case}.vis_embed"])
    close(states.embedded["places"], official.outputs[f"{case}.vis_pe_embed"])
    close(official.model.heads["pooler"](states.special["cls"]), official.outputs[f"{case}.pooled"])


@pytest.mark.parametrize("case", CASES)
def test_unified_vlp_prediction_scores(unified_vlp, case):
    official, batch = unified_vlp, unified_vlp.batch(case)
    scores = official.model.heads["word"](official.model(batch).text)
    said = official.inputs[f"{case}.masked_weights"].bool()
    places = official.inputs[f"{case}.masked_pos"] - official.regions - 2
    rows = torch.arange(len(batch))[:, None].expand_as(places)
    close(scores[rows[said], places[said]], official.outputs[f"{case}.prediction_scores"][said])
    if f"{case}.prediction_scores_all" in official.outputs:
        theirs = official.outputs[f"{case}.prediction_scores_all"][:, official.regions + 2 :][:, : batch.text.shape[1]]
        close(scores[batch.text_present], theirs[batch.text_present])


@pytest.mark.parametrize("case", CASES)
def test_unified_vlp_losses(unified_vlp, case):
    official, batch = unified_vlp, unified_vlp.batch(case)
    masked = MaskedLanguage(official.model.vocabulary)
    close(mean(masked, official, batch), official.outputs[f"{case}.masked_lm_loss"])
    if case.endswith("vismask"):
        contrast = RegionContrast()
        ours = contrast.loss(official.model, official.model(batch), batch) / contrast.count(batch)
        close(ours, official.outputs[f"{case}.vis_pretext_loss"])


def test_unified_vlp_drop_worst(unified_vlp):
    worst = unified_vlp.config["drop_worst"]
    masked = MaskedLanguage(unified_vlp.model.vocabulary, drop_worst=worst)
    batch, theirs = unified_vlp.batch("s2s"), unified_vlp.outputs["s2s.masked_lm_loss_drop_worst"]
    states = unified_vlp.model(batch)
    # Theirs is divided by the kept count and 1e-5 more, which is as much as 1e-5 of it.
    close(masked.loss(unified_vlp.model, states, batch) / masked.count(batch), theirs, atol=8e-6, rtol=2e-5)
    if worst * len(batch) > 1:
        assert not torch.isclose(theirs, unified_vlp.outputs["s2s.masked_lm_loss"]), "these data do not tell"


def test_unified_vlp_label_smoothing(unified_vlp):
    masked = MaskedLanguage(unified_vlp.model.vocabulary, label_smoothing=0.1)
    close(
        mean(masked, unified_vlp, unified_vlp.batch("s2s")),
        unified_vlp.outputs["s2s.masked_lm_loss_label_smoothing_0.1"],
    )


def gradients(official: Any) -> dict[str, Tensor]:
    """Under the official names: the gradients take the place of the weights, which are then exported."""
    known = {name: p.grad if p.grad is not None else p * 0 for name, p in official.model.named_parameters()}
    before = {name: p.detach().clone() for name, p in official.model.named_parameters()}
    official.model.load_state_dict(known)
    exported = {name: value.clone() for name, value in export_unified_vlp(official.model).items()}
    official.model.load_state_dict(before)
    return exported


@pytest.mark.parametrize("case", ["s2s", "s2s_vismask"])
def test_unified_vlp_gradients(unified_vlp, case):
    official, batch = unified_vlp, unified_vlp.batch(case)
    official.model.zero_grad(set_to_none=True)
    states, masked, contrast = official.model(batch), MaskedLanguage(official.model.vocabulary), RegionContrast()
    loss = masked.loss(official.model, states, batch) / (masked.count(batch) + 1e-5)
    if case.endswith("vismask"):
        loss = loss + contrast.loss(official.model, states, batch) / contrast.count(batch)
    loss.backward()
    ours = gradients(official)
    theirs = {k.removeprefix(f"{case}."): v for k, v in official.grads.items() if k.startswith(f"{case}.")}
    assert len(theirs) > 16 * official.config["layers"], "too few gradients to compare"
    for name, wanted in theirs.items():
        off = (ours[name] - wanted).norm()
        # The gradient of the keys' bias is zero but for rounding: softmax does not see a constant.
        assert off <= 1e-4 * wanted.norm() + 1e-7, (name, float(off), float(wanted.norm()))
        torch.testing.assert_close(ours[name], wanted, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
    for name, wanted in official.outputs.items():
        if name.startswith(f"{case}.grad_norm."):
            short = name.removeprefix(f"{case}.grad_norm.")
            torch.testing.assert_close(ours[short].norm(), wanted.float(), rtol=1e-4, atol=1e-6)


def test_unified_vlp_answers(unified_vlp):
    official, batch = unified_vlp, unified_vlp.batch("vqa")
    states, objective = official.model(batch), AnswerQuestion(official.model.vocabulary)
    scores = official.model.heads["answer"](states)
    close(scores, official.outputs["vqa.vqa_logits"])
    close(objective.loss(official.model, states, batch) / objective.count(batch), official.outputs["vqa.loss"])
    assert (scores[:, 1:].argmax(-1) + 1).tolist() == official.outputs["vqa.ans_idx"].tolist()  # 0 is <unk>


def test_unified_vlp_boxes(unified_vlp):
    batch = unified_vlp.batch("s2s")
    close(place_input(batch, "official", "official", batch.classes), unified_vlp.inputs["vis_pe"])


@pytest.mark.parametrize("case", [*CASES, "vqa"])
def test_unified_vlp_attention(unified_vlp, case):
    """Who sees whom. With hidden regions too: the authors' code means to close their columns, but does not."""
    batch, valid = unified_vlp.batch(case), unified_vlp.valid(case)
    ours = attention_mask(batch.attention, unified_vlp.regions + 2, batch.text.shape[1], 0, valid)
    theirs = unified_vlp.inputs[f"{case}.attention_mask"][:, : valid.shape[1], : valid.shape[1]].bool()
    assert torch.equal(ours[valid], theirs[valid])


@pytest.mark.parametrize("case", [*CASES, "vqa"])
def test_unified_vlp_segments(unified_vlp, case):
    batch, count = unified_vlp.batch(case), unified_vlp.regions + 2
    pairs, theirs = unified_vlp.model._segments(batch.attention), unified_vlp.inputs[f"{case}.segment_ids"]
    assert (pairs[:, :1] == theirs[:, :count]).all()
    assert (pairs[:, 1:] == theirs[:, count:])[:, : batch.text.shape[1]][batch.text_present].all()
    assert unified_vlp.model.config.segments == (6 if unified_vlp.config["new_seg"] else 2)


class Listener:
    """A model whose scores are written down."""

    def __init__(self, model: Any) -> None:
        self.model, self.vocabulary, self.scored = model, model.vocabulary, []

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Any]:
        scores, memory = self.model.begin(batch, room)
        self.scored.append(scores[:, None])
        return scores, memory

    def follow(self, memory: Any, words: Tensor, parents: Tensor) -> Tensor:
        self.scored.append(self.model.follow(memory, words, parents))
        return self.scored[-1]


def steps(official: Any) -> int:
    return official.inputs["decode.segment_ids"].shape[1] - official.inputs["decode.input_ids"].shape[1]


def test_unified_vlp_greedy(unified_vlp):
    """The authors' greedy decoding never stops, and hands back raw scores."""
    listener, options = Listener(unified_vlp.model), DecodingOptions(max_words=steps(unified_vlp), stop_early=False)
    batch = unified_vlp.batch("decode")
    frames = search(listener, batch, options)
    words = torch.cat(frames.words, 1)
    assert words.tolist() == unified_vlp.outputs["decode.greedy.ids"].tolist()
    scores = torch.cat(listener.scored, 1)
    close(scores, unified_vlp.outputs["decode.greedy.step_scores"])
    close(scores.amax(-1), unified_vlp.outputs["decode.greedy.max_logits"])
    for found, row in zip(decode(unified_vlp.model, batch, options), words.tolist(), strict=True):
        assert found[0].tokens == (row[: row.index(unified_vlp.sep)] if unified_vlp.sep in row else row)


@pytest.mark.parametrize("name", ["beam5_lp0", "beam5_lp", "beam3_lp0"])
def test_unified_vlp_beams(unified_vlp, name):
    official, theirs = unified_vlp, {}
    for key, value in unified_vlp.outputs.items():
        if key.startswith(f"decode.{name}."):
            theirs[key.removeprefix(f"decode.{name}.")] = value
    count, batch, listener = steps(official), official.batch("decode"), Listener(official.model)
    options = DecodingOptions(
        beams=theirs["scores"].shape[-1],
        max_words=count,
        length_bonus=official.config["lp"] if name.endswith("_lp") else 0.0,
        stop_early=False,
    )
    frames = search(listener, batch, options)
    # A beam that goes on after its [SEP] is down by 10000, where float32 is too coarse to break ties.
    alive = theirs["scores"][:, :count] > -5000
    assert torch.stack(frames.words, 1)[alive].tolist() == theirs["wids"][:, :count][alive].tolist()
    assert torch.stack(frames.parents, 1)[alive].tolist() == theirs["ptrs"][:, :count][alive].tolist()
    close(torch.stack(frames.scores, 1), theirs["scores"][:, :count], **BEAM_TOLERANCE)
    if "first_step_scores" in theirs:
        close(listener.scored[0], theirs["first_step_scores"])
        close(torch.stack(listener.scored[1:], 1), theirs["step_scores_from_1"])
    for early in (False, True):
        found = decode(official.model, batch, options.model_copy(update={"stop_early": early}))
        for best, sequence in zip(found, theirs["pred_seq"].tolist(), strict=True):
            ended = [*best[0].tokens, official.sep]
            assert sequence[: len(ended)] in (ended, [*best[0].tokens, 0][: len(ended)])
            assert not any(sequence[len(ended) :])


def test_unified_vlp_padding_and_company_change_nothing(unified_vlp):
    """A picture alone gives what it gives in a batch of longer ones."""
    for row in range(unified_vlp.config["batch"]):
        sample = unified_vlp.sample("s2s", row)
        alone = unified_vlp.model(collate([sample])).text[0]
        together = unified_vlp.model(unified_vlp.batch("s2s")).text[row, : len(sample.text)]
        close(alone, together)


@pytest.mark.large
@pytest.mark.thorough
@pytest.mark.parametrize("parity_folder", ["committed"], indirect=True)  # the keys of all sets are the same
@pytest.mark.parametrize("start", ["", "module."])
def test_unified_vlp_base_checkpoint(parity_folder, tmp_path, start):
    """Every key of keys.txt at the real size, in half precision: imported, saved as ours, reloaded, one forward."""
    torch.manual_seed(0)
    theirs: dict[str, Tensor] = {}
    for line in (parity_folder / "unified_vlp" / "keys.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, shape, _ = line.split("\t")
            sizes = [int(size) for size in shape.split("x")]
            theirs[start + name] = torch.empty(sizes, dtype=torch.float16).uniform_(-0.05, 0.05)
    words = f"{start}bert.embeddings.word_embeddings.weight"
    theirs[f"{start}cls.predictions.decoder.weight"] = theirs[words]
    torch.save(theirs, tmp_path / "model.30.bin")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *(f"W{n}" for n in range(len(special), len(theirs[words])))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))

    model, report = load_checkpoint(UnifiedVLP, import_unified_vlp, tmp_path / "model.30.bin", tmp_path / "vocab.txt")
    assert report.missing == []
    assert set(report.renamed) | set(report.left) == set(theirs)
    assert set(report.left) == {f"{start}cls.predictions.decoder.weight"}
    assert (model.config.layers, model.config.heads, model.config.answers) == (12, 12, 3129)
    exported = export_unified_vlp(model)
    for name, value in theirs.items():
        assert torch.equal(exported[name.removeprefix(start)], value.float()), name

    save_file(model.state_dict(), tmp_path / "ours.safetensors")
    again = UnifiedVLP(model.config, tuple(model.heads))
    load_into(again, read_weights(tmp_path / "ours.safetensors"), complete=True)
    found = Regions(
        boxes=torch.tensor([[0.1, 0.1, 0.5, 0.9], [0.0, 0.2, 1.0, 1.0]]),
        scores=torch.tensor([0.9, 0.8]),
        size=(640, 480),
        classes=torch.rand(2, 1601).softmax(-1),
        features=torch.rand(2, 2048),
    )
    batch = collate([Sample("k", "p", found, torch.tensor([10, 20, 3]))])
    ours, reloaded = model.eval()(batch), again.eval()(batch)
    assert ours.text.isfinite().all()
    assert torch.equal(ours.text, reloaded.text)
    assert torch.equal(model.heads["answer"](ours), again.heads["answer"](reloaded))
