"""The tables of Unified VLP (Zhou et al. 2020, arXiv 1909.11059)."""

from __future__ import annotations

from functools import partial

from diptych.systems.commands import (
    BERT,
    CAPTION_METRICS,
    FROM_NOTHING,
    UNILM,
    evaluate,
    finetune,
    folder,
    pretrain,
    submit,
)
from diptych.systems.ledger import Paper, Part, Row, Table, numbers

CAPTION = ("B@4", "M", "C", "S")
VQA = ("Overall", "Yes/No", "Number", "Other")
TEST = (
    Part("COCO test", CAPTION, "caption"),
    Part("VQA 2.0 test-std", VQA, "vqa"),
    Part("Flickr30k test", CAPTION, "caption"),
)
DEV = (TEST[0], Part("VQA 2.0 test-dev", VQA, "vqa"), TEST[2])
VAL = (Part("COCO val", CAPTION, "caption"), Part("VQA 2.0 val", VQA, "vqa"), Part("Flickr30k val", CAPTION, "caption"))
WEB_VAL = (Part("Conceptual Captions val", CAPTION, "caption"),)
RUN = ("batch", "rate", "epochs", "GPUs", "time an epoch")
FULL = "unified-vlp/pretrain"
WITHOUT = "unified-vlp/caption/without-pretraining"
AT_20 = "Scores after epoch 20 of 30; here the rate has fallen to nothing by then."
_row = partial(Row, system="unified-vlp")


def _line(name: str, cells: str) -> Row:
    return Row(name, numbers(cells))


def coco(name: str, model: str = "none", begin: str = "", split: str = "test") -> tuple[str, ...]:
    """Captions of COCO, from a model or (`begin`) without pre-training on pictures."""
    out = folder(name, "coco")
    return (
        finetune("caption", WITHOUT if begin else "unified-vlp/caption", "COCO", model, out, begin),
        evaluate(out, "COCO", f"--split {split} {CAPTION_METRICS}"),
    )


def flickr30k(name: str, model: str = "none", begin: str = "", split: str = "test") -> tuple[str, ...]:
    """Captions of Flickr30k, likewise."""
    out = folder(name, "flickr30k")
    return (
        finetune("caption", "unified-vlp/caption/flickr30k", "FLICKR30K", model, out, begin),
        evaluate(out, "FLICKR30K", f"--split {split} {CAPTION_METRICS}"),
    )


def vqa(name: str, model: str = "none", begin: str = "", split: str = "test") -> tuple[str, ...]:
    """Answers of the server's test set, of train and val, or (Table 7) of val, of train alone."""
    out, held = folder(name, "vqa"), split == "val"
    return (
        finetune("vqa", "unified-vlp/vqa/train" if held else "unified-vlp/vqa", "VQA", model, out, begin),
        evaluate(out, "VQA", "--split val") if held else submit(out, "VQA", "vqa"),
    )


def three(name: str, model: str = "none", begin: str = "", split: str = "test") -> tuple[str, ...]:
    """COCO, VQA and Flickr30k."""
    given = name, model, begin, split
    return (*coco(*given), *vqa(*given), *flickr30k(*given))


def on_pairs(recipe: str) -> str:
    return pretrain(recipe, "CC", "--init UNILM --vocab VOCAB")


def pretrained(recipe: str, split: str = "test") -> tuple[str, ...]:
    """Pre-training from UniLM, then the three tasks."""
    name = recipe if split == "test" else f"{recipe}/val"
    return (on_pairs(recipe), *three(name, folder(recipe), split=split))


def self_critical() -> tuple[str, ...]:
    """Pre-training, captions, and those rewarded."""
    learnt, out = coco(FULL, folder(FULL))[0], folder("unified-vlp/scst")
    rewarded = finetune("caption", "unified-vlp/scst", "COCO", folder(FULL, "coco"), out)
    return (on_pairs(FULL), learnt, rewarded, evaluate(out, "COCO", CAPTION_METRICS))


def on_the_web(recipe: str, begin: str, out: str) -> tuple[str, ...]:
    """20 of 30 epochs of pre-training, whose model then captions."""
    return (
        pretrain(recipe, "CC", f"{begin} --set training.steps=117000", out),
        evaluate(out, "CC", f"--task caption --split val {CAPTION_METRICS}"),
    )


