"""The tables of VL-BERT (Su et al., arXiv 1908.08530, first version)."""

from __future__ import annotations

from functools import partial

from diptych.systems.commands import BERT, evaluate, finetune, folder, pretrain, submit
from diptych.systems.ledger import Paper, Part, Row, Table, numbers

FULL = "vl-bert/pretrain"
WITHOUT = "vl-bert/without-pretraining"
_row = partial(Row, system="vl-bert")
SPLITS = ("val", "testA", "testB")
# Regions of the annotations; those of MAttNet's detector come as given features.
OWN, DETECTED = "REFCOCO+", "REFCOCO+DETECTED"
FROM_PIXELS = (
    "From pixels: `--set network_init=FILE` names what the network begins as. `vl-bert/official/...` pre-trains and "
    "answers from stored features."
)


def _line(name: str, cells: str) -> Row:
    return Row(name, numbers(cells))


def vcr(name: str, model: str = "none", begin: str = "") -> tuple[str, ...]:
    out = folder(name, "vcr")
    return (
        finetune("vcr", "vl-bert/vcr", "VCR", model, out, begin),
        evaluate(out, "VCR", "--split val"),
        submit(out, "VCR", "vcr"),
    )


def vqa(name: str, model: str = "none", begin: str = "") -> tuple[str, ...]:
    out = folder(name, "vqa")
    return (
        finetune("vqa", "vl-bert/vqa", "VQA", model, out, begin),
        submit(out, "VQA", "vqa"),
    )


def referring(name: str, model: str = "none", begin: str = "") -> tuple[str, ...]:
    """On the annotated regions, then on detected ones."""
    made: list[str] = []
    for data, kind in ((OWN, "ground-truth"), (DETECTED, "detected")):
        out = folder(name, f"referring-{kind}")
        made.append(finetune("referring", "vl-bert/referring", data, model, out, begin))
        made += [evaluate(out, data, f"--split {split}") for split in SPLITS]
    return tuple(made)


def pairs(recipe: str = FULL) -> str:
    return pretrain(recipe, "CC", "--init BERT --vocab VOCAB")


VL_BERT = Paper(
    "vl-bert",
    "Su et al. 2019, arXiv 1908.08530v1",
    (
        Table(
            1,
            "Pre-trained models compared in words: architecture, data, tasks",
            (
                Row("VideoBERT", ()),
                Row("CBT", ()),
                Row("ViLBERT", ()),
                Row("B2T2", ()),
                Row("LXMERT", ()),
                Row("VisualBERT", ()),
                Row("Unicoder-VL", ()),
                _row("Our VL-BERT", (), (pairs(),), note=FROM_PIXELS),
            ),
        ),
        Table(
            2,
            "VCR",
            (
                _line("R2C", "63.8 65.1 67.2 67.3 43.1 44.0"),
                _line("ViLBERT", "72.4 73.3 74.5 74.6 54.0 54.8"),
                _line("VisualBERT", "70.8 71.6 73.2 73.2 52.2 52.4"),
                _line("B2T2", "71.9 72.6 76.0 75.7 54.9 55.0"),
                _row(
                    "VL-BERT w/o pre-training",
                    numbers("73.5 - 74.4 - 54.8 -"),
                    vcr(WITHOUT, begin=BERT),
                    note=FROM_PIXELS,
                ),
                _row(
                    "VL-BERT",
                    numbers("73.7 74.0 74.5 74.8 55.0 55.5"),
                    (pairs(), *vcr(FULL, folder(FULL))),
                    note=FROM_PIXELS,
                ),
            ),
            (
                Part("VCR Q→A", ("val", "test"), "vcr"),
                Part("VCR QA→R", ("val", "test"), "vcr"),
                Part("VCR Q→AR", ("val", "test"), "vcr"),
            ),
        ),
        Table(
            3,
            "VQA 2.0",
            (
                _line("BUTD", "65.32 65.67"),
                _line("ViLBERT", "70.55 70.92"),
                _line("VisualBERT", "70.80 71.00"),
                _line("LXMERT", "72.42 72.54"),
                _row("VL-BERT w/o pre-training", numbers("69.58 -"), vqa(WITHOUT, begin=BERT), note=FROM_PIXELS),
                _row("VL-BERT", numbers("70.50 70.83"), (pairs(), *vqa(FULL, folder(FULL))), note=FROM_PIXELS),
            ),
            (Part("VQA 2.0 accuracy", ("test-dev", "test-std"), "vqa"),),
        ),
        Table(
            4,
            "RefCOCO+",
            (
                _line("MAttNet", "71.01 75.13 66.17 | 65.33 71.62 56.02"),
                _line("ViLBERT", "- - - | 72.34 78.52 62.61"),
                _row(
                    "VL-BERT w/o pre-training",
                    numbers("73.96 76.65 67.64 | 65.92 72.30 55.55"),
                    referring(WITHOUT, begin=BERT),
                    note=FROM_PIXELS,
                ),
                _row(
                    "VL-BERT",
                    numbers("78.44 81.30 71.18 | 71.84 77.59 60.57"),
                    (pairs(), *referring(FULL, folder(FULL))),
                    note=FROM_PIXELS,
                ),
            ),
            (
                Part("RefCOCO+, ground-truth regions", SPLITS, "referring"),
                Part("RefCOCO+, detected regions", SPLITS, "referring"),
            ),
        ),
    ),
    dict.fromkeys(
        ("vl-bert/pretrain", "vl-bert/vcr", "vl-bert/vqa", "vl-bert/referring"), "16 V100, hours not reported"
    ),
)