UNIFIED_VLP = Paper(
    "unified-vlp",
    "Zhou et al. 2020, arXiv 1909.11059",
    (
        Table(
            1,
            "Pre-trained models compared in words: what each is made of and used for",
            (
                Row(
                    "LXMERT, ViLBERT, B2T2, VisualBERT, Unicoder-VL, VL-BERT", (), note="VL-BERT has tables of its own."
                ),
                Row("VideoBERT", ()),
                Row("CBT", ()),
                _row("Our VLP", (), pretrained("unified-vlp/pretrain"), note="Questions and captions of pictures."),
            ),
        ),
        Table(
            2,
            "Test sets, cross-entropy alone",
            (
                _line("BUTD", "36.2 27.0 113.5 20.3 | 65.7 - - - | 27.3 21.7 56.6 16.0"),
                _line("NBT (with BBox)", "34.7 27.1 107.2 20.1 | - - - - | 27.1 21.7 57.5 15.6"),
                _line("GCN-LSTM (spa)", "36.5 27.8 115.6 20.8 | - - - - | - - - -"),
                _line("GCN-LSTM (sem)", "36.8 27.9 116.3 20.9 | - - - - | - - - -"),
                _line("GVD", "- - - - | - - - - | 26.9 22.1 60.1 16.1"),
                _line("GVD (with BBox)", "- - - - | - - - - | 27.3 22.5 62.3 16.5"),
                _line("BAN", "- - - - | 70.4 85.8 53.7 60.7 | - - - -"),
                _line("DFAF", "- - - - | 70.3 - - - | - - - -"),
                _line("AoANet*", "37.2 28.4 119.8 21.3 | - - - - | - - - -"),
                _line("ViLBERT*", "- - - - | 70.9 - - - | - - - -"),
                _line("LXMERT*", "- - - - | 72.5 88.2 54.2 63.1 | - - - -"),
                _row(
                    "w/o VLP pre-training (baseline)",
                    numbers("35.5 28.2 114.3 21.0 | 70.0 86.3 52.2 59.9 | 27.6 20.9 56.8 15.3"),
                    three("unified-vlp/from-unilm", begin=UNILM),
                ),
                _row(
                    "seq2seq pre-training only",
                    numbers("36.5 28.4 117.7 21.3 | 70.2 86.7 52.7 59.9 | 31.1 23.0 68.5 17.2"),
                    pretrained("unified-vlp/pretrain/lambda-1"),
                ),
                _row(
                    "bidirectional pre-training only",
                    numbers("36.1 28.3 116.5 21.2 | 71.3 87.6 53.5 61.2 | 30.5 22.6 63.3 16.9"),
                    pretrained("unified-vlp/pretrain/lambda-0"),
                ),
                _row(
                    "Unified VLP",
                    numbers("36.5 28.4 116.9 21.2 | 70.7 87.4 52.1 60.5 | 30.1 23.0 67.4 17.0"),
                    pretrained("unified-vlp/pretrain"),
                ),
            ),
            TEST,
        ),
        Table(
            3,
            "COCO test, with CIDEr optimization",
            (
                _line("BUTD", "36.3 27.7 120.1 21.4"),
                _line("GCN-LSTM (spa)", "38.2 28.5 127.6 22.0"),
                _line("SGAE", "38.4 28.4 127.8 22.1"),
                _line("AoANet*", "38.9 29.2 129.8 22.4"),
                _row(
                    "Unified VLP",
                    numbers("39.5 29.3 129.3 23.2"),
                    self_critical(),
                ),
            ),
            TEST[:1],
        ),
        Table(
            4,
            "Levels of pre-training, test sets",
            (
                _row(
                    "From scratch",
                    numbers("35.2 27.9 112.5 20.6 | 67.7 83.5 50.7 58.1 | 28.4 20.8 53.5 15.2"),
                    three("unified-vlp/from-nothing", begin=FROM_NOTHING),
                ),
                _row(
                    "Init from BERT",
                    numbers("34.8 28.1 112.6 20.7 | 68.6 85.2 50.9 58.3 | 29.1 21.7 60.4 15.9"),
                    three("unified-vlp/from-bert", begin=BERT),
                ),
                _row(
                    "Init from UniLM",
                    numbers("35.5 28.2 114.3 21.0 | 69.6 86.1 52.4 59.4 | 27.6 20.9 56.8 15.3"),
                    three("unified-vlp/from-unilm", begin=UNILM),
                ),
                _row(
                    "Unified VLP",
                    numbers("36.5 28.4 116.9 21.2 | 70.5 87.2 52.1 60.3 | 30.1 23.0 67.4 17.0"),
                    pretrained("unified-vlp/pretrain"),
                ),
            ),
            DEV,
        ),
        Table(
            5,
            "What pre-training begins from",
            (
                _row(
                    "From scratch",
                    numbers("5.5 9.4 63.8 14.9"),
                    on_the_web("unified-vlp/pretrain", "--init none", folder("unified-vlp/20-epochs-from-nothing")),
                    note=AT_20,
                ),
                _row(
                    "Init from BERT",
                    numbers("5.7 9.7 66.7 15.3"),
                    on_the_web(
                        "unified-vlp/pretrain", "--init BERT --vocab VOCAB", folder("unified-vlp/20-epochs-bert")
                    ),
                    note=AT_20,
                ),
                _row(
                    "Init from UniLM",
                    numbers("5.8 9.7 67.0 15.5"),
                    on_the_web("unified-vlp/pretrain", "--init UNILM --vocab VOCAB", folder("unified-vlp/20-epochs")),
                    note=AT_20,
                ),
            ),
            WEB_VAL,
        ),
        Table(
            6,
            "The region's class: asked for, or given",
            (
                _row(
                    "Region label as pretext",
                    numbers("5.4 9.4 62.2 14.5"),
                    on_the_web(
                        "unified-vlp/pretrain/region-class-pretext",
                        "--init UNILM --vocab VOCAB",
                        folder("unified-vlp/20-epochs-pretext"),
                    ),
                    note=AT_20,
                ),
                _row(
                    "Region label probability as input",
                    numbers("5.8 9.7 67.0 15.5"),
                    on_the_web("unified-vlp/pretrain", "--init UNILM --vocab VOCAB", folder("unified-vlp/20-epochs")),
                    note=AT_20,
                ),
            ),
            WEB_VAL,
        ),
        Table(
            7,
            "Table 4 and Table 2 again, on validation sets",
            (
                _row(
                    "From scratch",
                    numbers("34.5 28.1 114.2 21.1 | 63.4 80.2 46.4 55.2 | 26.9 20.8 52.1 14.4"),
                    three("unified-vlp/from-nothing/val", begin=FROM_NOTHING, split="val"),
                ),
                _row(
                    "Init from BERT",
                    numbers("34.6 28.4 114.8 21.4 | 65.1 82.9 48.0 56.1 | 27.5 21.9 58.4 15.5"),
                    three("unified-vlp/from-bert/val", begin=BERT, split="val"),
                ),
                _row(
                    "w/o VLP pre-training (baseline)",
                    numbers("34.5 28.1 113.9 21.3 | 66.1 83.8 49.7 56.9 | 27.5 21.5 58.3 15.3"),
                    three("unified-vlp/from-unilm/val", begin=UNILM, split="val"),
                ),
                _row(
                    "seq2seq pre-training only",
                    numbers("35.3 28.4 116.7 21.5 | 66.4 84.6 50.1 56.9 | 28.9 23.6 67.0 17.2"),
                    pretrained("unified-vlp/pretrain/lambda-1", "val"),
                ),
                _row(
                    "bidirectional pre-training only",
                    numbers("35.3 28.3 116.1 21.4 | 68.2 85.6 51.9 59.3 | 29.6 23.2 67.2 16.8"),
                    pretrained("unified-vlp/pretrain/lambda-0", "val"),
                ),
                _row(
                    "Unified VLP",
                    numbers("35.5 28.5 118.0 21.6 | 67.4 85.4 50.1 58.3 | 29.7 23.8 69.1 17.6"),
                    pretrained("unified-vlp/pretrain", "val"),
                ),
            ),
            VAL,
        ),
        Table(
            8,
            "How each run is made",
            (
                _row("CC", ("512", "3e-4", "30", "8x V100", "5hr"), (on_pairs(FULL),)),
                _row("COCO", ("512", "1e-4", "30", "8x V100", "12min"), (on_pairs(FULL), *coco(FULL, folder(FULL)))),
                _row("VQA 2.0", ("128", "2e-5", "20", "2x V100", "32min"), (on_pairs(FULL), *vqa(FULL, folder(FULL)))),
                _row(
                    "Flickr30k",
                    ("512", "3e-5", "30", "8x V100", "3min"),
                    (on_pairs(FULL), *flickr30k(FULL, folder(FULL))),
                ),
                _row(
                    "COCO (w/o pre-training)",
                    ("512", "3e-4", "30", "8x V100", "12min"),
                    coco("unified-vlp/from-unilm", begin=UNILM),
                ),
                _row("COCO (SCST training)", ("64", "1e-6", "30", "4x Titan Xp", "3hr"), self_critical()),
            ),
            (Part("a run", RUN),),
        ),
    ),
    {
        "unified-vlp/pretrain": "30 epochs of 5 h on 8 V100",
        "unified-vlp/pretrain/lambda-0": "30 epochs of 5 h on 8 V100",
        "unified-vlp/pretrain/lambda-1": "30 epochs of 5 h on 8 V100",
        "unified-vlp/caption": "30 epochs of 12 min on 8 V100",
        WITHOUT: "30 epochs of 12 min on 8 V100",
        "unified-vlp/caption/flickr30k": "30 epochs of 3 min on 8 V100",
        "unified-vlp/vqa": "20 epochs of 32 min on 2 V100",
        "unified-vlp/scst": "30 epochs of 3 h on 4 Titan Xp",
    },
)
